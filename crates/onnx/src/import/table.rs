//! Operators by domain: one row each.

use super::{
    arrange,
    at::{At, Fault, Imported},
    cache, contract, create, dynamic,
    elementwise::{self as el, binary, unary},
    flex, found, gather, learning, linear, losses, microsoft, norm, pool, quantised, random,
    recurrent, reduce, resize, rotary, sampling, sequence, shape, signal, slice, softmax, text,
    training,
};
use bricolage_ir::{
    Real,
    ops::{Binary, ReduceKind, RunningKind, Unary},
};

/// How one operator is imported.
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: &'static str,
    /// First and last version of the operator set for which `import` is right.
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
    /// Adds ops for a node and gives its results, of which trailing ones may be left out.
    pub(crate) import: fn(&mut At<'_, '_>) -> Imported,
}

const fn row(name: &'static str, oldest: i64, import: fn(&mut At<'_, '_>) -> Imported) -> Row {
    Row { name, oldest, newest: i64::MAX, import }
}

const fn until(newest: i64, row: Row) -> Row {
    Row { newest, ..row }
}

/// The row of an operator.
pub(crate) fn find(domain: &str, op: &str) -> Option<&'static Row> {
    let rows = DOMAINS.iter().find(|d| d.0 == domain)?.1;
    rows.iter().find(|row| row.name == op)
}

/// Why a known operator has no row.
pub(crate) fn why_not(domain: &str, op: &str) -> Option<&'static str> {
    let none = NONE.iter().find(|(of, _, names)| *of == domain && names.contains(&op));
    none.map(|(_, why, _)| *why)
}

static DOMAINS: &[(&str, &[Row])] = &[
    ("", ONNX),
    ("ai.onnx.ml", LEARNING),
    ("ai.onnx.preview", PREVIEW),
    ("ai.onnx.preview.training", TRAINING),
    ("com.microsoft", MICROSOFT),
];

static ONNX: &[Row] = &[
    row("Abs", 6, |at| unary(at, Unary::Abs)),
    row("Acos", 7, |at| unary(at, Unary::Acos)),
    row("Acosh", 9, |at| unary(at, Unary::Acosh)),
    row("Add", 7, |at| binary(at, Binary::Add)),
    row("AffineGrid", 20, sampling::affine_grid),
    row("And", 7, |at| binary(at, Binary::And)),
    row("ArgMax", 1, |at| reduce::position(at, true)),
    row("ArgMin", 1, |at| reduce::position(at, false)),
    row("Asin", 7, |at| unary(at, Unary::Asin)),
    row("Asinh", 9, |at| unary(at, Unary::Asinh)),
    row("Atan", 7, |at| unary(at, Unary::Atan)),
    row("Atanh", 9, |at| unary(at, Unary::Atanh)),
    row("Attention", 23, softmax::attention),
    row("AveragePool", 7, pool::average),
    row("BatchNormalization", 7, norm::batch),
    row("Bernoulli", 15, random::bernoulli),
    row("BitCast", 26, el::bit_cast),
    row("BitShift", 11, el::bit_shift),
    row("BitwiseAnd", 18, |at| binary(at, Binary::BitAnd)),
    row("BitwiseNot", 18, |at| unary(at, Unary::BitNot)),
    row("BitwiseOr", 18, |at| binary(at, Binary::BitOr)),
    row("BitwiseXor", 18, |at| binary(at, Binary::BitXor)),
    row("BlackmanWindow", 17, |at| signal::window(at, &[0.42, -0.5, 0.08])),
    row("Cast", 6, el::cast),
    row("CastLike", 15, el::cast_like),
    row("CausalConvWithState", 27, linear::causal_conv),
    row("Ceil", 6, |at| unary(at, Unary::Ceil)),
    row("Celu", 12, el::celu),
    row("CenterCropPad", 18, slice::center_crop_pad),
    row("Clip", 6, el::clip),
    row("Col2Im", 18, sampling::col2im),
    row("Compress", 9, gather::compress),
    row("Concat", 4, arrange::concat),
    row("ConcatFromSequence", 11, sequence::join),
    row("Constant", 1, create::constant),
    row("ConstantOfShape", 9, create::constant_of_shape),
    row("Conv", 1, contract::conv),
    row("ConvInteger", 10, quantised::conv_integer),
    row("ConvTranspose", 1, contract::conv_transpose),
    row("Cos", 7, |at| unary(at, Unary::Cos)),
    row("Cosh", 9, |at| unary(at, Unary::Cosh)),
    row("CumProd", 26, |at| create::running(at, RunningKind::Product)),
    row("CumSum", 11, |at| create::running(at, RunningKind::Sum)),
    row("DFT", 17, signal::dft),
    row("DeformConv", 19, sampling::deform_conv),
    row("DepthToSpace", 1, arrange::depth_to_space),
    row("DequantizeLinear", 10, quantised::dequantize),
    row("Det", 11, contract::det),
    row("Div", 7, |at| binary(at, Binary::Div)),
    row("Dropout", 7, el::dropout),
    row("DynamicQuantizeLinear", 11, quantised::dynamic),
    row("Einsum", 12, contract::einsum),
    row("Elu", 6, |at| el::alpha(at, 1.0, |alpha| Unary::Elu { alpha })),
    row("Equal", 7, |at| binary(at, Binary::Equal)),
    row("Erf", 9, |at| unary(at, Unary::Erf)),
    row("Exp", 6, |at| unary(at, Unary::Exp)),
    row("Expand", 8, |at| dynamic::or(at, &[1], arrange::expand, dynamic::expand)),
    row("EyeLike", 9, create::eye_like),
    row("Flatten", 1, shape::flatten),
    row("Floor", 6, |at| unary(at, Unary::Floor)),
    row("GRU", 7, recurrent::gru),
    row("Gather", 1, gather::gather),
    row("GatherElements", 11, gather::elements),
    row("GatherND", 11, gather::nd),
    row("Gelu", 20, el::gelu),
    row("Gemm", 7, contract::gemm),
    row("GlobalAveragePool", 1, |at| pool::global(at, ReduceKind::Mean)),
    row("GlobalLpPool", 2, pool::global_lp),
    row("GlobalMaxPool", 1, |at| pool::global(at, ReduceKind::Max)),
    row("Greater", 7, |at| binary(at, Binary::Greater)),
    row("GreaterOrEqual", 12, |at| binary(at, Binary::GreaterEqual)),
    row("GridSample", 16, sampling::grid_sample),
    row("GroupNormalization", 18, norm::group),
    row("HammingWindow", 17, |at| signal::window(at, &[25.0 / 46.0, -21.0 / 46.0])),
    row("HannWindow", 17, |at| signal::window(at, &[0.5, -0.5])),
    row("HardSigmoid", 6, el::hard_sigmoid),
    row("HardSwish", 14, |at| unary(at, Unary::HardSwish)),
    row("Hardmax", 1, softmax::hardmax),
    row("Identity", 1, el::identity),
    row("InstanceNormalization", 6, norm::instance),
    row("IsInf", 10, el::is_inf),
    row("IsNaN", 9, |at| unary(at, Unary::IsNan)),
    row("LRN", 1, norm::lrn),
    row("LSTM", 7, recurrent::lstm),
    row("LayerNormalization", 17, |at| norm::layer(at, false)),
    row("LeakyRelu", 6, |at| el::alpha(at, 0.01, |alpha| Unary::LeakyRelu { alpha })),
    row("Less", 7, |at| binary(at, Binary::Less)),
    row("LessOrEqual", 12, |at| binary(at, Binary::LessEqual)),
    row("LinearAttention", 27, linear::attention),
    row("Log", 6, |at| unary(at, Unary::Log)),
    row("LogSoftmax", 1, |at| softmax::softmax(at, true)),
    row("LpNormalization", 1, norm::lp),
    row("LpPool", 2, pool::lp),
    row("MatMul", 1, contract::mat_mul),
    row("MatMulInteger", 10, quantised::mat_mul_integer),
    row("Max", 6, |at| el::fold(at, Binary::Max)),
    row("MaxPool", 1, pool::max),
    row("MaxUnpool", 9, sampling::max_unpool),
    row("Mean", 6, el::mean),
    row("MeanVarianceNormalization", 9, norm::mean_variance),
    row("MelWeightMatrix", 17, signal::mel_weights),
    row("Min", 6, |at| el::fold(at, Binary::Min)),
    row("Mish", 18, |at| unary(at, Unary::Mish)),
    row("Mod", 10, el::modulo),
    row("Mul", 7, |at| binary(at, Binary::Mul)),
    row("Multinomial", 7, random::multinomial),
    row("Neg", 6, |at| unary(at, Unary::Neg)),
    row("NegativeLogLikelihoodLoss", 12, losses::negative_log_likelihood),
    row("NonMaxSuppression", 10, found::non_max_suppression),
    row("NonZero", 9, create::non_zero),
    row("Not", 1, |at| unary(at, Unary::Not)),
    row("OneHot", 9, create::one_hot),
    row("Optional", 15, sequence::wrap),
    row("OptionalGetElement", 15, sequence::get),
    row("OptionalHasElement", 15, sequence::has),
    row("Or", 7, |at| binary(at, Binary::Or)),
    row("PRelu", 7, |at| binary(at, Binary::Prelu)),
    row("Pad", 2, |at| match at.opset {
        ..11 => slice::pad(at),
        _ => dynamic::or(at, &[1, 3], slice::pad, dynamic::pad),
    }),
    row("Pow", 7, |at| binary(at, Binary::Pow)),
    row("QLinearConv", 10, quantised::q_linear_conv),
    row("QLinearMatMul", 10, quantised::q_linear_mat_mul),
    row("QuantizeLinear", 10, quantised::quantize),
    row("RMSNormalization", 23, |at| norm::layer(at, true)),
    row("RNN", 7, recurrent::rnn),
    row("RandomNormal", 1, |at| random::plain(at, true)),
    row("RandomNormalLike", 1, |at| random::like(at, true)),
    row("RandomUniform", 1, |at| random::plain(at, false)),
    row("RandomUniformLike", 1, |at| random::like(at, false)),
    row("Range", 11, |at| match create::range(at) {
        // The sizes of floats follow from more than known elements.
        Err(Fault::Unsupported(_)) => dynamic::range(at),
        other => other,
    }),
    row("Reciprocal", 6, |at| unary(at, Unary::Reciprocal)),
    row("ReduceL1", 1, |at| reduce::reduce(at, ReduceKind::L1)),
    row("ReduceL2", 1, |at| reduce::reduce(at, ReduceKind::L2)),
    row("ReduceLogSum", 1, |at| reduce::reduce(at, ReduceKind::LogSum)),
    row("ReduceLogSumExp", 1, |at| reduce::reduce(at, ReduceKind::LogSumExp)),
    row("ReduceMax", 1, |at| reduce::reduce(at, ReduceKind::Max)),
    row("ReduceMean", 1, |at| reduce::reduce(at, ReduceKind::Mean)),
    row("ReduceMin", 1, |at| reduce::reduce(at, ReduceKind::Min)),
    row("ReduceProd", 1, |at| reduce::reduce(at, ReduceKind::Product)),
    row("ReduceSum", 1, |at| reduce::reduce(at, ReduceKind::Sum)),
    row("ReduceSumSquare", 1, |at| reduce::reduce(at, ReduceKind::SumSquare)),
    row("RegexFullMatch", 20, text::full_match),
    row("Relu", 6, |at| unary(at, Unary::Relu)),
    row("Reshape", 5, shape::reshape),
    row("Resize", 10, resize::resize),
    row("ReverseSequence", 10, cache::reverse_sequence),
    row("RoiAlign", 10, sampling::roi_align),
    row("RotaryEmbedding", 23, rotary::rotary_embedding),
    row("Round", 11, |at| unary(at, Unary::Round)),
    row("STFT", 17, signal::short_time),
    until(10, row("Scatter", 9, gather::scatter_elements)),
    row("ScatterElements", 11, gather::scatter_elements),
    row("ScatterND", 11, gather::scatter_nd),
    row("Selu", 6, el::selu),
    row("SequenceAt", 11, sequence::item),
    row("SequenceConstruct", 11, sequence::construct),
    row("SequenceEmpty", 11, sequence::empty),
    row("SequenceErase", 11, sequence::erase),
    row("SequenceInsert", 11, sequence::insert),
    row("SequenceLength", 11, sequence::length),
    row("Shape", 1, shape::shape),
    row("Shrink", 9, el::shrink),
    row("Sigmoid", 6, |at| unary(at, Unary::Sigmoid)),
    row("Sign", 9, |at| unary(at, Unary::Sign)),
    row("Sin", 7, |at| unary(at, Unary::Sin)),
    row("Sinh", 9, |at| unary(at, Unary::Sinh)),
    row("Size", 1, shape::size),
    row("Slice", 1, |at| match at.opset {
        ..10 => slice::slice(at),
        _ => dynamic::or(at, &[1, 2, 3, 4], slice::slice, dynamic::slice),
    }),
    row("Softmax", 1, |at| softmax::softmax(at, false)),
    row("SoftmaxCrossEntropyLoss", 12, losses::softmax_cross_entropy),
    row("Softplus", 1, |at| unary(at, Unary::Softplus)),
    row("Softsign", 1, |at| unary(at, Unary::Softsign)),
    row("SpaceToDepth", 1, arrange::space_to_depth),
    row("Split", 2, arrange::split),
    row("SplitToSequence", 11, sequence::split),
    row("Sqrt", 6, |at| unary(at, Unary::Sqrt)),
    row("Squeeze", 1, shape::squeeze),
    row("StringConcat", 20, text::concat),
    row("StringNormalizer", 10, text::normalise),
    row("StringSplit", 20, text::split),
    row("Sub", 7, |at| binary(at, Binary::Sub)),
    row("Sum", 6, |at| el::fold(at, Binary::Add)),
    row("SwiGLU", 28, linear::swiglu),
    row("Swish", 24, |at| el::swish(at, 1.0)),
    row("Tan", 7, |at| unary(at, Unary::Tan)),
    row("Tanh", 6, |at| unary(at, Unary::Tanh)),
    row("TensorScatter", 24, cache::tensor_scatter),
    row("TfIdfVectorizer", 9, text::ngrams),
    row("ThresholdedRelu", 10, |at| el::alpha(at, 1.0, |alpha| Unary::ThresholdedRelu { alpha })),
    row("Tile", 6, |at| dynamic::or(at, &[1], arrange::tile, dynamic::tile)),
    row("TopK", 1, create::top_k),
    row("Transpose", 1, arrange::transpose),
    row("Trilu", 14, create::trilu),
    row("Unique", 11, found::unique),
    row("Unsqueeze", 1, shape::unsqueeze),
    until(9, row("Upsample", 7, resize::upsample)),
    row("Where", 9, el::select),
    row("Xor", 7, |at| binary(at, Binary::Xor)),
];

static PREVIEW: &[Row] = &[
    row("FlexAttention", 1, flex::attention),
    row("FlexAttention:output", 1, flex::output),
    row("FlexAttention:scores", 1, flex::scores),
];

static TRAINING: &[Row] = &[
    row("Adagrad", 1, training::adagrad),
    row("Adam", 1, training::adam),
    row("Momentum", 1, training::momentum),
];

static LEARNING: &[Row] = &[
    row("ArrayFeatureExtractor", 1, learning::feature_extractor),
    row("Binarizer", 1, learning::binarizer),
    row("LabelEncoder", 2, learning::label_encoder),
    row("Scaler", 1, learning::scaler),
    row("TreeEnsemble", 5, learning::tree_ensemble),
];

static MICROSOFT: &[Row] = &[
    row("BiasGelu", 1, microsoft::bias_gelu),
    row("FastGelu", 1, microsoft::fast_gelu),
    row("FusedMatMul", 1, microsoft::fused_mat_mul),
    row("Gelu", 1, |at| unary(at, Unary::Gelu)),
    row("QuickGelu", 1, |at| el::swish(at, 1.702)),
];

/// Operators that are known and have no row, by domain and reason.
static NONE: &[(&str, &str, &[&str])] = &[
    ("", "encoded images are not supported", &["ImageDecoder"]),
    (
        "ai.onnx.ml",
        "its result holds maps, which no value here does; a converter leaves it out with `zipmap=False`",
        &["ZipMap"],
    ),
];

/// A real attribute.
pub(crate) fn real(value: f32) -> Real {
    Real::from(value)
}
