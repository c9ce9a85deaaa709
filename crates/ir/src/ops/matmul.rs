//! `MatMul`: `out[.., m, n] = sum_k lhs[.., m, k] * rhs[.., k, n]`, by numpy's rules.

use super::{
    OpDef,
    elements::{broadcast_strides, one, sizes},
    results,
    types::{Operands, broadcast, differ, expect_rank},
};
use crate::{
    AxisKind, AxisMap, Body, Combiner, EvalError, Fact, Index, Inputs, TypeError,
    contract::{self, Number, Sizes},
};
use bricolage_tensor::{DType, Datum, Dim, Tensor, Type};
use serde::{Deserialize, Serialize};

/// A product of matrices, or of batches of them that broadcast. An operand with one dim is a row
/// on the left and a column on the right, and that dim is missing from the result; it is never
/// transposed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatMul {
    /// The left operand lies as `[.., k, m]`.
    pub transpose_lhs: bool,
    /// The right operand lies as `[.., n, k]`.
    pub transpose_rhs: bool,
}

/// Which dims of an operand are rows and columns; `None` for the one that a vector lacks.
struct Roles {
    batch: usize,
    outer: Option<usize>,
    inner: usize,
}

impl MatMul {
    fn lhs(self, rank: usize) -> Roles {
        match (rank, self.transpose_lhs) {
            (1, _) => Roles { batch: 0, outer: None, inner: 0 },
            (r, false) => Roles { batch: r - 2, outer: Some(r - 2), inner: r - 1 },
            (r, true) => Roles { batch: r - 2, outer: Some(r - 1), inner: r - 2 },
        }
    }

    fn rhs(self, rank: usize) -> Roles {
        match (rank, self.transpose_rhs) {
            (1, _) => Roles { batch: 0, outer: None, inner: 0 },
            (r, false) => Roles { batch: r - 2, outer: Some(r - 1), inner: r - 2 },
            (r, true) => Roles { batch: r - 2, outer: Some(r - 2), inner: r - 1 },
        }
    }
}

impl OpDef for MatMul {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (a, b) = (operands.number(0)?, operands.number(1)?);
        operands.same_dtype(0, 1)?;
        expect_rank(0, a, 1, usize::MAX)?;
        expect_rank(1, b, 1, usize::MAX)?;
        let (ra, rb) = (self.lhs(a.shape.len()), self.rhs(b.shape.len()));
        let (ka, kb) = (&a.shape[ra.inner], &b.shape[rb.inner]);
        if differ(ka, kb) {
            let got = (ka.clone(), kb.clone());
            return Err(TypeError::DimMismatch { left: (0, ra.inner), right: (1, rb.inner), got });
        }
        let mut shape = broadcast(&[(0, &a.shape[..ra.batch]), (1, &b.shape[..rb.batch])])?;
        shape.extend(ra.outer.map(|d| a.shape[d].clone()));
        shape.extend(rb.outer.map(|d| b.shape[d].clone()));
        Ok(vec![Fact::tensor(a.dtype, shape.0)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let plan = Plan::new(*self, a.dims(), b.dims(), &dims);
        one(match dtype {
            DType::F32 => {
                let to = plan.run::<f32, f64>(&a.elements(), &b.elements(), |v| v as f32);
                Tensor::of(&dims, &to)
            }
            d if d.is_float() => {
                let to = plan.run::<f64, f64>(&a.to_f64(), &b.to_f64(), |v| v);
                Tensor::from_f64(d, &dims, &to)
            }
            d => {
                let to = plan.run::<i64, i64>(&a.to_i64(), &b.to_i64(), |v| v);
                Tensor::from_i64(d, &dims, &to)
            }
        })
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let (Some(Type::Tensor(a)), Some(Type::Tensor(b)), Type::Tensor(out)) =
            (inputs[0].map(|f| &f.ty), inputs[1].map(|f| &f.ty), &outputs[0].ty)
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let (ra, rb) = (self.lhs(a.shape.len()), self.rhs(b.shape.len()));
        let batch = ra.batch.max(rb.batch);
        let fact = |dims: &[Dim]| Fact::tensor(a.dtype, dims.iter().cloned());
        let batches = [fact(&a.shape[..ra.batch]), fact(&b.shape[..rb.batch])];
        let mut map = AxisMap::pointwise(
            &[Some(&batches[0]), Some(&batches[1])],
            &[fact(&out.shape[..batch])],
        );
        let outer = [ra.outer.map(|d| ("m", &a.shape[d])), rb.outer.map(|d| ("n", &b.shape[d]))];
        let outer =
            outer.map(|axis| axis.map(|(name, dim)| map.add(name, dim, AxisKind::Parallel)));
        let k = map.add("k", &a.shape[ra.inner], AxisKind::Reduce(Combiner::Sum));
        for (operand, roles) in [ra, rb].into_iter().enumerate() {
            let index = map.inputs[operand].get_or_insert_default();
            index.resize(index.len() + 1 + usize::from(roles.outer.is_some()), Index::axis(k));
            if let (Some(d), Some(axis)) = (roles.outer, outer[operand]) {
                index[d] = Index::axis(axis);
            }
        }
        map.outputs[0].extend(outer.iter().flatten().map(|&axis| Index::axis(axis)));
        map
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::contraction(false))
    }
}

/// Where the elements of a product lie.
pub(crate) struct Plan {
    sizes: Sizes,
    /// First element of each batch of the left operand, and of the right one.
    batches: Vec<(usize, usize)>,
    lhs: (usize, usize),
    rhs: (usize, usize),
}

impl Plan {
    pub(crate) fn new(op: MatMul, a: &[i64], b: &[i64], out: &[i64]) -> Plan {
        let (ra, rb) = (op.lhs(a.len()), op.rhs(b.len()));
        let (a, b, out) = (sizes(a), sizes(b), sizes(out));
        let rank = ra.batch.max(rb.batch);
        let m = ra.outer.map_or(1, |d| a[d]);
        let n = rb.outer.map_or(1, |d| b[d]);
        let k = a[ra.inner];
        let (sa, sb) = (
            broadcast_strides(&a[..ra.batch], &out[..rank]),
            broadcast_strides(&b[..rb.batch], &out[..rank]),
        );
        let count: usize = out[..rank].iter().product();
        let batches = (0..count).map(|mut flat| {
            let (mut x, mut y) = (0, 0);
            for d in (0..rank).rev() {
                let at = flat % out[d];
                flat /= out[d];
                x += at * sa[d];
                y += at * sb[d];
            }
            (x * m * k, y * k * n)
        });
        Plan {
            sizes: Sizes { batches: count, m, n, k },
            batches: batches.collect(),
            lhs: if op.transpose_lhs && ra.outer.is_some() { (1, m) } else { (k, 1) },
            rhs: if op.transpose_rhs && rb.outer.is_some() { (1, k) } else { (n, 1) },
        }
    }

    pub(crate) fn run<S: Copy + Into<T> + Sync + Default + Send, T: Number>(
        &self,
        a: &[S],
        b: &[S],
        round: impl Fn(T) -> S + Sync,
    ) -> Vec<S> {
        contract::products(
            self.sizes,
            |batch, rows| rows.fill(&a[self.batches[batch].0..], self.lhs.0, self.lhs.1),
            |batch, columns| columns.fill(&b[self.batches[batch].1..], self.rhs.1, self.rhs.0),
            |_, _, sum| round(sum),
        )
    }

    /// Output element `flat`, without computing the others.
    pub(crate) fn at<S: Copy + Into<T>, T: Number>(&self, a: &[S], b: &[S], flat: usize) -> T {
        let Sizes { m, n, k, .. } = self.sizes;
        let (batch, i, j) = (flat / (m * n), flat / n % m, flat % n);
        let (x, y) = self.batches[batch];
        contract::product_at(
            k,
            |l| a[x + i * self.lhs.0 + l * self.lhs.1].into(),
            |l| b[y + l * self.rhs.0 + j * self.rhs.1].into(),
        )
    }
}
