//! What is written and read again means the same.
#![allow(clippy::unwrap_used)] // outside the test functions too, all is test

mod cases;

use bricolage_ir::{Role, evaluate, verify};
use bricolage_onnx::{export, export_structure, import, inline};
use bricolage_tensor::{Storage, Tensor};

/// Where two results differ by more than 32 roundings of the largest element. Decomposed ops
/// round their intermediate results; moved and exact ones must be equal.
fn differs(got: &Tensor, want: &Tensor) -> Option<String> {
    if got.dtype() != want.dtype() || got.dims() != want.dims() {
        return Some(format!("{} is not {}", got.ty(), want.ty()));
    }
    let (got, wanted) = (got.to_f64(), want.to_f64());
    let finite = wanted.iter().filter(|v| v.is_finite());
    let bound = 32.0 * want.dtype().epsilon() * finite.fold(0.0, |m: f64, v| m.max(v.abs()));
    let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= bound;
    let at = got.iter().zip(&wanted).position(|(a, b)| !same(*a, *b))?;
    Some(format!("element {at}: {} is not {}", got[at], wanted[at]))
}

#[test]
fn every_op_survives() {
    let mut faults = Vec::new();
    for case in cases::cases() {
        let want = evaluate(&case.graph, &case.inputs).unwrap();
        let check = || -> Result<(), String> {
            let bytes = export(&case.graph).map_err(|e| e.to_string())?;
            let again = import(Storage::copy_of(&bytes), None).map_err(|e| e.to_string())?;
            if !again.warnings.is_empty() || !verify(&again.graph).is_empty() {
                return Err(format!("{:?} {:?}", again.warnings, verify(&again.graph)));
            }
            let names = |g: &bricolage_ir::Graph| -> Vec<String> {
                g.inputs.iter().chain(&g.outputs).map(|&v| g.value(v).name.to_string()).collect()
            };
            if names(&again.graph) != names(&case.graph) {
                return Err(format!("names became {:?}", names(&again.graph)));
            }
            let got = evaluate(&again.graph, &case.inputs).map_err(|e| e.to_string())?;
            for (got, want) in got.iter().zip(&want) {
                if let Some(why) = differs(got.as_tensor().unwrap(), want.as_tensor().unwrap()) {
                    return Err(why);
                }
            }
            Ok(())
        };
        if let Err(why) = check() {
            faults.push(format!("{}: {why}", case.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn large_constants_of_a_structure_lie_apart() {
    let case = cases::cases().into_iter().find(|c| c.name == "Conv.all").unwrap();
    let mut graph = case.graph;
    let x = graph.outputs[0];
    let w = Tensor::generate(bricolage_tensor::DType::F32, &[6, 6, 8, 8], |i| i as f64);
    let w = graph.constant("wide", w);
    let op = bricolage_ir::ops::Reduce {
        kind: bricolage_ir::ops::ReduceKind::Mean,
        axes: vec![2, 3],
        keep_dims: true,
    };
    let small = graph.add1(op, &[x], bricolage_ir::origin("/mean")).unwrap();
    let y = graph.add1(bricolage_ir::ops::Binary::Mul, &[w, small], bricolage_ir::origin("/mul"));
    assert!(y.is_err(), "the batch is 2");
    let wide = graph
        .constant("weights", Tensor::generate(bricolage_tensor::DType::F32, &[300], |i| i as f64));
    let out =
        graph.add1(bricolage_ir::ops::Binary::Add, &[small, wide], bricolage_ir::origin("/add"));
    graph.outputs = vec![out.unwrap()];
    let structure = export_structure(&graph).unwrap();
    let names: Vec<&str> = structure.weights.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["weights"], "constants of up to 1 KiB stay inline");
    assert!(matches!(&graph.value(wide).role, Role::Constant(t) if *t == structure.weights[0].1));
    assert!(export(&graph).unwrap().len() > structure.bytes.len() + 1000);
    // Without the file, the structure alone is no whole model.
    let error = import(Storage::copy_of(&structure.bytes), None).unwrap_err();
    assert_eq!(error.code(), "onnx::external-data");
    let whole = inline(&structure.bytes, &structure.weights).unwrap();
    let same = import(Storage::copy_of(&export(&graph).unwrap()), None).unwrap();
    let text = |g: &bricolage_ir::Graph| bricolage_ir::print(g);
    assert_eq!(text(&import(Storage::copy_of(&whole), None).unwrap().graph), text(&same.graph));
    assert!(inline(&structure.bytes, &[]).unwrap_err().to_string().contains("`weights` as well"));
    assert!(inline(&whole, &structure.weights).unwrap_err().to_string().contains("no `weights`"));
}

#[test]
fn integer_operators_are_found_again() {
    let cases = cases::cases();
    for (name, op, found) in [
        ("integers.conv.eight", "ConvInteger", true),
        ("integers.conv.stored", "ConvInteger", true),
        // Weights of nine bits fit no operand of it.
        ("integers.conv.nine", "ConvInteger", false),
        ("integers.product", "MatMulInteger", true),
    ] {
        let case = cases.iter().find(|c| c.name == name).unwrap();
        let bytes = export(&case.graph).unwrap();
        let there = bytes.windows(op.len()).any(|w| w == op.as_bytes());
        assert_eq!(there, found, "{name}");
    }
}
