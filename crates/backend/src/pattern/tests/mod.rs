//! The language against plain judges of its own: brute force, a naive evaluator, hostile texts.

mod conditions;
mod growing;
mod matching;
mod reading;

use super::{
    names::{Library, Names},
    shape::{self, Part, Places},
    syntax::{Declaration, File, Name, Pattern},
};
use bricolage_ir::{
    Graph, NodeId, Op, ValueId,
    ops::{Binary, LayerNorm, MatMul, Unary},
    origin,
};
use bricolage_tensor::{DType, Tensor, TensorType};

/// Choices made by bytes; all are 0 when they run out.
struct Dice<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Dice<'a> {
    fn new(bytes: &'a [u8]) -> Dice<'a> {
        Dice { bytes, at: 0 }
    }

    /// A number below `n`.
    fn roll(&mut self, n: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % n
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())].clone()
    }
}

const SIZE: i64 = 2;

/// A graph of up to `most` nodes over square matrices; what nothing reads is an output, and so are some others.
fn graph(dice: &mut Dice<'_>, most: usize) -> Graph {
    let mut graph = Graph::new("random");
    let ty = TensorType::fixed(DType::F32, &[SIZE, SIZE]);
    let weights = Tensor::generate(DType::F32, &[SIZE, SIZE], |i| i as f64);
    let mut values = vec![
        graph.input("a", ty.clone()),
        graph.input("b", ty),
        graph.constant("w", weights),
        graph.constant("s", Tensor::generate(DType::F32, &[1], |_| 2.0)),
    ];
    let line = graph.constant("line", Tensor::generate(DType::F32, &[SIZE], |i| i as f64));
    for i in 0..1 + dice.roll(most) {
        let recent =
            |dice: &mut Dice<'_>| values[values.len() - 1 - dice.roll(values.len().min(5))];
        let (a, b) = (recent(dice), dice.pick(&values));
        let from = origin(&format!("n{i}"));
        let made = match dice.roll(9) {
            0 => graph.add1(Op::Unary(Unary::Relu), &[a], from),
            1 => graph.add1(Op::Unary(Unary::Neg), &[a], from),
            2 | 3 => graph.add1(Op::Binary(Binary::Add), &[a, b], from),
            4 => graph.add1(Op::Binary(Binary::Sub), &[a, b], from),
            5 => graph.add1(Op::Binary(Binary::Mul), &[a, b], from),
            6 | 7 => graph.add1(MatMul::default(), &[a, b], from),
            _ => {
                let op = LayerNorm { axis: 1, epsilon: 1e-5.into(), rms: false, statistics: false };
                let operand = |is: usize| (is > 0).then_some(line);
                let inputs = [Some(a), operand(dice.roll(2)), operand(dice.roll(2))];
                graph.add1(op, &inputs, from)
            }
        };
        // What does not fit, as a product with the number, is left out.
        values.extend(made);
    }
    let ends: Vec<ValueId> = graph
        .values()
        .filter(|&v| graph.producer(v).is_some())
        .filter(|&v| graph.uses(v).is_empty() || dice.roll(8) == 7)
        .collect();
    graph.outputs = ends;
    graph
}

/// A pattern with its names looked up, and the names.
fn compiled(pattern: &Pattern) -> Option<(Part, Vec<String>)> {
    let library = Library::default();
    let mut names = Names::new(&library);
    let part = shape::root(pattern, &Name::from("p"), &Places::new(&[]), &mut names)?;
    assert_eq!(names.faults, []);
    Some((part, names.slots.iter().map(|s| s.name.clone()).collect()))
}

/// The pattern that a text is.
fn pattern(text: &str) -> Pattern {
    let file = File::parse("p", &format!("let p = {text};")).unwrap();
    match file.declarations.into_iter().next() {
        Some(Declaration::Let(definition)) => definition.pattern,
        other => panic!("{other:?}"),
    }
}

fn nodes(graph: &Graph) -> Vec<NodeId> {
    graph.nodes().collect()
}
