//! Operators of `com.microsoft` that exporters write.

use super::{
    at::{At, Imported, unsupported},
    contract::scaled,
};
use bricolage_ir::ops::{Binary, MatMul, Unary};

pub(crate) fn bias_gelu(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let sum = at.add(Binary::Add, &all)?;
    at.one(Unary::Gelu, &[sum])
}

pub(crate) fn fast_gelu(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let mut x = at.input(0)?;
    if let Some(bias) = at.optional(1) {
        x = at.add(Binary::Add, &[x, bias])?;
    }
    at.one(Unary::GeluTanh, &[x])
}

pub(crate) fn fused_mat_mul(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let alpha = at.float("alpha", 1.0)?;
    let transpose_lhs = at.flag("transA", false)?;
    let transpose_rhs = at.flag("transB", false)?;
    if at.flag("transBatchA", false)? || at.flag("transBatchB", false)? {
        return unsupported("needs `transBatchA` and `transBatchB` to be 0");
    }
    let product = at.add(MatMul { transpose_lhs, transpose_rhs }, &all)?;
    Ok(vec![scaled(at, product, alpha)?])
}
