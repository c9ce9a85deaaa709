//! The noise floor: what rounding alone may do to the results of a graph.
//!
//! The graph is evaluated once more with a random error added to every value, as large as a plain
//! computation in the element type would make. A sum of `k` terms kept in a type with unit
//! roundoff `u` errs by about `u sqrt(k / 2)` of its magnitude: the partial sums of terms of random
//! sign grow with the square root of their number, and each addition rounds once (Higham and Mary,
//! *A new approach to probabilistic rounding error analysis*, 2019). Whatever the rest of the graph
//! does to these errors, it does to the injected ones. Each moves its value to the next number at least, which
//! is the least by which two results can differ: of errors half as far most would be rounded away, and where few
//! elements make the result, nothing would be left of them.
//!
//! Ops that work in several steps get the errors of the steps: a difference taken first disturbs the operand, a
//! sum that divides the result disturbs the result, by a share of it or, where its logarithm is taken, by as much
//! as that share is, and a sum that nearly cancels inside a function disturbs it by the rounding of the sum's
//! terms. Sums of products whose results go into the next ones, as in recurrent layers, disturb the weights, and so
//! does what puts the parameters of a batch norm together first. What reads between elements does so at places
//! that are computed in single precision. A product of which a part may pass the range of the
//! type is no number by some orders of its factors. Ops
//! that every implementation computes alike, such as a choice, a move or a conversion, add nothing: a 0 that they
//! pass on stays 0, however large its factor. A remainder by 0 is no number, while one by what is next to 0 is
//! next to 0 too, and so it is with what is divided by itself: a divisor that rounding may make 0 is taken for 0,
//! after which nothing is asked. The
//! magnitude of sums is that of all results of an op, or, where these are few, that of sums of such terms which do
//! not cancel; sums of terms of one sign have their own each.

mod of_ops;

use crate::{
    EvalError, Graph, Inputs, NodeId, Op, Role, Tolerance, ValueId,
    evaluate::{evaluate_from, learn_sizes, solve_symbols},
    ops::Binary,
};
use bricolage_tensor::{DType, Datum, Dim, Rng, Tensor, Type};
use of_ops::{
    divisor_terms, errors_of, hidden_sum, is_exact, logarithm_terms, moves_places, passing_range,
    running_terms, sums_of_one_sign, takes_difference, uncancelled, variance_terms,
};
use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
};

/// An output of fewer elements that are not 0 may by chance meet next to no noise, which is mostly in shares of
/// them: [`tolerances`] draws several times.
const FEW: usize = 64;
/// So does one element that what follows makes much of, such as the divisor next to 0, and a draw that it meets
/// nothing in does not tell: graphs whose ops have together no more points than this are drawn as often.
const CHEAP: u64 = 1 << 22;
const DRAWS: u64 = 4;
/// Where no more than about so many elements have most of the error of one draw, it draws once more.
const CONCENTRATED: f64 = 8.0;

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
    // Whether an integer is another one is a matter of luck as well.
    let few = reference.iter().flatten().any(|t| !t.dtype().is_float() || has_few(t));
    let often = few || points(graph).is_some_and(|n| n <= CHEAP);
    let mut all = vec![Tolerance::EXACT; reference.len()];
    let mut draws = if often { DRAWS } else { 1 };
    let mut draw = 0;
    while draw < draws {
        let noisy = evaluate_noisy_from(graph, inputs, exact, extra, seed.wrapping_add(draw))?;
        for ((allowed, reference), noisy) in all.iter_mut().zip(reference).zip(&noisy) {
            if let (Some(reference), Some(noisy)) = (reference, noisy.as_tensor()) {
                *allowed = allowed.max(Tolerance::from_floor(reference, noisy));
                if reference.dtype().is_float() && erring(reference, noisy) < CONCENTRATED {
                    draws = draws.max(2);
                }
            }
        }
        draw += 1;
    }
    Ok(all)
}

/// About how many elements have most of the error: the square of the sum of its squares over the sum of its fourth
/// powers, the participation ratio. Infinite where there is no error.
fn erring(reference: &Tensor, noisy: &Tensor) -> f64 {
    let (mut second, mut fourth) = (0.0f64, 0.0f64);
    let mut add = |a: f64, b: f64| {
        let square = if a.is_finite() && b.is_finite() { (a - b) * (a - b) } else { 0.0 };
        second += square;
        fourth += square * square;
    };
    match (reference.dtype(), noisy.dtype()) {
        (DType::F32, DType::F32) => {
            let (a, b) = (reference.elements::<f32>(), noisy.elements::<f32>());
            a.iter().zip(&*b).for_each(|(&a, &b)| add(f64::from(a), f64::from(b)));
        }
        _ => reference.to_f64().into_iter().zip(noisy.to_f64()).for_each(|(a, b)| add(a, b)),
    }
    // Squares of small numbers may be 0.
    if fourth > 0.0 { second * second / fourth } else { f64::INFINITY }
}

/// Points of all ops together; `None` where some have none that are known.
fn points(graph: &Graph) -> Option<u64> {
    let of = |id| {
        let node = graph.node(id);
        Some(node.op.work(&graph.facts(&node.inputs), &graph.output_facts(id))?.points)
    };
    graph.nodes().try_fold(0u64, |sum, id| sum.checked_add(of(id)?))
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
    let divisors = Divisors { graph, inputs, exact, found: OnceCell::new() };
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
                && let Some(with_zeros) = divisors.with_zeros(&node.op, v, t)?
            {
                disturbed.push((i, with_zeros.into()));
                continue;
            }
            let sizes = match (takes_difference(&node.op), errors_of(&node.op, i, t)) {
                _ if !t.dtype().is_float() => continue,
                (true, _) if i == 0 && untouched => Sizes::ROUNDED,
                (_, Some(sizes)) => sizes,
                _ => continue,
            };
            disturbed.push((i, with_noise(t, sizes, &mut rng).into()));
        }
        for (i, datum) in &disturbed {
            operands[*i] = Some(datum);
            untouched = false;
        }
        untouched &= !moves_places(&node.op);
        let known = || node.outputs.iter().map(|&v| exact(v).map(Datum::from)).collect();
        let known: Option<Vec<Datum>> = if untouched { known() } else { None };
        let results = match known {
            Some(known) => Ok(known),
            None if symbols.is_empty() => of_ops::eval(&node.op, &Inputs(&operands), &mut rng),
            None => {
                let bound = node.op.bind(&|s| symbols.get(s).map(|&v| Dim::from(v)));
                of_ops::eval(&bound, &Inputs(&operands), &mut rng)
            }
        };
        let results = results.and_then(|results| passing_range(&node.op, &operands, results));
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
        let of_one_sign = sums_of_one_sign(&node.op, &operands);
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
                    let terms = running_terms(&node.op, &t).unwrap_or_else(|| terms(v));
                    let divisor = divisor_terms(&node.op, &t).or(variance);
                    let (deep, divisor) = match of_one_sign && terms > 1 {
                        true => (1, Some(terms as f64)),
                        false => (terms, divisor),
                    };
                    let own = divisor.map_or(1.0, |n| (1.0 + n / 2.0).sqrt());
                    let flat = logarithm_terms(&node.op, &t, terms)
                        .map_or(0.0, |n| t.dtype().epsilon() / 2.0 * (1.0 + n / 2.0).sqrt());
                    let flat = flat.max(hidden);
                    let sizes = Sizes { terms: deep, share: extra(id), own, flat, uncancelled };
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

/// What a node divides by, or takes a remainder by, of floats that are computed.
fn divisor(graph: &Graph, id: NodeId) -> Option<ValueId> {
    let node = graph.node(id);
    let divisor = match node.op {
        Op::Binary(Binary::Mod | Binary::Fmod | Binary::Div) => {
            node.inputs.get(1).copied().flatten()?
        }
        _ => return None,
    };
    let is_float = graph.fact(divisor).ty.as_tensor().is_some_and(|t| t.dtype.is_float());
    (is_float && graph.producer(divisor).is_some()).then_some(divisor)
}

/// Divisors are looked at only where one is below so many roundings of the largest, for finding them without noise
/// may take another evaluation: where all of them cancel alike, none is taken for 0.
const FAR_FROM_ZERO: f64 = 1024.0;

/// The contents without noise of what is divided by, which are found when they are first asked for.
struct Divisors<'a> {
    graph: &'a Graph,
    inputs: &'a [Datum],
    exact: &'a dyn Fn(ValueId) -> Option<Tensor>,
    found: OnceCell<HashMap<ValueId, Tensor>>,
}

impl Divisors<'_> {
    /// `noisy`, which is `value`, with 0 for elements that rounding may make 0: of a remainder those of which 0 is no
    /// further from what is right than is allowed, of a quotient those of which that is so by themselves. `None`
    /// where there are none.
    fn with_zeros(
        &self,
        op: &Op,
        value: ValueId,
        noisy: &Tensor,
    ) -> Result<Option<Tensor>, EvalError> {
        let is_quotient = matches!(op, Op::Binary(Binary::Div));
        let values = noisy.to_f64();
        let largest =
            values.iter().fold(0.0f64, |m, v| if v.is_finite() { m.max(v.abs()) } else { m });
        let near = FAR_FROM_ZERO * noisy.dtype().epsilon() * largest;
        if is_quotient && values.iter().all(|v| v.abs() > near) {
            return Ok(None);
        }
        let Some(exact) = self.all()?.get(&value) else { return Ok(None) };
        let allowed = Tolerance::from_floor(exact, noisy).max_abs;
        let may_be_zero = |e: f64, n: f64| match is_quotient {
            true => e.abs() <= crate::tolerance::FLOORS * (e - n).abs(),
            false => e.abs() <= allowed,
        };
        let pairs = exact.to_f64().into_iter().zip(values);
        let values: Vec<f64> =
            pairs.map(|(e, n)| if may_be_zero(e, n) { 0.0 } else { n }).collect();
        Ok(Some(Tensor::from_f64(noisy.dtype(), noisy.dims(), &values)))
    }

    fn all(&self) -> Result<&HashMap<ValueId, Tensor>, EvalError> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let graph = self.graph;
        let wanted: HashSet<ValueId> = graph.nodes().filter_map(|id| divisor(graph, id)).collect();
        let mut found: HashMap<ValueId, Tensor> =
            wanted.iter().filter_map(|&v| Some((v, (self.exact)(v)?))).collect();
        if found.len() < wanted.len() {
            evaluate_from(graph, self.inputs, &HashMap::new(), &mut |v, datum| {
                if let Some(t) = datum.as_tensor().filter(|_| wanted.contains(&v)) {
                    found.insert(v, t.clone());
                }
            })?;
        }
        Ok(self.found.get_or_init(|| found))
    }
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
            // Within its absolute error it may be 0, which some of what follows asks.
            _ if v.abs() < least.max(flat) => round(0.0),
            true => {
                let error = spread(v) * rng.normal();
                round(v + error.abs().max(2.0 * roundoff * v.abs()).copysign(error))
            }
            false => value,
        }
    };
    values.iter().map(with_error).collect()
}
