//! The rules, in the order in which they look at a node.

mod activation;
mod attention;
mod batch_norm;
mod channels;
mod common;
mod constant;
mod identity;
mod movement;
mod normalise;

use crate::Rule;

/// Every rule. What folds and removes comes before what recognises, so that patterns are matched on
/// graphs without clutter.
pub static RULES: &[&dyn Rule] = &[
    &constant::FoldConstants,
    &identity::RemoveIdentity,
    &identity::DropNeutralOperand,
    &movement::MergeTransposes,
    &movement::MergeReshapes,
    &common::MergeEqualNodes,
    &batch_norm::FoldBatchNorm,
    &batch_norm::SplitBatchNorm,
    &channels::FoldScaleIntoConv,
    &channels::FoldBiasIntoConv,
    &movement::TransposeIntoMatMul,
    &activation::RecogniseSilu,
    &activation::RecogniseHardSwish,
    &activation::RecogniseGelu,
    &activation::RecogniseGeluTanh,
    &normalise::RecogniseSoftmax,
    &normalise::RecogniseLayerNorm,
    &normalise::RecogniseRmsNorm,
    &normalise::AbsorbScale,
    &normalise::AbsorbShift,
    &attention::RecogniseAttention,
];
