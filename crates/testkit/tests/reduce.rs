//! Failing graphs become small.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::reduce::{Example, reduce};
use bricolage_ir::{Op, evaluate, verify};
use bricolage_testkit::{Case, generate};
use std::time::Duration;

#[test]
fn a_failure_shrinks_to_its_cause() {
    let mut shrunk = 0;
    for seed in 0..40 {
        let example = Example::from(Case::from(generate(seed)));
        let fails = |e: &Example| {
            let mut ops = e.graph.nodes().map(|n| &e.graph.node(n).op);
            ops.any(|op| matches!(op, Op::Conv(_)))
        };
        if !fails(&example) {
            continue;
        }
        let small = reduce(&example, Duration::MAX, &fails);
        assert_eq!(verify(&small.graph), []);
        assert_eq!(small.graph.nodes().count(), 1, "seed {seed}");
        evaluate(&small.graph, &small.data()).unwrap();
        shrunk += 1;
    }
    assert!(shrunk > 5);
}
