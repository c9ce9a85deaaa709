//! Products of matrices as backends see them that do not pack across pairs: sizes, and which matrices meet.

use crate::native::{PLAIN, View};
use bricolage_ir::{NodeId, Op, ValueId};
use bricolage_runtime::Operand;
use serde::{Deserialize, Serialize};

/// A product of two matrices, or of several pairs of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Matrices {
    pub(crate) m: i64,
    pub(crate) k: i64,
    pub(crate) n: i64,
    /// Leading dims of each factor, broadcast to each other.
    pub(crate) a_batch: Vec<i64>,
    pub(crate) b_batch: Vec<i64>,
    /// Whether the factors lie transposed.
    pub(crate) ta: bool,
    pub(crate) tb: bool,
}

impl Matrices {
    /// The product at `node` with its factors, or why it is none of `f32` matrices with elements.
    pub(crate) fn of(
        view: &View<'_>,
        node: NodeId,
    ) -> Result<(Matrices, ValueId, ValueId), String> {
        let node = view.node(node);
        let Op::MatMul(op) = &node.op else { return Err("needs a product".to_owned()) };
        let (Some(a), Some(b)) = (view.operand(node, 0), view.operand(node, 1)) else {
            return Err("needs two operands".to_owned());
        };
        let matrix = |v: ValueId| {
            let dims = view.float_dims(v).filter(|d| d.len() >= 2);
            dims.ok_or_else(|| {
                format!("needs f32 operands of two dims or more, found {}", view.graph.fact(v))
            })
        };
        let split = |dims: &[i64], turned: bool| {
            let (batch, pair) = dims.split_at(dims.len() - 2);
            let (rows, columns) = if turned { (pair[1], pair[0]) } else { (pair[0], pair[1]) };
            (batch.to_vec(), rows, columns)
        };
        let (a_batch, m, k) = split(&matrix(a)?, op.transpose_lhs);
        let (b_batch, _, n) = split(&matrix(b)?, op.transpose_rhs);
        let (ta, tb) = (op.transpose_lhs, op.transpose_rhs);
        let found = Matrices { m, k, n, a_batch, b_batch, ta, tb };
        found.check()?;
        Ok((found, a, b))
    }

    /// Fails where there are no elements, or more rows or columns than 31 bits count.
    pub(crate) fn check(&self) -> Result<(), String> {
        let count = |batch: &[i64]| batch.iter().product::<i64>();
        let sizes = [self.m, self.n, self.k, count(&self.a_batch), count(&self.b_batch)];
        if sizes.contains(&0) {
            return Err("needs matrices with elements".to_owned());
        }
        let merged = self.m.checked_mul(count(&self.a_batch)).unwrap_or(i64::MAX);
        match sizes.iter().chain([&merged]).find(|&&s| i32::try_from(s).is_err()) {
            Some(size) => Err(format!("needs sizes of 31 bits, found {size}")),
            None => Ok(()),
        }
    }

    /// Multiply-adds.
    pub(crate) fn macs(&self) -> f64 {
        self.result().iter().chain([&self.k]).map(|&d| d as f64).product()
    }

    /// Dims of the factors as they lie.
    pub(crate) fn factors(&self) -> [Vec<i64>; 2] {
        let lay = |batch: &[i64], rows: i64, columns: i64, turned: bool| {
            let pair = if turned { [columns, rows] } else { [rows, columns] };
            [batch, &pair].concat()
        };
        [lay(&self.a_batch, self.m, self.k, self.ta), lay(&self.b_batch, self.k, self.n, self.tb)]
    }

    /// Dims of the result.
    pub(crate) fn result(&self) -> Vec<i64> {
        let rank = self.a_batch.len().max(self.b_batch.len());
        let size =
            |batch: &[i64], d: usize| (d + batch.len()).checked_sub(rank).map_or(1, |i| batch[i]);
        let batch = (0..rank).map(|d| size(&self.a_batch, d).max(size(&self.b_batch, d)));
        batch.chain([self.m, self.n]).collect()
    }

    /// The same product with as few matrices as there can be: rows of all left factors are one matrix where
    /// they all meet the same right one.
    pub(crate) fn merged(&self) -> Matrices {
        let mut merged = self.clone();
        if !self.ta && self.b_batch.iter().all(|&d| d == 1) {
            merged.m *= self.a_batch.iter().product::<i64>();
            (merged.a_batch, merged.b_batch) = (Vec::new(), Vec::new());
        }
        merged
    }

    /// Which matrix of each factor makes each matrix of the result.
    pub(crate) fn pairs(&self) -> Vec<(usize, usize)> {
        let result = self.result();
        let batch = &result[..result.len() - 2];
        let one = |of: &[i64], flat: i64| -> usize {
            let (mut place, mut step, mut rest) = (0, 1, flat);
            for (d, &size) in batch.iter().enumerate().rev() {
                let own = (d + of.len()).checked_sub(batch.len()).map_or(1, |i| of[i]);
                place += if own == 1 { 0 } else { rest % size * step };
                step *= own;
                rest /= size;
            }
            place as usize
        };
        let all = 0..batch.iter().product::<i64>();
        all.map(|flat| (one(&self.a_batch, flat), one(&self.b_batch, flat))).collect()
    }
}

/// Memory that tasks of one run use, each in a part of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: who makes one promises that tasks write parts that do not overlap.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// An operand's memory; null for none.
    pub(crate) fn of(operand: Option<&Operand<'_>>) -> Shared {
        Shared(operand.map_or(std::ptr::null_mut(), |o| o.as_mut_ptr().cast()))
    }

    /// Whether there is no operand.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_null()
    }

    /// The address of an element.
    ///
    /// # Safety
    /// The operand has that many elements.
    pub(crate) unsafe fn at(&self, element: i64) -> *mut f32 {
        // SAFETY: the caller promises it.
        unsafe { self.0.offset(element as isize) }
    }
}

/// Part `part` of `parts` of `0..len`, which begins at a multiple of `grain`; it may be empty.
pub(crate) fn piece(len: i64, parts: i64, part: i64, grain: i64) -> (i64, i64) {
    let up = |a: i64, b: i64| (a + b - 1) / b;
    let step = up(up(len, parts), grain) * grain;
    ((part * step).min(len), ((part + 1) * step).min(len))
}

/// An operand that must be row-major `f32` with these dims.
pub(crate) fn plain_operand<'r>(
    operand: Option<&'r Operand<'r>>,
    dims: &[i64],
) -> Result<&'r Operand<'r>, String> {
    let operand = operand.ok_or("lacks an operand")?;
    match operand.dims == dims && *operand.format == PLAIN {
        true => Ok(operand),
        false => Err(format!("needs {PLAIN}{dims:?}, found {}{:?}", operand.format, operand.dims)),
    }
}
