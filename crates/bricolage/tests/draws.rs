//! Inputs are drawn by what the graph does with them, whatever their names.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::inputs::{Draw, sample_inputs};
use bricolage_ir::{Graph, Op, ValueId, ops, origin};
use bricolage_tensor::{DType, Dim, Tensor, TensorType};

/// A graph under construction.
struct Maker(Graph);

impl Maker {
    fn new() -> Maker {
        Maker(Graph::new("case"))
    }
    fn input(&mut self, dtype: DType, dims: &[i64]) -> ValueId {
        self.0.input("input", TensorType::fixed(dtype, dims))
    }
    fn one(&mut self, number: f32) -> ValueId {
        self.0.constant("number", Tensor::of(&[], &[number]))
    }
    fn whole(&mut self, number: i64) -> ValueId {
        self.0.constant("whole", Tensor::of(&[], &[number]))
    }
    fn floats(&mut self, dims: &[i64]) -> ValueId {
        self.0.input("scores", TensorType::fixed(DType::F32, dims))
    }
    fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.0.add1(op, inputs, origin("node")).unwrap()
    }
    fn to(&mut self, dtype: DType, v: ValueId) -> ValueId {
        self.op(ops::Cast::to(dtype), &[v])
    }
    /// How the first input is drawn when `result` is the output.
    fn draw(mut self, result: ValueId) -> Draw {
        self.0.outputs = vec![result];
        Draw::of(&self.0, self.0.inputs[0])
    }
}

fn table(m: &mut Maker, rows: i64) -> ValueId {
    let t = Tensor::generate(DType::F32, &[rows, 3], |i| i as f64);
    m.0.constant("table", t)
}

#[test]
fn rows_of_tables() {
    let reshape = || ops::Reshape { to: [4].into_iter().map(Dim::from).collect() };
    // Through a conversion and a view.
    let mut m = Maker::new();
    let ids = m.input(DType::I32, &[1, 4]);
    let (wide, rows) = (m.to(DType::I64, ids), table(&mut m, 70));
    let flat = m.op(reshape(), &[wide]);
    let y = m.op(ops::Gather { axis: 0 }, &[rows, flat]);
    assert_eq!(m.draw(y), Draw::Whole(0, 70));
    // The smaller of two tables, although ids are also compared with a padding id.
    let mut m = Maker::new();
    let ids = m.input(DType::I64, &[4]);
    let (large, small, zero) = (table(&mut m, 70), table(&mut m, 9), m.whole(0));
    let (a, b) = (
        m.op(ops::Gather { axis: 0 }, &[large, ids]),
        m.op(ops::Gather { axis: 0 }, &[small, ids]),
    );
    let pad = m.op(ops::Binary::Equal, &[ids, zero]);
    let (pad, sum) = (m.to(DType::F32, pad), m.op(ops::Binary::Add, &[a, b]));
    let pad =
        m.op(ops::Reduce { kind: ops::ReduceKind::Sum, axes: vec![0], keep_dims: true }, &[pad]);
    let y = m.op(ops::Binary::Mul, &[sum, pad]);
    assert_eq!(m.draw(y), Draw::Whole(0, 9));
    // Shifted before they pick.
    for (f, number, first, rows) in [
        (ops::Binary::Add, 2, 0, 8),
        (ops::Binary::Sub, 3, 0, 13),
        (ops::Binary::Sub, -3, 0, 7),
        // Lower ones would be more than the table from its end.
        (ops::Binary::Sub, 20, 10, 30),
        (ops::Binary::Add, -12, 2, 22),
    ] {
        let mut m = Maker::new();
        let ids = m.input(DType::I64, &[4]);
        let (data, by) = (table(&mut m, 10), m.whole(number));
        let ids = m.op(f, &[ids, by]);
        let y = m.op(ops::Gather { axis: 0 }, &[data, ids]);
        assert_eq!(m.draw(y), Draw::Whole(first, rows), "{f:?} {number}");
    }
    // Each column by another number.
    let mut m = Maker::new();
    let (ids, data) = (m.input(DType::I64, &[2, 2]), table(&mut m, 10));
    let by = m.0.constant("by", Tensor::of(&[2], &[20i64, 25]));
    let ids = m.op(ops::Binary::Sub, &[ids, by]);
    let y = m.op(ops::Gather { axis: 0 }, &[data, ids]);
    assert_eq!(m.draw(y), Draw::Whole(15, 30));
    let mut m = Maker::new();
    let (ids, data) = (m.input(DType::I64, &[2, 3]), table(&mut m, 5));
    let y = m.op(ops::GatherElements { axis: 0 }, &[data, ids]);
    assert_eq!(m.draw(y), Draw::Whole(0, 5));
    let mut m = Maker::new();
    let (ids, data) = (m.input(DType::I64, &[4, 2]), table(&mut m, 5));
    let y = m.op(ops::GatherNd { batch_dims: 0 }, &[data, ids]);
    assert_eq!(m.draw(y), Draw::Whole(0, 3));
    let mut m = Maker::new();
    let ids = m.input(DType::I64, &[4]);
    let values = m.0.constant("values", Tensor::of(&[2], &[0f32, 1.0]));
    let y = m.op(ops::OneHot { axis: 1, depth: Dim::from(11) }, &[ids, values]);
    assert_eq!(m.draw(y), Draw::Whole(0, 11));
}

#[test]
fn one_or_so_many_of_several() {
    // Written out as a comparison with every number, and a mask from a length.
    for (compare, length_first, wanted) in [
        (ops::Binary::Equal, true, Draw::Whole(0, 257)),
        (ops::Binary::Equal, false, Draw::Whole(0, 257)),
        (ops::Binary::Greater, true, Draw::Whole(1, 258)),
        (ops::Binary::Less, false, Draw::Whole(1, 258)),
    ] {
        let mut m = Maker::new();
        let input = m.input(DType::I64, &[2, 1]);
        let iota =
            ops::Iota { dtype: DType::I64, start: Dim::from(0), len: Dim::from(257), step: 1 };
        let all = m.op(iota, &[]);
        let to = [2, 257].into_iter().map(Dim::from).collect();
        let all = m.op(ops::Expand { to }, &[all]);
        let sides = if length_first { [input, all] } else { [all, input] };
        let y = m.op(compare, &sides);
        assert_eq!(m.draw(y), wanted, "{compare:?}");
    }
}

#[test]
fn masks_hide_nothing() {
    // (1 - mask) * lowest is added.
    let mut m = Maker::new();
    let (mask, scores) = (m.input(DType::I64, &[1, 4]), m.floats(&[1, 4]));
    let mask = m.to(DType::F32, mask);
    let (one, least) = (m.one(1.0), m.one(-1e4));
    let rest = m.op(ops::Binary::Sub, &[one, mask]);
    let hidden = m.op(ops::Binary::Mul, &[rest, least]);
    let y = m.op(ops::Binary::Add, &[scores, hidden]);
    assert_eq!(m.draw(y), Draw::Ones);
    // mask * lowest is added: a one hides.
    let mut m = Maker::new();
    let (mask, scores) = (m.input(DType::I32, &[1, 4]), m.floats(&[1, 4]));
    let (mask, least) = (m.to(DType::F32, mask), m.one(-1e9));
    let hidden = m.op(ops::Binary::Mul, &[mask, least]);
    let y = m.op(ops::Binary::Add, &[scores, hidden]);
    assert_eq!(m.draw(y), Draw::Zeros);
    // A choice between a score and the lowest number, by a comparison that may be turned round.
    for (compare, bound, not, lowest_first, wanted) in [
        (ops::Binary::Equal, 0, false, true, Draw::Ones),
        (ops::Binary::Equal, 0, false, false, Draw::Zeros),
        (ops::Binary::Equal, 1, false, true, Draw::Zeros),
        (ops::Binary::Greater, 0, true, true, Draw::Ones),
        (ops::Binary::GreaterEqual, 1, false, true, Draw::Zeros),
        (ops::Binary::Less, 1, true, true, Draw::Zeros),
    ] {
        let mut m = Maker::new();
        let (mask, scores) = (m.input(DType::I64, &[1, 4]), m.floats(&[1, 4]));
        let (bound_value, least) = (m.whole(bound), m.one(f32::NEG_INFINITY));
        let mut chosen = m.op(compare, &[mask, bound_value]);
        if not {
            chosen = m.op(ops::Unary::Not, &[chosen]);
        }
        let sides = if lowest_first { [least, scores] } else { [scores, least] };
        let y = m.op(ops::Select, &[chosen, sides[0], sides[1]]);
        assert_eq!(m.draw(y), wanted, "{compare:?} {bound} {not} {lowest_first}");
    }
    // Booleans, which way round they are meant.
    for (lowest_first, wanted) in [(true, Draw::Zeros), (false, Draw::Ones)] {
        let mut m = Maker::new();
        let (mask, scores) = (m.input(DType::Bool, &[1, 4]), m.floats(&[1, 4]));
        let least = m.one(-3.4e38);
        let sides = if lowest_first { [least, scores] } else { [scores, least] };
        let y = m.op(ops::Select, &[mask, sides[0], sides[1]]);
        assert_eq!(m.draw(y), wanted);
    }
    // A mean over what counts.
    let mut m = Maker::new();
    let (mask, states) = (m.input(DType::I64, &[4, 1]), m.floats(&[4, 3]));
    let mask = m.to(DType::F32, mask);
    let y = m.op(ops::Binary::Mul, &[states, mask]);
    assert_eq!(m.draw(y), Draw::Ones);
}

#[test]
fn other_numbers_vary() {
    let mut m = Maker::new();
    let (a, b) = (m.input(DType::Bool, &[4]), m.floats(&[4]));
    let c = m.op(ops::Unary::Neg, &[b]);
    let y = m.op(ops::Select, &[a, b, c]);
    assert_eq!(m.draw(y), Draw::Whole(0, 2));
    let mut m = Maker::new();
    let image = m.input(DType::U8, &[4]);
    let (image, scale) = (m.to(DType::F32, image), m.one(1.0 / 255.0));
    let y = m.op(ops::Binary::Mul, &[image, scale]);
    assert_eq!(m.draw(y), Draw::Whole(0, 256));
    // Scaled by a number that is converted, or computed.
    for computed in [false, true] {
        let mut m = Maker::new();
        let image = m.input(DType::U8, &[4]);
        let image = m.to(DType::F32, image);
        let scale = if computed {
            let (one, most) = (m.one(1.0), m.one(255.0));
            m.op(ops::Binary::Div, &[one, most])
        } else {
            let scale = m.0.constant("scale", Tensor::of(&[], &[1.0f64 / 255.0]));
            m.to(DType::F32, scale)
        };
        let y = m.op(ops::Binary::Mul, &[image, scale]);
        assert_eq!(m.draw(y), Draw::Whole(0, 256), "{computed}");
    }
    // By a converted number a wider integer is scaled, too, not masked.
    let mut m = Maker::new();
    let count = m.input(DType::I32, &[4]);
    let count = m.to(DType::F32, count);
    let scale = m.0.constant("scale", Tensor::of(&[], &[0.5f64]));
    let scale = m.to(DType::F32, scale);
    let y = m.op(ops::Binary::Mul, &[count, scale]);
    assert_eq!(m.draw(y), Draw::Whole(0, 16));
    let mut m = Maker::new();
    let (divisor, seven) = (m.input(DType::I64, &[4]), m.whole(7));
    let y = m.op(ops::Binary::Div, &[seven, divisor]);
    assert_eq!(m.draw(y), Draw::Whole(1, 17));
    let mut m = Maker::new();
    let unknown = m.input(DType::I64, &[4]);
    let op = ops::Opaque {
        domain: "com.example".to_owned(),
        name: "Unknown".to_owned(),
        opset: 1,
        attributes: Vec::new(),
        outputs: vec![TensorType::fixed(DType::F32, &[4]).into()],
    };
    let y = m.op(op, &[unknown]);
    assert_eq!(m.draw(y), Draw::Whole(0, 2));
    // Contents are as said.
    let mut m = Maker::new();
    let (ids, rows) = (m.input(DType::I64, &[64]), table(&mut m, 70));
    let y = m.op(ops::Gather { axis: 0 }, &[rows, ids]);
    m.0.outputs = vec![y];
    let drawn = sample_inputs(&m.0, 0).unwrap()[0].to_i64();
    assert!(drawn.iter().all(|i| (0..70).contains(i)), "{drawn:?}");
    assert!(drawn.iter().max() > Some(&50) && drawn.iter().min() < Some(&20), "{drawn:?}");
}
