//! Times that no machine can take: a record that tells one is not believed.

use bricolage_ir::{Graph, NodeId, ValueId};
use bricolage_measure::Measurement;

/// Bytes that a thread writes in a nanosecond, at most: three vectors of 64 bytes a cycle at 5 GHz.
const BYTES: f64 = 1024.0;
/// Multiply-adds that a thread does in a nanosecond, at most: a thousand narrow ones a cycle at 5 GHz, and
/// half as many again that a transform saves.
const MACS: f64 = 8192.0;

/// Nanoseconds that computing these nodes takes at least, and writing these values, on so many threads.
pub fn least_ns(graph: &Graph, nodes: &[NodeId], written: &[ValueId], threads: usize) -> f64 {
    let macs = nodes.iter().map(|&n| {
        let node = graph.node(n);
        let work = node.op.work(&graph.facts(&node.inputs), &graph.output_facts(n));
        work.map_or(0.0, |w| w.macs as f64)
    });
    let bytes = written.iter().map(|&v| {
        let ty = graph.fact(v).ty.as_tensor();
        ty.and_then(|t| t.byte_len()).unwrap_or(0)
    });
    let multiplying = macs.sum::<f64>() / MACS / threads.max(1) as f64;
    multiplying.max(least_ns_to_write(bytes.sum(), threads))
}

/// Nanoseconds that writing so many bytes takes at least.
pub(crate) fn least_ns_to_write(bytes: u64, threads: usize) -> f64 {
    bytes as f64 / BYTES / threads.max(1) as f64
}

/// Why a time cannot be, in a clause; `least` in nanoseconds as [`least_ns`] tells it.
pub fn impossible(time: &Measurement, least: f64) -> Option<String> {
    let Measurement { median_ns, min_ns, max_ns, samples, .. } = *time;
    if samples == 0 || !(min_ns > 0.0 && min_ns <= median_ns && median_ns <= max_ns) {
        return Some(format!(
            "{samples} samples from {min_ns} to {max_ns} ns cannot have the median {median_ns} ns"
        ));
    }
    (median_ns < least)
        .then(|| format!("{median_ns} ns are less than the {least:.1} ns of its work"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may panic

    use super::*;
    use bricolage_ir::{ops, origin};
    use bricolage_tensor::{DType, TensorType};

    #[test]
    fn a_product_takes_its_multiply_adds_and_a_copy_its_bytes() {
        let mut g = Graph::new("g");
        let x = g.input("x", TensorType::fixed(DType::F32, &[256, 256]));
        let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
        let y = g.add1(product, &[x, x], origin("y")).unwrap();
        let z = g.add1(ops::Unary::Relu, &[y], origin("z")).unwrap();
        let nodes = |v| vec![g.producer(v).unwrap()];
        assert_eq!(least_ns(&g, &nodes(y), &[y], 2), f64::from(1 << 24) / MACS / 2.0);
        assert_eq!(least_ns(&g, &nodes(z), &[z], 1), f64::from(1 << 18) / BYTES);
    }

    #[test]
    fn only_impossible_times_are_doubted() {
        let time = |ns: f64| Measurement::of(&[ns, ns, 2.0 * ns], 1, false).unwrap();
        assert_eq!(impossible(&time(10.0), 9.0), None);
        let why = impossible(&time(8.0), 9.0).unwrap();
        assert!(why.contains("8 ns") && why.contains("9.0 ns"), "{why}");
        for ns in [0.0, -1.0, f64::NAN, f64::INFINITY - f64::INFINITY] {
            assert!(impossible(&time(ns), 0.0).is_some(), "{ns}");
        }
        let disordered = Measurement { max_ns: 5.0, ..time(10.0) };
        assert!(impossible(&disordered, 0.0).is_some());
    }
}
