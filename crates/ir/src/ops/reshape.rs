//! `Reshape`: the same elements in the same order under another shape.

use super::{OpDef, elements::one, results, types::Operands, types::differ};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, TypeError};
use bricolage_tensor::{Datum, Dim, Shape, Symbol, Type};
use serde::{Deserialize, Serialize};

/// Gives a tensor another shape. Flattening, and adding or removing dims of 1, are cases of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reshape {
    /// The new shape; its product equals the old one.
    pub to: Shape,
}

impl OpDef for Reshape {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        let (have, want) = (t.shape.elements(), self.to.elements());
        if differ(&have, &want) {
            return Err(TypeError::Elements { expected: have, got: want });
        }
        let fact = Fact::tensor(t.dtype, self.to.iter().cloned());
        Ok(vec![fact.with_known(operands.known(0).unwrap_or_default().to_vec())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        one(inputs.tensor(0)?.reshaped(&dims)?)
    }

    /// Dims are matched from the innermost outwards: an axis for each common factor.
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let (Some(Type::Tensor(a)), Type::Tensor(b)) = (inputs[0].map(|f| &f.ty), &outputs[0].ty)
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        match refine(&a.shape, &b.shape) {
            Some(map) => map,
            None => AxisMap::opaque(inputs, outputs),
        }
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Reshape {
        Reshape { to: self.to.iter().map(|d| d.substitute(value)).collect() }
    }

    fn part(&self, part: &Part) -> Reshape {
        Reshape { to: lengths(part) }
    }
}

/// The shape of the first output's slice.
pub(crate) fn lengths(part: &Part) -> Shape {
    part.outputs[0].iter().map(|r| Dim::from(r.end - r.start)).collect()
}

/// One side of a reshape, walked from the innermost dim outwards.
struct Side<'a> {
    shape: &'a [Dim],
    /// Dims not yet taken up.
    left: usize,
    /// What is left of the dim being matched; 1 when it is used up.
    rest: Dim,
    /// Product of the factors of the current dim matched so far.
    step: Dim,
    index: Vec<Index>,
}

impl<'a> Side<'a> {
    fn new(shape: &'a [Dim]) -> Side<'a> {
        let one = Dim::from(1);
        let index = vec![Index::fixed(0); shape.len()];
        Side { shape, left: shape.len(), rest: one.clone(), step: one, index }
    }

    /// Moves to the next dim with a factor left; false at the end.
    fn advance(&mut self) -> bool {
        while self.rest == Dim::from(1) {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.rest = self.shape[self.left].clone();
            self.step = Dim::from(1);
        }
        true
    }

    fn take(&mut self, axis: usize, factor: &Dim, rest: Dim) {
        let index = std::mem::take(&mut self.index[self.left]);
        self.index[self.left] = index.plus(axis, self.step.clone());
        self.step = &self.step * factor;
        self.rest = rest;
    }
}

fn refine(a: &[Dim], b: &[Dim]) -> Option<AxisMap> {
    let (mut x, mut y) = (Side::new(a), Side::new(b));
    let mut map = AxisMap::new(1, 1);
    loop {
        match (x.advance(), y.advance()) {
            (false, false) => break,
            (true, true) => {}
            _ => return None,
        }
        let (factor, rest_x, rest_y) = if x.rest == y.rest {
            (x.rest.clone(), Dim::from(1), Dim::from(1))
        } else if let Some(rest) = quotient(&x.rest, &y.rest) {
            (y.rest.clone(), rest, Dim::from(1))
        } else if let Some(rest) = quotient(&y.rest, &x.rest) {
            (x.rest.clone(), Dim::from(1), rest)
        } else {
            return None;
        };
        let axis = map.add(format!("f{}", map.axes.len()), &factor, AxisKind::Parallel);
        x.take(axis, &factor, rest_x);
        y.take(axis, &factor, rest_y);
    }
    map.inputs[0] = Some(x.index);
    map.outputs[0] = y.index;
    Some(map)
}

/// `a / b` when `b` divides `a` for all values of the symbols.
fn quotient(a: &Dim, b: &Dim) -> Option<Dim> {
    if b.as_const() == Some(0) {
        return None;
    }
    let q = a.floor_div(b);
    (&q * b == *a).then_some(q)
}
