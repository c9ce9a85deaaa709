//! Nodes with graphs inside. What such a graph reads from outside becomes an operand of the node.

use super::{
    Importer,
    at::Fault,
    malformed_node,
    order::{self, Definitions},
};
use crate::{
    ImportError, UnsupportedNode,
    error::full_name,
    proto::{GraphProto, NodeProto, TypeProto},
};
use bricolage_ir::{
    Graph, INLINE, Op, TypeError, ValueId,
    ops::{Along, If, Loop, Nested, Reshape, Scan, SequenceMap, Unary},
    origin,
};
use bricolage_tensor::{DType, Dim, Shape, Symbol, Tensor, TensorType, Type};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Attempts to find types that the states of a loop keep.
const MOST_ATTEMPTS: usize = 16;

/// What names mean around the graph under import.
pub(super) struct Scope<'m> {
    graph: Graph,
    definitions: Definitions<'m>,
    values: HashMap<&'m str, Option<ValueId>>,
    declared: HashMap<&'m str, &'m TypeProto>,
    small: HashMap<ValueId, Tensor>,
    next: u32,
    captured: Vec<ValueId>,
}

/// A graph inside a node, and the values around it that its last inputs stand for.
struct Inside {
    graph: Graph,
    captured: Vec<ValueId>,
}

/// An import that stops at a node, or at the whole model.
enum Stop {
    /// Something that the graph reads is on the list of unsupported nodes already.
    GivenUp,
    /// The other branch of a choice does not fit the sizes of the inputs.
    Only(&'static str, ImportError),
    Fault(Fault),
    Error(ImportError),
}

impl From<ImportError> for Stop {
    fn from(error: ImportError) -> Stop {
        Stop::Error(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<TypeError> for Stop {
    fn from(error: TypeError) -> Stop {
        Stop::Fault(Fault::Type(error))
    }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Fault(Fault::Malformed(what.into())))
}

fn tensor(dtype: DType) -> Type {
    TensorType::fixed(dtype, &[]).into()
}

fn symbols_of(ty: &Type, all: &mut HashSet<Symbol>) {
    let shape = match ty {
        Type::Tensor(t) => &t.shape,
        Type::Strings(shape) => shape,
        _ => return,
    };
    let mut list = Vec::new();
    shape.iter().for_each(|d| d.symbols(&mut list));
    all.extend(list);
}

impl<'m> Importer<'m> {
    /// Whether the name is defined here or around.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.values.contains_key(name) || self.outer.iter().any(|s| s.values.contains_key(name))
    }

    /// What a name means. A value from around becomes an input of every graph on the way, or a
    /// constant where its content is known and small.
    pub(super) fn find(&mut self, name: &'m str) -> Option<Option<ValueId>> {
        if let Some(value) = self.values.get(name) {
            return Some(*value);
        }
        let from = self.outer.iter().rposition(|s| s.values.contains_key(name))?;
        let Some(mut value) = self.outer[from].values[name] else { return Some(None) };
        for depth in from + 1..=self.outer.len() {
            let around = &self.outer[depth - 1];
            let content = around.graph.constant_of(value).or_else(|| around.small.get(&value));
            let content = content.filter(|t| t.len() <= INLINE).cloned();
            let (ty, label) =
                (around.graph.fact(value).ty.clone(), around.graph.value(value).name.clone());
            let (graph, captured) = match self.outer.get_mut(depth) {
                Some(scope) => (&mut scope.graph, &mut scope.captured),
                None => (&mut self.graph, &mut self.captured),
            };
            value = match content {
                Some(t) => graph.constant(&label, t),
                None => {
                    captured.push(value);
                    graph.input(&label, ty)
                }
            };
        }
        self.values.insert(name, Some(value));
        Some(Some(value))
    }

    fn enter(&mut self, proto: &'m GraphProto) -> Result<(), ImportError> {
        // What can fail comes before anything is exchanged.
        let definitions = Definitions::new(proto)?;
        let mut graph = Graph::new(proto.name());
        graph.ranges = self.graph.ranges.clone();
        let declared = proto.value_info.iter().chain(&proto.output);
        let declared = declared.filter_map(|info| Some((info.name(), info.r#type.as_ref()?)));
        self.outer.push(Scope {
            graph: std::mem::replace(&mut self.graph, graph),
            definitions: std::mem::replace(&mut self.definitions, definitions),
            values: std::mem::take(&mut self.values),
            declared: std::mem::replace(&mut self.declared, declared.collect()),
            small: std::mem::take(&mut self.small),
            next: std::mem::take(&mut self.next),
            captured: std::mem::take(&mut self.captured),
        });
        Ok(())
    }

    fn leave(&mut self) -> Inside {
        let scope = self.outer.pop().expect("every graph is left that was entered");
        self.definitions = scope.definitions;
        self.values = scope.values;
        self.declared = scope.declared;
        self.small = scope.small;
        self.next = scope.next;
        Inside {
            graph: std::mem::replace(&mut self.graph, scope.graph),
            captured: std::mem::replace(&mut self.captured, scope.captured),
        }
    }

    /// Imports a graph inside a node, for inputs of these types. Its large constants move out.
    fn inside(&mut self, proto: &'m GraphProto, inputs: &[Type]) -> Result<Inside, Stop> {
        if self.outer.len() >= Nested::MOST_DEPTH {
            let most = Nested::MOST_DEPTH;
            return malformed(format!("needs at most {most} graphs inside each other, found more"));
        }
        if proto.input.len() != inputs.len() {
            let (needed, found) = (inputs.len(), proto.input.len());
            return malformed(format!("needs a graph of {needed} inputs, found {found}"));
        }
        self.enter(proto)?;
        let done = self.fill(proto, inputs);
        let mut inside = self.leave();
        done?;
        let (graph, lifted) = inside.graph.lift(INLINE)?;
        inside.graph = graph;
        for (name, t) in lifted {
            inside.captured.push(self.graph.constant(&name, t));
        }
        Ok(inside)
    }

    fn fill(&mut self, proto: &'m GraphProto, inputs: &[Type]) -> Result<(), Stop> {
        for (info, ty) in proto.input.iter().zip(inputs) {
            let value = self.graph.input(info.name(), ty.clone());
            self.values.insert(info.name(), Some(value));
        }
        self.constants(proto)?;
        let order = {
            let knows = |name: &str| self.knows(name);
            self.definitions.order(proto, &knows)?
        };
        for node in order {
            self.node(node)?;
        }
        let mut outputs = Vec::new();
        for output in &proto.output {
            match self.find(output.name()) {
                // An output is listed once.
                Some(Some(value)) if outputs.contains(&value) => {
                    let names = [Arc::from(output.name())];
                    let copy = self.graph.add_named(
                        Unary::Identity,
                        &[value],
                        origin(output.name()),
                        &names,
                    )?;
                    outputs.push(copy[0]);
                }
                Some(Some(value)) => outputs.push(value),
                Some(None) => return Err(Stop::GivenUp),
                None => {
                    let reader = format!("the list of outputs of graph `{}`", proto.name());
                    let value = output.name().to_owned();
                    return Err(ImportError::UnknownValue { reader, value }.into());
                }
            }
        }
        self.graph.outputs = outputs;
        self.graph.remove_dead();
        super::dynamic::order_sizes(&mut self.graph);
        Ok(())
    }

    /// Imports a node with graphs inside.
    pub(super) fn control(&mut self, node: &'m NodeProto, opset: i64) -> Result<(), ImportError> {
        if node.op_type() == "If" && self.branch(node)? {
            return Ok(());
        }
        let name = order::node_name(node);
        let mut operands = Vec::new();
        for input in &node.input {
            match self.find(input) {
                Some(None) => return self.give_up(node),
                Some(value) => operands.push(value),
                None => operands.push(None),
            }
        }
        let before = self.graph.values().last().map_or(0, |v| v.0 + 1);
        let made = match node.op_type() {
            "If" => self.choice(node, &operands),
            "Loop" => self.repeat(node, &operands),
            "Scan" if opset < 9 => self.old_scan(node, &operands),
            "Scan" => self.scan(node, &operands),
            _ => self.map(node, &operands),
        };
        let added = made.and_then(|(op, operands)| {
            let names: Vec<Arc<str>> = node.output.iter().map(|n| Arc::from(n.as_str())).collect();
            Ok(self.graph.add_named(op, &operands, origin(name), &names)?)
        });
        let unsupported = |reason| UnsupportedNode {
            name: name.to_owned(),
            op: node.op_type().to_owned(),
            domain: String::new(),
            opset,
            reason,
        };
        match added {
            Ok(outputs) => self.define(node, &outputs, before),
            Err(Stop::GivenUp) => self.give_up(node),
            Err(Stop::Only(branch, why)) => {
                let warning =
                    format!("node `{name}` always takes `{branch}` for these sizes: {why}");
                self.warnings.push(warning);
                self.take(node, branch).map(|_| ())
            }
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Fault(Fault::Malformed(what))) => Err(malformed_node(node, what)),
            Err(Stop::Fault(Fault::Unsupported(reason))) => {
                self.unsupported.push(unsupported(reason));
                self.give_up(node)
            }
            Err(Stop::Fault(Fault::Tensor(fault))) => {
                Err(ImportError::Tensor { name: name.to_owned(), fault })
            }
            Err(Stop::Fault(Fault::Type(error))) => {
                let operands = self.describe(node, &operands);
                let (node, op) = (name.to_owned(), full_name("", node.op_type()));
                Err(ImportError::Node { node, op, error: Box::new(error), operands })
            }
        }
    }

    /// The type of operand `i`.
    fn operand(&self, operands: &[Option<ValueId>], i: usize) -> Result<Type, Stop> {
        let value = operands.get(i).copied().flatten();
        let value = value.ok_or(TypeError::Missing { operand: i })?;
        Ok(self.graph.fact(value).ty.clone())
    }

    /// Known content of an operand of one element.
    fn known(&self, value: Option<ValueId>) -> Option<i64> {
        let value = value?;
        let t = self.graph.constant_of(value).or_else(|| self.small.get(&value))?;
        match t.to_i64()[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    fn choice(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<ValueId>],
    ) -> Result<(Op, Vec<Option<ValueId>>), Stop> {
        let condition = operands.first().copied().flatten();
        let mut condition = condition.ok_or(TypeError::Missing { operand: 0 })?;
        // Any tensor of one element is a condition.
        if let Type::Tensor(t) = &self.graph.fact(condition).ty
            && t.shape.len() > 1
            && t.shape.element_count() == Some(1)
        {
            let flat = Reshape { to: Shape(Vec::new()) };
            condition = self.graph.add(flat, &[condition], origin(order::node_name(node)))?[0];
        }
        let then = self.inside(graph_of(node, "then_branch")?, &[]);
        let otherwise = self.inside(graph_of(node, "else_branch")?, &[]);
        let (mut then, mut otherwise) = match (then, otherwise) {
            (Ok(then), Ok(otherwise)) => (then, otherwise),
            (Ok(_), Err(Stop::Error(why))) if self.sized && is_misfit(&why) => {
                return Err(Stop::Only("then_branch", why));
            }
            (Err(Stop::Error(why)), Ok(_)) if self.sized && is_misfit(&why) => {
                return Err(Stop::Only("else_branch", why));
            }
            (Err(stop), _) | (_, Err(stop)) => return Err(stop),
        };
        let mut all = then.captured.clone();
        all.extend(otherwise.captured.iter().filter(|v| !then.captured.contains(v)));
        for inside in [&mut then, &mut otherwise] {
            let mut inputs = Vec::new();
            for &value in &all {
                let at = inside.captured.iter().position(|&v| v == value);
                inputs.push(match at {
                    Some(at) => inside.graph.inputs[at],
                    None => {
                        let outside = self.graph.value(value);
                        inside.graph.input(&outside.name, outside.fact.ty.clone())
                    }
                });
            }
            inside.graph.inputs = inputs;
        }
        let (a, b) = (&then.graph, &otherwise.graph);
        if a.outputs.len() != b.outputs.len() {
            let (one, other) = (a.outputs.len(), b.outputs.len());
            return malformed(format!(
                "needs branches of as many outputs, found {one} and {other}"
            ));
        }
        let mut outside = HashSet::new();
        all.iter().for_each(|&v| symbols_of(&self.graph.fact(v).ty, &mut outside));
        let own = |dim: &Dim| {
            let mut used = Vec::new();
            dim.symbols(&mut used);
            used.iter().any(|s| !outside.contains(s))
        };
        let mut outputs = Vec::new();
        for (i, (&x, &y)) in a.outputs.iter().zip(&b.outputs).enumerate() {
            let (x, y) = (&a.fact(x).ty, &b.fact(y).ty);
            let name = node.output.get(i).map_or("branch", String::as_str);
            let Some(ty) = self.symbols.cover(name, x, y, &own) else {
                return malformed(format!("needs one kind of output {i}, found {x} and {y}"));
            };
            outputs.push(ty);
        }
        let op = If {
            then: Nested::new(then.graph)?,
            otherwise: Nested::new(otherwise.graph)?,
            outputs,
        };
        let all = std::iter::once(condition).chain(all).map(Some);
        Ok((op.into(), all.collect()))
    }

    /// Imports a body until its states keep their types; `fixed` are those of the inputs before and
    /// after the states. Gives the body, the types of its states, and sizes that mean nothing outside.
    fn settle(
        &mut self,
        body: &'m GraphProto,
        before: &[Type],
        mut states: Vec<Type>,
        after: &[Type],
        skipped: usize,
    ) -> Result<(Inside, Vec<Type>, HashSet<Symbol>), Stop> {
        let mut local: HashSet<Symbol> = HashSet::new();
        for _ in 0..MOST_ATTEMPTS {
            let mut types = before.to_vec();
            types.extend(states.iter().cloned());
            types.extend(after.iter().cloned());
            let inside = self.inside(body, &types)?;
            if inside.graph.outputs.len() < skipped + states.len() {
                let (needed, found) = (skipped + states.len(), inside.graph.outputs.len());
                let what = format!("needs a graph of at least {needed} outputs, found {found}");
                return malformed(what);
            }
            let mut changed = false;
            for (i, state) in states.iter_mut().enumerate() {
                let result = &inside.graph.fact(inside.graph.outputs[skipped + i]).ty;
                let is_local = |d: &Dim| d.as_symbol().is_some_and(|s| local.contains(s));
                let general = match (&*state, result) {
                    (Type::Tensor(a), Type::Tensor(b))
                        if a.dtype == b.dtype && a.shape.len() == b.shape.len() =>
                    {
                        let mut shape = a.shape.clone();
                        for (d, dim) in shape.iter_mut().enumerate() {
                            if *dim != b.shape[d] && !is_local(dim) {
                                *dim = self.symbols.fresh(&format!("state{i}_d{d}"));
                            }
                        }
                        Some(Type::Tensor(TensorType { dtype: a.dtype, shape }))
                    }
                    (a, b) => a.join(b),
                };
                let Some(general) = general else {
                    return malformed(format!("needs state {i} to stay {state}, found {result}"));
                };
                if general != *state {
                    changed = true;
                    if let (Type::Tensor(old), Type::Tensor(new)) = (&*state, &general) {
                        let fresh = new.shape.iter().zip(old.shape.iter());
                        let fresh =
                            fresh.filter(|(a, b)| a != b).filter_map(|(a, _)| a.as_symbol());
                        local.extend(fresh.cloned());
                    }
                    *state = general;
                }
            }
            if !changed {
                return Ok((inside, states, local));
            }
        }
        Err(Fault::Unsupported(format!(
            "needs states of types that are found in {MOST_ATTEMPTS} attempts"
        ))
        .into())
    }

    /// The type of a state after the last round, seen from outside.
    fn final_state(&mut self, base: &str, first: &Type, state: &Type, last: &Type) -> Type {
        match (first, state) {
            (Type::Tensor(_), Type::Tensor(_)) | (Type::Strings(_), Type::Strings(_)) => {
                let covered = self.symbols.cover(base, first, state, &|_| false);
                covered.unwrap_or_else(|| state.clone())
            }
            // A body that always gives a value takes one that may be absent.
            (Type::Optional(_), Type::Optional(_)) if !matches!(last, Type::Optional(_)) => {
                last.enclosed()
            }
            _ => state.clone(),
        }
    }

    /// The type of values of one round stacked along `axis`.
    fn stacked(
        &mut self,
        base: &str,
        one: &Type,
        count: Dim,
        axis: i64,
        own: &dyn Fn(&Dim) -> bool,
    ) -> Result<(Type, usize), Stop> {
        let Type::Tensor(t) = one else {
            let why = format!("collects values of type {one}, not tensors of known rank");
            return Err(Fault::Unsupported(why).into());
        };
        let rank = t.shape.len() as i64 + 1;
        let from_front = if axis < 0 { axis.saturating_add(rank) } else { axis };
        if !(0..rank).contains(&from_front) {
            return malformed(format!(
                "needs an axis from {} to {}, found {axis}",
                -rank,
                rank - 1
            ));
        }
        let mut shape = t.shape.clone();
        for (d, dim) in shape.iter_mut().enumerate() {
            if own(dim) {
                *dim = self.symbols.fresh(&format!("{base}_d{d}"));
            }
        }
        shape.insert(from_front as usize, count);
        let ty = Type::Tensor(TensorType { dtype: t.dtype, shape });
        Ok((ty, from_front as usize))
    }

    /// The type that a state starts with: that of the operand, or of the body's input where the operand
    /// is a list that does not tell it.
    fn first_state(&mut self, operand: &Type, declared: Option<&'m TypeProto>) -> Type {
        if let Type::Sequence(element) = operand
            && matches!(**element, Type::Unranked(_))
            && let Ok(ty) = self.symbols.any_type("state", declared)
            && ty.meets(operand)
        {
            return ty;
        }
        operand.clone()
    }

    /// Symbols that are known outside of a graph with these operands.
    fn outside(&self, operands: &[Option<ValueId>], captured: &[ValueId]) -> HashSet<Symbol> {
        let mut outside = HashSet::new();
        for value in operands.iter().flatten().chain(captured) {
            symbols_of(&self.graph.fact(*value).ty, &mut outside);
        }
        outside
    }

    fn repeat(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<ValueId>],
    ) -> Result<(Op, Vec<Option<ValueId>>), Stop> {
        let body = graph_of(node, "body")?;
        let mut operands = operands.to_vec();
        operands.resize(operands.len().max(2), None);
        let mut firsts = Vec::new();
        for i in 2..operands.len() {
            firsts.push(self.operand(&operands, i)?);
        }
        let declared = |i: usize| body.input.get(i).and_then(|info| info.r#type.as_ref());
        let states: Vec<Type> =
            firsts.iter().enumerate().map(|(i, t)| self.first_state(t, declared(i + 2))).collect();
        let fixed = [tensor(DType::I64), tensor(DType::Bool)];
        let (inside, states, local) = self.settle(body, &fixed, states, &[], 1)?;
        let outside = self.outside(&operands, &inside.captured);
        let own = |dim: &Dim| {
            let mut used = Vec::new();
            dim.symbols(&mut used);
            used.iter().any(|s| local.contains(s) || !outside.contains(s))
        };
        let rounds = match self.known(operands[0]) {
            Some(n) if self.always_goes_on(&inside.graph, operands[1]) => Some(Dim::from(n.max(0))),
            _ => None,
        };
        let base = order::node_name(node);
        let rounds = rounds.unwrap_or_else(|| self.symbols.fresh(&format!("{base}_rounds")));
        let mut outputs = Vec::new();
        for (i, value) in inside.graph.outputs.iter().skip(1).enumerate() {
            let one = inside.graph.fact(*value).ty.clone();
            outputs.push(match states.get(i) {
                Some(state) => self.final_state(base, &firsts[i], state, &one),
                None => self.stacked(base, &one, rounds.clone(), 0, &own)?.0,
            });
        }
        operands.extend(inside.captured.into_iter().map(Some));
        let body = Nested::new(inside.graph)?;
        Ok((Loop { states: states.len(), body, outputs }.into(), operands))
    }

    /// Whether only the number of rounds ends a loop.
    fn always_goes_on(&self, body: &Graph, first: Option<ValueId>) -> bool {
        let mut value = body.outputs[0];
        while let Some(node) = body.producer(value).map(|n| body.node(n)) {
            match (&node.op, node.inputs[..].first()) {
                (Op::Unary(Unary::Identity), Some(Some(from))) => value = *from,
                _ => return false,
            }
        }
        let holds = |t: Option<&Tensor>| t.is_some_and(|t| t.to_i64() == [1]);
        let given = value == body.inputs[1] && (first.is_none() || self.known(first) == Some(1));
        given
            || (holds(body.constant_of(value)) && (first.is_none() || self.known(first) == Some(1)))
    }

    fn scan(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<ValueId>],
    ) -> Result<(Op, Vec<Option<ValueId>>), Stop> {
        let types: Result<Vec<Type>, Stop> =
            (0..operands.len()).map(|i| self.operand(operands, i)).collect();
        let (op, captured) = self.scan_of(node, &types?, "scan_input_directions", true)?;
        let mut operands = operands.to_vec();
        operands.extend(captured.into_iter().map(Some));
        Ok((op.into(), operands))
    }

    /// A scan over operands of these types, and what it reads besides.
    fn scan_of(
        &mut self,
        node: &'m NodeProto,
        types: &[Type],
        directions: &str,
        axes: bool,
    ) -> Result<(Scan, Vec<ValueId>), Stop> {
        let body = graph_of(node, "body")?;
        let ints = |name: &str| {
            let found = node.attribute.iter().find(|a| a.name() == name);
            found.map_or_else(Vec::new, |a| a.ints.clone())
        };
        let count = node.attribute.iter().find(|a| a.name() == "num_scan_inputs");
        let count = count.map_or(0, |a| a.i());
        let all = types.len() as i64;
        if !(1..=all).contains(&count) {
            return malformed(format!("needs `num_scan_inputs` from 1 to {all}, found {count}"));
        }
        let states = types.len() - count as usize;
        let listed = |list: Vec<i64>, name: &str, needed: usize| match list.len() {
            0 => Ok(vec![0; needed]),
            found if found == needed => Ok(list),
            found => malformed(format!("needs {needed} numbers as `{name}`, found {found}")),
        };
        let given = |name: &str| if axes { ints(name) } else { Vec::new() };
        let in_axes = listed(given("scan_input_axes"), "scan_input_axes", count as usize)?;
        let back = listed(ints(directions), directions, count as usize)?;
        let (mut scanned, mut slices, mut length) = (Vec::new(), Vec::new(), None);
        for (i, ty) in types[states..].iter().enumerate() {
            let Type::Tensor(t) = ty else {
                let got = ty.clone();
                return Err(TypeError::NotTensor { operand: states + i, got }.into());
            };
            let (axis, rank) = (in_axes[i], t.shape.len() as i64);
            let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
            if !(0..rank).contains(&axis) {
                let found = in_axes[i];
                return malformed(format!("needs an axis below {rank}, found {found}"));
            }
            let mut shape = t.shape.clone();
            let size = shape.remove(axis as usize);
            length.get_or_insert(size);
            scanned.push(Along { axis: axis as usize, reverse: back[i] != 0 });
            slices.push(Type::Tensor(TensorType { dtype: t.dtype, shape }));
        }
        let firsts = types[..states].to_vec();
        let (inside, kept, local) = self.settle(body, &[], firsts.clone(), &slices, 0)?;
        let mut outside = self.outside(&[], &inside.captured);
        types.iter().for_each(|t| symbols_of(t, &mut outside));
        let own = |dim: &Dim| {
            let mut used = Vec::new();
            dim.symbols(&mut used);
            used.iter().any(|s| local.contains(s) || !outside.contains(s))
        };
        let results = inside.graph.outputs.len() - states;
        let out_axes = listed(given("scan_output_axes"), "scan_output_axes", results)?;
        let flags = if axes { ints("scan_output_directions") } else { Vec::new() };
        let out_back = listed(flags, "scan_output_directions", results)?;
        let (base, length) = (order::node_name(node), length.unwrap_or_default());
        let (mut outputs, mut collected) = (Vec::new(), Vec::new());
        for (i, value) in inside.graph.outputs.iter().enumerate() {
            let one = inside.graph.fact(*value).ty.clone();
            if let Some(state) = kept.get(i) {
                outputs.push(self.final_state(base, &firsts[i], state, &one));
                continue;
            }
            let axis = out_axes[i - states];
            let (ty, axis) = self.stacked(base, &one, length.clone(), axis, &own)?;
            outputs.push(ty);
            collected.push(Along { axis, reverse: out_back[i - states] != 0 });
        }
        let body = Nested::new(inside.graph)?;
        Ok((Scan { states, scanned, collected, body, outputs }, inside.captured))
    }

    /// The scan of operator set 8: one scan for every entry of a batch, itself a scan along the batch.
    fn old_scan(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<ValueId>],
    ) -> Result<(Op, Vec<Option<ValueId>>), Stop> {
        if operands.first().copied().flatten().is_some() {
            let why = "sequence lengths of a scan of operator set 8 are not supported";
            return Err(Fault::Unsupported(why.to_owned()).into());
        }
        let operands = operands.get(1..).unwrap_or_default();
        let (mut types, mut batch) = (Vec::new(), None);
        for i in 0..operands.len() {
            let Type::Tensor(mut t) = self.operand(operands, i)? else {
                return malformed(format!("needs a tensor as operand {}", i + 1));
            };
            if t.shape.is_empty() {
                return malformed(format!("needs a batch dim in operand {}", i + 1));
            }
            batch.get_or_insert(t.shape.remove(0));
            types.push(Type::Tensor(t));
        }
        let (scan, captured) = self.scan_of(node, &types, "directions", false)?;
        let mut entry = Graph::new("entry");
        let mut inputs = Vec::new();
        for (i, ty) in types.iter().enumerate() {
            inputs.push(entry.input(&format!("entry{i}"), ty.clone()));
        }
        for &value in &captured {
            let outside = self.graph.value(value);
            inputs.push(entry.input(&outside.name, outside.fact.ty.clone()));
        }
        let mut outputs = Vec::new();
        for ty in &scan.outputs {
            let Type::Tensor(t) = ty else { return malformed("needs tensors as states") };
            let mut t = t.clone();
            t.shape.insert(0, batch.clone().unwrap_or_default());
            outputs.push(Type::Tensor(t));
        }
        entry.outputs = entry.add(scan, &inputs, origin(order::node_name(node)))?;
        let op = Scan {
            states: 0,
            scanned: vec![Along::default(); types.len()],
            collected: vec![Along::default(); outputs.len()],
            body: Nested::new(entry)?,
            outputs,
        };
        let mut operands = operands.to_vec();
        operands.extend(captured.into_iter().map(Some));
        Ok((op.into(), operands))
    }

    fn map(
        &mut self,
        node: &'m NodeProto,
        operands: &[Option<ValueId>],
    ) -> Result<(Op, Vec<Option<ValueId>>), Stop> {
        let body = graph_of(node, "body")?;
        let (mut types, mut zipped) = (Vec::new(), Vec::new());
        for i in 0..operands.len() {
            let ty = self.operand(operands, i)?;
            let name = body.input.get(i).map_or("element", |info| info.name());
            let declared = body.input.get(i).and_then(|info| info.r#type.as_ref());
            zipped.push(matches!(ty, Type::Sequence(_)));
            types.push(match &ty {
                Type::Sequence(element) if matches!(**element, Type::Unranked(_)) => {
                    let declared = self.symbols.any_type(name, declared).ok();
                    declared.map_or_else(|| (**element).clone(), |t| t.enclosed())
                }
                Type::Sequence(element) => (**element).clone(),
                _ => ty,
            });
            if zipped[i] {
                types[i] = self.symbols.open(&types[i], name);
            }
        }
        if zipped.first() != Some(&true) {
            return malformed("needs a list as operand 0");
        }
        let inside = self.inside(body, &types)?;
        let mut operands = operands.to_vec();
        zipped.extend(inside.captured.iter().map(|_| false));
        operands.extend(inside.captured.into_iter().map(Some));
        let op = SequenceMap { zipped: zipped.split_off(1), body: Nested::new(inside.graph)? };
        Ok((op.into(), operands))
    }
}

/// Whether a node does not go with what it is given.
fn is_misfit(error: &ImportError) -> bool {
    matches!(error, ImportError::Node { .. } | ImportError::Malformed { .. })
}

/// The graph that an attribute holds.
fn graph_of<'m>(node: &'m NodeProto, name: &str) -> Result<&'m GraphProto, Stop> {
    let attribute = node.attribute.iter().find(|a| a.name() == name);
    match attribute.and_then(|a| a.g.as_ref()) {
        Some(graph) => Ok(graph),
        None => malformed(format!("needs a graph as attribute `{name}`, found none")),
    }
}
