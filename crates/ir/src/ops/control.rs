//! Ops with graphs inside: a choice, loops, a scan, a map over a list.
//!
//! A graph inside an op is complete: what it reads from outside is an operand of the op and an input
//! of the graph.

use super::{
    OpDef,
    sequence::{item, list},
    types::{Operands, attribute, expect_axis, expect_dtype, expect_rank},
};
use crate::{
    AxisMap, EvalError, Fact, Graph, INLINE, Inputs, Role, TypeError, evaluate, graph::bind_type,
    parse, print,
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Storage, Symbol, Tensor, TensorType, Type};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, hash, sync::Arc};

/// Rounds that a loop may take before it counts as endless.
const MOST_ROUNDS: i64 = 1 << 24;

/// A graph inside an op. Its constants have at most [`INLINE`] elements: larger ones are operands of
/// the op. Two are equal when their text forms are.
#[derive(Clone)]
pub struct Nested {
    graph: Arc<Graph>,
    text: Arc<str>,
}

impl Nested {
    /// Most graphs inside each other.
    pub const MOST_DEPTH: usize = 8;

    /// Takes a graph, which must have no state.
    pub fn new(graph: Graph) -> Result<Nested, TypeError> {
        for value in graph.values() {
            let value = graph.value(value);
            match &value.role {
                Role::State(_) => return Err(attribute("graph", "no state", &value.name)),
                Role::Constant(t) if t.len() > INLINE => {
                    let expected = format!("constants of at most {INLINE} elements");
                    return Err(attribute("graph", expected, t.len()));
                }
                _ => {}
            }
        }
        let depth = 1 + depth(&graph);
        if depth > Nested::MOST_DEPTH {
            let expected = format!("at most {} graphs inside each other", Nested::MOST_DEPTH);
            return Err(attribute("graph", expected, depth));
        }
        let (text, _) = print(&graph);
        Ok(Nested { graph: Arc::new(graph), text: text.into() })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Nested {
        // What does not fit is told by the inference of the op.
        let bound = self.graph.bind(value).ok().and_then(|graph| Nested::new(graph).ok());
        bound.unwrap_or_else(|| self.clone())
    }

    fn run(&self, data: Vec<Datum>) -> Result<Vec<Datum>, EvalError> {
        evaluate(&self.graph, &data)
    }

    /// Types of the inputs.
    fn inputs(&self) -> impl ExactSizeIterator<Item = &Type> {
        self.graph.inputs.iter().map(|&v| &self.graph.fact(v).ty)
    }

    /// Types of the outputs.
    fn outputs(&self) -> impl ExactSizeIterator<Item = &Type> {
        self.graph.outputs.iter().map(|&v| &self.graph.fact(v).ty)
    }

    /// Fails unless the graph has `count` inputs and `results` outputs.
    fn expect_arity(&self, count: usize, results: usize) -> Result<(), TypeError> {
        if self.inputs().len() != count {
            let expected = format!("{count} inputs");
            return Err(attribute("graph", expected, self.inputs().len()));
        }
        if self.outputs().len() != results {
            let expected = format!("{results} outputs");
            return Err(attribute("graph", expected, self.outputs().len()));
        }
        Ok(())
    }
}

/// Most graphs inside each other in the nodes of `graph`.
fn depth(graph: &Graph) -> usize {
    let nested = graph.nodes().flat_map(|n| graph.node(n).op.nested());
    nested.map(|nested| 1 + depth(nested.graph())).max().unwrap_or(0)
}

impl PartialEq for Nested {
    fn eq(&self, other: &Nested) -> bool {
        self.text == other.text
    }
}

impl Eq for Nested {}

impl hash::Hash for Nested {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The lines of the text form.
impl Serialize for Nested {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.text.lines())
    }
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Nested, D::Error> {
        use serde::de::Error;
        let lines = Vec::<String>::deserialize(from)?;
        let graph = parse(&lines.join("\n"), &[]).map_err(D::Error::custom)?;
        Nested::new(graph).map_err(D::Error::custom)
    }
}

/// Fails unless operand `i` may be what the graph takes.
fn expect_type(i: usize, operand: Option<&Fact>, needed: &Type) -> Result<(), TypeError> {
    let got = operand.ok_or(TypeError::Missing { operand: i })?;
    if got.ty.meets(needed) {
        return Ok(());
    }
    Err(TypeError::Kind { operand: i, expected: needed.to_string(), got: got.ty.clone() })
}

/// Fails unless the graph's results may have the types that the op declares.
fn expect_results<'a>(
    given: impl IntoIterator<Item = &'a Type>,
    declared: impl IntoIterator<Item = &'a Type>,
) -> Result<(), TypeError> {
    for (given, declared) in given.into_iter().zip(declared) {
        if !given.meets(declared) {
            return Err(attribute("outputs", given.to_string(), declared.to_string()));
        }
    }
    Ok(())
}

/// Fails unless there is a result for every state.
fn expect_states(states: usize, results: usize) -> Result<(), TypeError> {
    if states <= results {
        return Ok(());
    }
    Err(attribute("states", format!("at most {results}, one a result"), states))
}

/// Fails unless the states after a round may be those before the next. Their sizes may differ from
/// round to round where they are no numbers.
fn expect_kept(after: &[&Type], before: &[&Type], states: usize) -> Result<(), TypeError> {
    for (after, before) in after.iter().zip(before).take(states) {
        if !after.enclosed().meets(&before.enclosed()) {
            return Err(attribute("body", format!("a state that stays {before}"), after));
        }
    }
    Ok(())
}

fn facts(types: &[Type]) -> Vec<Fact> {
    types.iter().cloned().map(Fact::from).collect()
}

fn bind_all(types: &[Type], value: &dyn Fn(&Symbol) -> Option<Dim>) -> Vec<Type> {
    types.iter().map(|t| bind_type(t, value)).collect()
}

/// Operand `i`, which must be there.
fn given(inputs: &Inputs<'_>, i: usize) -> Result<Datum, EvalError> {
    let datum = inputs.0.get(i).copied().flatten().cloned();
    datum.ok_or(EvalError::Type(TypeError::Missing { operand: i }))
}

/// The operands from `first` on.
fn given_from(inputs: &Inputs<'_>, first: usize) -> Result<Vec<Datum>, EvalError> {
    (first..inputs.len()).map(|i| given(inputs, i)).collect()
}

/// The one element of a tensor.
fn scalar(t: &Tensor, operand: usize) -> Result<i64, EvalError> {
    match t.to_i64()[..] {
        [value] => Ok(value),
        _ => Err(EvalError::Domain { operand, what: format!("{} elements, not one", t.len()) }),
    }
}

/// Fails unless operand `i` is absent or holds one element, as far as is known.
fn expect_scalar(operands: &Operands<'_>, i: usize) -> Result<(), TypeError> {
    if let Some(t) = operands.optional(i)? {
        expect_rank(i, t, 0, 1)?;
        if let Some(dim) = t.shape.first()
            && dim.as_const().is_some_and(|n| n != 1)
        {
            let (expected, got) = (Dim::from(1), dim.clone());
            return Err(TypeError::Dim { operand: i, dim: 0, expected, got });
        }
    }
    Ok(())
}

/// One of two graphs, as operand 0 says; all other operands go to the inputs of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct If {
    /// Taken where operand 0 is true.
    pub then: Nested,
    /// Taken otherwise.
    pub otherwise: Nested,
    /// Types of the results, which cover those of both graphs.
    pub outputs: Vec<Type>,
}

impl OpDef for If {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, usize::MAX)?;
        expect_dtype(0, operands.tensor(0)?.dtype, |d| d == DType::Bool, "bool")?;
        expect_scalar(&operands, 0)?;
        for graph in [&self.then, &self.otherwise] {
            graph.expect_arity(inputs.len() - 1, self.outputs.len())?;
            for (i, needed) in graph.inputs().enumerate() {
                expect_type(i + 1, inputs[i + 1], needed)?;
            }
            expect_results(graph.outputs(), &self.outputs)?;
        }
        Ok(facts(&self.outputs))
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let taken = scalar(inputs.tensor(0)?, 0)? != 0;
        let graph = if taken { &self.then } else { &self.otherwise };
        graph.run(given_from(inputs, 1)?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> If {
        If {
            then: self.then.bind(value),
            otherwise: self.otherwise.bind(value),
            outputs: bind_all(&self.outputs, value),
        }
    }
}

/// Repeats a graph while its condition holds.
///
/// Operands: the most rounds, an integer, and the condition of the first round, a `Bool`, which may
/// both be absent; the first content of the states; what every round reads. The graph is given the
/// number of the round, the condition, the states and the rest, and gives the condition of the next
/// round, the states after this one, and values that are collected. Results: the states after the last
/// round; the collected values, stacked along a new first dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loop {
    /// Number of states.
    pub states: usize,
    /// What a round does.
    pub body: Nested,
    /// Types of the results.
    pub outputs: Vec<Type>,
}

impl OpDef for Loop {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        expect_states(self.states, self.outputs.len())?;
        let operands = Operands::new(inputs, 2 + self.states, usize::MAX)?;
        if let Some(t) = operands.optional(0)? {
            expect_dtype(0, t.dtype, DType::is_int, "integer")?;
        }
        if let Some(t) = operands.optional(1)? {
            expect_dtype(1, t.dtype, |d| d == DType::Bool, "bool")?;
        }
        expect_scalar(&operands, 0)?;
        expect_scalar(&operands, 1)?;
        self.body.expect_arity(inputs.len(), 1 + self.outputs.len())?;
        let types: Vec<&Type> = self.body.inputs().collect();
        for (i, operand) in inputs.iter().enumerate().skip(2) {
            expect_type(i, *operand, types[i])?;
        }
        let results: Vec<&Type> = self.body.outputs().collect();
        expect_results(results[1..].iter().copied().take(self.states), &self.outputs)?;
        expect_kept(&results[1..], &types[2..], self.states)?;
        for (one, all) in results[1 + self.states..].iter().zip(&self.outputs[self.states..]) {
            let inner = without(all, 0).filter(|inner| one.meets(inner));
            inner.ok_or_else(|| attribute("outputs", format!("a stack of {one}"), all))?;
        }
        Ok(facts(&self.outputs))
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let most = match inputs.optional(0)? {
            Some(t) => scalar(t, 0)?,
            None => i64::MAX,
        };
        let mut go = match inputs.optional(1)? {
            Some(t) => scalar(t, 1)? != 0,
            None => true,
        };
        let mut states: Vec<Datum> =
            (0..self.states).map(|i| given(inputs, 2 + i)).collect::<Result<_, _>>()?;
        let rest = given_from(inputs, 2 + self.states)?;
        let mut collected = vec![Vec::new(); self.outputs.len() - self.states];
        let mut round = 0;
        while go && round < most {
            if round == MOST_ROUNDS {
                let what = format!("no end after {MOST_ROUNDS} rounds");
                return Err(EvalError::Domain { operand: 1, what });
            }
            let mut data: Vec<Datum> =
                vec![Tensor::of(&[], &[round]).into(), Tensor::of_bool(&[], &[go]).into()];
            data.append(&mut states);
            data.extend(rest.iter().cloned());
            let mut results = self.body.run(data)?.into_iter();
            let next = results.next();
            let next = next.as_ref().and_then(Datum::as_tensor);
            go =
                scalar(next.ok_or(EvalError::Operand { operand: 1, expected: "tensor" })?, 1)? != 0;
            states.extend(results.by_ref().take(self.states));
            collected.iter_mut().zip(results).for_each(|(all, one)| all.push(one));
            round += 1;
        }
        for (all, ty) in collected.iter().zip(&self.outputs[self.states..]) {
            states.push(stack(all, ty, Along::default())?);
        }
        Ok(states)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Loop {
        let outputs = bind_all(&self.outputs, value);
        Loop { states: self.states, body: self.body.bind(value), outputs }
    }
}

/// The dim along which a scan goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Along {
    /// The dim.
    pub axis: usize,
    /// From the end.
    pub reverse: bool,
}

/// Goes along a dim of some operands and carries states from position to position.
///
/// Operands: the first content of the states; the tensors to go along, all equally long; what every
/// position reads. The graph is given the states, the slices at the position without the dim, and the
/// rest, and gives the states after it and values that are collected. Results: the states after the
/// last position; the collected values, stacked along a new dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scan {
    /// Number of states.
    pub states: usize,
    /// How each tensor is gone along.
    pub scanned: Vec<Along>,
    /// How each collected value is stacked.
    pub collected: Vec<Along>,
    /// What a position does.
    pub body: Nested,
    /// Types of the results.
    pub outputs: Vec<Type>,
}

impl OpDef for Scan {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        expect_states(self.states, self.outputs.len())?;
        let (states, scanned) = (self.states, self.scanned.len());
        let operands = Operands::new(inputs, states + scanned.max(1), usize::MAX)?;
        self.body.expect_arity(inputs.len(), self.outputs.len())?;
        if self.outputs.len() != states + self.collected.len() {
            let expected = format!("{} types", states + self.collected.len());
            return Err(attribute("outputs", expected, self.outputs.len()));
        }
        let types: Vec<&Type> = self.body.inputs().collect();
        let mut length: Option<&Dim> = None;
        for (i, (operand, needed)) in inputs.iter().zip(&types).enumerate() {
            if !(states..states + scanned).contains(&i) {
                expect_type(i, *operand, needed)?;
                continue;
            }
            let (t, along) = (operands.tensor(i)?, self.scanned[i - states]);
            expect_axis(along.axis, t.shape.len())?;
            let size = &t.shape[along.axis];
            if let Some(length) = length
                && super::types::differ(length, size)
            {
                let (expected, got) = (length.clone(), size.clone());
                return Err(TypeError::Dim { operand: i, dim: along.axis, expected, got });
            }
            length = Some(size);
            let slice = without(&Type::Tensor(t.clone()), along.axis).map(Fact::from);
            expect_type(i, slice.as_ref(), needed)?;
        }
        let results: Vec<&Type> = self.body.outputs().collect();
        expect_results(results[..states].iter().copied(), &self.outputs)?;
        expect_kept(&results, &types, states)?;
        for ((one, all), along) in
            results[states..].iter().zip(&self.outputs[states..]).zip(&self.collected)
        {
            let inner = without(all, along.axis).filter(|inner| one.meets(inner));
            inner.ok_or_else(|| attribute("outputs", format!("a stack of {one}"), all))?;
        }
        Ok(facts(&self.outputs))
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let mut states: Vec<Datum> =
            (0..self.states).map(|i| given(inputs, i)).collect::<Result<_, _>>()?;
        let mut lines = Vec::new();
        for (i, along) in self.scanned.iter().enumerate() {
            lines.push(slices(inputs.tensor(self.states + i)?, *along)?);
        }
        let rest = given_from(inputs, self.states + lines.len())?;
        let length = lines.first().map_or(0, Vec::len);
        if let Some(other) = lines.iter().position(|line| line.len() != length) {
            let (operand, found) = (self.states + other, lines[other].len());
            let what = format!("{found} positions to go along, not {length}");
            return Err(EvalError::Domain { operand, what });
        }
        let mut collected = vec![Vec::new(); self.collected.len()];
        for position in 0..length {
            let mut data = std::mem::take(&mut states);
            data.extend(lines.iter().map(|line| Datum::from(line[position].clone())));
            data.extend(rest.iter().cloned());
            let mut results = self.body.run(data)?.into_iter();
            states.extend(results.by_ref().take(self.states));
            collected.iter_mut().zip(results).for_each(|(all, one)| all.push(one));
        }
        for ((mut all, ty), along) in
            collected.into_iter().zip(&self.outputs[self.states..]).zip(&self.collected)
        {
            if along.reverse {
                all.reverse();
            }
            states.push(stack(&all, ty, *along)?);
        }
        Ok(states)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Scan {
        let (body, outputs) = (self.body.bind(value), bind_all(&self.outputs, value));
        Scan { body, outputs, ..self.clone() }
    }
}

/// A graph for every element of operand 0, a list.
///
/// The other operands are lists of the same length, of which each element goes with one of the first,
/// or values that every element reads. Results: one list per output of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SequenceMap {
    /// For each operand after the first, whether it is gone through.
    pub zipped: Vec<bool>,
    /// What is done with one element.
    pub body: Nested,
}

impl SequenceMap {
    fn zips(&self, operand: usize) -> bool {
        operand == 0 || self.zipped.get(operand - 1) == Some(&true)
    }
}

impl OpDef for SequenceMap {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        Operands::new(inputs, 1 + self.zipped.len(), 1 + self.zipped.len())?;
        self.body.expect_arity(inputs.len(), self.body.outputs().len())?;
        for (i, needed) in self.body.inputs().enumerate() {
            if self.zips(i) {
                let element = Fact::from(item(inputs, i)?.clone());
                expect_type(i, Some(&element), needed)?;
            } else {
                expect_type(i, inputs[i], needed)?;
            }
        }
        let list = |t: &Type| Fact::from(Type::Sequence(Box::new(t.enclosed())));
        Ok(self.body.outputs().map(list).collect())
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let length = list(inputs, 0)?.len();
        let mut results = vec![Vec::new(); self.body.outputs().len()];
        for at in 0..length {
            let mut data = Vec::new();
            for i in 0..inputs.len() {
                if !self.zips(i) {
                    data.push(given(inputs, i)?);
                    continue;
                }
                let all = list(inputs, i)?;
                let what = || format!("{} elements, not {length}", all.len());
                let one = all.get(at).filter(|_| all.len() == length).cloned();
                data.push(one.ok_or_else(|| EvalError::Domain { operand: i, what: what() })?);
            }
            let given = self.body.run(data)?;
            results.iter_mut().zip(given).for_each(|(all, one)| all.push(one));
        }
        Ok(results.into_iter().map(Datum::Sequence).collect())
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> SequenceMap {
        SequenceMap { zipped: self.zipped.clone(), body: self.body.bind(value) }
    }
}

/// The type of a slice; `None` where there is no such dim.
fn without(ty: &Type, axis: usize) -> Option<Type> {
    let Type::Tensor(t) = ty else { return None };
    let mut shape = t.shape.clone();
    if axis >= shape.len() {
        return None;
    }
    shape.remove(axis);
    Some(Type::Tensor(TensorType { dtype: t.dtype, shape }))
}

/// The tensor at every position of a dim, without the dim.
fn slices(t: &Tensor, along: Along) -> Result<Vec<Tensor>, EvalError> {
    let dims = t.dims();
    expect_axis(along.axis, dims.len())?;
    let mut kept = dims.to_vec();
    let length = kept.remove(along.axis) as usize;
    let inner = dims[along.axis + 1..].iter().product::<i64>() as usize;
    let outer = dims[..along.axis].iter().product::<i64>() as usize;
    let line = |at: usize| {
        super::elements::pick(t, &kept, |out| {
            for o in 0..outer {
                let base = (o * length + at) * inner;
                (base..base + inner).for_each(&mut *out);
            }
        })
    };
    let order: Vec<usize> =
        if along.reverse { (0..length).rev().collect() } else { (0..length).collect() };
    order.into_iter().map(line).collect()
}

/// Equal tensors joined along a new dim; of none, the empty tensor of this type.
fn stack(all: &[Datum], ty: &Type, along: Along) -> Result<Datum, EvalError> {
    let expected = "tensor";
    let Type::Tensor(ty) = ty else { return Err(EvalError::Operand { operand: 0, expected }) };
    let mut tensors = Vec::with_capacity(all.len());
    for datum in all {
        let t = datum.as_tensor().ok_or(EvalError::Operand { operand: 0, expected })?;
        tensors.push(t);
    }
    let mut dims = match tensors.first() {
        Some(t) => t.dims().to_vec(),
        None => {
            let mut shape: Shape = ty.shape.clone();
            shape.remove(along.axis);
            // Of no round it is not known how large its values would be.
            shape.iter().map(|d| d.as_const().unwrap_or(0)).collect()
        }
    };
    if let Some(other) = tensors.iter().find(|t| t.dims() != dims || t.dtype() != ty.dtype) {
        let what = format!("values of {} and {dims:?} to stack", other.ty());
        return Err(EvalError::Domain { operand: 0, what });
    }
    let outer = dims.get(..along.axis).unwrap_or_default().iter().product::<i64>() as usize;
    dims.insert(along.axis.min(dims.len()), tensors.len() as i64);
    let total = Tensor::zeros(ty.dtype, &dims)?.bytes().len();
    let run = total / (outer * tensors.len()).max(1);
    let storage = Storage::build(total, |to| {
        for (i, t) in tensors.iter().enumerate() {
            for o in 0..outer {
                let at = (o * tensors.len() + i) * run;
                to[at..at + run].copy_from_slice(&t.bytes()[o * run..][..run]);
            }
        }
    });
    Ok(Tensor::new(ty.dtype, &dims, storage)?.into())
}
