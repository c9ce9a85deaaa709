//! What an import function sees of the node that it imports.

use super::types::Symbols;
use crate::{
    TensorFault,
    proto::{AttributeProto, NodeProto, TensorProto, TypeProto},
    tensor::{External, dtype_of, from_proto, strings_of},
};
use bricolage_ir::{
    Graph, Op, Origin, TypeError, ValueId,
    ops::{Reshape, Transpose},
};
use bricolage_tensor::{DType, Dim, Shape, Strings, Tensor, TensorType, Type};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Why a node was not imported.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The operands do not fit.
    Type(TypeError),
    /// The node breaks the rules of its operator: what was needed, what was found.
    Malformed(String),
    /// The node may be right, but has no meaning here.
    Unsupported(String),
    /// A tensor that the node holds cannot be used.
    Tensor(TensorFault),
}

impl From<TypeError> for Fault {
    fn from(error: TypeError) -> Fault {
        Fault::Type(error)
    }
}

/// A node under import.
pub(crate) struct At<'a, 'm> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) node: &'a NodeProto,
    /// Version of the operator set.
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<ValueId>>,
    pub(crate) origin: Origin,
    /// Names of further values start with this.
    pub(crate) base: &'a str,
    pub(crate) taken: &'a HashSet<&'m str>,
    pub(crate) small: &'a HashMap<ValueId, Tensor>,
    pub(crate) symbols: &'a mut Symbols,
    pub(crate) declared: &'a HashMap<&'m str, &'m TypeProto>,
    pub(crate) external: &'a mut External<'m>,
    pub(crate) asked: Vec<&'static str>,
    pub(crate) parts: usize,
}

/// The results of a node, in order.
pub(crate) type Imported = Result<Vec<ValueId>, Fault>;
pub(crate) type Step = Result<ValueId, Fault>;

pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Unsupported(reason.into()))
}

pub(crate) fn malformed<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Malformed(what.into()))
}

impl At<'_, '_> {
    fn attribute(&mut self, name: &'static str) -> Option<&AttributeProto> {
        self.asked.push(name);
        self.node.attribute.iter().find(|a| a.name() == name)
    }

    /// Refuses the node if it has an attribute that its import did not ask for, or one twice, or one that
    /// stands for that of a function, where there is none.
    pub(crate) fn check_attributes(&self) -> Result<(), Fault> {
        for (i, a) in self.node.attribute.iter().enumerate() {
            let name = a.name();
            if self.node.attribute[..i].iter().any(|b| b.name() == name) {
                return malformed(format!("needs attribute `{name}` once, found it twice"));
            }
            if !a.ref_attr_name().is_empty() {
                let found = a.ref_attr_name();
                return malformed(format!(
                    "needs a value for attribute `{name}`, found a reference to `{found}` of a function"
                ));
            }
        }
        match self.node.attribute.iter().find(|a| !self.asked.contains(&a.name())) {
            Some(a) => unsupported(format!("attribute `{}` is not known", a.name())),
            None => Ok(()),
        }
    }

    /// Says that an attribute changes nothing here.
    pub(crate) fn ignore(&mut self, names: &[&'static str]) {
        self.asked.extend(names);
    }

    pub(crate) fn int(&mut self, name: &'static str) -> Result<Option<i64>, Fault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(a) => match a.i {
                Some(i) => Ok(Some(i)),
                // A writer may leave out a field that holds 0.
                None if a.r#type() == crate::proto::attribute_proto::AttributeType::Int => {
                    Ok(Some(0))
                }
                None => {
                    malformed(format!("needs a number as attribute `{name}`, found another kind"))
                }
            },
        }
    }

    pub(crate) fn int_or(&mut self, name: &'static str, default: i64) -> Result<i64, Fault> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An attribute that is 0 or 1.
    pub(crate) fn flag(&mut self, name: &'static str, default: bool) -> Result<bool, Fault> {
        Ok(self.int(name)?.map_or(default, |i| i != 0))
    }

    pub(crate) fn float(&mut self, name: &'static str, default: f32) -> Result<f32, Fault> {
        match self.attribute(name) {
            None => Ok(default),
            Some(a) => match a.f {
                Some(f) => Ok(f),
                None if a.r#type() == crate::proto::attribute_proto::AttributeType::Float => {
                    Ok(0.0)
                }
                None => {
                    malformed(format!("needs a float as attribute `{name}`, found another kind"))
                }
            },
        }
    }

    pub(crate) fn ints(&mut self, name: &'static str) -> Result<Option<Vec<i64>>, Fault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(a) if a.ints.is_empty() && a.i.is_some() => {
                malformed(format!("needs a list of numbers as attribute `{name}`, found a number"))
            }
            Some(a) => Ok(Some(a.ints.clone())),
        }
    }

    pub(crate) fn floats(&mut self, name: &'static str) -> Option<Vec<f32>> {
        self.attribute(name).map(|a| a.floats.clone())
    }

    /// A list of sizes or steps, each within 32 bits.
    pub(crate) fn steps(&mut self, name: &'static str) -> Result<Option<Vec<i64>>, Fault> {
        let list = self.ints(name)?;
        match list.iter().flatten().find(|&&v| i32::try_from(v).is_err()) {
            Some(v) => malformed(format!("needs 32-bit numbers as attribute `{name}`, found {v}")),
            None => Ok(list),
        }
    }

    pub(crate) fn text(&mut self, name: &'static str, default: &str) -> Result<String, Fault> {
        match self.attribute(name).map(|a| a.s()) {
            None => Ok(default.to_owned()),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(text.to_owned()),
                Err(_) => malformed(format!("needs text as attribute `{name}`, found other bytes")),
            },
        }
    }

    pub(crate) fn has(&mut self, name: &'static str) -> bool {
        self.attribute(name).is_some()
    }

    pub(crate) fn tensor(&mut self, name: &'static str) -> Result<Option<Tensor>, Fault> {
        let t: Option<TensorProto> = self.attribute(name).and_then(|a| a.t.clone());
        match t {
            None => Ok(None),
            Some(t) => from_proto(&t, self.external).map(Some).map_err(Fault::Tensor),
        }
    }

    pub(crate) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<String>>, Fault> {
        let Some(list) = self.attribute(name).map(|a| a.strings.clone()) else { return Ok(None) };
        let text = |b: &prost::bytes::Bytes| match std::str::from_utf8(b) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => malformed(format!("needs texts as attribute `{name}`, found other bytes")),
        };
        list.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// A tensor of texts.
    pub(crate) fn text_tensor(&mut self, name: &'static str) -> Result<Option<Strings>, Fault> {
        let t: Option<TensorProto> = self.attribute(name).and_then(|a| a.t.clone());
        let t = t.filter(|t| t.data_type() == crate::proto::tensor_proto::DataType::String as i32);
        t.map(|t| strings_of(&t)).transpose().map_err(Fault::Tensor)
    }

    /// The type that an attribute holds.
    pub(crate) fn type_attribute(&mut self, name: &'static str) -> Result<Option<Type>, Fault> {
        let Some(t) = self.attribute(name).and_then(|a| a.tp.clone()) else { return Ok(None) };
        match self.symbols.any_type(self.base, Some(&t)) {
            Ok(ty) => Ok(Some(ty)),
            Err((needed, found)) => unsupported(format!("needs {needed}, found {found}")),
        }
    }

    /// The element type that an attribute gives by number.
    pub(crate) fn dtype_attribute(&mut self, name: &'static str) -> Result<Option<DType>, Fault> {
        match self.int(name)?.map(|n| dtype_of(i32::try_from(n).unwrap_or(0))) {
            None => Ok(None),
            Some(Ok(dtype)) => Ok(Some(dtype)),
            Some(Err(fault)) => unsupported(fault.to_string()),
        }
    }

    /// A size of its own, for as many things as the node finds.
    pub(crate) fn fresh_dim(&mut self, what: &str) -> Dim {
        self.symbols.fresh(&format!("{}_{what}", self.base))
    }

    /// The type declared for output `i`, if it says anything.
    pub(crate) fn declared_output(&mut self, i: usize) -> Option<Type> {
        let name = self.node.output.get(i)?;
        let ty = *self.declared.get(name.as_str())?;
        self.symbols.any_type(name, Some(ty)).ok()
    }

    /// The type of any value.
    pub(crate) fn any_ty(&self, v: ValueId) -> &Type {
        &self.graph.fact(v).ty
    }

    /// Operand `i`, if it is there.
    pub(crate) fn optional(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }

    /// Operand `i`.
    pub(crate) fn input(&self, i: usize) -> Step {
        self.optional(i).ok_or(Fault::Type(TypeError::Missing { operand: i }))
    }

    /// All operands; none may be absent, and there must be `min` to `max`.
    pub(crate) fn all(&self, min: usize, max: usize) -> Result<Vec<ValueId>, Fault> {
        let got = self.inputs.len();
        if got < min || got > max {
            return Err(Fault::Type(TypeError::Arity { min, max, got }));
        }
        (0..got).map(|i| self.input(i)).collect()
    }

    /// Refuses the node when it has more operands than `max`.
    pub(crate) fn at_most(&self, max: usize) -> Result<(), Fault> {
        match self.inputs.len() {
            got if got > max => Err(Fault::Type(TypeError::Arity { min: 0, max, got })),
            _ => Ok(()),
        }
    }

    /// Whether output `i` is read by something.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|o| !o.is_empty())
    }

    pub(crate) fn ty(&self, v: ValueId) -> Result<TensorType, Fault> {
        match self.graph.fact(v).ty.as_tensor() {
            Some(t) => Ok(t.clone()),
            None => unsupported(format!("an operand is {}", self.graph.fact(v).ty)),
        }
    }

    /// Dims of a tensor of numbers or texts.
    pub(crate) fn dims(&self, v: ValueId) -> Result<Vec<Dim>, Fault> {
        match &self.graph.fact(v).ty {
            Type::Strings(shape) => Ok(shape.0.clone()),
            _ => Ok(self.ty(v)?.shape.0),
        }
    }

    pub(crate) fn rank(&self, v: ValueId) -> Result<usize, Fault> {
        Ok(self.dims(v)?.len())
    }

    /// An axis counted from the front. `rank` is the number of axes that there are.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Fault> {
        let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        match usize::try_from(from_front) {
            Ok(a) if a < rank => Ok(a),
            _ => malformed(format!(
                "needs an axis from {} to {}, found {axis}",
                -(rank as i64),
                rank as i64 - 1
            )),
        }
    }

    pub(crate) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, Fault> {
        let mut all = Vec::new();
        for &axis in axes {
            let axis = self.axis(axis, rank)?;
            if all.contains(&axis) {
                return malformed(format!("needs axes without doubles, found {axis} twice"));
            }
            all.push(axis);
        }
        Ok(all)
    }

    /// Content of a value that follows from constants and sizes.
    pub(crate) fn constant(&self, v: ValueId) -> Option<&Tensor> {
        self.graph.constant_of(v).or_else(|| self.small.get(&v))
    }

    /// Content of operand `i`, which must follow from constants; `None` when it is absent.
    pub(crate) fn constant_input(&self, i: usize, what: &str) -> Result<Option<Tensor>, Fault> {
        let Some(v) = self.optional(i) else { return Ok(None) };
        match self.constant(v) {
            Some(t) => Ok(Some(t.clone())),
            None => unsupported(format!(
                "needs {what} (operand {i}) to be constant, found a computed value"
            )),
        }
    }

    /// Elements of operand `i` as expressions over the input sizes, which must be known.
    pub(crate) fn sizes_input(&self, i: usize, what: &str) -> Result<Option<Vec<Dim>>, Fault> {
        let Some(v) = self.optional(i) else { return Ok(None) };
        if let Some(known) = self.graph.fact(v).as_dims() {
            return Ok(Some(known));
        }
        let t = self.constant_input(i, what)?;
        Ok(t.map(|t| t.to_i64().into_iter().map(Dim::from).collect()))
    }

    /// Elements of operand `i` as numbers, which must be known.
    pub(crate) fn ints_input(&self, i: usize, what: &str) -> Result<Option<Vec<i64>>, Fault> {
        Ok(self.constant_input(i, what)?.map(|t| t.to_i64()))
    }

    /// Numbers given as an attribute by old operator sets and as operand `i` by new ones.
    pub(crate) fn ints_either(
        &mut self,
        name: &'static str,
        i: usize,
    ) -> Result<Option<Vec<i64>>, Fault> {
        match self.ints(name)? {
            Some(list) => Ok(Some(list)),
            None => self.ints_input(i, name),
        }
    }

    fn fresh(&mut self) -> Arc<str> {
        loop {
            let name = format!("{}~{}", self.base, self.parts);
            self.parts += 1;
            if !self.taken.contains(name.as_str()) {
                return Arc::from(name);
            }
        }
    }

    /// Adds a node with all its results.
    pub(crate) fn add_all<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
    ) -> Imported {
        let names: Vec<Arc<str>> =
            (0..self.node.output.len().max(3)).map(|_| self.fresh()).collect();
        Ok(self.graph.add_named(op, inputs, self.origin.clone(), &names)?)
    }

    /// Adds a node and gives its first result.
    pub(crate) fn add<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
    ) -> Step {
        Ok(self.add_all(op, inputs)?[0])
    }

    /// The only result of a node that becomes one op.
    pub(crate) fn one<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
    ) -> Imported {
        Ok(vec![self.add(op, inputs)?])
    }

    /// Adds a constant.
    pub(crate) fn tensor_value(&mut self, t: Tensor) -> ValueId {
        let name = self.fresh();
        self.graph.constant(&name, t)
    }

    /// A scalar of an element type.
    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> ValueId {
        self.tensor_value(Tensor::from_f64(dtype, &[], &[value]))
    }

    pub(crate) fn reshape(&mut self, v: ValueId, to: Vec<Dim>) -> Step {
        self.add(Reshape { to: Shape(to) }, &[v])
    }

    pub(crate) fn transpose(&mut self, v: ValueId, perm: &[usize]) -> Step {
        self.add(Transpose { perm: perm.to_vec() }, &[v])
    }
}
