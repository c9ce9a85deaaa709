//! The cover problem of a graph, and what its numbers stand for.

use crate::{
    Budget, Choice, ConversionPrices, FormatId, Offer, Offers, PlaceError, Price, Problem, Refused,
    Tensor, Wishes, offers::is_edge_format, problem::MOST_FORMATS,
};
use bricolage_backend::Backend;
use bricolage_ir::{Graph, NodeId, ValueId};
use bricolage_tensor::{Format, Type};
use std::{collections::HashMap, sync::Arc};

/// Prices of conversions by tensor, formats and backend.
pub(crate) type Measured = HashMap<(usize, FormatId, FormatId, String), Price>;

/// The cover problem of a graph, with what its numbers stand for.
pub(crate) struct Table {
    pub(crate) problem: Problem,
    pub(crate) values: Vec<ValueId>,
    dims: Vec<Vec<i64>>,
    formats: Vec<Vec<Format>>,
    tensor_of: HashMap<ValueId, usize>,
    index_of: HashMap<NodeId, usize>,
    /// Who converts a tensor from one format to another.
    converters: HashMap<(usize, FormatId, FormatId), Arc<dyn Backend>>,
    /// Backends that count by themselves, in the order of the problem's charges.
    charged: Vec<String>,
}

impl Table {
    pub(crate) fn new(graph: &Graph, offers: &Offers, wishes: &Wishes) -> Table {
        let index_of: HashMap<NodeId, usize> =
            offers.order.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let mut table = Table {
            problem: Problem {
                nodes: offers.order.len(),
                charges: wishes.charges.iter().map(|c| c.ns).collect(),
                budgets: wishes
                    .error
                    .map(|most| Budget { uses: Vec::new(), most })
                    .into_iter()
                    .collect(),
                ..Problem::default()
            },
            values: Vec::new(),
            dims: Vec::new(),
            formats: Vec::new(),
            tensor_of: HashMap::new(),
            index_of,
            converters: HashMap::new(),
            charged: wishes.charges.iter().map(|c| c.backend.clone()).collect(),
        };
        let produced = offers.order.iter().flat_map(|&n| graph.node(n).outputs.clone());
        for value in graph.inputs.iter().copied().chain(produced) {
            let Type::Tensor(t) = &graph.fact(value).ty else { continue };
            let producer = graph.producer(value).map(|n| table.index_of[&n]);
            let mut consumers: Vec<usize> =
                graph.uses(value).iter().map(|u| table.index_of[&u.node]).collect();
            consumers.sort_unstable();
            consumers.dedup();
            table.tensor_of.insert(value, table.values.len());
            table.values.push(value);
            table.dims.push(t.shape.as_fixed().unwrap_or_default());
            table.formats.push(vec![Format::plain(t.dtype)]);
            table.problem.tensors.push(Tensor {
                arrives: producer.is_none().then_some(0),
                wanted: graph.is_output(value).then_some(0),
                producer,
                consumers,
                convert: vec![vec![0.0]],
            });
        }
        table
    }

    /// The number of a format of a tensor, given to it when it is new.
    fn format(&mut self, value: ValueId, format: &Format) -> Option<(usize, FormatId)> {
        let tensor = *self.tensor_of.get(&value)?;
        if !is_edge_format(format) {
            return None;
        }
        let known = &mut self.formats[tensor];
        let at = match known.iter().position(|f| f == format) {
            Some(at) => at,
            None if known.len() == MOST_FORMATS => return None,
            None => {
                known.push(format.clone());
                known.len() - 1
            }
        };
        let convert = &mut self.problem.tensors[tensor].convert;
        while convert.len() < known.len() {
            convert.iter_mut().for_each(|row| row.push(f64::INFINITY));
            convert.push(vec![f64::INFINITY; convert.len() + 1]);
        }
        Some((tensor, at as FormatId))
    }

    /// Adds an offer; false when a format of it cannot lie between regions.
    pub(crate) fn push(&mut self, offer: &Offer, cost: f64) -> bool {
        let c = &offer.candidate;
        let reads: Option<Vec<_>> =
            c.region.inputs.iter().zip(&c.inputs).map(|(&v, f)| self.format(v, f)).collect();
        let writes: Option<Vec<_>> =
            c.region.outputs.iter().zip(&c.outputs).map(|(&v, f)| self.format(v, f)).collect();
        let (Some(reads), Some(writes)) = (reads, writes) else { return false };
        let mut nodes: Vec<usize> = c.region.nodes.iter().map(|n| self.index_of[n]).collect();
        nodes.sort_unstable();
        let charged = self.charged.iter().position(|b| b == offer.backend());
        let backend = charged.unwrap_or(self.charged.len());
        let error = c.numerics.error();
        if let (Some(budget), true) = (self.problem.budgets.first_mut(), error > 0.0) {
            budget.uses.push((self.problem.choices.len(), error));
        }
        self.problem.choices.push(Choice { nodes, reads, writes, cost, backend });
        true
    }

    /// Who converts a tensor between these formats, if anyone does.
    pub(crate) fn converter(
        &self,
        tensor: usize,
        from: FormatId,
        to: FormatId,
    ) -> Option<&Arc<dyn Backend>> {
        self.converters.get(&(tensor, from, to))
    }

    /// The dims of a tensor and two of its formats.
    pub(crate) fn conversion(
        &self,
        tensor: usize,
        from: FormatId,
        to: FormatId,
    ) -> (&[i64], &Format, &Format) {
        let formats = &self.formats[tensor];
        (&self.dims[tensor], &formats[usize::from(from)], &formats[usize::from(to)])
    }

    /// Finds who converts, and fills in what that costs: measured, known from before, or guessed from the
    /// bytes moved. Returns what is offered and cannot be used.
    pub(crate) fn price_conversions(
        &mut self,
        graph: &Graph,
        prices: &dyn ConversionPrices,
        measured: &Measured,
    ) -> Result<Vec<Refused>, PlaceError> {
        let mut refused = Vec::new();
        for tensor in 0..self.formats.len() {
            let count = self.formats[tensor].len() as FormatId;
            let pairs = (0..count).flat_map(|i| (0..count).map(move |j| (i, j)));
            for (i, j) in pairs.filter(|(i, j)| i != j) {
                let (dims, from, to) = self.conversion(tensor, i, j);
                let mut found = (f64::INFINITY, None);
                for backend in prices.backends(dims, from, to) {
                    let price = match measured.get(&(tensor, i, j, backend.name().to_owned())) {
                        Some(price) => Some(price.clone()),
                        None => prices.known(&backend, dims, from, to)?,
                    };
                    let cost = match price {
                        Some(Price::Measured(m)) => m.median_ns,
                        Some(Price::Free) => 0.0,
                        Some(Price::Refused(why)) => {
                            refused.push(Refused {
                                backend: backend.name().to_owned(),
                                what: format!("conversion {from} to {to}"),
                                nodes: graph.producer(self.values[tensor]).into_iter().collect(),
                                why,
                            });
                            continue;
                        }
                        // One microsecond and ten gigabytes a second: corrected before it is used.
                        None | Some(Price::Unmeasured) => {
                            1e3 + from.byte_len(dims).unwrap_or(u64::MAX) as f64 / 10.0
                        }
                    };
                    found = (cost, Some(backend));
                    break;
                }
                self.problem.tensors[tensor].convert[usize::from(i)][usize::from(j)] = found.0;
                match found.1 {
                    Some(backend) => self.converters.insert((tensor, i, j), backend),
                    None => self.converters.remove(&(tensor, i, j)),
                };
            }
        }
        Ok(refused)
    }
}
