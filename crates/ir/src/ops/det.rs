//! Determinants.

use super::{
    OpDef,
    elements::one,
    results,
    types::{Operands, differ, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, TypeError};
use bricolage_tensor::{Datum, Tensor};
use serde::{Deserialize, Serialize};

/// The determinant of each square matrix in the last two dims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Det;

/// By elimination with the largest pivot of each column.
fn determinant(matrix: &mut [f64], n: usize) -> f64 {
    let mut product = 1.0;
    for c in 0..n {
        let size = |r: usize| matrix[r * n + c].abs();
        let Some(pivot) = (c..n).max_by(|&a, &b| size(a).total_cmp(&size(b))) else { break };
        if pivot != c {
            (0..n).for_each(|i| matrix.swap(pivot * n + i, c * n + i));
            product = -product;
        }
        let head = matrix[c * n + c];
        product *= head;
        if head == 0.0 {
            return 0.0;
        }
        for r in c + 1..n {
            let factor = matrix[r * n + c] / head;
            for i in c..n {
                matrix[r * n + i] -= factor * matrix[c * n + i];
            }
        }
    }
    product
}

impl OpDef for Det {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.float(0)?;
        expect_rank(0, t, 2, usize::MAX)?;
        let batch = t.shape.len() - 2;
        let (rows, columns) = (t.shape[batch].clone(), t.shape[batch + 1].clone());
        if differ(&rows, &columns) {
            let dim = batch + 1;
            return Err(TypeError::Dim { operand: 0, dim, expected: rows, got: columns });
        }
        Ok(vec![Fact::tensor(t.dtype, t.shape[..batch].iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let n = t.dims()[t.dims().len() - 1] as usize;
        let mut x = t.to_f64();
        let values: Vec<f64> = match n {
            // An empty product.
            0 => vec![1.0; dims.iter().product::<i64>() as usize],
            _ => x.chunks_mut(n * n).map(|matrix| determinant(matrix, n)).collect(),
        };
        one(Tensor::from_f64(dtype, &dims, &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(t) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        let batch = t.shape.len() - 2;
        let mut index: Vec<Index> = (0..batch).map(Index::axis).collect();
        for (d, name) in [(batch, "m"), (batch + 1, "n")] {
            index.push(Index::axis(map.add(name, &t.shape[d], AxisKind::Opaque)));
        }
        map.inputs = vec![Some(index)];
        map
    }
}
