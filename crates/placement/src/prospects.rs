//! Which offers are worth measuring, by the prices of those that were measured before them.

use crate::{Form, Offer, stretches::macs};
use bricolage_ir::{Graph, NodeId};
use bricolage_measure::Record;
use std::collections::HashMap;

/// An offer is not tried when its backend needs this many times the best time for the same products
/// and convolutions: what is around them does not make up for that.
const HOPELESS: f64 = 2.0;

/// The products and convolutions in the regions of offers.
pub(crate) struct Prospects<'a> {
    graph: &'a Graph,
    offers: &'a [Offer],
    /// For each offer, the nodes of its region that multiply and add.
    heavy: Vec<Vec<NodeId>>,
    /// Offers whose region holds this product or convolution and no other.
    around: HashMap<NodeId, Vec<usize>>,
    /// For each offer, the first with the same key, which holds the record of all.
    first: Vec<usize>,
}

impl<'a> Prospects<'a> {
    /// Of offers that refer to nodes of `graph`.
    pub(crate) fn new(graph: &'a Graph, offers: &'a [Offer]) -> Prospects<'a> {
        let heavy: Vec<Vec<NodeId>> = offers.iter().map(|o| multiplying(graph, o)).collect();
        let mut around: HashMap<NodeId, Vec<usize>> = HashMap::new();
        let mut firsts: HashMap<&str, usize> = HashMap::new();
        let mut first = Vec::new();
        for (i, (offer, heavy)) in offers.iter().zip(&heavy).enumerate() {
            first.push(*firsts.entry(&offer.key.0).or_insert(i));
            if let (Form::Kernel(_), [node]) = (&offer.form, &heavy[..]) {
                around.entry(*node).or_default().push(i);
            }
        }
        Prospects { graph, offers, heavy, around, first }
    }

    /// Sorts regions: the largest first, for their prices tell about the smaller ones, and those of
    /// several products or convolutions last, for single ones tell about them.
    pub(crate) fn rank(&self, offer: usize) -> impl Ord + use<> {
        let nodes = &self.offers[offer].candidate.region.nodes;
        let points = |&n: &NodeId| {
            let node = self.graph.node(n);
            let work = node.op.work(&self.graph.facts(&node.inputs), &self.graph.output_facts(n));
            work.map_or(0, |w| w.points)
        };
        let points: u64 = nodes.iter().map(points).sum();
        (self.heavy[offer].len() > 1, std::cmp::Reverse(points), offer)
    }

    /// Why an offer is not worth trying, if the records so far say so.
    pub(crate) fn hopeless(&self, records: &[Option<Record>], offer: usize) -> Option<String> {
        let this = &self.offers[offer];
        match &self.heavy[offer][..] {
            [] => None,
            [node] => {
                // The same kernel in a region around this one.
                let same = |o: &Offer| {
                    let (a, b) = (&o.candidate, &this.candidate);
                    (o.backend(), &a.variant) == (this.backend(), &b.variant)
                        && (a.inputs.first(), &a.outputs) == (b.inputs.first(), &b.outputs)
                        && b.region.nodes.iter().all(|n| a.region.nodes.contains(n))
                };
                let mut wider = self.around[node].iter().filter(|&&i| same(&self.offers[i]));
                wider.find_map(|&i| {
                    let canonical = &self.offers[i].canonical;
                    let own = self.time(records, i)?;
                    let rivals = |o: &Offer| o.canonical == *canonical;
                    let ratio = own / self.best(records, *node, &rivals)?;
                    let around = &self.offers[i].candidate.pattern;
                    (ratio > HOPELESS).then(|| {
                        format!("not tried: as part of {around} it takes {ratio:.1} times as long as the best")
                    })
                })
            }
            all => {
                let sum = |allowed: &dyn Fn(&Offer) -> bool| {
                    all.iter().map(|&n| self.best(records, n, allowed)).sum::<Option<f64>>()
                };
                let own = sum(&|o| o.backend() == this.backend())?;
                let ratio = own / sum(&|_| true)?;
                (ratio > HOPELESS).then(|| {
                    format!("not tried: its products and convolutions one by one take {ratio:.1} times as long as the best")
                })
            }
        }
    }

    /// The measured time of an offer in nanoseconds.
    fn time(&self, records: &[Option<Record>], offer: usize) -> Option<f64> {
        match &records[self.first[offer]] {
            Some(Record::Measured { measurement, .. }) => Some(measurement.median_ns),
            _ => None,
        }
    }

    /// The best time for a region around one product or convolution, among offers that `allowed` admits.
    fn best(
        &self,
        records: &[Option<Record>],
        node: NodeId,
        allowed: &dyn Fn(&Offer) -> bool,
    ) -> Option<f64> {
        let around = self.around.get(&node)?.iter().filter(|&&i| allowed(&self.offers[i]));
        around.filter_map(|&i| self.time(records, i)).min_by(f64::total_cmp)
    }
}

/// The nodes of an offer's region that multiply and add.
fn multiplying(graph: &Graph, offer: &Offer) -> Vec<NodeId> {
    offer.candidate.region.nodes.iter().copied().filter(|&n| macs(graph, n) > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bricolage_backend::{
        Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Proposals, Region, Setting,
    };
    use bricolage_ir::{Numerics, parse};
    use bricolage_measure::{Key, Measurement};
    use bricolage_runtime::{Kernel, Recipe};
    use bricolage_tensor::{DType, Format};
    use std::sync::Arc;

    /// A backend that is no more than a name.
    struct Named(&'static str);

    impl Backend for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn kind(&self) -> BackendKind {
            BackendKind::OpLibrary
        }
        fn version(&self) -> String {
            String::new()
        }
        fn status(&self) -> BackendStatus {
            unreachable!("nobody asks for it")
        }
        fn propose(&self, _: &Graph, _: NodeId, _: &Setting) -> Proposals {
            Proposals::default()
        }
        fn bind(&self, _: &Graph, _: &Candidate, _: &Setting) -> Result<Bound, String> {
            Err("it has no kernels".to_owned())
        }
        fn rebuild(&self, _: &Recipe, _: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
            Err("it has no kernels".to_owned())
        }
    }

    const GRAPH: &str = r#"
graph "two convolutions"
input %x: f32[1, 2, 3, 3]
constant %w: f32[2, 2, 1, 1] = [1.0, 2.0, 3.0, 4.0]
%a = Conv(strides:[1,1],dilations:[1,1],pads:[(0,0),(0,0)],groups:1) %x %w : f32[1, 2, 3, 3] from "a"
%r = Unary Relu %a : f32[1, 2, 3, 3] from "r"
%b = Conv(strides:[1,1],dilations:[1,1],pads:[(0,0),(0,0)],groups:1) %r %w : f32[1, 2, 3, 3] from "b"
output %b
"#;

    fn offer(graph: &Graph, backend: &'static str, variant: &str, nodes: &[NodeId]) -> Offer {
        let region = Region::of(graph, nodes.to_vec()).unwrap();
        let plain = |all: &[_]| vec![Format::plain(DType::F32); all.len()];
        let candidate = Candidate {
            pattern: format!("{} nodes", nodes.len()),
            variant: variant.to_owned(),
            inputs: plain(&region.inputs),
            outputs: plain(&region.outputs),
            numerics: Numerics::Exact,
            guess_ns: None,
            region,
        };
        let canonical: Arc<str> = Arc::from(format!("{nodes:?}"));
        let key = Key(format!("{backend} {variant} {canonical}"));
        let form = Form::Kernel(Arc::new(Named(backend)));
        Offer { candidate, form, canonical, threads: 1, key }
    }

    fn took(us: f64) -> Option<Record> {
        let measurement = Measurement::of(&[us * 1e3], 1, false)?;
        Some(Record::Measured { measurement, error_share: 0.0, workspace: 0, refined: false })
    }

    #[test]
    fn what_lost_by_far_is_not_tried_in_other_regions() {
        let graph = parse(GRAPH, &[]).unwrap();
        let order = graph.order();
        let (a, r, b) = (order[0], order[1], order[2]);
        let offers = [
            offer(&graph, "ours", "fast", &[a, r]),
            offer(&graph, "ours", "slow", &[a, r]),
            offer(&graph, "theirs", "any", &[a, r]),
            offer(&graph, "ours", "fast", &[a]),
            offer(&graph, "ours", "slow", &[a]),
            offer(&graph, "ours", "fast", &[b]),
            offer(&graph, "theirs", "any", &[b]),
            offer(&graph, "ours", "fast", &[a, r, b]),
            offer(&graph, "theirs", "any", &[a, r, b]),
        ];
        let prospects = Prospects::new(&graph, &offers);
        let mut ranked: Vec<usize> = (0..offers.len()).collect();
        ranked.sort_by_cached_key(|&i| prospects.rank(i));
        assert_eq!(ranked, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let mut records = vec![None; offers.len()];
        let hopeless = |records: &[Option<Record>]| -> Vec<usize> {
            (0..offers.len()).filter(|&i| prospects.hopeless(records, i).is_some()).collect()
        };
        assert_eq!(hopeless(&records), [] as [usize; 0]);
        (records[0], records[1], records[2]) = (took(10.0), took(25.0), took(19.0));
        assert_eq!(hopeless(&records), [1, 4]);
        (records[5], records[6]) = (took(10.0), took(22.0));
        assert_eq!(hopeless(&records), [1, 4, 6, 8]);
        let why = prospects.hopeless(&records, 4).unwrap();
        assert_eq!(why, "not tried: as part of 2 nodes it takes 2.5 times as long as the best");
    }
}
