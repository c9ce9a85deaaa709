//! Random graphs: built step by step, each step evaluated before it is kept.
//!
//! A step whose results are not finite, are large, or hang on the rounding of its operands (a
//! comparison of nearly equal numbers, a difference that cancels) is dropped: whatever is generated can
//! be judged by tolerances that follow from rounding.

mod elements;
mod moves;
mod rows;
mod spatial;
mod spellings;

use bricolage_ir::{Fact, Graph, Inputs, Op, Real, ValueId, origin};
use bricolage_tensor::{DType, Datum, Rng, Tensor, TensorType, Type};
use std::collections::{HashMap, HashSet};

/// A random graph with inputs for it.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Decides everything.
    pub seed: u64,
    /// Types are fixed; there is at least one output.
    pub graph: Graph,
    /// In the graph's order.
    pub inputs: Vec<Tensor>,
}

/// The graph that belongs to `seed`.
pub fn generate(seed: u64) -> Generated {
    generate_from(seed, &[])
}

/// The graph that belongs to `seed` when the first choices are made by these bytes, one or two each, and
/// only the others, and what tensors hold, by the seed. Graphs of similar bytes are similar.
pub fn generate_from(seed: u64, choices: &[u8]) -> Generated {
    let mut g = Growing::new(seed, choices);
    let steps = 2 + g.below(13);
    for _ in 0..steps {
        step(&mut g);
    }
    g.choose_outputs();
    Generated { seed, graph: g.graph, inputs: g.inputs }
}

/// Elements of one value, at most.
const MOST_ELEMENTS: u64 = 6000;
/// Largest magnitude of a float.
const MOST: f64 = 300.0;

type Step = fn(&mut Growing) -> Option<()>;

/// Steps with their weights.
const STEPS: &[(usize, Step)] = &[
    (14, spatial::convolution),
    (4, spatial::transposed_convolution),
    (5, spatial::pool),
    (3, spatial::global_pool),
    (3, spatial::resize),
    (4, spatial::batch_norm),
    (3, spatial::group_norm),
    (1, spatial::response_norm),
    (2, spatial::depth_and_space),
    (12, rows::product),
    (2, rows::einsum),
    (4, rows::layer_norm),
    (3, rows::softmax),
    (5, rows::reduce),
    (2, rows::position),
    (2, rows::running_sum),
    (2, rows::best),
    (8, elements::function),
    (10, elements::pair),
    (3, elements::clip),
    (5, elements::choice),
    (3, elements::cast),
    (4, elements::integers),
    (6, elements::chain),
    (4, elements::residual),
    (5, moves::reshape),
    (5, moves::transpose),
    (2, moves::expand),
    (1, moves::tile),
    (4, moves::concat),
    (4, moves::split),
    (5, moves::slice),
    (4, moves::pad),
    (3, moves::gather),
    (2, moves::gather_elements),
    (2, moves::scatter),
    (1, moves::one_hot),
    (2, moves::triangle),
    (2, moves::positions),
    (5, spellings::gelu),
    (3, spellings::gated),
    (3, spellings::norm),
    (2, spellings::softmax),
    (5, spellings::attention),
];

fn step(g: &mut Growing) {
    let total: usize = STEPS.iter().map(|s| s.0).sum();
    let mut at = g.below(total);
    for (weight, step) in STEPS {
        if at < *weight {
            // A step that does not fit what is there adds nothing.
            let _ = step(g);
            return;
        }
        at -= weight;
    }
}

/// A graph in the making, with the content of every value.
pub(crate) struct Growing {
    graph: Graph,
    rng: Rng,
    /// Choices that are made already, the next one last.
    choices: Vec<u8>,
    inputs: Vec<Tensor>,
    contents: HashMap<ValueId, Tensor>,
    /// Values that rounding has touched.
    rounded: HashSet<ValueId>,
    /// What steps read: inputs and results.
    values: Vec<ValueId>,
    /// Element type of most values.
    dtype: DType,
    nodes: usize,
}

impl Growing {
    fn new(seed: u64, choices: &[u8]) -> Growing {
        let mut rng = Rng::new(seed ^ 0x7465_7374);
        let mut choices: Vec<u8> = choices.iter().rev().copied().collect();
        let dtype = match chosen(&mut choices, 20).unwrap_or_else(|| rng.below(20)) {
            0 => DType::F64,
            1 => DType::F16,
            2 => DType::BF16,
            _ => DType::F32,
        };
        let mut g = Growing {
            graph: Graph::new(format!("random {seed}")),
            rng,
            choices,
            inputs: Vec::new(),
            contents: HashMap::new(),
            rounded: HashSet::new(),
            values: Vec::new(),
            dtype,
            nodes: 0,
        };
        let dims = match g.below(10) {
            0..=4 => g.image(2),
            5 => g.image(1),
            6 => g.image(3),
            7 => vec![g.between(1, 9), g.width()],
            _ => vec![g.between(1, 3), g.between(1, 9), g.width()],
        };
        g.input(dtype, &dims);
        if g.chance(0.3) {
            let other = if g.chance(0.5) { dims } else { vec![g.between(1, 6), g.width()] };
            g.input(dtype, &other);
        }
        if g.chance(0.1) {
            let dims = [g.between(1, 3), g.between(1, 7)];
            let dtype = g.one_of(&[DType::I64, DType::I32, DType::Bool]);
            g.input(dtype, &dims);
        }
        g
    }

    fn image(&mut self, spatial: usize) -> Vec<i64> {
        let most = [26, 13, 6][spatial - 1];
        let mut dims = vec![self.one_of(&[1, 1, 1, 2, 3]), self.channels()];
        dims.extend((0..spatial).map(|_| self.between(1, most)));
        dims
    }

    // Chance.

    fn below(&mut self, bound: usize) -> usize {
        chosen(&mut self.choices, bound).unwrap_or_else(|| self.rng.below(bound))
    }

    /// An integer from `low` to `high`, both included.
    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    fn chance(&mut self, share: f64) -> bool {
        match self.choices.pop() {
            Some(byte) => f64::from(byte) < 256.0 * share,
            None => self.rng.uniform() < share,
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn channels(&mut self) -> i64 {
        self.one_of(&[1, 2, 3, 3, 4, 5, 6, 7, 8, 8, 9, 12, 16, 16, 17, 24, 32])
    }

    fn width(&mut self) -> i64 {
        self.one_of(&[1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20, 24, 32, 33])
    }

    /// A divisor of `n`.
    fn divisor(&mut self, n: i64) -> i64 {
        let all: Vec<i64> = (1..=n.max(1)).filter(|d| n % d == 0).collect();
        self.one_of(&all)
    }

    // Values.

    fn content(&self, value: ValueId) -> &Tensor {
        &self.contents[&value]
    }

    fn dims(&self, value: ValueId) -> Vec<i64> {
        self.content(value).dims().to_vec()
    }

    fn dtype_of(&self, value: ValueId) -> DType {
        self.content(value).dtype()
    }

    /// A value that steps may read, the latest ones more often.
    fn pick(&mut self, fits: impl Fn(&Tensor) -> bool) -> Option<ValueId> {
        let all: Vec<ValueId> =
            self.values.iter().copied().filter(|v| fits(&self.contents[v])).collect();
        let recent = if self.chance(0.7) { all.len().min(2) } else { all.len() };
        if recent == 0 {
            return None;
        }
        Some(all[all.len() - 1 - self.below(recent)])
    }

    fn pick_float(&mut self, ranks: std::ops::RangeInclusive<usize>) -> Option<ValueId> {
        self.pick(|t| t.dtype().is_float() && ranks.contains(&t.dims().len()) && !t.is_empty())
    }

    fn draw(&mut self, dtype: DType, dims: &[i64], spread: f64) -> Tensor {
        let rng = &mut self.rng;
        Tensor::generate(dtype, dims, |_| match dtype {
            DType::Bool => rng.below(2) as f64,
            _ if dtype.is_float() => spread * rng.normal().clamp(-3.0, 3.0),
            _ => rng.below(7) as f64,
        })
    }

    fn input(&mut self, dtype: DType, dims: &[i64]) -> ValueId {
        let tensor = self.draw(dtype, dims, 1.0);
        let name = format!("x{}", self.inputs.len());
        let value = self.graph.input(&name, TensorType::fixed(dtype, dims));
        self.contents.insert(value, tensor.clone());
        self.inputs.push(tensor);
        self.values.push(value);
        value
    }

    fn constant(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("c{}", self.contents.len());
        let value = self.graph.constant(&name, tensor.clone());
        self.contents.insert(value, tensor);
        value
    }

    fn number(&mut self, dtype: DType, value: f64) -> ValueId {
        let dims: &[i64] = if self.chance(0.7) { &[] } else { &[1] };
        self.constant(Tensor::from_f64(dtype, dims, &[f64::from(value as f32)]))
    }

    /// A parameter: mostly a constant, sometimes an input, a value that is there, or a constant
    /// that nodes bring into its form.
    fn weight(&mut self, dtype: DType, dims: &[i64], spread: f64) -> Option<ValueId> {
        let kind = self.below(20);
        if kind == 0
            && let Some(there) = self.pick(|t| t.dtype() == dtype && t.dims() == dims)
        {
            return Some(there);
        }
        if kind == 1 {
            return Some(self.input(dtype, dims));
        }
        if kind == 2 && dims.len() >= 2 {
            let tensor = self.draw(dtype, &dims.iter().rev().copied().collect::<Vec<_>>(), spread);
            let stored = self.constant(tensor);
            let perm = (0..dims.len()).rev().collect();
            return self.on(bricolage_ir::ops::Transpose { perm }, &[stored]);
        }
        if kind == 3 && dtype == DType::F32 {
            let tensor = self.draw(DType::F16, dims, spread);
            let stored = self.constant(tensor);
            return self.on(bricolage_ir::ops::Cast::to(dtype), &[stored]);
        }
        let tensor = self.draw(dtype, dims, spread);
        Some(self.constant(tensor))
    }

    // Nodes.

    /// Adds a node with one or more results, and returns the first.
    fn on(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Option<ValueId> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().map(|&v| Some(v)).collect();
        self.add(op.into(), &inputs).map(|all| all[0])
    }

    /// Adds a node, unless its results would be no good.
    fn add(&mut self, op: Op, inputs: &[Option<ValueId>]) -> Option<Vec<ValueId>> {
        let facts = op.infer(&self.graph.facts(inputs)).ok()?;
        if !facts.iter().all(is_small) {
            return None;
        }
        let results = self.evaluate(&op, inputs, None)?;
        let good = |t: &Tensor| {
            !t.dtype().is_float() || t.to_f64().iter().all(|v| v.is_finite() && v.abs() <= MOST)
        };
        if !results.iter().all(good) {
            return None;
        }
        let rounded = inputs.iter().flatten().any(|v| self.rounded.contains(v));
        if rounded && !self.is_steady(&op, inputs, &results) {
            return None;
        }
        let name = origin(&format!("n{}", self.nodes));
        self.nodes += 1;
        let keeps = moves::keeps_elements(&op);
        let outputs = self.graph.add(op, inputs, name).ok()?;
        for (&value, tensor) in outputs.iter().zip(results) {
            if tensor.dtype().is_float() && (rounded || !keeps) {
                self.rounded.insert(value);
            }
            self.contents.insert(value, tensor);
            self.values.push(value);
        }
        Some(outputs)
    }

    /// The results of an op; with `disturbed`, of operands that rounding has moved that much.
    fn evaluate(
        &mut self,
        op: &Op,
        inputs: &[Option<ValueId>],
        disturbed: Option<f64>,
    ) -> Option<Vec<Tensor>> {
        let mut moved: HashMap<ValueId, Datum> = HashMap::new();
        for value in inputs.iter().flatten() {
            let mut content = self.contents[value].clone();
            if let Some(share) = disturbed
                && self.rounded.contains(value)
            {
                content = disturb(&content, share, &mut self.rng);
            }
            moved.entry(*value).or_insert(content.into());
        }
        let operands: Vec<Option<&Datum>> =
            inputs.iter().map(|v| v.and_then(|v| moved.get(&v))).collect();
        let results = op.eval(&Inputs(&operands)).ok()?;
        results.into_iter().map(|d| d.as_tensor().cloned()).collect()
    }

    /// Whether small errors of the operands stay small.
    fn is_steady(&mut self, op: &Op, inputs: &[Option<ValueId>], results: &[Tensor]) -> bool {
        (0..2).all(|_| {
            let Some(other) = self.evaluate(op, inputs, Some(1.0)) else { return false };
            results.iter().zip(&other).all(|(a, b)| {
                if !a.dtype().is_float() {
                    return a == b;
                }
                let error = bricolage_ir::Error::between(a, b);
                error.max_abs <= 50.0 * share_of_rounding(a.dtype()) * error.magnitude
            })
        })
    }

    /// Most values that nothing reads, and a few others.
    fn choose_outputs(&mut self) {
        let mut outputs = Vec::new();
        for value in self.values.clone() {
            let unread = self.graph.uses(value).is_empty();
            let input = self.graph.producer(value).is_none();
            let share = match (unread, input) {
                (true, false) => 0.85,
                (false, false) => 0.06,
                (_, true) => 0.02,
            };
            if self.chance(share) {
                outputs.push(value);
            }
        }
        if self.chance(0.02) {
            let constant = self.draw(self.dtype, &[3], 1.0);
            outputs.push(self.constant(constant));
        }
        if outputs.is_empty() {
            outputs.extend(self.values.last());
        }
        if self.chance(0.2) {
            self.rng.shuffle(&mut outputs);
        }
        self.graph.outputs = outputs;
    }
}

/// The next choice of a number in `0..bound`, while there is one: from one byte, or two for large bounds.
fn chosen(choices: &mut Vec<u8>, bound: usize) -> Option<usize> {
    let high = usize::from(choices.pop()?);
    if bound <= 256 {
        return Some((high * bound) >> 8);
    }
    let low = usize::from(choices.pop().unwrap_or(0));
    Some(((high << 8 | low) * bound) >> 16)
}

/// An attribute as ONNX can hold it: in `f32`.
fn real(value: f64) -> Real {
    Real::from(value as f32)
}

/// Whether a norm over so many elements can be judged: the floor follows the rounding of single elements,
/// which a norm over two takes out again while that of their mean stays.
fn is_norm_worth(elements: i64) -> bool {
    elements >= 4
}

fn is_small(fact: &Fact) -> bool {
    match &fact.ty {
        Type::Tensor(t) => {
            t.shape.element_count().is_some_and(|n| (1..=MOST_ELEMENTS).contains(&n))
        }
        _ => false,
    }
}

/// Errors that a chain of roundings may add up to, as a share of the largest magnitude.
fn share_of_rounding(dtype: DType) -> f64 {
    400.0 * dtype.epsilon().min(1e-4)
}

fn disturb(tensor: &Tensor, share: f64, rng: &mut Rng) -> Tensor {
    let values = tensor.to_f64();
    let largest = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let by = share * share_of_rounding(tensor.dtype()) * largest;
    let moved: Vec<f64> = values.iter().map(|v| v + by * (2.0 * rng.uniform() - 1.0)).collect();
    Tensor::from_f64(tensor.dtype(), tensor.dims(), &moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bricolage_ir::{OpKind, print, verify};
    use std::collections::BTreeSet;

    #[test]
    fn graphs_are_sound_and_repeat() {
        for seed in 0..50 {
            let (a, b) = (generate(seed), generate(seed));
            assert_eq!(verify(&a.graph), [], "seed {seed}");
            assert_eq!(print(&a.graph), print(&b.graph));
            assert_eq!(a.inputs, b.inputs);
        }
    }

    #[test]
    fn choices_by_bytes_give_sound_graphs() {
        let mut rng = Rng::new(5);
        let mut graphs = BTreeSet::new();
        for seed in 0..50 {
            let choices: Vec<u8> = (0..60).map(|_| rng.next_u64() as u8).collect();
            let graph = generate_from(1, &choices).graph;
            assert_eq!(verify(&graph), [], "choices {seed}");
            graphs.insert(print(&graph).0);
        }
        assert!(graphs.len() > 45, "{} different graphs", graphs.len());
    }

    #[test]
    fn every_op_comes_up() {
        let mut seen = BTreeSet::new();
        for seed in 0..600 {
            let graph = generate(seed).graph;
            seen.extend(graph.nodes().map(|n| graph.node(n).op.kind()));
        }
        let never: Vec<&str> =
            OpKind::ALL.iter().filter(|k| !seen.contains(k)).map(|k| k.name()).collect();
        // What an engine could not check, or what other tests cover: no kernel computes it.
        let undrawn = [
            "BitCast",
            "Det",
            "Dft",
            "LinearAttention",
            "Quantize",
            "Dequantize",
            "Recurrent",
            "If",
            "Loop",
            "Scan",
            "SequenceMap",
            "Sequence",
            "Optional",
            "Dynamic",
            "NonZero",
            "Compress",
            "Unique",
            "NonMaxSuppression",
            "GridSample",
            "RoiAlign",
            "DeformConv",
            "Random",
            "Text",
            "Lookup",
            "Ngrams",
            "TreeEnsemble",
            "Opaque",
        ];
        assert_eq!(never, undrawn);
    }
}
