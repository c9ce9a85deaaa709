//! The noise floor: what rounding alone may do to the results of a graph.
//!
//! The graph is evaluated once more with a random error added to every value, as large as a plain
//! computation in the element type would make. A sum of `k` terms kept in a type with unit
//! roundoff `u` errs by about `u sqrt(k / 2)` of its magnitude: the partial sums of terms of random
//! sign grow with the square root of their number, and each addition rounds once (Higham and Mary,
//! *A new approach to probabilistic rounding error analysis*, 2019). Whatever the rest of the graph
//! does to these errors, it does to the injected ones. Ops that work in several steps get the errors
//! of the steps: a difference taken first disturbs the operand, a sum that divides the result disturbs
//! the result, by a share of it or, where its logarithm is taken, by as much as that share is, and a sum
//! that nearly cancels inside a function disturbs it by the rounding of the sum's terms. Sums of products whose results go into the next ones, as in
//! recurrent layers, disturb the weights. Ops that every implementation computes alike, such as a choice, a move or a conversion, add nothing: a 0 that
//! they pass on stays 0, however large its factor. A remainder by 0 is no number, while one by what is next to 0 is
//! next to 0 too: a divisor of it that rounding may make 0 is taken for 0, after which nothing is asked. The magnitude
//! of sums is that of all results of an op, or, where these are few, that of sums of such terms which do not cancel.

use crate::{
    EvalError, Graph, Inputs, NodeId, Op, Role, Tolerance, ValueId,
    evaluate::{evaluate_from, learn_sizes, solve_symbols},
    ops::{Binary, Late, PoolKind, ReduceKind, Unary},
};
use bricolage_tensor::{DType, Datum, Dim, Rng, Tensor, Type};
use std::collections::{HashMap, HashSet};

/// An output of fewer elements that are not 0 may by chance meet next to no noise, which is mostly in shares of
/// them: [`tolerances`] draws several times.
const FEW: usize = 64;
const DRAWS: u64 = 4;

/// How far each output of `graph` may be from `reference`, in the graph's order, when nothing but
/// rounding differs: [`Tolerance::from_floor`] of noisy evaluations, [`Tolerance::EXACT`] where there is
/// no reference. `exact` may know the
/// contents of values, which are then not computed; `extra` and `seed` as [`evaluate_noisy`] takes them.
pub fn tolerances(
    graph: &Graph,
    inputs: &[Datum],
    reference: &[Option<&Tensor>],
    exact: &dyn Fn(ValueId) -> Option<Tensor>,
    extra: &dyn Fn(NodeId) -> f64,
    seed: u64,
) -> Result<Vec<Tolerance>, EvalError> {
    let few = reference.iter().flatten().any(|t| t.dtype().is_float() && has_few(t));
    let mut all = vec![Tolerance::EXACT; reference.len()];
    for draw in 0..if few { DRAWS } else { 1 } {
        let noisy = evaluate_noisy_from(graph, inputs, exact, extra, seed.wrapping_add(draw))?;
        for ((allowed, reference), noisy) in all.iter_mut().zip(reference).zip(&noisy) {
            if let (Some(reference), Some(noisy)) = (reference, noisy.as_tensor()) {
                *allowed = allowed.max(Tolerance::from_floor(reference, noisy));
            }
        }
    }
    Ok(all)
}

fn has_few(tensor: &Tensor) -> bool {
    match tensor.dtype() {
        DType::F32 => tensor.elements::<f32>().iter().filter(|&&v| v != 0.0).nth(FEW - 1).is_none(),
        _ => tensor.to_f64().iter().filter(|&&v| v != 0.0).nth(FEW - 1).is_none(),
    }
}

/// Evaluates `graph` with rounding noise on every float value.
///
/// `extra` gives, for a node, a further error as a share of the largest magnitude of its results:
/// that of a kernel whose arithmetic is less exact than plain sums.
pub fn evaluate_noisy(
    graph: &Graph,
    inputs: &[Datum],
    extra: &dyn Fn(NodeId) -> f64,
    seed: u64,
) -> Result<Vec<Datum>, EvalError> {
    evaluate_noisy_from(graph, inputs, &|_| None, extra, seed)
}

/// [`evaluate_noisy`], where `exact` may know the contents of values without noise: a node is not
/// evaluated when its operands have no noise yet and its results are known.
fn evaluate_noisy_from(
    graph: &Graph,
    inputs: &[Datum],
    exact: &dyn Fn(ValueId) -> Option<Tensor>,
    extra: &dyn Fn(NodeId) -> f64,
    seed: u64,
) -> Result<Vec<Datum>, EvalError> {
    let mut rng = Rng::new(seed);
    let divisors = divisors(graph, inputs, exact)?;
    let mut noisy: HashSet<ValueId> = HashSet::new();
    let mut contents: HashMap<ValueId, Datum> = HashMap::new();
    contents.extend(graph.inputs.iter().copied().zip(inputs.iter().cloned()));
    let mut left: HashMap<ValueId, usize> = HashMap::new();
    for v in graph.values() {
        left.insert(v, graph.uses(v).len() + usize::from(graph.is_output(v)));
        if let Role::Constant(t) | Role::State(t) = &graph.value(v).role {
            contents.insert(v, t.clone().into());
        }
    }
    let mut symbols = solve_symbols(graph, inputs)?;
    for id in graph.order() {
        let node = graph.node(id);
        let mut operands: Vec<Option<&Datum>> =
            node.inputs.iter().map(|v| v.as_ref().and_then(|v| contents.get(v))).collect();
        let mut untouched = node.inputs.iter().flatten().all(|v| !noisy.contains(v));
        let mut disturbed: Vec<(usize, Datum)> = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let Some(Datum::Tensor(t)) = operand else { continue };
            if let Some(v) = divisor(graph, id).filter(|v| i == 1 && noisy.contains(v))
                && let Some(exact) = divisors.get(&v)
            {
                disturbed.push((i, with_zeros(exact, t).into()));
                continue;
            }
            let own = match (takes_difference(&node.op), sums_with(&node.op, i, t)) {
                _ if !t.dtype().is_float() => continue,
                (true, _) if i == 0 && untouched => 1.0,
                (_, Some(terms)) => (1.0 + terms / 2.0).sqrt(),
                _ => continue,
            };
            let sizes = Sizes { own, ..Sizes::ROUNDED };
            disturbed.push((i, with_noise(t, sizes, &mut rng).into()));
        }
        for (i, datum) in &disturbed {
            operands[*i] = Some(datum);
            untouched = false;
        }
        let known = || node.outputs.iter().map(|&v| exact(v).map(Datum::from)).collect();
        let known: Option<Vec<Datum>> = if untouched { known() } else { None };
        let results = match known {
            Some(known) => Ok(known),
            None if symbols.is_empty() => node.op.eval(&Inputs(&operands)),
            None => {
                let bound = node.op.bind(&|s| symbols.get(s).map(|&v| Dim::from(v)));
                bound.eval(&Inputs(&operands))
            }
        };
        let results = results.map_err(|error| EvalError::Node {
            origin: node.origin.join(", "),
            op: node.op.kind().name(),
            error: Box::new(error),
        })?;
        for (&v, datum) in node.outputs.iter().zip(&results) {
            learn_sizes(&graph.fact(v).ty, datum, &mut symbols);
        }
        let points = node.op.work(&graph.facts(&node.inputs), &graph.output_facts(id));
        let first = operands.first().copied().flatten().and_then(|d| d.as_tensor());
        let hidden = first.map_or(0.0, |t| hidden_sum(&node.op, t));
        let variance = first.and_then(|t| variance_terms(&node.op, t));
        let terms = |v: ValueId| {
            let elements = element_count(graph, v).max(1);
            points.as_ref().map_or(1, |w| (w.points / elements).max(1))
        };
        let few = node.outputs.first().filter(|&&v| element_count(graph, v) < FEW as u64);
        let uncancelled = few.map_or(0.0, |&v| uncancelled(&node.op, &operands, terms(v)));
        for (&v, datum) in node.outputs.iter().zip(results) {
            let datum = match datum {
                Datum::Tensor(t) if t.dtype().is_float() && !is_exact(&node.op) => {
                    noisy.insert(v);
                    let terms = terms(v);
                    let divisor = divisor_terms(&node.op, &t).or(variance);
                    let own = divisor.map_or(1.0, |n| (1.0 + n / 2.0).sqrt());
                    let flat = logarithm_terms(&node.op, &t, terms)
                        .map_or(0.0, |n| t.dtype().epsilon() / 2.0 * (1.0 + n / 2.0).sqrt());
                    let flat = flat.max(hidden);
                    let sizes = Sizes { terms, share: extra(id), own, flat, uncancelled };
                    with_noise(&t, sizes, &mut rng).into()
                }
                other => {
                    if !untouched {
                        noisy.insert(v);
                    }
                    other
                }
            };
            contents.insert(v, datum);
        }
        for v in node.inputs.iter().flatten() {
            if let Some(n) = left.get_mut(v) {
                *n = n.saturating_sub(1);
                if *n == 0 {
                    contents.remove(v);
                }
            }
        }
    }
    let missing = |v: ValueId| EvalError::Input {
        name: graph.value(v).name.to_string(),
        expected: graph.fact(v).to_string(),
        got: "nothing".to_owned(),
    };
    graph.outputs.iter().map(|&v| contents.get(&v).cloned().ok_or_else(|| missing(v))).collect()
}

/// What a node takes a remainder by, of floats that are computed.
fn divisor(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let node = graph.node(id);
    let divisor = match node.op {
        Op::Binary(Binary::Mod | Binary::Fmod) => node.inputs.get(1).copied().flatten()?,
        _ => return None,
    };
    let is_float = graph.fact(divisor).ty.as_tensor().is_some_and(|t| t.dtype.is_float());
    (is_float && graph.producer(divisor).is_some()).then_some(divisor)
}

/// The contents without noise of what remainders are taken by.
fn divisors(
    graph: &Graph,
    inputs: &[Datum],
    exact: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Result<HashMap<ValueId, Tensor>, EvalError> {
    let wanted: HashSet<ValueId> = graph.nodes().filter_map(|id| divisor(graph, id)).collect();
    let mut found: HashMap<ValueId, Tensor> =
        wanted.iter().filter_map(|&v| Some((v, exact(v)?))).collect();
    if found.len() < wanted.len() {
        evaluate_from(graph, inputs, &HashMap::new(), &mut |v, datum| {
            if let Some(t) = datum.as_tensor().filter(|_| wanted.contains(&v)) {
                found.insert(v, t.clone());
            }
        })?;
    }
    Ok(found)
}

/// `noisy` with 0 for elements of which 0 is no further from `exact` than is allowed.
fn with_zeros(exact: &Tensor, noisy: &Tensor) -> Tensor {
    let near = Tolerance::from_floor(exact, noisy).max_abs;
    let pairs = exact.to_f64().into_iter().zip(noisy.to_f64());
    let values: Vec<f64> = pairs.map(|(e, n)| if e.abs() <= near { 0.0 } else { n }).collect();
    Tensor::from_f64(noisy.dtype(), noisy.dims(), &values)
}

/// The tensors with the error of one rounding of every float element: what no runtime can tell from the
/// tensors themselves. For graphs that cannot be evaluated here.
pub fn disturb(tensors: &[Tensor], seed: u64) -> Vec<Tensor> {
    let mut rng = Rng::new(seed);
    let one = |t: &Tensor| match t.dtype().is_float() {
        true => with_noise(t, Sizes::ROUNDED, &mut rng),
        false => t.clone(),
    };
    tensors.iter().map(one).collect()
}

fn element_count(graph: &Graph, value: ValueId) -> u64 {
    match &graph.fact(value).ty {
        Type::Tensor(t) => t.shape.element_count().unwrap_or(1),
        _ => 1,
    }
}

/// Whether all implementations give the same bits: there is at most one rounding, of one operand.
fn is_exact(op: &Op) -> bool {
    use Unary::{Abs, Ceil, Floor, Neg, Relu, Round, Sign};
    match op {
        Op::Unary(f) => matches!(f, Abs | Neg | Sign | Ceil | Floor | Round | Relu),
        Op::Binary(f) => matches!(f, Binary::Min | Binary::Max),
        Op::Reduce(r) => matches!(r.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Pool(p) => matches!(p.kind, PoolKind::Max { .. }),
        Op::Clip(_) | Op::Select(_) | Op::Cast(_) | Op::BitCast(_) => true,
        Op::Quantize(_) | Op::Dequantize(_) => true,
        Op::Reshape(_) | Op::Transpose(_) | Op::Expand(_) | Op::Tile(_) => true,
        Op::Concat(_) | Op::Split(_) | Op::Slice(_) | Op::Pad(_) | Op::Trilu(_) => true,
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) | Op::TopK(_) => true,
        Op::Compress(_) | Op::Unique(_) | Op::Sequence(_) | Op::Optional(_) => true,
        Op::Lookup(_) | Op::Random(_) | Op::Text(_) => true,
        Op::Dynamic(d) => d.op != Late::Range,
        Op::OneHot(_) | Op::DepthToSpace(_) | Op::SpaceToDepth(_) => true,
        _ => false,
    }
}

/// Whether an op begins with a difference of its first operand and something of like size: its rounding
/// is an error of the operand.
fn takes_difference(op: &Op) -> bool {
    matches!(op, Op::Softmax(_) | Op::LayerNorm(_) | Op::GroupNorm(_) | Op::BatchNorm(_))
}

/// Terms of the sums that an op takes with this operand in each of many steps, whose errors the next steps
/// carry on: they are those of as many roundings of the operand, whatever it is multiplied by.
fn sums_with(op: &Op, operand: usize, content: &Tensor) -> Option<f64> {
    match (op, operand) {
        // The weights of the input and of the state.
        (Op::Recurrent(_), 1 | 2) => content.dims().last().map(|&n| n as f64),
        _ => None,
    }
}

/// Terms of the sum that divides each element of a result, and whose error is therefore a share of it.
fn divisor_terms(op: &Op, result: &Tensor) -> Option<f64> {
    match op {
        Op::Softmax(s) if !s.log => result.dims().get(s.axis).map(|&n| n as f64),
        _ => None,
    }
}

/// Terms of a sum with the error that a variance may bring to each element of a result, as a share of it. ONNX
/// defines it as the mean of squares less the square of the mean: that difference takes over the error of
/// both, and its root half of that.
fn variance_terms(op: &Op, operand: &Tensor) -> Option<f64> {
    let dims = operand.dims();
    let size = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let (lane, epsilon) = match op {
        Op::LayerNorm(l) if l.rms => return Some(size(dims.get(l.axis..)?) as f64 / 4.0),
        Op::LayerNorm(l) => (size(dims.get(l.axis..)?), l.epsilon.get()),
        Op::GroupNorm(g) => (size(dims.get(1..)?) / g.groups.max(1) as usize, g.epsilon.get()),
        _ => return None,
    };
    let values = operand.to_f64();
    let times = |lane: &[f64]| {
        let n = lane.len() as f64;
        let mean = lane.iter().sum::<f64>() / n;
        let variance = lane.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let times = 1.0 + mean * mean / (variance + epsilon);
        if times.is_finite() { times } else { 1.0 }
    };
    let times = values.chunks(lane.max(1)).map(times).fold(1.0, f64::max);
    Some(lane as f64 * times * times / 4.0)
}

/// Terms of the sum whose logarithm a result is or has in it: a share of the sum is an absolute error of it.
fn logarithm_terms(op: &Op, result: &Tensor, terms: u64) -> Option<f64> {
    match op {
        Op::Softmax(s) if s.log => result.dims().get(s.axis).map(|&n| n as f64),
        Op::Reduce(r) if matches!(r.kind, ReduceKind::LogSum | ReduceKind::LogSumExp) => {
            Some(terms as f64)
        }
        _ => None,
    }
}

/// A function may be computed by a sum that nearly cancels: `1 + erf(x / sqrt(2))` or `exp(x) - 1`, or
/// `1/2 + tanh(x / 2) / 2` for a logistic one. The rounding of its terms, in `f32` for narrower types, is an
/// absolute error of the result, times the operand where that multiplies the sum.
fn hidden_sum(op: &Op, operand: &Tensor) -> f64 {
    let Op::Unary(function) = *op else { return 0.0 };
    let roundoff = operand.dtype().epsilon().min(DType::F32.epsilon()) / 2.0;
    // How far the operand goes below 0, up to where the sum is 0 in `f64` and in narrower types.
    let below = |in_f64: f64, in_f32: f64| {
        let least = operand.to_f64().into_iter().fold(0.0f64, f64::min);
        (-least).min(if operand.dtype() == DType::F64 { in_f64 } else { in_f32 })
    };
    let times = match function {
        Unary::Sigmoid => 0.5,
        Unary::Silu => below(37.0, 18.0) / 2.0,
        Unary::Gelu | Unary::GeluTanh => below(8.5, 6.0) / 2.0,
        Unary::Elu { alpha } | Unary::Celu { alpha } => alpha.get().abs(),
        Unary::Selu { alpha, gamma } => (alpha.get() * gamma.get()).abs(),
        _ => 0.0,
    };
    times * roundoff
}

/// The magnitude that sums of so many terms have where the terms are of random sign. Among many results some have it;
/// of a few each may be one whose terms cancel, and errs no less for that. 0 where the op is no such sum.
fn uncancelled(op: &Op, operands: &[Option<&Datum>], terms: u64) -> f64 {
    let rms = |i: usize| {
        let tensor = operands.get(i).copied().flatten().and_then(|d| d.as_tensor());
        let values = tensor.map(Tensor::to_f64).unwrap_or_default();
        let finite = || values.iter().filter(|v| v.is_finite());
        (finite().map(|v| v * v).sum::<f64>() / finite().count().max(1) as f64).sqrt()
    };
    let root = (terms as f64).sqrt();
    match op {
        Op::Reduce(reduce) => match reduce.kind {
            ReduceKind::Sum => rms(0) * root,
            ReduceKind::Mean => rms(0) / root,
            _ => 0.0,
        },
        Op::MatMul(_) | Op::Conv(_) => rms(0) * rms(1) * root,
        _ => 0.0,
    }
}

/// How large errors are.
#[derive(Clone, Copy)]
struct Sizes {
    /// Terms of the sum that each element is.
    terms: u64,
    /// A share of the largest magnitude.
    share: f64,
    /// Unit roundoffs of the element itself.
    own: f64,
    /// Absolute.
    flat: f64,
    /// Magnitude of sums whose terms do not cancel, where that is larger than the sums here.
    uncancelled: f64,
}

impl Sizes {
    /// Those of a rounded element.
    const ROUNDED: Sizes = Sizes { terms: 1, share: 0.0, own: 1.0, flat: 0.0, uncancelled: 0.0 };
}

/// How a type rounds.
#[derive(Clone, Copy)]
struct Unit {
    /// Half its distance at 1.
    roundoff: f64,
    /// Its smallest normal number; what is computed below that is 0 to many. 0 where it is not to any.
    least: f64,
}

/// The tensor with errors of these sizes.
fn with_noise(tensor: &Tensor, sizes: Sizes, rng: &mut Rng) -> Tensor {
    let (dtype, dims) = (tensor.dtype(), tensor.dims());
    let roundoff = dtype.epsilon() / 2.0;
    let least = match dtype {
        DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
        DType::F64 => f64::MIN_POSITIVE,
        _ => 0.0,
    };
    let unit = Unit { roundoff, least };
    if dtype == DType::F32 {
        let round = |v| v as f32;
        return Tensor::of(dims, &noisy(&tensor.elements::<f32>(), unit, sizes, round, rng));
    }
    let values = noisy(&tensor.to_f64(), unit, sizes, |v| v, rng);
    Tensor::from_f64(dtype, dims, &values)
}

fn noisy<T: Copy + Into<f64>>(
    values: &[T],
    Unit { roundoff, least }: Unit,
    Sizes { terms, share, own, flat, uncancelled }: Sizes,
    round: impl Fn(f64) -> T,
    rng: &mut Rng,
) -> Vec<T> {
    let finite = || values.iter().map(|&v| v.into()).filter(|v| v.is_finite());
    let squares: f64 = finite().map(|v| v * v).sum();
    let largest = finite().fold(0.0f64, |m, v| m.max(v.abs()));
    let rms = (squares / values.len().max(1) as f64).sqrt();
    let deep = match terms > 1 {
        true => roundoff * (terms as f64 / 2.0).sqrt() * rms.max(uncancelled),
        false => 0.0,
    };
    let wide = deep + share * largest / 4.0;
    // Independent errors, of sums and of the rounded result, have one variance together.
    let spread = |v: f64| (wide * wide + flat * flat + (own * roundoff * v).powi(2)).sqrt();
    let with_error = |&value: &T| {
        let v: f64 = value.into();
        match v.is_finite() {
            _ if v.abs() < least => round(0.0),
            true => round(v + spread(v) * rng.normal()),
            false => value,
        }
    };
    values.iter().map(with_error).collect()
}
