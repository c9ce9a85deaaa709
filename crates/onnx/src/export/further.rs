//! Recurrent layers, lists, texts, trees, and ops whose results depend on data.

use super::{
    type_of,
    writer::{
        At,
        Attr::{self, Float, Floats, Int, Ints, Text, Texts},
        Fault, Written, list,
    },
};
use crate::{
    proto::TensorProto,
    tensor::{number_of, strings_proto, to_proto},
};
use bricolage_ir::{
    Real,
    ops::{
        Activation, Aggregate, Branch, Case, Cell, Compress, DeformConv, Direction, Distribution,
        Dynamic, Finish, GridMode, GridSample, Labels, Late, Lookup, Ngrams, NonMaxSuppression,
        Optional, Outside, PadMode, Question, Random, Recurrent, RoiAlign, Sequence,
        Text as Texts_, TreeEnsemble, Unique, Weighting,
    },
};
use bricolage_tensor::{DType, Tensor, Type};

fn number(dtype: DType) -> Result<i64, Fault> {
    let none = || Fault::None(format!("ONNX has no element type {dtype}"));
    number_of(dtype).map(i64::from).ok_or_else(none)
}

pub(crate) fn recurrent(at: &mut At<'_, '_>, op: &Recurrent) -> Written {
    let (mut names, mut alphas, mut betas) = (Vec::new(), Vec::new(), Vec::new());
    for f in &op.activations {
        let (name, alpha, beta) = match *f {
            Activation::Sigmoid => ("Sigmoid", None, None),
            Activation::Tanh => ("Tanh", None, None),
            Activation::Relu => ("Relu", None, None),
            Activation::Softsign => ("Softsign", None, None),
            Activation::Softplus => ("Softplus", None, None),
            Activation::Affine { alpha, beta } => ("Affine", Some(alpha), Some(beta)),
            Activation::ScaledTanh { alpha, beta } => ("ScaledTanh", Some(alpha), Some(beta)),
            Activation::HardSigmoid { alpha, beta } => ("HardSigmoid", Some(alpha), Some(beta)),
            Activation::LeakyRelu { alpha } => ("LeakyRelu", Some(alpha), None),
            Activation::ThresholdedRelu { alpha } => ("ThresholdedRelu", Some(alpha), None),
            Activation::Elu { alpha } => ("Elu", Some(alpha), None),
            other => return Err(Fault::None(format!("ONNX has no activation {other:?}"))),
        };
        names.push(name.to_owned());
        alphas.extend(alpha.map(|r| r.get() as f32));
        betas.extend(beta.map(|r| r.get() as f32));
    }
    let direction = match op.direction {
        Direction::Forward => "forward",
        Direction::Reverse => "reverse",
        Direction::Both => "bidirectional",
    };
    // The state's size is that of the last dim of its weights.
    let Some(hidden) = at.dims(2).get(2).and_then(bricolage_tensor::Dim::as_const) else {
        return Err(Fault::None("ONNX needs the number of hidden units".to_owned()));
    };
    let mut attributes = vec![
        ("hidden_size", Int(hidden)),
        ("direction", Text(direction)),
        ("activations", Texts(&names)),
    ];
    if !alphas.is_empty() {
        attributes.push(("activation_alpha", Floats(&alphas)));
    }
    if !betas.is_empty() {
        attributes.push(("activation_beta", Floats(&betas)));
    }
    attributes.extend(op.clip.map(|c| ("clip", Float(c.get()))));
    // Lengths are of 32 bits in ONNX.
    if at.has(4) && at.dtype(4) != DType::I32 {
        let lengths = at.input(4);
        at.inputs[4] = at.emit("Cast", &[&lengths], &[("to", Int(number(DType::I32)?))]);
    }
    let name = match op.cell {
        Cell::Simple => "RNN",
        Cell::Gru { linear_before_reset } => {
            attributes.push(("linear_before_reset", Int(linear_before_reset.into())));
            "GRU"
        }
        Cell::Lstm { input_forget } => {
            attributes.push(("input_forget", Int(input_forget.into())));
            "LSTM"
        }
    };
    at.same(name, &attributes)
}

pub(crate) fn sequence(at: &mut At<'_, '_>, op: &Sequence) -> Written {
    match op {
        Sequence::Construct { element } if at.inputs.is_empty() => {
            let dtype = match element {
                Some(Type::Tensor(t)) => t.dtype,
                Some(Type::Unranked(dtype)) => *dtype,
                _ => return Err(Fault::None("ONNX has no empty list of this type".to_owned())),
            };
            at.same("SequenceEmpty", &[("dtype", Int(number(dtype)?))])
        }
        Sequence::Construct { .. } => at.same("SequenceConstruct", &[]),
        Sequence::At { .. } => at.same("SequenceAt", &[]),
        Sequence::Insert => at.same("SequenceInsert", &[]),
        Sequence::Erase => at.same("SequenceErase", &[]),
        Sequence::Length => at.same("SequenceLength", &[]),
        Sequence::Split { axis, keep_dims } => {
            let flags = [("axis", Int(*axis as i64)), ("keepdims", Int((*keep_dims).into()))];
            at.same("SplitToSequence", &flags)
        }
        Sequence::Join { axis, new_axis, .. } => {
            let flags = [("axis", Int(*axis as i64)), ("new_axis", Int((*new_axis).into()))];
            at.same("ConcatFromSequence", &flags)
        }
        other => Err(Fault::None(format!("ONNX has no form for {other:?}"))),
    }
}

pub(crate) fn optional(at: &mut At<'_, '_>, op: &Optional) -> Written {
    match op {
        Optional::Wrap { element } => {
            let ty = element.as_ref().and_then(type_of);
            let attributes = ty.as_ref().map(|t| ("type", Attr::Type(t)));
            // An operand tells its own type.
            let attributes = attributes.filter(|_| !at.has(0));
            at.same("Optional", attributes.as_slice())
        }
        Optional::Has => {
            at.writer.needs("", 18);
            at.same("OptionalHasElement", &[])
        }
        Optional::Get { .. } => {
            at.writer.needs("", 18);
            at.same("OptionalGetElement", &[])
        }
        other => Err(Fault::None(format!("ONNX has no form for {other:?}"))),
    }
}

pub(crate) fn dynamic(at: &mut At<'_, '_>, op: &Dynamic) -> Written {
    match op.op {
        Late::Slice => at.same("Slice", &[]),
        Late::Reshape { zero_is_size } => {
            at.same("Reshape", &[("allowzero", Int(zero_is_size.into()))])
        }
        Late::Expand => at.same("Expand", &[]),
        Late::Tile => at.same("Tile", &[]),
        Late::Pad(mode) => {
            let mode = match mode {
                PadMode::Constant => "constant",
                PadMode::Reflect => "reflect",
                PadMode::Edge => "edge",
                PadMode::Wrap => "wrap",
                other => return Err(Fault::None(format!("ONNX has no padding for {other:?}"))),
            };
            at.same("Pad", &[("mode", Text(mode))])
        }
        Late::Fill => {
            let (to, value) = (at.input(0), at.input(1));
            let scalar = at.ints(&[]);
            let value = at.emit("Reshape", &[&value, &scalar], &[]);
            at.finish("Expand", &[&value, &to], &[])
        }
        Late::Range => at.same("Range", &[]),
        other => Err(Fault::None(format!("ONNX has no form for {other:?}"))),
    }
}

pub(crate) fn compress(at: &mut At<'_, '_>, op: &Compress) -> Written {
    at.same("Compress", &[("axis", Int(op.axis as i64))])
}

pub(crate) fn unique(at: &mut At<'_, '_>, op: &Unique) -> Written {
    let mut attributes = vec![("sorted", Int(op.sorted.into()))];
    attributes.extend(op.axis.map(|a| ("axis", Int(a as i64))));
    at.same("Unique", &attributes)
}

pub(crate) fn non_max_suppression(at: &mut At<'_, '_>, op: &NonMaxSuppression) -> Written {
    at.same("NonMaxSuppression", &[("center_point_box", Int(op.centered.into()))])
}

pub(crate) fn grid_sample(at: &mut At<'_, '_>, op: &GridSample) -> Written {
    let mode = match op.mode {
        GridMode::Nearest => "nearest",
        GridMode::Linear => "linear",
        GridMode::Cubic => "cubic",
    };
    let outside = match op.outside {
        Outside::Zeros => "zeros",
        Outside::Border => "border",
        Outside::Reflection => "reflection",
    };
    let attributes = [
        ("mode", Text(mode)),
        ("padding_mode", Text(outside)),
        ("align_corners", Int(op.align_corners.into())),
    ];
    at.same("GridSample", &attributes)
}

pub(crate) fn roi_align(at: &mut At<'_, '_>, op: &RoiAlign) -> Written {
    let attributes = [
        ("mode", Text(if op.largest { "max" } else { "avg" })),
        ("output_height", Int(op.height)),
        ("output_width", Int(op.width)),
        ("sampling_ratio", Int(op.samples)),
        ("spatial_scale", Float(op.scale.get())),
        (
            "coordinate_transformation_mode",
            Text(if op.half_pixel { "half_pixel" } else { "output_half_pixel" }),
        ),
    ];
    at.same("RoiAlign", &attributes)
}

pub(crate) fn deform_conv(at: &mut At<'_, '_>, op: &DeformConv) -> Written {
    let [(top, bottom), (left, right)] = op.pads[..] else {
        return Err(Fault::None(format!("needs 2 pairs of pads, found {}", op.pads.len())));
    };
    let attributes = [
        ("strides", Ints(&op.strides)),
        ("dilations", Ints(&op.dilations)),
        ("pads", Ints(&[top, left, bottom, right])),
        ("group", Int(op.groups)),
        ("offset_group", Int(op.offset_groups)),
    ];
    at.same("DeformConv", &attributes)
}

pub(crate) fn random(at: &mut At<'_, '_>, op: &Random) -> Written {
    let bits = u32::try_from(op.seed).ok().map(f32::from_bits).filter(|f| !f.is_nan());
    let Some(seed) = bits else {
        return Err(Fault::None(format!("ONNX has no seed {}, only floats", op.seed)));
    };
    let ((first, a), (second, b), name) = match op.distribution {
        Distribution::Uniform { low, high } => (("low", low), ("high", high), "RandomUniform"),
        Distribution::Normal { mean, scale } => (("mean", mean), ("scale", scale), "RandomNormal"),
    };
    let mut attributes = vec![
        (first, Float(a.get())),
        (second, Float(b.get())),
        ("seed", Float(seed.into())),
        ("dtype", Int(number(op.dtype)?)),
    ];
    if let Some(shape) = op.shape.as_fixed() {
        attributes.push(("shape", Ints(&shape)));
        return at.finish(name, &[], &attributes);
    }
    let to = at.sizes(&op.shape)?;
    let like = at.emit("ConstantOfShape", &[&to], &[]);
    at.finish(&format!("{name}Like"), &[&like], &attributes)
}

pub(crate) fn text(at: &mut At<'_, '_>, op: &Texts_) -> Written {
    match op {
        Texts_::Constant { dims, elements } => {
            let value = strings_proto(dims, elements);
            at.same("Constant", &[("value", Attr::Tensor(&value))])
        }
        Texts_::Concat => at.same("StringConcat", &[]),
        Texts_::Normalise { case, case_sensitive, stop, .. } => {
            let case = match case {
                None => "NONE",
                Some(Case::Lower) => "LOWER",
                Some(Case::Upper) => "UPPER",
            };
            let mut attributes = vec![
                ("case_change_action", Text(case)),
                ("is_case_sensitive", Int((*case_sensitive).into())),
            ];
            if !stop.is_empty() {
                attributes.push(("stopwords", Texts(stop)));
            }
            at.same("StringNormalizer", &attributes)
        }
        Texts_::Matches { pattern } => at.same("RegexFullMatch", &[("pattern", Text(pattern))]),
        Texts_::Split { delimiter, most, .. } => {
            let mut attributes = Vec::new();
            attributes.extend(delimiter.as_ref().map(|d| ("delimiter", Text(d))));
            attributes.extend(most.map(|n| ("maxsplit", Int(n))));
            at.same("StringSplit", &attributes)
        }
        other => Err(Fault::None(format!("ONNX has no form for {other:?}"))),
    }
}

fn singles(list: &[Real]) -> Vec<f32> {
    list.iter().map(|r| r.get() as f32).collect()
}

/// Labels as a tensor of an element type.
fn labels(all: &Labels, dtype: DType) -> Result<TensorProto, Fault> {
    let tensor = match all {
        Labels::Texts(list) => return Ok(strings_proto(&[list.len() as i64], list)),
        Labels::Ints(list) => Tensor::from_i64(dtype, &[list.len() as i64], list),
        Labels::Reals(list) => Tensor::generate(dtype, &[list.len() as i64], |i| list[i].get()),
    };
    to_proto("", &tensor).ok_or_else(|| Fault::None(format!("ONNX has no element type {dtype}")))
}

fn cut(all: &Labels) -> (Labels, Labels) {
    fn parts<T: Clone>(list: &[T]) -> (Vec<T>, Vec<T>) {
        let (head, tail) = list.split_at(list.len().saturating_sub(1));
        (head.to_vec(), tail.to_vec())
    }
    match all {
        Labels::Texts(list) => {
            let (head, tail) = parts(list);
            (Labels::Texts(head), Labels::Texts(tail))
        }
        Labels::Ints(list) => {
            let (head, tail) = parts(list);
            (Labels::Ints(head), Labels::Ints(tail))
        }
        Labels::Reals(list) => {
            let (head, tail) = parts(list);
            (Labels::Reals(head), Labels::Reals(tail))
        }
    }
}

pub(crate) fn lookup(at: &mut At<'_, '_>, op: &Lookup) -> Written {
    let (values, default) = cut(&op.values);
    let keys = labels(&op.keys, at.dtype(0))?;
    let (values, default) = (labels(&values, op.to)?, labels(&default, op.to)?);
    at.writer.needs("ai.onnx.ml", 4);
    let x = at.input(0);
    let attributes = list(&[
        ("keys_tensor", Attr::Tensor(&keys)),
        ("values_tensor", Attr::Tensor(&values)),
        ("default_tensor", Attr::Tensor(&default)),
    ]);
    at.finish_in("ai.onnx.ml", "LabelEncoder", &[&x], attributes)
}

pub(crate) fn ngrams(at: &mut At<'_, '_>, op: &Ngrams) -> Written {
    let mode = match op.weighting {
        Weighting::Count => "TF",
        Weighting::Weight => "IDF",
        Weighting::Both => "TFIDF",
    };
    let whole = |list: &[usize]| -> Vec<i64> { list.iter().map(|&n| n as i64).collect() };
    let (starts, columns, weights) = (whole(&op.starts), whole(&op.columns), singles(&op.weights));
    let mut attributes = vec![
        ("mode", Text(mode)),
        ("min_gram_length", Int(op.min as i64)),
        ("max_gram_length", Int(op.max as i64)),
        ("max_skip_count", Int(op.skip as i64)),
        ("ngram_counts", Ints(&starts)),
        ("ngram_indexes", Ints(&columns)),
    ];
    if !weights.is_empty() {
        attributes.push(("weights", Floats(&weights)));
    }
    match &op.pool {
        Labels::Ints(pool) => attributes.push(("pool_int64s", Ints(pool))),
        Labels::Texts(pool) => attributes.push(("pool_strings", Texts(pool))),
        Labels::Reals(_) => return Err(Fault::None("ONNX has no n-grams of floats".to_owned())),
    }
    // It takes integers of 32 and 64 bits.
    if !matches!(op.pool, Labels::Texts(_)) && !matches!(at.dtype(0), DType::I32 | DType::I64) {
        let x = at.input(0);
        at.inputs[0] = at.emit("Cast", &[&x], &[("to", Int(number(DType::I64)?))]);
    }
    at.same("TfIdfVectorizer", &attributes)
}

pub(crate) fn tree_ensemble(at: &mut At<'_, '_>, op: &TreeEnsemble) -> Written {
    let dtype = at.dtype(0);
    let mut nodes = op.nodes.clone();
    let mut roots = Vec::new();
    for root in &op.roots {
        roots.push(match *root {
            Branch::Node(node) => node as i64,
            // A tree of one leaf is a node whose ways both lead there.
            leaf => {
                nodes.push(bricolage_ir::ops::TreeNode {
                    feature: 0,
                    question: Question::LessEqual(Real::new(0.0)),
                    nan_is_yes: false,
                    yes: leaf,
                    no: leaf,
                });
                nodes.len() as i64 - 1
            }
        });
    }
    let (mut modes, mut splits, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for node in &nodes {
        let (mode, split) = match &node.question {
            Question::LessEqual(v) => (0, v.get()),
            Question::Less(v) => (1, v.get()),
            Question::GreaterEqual(v) => (2, v.get()),
            Question::Greater(v) => (3, v.get()),
            Question::Equal(v) => (4, v.get()),
            Question::NotEqual(v) => (5, v.get()),
            Question::Member(all) => {
                members.extend(all.iter().map(|v| v.get()));
                members.push(f64::NAN);
                (6, 0.0)
            }
        };
        modes.push(mode);
        splits.push(split);
    }
    let place = |b: &Branch| match b {
        Branch::Node(n) | Branch::Leaf(n) => *n as i64,
    };
    let is_leaf = |b: &Branch| i64::from(matches!(b, Branch::Leaf(_)));
    let each = |f: &dyn Fn(&bricolage_ir::ops::TreeNode) -> i64| -> Vec<i64> {
        nodes.iter().map(f).collect()
    };
    let (yes, no) = (each(&|n| place(&n.yes)), each(&|n| place(&n.no)));
    let (yes_leaf, no_leaf) = (each(&|n| is_leaf(&n.yes)), each(&|n| is_leaf(&n.no)));
    let (features, nan) = (each(&|n| n.feature as i64), each(&|n| n.nan_is_yes.into()));
    let targets: Vec<i64> = op.leaves.iter().map(|l| l.0 as i64).collect();
    let weights: Vec<f64> = op.leaves.iter().map(|l| l.1.get()).collect();
    let tensor = |dtype: DType, values: &[f64]| {
        let t = Tensor::from_f64(dtype, &[values.len() as i64], values);
        to_proto("", &t).ok_or_else(|| Fault::None(format!("ONNX has no element type {dtype}")))
    };
    let modes: Vec<f64> = modes.into_iter().map(f64::from).collect();
    let (modes, splits) = (tensor(DType::U8, &modes)?, tensor(dtype, &splits)?);
    let (weights, sets) = (tensor(dtype, &weights)?, tensor(dtype, &members)?);
    let aggregate = match op.aggregate {
        Aggregate::Mean => 0,
        Aggregate::Sum => 1,
        Aggregate::Min => 2,
        Aggregate::Max => 3,
    };
    let finish = match op.finish {
        Finish::Plain => 0,
        Finish::Softmax => 1,
        Finish::Logistic => 2,
        Finish::SoftmaxZero => 3,
    };
    let mut attributes = vec![
        ("n_targets", Int(op.targets as i64)),
        ("aggregate_function", Int(aggregate)),
        ("post_transform", Int(finish)),
        ("tree_roots", Ints(&roots)),
        ("nodes_featureids", Ints(&features)),
        ("nodes_truenodeids", Ints(&yes)),
        ("nodes_falsenodeids", Ints(&no)),
        ("nodes_trueleafs", Ints(&yes_leaf)),
        ("nodes_falseleafs", Ints(&no_leaf)),
        ("nodes_missing_value_tracks_true", Ints(&nan)),
        ("nodes_modes", Attr::Tensor(&modes)),
        ("nodes_splits", Attr::Tensor(&splits)),
        ("leaf_targetids", Ints(&targets)),
        ("leaf_weights", Attr::Tensor(&weights)),
    ];
    if !members.is_empty() {
        attributes.push(("membership_values", Attr::Tensor(&sets)));
    }
    at.writer.needs("ai.onnx.ml", 5);
    let x = at.input(0);
    let attributes = list(&attributes);
    at.finish_in("ai.onnx.ml", "TreeEnsemble", &[&x], attributes)
}
