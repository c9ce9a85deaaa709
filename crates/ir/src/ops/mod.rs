//! The closed list of ops. Adding one is a file here and a line in `ops!`.

mod arrange;
mod binary;
mod bit_cast;
mod concat;
mod control;
mod conv;
mod create;
mod det;
mod dft;
mod dynamic;
mod einsum;
mod elements;
mod fields;
mod found;
mod gather;
mod linear_attention;
mod matmul;
mod norm;
mod opaque;
mod pointwise;
mod pool;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod reshape;
mod resize;
mod running;
mod sampling;
mod scatter;
mod sequence;
mod slice;
mod softmax;
mod taps;
mod text;
mod trees;
mod types;
mod unary;
mod window;

pub use arrange::{DepthOrder, DepthToSpace, Expand, SpaceToDepth, Tile, Transpose};
pub use binary::Binary;
pub use bit_cast::BitCast;
pub use concat::{Concat, Split};
pub use control::{Along, If, Loop, Nested, Scan, SequenceMap};
pub use conv::{Conv, ConvTranspose};
pub use create::{Iota, OneHot, ShapeOf, TopK, Trilu};
pub use det::Det;
pub use dft::Dft;
pub use dynamic::{Dynamic, Late};
pub use einsum::Einsum;
pub use found::{Compress, NonMaxSuppression, NonZero, Unique};
pub use gather::{Gather, GatherElements, GatherNd};
pub use linear_attention::{LinearAttention, Update};
pub use matmul::MatMul;
pub use norm::{BatchNorm, GroupNorm, LayerNorm, Lrn};
pub use opaque::Opaque;
pub use pointwise::{Cast, Clip, Select};
pub use pool::{Pool, PoolKind};
pub use quantize::{Dequantize, Quantize};
pub use random::{Distribution, Random};
pub use recurrent::{Activation, Cell, Direction, Recurrent};
pub use reduce::{ArgReduce, Reduce, ReduceKind};
pub use reshape::Reshape;
pub use resize::{Coordinates, Interpolation, Resize, Rounding};
pub use running::{Running, RunningKind};
pub use sampling::{DeformConv, GridMode, GridSample, Outside, RoiAlign};
pub use scatter::{Scatter, ScatterElements, ScatterNd};
pub use sequence::{Optional, Sequence};
pub use slice::{Pad, PadMode, Slice};
pub use softmax::{Attention, Softmax};
pub use text::{Case, Labels, Lookup, Ngrams, Text, Weighting};
pub use trees::{Aggregate, Branch, Finish, Question, TreeEnsemble, TreeNode};
pub use unary::Unary;

use crate::{AxisMap, Body, EvalError, Fact, Part, TypeError, Work};
use bricolage_tensor::{DType, Datum, Dim, Symbol, Tensor, Type};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{fmt, hash::Hash};

/// The operands of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a>(pub &'a [Option<&'a Datum>]);

impl<'a> Inputs<'a> {
    /// Operand `i`, which must be a tensor.
    pub fn tensor(&self, i: usize) -> Result<&'a Tensor, EvalError> {
        self.optional(i)?.ok_or(EvalError::Type(TypeError::Missing { operand: i }))
    }

    /// Operand `i`, which must be a tensor or absent.
    pub fn optional(&self, i: usize) -> Result<Option<&'a Tensor>, EvalError> {
        match self.0.get(i).copied().flatten() {
            None => Ok(None),
            Some(datum) => match datum.as_tensor() {
                Some(t) => Ok(Some(t)),
                None => Err(EvalError::Operand { operand: i, expected: "tensor" }),
            },
        }
    }

    /// Number of operands, absent ones included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no operands.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is known about the operands: their types, and elements of small ones.
    pub fn facts(&self) -> Vec<Option<Fact>> {
        let fact = |datum: &Datum| match datum {
            Datum::Tensor(t) => Some(Fact::of(t)),
            other => other.ty().map(Fact::from),
        };
        self.0.iter().map(|d| d.and_then(fact)).collect()
    }
}

/// Everything an op means, and nothing about how it is made fast.
pub trait OpDef: Clone + PartialEq + Eq + Hash + fmt::Debug + Serialize + DeserializeOwned {
    /// Checks operands and attributes; gives the types of all results, and known elements.
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError>;

    /// Straightforward evaluation: floats accumulate in `f64` and round once to the output type,
    /// integers are exact and wrap.
    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError>;

    /// The iteration space, for operands that [`OpDef::infer`] accepts. See [`AxisMap`].
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap;

    /// The scalar computation at one point of the space, where there is one.
    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        let _ = inputs;
        None
    }

    /// The op with symbols replaced in attributes that hold sizes.
    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Self {
        let _ = value;
        self.clone()
    }

    /// The op that computes one part of this one: same, but for attributes that speak of sizes
    /// or padding.
    fn part(&self, part: &Part) -> Self {
        let _ = part;
        self.clone()
    }

    /// How much there is to do; derived, overridden only where the derivation is wrong.
    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        Work::derive(&self.axes(inputs, outputs), self.body(inputs).as_ref(), inputs, outputs)
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An op with its attributes. Exhaustive matching is reserved to this crate.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Op { $($(#[$doc])* $name($name),)* }

        /// An op without its attributes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum OpKind { $($(#[$doc])* $name,)* }

        impl OpKind {
            /// Every kind, in the order of the declaration.
            pub const ALL: &'static [OpKind] = &[$(OpKind::$name,)*];

            /// The name used in text forms.
            pub const fn name(self) -> &'static str {
                match self { $(OpKind::$name => stringify!($name),)* }
            }

            /// Names of the attributes, as they stand in the text form; none for scalar functions, which
            /// have parameters of their own.
            pub fn attribute_names(self) -> &'static [&'static str] {
                match self { $(OpKind::$name => fields::fields::<$name>(),)* }
            }

            /// Reads the attributes of an op of this kind from their text form.
            pub fn parse(self, attributes: &str) -> Result<Op, ron::error::SpannedError> {
                match self { $(OpKind::$name => ron::from_str::<$name>(attributes).map(Op::$name),)* }
            }
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Op { Op::$name(op) }
        })*

        impl Op {
            /// Which op this is.
            pub fn kind(&self) -> OpKind {
                match self { $(Op::$name(_) => OpKind::$name,)* }
            }

            fn infer_types(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
                match self { $(Op::$name(op) => op.infer(inputs),)* }
            }

            fn eval_numbers(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
                match self { $(Op::$name(op) => op.eval(inputs),)* }
            }

            fn axes_of_tensors(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
                match self { $(Op::$name(op) => op.axes(inputs, outputs),)* }
            }

            /// See [`OpDef::body`].
            pub fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
                match self { $(Op::$name(op) => op.body(inputs),)* }
            }

            /// See [`OpDef::bind`].
            pub fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Op {
                match self { $(Op::$name(op) => Op::$name(op.bind(value)),)* }
            }

            /// See [`OpDef::part`].
            pub fn part(&self, part: &Part) -> Op {
                match self { $(Op::$name(op) => Op::$name(op.part(part)),)* }
            }

            /// See [`OpDef::work`].
            pub fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
                match self { $(Op::$name(op) => op.work(inputs, outputs),)* }
            }

            /// The text form of the attributes, which [`OpKind::parse`] reads.
            pub fn attributes(&self) -> String {
                let text = match self { $(Op::$name(op) => ron::to_string(op),)* };
                text.expect("attributes are plain data, which always has a text form")
            }
        }
    };
}
ops! {
    /// One scalar function per element of one operand.
    Unary,
    /// One scalar function per pair of elements.
    Binary,
    /// Limits every element to an interval.
    Clip,
    /// One of two operands, element by element.
    Select,
    /// Another element type.
    Cast,
    /// Combines elements along dims.
    Reduce,
    /// Position of the largest or smallest element.
    ArgReduce,
    /// Matrix product.
    MatMul,
    /// Sum of products in Einstein's notation.
    Einsum,
    /// Convolution.
    Conv,
    /// Transposed convolution.
    ConvTranspose,
    /// One number for every window.
    Pool,
    /// Normalisation with given statistics.
    BatchNorm,
    /// Normalisation over trailing dims.
    LayerNorm,
    /// Normalisation over groups of channels.
    GroupNorm,
    /// Local response normalisation.
    Lrn,
    /// Exponentials that sum to 1.
    Softmax,
    /// Scaled dot-product attention.
    Attention,
    /// The same elements in the same order under another shape.
    Reshape,
    /// Reordered dims.
    Transpose,
    /// Repeated dims of 1.
    Expand,
    /// Repeated tensor.
    Tile,
    /// Tensors joined along a dim.
    Concat,
    /// A tensor taken apart along a dim.
    Split,
    /// A box cut out.
    Slice,
    /// Positions added around.
    Pad,
    /// Slices at given positions.
    Gather,
    /// Elements at given positions.
    GatherElements,
    /// Slices at given coordinates.
    GatherNd,
    /// Elements written at given positions.
    ScatterElements,
    /// Slices written at given coordinates.
    ScatterNd,
    /// Another resolution.
    Resize,
    /// Channels spread over space.
    DepthToSpace,
    /// Space gathered into channels.
    SpaceToDepth,
    /// Evenly spaced numbers.
    Iota,
    /// The operand's dims.
    ShapeOf,
    /// A new dim with one position on.
    OneHot,
    /// A triangle of each matrix.
    Trilu,
    /// Running sums and products.
    Running,
    /// The best elements along a dim.
    TopK,
    /// The same bits under another element type.
    BitCast,
    /// Determinants.
    Det,
    /// Discrete Fourier transform.
    Dft,
    /// Attention by a recurrent state.
    LinearAttention,
    /// Few bits and a scale for every number.
    Quantize,
    /// Numbers from few bits and a scale.
    Dequantize,
    /// A cell run along a sequence.
    Recurrent,
    /// One of two graphs.
    If,
    /// A graph over and over.
    Loop,
    /// A graph along a dim.
    Scan,
    /// A graph for every element of a list.
    SequenceMap,
    /// Lists of values.
    Sequence,
    /// Values that may be absent.
    Optional,
    /// Sizes that are data.
    Dynamic,
    /// Where elements are not 0.
    NonZero,
    /// Slices that are wanted.
    Compress,
    /// Distinct slices.
    Unique,
    /// The best boxes.
    NonMaxSuppression,
    /// Images at given positions.
    GridSample,
    /// Regions of images.
    RoiAlign,
    /// Convolution with moving taps.
    DeformConv,
    /// Random numbers.
    Random,
    /// Texts.
    Text,
    /// Elements replaced by others.
    Lookup,
    /// Counts of n-grams.
    Ngrams,
    /// Decision trees.
    TreeEnsemble,
    /// Known to a foreign runtime alone.
    Opaque,
}

impl Op {
    /// The symbols in the attributes, repeated when they recur.
    pub fn symbols(&self) -> Vec<Symbol> {
        let asked = std::cell::RefCell::new(Vec::new());
        self.bind(&|s| {
            asked.borrow_mut().push(s.clone());
            None
        });
        asked.into_inner()
    }

    /// The types of all results, and their elements as far as they follow from known ones.
    pub fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        if let (Op::Unary(Unary::Identity), [Some(fact)]) = (self, inputs)
            && fact.ty.as_tensor().is_none()
        {
            return Ok(vec![(*fact).clone()]);
        }
        if let Some(facts) = text::infer_by_number(self, inputs) {
            return facts;
        }
        let facts = self.infer_types(inputs)?;
        Ok(fold_known(self, inputs, facts))
    }

    /// See [`OpDef::eval`]. Ops that only move or compare elements take texts as well, and the
    /// identity takes everything.
    pub fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        if let (Op::Unary(Unary::Identity), [Some(datum)]) = (self, inputs.0)
            && datum.as_tensor().is_none()
        {
            return Ok(vec![(*datum).clone()]);
        }
        text::eval_by_number(self, inputs).unwrap_or_else(|| self.eval_numbers(inputs))
    }

    /// See [`OpDef::axes`]; opaque unless all operands and results are tensors of numbers.
    pub fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        if inputs.iter().flatten().copied().chain(outputs).any(|f| f.ty.as_tensor().is_none()) {
            return AxisMap::opaque(inputs, outputs);
        }
        self.axes_of_tensors(inputs, outputs)
    }

    /// The graphs inside the op.
    pub fn nested(&self) -> Vec<&Nested> {
        match self {
            Op::If(op) => vec![&op.then, &op.otherwise],
            Op::Loop(op) => vec![&op.body],
            Op::Scan(op) => vec![&op.body],
            Op::SequenceMap(op) => vec![&op.body],
            _ => Vec::new(),
        }
    }

    /// The op and the slices for the points `points` of an axis; `None` when the op cannot be
    /// split there or a size is symbolic.
    pub fn split(
        &self,
        inputs: &[Option<&Fact>],
        outputs: &[Fact],
        axis: usize,
        points: std::ops::Range<i64>,
    ) -> Option<(Op, Part)> {
        let axes = self.axes(inputs, outputs);
        if !axes.can_split(axis) {
            return None;
        }
        let part = axes.part(axis, points, inputs, outputs)?;
        Some((self.part(&part), part))
    }
}

/// Kind and attributes: `Transpose(perm:[1,0])`.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes = self.attributes();
        let open = if attributes.starts_with('(') { "" } else { " " };
        write!(f, "{}{open}{attributes}", self.kind().name())
    }
}

/// Evaluates an op whose operands are all small known integers, so that sizes computed from
/// sizes are known for every op alike.
fn fold_known(op: &Op, inputs: &[Option<&Fact>], mut facts: Vec<Fact>) -> Vec<Fact> {
    let small = |f: &Fact| match &f.ty {
        Type::Tensor(t) => {
            t.shape.len() <= 1
                && !t.dtype.is_float()
                && t.shape.element_count().is_some_and(|n| n <= Fact::MOST_KNOWN as u64)
        }
        _ => false,
    };
    let worth = facts.iter().any(|f| small(f) && f.as_dims().is_none());
    // A graph inside may take any time.
    if !worth || inputs.is_empty() || !op.nested().is_empty() {
        return facts;
    }
    let mut data = Vec::new();
    for fact in inputs {
        data.push(match fact {
            None => None,
            Some(fact) => {
                let (Some(numbers), Type::Tensor(t)) = (fact.as_numbers(), &fact.ty) else {
                    return facts;
                };
                let Some(dims) = t.shape.as_fixed() else { return facts };
                Some(Datum::from(Tensor::from_i64(t.dtype, &dims, &numbers)))
            }
        });
    }
    let refs: Vec<Option<&Datum>> = data.iter().map(Option::as_ref).collect();
    if let Ok(results) = op.eval(&Inputs(&refs)) {
        for (fact, datum) in facts.iter_mut().zip(&results) {
            if let Datum::Tensor(t) = datum
                && small(fact)
            {
                let known = Fact::of(t).known;
                *fact =
                    Fact { ty: fact.ty.clone(), known: None }.with_known(known.unwrap_or_default());
            }
        }
    }
    facts
}

/// Element type and dims of every result, for operands whose types are numbers.
pub(crate) fn results(
    op: &impl OpDef,
    inputs: &Inputs<'_>,
) -> Result<Vec<(DType, Vec<i64>)>, EvalError> {
    let facts = inputs.facts();
    let refs: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
    let mut all = Vec::new();
    for fact in op.infer(&refs)? {
        let Type::Tensor(t) = &fact.ty else {
            return Err(EvalError::Operand { operand: 0, expected: "tensor" });
        };
        let mut dims = Vec::new();
        for dim in t.shape.iter() {
            dims.push(dim.as_const().ok_or_else(|| EvalError::Symbolic { dim: dim.clone() })?);
        }
        all.push((t.dtype, dims));
    }
    Ok(all)
}

/// Fails unless the operands fit the op, whose results need not have known sizes.
pub(crate) fn check(op: &impl OpDef, inputs: &Inputs<'_>) -> Result<(), EvalError> {
    let facts = inputs.facts();
    let refs: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
    op.infer(&refs)?;
    Ok(())
}

/// The elements at flat positions, as a tensor of one dim.
pub(crate) fn elements_of(t: &Tensor, positions: &[usize]) -> Result<Tensor, EvalError> {
    for &at in positions {
        elements::wrap_index(at as i64, t.len(), 0)?;
    }
    elements::pick(t, &[positions.len() as i64], |out| positions.iter().copied().for_each(out))
}

/// Elements of the result of a convolution or matrix product at flat positions, without
/// computing the others; `None` for other ops.
pub(crate) fn sample(
    op: &Op,
    inputs: &Inputs<'_>,
    positions: &[usize],
) -> Result<Option<Tensor>, EvalError> {
    let (dtype, dims) = match op {
        Op::Conv(op) => results(op, inputs)?.swap_remove(0),
        Op::ConvTranspose(op) => results(op, inputs)?.swap_remove(0),
        Op::MatMul(op) => results(op, inputs)?.swap_remove(0),
        _ => return Ok(None),
    };
    let count = dims.iter().product::<i64>() as usize;
    for &at in positions {
        elements::wrap_index(at as i64, count, 0)?;
    }
    let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
    let float = dtype.is_float();
    let (fa, fb) = if float { (a.to_f64(), b.to_f64()) } else { (Vec::new(), Vec::new()) };
    let (ia, ib) = if float { (Vec::new(), Vec::new()) } else { (a.to_i64(), b.to_i64()) };
    let mut floats: Vec<f64> = Vec::new();
    let mut integers: Vec<i64> = Vec::new();
    match op {
        Op::MatMul(op) => {
            let plan = matmul::Plan::new(*op, a.dims(), b.dims(), &dims);
            for &at in positions {
                match float {
                    true => floats.push(plan.at::<f64, f64>(&fa, &fb, at)),
                    false => integers.push(plan.at::<i64, i64>(&ia, &ib, at)),
                }
            }
        }
        _ => {
            let taps = match op {
                Op::Conv(op) => taps::Taps::of_conv(op, a, b, &dims)?,
                Op::ConvTranspose(op) => taps::Taps::of_transpose(op, a, b, &dims)?,
                _ => return Ok(None),
            };
            let bias = inputs.optional(2)?;
            let (fc, ic) = (bias.map(Tensor::to_f64), bias.map(Tensor::to_i64));
            for &at in positions {
                match float {
                    true => floats.push(taps.at::<f64, f64>(&fa, &fb, fc.as_deref(), at)),
                    false => integers.push(taps.at::<i64, i64>(&ia, &ib, ic.as_deref(), at)),
                }
            }
        }
    }
    let dims = [positions.len() as i64];
    Ok(Some(match float {
        true => Tensor::from_f64(dtype, &dims, &floats),
        false => Tensor::from_i64(dtype, &dims, &integers),
    }))
}
