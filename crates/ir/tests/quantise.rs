//! Quantisation against the formulas, element by element, and conversions between all element types.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

use bricolage_ir::{Inputs, Op, ops::*};
use bricolage_tensor::{DType, Datum, Powers, Tensor, decode_float};

fn run(op: impl Into<Op>, inputs: &[&Tensor]) -> Tensor {
    let data: Vec<Datum> = inputs.iter().map(|&t| t.clone().into()).collect();
    let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
    op.into().eval(&Inputs(&refs)).unwrap().remove(0).as_tensor().unwrap().clone()
}

fn quantize(to: DType, axis: usize, block: i64) -> Quantize {
    Quantize { to, axis, block, precision: DType::F32, saturate: true }
}

/// Least and greatest number of an integer type, by its name.
fn limits(dtype: DType) -> (i64, i64) {
    let count = 1i64 << dtype.bits();
    if dtype.name().starts_with('i') { (-count / 2, count / 2 - 1) } else { (0, count - 1) }
}

#[test]
fn whole_numbers_round_to_even_and_saturate() {
    for dtype in
        [DType::I8, DType::U8, DType::I16, DType::U16, DType::I4, DType::U4, DType::I2, DType::U2]
    {
        let (low, high) = limits(dtype);
        let zero = if low < 0 { -1 } else { 1 };
        let halves: Vec<f32> = (-70_000..70_000).step_by(7).map(|i| i as f32 / 2.0).collect();
        let x = Tensor::of(
            &[halves.len() as i64],
            &halves.iter().map(|h| h * 0.25).collect::<Vec<_>>(),
        );
        let (scale, zeros) = (Tensor::of(&[], &[0.25f32]), Tensor::from_i64(dtype, &[], &[zero]));
        let found = run(quantize(dtype, 0, 0), &[&x, &scale, &zeros]).to_i64();
        for (half, found) in halves.iter().zip(found) {
            let down = half.floor();
            let even = if half.fract() == 0.0 {
                *half
            } else if down % 2.0 == 0.0 {
                down
            } else {
                down + 1.0
            };
            assert_eq!(found, (even as i64 + zero).clamp(low, high), "{dtype} {half}");
        }
    }
}

#[test]
fn scales_belong_to_positions_and_blocks() {
    // Rows of 5 elements: blocks of 2 along them, the last of one element.
    let x = Tensor::from_i64(DType::I8, &[2, 5], &[1, 2, 3, 4, 5, -1, -2, -3, -4, -5]);
    let scales = Tensor::of(&[2, 3], &[1f32, 10.0, 100.0, 2.0, 20.0, 200.0]);
    let zeros = Tensor::from_i64(DType::I8, &[2, 3], &[0, 1, 0, 0, 0, -5]);
    let to = DType::F32;
    let blocks = run(Dequantize { to, axis: 1, block: 2 }, &[&x, &scales, &zeros]);
    assert_eq!(blocks.to_f64(), [1.0, 2.0, 20.0, 30.0, 500.0, -2.0, -4.0, -60.0, -80.0, 0.0]);
    let back = run(quantize(DType::I8, 1, 2), &[&blocks, &scales, &zeros]);
    assert_eq!(back, x);
    let columns = Tensor::of(&[5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
    let along = run(Dequantize { to, axis: 1, block: 0 }, &[&x, &columns]);
    assert_eq!(along.to_f64(), [1.0, 4.0, 9.0, 16.0, 25.0, -1.0, -4.0, -9.0, -16.0, -25.0]);
    let rows = Tensor::of(&[2], &[2f32, 3.0]);
    let along = run(Dequantize { to, axis: 0, block: 0 }, &[&x, &rows]);
    assert_eq!(along.to_f64()[4..6], [10.0, -3.0]);
}

#[test]
fn quotients_are_rounded_to_the_precision() {
    // The quotient lies above 2.5 by less than half a step of f16 there.
    let x = Tensor::of(&[1], &[2.500_1f32]);
    let one = Tensor::of(&[], &[1f32]);
    let found = |precision| {
        run(Quantize { precision, ..quantize(DType::U8, 0, 0) }, &[&x, &one]).to_i64()[0]
    };
    assert_eq!((found(DType::F32), found(DType::F16)), (3, 2));
    let large = Tensor::of(&[2], &[1e9f32, -1e9]);
    let open = Quantize { saturate: false, ..quantize(DType::F8E5M2, 0, 0) };
    assert_eq!(run(open, &[&large, &one]).to_f64(), [f64::INFINITY, f64::NEG_INFINITY]);
    let closed = run(quantize(DType::F8E4M3FN, 0, 0), &[&large, &one]);
    assert_eq!(closed.to_f64(), [448.0, -448.0]);
}

/// Conversions between all types of numbers that both hold, and of those that the target does not, by
/// what is promised of them.
#[test]
fn every_type_becomes_every_other() {
    let small = [0i64, 1];
    for &from in DType::ALL {
        let x = Tensor::from_i64(from, &[2], &small);
        for &to in DType::ALL {
            let y = run(Cast::to(to), &[&x]);
            assert_eq!(y.dtype(), to);
            let expected = x.to_f64();
            let near: Vec<f64> = y.to_f64();
            for (e, n) in expected.iter().zip(near) {
                // A scale has no 0, and its least number is 0 elsewhere but in the widest types.
                let tiny = 2f64.powi(-126);
                let whole = if to == DType::Bool { f64::from(u8::from(*e != 0.0)) } else { *e };
                assert!(n == whole || (whole.abs() <= tiny && n.abs() <= tiny), "{from} to {to}");
            }
        }
    }
    for &narrow in DType::ALL.iter().filter(|d| d.is_narrow_float()) {
        let count = 1u16 << narrow.bits();
        let codes: Vec<u8> = (0..count).map(|c| c as u8).collect();
        let all = Tensor::from_codes(narrow, &[i64::from(count)], &codes);
        for wide in [DType::F32, DType::F64, DType::BF16] {
            let there = run(Cast::to(wide), &[&all]);
            for (&code, v) in codes.iter().zip(there.to_f64()) {
                let expected = decode_float(narrow, code);
                assert!(v == expected || (v.is_nan() && expected.is_nan()), "{narrow} {code}");
            }
            let keeping = Cast { saturate: false, ..Cast::to(narrow) };
            let back = run(keeping, &[&there]);
            let same = |(a, b): (f64, f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(all.to_f64().into_iter().zip(back.to_f64()).all(same), "{narrow} {wide}");
        }
    }
    let x = Tensor::of(&[3], &[1.5f32, 2.25, 3.0]);
    for (powers, expected) in [
        (Powers::Up, [2.0, 4.0, 4.0]),
        (Powers::Down, [1.0, 2.0, 2.0]),
        (Powers::Nearest, [2.0, 2.0, 4.0]),
    ] {
        assert_eq!(run(Cast { powers, ..Cast::to(DType::F8E8M0) }, &[&x]).to_f64(), expected);
    }
    let x = Tensor::of(&[3], &[-9f32, 8.0, 17.0]);
    assert_eq!(run(Cast::to(DType::I4), &[&x]).to_i64(), [-8, 7, 7]);
    let wraps = Cast { saturate: false, ..Cast::to(DType::I4) };
    assert_eq!(run(wraps, &[&x]).to_i64(), [7, -8, 1]);
}

#[test]
fn bits_stay() {
    let x = Tensor::of(&[2], &[1f32, -0.0]);
    let bits = run(BitCast { to: DType::I32 }, &[&x]);
    assert_eq!(bits.to_i64(), [0x3F80_0000, i64::from(i32::MIN)]);
    assert_eq!(run(BitCast { to: DType::F32 }, &[&bits]), x);
    let codes = Tensor::of(&[2], &[0x38u8, 0x7F]);
    let floats = run(BitCast { to: DType::F8E4M3FN }, &[&codes]).to_f64();
    assert!(floats[0] == 1.0 && floats[1].is_nan());
    let truths = run(BitCast { to: DType::Bool }, &[&Tensor::of(&[3], &[0u8, 1, 7])]);
    assert_eq!(truths, Tensor::of_bool(&[3], &[false, true, true]));
    let wide = Op::from(BitCast { to: DType::F64 });
    assert!(wide.infer(&[Some(&bricolage_ir::Fact::of(&x))]).is_err());
}

/// Text holds every code of every type, those of NaN too.
#[test]
fn constants_are_written_to_the_bit() {
    use bricolage_ir::{Graph, Role, parse, print};
    for &dtype in DType::ALL.iter().filter(|d| d.bits() <= 8 && **d != DType::Bool) {
        let count = 1u16 << dtype.bits();
        for start in (0..count).step_by(16) {
            let codes: Vec<u8> = (start..(start + 16).min(count)).map(|c| c as u8).collect();
            let t = Tensor::from_codes(dtype, &[codes.len() as i64], &codes);
            let mut graph = Graph::new("codes");
            let c = graph.constant("c", t.clone());
            graph.outputs = vec![c];
            let (text, aside) = print(&graph);
            let again = parse(&text, &aside).unwrap_or_else(|e| panic!("{text}: {e}"));
            let found = &again.value(again.outputs[0]).role;
            assert!(matches!(found, Role::Constant(found) if *found == t), "{text}");
        }
    }
}
