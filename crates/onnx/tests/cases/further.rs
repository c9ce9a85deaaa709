//! Cases of ops with graphs inside, of lists, texts and trees, and of those whose results depend on
//! data. All take and give tensors of numbers.

use super::Case;
use bricolage_ir::{
    Graph, Op, Real, ValueId,
    ops::{
        Activation, Aggregate, Along, Binary, Branch, Cell, Compress, DeformConv, Direction,
        Distribution, Dynamic, Finish, GridMode, GridSample, If, Labels, Late, Lookup, Loop,
        Nested, Ngrams, NonMaxSuppression, NonZero, Optional, Outside, PadMode, Question, Random,
        Recurrent, RoiAlign, Scan, Sequence, SequenceMap, Text, TreeEnsemble, TreeNode, Unary,
        Unique, Weighting,
    },
    origin,
};
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Tensor, TensorType, Type};

fn random(dims: &[i64]) -> Tensor {
    let mut rng = Rng::new(dims.iter().fold(11, |s, d| s * 31 + *d as u64));
    Tensor::generate(DType::F32, dims, |_| 4.0 * rng.uniform() - 2.0)
}

fn longs(dims: &[i64], values: &[i64]) -> Tensor {
    Tensor::of(dims, values)
}

fn real(x: f64) -> Real {
    Real::new(x)
}

fn ty(dims: &[i64]) -> Type {
    TensorType::fixed(DType::F32, dims).into()
}

#[derive(Default)]
struct Cases(Vec<Case>);

/// A graph under construction.
struct Build {
    graph: Graph,
    inputs: Vec<Datum>,
}

impl Build {
    fn input(&mut self, t: Tensor) -> Option<ValueId> {
        let id = self.graph.input(&format!("in{}", self.inputs.len()), t.ty());
        self.inputs.push(t.into());
        Some(id)
    }

    fn constant(&mut self, t: Tensor) -> Option<ValueId> {
        Some(self.graph.constant("fixed", t))
    }

    fn add(&mut self, op: impl Into<Op>, inputs: &[Option<ValueId>]) -> Option<ValueId> {
        Some(self.graph.add1(op, inputs, origin("/node")).unwrap())
    }

    fn all(&mut self, op: impl Into<Op>, inputs: &[Option<ValueId>]) -> Vec<ValueId> {
        self.graph.add(op, inputs, origin("/node")).unwrap()
    }
}

impl Cases {
    fn add(&mut self, name: &str, build: impl FnOnce(&mut Build) -> Vec<ValueId>) {
        let mut b = Build { graph: Graph::new(name), inputs: Vec::new() };
        b.graph.outputs = build(&mut b);
        self.0.push(Case { name: name.to_owned(), graph: b.graph, inputs: b.inputs });
    }

    /// One op on inputs.
    fn op(&mut self, name: &str, op: impl Into<Op>, inputs: Vec<Option<Tensor>>) {
        let op = op.into();
        let name = format!("{}.{name}", op.kind().name());
        self.add(&name, |b| {
            let inputs: Vec<Option<ValueId>> =
                inputs.into_iter().map(|t| t.and_then(|t| b.input(t))).collect();
            b.all(op, &inputs)
        });
    }

    fn recurrent(&mut self) {
        let (sigmoid, tanh) = (Activation::Sigmoid, Activation::Tanh);
        let hard = Activation::HardSigmoid { alpha: real(0.25), beta: real(0.5) };
        for (name, cell, functions) in [
            ("simple", Cell::Simple, vec![tanh]),
            ("relu", Cell::Simple, vec![Activation::Relu]),
            ("gru", Cell::Gru { linear_before_reset: false }, vec![sigmoid, tanh]),
            ("linear", Cell::Gru { linear_before_reset: true }, vec![hard, tanh]),
            ("lstm", Cell::Lstm { input_forget: false }, vec![sigmoid, tanh, tanh]),
            ("coupled", Cell::Lstm { input_forget: true }, vec![hard, Activation::Softsign, tanh]),
        ] {
            for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
                let (d, g) = (direction.count(), cell.gates());
                let (s, b, i, h) = (4, 3, 2, 5);
                let activations = functions.repeat(d as usize);
                let plain = Recurrent { cell, direction, activations, clip: None };
                let weights = || {
                    vec![
                        Some(random(&[s, b, i])),
                        Some(random(&[d, g * h, i])),
                        Some(random(&[d, g * h, h])),
                    ]
                };
                self.op(&format!("{name}.{direction:?}"), plain.clone(), weights());
                let mut all = weights();
                let lengths = Tensor::of(&[b], &[4i32, 1, 2]);
                all.extend([random(&[d, 2 * g * h]), lengths, random(&[d, b, h])].map(Some));
                if matches!(cell, Cell::Lstm { .. }) {
                    all.extend([random(&[d, b, h]), random(&[d, 3 * h])].map(Some));
                }
                self.op(&format!("{name}.{direction:?}.all"), plain, all);
            }
        }
    }

    fn graphs(&mut self) {
        let side = |f: Unary| {
            let mut graph = Graph::new("side");
            let x = graph.input("x", ty(&[2, 3]));
            let w = graph.input("w", ty(&[3]));
            let y = graph.add1(f, &[x], origin("f")).unwrap();
            graph.outputs = vec![graph.add1(Binary::Mul, &[y, w], origin("mul")).unwrap(), x];
            Nested::new(graph).unwrap()
        };
        for taken in [false, true] {
            let outputs = vec![ty(&[2, 3]), ty(&[2, 3])];
            let op = If { then: side(Unary::Exp), otherwise: side(Unary::Neg), outputs };
            let c = Tensor::of_bool(&[], &[taken]);
            self.op(
                &taken.to_string(),
                op,
                vec![Some(c), Some(random(&[2, 3])), Some(random(&[3]))],
            );
        }
        let mut body = Graph::new("body");
        let i = body.input("i", TensorType::fixed(DType::I64, &[]));
        let c = body.input("c", TensorType::fixed(DType::Bool, &[]));
        let s = body.input("s", ty(&[3]));
        let x = body.input("x", ty(&[3]));
        let last = body.constant("last", longs(&[], &[2]));
        let half = body.constant("half", Tensor::of(&[], &[0.5f32]));
        let sum = body.add1(Binary::Add, &[s, x], origin("sum")).unwrap();
        let next = body.add1(Binary::Mul, &[sum, half], origin("halve")).unwrap();
        let early = body.add1(Binary::Less, &[i, last], origin("early")).unwrap();
        let go = body.add1(Binary::And, &[early, c], origin("go")).unwrap();
        body.outputs = vec![go, next, sum];
        let rounds = Type::from(TensorType {
            dtype: DType::F32,
            shape: Shape(vec![Dim::symbol("rounds"), Dim::from(3)]),
        });
        let op =
            Loop { states: 1, body: Nested::new(body).unwrap(), outputs: vec![ty(&[3]), rounds] };
        let most = Some(longs(&[], &[7]));
        let first = Some(Tensor::of_bool(&[], &[true]));
        self.op("condition", op, vec![most, first, Some(random(&[3])), Some(random(&[3]))]);
        for reverse in [false, true] {
            let mut body = Graph::new("body");
            let s = body.input("s", ty(&[3]));
            let x = body.input("x", ty(&[3]));
            let sum = body.add1(Binary::Add, &[s, x], origin("sum")).unwrap();
            let copy = body.add1(Unary::Tanh, &[sum], origin("copy")).unwrap();
            body.outputs = vec![sum, copy];
            let op = Scan {
                states: 1,
                scanned: vec![Along { axis: 1, reverse }],
                collected: vec![Along { axis: 1, reverse }],
                body: Nested::new(body).unwrap(),
                outputs: vec![ty(&[3]), ty(&[3, 4])],
            };
            self.op(&reverse.to_string(), op, vec![Some(random(&[3])), Some(random(&[3, 4]))]);
        }
    }

    fn lists(&mut self) {
        self.add("Sequence.all", |b| {
            let (x, y) = (b.input(random(&[2, 3])), b.input(random(&[2, 1])));
            let list = b.add(Sequence::Construct { element: None }, &[x, y, x]);
            let one = b.constant(longs(&[], &[1]));
            let longer = b.add(Sequence::Insert, &[list, y, one]);
            let shorter = b.add(Sequence::Erase, &[longer, one]);
            let ty = ty(&[2, 7]);
            let whole = b.add(Sequence::Join { axis: 1, new_axis: false, ty }, &[shorter]);
            let length = b.add(Sequence::Length, &[longer]);
            [whole, length].into_iter().flatten().collect()
        });
        self.add("Sequence.split", |b| {
            let x = b.input(random(&[5, 2]));
            let two = b.constant(longs(&[], &[2]));
            let parts = b.add(Sequence::Split { axis: 0, keep_dims: true }, &[x, two]);
            let last = b.constant(longs(&[], &[-1]));
            let part = b.add(Sequence::At { ty: ty(&[1, 2]) }, &[parts, last]);
            let rows = b.add(Sequence::Split { axis: 0, keep_dims: false }, &[x]);
            let ty = ty(&[2, 5]);
            let turned = b.add(Sequence::Join { axis: 1, new_axis: true, ty }, &[rows]);
            [part, turned].into_iter().flatten().collect()
        });
        self.add("SequenceMap.sum", |b| {
            let (x, y) = (b.input(random(&[3])), b.input(random(&[3])));
            let list = b.add(Sequence::Construct { element: None }, &[x, y]);
            let mut body = Graph::new("body");
            let (one, all) = (body.input("one", ty(&[3])), body.input("all", ty(&[3])));
            body.outputs = vec![body.add1(Binary::Sub, &[one, all], origin("sub")).unwrap()];
            let op = SequenceMap { zipped: vec![false], body: Nested::new(body).unwrap() };
            let mapped = b.add(op, &[list, y]);
            let ty = ty(&[2, 3]);
            let op = Sequence::Join { axis: 0, new_axis: true, ty };
            b.add(op, &[mapped]).into_iter().collect()
        });
        self.add("Optional.all", |b| {
            let x = b.input(random(&[3]));
            let some = b.add(Optional::Wrap { element: None }, &[x]);
            let has = b.add(Optional::Has, &[some]);
            let value = b.add(Optional::Get { ty: ty(&[3]) }, &[some]);
            let shifted = b.add(Unary::Neg, &[value]);
            [has, shifted].into_iter().flatten().collect()
        });
    }

    fn found(&mut self) {
        let found = || Dim::symbol("found");
        let x = Tensor::of(&[2, 4], &[0f32, 1.0, 2.0, 0.0, 2.0, 1.0, 0.0, 0.0]);
        self.op("plain", NonZero { found: found() }, vec![Some(x.clone())]);
        let keep = Tensor::of_bool(&[3], &[true, false, true]);
        let op = Compress { axis: 1, found: found() };
        self.op("plain", op, vec![Some(x.clone()), Some(keep)]);
        for sorted in [false, true] {
            for axis in [None, Some(1)] {
                let op = Unique { axis, sorted, found: found() };
                self.op(&format!("{axis:?}.{sorted}"), op, vec![Some(x.clone())]);
            }
        }
        let mut rng = Rng::new(3);
        for centered in [false, true] {
            let boxes = Tensor::generate(DType::F32, &[2, 9, 4], |_| rng.uniform());
            let scores = Tensor::generate(DType::F32, &[2, 2, 9], |_| rng.uniform());
            let limit = |x: f32| Some(Tensor::of(&[1], &[x]));
            let most = Some(longs(&[1], &[3]));
            let inputs = vec![Some(boxes), Some(scores), most, limit(0.3), limit(0.2)];
            let op = NonMaxSuppression { centered, found: found() };
            self.op(&centered.to_string(), op, inputs);
        }
        self.add("Dynamic.all", |b| {
            let d = |n: usize| -> Shape { (0..n).map(|i| Dim::symbol(&format!("d{i}"))).collect() };
            let x = b.input(random(&[4, 6]));
            let mut list = |values: &[i64]| b.input(longs(&[values.len() as i64], values));
            let (starts, ends) = (list(&[1, -1]), list(&[9, -5]));
            let (axes, steps) = (list(&[0, 1]), list(&[1, -2]));
            let (to, repeats, pads) = (list(&[0, -1, 2]), list(&[2, 1]), list(&[1, 0, 0, 2]));
            let wide = list(&[3, 1, 1]);
            let mut late = |op: Late, shape: Shape, inputs: &[Option<ValueId>]| {
                b.add(Dynamic { op, shape }, inputs)
            };
            let mut named = 0;
            let mut fresh = |n: usize| -> Shape {
                named += 1;
                d(n).iter().map(|s| Dim::symbol(&format!("{s}.{named}"))).collect()
            };
            let all = [
                late(Late::Slice, fresh(2), &[x, starts, ends, axes, steps]),
                late(Late::Reshape { zero_is_size: false }, fresh(3), &[x, to]),
                late(Late::Expand, fresh(3), &[x, wide]),
                late(Late::Tile, fresh(2), &[x, repeats]),
                late(Late::Pad(PadMode::Constant), fresh(2), &[x, pads]),
            ];
            all.into_iter().flatten().collect()
        });
        self.add("Dynamic.range", |b| {
            let mut one = |v: i64| b.input(longs(&[], &[v]));
            let (start, end, step) = (one(7), one(-4), one(-3));
            let shape = Shape(vec![Dim::symbol("count")]);
            let range = b.add(Dynamic { op: Late::Range, shape }, &[start, end, step]);
            let to = b.input(longs(&[2], &[2, 3]));
            let value = b.constant(Tensor::of(&[1], &[2.5f32]));
            let shape = Shape(vec![Dim::symbol("rows"), Dim::symbol("columns")]);
            let fill = b.add(Dynamic { op: Late::Fill, shape }, &[to, value]);
            [range, fill].into_iter().flatten().collect()
        });
    }

    fn sampling(&mut self) {
        for mode in [GridMode::Nearest, GridMode::Linear, GridMode::Cubic] {
            for outside in [Outside::Zeros, Outside::Border, Outside::Reflection] {
                let align_corners = outside == Outside::Border;
                let op = GridSample { mode, outside, align_corners };
                let inputs = vec![Some(random(&[2, 3, 5, 4])), Some(random(&[2, 3, 4, 2]))];
                self.op(&format!("{mode:?}.{outside:?}"), op, inputs);
            }
        }
        for half_pixel in [false, true] {
            let (height, width, scale) = (3, 2, real(0.5));
            let op = RoiAlign { largest: false, height, width, samples: 2, scale, half_pixel };
            let corners = Tensor::of(&[2, 4], &[0f32, 1.0, 6.0, 7.0, 2.0, 2.0, 9.0, 5.0]);
            let inputs = vec![random(&[2, 3, 6, 7]), corners, longs(&[2], &[1, 0])];
            self.op(&half_pixel.to_string(), op, inputs.into_iter().map(Some).collect());
        }
        let op = DeformConv {
            strides: vec![1, 2],
            dilations: vec![1, 1],
            pads: vec![(1, 1), (0, 1)],
            groups: 2,
            offset_groups: 2,
        };
        let inputs = [
            random(&[2, 4, 4, 5]),
            random(&[4, 2, 3, 2]),
            random(&[2, 24, 4, 3]),
            random(&[4]),
            random(&[2, 12, 4, 3]),
        ];
        self.op("all", op, inputs.map(Some).to_vec());
        self.add("Random.below", |b| {
            let (low, high) = (real(-1.0), real(2.0));
            let shape = Shape::fixed(&[4, 5]);
            let seed = u64::from(3.0f32.to_bits());
            let uniform = Distribution::Uniform { low, high };
            let op = Random { distribution: uniform, dtype: DType::F32, shape, seed };
            let x = b.add(op, &[]);
            let limit = b.input(Tensor::of(&[], &[2.5f32]));
            b.add(Binary::Less, &[x, limit]).into_iter().collect()
        });
    }

    fn words(&mut self) {
        self.add("Text.all", |b| {
            let mut words = |all: &[&str]| {
                let elements = all.iter().map(|&t| t.to_owned()).collect();
                let dims = vec![all.len() as i64];
                b.add(Text::Constant { dims, elements }, &[])
            };
            let (x, y) = (words(&["Monday", "a b", "sunday"]), words(&["!", "", "?"]));
            let cat = b.add(Text::Concat, &[x, y]);
            let pattern = "[A-Za-z ]+[!?]?".to_owned();
            let fits = b.add(Text::Matches { pattern }, &[cat]);
            let same = b.add(Binary::Equal, &[x, cat]);
            [fits, same].into_iter().flatten().collect()
        });
        let pool = Labels::Ints(vec![1, 2, 3, 1, 2, 2, 3]);
        for weighting in [Weighting::Count, Weighting::Weight, Weighting::Both] {
            let op = Ngrams {
                min: 1,
                max: 2,
                skip: 1,
                weighting,
                pool: pool.clone(),
                starts: vec![0, 3],
                columns: vec![0, 1, 2, 4, 3],
                weights: [0.5, 1.0, 2.0, 3.0, 4.0].map(real).to_vec(),
            };
            let x = longs(&[2, 5], &[1, 2, 3, 1, 2, 2, 2, 2, 1, 3]);
            self.op(&format!("{weighting:?}"), op, vec![Some(x)]);
        }
        let (keys, values) = (Labels::Ints(vec![3, 5]), Labels::Ints(vec![30, 50, -1]));
        let op = Lookup { keys, values, to: DType::I64 };
        self.op("ints", op, vec![Some(longs(&[4], &[5, 4, 3, 3]))]);
        for (finish, aggregate) in [
            (Finish::Plain, Aggregate::Sum),
            (Finish::Plain, Aggregate::Mean),
            (Finish::Logistic, Aggregate::Sum),
        ] {
            let node = |feature, question, yes, no| TreeNode {
                feature,
                question,
                nan_is_yes: false,
                yes,
                no,
            };
            let nodes = vec![
                node(0, Question::LessEqual(real(0.25)), Branch::Node(1), Branch::Leaf(0)),
                node(1, Question::LessEqual(real(-0.5)), Branch::Leaf(1), Branch::Leaf(2)),
                node(1, Question::LessEqual(real(0.5)), Branch::Leaf(1), Branch::Leaf(0)),
            ];
            let op = TreeEnsemble {
                nodes,
                leaves: vec![(0, real(1.0)), (1, real(2.5)), (0, real(-4.0))],
                roots: vec![Branch::Node(0), Branch::Node(2)],
                targets: 2,
                aggregate,
                finish,
            };
            self.op(&format!("{aggregate:?}.{finish:?}"), op, vec![Some(random(&[6, 2]))]);
        }
    }
}

pub(super) fn all() -> Vec<Case> {
    let mut all = Cases::default();
    all.recurrent();
    all.graphs();
    all.lists();
    all.found();
    all.sampling();
    all.words();
    all.0
}
