//! One row per op kind.

use super::{
    arrange, compute, control, further,
    writer::{At, Fault, Written},
};
use bricolage_ir::{Op, OpKind, OpTable, Row};

type Export = fn(&mut At<'_, '_>, &Op) -> Written;

macro_rules! rows {
    ($($kind:ident => $export:expr,)*) => {
        &[$(Row(OpKind::$kind, Ok(|at: &mut At<'_, '_>, op: &Op| match op {
            Op::$kind(op) => $export(at, op),
            _ => Err(Fault::None(format!("a row for {} met another op", OpKind::$kind.name()))),
        })),)*]
    };
}

pub(crate) static EXPORTS: OpTable<Export> = OpTable::complete(rows! {
    Unary => compute::unary,
    Binary => compute::binary,
    Clip => compute::clip,
    Select => |at: &mut At<'_, '_>, _: &_| at.same("Where", &[]),
    Cast => compute::cast,
    Reduce => compute::reduce,
    ArgReduce => compute::arg_reduce,
    MatMul => compute::mat_mul,
    Einsum => compute::einsum,
    Conv => compute::conv,
    ConvTranspose => compute::conv_transpose,
    Pool => compute::pool,
    BatchNorm => compute::batch_norm,
    LayerNorm => compute::layer_norm,
    GroupNorm => compute::group_norm,
    Lrn => compute::lrn,
    Softmax => compute::softmax,
    Attention => |_: &mut At<'_, '_>, _: &_| Err(Fault::Decompose),
    Reshape => arrange::reshape,
    Transpose => arrange::transpose,
    Expand => arrange::expand,
    Tile => arrange::tile,
    Concat => arrange::concat,
    Split => arrange::split,
    Slice => arrange::slice,
    Pad => arrange::pad,
    Gather => arrange::gather,
    GatherElements => arrange::gather_elements,
    GatherNd => arrange::gather_nd,
    ScatterElements => arrange::scatter_elements,
    ScatterNd => arrange::scatter_nd,
    Resize => arrange::resize,
    DepthToSpace => arrange::depth_to_space,
    SpaceToDepth => arrange::space_to_depth,
    Iota => arrange::iota,
    ShapeOf => arrange::shape_of,
    OneHot => arrange::one_hot,
    Trilu => arrange::trilu,
    Running => arrange::running,
    TopK => arrange::top_k,
    BitCast => compute::bit_cast,
    Det => |at: &mut At<'_, '_>, _: &_| at.same("Det", &[]),
    Dft => compute::dft,
    LinearAttention => compute::linear_attention,
    Quantize => compute::quantize,
    Dequantize => compute::dequantize,
    Recurrent => further::recurrent,
    If => control::choice,
    Loop => control::repeat,
    Scan => control::scan,
    SequenceMap => control::map,
    Sequence => further::sequence,
    Optional => further::optional,
    Dynamic => further::dynamic,
    NonZero => |at: &mut At<'_, '_>, _: &_| at.same("NonZero", &[]),
    Compress => further::compress,
    Unique => further::unique,
    NonMaxSuppression => further::non_max_suppression,
    GridSample => further::grid_sample,
    RoiAlign => further::roi_align,
    DeformConv => further::deform_conv,
    Random => further::random,
    Text => further::text,
    Lookup => further::lookup,
    Ngrams => further::ngrams,
    TreeEnsemble => further::tree_ensemble,
    Opaque => arrange::opaque,
});
