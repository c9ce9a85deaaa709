//! From prices to placements: the exact cover, and every single backend for comparison.

use crate::{
    Choice, Effort, Form, FormatId, Limits, Method, Offer, Offers, Price, Pricing, Problem,
    ProblemError, Solution, Tensor, gather,
    offers::{is_edge_format, last_resort},
    price,
    problem::MOST_FORMATS,
    solve,
};
use bricolage_backend::{Backend, BackendKind, Declined, Region, Registry};
use bricolage_ir::{EvalError, Graph, NodeId, Numerics, TypeError, ValueId};
use bricolage_measure::{DatabaseError, Measurement};
use bricolage_tensor::{Format, Type};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

/// Why a graph cannot be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// No backend takes a node alone.
    #[error("no backend takes node `{node}` ({op}): {}", .reasons.join("; "))]
    Uncovered {
        /// Names in the user's model.
        node: String,
        /// Name of the op.
        op: String,
        /// What each backend said.
        reasons: Vec<String>,
    },
    /// A value has a symbolic or too large size.
    #[error("value `{value}` has no constant size: {ty}")]
    Size {
        /// Name of the value.
        value: String,
        /// Its type.
        ty: String,
    },
    /// The offers do not make a cover.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// A kernel that was chosen cannot be compiled or run any more.
    #[error("`{backend}` {why}")]
    Kernel {
        /// Name of the backend.
        backend: String,
        /// A clause.
        why: String,
    },
    /// The cost database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The reference evaluator failed.
    #[error(transparent)]
    Evaluate(#[from] EvalError),
    /// A part of the graph is not well typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// The next best way to compute a region.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerUp {
    /// Name of the backend.
    pub backend: String,
    /// Pattern, variant and formats.
    pub candidate: String,
    /// Its measured time in nanoseconds.
    pub median_ns: f64,
}

/// A region with the way that was chosen for it.
#[derive(Clone)]
pub struct PlacedRegion {
    /// The chosen offer.
    pub offer: Offer,
    /// Its price.
    pub price: Price,
    /// The next best offer for the same nodes.
    pub runner_up: Option<RunnerUp>,
}

impl PlacedRegion {
    /// The nodes and the values at their border.
    pub fn region(&self) -> &Region {
        &self.offer.candidate.region
    }

    /// The measured time, if there is one.
    pub fn measured(&self) -> Option<&Measurement> {
        match &self.price {
            Price::Measured(m) => Some(m),
            _ => None,
        }
    }
}

/// A value made in one more format.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedConversion {
    /// Which value.
    pub value: ValueId,
    /// The format it exists in.
    pub from: Format,
    /// The format that is made.
    pub to: Format,
    /// Name of the backend that makes it.
    pub backend: String,
    /// What it costs.
    pub price: Price,
}

/// A cover of the graph: every node in exactly one region, every value in the formats it is read in.
#[derive(Clone)]
pub struct Placed {
    /// `mixed`, `BACKEND alone`, `BACKEND whole`, or the name of another method.
    pub name: String,
    /// In an order in which they can run.
    pub regions: Vec<PlacedRegion>,
    /// A format's source before it.
    pub conversions: Vec<PlacedConversion>,
    /// Sum of the prices in nanoseconds: predicted, not measured as a whole.
    pub predicted_ns: f64,
    /// Whether no cheaper cover of these offers exists.
    pub exact: bool,
    /// States that were visited.
    pub states: usize,
}

impl Placed {
    /// The whole graph as one region, at no known price.
    pub fn whole(offer: Offer) -> Placed {
        Placed {
            name: format!("{} whole", offer.backend()),
            regions: vec![PlacedRegion { offer, price: Price::Unmeasured, runner_up: None }],
            conversions: Vec::new(),
            predicted_ns: f64::NAN,
            exact: true,
            states: 0,
        }
    }

    /// The nodes whose kernels add noise of their own, with its size as a share of the largest magnitude of
    /// their results, as [`bricolage_ir::evaluate_noisy`] takes it.
    pub fn noise(&self) -> Vec<(NodeId, f64)> {
        let one = |region: &PlacedRegion| {
            let error = region.offer.candidate.numerics.error();
            (error > 0.0).then(|| (region.region().exit(), error))
        };
        self.regions.iter().filter_map(one).collect()
    }

    /// The numerics classes of the kernels, each once, the mildest first.
    pub fn numerics(&self) -> Vec<Numerics> {
        let all: BTreeSet<Numerics> =
            self.regions.iter().map(|r| r.offer.candidate.numerics).collect();
        all.into_iter().collect()
    }

    /// Whether no two backends share the work; the reference, which stands in where a backend has no
    /// kernel, is not counted.
    pub fn is_single(&self) -> bool {
        let trusted = |r: &&PlacedRegion| matches!(&r.offer.form, Form::Kernel(b) if b.kind() == BackendKind::Reference);
        let stand_ins: BTreeSet<&str> =
            self.regions.iter().filter(trusted).map(|r| r.offer.backend()).collect();
        self.backends().iter().filter(|b| !stand_ins.contains(b.as_str())).count() <= 1
    }

    /// Names of the backends used, each once, views left out.
    pub fn backends(&self) -> Vec<String> {
        let named = self.regions.iter().filter(|r| !matches!(r.offer.form, Form::View));
        let all: BTreeSet<String> = named.map(|r| r.offer.backend().to_owned()).collect();
        all.into_iter().collect()
    }
}

/// Prices conversions between formats.
pub trait ConversionPrices {
    /// Who converts a tensor with these dims between these formats, in the order in which they are tried.
    fn backends(&self, dims: &[i64], from: &Format, to: &Format) -> Vec<Arc<dyn Backend>>;
    /// The price of a backend's conversion, if it was measured.
    fn known(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Option<Price>, PlaceError>;
    /// Measures a backend's conversion.
    fn measure(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Price, PlaceError>;
}

/// What was tried and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Name of the backend.
    pub backend: String,
    /// The candidate, or the conversion.
    pub what: String,
    /// What would have been computed, or whose result would have been converted.
    pub nodes: Vec<NodeId>,
    /// A clause.
    pub why: String,
}

/// What placement found.
pub struct Placements {
    /// By [`Method::Exact`] the exact cover first, then every single backend that covers the graph; by the
    /// others what they make.
    pub all: Vec<Placed>,
    /// What was refused by patterns.
    pub declined: Vec<(String, Declined)>,
    /// Offers and conversions that were tried and cannot be used.
    pub refused: Vec<Refused>,
    /// How much was measured.
    pub effort: Effort,
    /// How many offers there were.
    pub offers: usize,
}

/// Covers the graph of `p`.
pub fn place(
    p: &Pricing<'_>,
    registry: &Registry,
    conversions: &dyn ConversionPrices,
    method: Method,
) -> Result<Placements, PlaceError> {
    let mut offers = gather(p.graph, registry, &p.setting)?;
    let (mut prices, mut effort) = price(p, &offers.all)?;
    let short = without_help(&offers, &prices);
    let rescue = last_resort(p.graph, registry, &p.setting, &short);
    if !rescue.is_empty() {
        let (more, extra) = price(p, &rescue)?;
        offers.all.extend(rescue);
        prices.extend(more);
        effort.known += extra.known;
        effort.measured += extra.measured;
        effort.skipped += extra.skipped;
        effort.doubted.extend(extra.doubted);
    }
    let is_over = || p.is_over(p.cover_deadline);
    let covering = Covering {
        graph: p.graph,
        is_over: &is_over,
        offers: &offers,
        prices: &prices,
        conversions,
        news: Cell::new(false),
        refused: RefCell::default(),
    };
    // A conversion that is measured for one cover may change another.
    let all = loop {
        covering.news.set(false);
        let all = match method {
            Method::Exact => covering.all(registry)?,
            Method::CollageV1 => covering.by_levels()?,
            Method::Greedy => vec![covering.greedy(registry, &p.setting)?],
        };
        if !covering.news.get() || is_over() {
            break all;
        }
    };
    let refused = offers.all.iter().zip(&prices).filter_map(|(offer, price)| match price {
        Price::Refused(why) => {
            let c = &offer.candidate;
            Some(Refused {
                backend: offer.backend().to_owned(),
                what: c.to_string(),
                nodes: c.region.nodes.clone(),
                why: why.clone(),
            })
        }
        _ => None,
    });
    let refused = refused.chain(covering.refused.take()).collect();
    Ok(Placements { all, refused, effort, offers: offers.all.len(), declined: offers.declined })
}

/// Nodes with offers for them alone of which every one is refused.
fn without_help(offers: &Offers, prices: &[Price]) -> Vec<NodeId> {
    let mut refused: HashMap<NodeId, bool> = HashMap::new();
    for (offer, price) in offers.all.iter().zip(prices) {
        if let [node] = offer.candidate.region.nodes[..] {
            *refused.entry(node).or_insert(true) &= matches!(price, Price::Refused(_));
        }
    }
    offers.order.iter().copied().filter(|n| refused.get(n) == Some(&true)).collect()
}

/// What an offer counts for in the sum, in nanoseconds. An offer that was not measured counts its
/// backend's guess, doubled.
pub(crate) fn counted(offer: &Offer, price: &Price) -> Option<f64> {
    match price {
        Price::Measured(m) => Some(m.median_ns),
        Price::Free => Some(0.0),
        Price::Refused(_) => None,
        Price::Unmeasured => Some(2.0 * offer.candidate.guess_ns.unwrap_or(1e9)),
    }
}

/// What chooses among the choices of a problem, within limits; incumbents are choices of known covers.
pub(crate) type Solver =
    dyn Fn(&Problem, Limits<'_>, &[Vec<usize>]) -> Result<Solution, ProblemError>;

/// What covers are made of.
pub(crate) struct Covering<'a> {
    pub(crate) graph: &'a Graph,
    /// Whether to stop looking for the cheapest cover.
    pub(crate) is_over: &'a dyn Fn() -> bool,
    pub(crate) offers: &'a Offers,
    pub(crate) prices: &'a [Price],
    pub(crate) conversions: &'a dyn ConversionPrices,
    /// Whether a conversion was measured for one of the covers.
    pub(crate) news: Cell<bool>,
    /// Conversions that cannot be used.
    pub(crate) refused: RefCell<BTreeSet<Refused>>,
}

impl Covering<'_> {
    /// The cheapest cover of all, and that of each backend that covers the graph.
    fn all(&self, registry: &Registry) -> Result<Vec<Placed>, PlaceError> {
        let offers = self.offers;
        let mut single = Vec::new();
        let mut incumbents = Vec::new();
        // The name of a backend to which every offer belongs.
        let mut only = None;
        let makes_plans = |b: &&Arc<dyn Backend>| {
            !matches!(b.kind(), BackendKind::Reference | BackendKind::Supplement)
        };
        for backend in registry.iter().filter(makes_plans) {
            let name = backend.name();
            let alone = |offer: &Offer| match &offer.form {
                Form::Kernel(b) => b.name() == name || b.kind() == BackendKind::Reference,
                Form::View => true,
            };
            if offers.all.iter().all(alone) {
                // Where all is the reference's, no backend gives the plan its name.
                if offers.all.iter().any(|o| o.backend() == name) {
                    only = Some(name);
                }
                continue;
            }
            let title = format!("{name} alone");
            match self.cover(&alone, &[], &title) {
                Ok((placed, chosen)) => {
                    single.push(placed);
                    incumbents.push(chosen);
                }
                // A backend that does not cover the graph is no incumbent.
                Err(PlaceError::Problem(ProblemError::Uncoverable { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let every = |_: &Offer| true;
        let (mixed, _) = self.cover(&every, &incumbents, "mixed")?;
        let same = only.map(|name| Placed { name: format!("{name} alone"), ..mixed.clone() });
        Ok([mixed].into_iter().chain(same).chain(single).collect())
    }

    /// The cheapest cover by offers that `allowed` admits, with every conversion in it measured, and the
    /// indices of its offers; no worse than `incumbents`, given by the indices of their offers.
    pub(crate) fn cover(
        &self,
        allowed: &dyn Fn(&Offer) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<(Placed, Vec<usize>), PlaceError> {
        self.cover_found_by(&solve, allowed, incumbents, name)
    }

    /// [`Covering::cover`], where `solver` decides what is chosen.
    pub(crate) fn cover_found_by(
        &self,
        solver: &Solver,
        allowed: &dyn Fn(&Offer) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<(Placed, Vec<usize>), PlaceError> {
        let &Covering { offers, prices, .. } = self;
        // What was not measured is chosen only where nothing is known.
        let measured = |&(offer, price): &(&Offer, &Price)| {
            allowed(offer) && matches!(price, Price::Measured(_))
        };
        let known = offers.all.iter().zip(prices).filter(measured);
        let known: HashSet<NodeId> =
            known.flat_map(|(offer, _)| offer.candidate.region.nodes.iter().copied()).collect();
        let needed = |offer: &Offer, price: &Price| {
            *price != Price::Unmeasured
                || offer.candidate.region.nodes.iter().any(|n| !known.contains(n))
        };
        let by_known = |offer: &Offer, price: &Price| allowed(offer) && needed(offer, price);
        match self.cover_by(solver, &by_known, incumbents, name) {
            // Known regions overlap so that they leave something out.
            Err(PlaceError::Problem(ProblemError::Uncoverable { .. })) => {
                self.cover_by(solver, &|offer, _| allowed(offer), incumbents, name)
            }
            result => result,
        }
    }

    fn cover_by(
        &self,
        solver: &Solver,
        admitted: &dyn Fn(&Offer, &Price) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<(Placed, Vec<usize>), PlaceError> {
        let &Covering { graph, is_over, offers, prices, conversions, .. } = self;
        let mut table = Table::new(graph, offers);
        let mut picked = Vec::new();
        for (i, (offer, price)) in offers.all.iter().zip(prices).enumerate() {
            if let (true, Some(cost)) = (admitted(offer, price), counted(offer, price))
                && table.push(offer, cost)
            {
                picked.push(i);
            }
        }
        let mut measured = Measured::new();
        let mut by_nodes: HashMap<&[NodeId], Vec<usize>> = HashMap::new();
        for (i, offer) in offers.all.iter().enumerate() {
            by_nodes.entry(&offer.candidate.region.nodes).or_default().push(i);
        }
        let number = |offer: &usize| picked.binary_search(offer).ok();
        let known = incumbents.iter().filter_map(|all| all.iter().map(number).collect());
        let known: Vec<Vec<usize>> = known.collect();
        let limits = Limits { is_over, ..Limits::default() };
        loop {
            let refused = table.price_conversions(graph, conversions, &measured)?;
            self.refused.borrow_mut().extend(refused);
            let solution = solver(&table.problem, limits, &known)?;
            let mut anew = false;
            for c in &solution.cover.conversions {
                let Some(backend) = table.converter(c.tensor, c.from, c.to) else { continue };
                let at = (c.tensor, c.from, c.to, backend.name().to_owned());
                if let Entry::Vacant(entry) = measured.entry(at) {
                    let (dims, from, to) = table.conversion(c.tensor, c.from, c.to);
                    let known = conversions.known(backend, dims, from, to)?;
                    anew |= known.is_none();
                    let price = match known {
                        Some(price) => price,
                        None => conversions.measure(backend, dims, from, to)?,
                    };
                    entry.insert(price);
                }
            }
            if anew {
                self.news.set(true);
                continue;
            }
            let regions = solution.cover.choices.iter().map(|&c| {
                let index = picked[c];
                let offer = offers.all[index].clone();
                let rivals = &by_nodes[&*offer.candidate.region.nodes];
                let runner_up = self.runner_up(rivals, index);
                PlacedRegion { offer, price: prices[index].clone(), runner_up }
            });
            let regions = regions.collect();
            let placed_conversions = solution.cover.conversions.iter().filter_map(|c| {
                let (_, from, to) = table.conversion(c.tensor, c.from, c.to);
                let backend = table.converter(c.tensor, c.from, c.to)?.name().to_owned();
                let price = measured[&(c.tensor, c.from, c.to, backend.clone())].clone();
                let (value, from, to) = (table.values[c.tensor], from.clone(), to.clone());
                Some(PlacedConversion { value, from, to, backend, price })
            });
            let placed = Placed {
                name: name.to_owned(),
                regions,
                conversions: placed_conversions.collect(),
                predicted_ns: solution.cover.cost,
                exact: solution.exact,
                states: solution.states,
            };
            return Ok((placed, solution.cover.choices.iter().map(|&c| picked[c]).collect()));
        }
    }

    /// The next best of `rivals`, which are offers for the nodes of the chosen one.
    fn runner_up(&self, rivals: &[usize], chosen: usize) -> Option<RunnerUp> {
        let (offers, prices) = (self.offers, self.prices);
        let others = rivals.iter().filter_map(|&i| match &prices[i] {
            Price::Measured(m) if i != chosen => Some((&offers.all[i], m.median_ns)),
            _ => None,
        });
        others.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(offer, median_ns)| RunnerUp {
            backend: offer.backend().to_owned(),
            candidate: offer.candidate.to_string(),
            median_ns,
        })
    }
}

/// Prices of conversions by tensor, formats and backend.
type Measured = HashMap<(usize, FormatId, FormatId, String), Price>;

/// The cover problem of a graph, with what its numbers stand for.
struct Table {
    problem: Problem,
    values: Vec<ValueId>,
    dims: Vec<Vec<i64>>,
    formats: Vec<Vec<Format>>,
    tensor_of: HashMap<ValueId, usize>,
    index_of: HashMap<NodeId, usize>,
    /// Who converts a tensor from one format to another.
    converters: HashMap<(usize, FormatId, FormatId), Arc<dyn Backend>>,
}

impl Table {
    fn new(graph: &Graph, offers: &Offers) -> Table {
        let index_of: HashMap<NodeId, usize> =
            offers.order.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let mut table = Table {
            problem: Problem { nodes: offers.order.len(), ..Problem::default() },
            values: Vec::new(),
            dims: Vec::new(),
            formats: Vec::new(),
            tensor_of: HashMap::new(),
            index_of,
            converters: HashMap::new(),
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
    fn push(&mut self, offer: &Offer, cost: f64) -> bool {
        let c = &offer.candidate;
        let reads: Option<Vec<_>> =
            c.region.inputs.iter().zip(&c.inputs).map(|(&v, f)| self.format(v, f)).collect();
        let writes: Option<Vec<_>> =
            c.region.outputs.iter().zip(&c.outputs).map(|(&v, f)| self.format(v, f)).collect();
        let (Some(reads), Some(writes)) = (reads, writes) else { return false };
        let mut nodes: Vec<usize> = c.region.nodes.iter().map(|n| self.index_of[n]).collect();
        nodes.sort_unstable();
        self.problem.choices.push(Choice { nodes, reads, writes, cost, backend: 0 });
        true
    }

    /// Who converts a tensor between these formats, if anyone does.
    fn converter(&self, tensor: usize, from: FormatId, to: FormatId) -> Option<&Arc<dyn Backend>> {
        self.converters.get(&(tensor, from, to))
    }

    /// The dims of a tensor and two of its formats.
    fn conversion(
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
    fn price_conversions(
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
