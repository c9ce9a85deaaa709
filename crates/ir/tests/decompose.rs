//! Composite ops against their decompositions, and the text form of attributes, on all samples.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

#[allow(dead_code)] // each test file uses a part
mod samples;

use bricolage_ir::{Fact, Inputs, OpKind, decompose, evaluate, evaluate_at, verify};
use bricolage_tensor::{DType, Datum, Tensor};

/// The samples are `f64` with magnitudes between 2^-8 and 2^8 and at most 2^7 operations deep,
/// each within an ulp or two; cancellation costs at most 2^10 more.
fn close(a: &Tensor, b: &Tensor) -> bool {
    let unit = if a.dtype() == DType::F32 { 2f64.powi(-22) } else { 2f64.powi(-34) };
    a.ty() == b.ty()
        && a.to_f64()
            .iter()
            .zip(b.to_f64())
            .all(|(x, y)| (x - y).abs() <= unit * (1.0 + x.abs()) || (x.is_nan() && y.is_nan()))
}

#[test]
fn decompositions_agree_with_their_ops() {
    let mut covered = std::collections::BTreeSet::new();
    for sample in samples::all() {
        let facts = sample.facts();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
        let Some(graph) = decompose(&sample.op, &facts).unwrap() else { continue };
        assert_eq!(verify(&graph), [], "{}", sample.op);
        let inputs: Vec<Datum> = sample.inputs.iter().flatten().cloned().collect();
        let primitive = evaluate(&graph, &inputs).unwrap();
        let whole = sample.op.eval(&Inputs(&sample.refs())).unwrap();
        assert_eq!(primitive.len(), whole.len(), "{}", sample.op);
        for (a, b) in primitive.iter().zip(&whole) {
            let (a, b) = (a.as_tensor().unwrap(), b.as_tensor().unwrap());
            assert!(close(a, b), "{}: {:?} is not {:?}", sample.op, a.to_f64(), b.to_f64());
        }
        covered.insert(sample.op.kind());
    }
    for kind in [
        OpKind::Unary,
        OpKind::Clip,
        OpKind::Reduce,
        OpKind::Softmax,
        OpKind::BatchNorm,
        OpKind::LayerNorm,
        OpKind::GroupNorm,
        OpKind::Lrn,
        OpKind::Attention,
        OpKind::Split,
        OpKind::Tile,
        OpKind::DepthToSpace,
        OpKind::SpaceToDepth,
        OpKind::Binary,
        OpKind::Quantize,
        OpKind::Dequantize,
    ] {
        assert!(covered.contains(&kind), "no decomposition of {} was checked", kind.name());
    }
}

#[test]
fn results_have_the_inferred_types_and_known_elements() {
    for sample in samples::all() {
        let facts = sample.facts();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
        let inferred = sample.op.infer(&facts).unwrap();
        let Ok(results) = sample.op.eval(&Inputs(&sample.refs())) else {
            assert_eq!(sample.op.kind(), OpKind::Opaque);
            continue;
        };
        assert_eq!(results.len(), inferred.len());
        for (fact, datum) in inferred.iter().zip(&results) {
            assert_eq!(datum.ty().as_ref(), Some(&fact.ty), "{}", sample.op);
            if let (Some(known), Some(t)) = (&fact.known, datum.as_tensor()) {
                for (known, found) in known.iter().zip(t.to_i64()) {
                    let known = known.as_ref().map(|k| k.as_const());
                    assert!(known.is_none_or(|k| k == Some(found)), "{}", sample.op);
                }
            }
        }
    }
}

#[test]
fn attributes_round_trip_as_text() {
    for sample in samples::all() {
        let (kind, text) = (sample.op.kind(), sample.op.attributes());
        let back = kind.parse(&text).unwrap_or_else(|e| panic!("{} {text}: {e}", kind.name()));
        assert_eq!(back, sample.op, "{text}");
    }
}

#[test]
fn sampled_elements_equal_those_of_the_whole() {
    for sample in samples::all() {
        let refs = sample.refs();
        let Ok(results) = sample.op.eval(&Inputs(&refs)) else { continue };
        for (o, whole) in results.iter().enumerate() {
            let Some(whole) = whole.as_tensor() else { continue };
            let chosen: Vec<usize> = (0..whole.len()).step_by(3).collect();
            let part = evaluate_at(&sample.op, &Inputs(&refs), o, &chosen).unwrap();
            let expected: Vec<f64> = chosen.iter().map(|&i| whole.to_f64()[i]).collect();
            let same = part.to_f64().iter().zip(&expected).all(|(a, b)| {
                (a - b).abs() <= 2f64.powi(-40) * (1.0 + a.abs())
                    || a == b
                    || (a.is_nan() && b.is_nan())
            });
            assert!(same, "{} output {o}", sample.op);
        }
    }
}

/// Symbolic inference agrees with inference on numbers once the symbols are bound.
#[test]
fn symbolic_types_bind_to_the_fixed_ones() {
    use bricolage_tensor::{Dim, Type};
    for sample in samples::all() {
        let fixed = sample.facts();
        for operand in 0..fixed.len() {
            let Some(fact) = &fixed[operand] else { continue };
            let Type::Tensor(t) = &fact.ty else { continue };
            for d in 0..t.shape.len() {
                let mut symbolic = t.clone();
                symbolic.shape[d] = Dim::symbol("s");
                let symbolic = Fact::from(symbolic);
                let mut facts: Vec<Option<&Fact>> = fixed.iter().map(Option::as_ref).collect();
                let expected = sample.op.infer(&facts).unwrap();
                facts[operand] = Some(&symbolic);
                // Not every op can be typed with every size unknown; where it can, it must agree.
                let Ok(found) = sample.op.infer(&facts) else { continue };
                for (a, b) in found.iter().zip(&expected) {
                    let (Type::Tensor(a), Type::Tensor(b)) = (&a.ty, &b.ty) else { continue };
                    for (a, b) in a.shape.iter().zip(b.shape.iter()) {
                        let bound = a.substitute(&|_| Some(t.shape[d].clone()));
                        assert_eq!(bound, *b, "{} operand {operand} dim {d}", sample.op);
                    }
                }
            }
        }
    }
}
