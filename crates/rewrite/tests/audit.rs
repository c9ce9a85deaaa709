//! A rule that changes a result is named, left out and shown by the nodes that it looked at alone.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage_ir::{Graph, NodeId, OpKind, evaluate, ops, parse};
use bricolage_rewrite::{Audit, Outcome, Patch, RULES, Rule, run, run_audited};
use bricolage_tensor::{Datum, Tensor};

/// Takes the magnitude where a graph cuts what is below 0: right for every input that is not.
struct Magnitude;

impl Rule for Magnitude {
    fn name(&self) -> &'static str {
        "magnitude"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Unary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        match (&node.op, node.inputs[0]) {
            (op, Some(x)) if *op == ops::Unary::Relu.into() => {
                let patch = Patch::in_place_of(at, node.outputs[0], ops::Unary::Abs, x);
                Outcome::Rewrite(patch)
            }
            _ => Outcome::NoMatch,
        }
    }
}

fn graph() -> Graph {
    parse(
        "graph \"planted\"\n\
         input %x: f32[4]\n\
         constant %zero: f32[] = [0.0]\n\
         %sum = Binary Add %x %zero : f32[4] from \"add\"\n\
         %cut = Unary Relu %sum : f32[4] from \"cut\"\n\
         %y = Binary Add %cut %cut : f32[4] from \"twice\"\n\
         output %y\n",
        &[],
    )
    .unwrap()
}

#[test]
fn a_wrong_rule_is_caught_and_left_out() {
    let mut rules: Vec<&dyn Rule> = RULES.to_vec();
    rules.insert(0, &Magnitude);
    let x = Datum::from(Tensor::of(&[4], &[1f32, 2.0, 3.0, 4.0]));
    // These inputs do not show it; the edge values do.
    let mut audit = Audit::new(&graph(), std::slice::from_ref(&x)).unwrap();
    let result = run_audited(graph(), &rules, &mut audit).unwrap();
    let [caught] = &audit.caught[..] else { panic!("{:?}", audit.caught) };
    assert_eq!((caught.rule, caught.origin.as_str()), ("magnitude", "cut"));
    assert!(caught.what.contains("`cut`"), "{}", caught.what);
    assert_eq!((caught.before.nodes().count(), caught.after.nodes().count()), (1, 1));
    let inputs: Vec<Datum> = caught.inputs.iter().cloned().map(Datum::from).collect();
    let [before, after] = [&caught.before, &caught.after].map(|g| evaluate(g, &inputs).unwrap());
    assert_ne!(before, after);
    // The others are applied.
    assert!(result.applied.iter().any(|a| a.rule == "drop-neutral-operand"), "{result:?}");
    assert!(result.applied.iter().all(|a| a.rule != "magnitude"));
    assert!(audit.agreed > 0);
    let minus = Datum::from(Tensor::of(&[4], &[-1f32, 2.0, -3.0, 4.0]));
    let results =
        [&graph(), &result.graph].map(|g| evaluate(g, std::slice::from_ref(&minus)).unwrap());
    assert_eq!(results[0], results[1]);
}

#[test]
fn without_an_audit_a_wrong_rule_is_applied() {
    let result = run(graph(), &[&Magnitude]).unwrap();
    assert_eq!(result.applied.len(), 1);
}
