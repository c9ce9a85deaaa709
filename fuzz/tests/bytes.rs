//! Every bit of five small models flipped: each gives an error in words, or the right answers of the model
//! that it became.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{compile_unmeasured, inputs};
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_fuzz::plain_goal;
use bricolage_ir::{Error, Graph, evaluate, tolerances, verify};
use bricolage_onnx::import;
use bricolage_tensor::{Datum, Storage, Tensor};
use bricolage_testkit::{
    prototext,
    watch::{Limits, watch},
};
use std::sync::Arc;

const MODELS: &[(&str, &str)] = &[
    (
        "product",
        r#"node { op_type: "MatMul" input: "x" input: "w" output: "t" }
           node { op_type: "Relu" input: "t" output: "y" }
           initializer { dims: 3 dims: 1 data_type: 1 name: "w" float_data: 0.5 float_data: -1.5 float_data: 0.25 }"#,
    ),
    (
        "shape",
        r#"node { op_type: "Reshape" input: "x" input: "s" output: "t" }
           node { op_type: "Softmax" input: "t" output: "y" attribute { name: "axis" type: INT i: 1 } }
           initializer { dims: 2 data_type: 7 name: "s" int64_data: 3 int64_data: -1 }"#,
    ),
    (
        "slice",
        r#"node { op_type: "Concat" input: "x" input: "x" output: "t" attribute { name: "axis" type: INT i: 0 } }
           node { op_type: "Slice" input: "t" input: "a" input: "b" output: "u" }
           node { op_type: "Cast" input: "u" output: "y" attribute { name: "to" type: INT i: 1 } }
           initializer { dims: 1 data_type: 7 name: "a" int64_data: 1 }
           initializer { dims: 1 data_type: 7 name: "b" int64_data: 3 }"#,
    ),
    (
        "branch",
        r#"node { op_type: "ReduceMax" input: "x" output: "m" attribute { name: "keepdims" type: INT i: 0 } }
           node { op_type: "Greater" input: "m" input: "z" output: "c" }
           node { op_type: "If" input: "c" output: "y"
             attribute { name: "then_branch" type: GRAPH g { name: "t" node { op_type: "Neg" input: "x" output: "p" } output { name: "p" } } }
             attribute { name: "else_branch" type: GRAPH g { name: "e" node { op_type: "Abs" input: "x" output: "q" } output { name: "q" } } } }
           initializer { data_type: 1 name: "z" float_data: 0.5 }"#,
    ),
    (
        "norm",
        r#"node { op_type: "Unsqueeze" input: "x" input: "a" output: "t" }
           node { op_type: "AveragePool" input: "t" output: "u" attribute { name: "kernel_shape" type: INTS ints: 2 } }
           node { op_type: "InstanceNormalization" input: "u" input: "g" input: "g" output: "y" }
           initializer { dims: 1 data_type: 7 name: "a" int64_data: 0 }
           initializer { dims: 2 data_type: 1 name: "g" float_data: 1 float_data: 2 }"#,
    ),
];

fn model(body: &str) -> Vec<u8> {
    let text = format!(
        r#"ir_version: 8 opset_import {{ version: 17 }}
        graph {{ name: "g" {body}
          input {{ name: "x" type {{ tensor_type {{ elem_type: 1 shape {{ dim {{ dim_value: 2 }} dim {{ dim_value: 3 }} }} }} }} }}
          output {{ name: "y" type {{ tensor_type {{ elem_type: 1 }} }} }} }}"#
    );
    prototext::model(&text).unwrap()
}

/// What came of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Refused,
    /// A graph that is not computed: of open sizes, large, or without numbers to compare.
    Read,
    Right,
}

/// Most elements of a value that is computed.
const MOST: u64 = 1 << 16;

fn is_small(graph: &Graph) -> bool {
    graph.values().all(|v| {
        let ty = graph.fact(v).ty.as_tensor();
        ty.and_then(|t| t.shape.element_count()).is_some_and(|n| n <= MOST)
    })
}

/// Reads and computes a model; panics when the answers are not right.
fn answer(bytes: &[u8]) -> Answer {
    let graph = match import(Storage::copy_of(bytes), None) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Answer::Refused;
        }
        Ok(model) => model.graph,
    };
    assert_eq!(verify(&graph), []);
    if inputs::require_fixed(&graph).is_err() || !is_small(&graph) {
        return Answer::Read;
    }
    let Ok(tensors) = inputs::sample_inputs(&graph, 3) else { return Answer::Refused };
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let Ok(wanted) = evaluate(&graph, &data) else { return Answer::Refused };
    let wanted: Vec<Option<&Tensor>> = wanted.iter().map(Datum::as_tensor).collect();
    if wanted.iter().flatten().any(|t| t.to_f64().iter().any(|v| !v.is_finite())) {
        return Answer::Read;
    }
    let allowed = tolerances(&graph, &data, &wanted, &|_| None, &|_| 0.0, 0).unwrap();
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let session = compile_unmeasured(&registry, graph, &plain_goal());
    let (_, _, mut session) = session.unwrap_or_else(|e| panic!("it has no plan: {e}"));
    let found = session.run(&tensors).unwrap_or_else(|e| panic!("it does not run: {e}"));
    for ((wanted, found), allowed) in wanted.iter().flatten().zip(&found).zip(&allowed) {
        assert_eq!(wanted.ty(), found.ty());
        let error = Error::between(wanted, found);
        assert!(error.share_of(allowed) <= 1.0, "{error}");
    }
    Answer::Right
}

#[test]
fn every_flipped_bit_gives_an_error_or_right_answers() {
    let mut faults = Vec::new();
    for (name, body) in MODELS {
        let bytes = model(body);
        assert_eq!(answer(&bytes), Answer::Right, "{name}");
        let mut found = [0; 3];
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match watch(Limits::USUAL, move || answer(&flipped)) {
                Ok(answer) => found[answer as usize] += 1,
                Err(misdeed) => faults.push(format!("{name}, bit {bit}: {misdeed}")),
            }
        }
        // Names may be others, and numbers; most of the rest must fit.
        let [refused, _, right] = found;
        assert!(refused > bytes.len() && right > bytes.len() / 2, "{name}: {found:?}");
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
