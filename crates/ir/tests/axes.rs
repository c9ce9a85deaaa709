//! Judges `axes` and `part`: an op computed in parts, along every axis that may be split, gives
//! what the whole gives.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

#[allow(dead_code)] // each test file uses a part
mod samples;

use bricolage_ir::{AxisKind, Combiner, Fact, Inputs, Op, Part, Window, ops::*};
use bricolage_tensor::{Datum, Dim, Tensor};
use samples::Sample;
use std::ops::Range;

fn cut(datum: &Datum, ranges: &[Range<i64>]) -> Tensor {
    let slice = Slice {
        axes: (0..ranges.len()).collect(),
        starts: ranges.iter().map(|r| Dim::from(r.start)).collect(),
        ends: ranges.iter().map(|r| Dim::from(r.end)).collect(),
        steps: vec![1; ranges.len()],
    };
    let mut out = Op::from(slice).eval(&Inputs(&[Some(datum)])).unwrap();
    out.swap_remove(0).as_tensor().unwrap().clone()
}

fn run_part(sample: &Sample, op: &Op, part: &Part) -> Vec<Tensor> {
    let slices: Vec<Option<Datum>> = sample
        .inputs
        .iter()
        .zip(&part.inputs)
        .map(|(datum, windows)| {
            let datum = datum.as_ref()?;
            let whole =
                |windows: &Vec<Window>| windows.iter().map(|w| w.range.clone()).collect::<Vec<_>>();
            Some(windows.as_ref().map_or(datum.clone(), |w| cut(datum, &whole(w)).into()))
        })
        .collect();
    let refs: Vec<Option<&Datum>> = slices.iter().map(Option::as_ref).collect();
    let results = op.eval(&Inputs(&refs)).unwrap_or_else(|e| panic!("{op} on {part:?}: {e}"));
    results.iter().map(|d| d.as_tensor().unwrap().clone()).collect()
}

/// Sums of at most 2^10 products of numbers below 2^3: the order of summation moves an `f64` by
/// less than 2^10 * 2^16 * 2^-52.
fn close(a: &Tensor, b: &Tensor) -> bool {
    a.ty() == b.ty()
        && a.to_f64().iter().zip(b.to_f64()).all(|(x, y)| {
            (x - y).abs() <= 2f64.powi(-26) * (1.0 + x.abs())
                || (x.is_nan() && y.is_nan())
                || *x == y
        })
}

fn combine(kind: Combiner, parts: &[(f64, Vec<Tensor>)], output: usize) -> Tensor {
    let first = &parts[0].1[output];
    let mut values: Vec<f64> = vec![
        match kind {
            Combiner::Sum | Combiner::Mean => 0.0,
            Combiner::Product => 1.0,
            Combiner::Max => f64::NEG_INFINITY,
            Combiner::Min => f64::INFINITY,
        };
        first.len()
    ];
    for (weight, tensors) in parts {
        for (value, x) in values.iter_mut().zip(tensors[output].to_f64()) {
            *value = match kind {
                Combiner::Sum => *value + x,
                Combiner::Mean => *value + weight * x,
                Combiner::Product => *value * x,
                Combiner::Max => value.max(x),
                Combiner::Min => value.min(x),
            };
        }
    }
    Tensor::from_f64(first.dtype(), first.dims(), &values)
}

/// Splits along `axis` at `at`; the fault, if the parts do not make the whole.
fn check_split(sample: &Sample, axis: usize, at: i64) -> Result<(), String> {
    let facts = sample.facts();
    let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
    let outputs = sample.op.infer(&facts).unwrap();
    let map = sample.op.axes(&facts, &outputs);
    let extent = map.axes[axis].extent.as_const().unwrap();
    let whole = sample.op.eval(&Inputs(&sample.refs())).unwrap();
    let mut parts = Vec::new();
    for points in [0..at, at..extent] {
        let weight = (points.end - points.start) as f64 / extent as f64;
        let (op, part) = sample.op.split(&facts, &outputs, axis, points).ok_or("no part")?;
        parts.push((weight, part.clone(), run_part(sample, &op, &part)));
    }
    for (o, whole) in whole.iter().enumerate() {
        let fault = |what: &str| {
            Err(format!("{} along `{}` at {at}: output {o} {what}", sample.op, map.axes[axis].name))
        };
        match map.axes[axis].kind {
            AxisKind::Opaque => unreachable!("opaque axes are not split"),
            AxisKind::Reduce(kind) => {
                let weighted: Vec<(f64, Vec<Tensor>)> =
                    parts.iter().map(|(w, _, t)| (*w, t.clone())).collect();
                let combined = combine(kind, &weighted, o);
                if !close(&combined, whole.as_tensor().unwrap()) {
                    return fault("does not combine");
                }
            }
            AxisKind::Parallel => {
                let covered: i64 = parts
                    .iter()
                    .map(|(_, p, _)| p.outputs[o].iter().map(|r| r.end - r.start).product::<i64>())
                    .sum();
                if covered != whole.as_tensor().unwrap().len() as i64 {
                    return fault("is not covered once");
                }
                for (_, part, tensors) in &parts {
                    if !close(&cut(whole, &part.outputs[o]), &tensors[o]) {
                        return fault("differs in a part");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_splittable_axis_splits() {
    let samples = samples::all();
    samples::assert_complete(&samples);
    let (mut checked, mut faults) = (0, Vec::new());
    for sample in &samples {
        let facts = sample.facts();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
        let outputs = sample.op.infer(&facts).unwrap_or_else(|e| panic!("{}: {e}", sample.op));
        let map = sample.op.axes(&facts, &outputs);
        for (index, fact) in map.outputs.iter().zip(&outputs) {
            let rank = fact.ty.as_tensor().map_or(0, |t| t.shape.len());
            assert_eq!(index.len(), rank, "{}: output indices", sample.op);
        }
        assert_eq!(map.outputs.len(), outputs.len(), "{}: outputs", sample.op);
        assert_eq!(map.inputs.len(), facts.len(), "{}: inputs", sample.op);
        for (index, fact) in map.inputs.iter().zip(&facts) {
            let rank = fact.map(|f| f.ty.as_tensor().map_or(0, |t| t.shape.len()));
            assert_eq!(index.as_ref().map(Vec::len), rank, "{}: input indices", sample.op);
        }
        for axis in map.splittable() {
            for at in 1..map.axes[axis].extent.as_const().unwrap() {
                checked += 1;
                faults.extend(check_split(sample, axis, at).err());
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(checked > 600, "only {checked} splits were checked");
}

/// Every op that a model spends its time in must be splittable where it is known to be.
#[test]
fn known_splits_are_offered() {
    let names = |op: Op, inputs: &[&[i64]]| -> Vec<String> {
        let facts: Vec<Fact> = inputs
            .iter()
            .map(|dims| {
                Fact::from(bricolage_tensor::TensorType::fixed(bricolage_tensor::DType::F32, dims))
            })
            .collect();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Some).collect();
        let outputs = op.infer(&facts).unwrap();
        let map = op.axes(&facts, &outputs);
        map.splittable().map(|a| map.axes[a].name.to_string()).collect()
    };
    assert_eq!(names(MatMul::default().into(), &[&[4, 5], &[5, 6]]), ["m", "n", "k"]);
    let conv = Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) };
    let x: &[i64] = &[2, 4, 8, 8];
    let dense = names(conv.clone().into(), &[x, &[6, 4, 3, 3]]);
    assert_eq!(dense, ["n", "m", "c", "o0", "k0", "o1", "k1"]);
    let biased = names(conv.clone().into(), &[x, &[6, 4, 3, 3], &[6]]);
    assert_eq!(biased, ["n", "m", "o0", "o1"]);
    let depthwise = Conv { groups: 4, ..conv };
    assert_eq!(names(depthwise.into(), &[x, &[4, 1, 3, 3]])[..2], ["n", "g"]);
    assert_eq!(names(Softmax { axis: 1, log: false }.into(), &[&[3, 4]]), ["d0"]);
    let attention = Attention { scale: None, causal: false };
    let heads: &[i64] = &[2, 4, 8, 16];
    assert_eq!(names(attention.into(), &[heads, heads, heads]), ["b", "g", "s", "v"]);
    assert_eq!(
        names(Reshape { to: bricolage_tensor::Shape::fixed(&[6, 4]) }.into(), &[&[2, 3, 4]]).len(),
        2
    );
}

/// The judge itself must notice a wrong map: softmax is not parallel along its own axis.
#[test]
fn a_wrong_split_is_noticed() {
    let whole = samples::ramp(bricolage_tensor::DType::F64, &[4, 6]);
    let op = Op::from(Softmax { axis: 1, log: false });
    let all = op.eval(&Inputs(&[Some(&whole)])).unwrap();
    let half: Datum = cut(&whole, &[0..4, 0..3]).into();
    let part = op.eval(&Inputs(&[Some(&half)])).unwrap();
    assert!(!close(&cut(&all[0], &[0..4, 0..3]), part[0].as_tensor().unwrap()));
}
