//! Samples of recurrent layers, of ops with graphs inside, of those whose results depend on data, and
//! of those on lists and texts.

use super::{bools, f, ints, positive, shape, small};
use bricolage_ir::{Graph, Op, Real, ops::*, origin};
use bricolage_tensor::{DType, Datum, Dim, Strings, Tensor, TensorType, Type};

type Add<'a> = &'a mut dyn FnMut(Op, Vec<Option<Datum>>);

fn real(x: f64) -> Real {
    Real::new(x)
}

fn tensor(dims: &[i64]) -> Type {
    TensorType::fixed(DType::F64, dims).into()
}

fn texts(dims: &[i64], all: &[&str]) -> Option<Datum> {
    Some(Strings::new(dims, all.iter().map(|&t| t.to_owned()).collect()).unwrap().into())
}

fn list(all: Vec<Option<Datum>>) -> Option<Datum> {
    Some(Datum::Sequence(all.into_iter().flatten().collect()))
}

pub(super) fn add_all(add: Add<'_>) {
    recurrent(add);
    nested(add);
    found(add);
    dynamic(add);
    sampling(add);
    lists(add);
    words(add);
}

fn recurrent(add: Add<'_>) {
    let (sigmoid, tanh) = (Activation::Sigmoid, Activation::Tanh);
    let mut layer = |cell: Cell, direction: Direction, activations: &[Activation], full: bool| {
        let (d, g) = (direction.count(), cell.gates());
        let (s, b, i, h) = (4, 3, 2, 2);
        let mut inputs = vec![f(&[s, b, i]), f(&[d, g * h, i]), f(&[d, g * h, h])];
        if full {
            inputs.extend([f(&[d, 2 * g * h]), ints(&[b], &[4, 0, 2]), f(&[d, b, h])]);
            if matches!(cell, Cell::Lstm { .. }) {
                inputs.extend([f(&[d, b, h]), f(&[d, 3 * h])]);
            }
        }
        let activations = activations.repeat(d as usize);
        let clip = full.then(|| real(1.5));
        add(Recurrent { cell, direction, activations, clip }.into(), inputs);
    };
    layer(Cell::Simple, Direction::Forward, &[tanh], true);
    let scaled = Activation::ScaledTanh { alpha: real(1.5), beta: real(0.5) };
    layer(Cell::Simple, Direction::Reverse, &[scaled], false);
    for linear_before_reset in [false, true] {
        let cell = Cell::Gru { linear_before_reset };
        layer(cell, Direction::Both, &[sigmoid, tanh], true);
    }
    for input_forget in [false, true] {
        let cell = Cell::Lstm { input_forget };
        layer(cell, Direction::Both, &[sigmoid, tanh, tanh], true);
        layer(cell, Direction::Forward, &[sigmoid, tanh, tanh], false);
    }
}

/// A graph that adds its inputs from `first` on.
fn sum(types: &[Type], first: usize) -> (Graph, bricolage_ir::ValueId) {
    let mut graph = Graph::new("body");
    for (i, ty) in types.iter().enumerate() {
        graph.input(&format!("x{i}"), ty.clone());
    }
    let mut at = graph.inputs[first];
    for i in first + 1..types.len() {
        at = graph.add1(Binary::Add, &[at, graph.inputs[i]], origin("sum")).unwrap();
    }
    (graph, at)
}

fn nested(add: Add<'_>) {
    let line = tensor(&[3]);
    let (mut then, total) = sum(&[line.clone(), line.clone()], 0);
    then.outputs = vec![total];
    let (mut otherwise, _) = sum(&[line.clone(), line.clone()], 0);
    otherwise.outputs = vec![otherwise.inputs[1]];
    let (then, otherwise) = (Nested::new(then).unwrap(), Nested::new(otherwise).unwrap());
    let op = If { then, otherwise, outputs: vec![line.clone()] };
    for taken in [false, true] {
        let inputs = vec![bools(&[], &[taken]), f(&[3]), f(&[3])];
        add(op.clone().into(), inputs);
    }
    let scalar = |d| Type::from(TensorType::fixed(d, &[]));
    let types = [scalar(DType::I64), scalar(DType::Bool), line.clone(), line.clone()];
    let (mut body, total) = sum(&types, 2);
    let half = body.constant("half", Tensor::of(&[], &[0.5f64]));
    let kept = body.add1(Binary::Mul, &[total, half], origin("halve")).unwrap();
    body.outputs = vec![body.inputs[1], kept, total];
    let body = Nested::new(body).unwrap();
    let op = Loop { states: 1, body, outputs: vec![line.clone(), tensor(&[4, 3])] };
    let inputs = vec![ints(&[], &[4]), bools(&[], &[true]), f(&[3]), f(&[3])];
    add(op.into(), inputs);
    let (mut body, total) = sum(&[line.clone(), line.clone()], 0);
    let negative = body.add1(Unary::Neg, &[total], origin("neg")).unwrap();
    body.outputs = vec![total, negative];
    for reverse in [false, true] {
        let op = Scan {
            states: 1,
            scanned: vec![Along { axis: 1, reverse }],
            collected: vec![Along { axis: 1, reverse: !reverse }],
            body: Nested::new(body.clone()).unwrap(),
            outputs: vec![line.clone(), tensor(&[3, 4])],
        };
        add(op.into(), vec![f(&[3]), f(&[3, 4])]);
    }
    body.outputs.pop();
    let op = SequenceMap { zipped: vec![false], body: Nested::new(body).unwrap() };
    add(op.into(), vec![list(vec![f(&[3]), f(&[3])]), f(&[3])]);
}

fn found(add: Add<'_>) {
    let found = Dim::from;
    add(NonZero { found: found(4) }.into(), vec![ints(&[2, 3], &[0, 1, 2, 0, 3, 4])]);
    let keep = bools(&[3], &[true, false, true]);
    add(Compress { axis: 1, found: found(2) }.into(), vec![f(&[2, 4, 2]), keep]);
    let x = || ints(&[2, 3], &[4, 1, 4, 1, 7, 1]);
    for sorted in [false, true] {
        add(Unique { axis: None, sorted, found: found(3) }.into(), vec![x()]);
        add(Unique { axis: Some(1), sorted, found: found(2) }.into(), vec![x()]);
    }
    let boxes = [0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, 10.0, 1.0, 11.0];
    let boxes = || Some(Tensor::of(&[1, 3, 4], &boxes).into());
    let scores = || Some(Tensor::of(&[1, 1, 3], &[0.9f64, 0.75, 0.6]).into());
    let limits = [ints(&[], &[3]), Some(Tensor::of(&[], &[0.5f32]).into())];
    for (centered, count) in [(false, 2), (true, 2)] {
        let op = NonMaxSuppression { centered, found: found(count) };
        let mut inputs = vec![boxes(), scores()];
        inputs.extend(limits.clone());
        add(op.into(), inputs);
    }
}

fn dynamic(add: Add<'_>) {
    let mut late = |op: Late, to: &[i64], inputs: Vec<Option<Datum>>| {
        add(Dynamic { op, shape: shape(to) }.into(), inputs);
    };
    let slice = vec![f(&[4, 5]), ints(&[1], &[-4]), ints(&[1], &[9]), ints(&[1], &[1]), None];
    late(Late::Slice, &[4, 4], slice);
    let reshape = |zero_is_size| Late::Reshape { zero_is_size };
    late(reshape(false), &[2, 6], vec![f(&[2, 3, 2]), ints(&[2], &[0, -1])]);
    late(Late::Expand, &[2, 4, 3], vec![f(&[4, 1]), ints(&[3], &[2, 1, 3])]);
    late(Late::Tile, &[4, 3], vec![f(&[2, 3]), ints(&[2], &[2, 1])]);
    late(Late::Pad(PadMode::Edge), &[4, 3], vec![f(&[2, 3]), ints(&[4], &[1, 0, 1, 0])]);
    late(Late::Fill, &[2, 2], vec![ints(&[2], &[2, 2]), f(&[1])]);
    late(Late::Range, &[3], vec![ints(&[], &[5]), ints(&[], &[-3]), ints(&[], &[-3])]);
    let random =
        |distribution| Random { distribution, dtype: DType::F64, shape: shape(&[3]), seed: 7 };
    let (low, high) = (real(-1.0), real(2.0));
    add(random(Distribution::Uniform { low, high }).into(), vec![]);
    add(random(Distribution::Normal { mean: low, scale: high }).into(), vec![]);
}

fn sampling(add: Add<'_>) {
    for (mode, outside, align_corners) in [
        (GridMode::Nearest, Outside::Zeros, false),
        (GridMode::Linear, Outside::Reflection, true),
        (GridMode::Cubic, Outside::Border, false),
    ] {
        let op = GridSample { mode, outside, align_corners };
        add(op.into(), vec![f(&[2, 2, 4, 3]), f(&[2, 3, 2, 2])]);
    }
    for largest in [false, true] {
        let (height, width, scale) = (2, 3, real(0.5));
        let op = RoiAlign { largest, height, width, samples: 2, scale, half_pixel: largest };
        let corners = [0.0, 1.0, 6.0, 7.0, 2.0, 2.0, 9.0, 5.0];
        let regions = Some(Tensor::of(&[2, 4], &corners).into());
        add(op.into(), vec![f(&[2, 2, 5, 6]), regions, ints(&[2], &[1, 0])]);
    }
    let op = DeformConv {
        strides: vec![1, 2],
        dilations: vec![1, 1],
        pads: vec![(1, 1), (0, 1)],
        groups: 2,
        offset_groups: 2,
    };
    let (w, offset) = (f(&[4, 2, 3, 2]), f(&[2, 24, 4, 3]));
    add(op.into(), vec![f(&[2, 4, 4, 5]), w, offset, f(&[4]), positive(&[2, 12, 4, 3])]);
}

fn lists(add: Add<'_>) {
    let three = || list(vec![f(&[2]), f(&[3]), f(&[2])]);
    add(Sequence::Construct { element: None }.into(), vec![f(&[2]), f(&[3])]);
    add(Sequence::At { ty: tensor(&[3]) }.into(), vec![three(), ints(&[], &[-2])]);
    add(Sequence::Insert.into(), vec![three(), f(&[1]), ints(&[], &[1])]);
    add(Sequence::Erase.into(), vec![three()]);
    add(Sequence::Length.into(), vec![three()]);
    add(Sequence::Split { axis: 1, keep_dims: false }.into(), vec![f(&[2, 3])]);
    add(Sequence::Split { axis: 0, keep_dims: true }.into(), vec![f(&[5]), ints(&[2], &[2, 3])]);
    let join = Sequence::Join { axis: 0, new_axis: false, ty: tensor(&[7]) };
    add(join.into(), vec![three()]);
    let stack = Sequence::Join { axis: 1, new_axis: true, ty: tensor(&[3, 2]) };
    add(stack.into(), vec![list(vec![f(&[3]), f(&[3])])]);
    let some = || Some(Datum::Optional(Some(Box::new(f(&[2]).unwrap()))));
    add(Optional::Wrap { element: None }.into(), vec![f(&[2])]);
    add(Optional::Has.into(), vec![some()]);
    add(Optional::Has.into(), vec![None]);
    add(Optional::Get { ty: tensor(&[2]) }.into(), vec![some()]);
}

fn words(add: Add<'_>) {
    let x = || texts(&[2, 2], &["a b", "", "b-a", "Grüße"]);
    let elements = vec!["one".to_owned(), "\"two\"".to_owned()];
    add(Text::Constant { dims: vec![2], elements }.into(), vec![]);
    add(Text::Concat.into(), vec![x(), texts(&[1, 2], &["!", "?"])]);
    let stop = vec!["MONDAY".to_owned()];
    let case = Some(Case::Upper);
    let op = Text::Normalise { case, case_sensitive: false, stop, found: Dim::from(1) };
    add(op.into(), vec![texts(&[2], &["monday", "tuesday"])]);
    add(Text::Matches { pattern: "[a-z]( .)?".to_owned() }.into(), vec![x()]);
    let op = Text::Split { delimiter: Some("-".to_owned()), most: None, found: Dim::from(2) };
    add(op.into(), vec![x()]);
    add(Text::Split { delimiter: None, most: Some(1), found: Dim::from(2) }.into(), vec![x()]);
    add(Transpose { perm: vec![1, 0] }.into(), vec![x()]);
    add(Binary::Equal.into(), vec![x(), texts(&[], &["b-a"])]);
    let keys = Labels::Texts(vec!["a b".to_owned(), "b-a".to_owned()]);
    let values = Labels::Ints(vec![3, 4, -1]);
    add(Lookup { keys, values, to: DType::I64 }.into(), vec![x()]);
    let (keys, values) = (Labels::Ints(vec![0, 3]), Labels::Reals(vec![real(0.5); 3]));
    add(Lookup { keys, values, to: DType::F32 }.into(), vec![small(&[4])]);
    let op = Ngrams {
        min: 1,
        max: 2,
        skip: 1,
        weighting: Weighting::Both,
        pool: Labels::Ints(vec![3, -1, 3, -1]),
        starts: vec![0, 2],
        columns: vec![0, 1, 2],
        weights: vec![real(1.0), real(0.5), real(2.0)],
    };
    add(op.into(), vec![ints(&[2, 4], &[3, -1, 3, -1, 0, 3, 0, -1])]);
    let nodes = vec![
        TreeNode {
            feature: 1,
            question: Question::LessEqual(real(0.25)),
            nan_is_yes: true,
            yes: Branch::Node(1),
            no: Branch::Leaf(0),
        },
        TreeNode {
            feature: 0,
            question: Question::Member(vec![real(1.0), real(2.0)]),
            nan_is_yes: false,
            yes: Branch::Leaf(1),
            no: Branch::Leaf(2),
        },
    ];
    let op = TreeEnsemble {
        nodes,
        leaves: vec![(0, real(1.0)), (1, real(2.0)), (1, real(-4.0))],
        roots: vec![Branch::Node(0), Branch::Node(1)],
        targets: 2,
        aggregate: Aggregate::Sum,
        finish: Finish::Logistic,
    };
    add(op.into(), vec![f(&[5, 2])]);
}
