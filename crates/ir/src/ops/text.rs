//! Texts: ops of their own, and ops that move or compare elements of any kind.

use super::{
    OpDef,
    elements::{broadcast_strides, for_each_run, sizes},
    types::{Operands, attribute, broadcast, expect_rank},
};
use crate::{AxisMap, EvalError, Fact, Inputs, Op, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Shape, Strings, Symbol, Tensor, TensorType, Type};
use regex::Regex;
use serde::{Deserialize, Serialize};

/// Which letters a text gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Case {
    /// Small ones.
    Lower,
    /// Capitals.
    Upper,
}

impl Case {
    fn of(self, text: &str) -> String {
        match self {
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
        }
    }
}

/// Something done with texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Text {
    /// These texts.
    Constant {
        /// Dims of the result.
        dims: Vec<i64>,
        /// Elements, row-major.
        elements: Vec<String>,
    },
    /// Operand 0 followed by operand 1, which broadcast.
    Concat,
    /// The texts of `[n]` or `[1, n]` without stop words, in other letters. When none is left, the
    /// result is one empty text.
    Normalise {
        /// Which letters.
        case: Option<Case>,
        /// Stop words must have the same letters.
        case_sensitive: bool,
        /// What is left out.
        stop: Vec<String>,
        /// How many are left.
        found: Dim,
    },
    /// Whether the regular expression fits the whole text.
    Matches {
        /// The expression.
        pattern: String,
    },
    /// Pieces between delimiters along a new last dim, empty texts behind the last of each; and their
    /// number, `i64`.
    Split {
        /// The delimiter; runs of white space when absent.
        delimiter: Option<String>,
        /// Most delimiters that count.
        most: Option<i64>,
        /// Size of the new dim.
        found: Dim,
    },
}

/// The shape of operand `i`, which must be texts.
fn shape<'a>(inputs: &[Option<&'a Fact>], i: usize) -> Result<&'a Shape, TypeError> {
    match inputs.get(i).copied().flatten().map(|f| &f.ty) {
        None => Err(TypeError::Missing { operand: i }),
        Some(Type::Strings(shape)) => Ok(shape),
        Some(other) => {
            let expected = "texts".to_owned();
            Err(TypeError::Kind { operand: i, expected, got: other.clone() })
        }
    }
}

/// Operand `i`, which must be texts.
pub(crate) fn strings<'a>(inputs: &Inputs<'a>, i: usize) -> Result<&'a Strings, EvalError> {
    match inputs.0.get(i).copied().flatten() {
        None => Err(EvalError::Type(TypeError::Missing { operand: i })),
        Some(Datum::Strings(s)) => Ok(s),
        Some(_) => Err(EvalError::Operand { operand: i, expected: "tensor of texts" }),
    }
}

fn whole_match(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!(r"\A(?:{pattern})\z"))
}

fn pieces(text: &str, delimiter: Option<&str>, most: Option<i64>) -> Vec<String> {
    let most = most.map_or(usize::MAX, |n| n.max(0) as usize);
    if let Some(delimiter) = delimiter {
        return text.splitn(most.saturating_add(1), delimiter).map(str::to_owned).collect();
    }
    let (mut all, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let end = match all.len() < most {
            true => rest.find(char::is_whitespace).unwrap_or(rest.len()),
            false => rest.len(),
        };
        all.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    all
}

impl OpDef for Text {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let texts = |shape: Shape| Fact::from(Type::Strings(shape));
        match self {
            Text::Constant { dims, elements } => {
                Operands::new(inputs, 0, 0)?;
                let shape = Shape::fixed(dims);
                let needed = shape.elements();
                if needed.as_const() != Some(elements.len() as i64) {
                    let got = Dim::from(elements.len() as i64);
                    return Err(TypeError::Elements { expected: needed, got });
                }
                Ok(vec![texts(shape)])
            }
            Text::Concat => {
                Operands::new(inputs, 2, 2)?;
                let (a, b) = (shape(inputs, 0)?, shape(inputs, 1)?);
                Ok(vec![texts(broadcast(&[(0, a), (1, b)])?)])
            }
            Text::Normalise { found, .. } => {
                Operands::new(inputs, 1, 1)?;
                let mut of = shape(inputs, 0)?.clone();
                match of.len() {
                    1 => {}
                    2 if of[0].as_const().is_none_or(|n| n == 1) => of[0] = Dim::from(1),
                    got => return Err(TypeError::Rank { operand: 0, min: 1, max: 2, got }),
                }
                let last = of.len() - 1;
                of[last] = found.clone();
                Ok(vec![texts(of)])
            }
            Text::Matches { pattern } => {
                Operands::new(inputs, 1, 1)?;
                whole_match(pattern)
                    .map_err(|_| attribute("pattern", "a regular expression", pattern))?;
                Ok(vec![Fact::tensor(DType::Bool, shape(inputs, 0)?.iter().cloned())])
            }
            Text::Split { delimiter, found, .. } => {
                Operands::new(inputs, 1, 1)?;
                if delimiter.as_ref().is_some_and(String::is_empty) {
                    return Err(attribute("delimiter", "a text", delimiter));
                }
                let of = shape(inputs, 0)?;
                let mut to = of.clone();
                to.push(found.clone());
                Ok(vec![texts(to), Fact::tensor(DType::I64, of.iter().cloned())])
            }
        }
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        super::check(self, inputs)?;
        let texts = |dims: &[i64], all: Vec<String>| {
            Ok::<Datum, EvalError>(Strings::new(dims, all)?.into())
        };
        match self {
            Text::Constant { dims, elements } => Ok(vec![texts(dims, elements.clone())?]),
            Text::Concat => {
                let (a, b) = (strings(inputs, 0)?, strings(inputs, 1)?);
                let (from, with) = (Shape::fixed(a.dims()), Shape::fixed(b.dims()));
                let to = broadcast(&[(0, &from), (1, &with)])?.as_fixed().unwrap_or_default();
                let shape = sizes(&to);
                let strides = [a, b].map(|s| broadcast_strides(&sizes(s.dims()), &shape));
                let mut all = Vec::new();
                for_each_run(&shape, [&strides[0], &strides[1]], |_, at| {
                    let inner = shape.len().checked_sub(1);
                    for i in 0..inner.map_or(1, |d| shape[d]) {
                        let step = |n: usize| at[n] + inner.map_or(0, |d| i * strides[n][d]);
                        let (a, b) = (&a.elements()[step(0)], &b.elements()[step(1)]);
                        all.push(format!("{a}{b}"));
                    }
                });
                Ok(vec![texts(&to, all)?])
            }
            Text::Normalise { case, case_sensitive, stop, .. } => {
                let x = strings(inputs, 0)?;
                let key = |text: &str| match case_sensitive {
                    true => text.to_owned(),
                    false => text.to_lowercase(),
                };
                let stop: Vec<String> = stop.iter().map(|word| key(word)).collect();
                let kept = x.elements().iter().filter(|text| !stop.contains(&key(text)));
                let mut all: Vec<String> =
                    kept.map(|text| case.map_or_else(|| text.clone(), |c| c.of(text))).collect();
                if all.is_empty() {
                    all.push(String::new());
                }
                let mut dims = x.dims().to_vec();
                if let Some(last) = dims.last_mut() {
                    *last = all.len() as i64;
                }
                Ok(vec![texts(&dims, all)?])
            }
            Text::Matches { pattern } => {
                let x = strings(inputs, 0)?;
                let pattern = whole_match(pattern)
                    .map_err(|_| attribute("pattern", "a regular expression", pattern))?;
                let fits: Vec<bool> = x.elements().iter().map(|t| pattern.is_match(t)).collect();
                Ok(vec![Tensor::of_bool(x.dims(), &fits).into()])
            }
            Text::Split { delimiter, most, .. } => {
                let x = strings(inputs, 0)?;
                let split = |text: &String| pieces(text, delimiter.as_deref(), *most);
                let all: Vec<Vec<String>> = x.elements().iter().map(split).collect();
                let counts: Vec<i64> = all.iter().map(|p| p.len() as i64).collect();
                let longest = counts.iter().copied().max().unwrap_or(0);
                let mut dims = x.dims().to_vec();
                dims.push(longest);
                let padded = all.into_iter().flat_map(|mut p| {
                    p.resize(longest as usize, String::new());
                    p
                });
                let padded = padded.collect();
                Ok(vec![texts(&dims, padded)?, Tensor::of(x.dims(), &counts).into()])
            }
        }
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Text {
        let mut bound = self.clone();
        if let Text::Normalise { found, .. } | Text::Split { found, .. } = &mut bound {
            *found = found.substitute(value);
        }
        bound
    }
}

/// Labels that a [`Lookup`] reads or gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Labels {
    /// Integers.
    Ints(Vec<i64>),
    /// Floats; NaN equals NaN.
    Reals(Vec<crate::Real>),
    /// Texts.
    Texts(Vec<String>),
}

impl Labels {
    fn len(&self) -> usize {
        match self {
            Labels::Ints(v) => v.len(),
            Labels::Reals(v) => v.len(),
            Labels::Texts(v) => v.len(),
        }
    }
}

/// Each element replaced by the value that goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lookup {
    /// What is looked for.
    pub keys: Labels,
    /// What is given instead; one more than there are keys: the last for what is no key.
    pub values: Labels,
    /// Element type of the result; not used for texts.
    pub to: DType,
}

impl OpDef for Lookup {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        if self.values.len() != self.keys.len() + 1 {
            let expected = format!("{} values", self.keys.len() + 1);
            return Err(attribute("values", expected, self.values.len()));
        }
        let of = match self.keys {
            Labels::Texts(_) => shape(inputs, 0)?,
            Labels::Reals(_) => &operands.float(0)?.shape,
            Labels::Ints(_) => &operands.int(0)?.shape,
        };
        Ok(vec![match self.values {
            Labels::Texts(_) => Fact::from(Type::Strings(of.clone())),
            _ => Fact::tensor(self.to, of.iter().cloned()),
        }])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        use std::collections::HashMap;
        fn places<K: std::hash::Hash + Eq>(
            keys: impl Iterator<Item = K>,
            of: impl Iterator<Item = K>,
        ) -> Vec<usize> {
            let mut map = HashMap::new();
            let mut count = 0;
            for (i, key) in keys.enumerate() {
                map.entry(key).or_insert(i);
                count = i + 1;
            }
            of.map(|key| map.get(&key).copied().unwrap_or(count)).collect()
        }
        super::check(self, inputs)?;
        let (dims, at) = match &self.keys {
            Labels::Texts(keys) => {
                let x = strings(inputs, 0)?;
                (x.dims(), places(keys.iter(), x.elements().iter()))
            }
            Labels::Ints(keys) => {
                let x = inputs.tensor(0)?;
                (x.dims(), places(keys.iter().copied(), x.to_i64().into_iter()))
            }
            Labels::Reals(keys) => {
                // Labels count as equal when they are so in the type of the operand; 0 is -0.
                let x = inputs.tensor(0)?;
                let values: Vec<f64> = keys.iter().map(|k| k.get()).collect();
                let keys = Tensor::from_f64(x.dtype(), &[values.len() as i64], &values).to_f64();
                let real = |v: f64| crate::Real::new(v + 0.0);
                (x.dims(), places(keys.into_iter().map(real), x.to_f64().into_iter().map(real)))
            }
        };
        Ok(vec![match &self.values {
            Labels::Texts(v) => {
                Strings::new(dims, at.iter().map(|&i| v[i].clone()).collect())?.into()
            }
            Labels::Ints(v) => {
                let all: Vec<i64> = at.iter().map(|&i| v[i]).collect();
                Tensor::from_i64(self.to, dims, &all).into()
            }
            Labels::Reals(v) => Tensor::generate(self.to, dims, |i| v[at[i]].get()).into(),
        }])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }
}

/// What a found n-gram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Weighting {
    /// How often it occurs.
    Count,
    /// Its weight, once.
    Weight,
    /// Its weight, as often as it occurs.
    Both,
}

/// Which n-grams of a pool occur in `[c]`, or in each row of `[b, c]`: `f32[columns]` or
/// `f32[b, columns]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ngrams {
    /// Fewest elements of an n-gram that counts.
    pub min: usize,
    /// Most elements.
    pub max: usize,
    /// Most elements left out between two of an n-gram, equally many between all.
    pub skip: usize,
    /// What one counts.
    pub weighting: Weighting,
    /// All n-grams, one after the other: integers or texts.
    pub pool: Labels,
    /// Where in the pool those of 1, 2, .. elements start.
    pub starts: Vec<usize>,
    /// The column of each n-gram.
    pub columns: Vec<usize>,
    /// The weight of each n-gram; 1 where there is none.
    pub weights: Vec<crate::Real>,
}

impl Ngrams {
    /// Number of columns.
    fn width(&self) -> usize {
        self.columns.iter().max().map_or(0, |c| c + 1)
    }

    /// Ranges in the pool of the n-grams, in order.
    fn grams(&self) -> Vec<std::ops::Range<usize>> {
        let mut all = Vec::new();
        for (i, &start) in self.starts.iter().enumerate() {
            let end = self.starts.get(i + 1).copied().unwrap_or(self.pool.len());
            all.extend((start..end).step_by(i + 1).map(|at| at..at + i + 1));
        }
        all
    }

    fn count<K: std::hash::Hash + Eq + Clone>(
        &self,
        pool: &[K],
        rows: &[K],
        width: usize,
    ) -> Vec<f64> {
        let grams = self.grams();
        let places: std::collections::HashMap<&[K], usize> =
            grams.iter().enumerate().map(|(i, r)| (&pool[r.clone()], i)).collect();
        let columns = self.width();
        let mut out = vec![0.0; rows.len() / width.max(1) * columns];
        for (row, out) in rows.chunks(width.max(1)).zip(out.chunks_mut(columns.max(1))) {
            let mut found = vec![0u64; grams.len()];
            for step in 1..=self.skip + 1 {
                for size in self.min..=self.max {
                    // Of one element nothing can be left out.
                    if size == 1 && step > 1 {
                        continue;
                    }
                    for start in 0..row.len() {
                        if start + (size - 1) * step >= row.len() {
                            break;
                        }
                        let gram: Vec<K> =
                            (0..size).map(|i| row[start + i * step].clone()).collect();
                        if let Some(&i) = places.get(gram.as_slice()) {
                            found[i] += 1;
                        }
                    }
                }
            }
            for (i, &times) in found.iter().enumerate().filter(|(_, times)| **times > 0) {
                let weight = self.weights.get(i).map_or(1.0, |w| w.get());
                let slot = &mut out[self.columns[i]];
                match self.weighting {
                    Weighting::Count => *slot += times as f64,
                    Weighting::Weight => *slot = weight,
                    Weighting::Both => *slot += times as f64 * weight,
                }
            }
        }
        out
    }
}

impl OpDef for Ngrams {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let of = match self.pool {
            Labels::Texts(_) => shape(inputs, 0)?.clone(),
            _ => operands.int(0)?.shape.clone(),
        };
        let t = TensorType { dtype: DType::F32, shape: of };
        expect_rank(0, &t, 1, 2)?;
        let rising = self.starts.windows(2).all(|w| w[0] <= w[1]);
        let last = self.starts.last().copied().unwrap_or(0);
        if !rising || last > self.pool.len() || self.min < 1 || self.max < self.min {
            return Err(attribute("starts", "rising positions in the pool", &self.starts));
        }
        let whole = self.starts.iter().enumerate().all(|(i, &start)| {
            let end = self.starts.get(i + 1).copied().unwrap_or(self.pool.len());
            (end - start) % (i + 1) == 0
        });
        let weighed = self.weights.is_empty() || self.weights.len() == self.columns.len();
        if !whole || self.columns.len() != self.grams().len() || !weighed {
            let expected = format!("{} n-grams", self.columns.len());
            return Err(attribute("columns", expected, self.pool.len()));
        }
        let mut shape = t.shape;
        let last = shape.len() - 1;
        shape[last] = Dim::from(self.width() as i64);
        Ok(vec![Fact::tensor(DType::F32, shape.0)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = super::results(self, inputs)?.swap_remove(0);
        let width = |dims: &[i64]| dims.last().map_or(0, |&d| d as usize);
        let values = match &self.pool {
            Labels::Texts(pool) => {
                let x = strings(inputs, 0)?;
                self.count(pool, x.elements(), width(x.dims()))
            }
            Labels::Ints(pool) => {
                let x = inputs.tensor(0)?;
                self.count(pool, &x.to_i64(), width(x.dims()))
            }
            Labels::Reals(_) => return Err(attribute("pool", "integers or texts", "floats").into()),
        };
        let mut values = values;
        // A row of no elements has no n-grams.
        values.resize(dims.iter().product::<i64>() as usize, 0.0);
        super::elements::one(Tensor::from_f64(dtype, &dims, &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }
}

/// Whether an op only moves elements, and so takes texts too.
fn moves(op: &Op) -> bool {
    use super::{Dynamic, Late, Scatter, Unary};
    match op {
        Op::Unary(f) => *f == Unary::Identity,
        Op::ScatterElements(s) => s.reduction == Scatter::Replace,
        Op::ScatterNd(s) => s.reduction == Scatter::Replace,
        Op::Dynamic(Dynamic { op, .. }) => !matches!(op, Late::Range | Late::Pad(_)),
        _ => matches!(
            op,
            Op::Reshape(_)
                | Op::Transpose(_)
                | Op::Expand(_)
                | Op::Tile(_)
                | Op::Concat(_)
                | Op::Split(_)
                | Op::Slice(_)
                | Op::Gather(_)
                | Op::GatherElements(_)
                | Op::GatherNd(_)
                | Op::Select(_)
                | Op::Compress(_)
        ),
    }
}

/// Whether an op compares elements, and so takes texts too.
fn compares(op: &Op) -> bool {
    matches!(op, Op::Binary(super::Binary::Equal) | Op::Unique(_))
}

/// Whether the op has a meaning for texts that follows from one for their numbers.
fn by_number(op: &Op, mut any: impl Iterator<Item = bool>) -> bool {
    any.any(|strings| strings) && (moves(op) || compares(op))
}

/// Results that are texts again, where the operands are.
fn is_text(op: &Op, output: usize) -> bool {
    moves(op) || (matches!(op, Op::Unique(_)) && output == 0)
}

/// Inference for texts, of which the op sees numbers.
pub(super) fn infer_by_number(
    op: &Op,
    inputs: &[Option<&Fact>],
) -> Option<Result<Vec<Fact>, TypeError>> {
    let is = |f: &Option<&Fact>| f.is_some_and(|f| matches!(f.ty, Type::Strings(_)));
    if !by_number(op, inputs.iter().map(is)) {
        return None;
    }
    let numbered: Vec<Option<Fact>> = inputs
        .iter()
        .map(|f| {
            f.map(|f| match &f.ty {
                Type::Strings(shape) => Fact::tensor(DType::I64, shape.iter().cloned()),
                _ => f.clone(),
            })
        })
        .collect();
    let refs: Vec<Option<&Fact>> = numbered.iter().map(Option::as_ref).collect();
    let back = |(i, fact): (usize, Fact)| match fact.ty {
        Type::Tensor(t) if is_text(op, i) => Fact::from(Type::Strings(t.shape)),
        _ => fact,
    };
    let facts = op.infer_types(&refs);
    Some(facts.map(|facts| facts.into_iter().enumerate().map(back).collect()))
}

/// Evaluation for texts: each is replaced by its place among all of them in order, and back.
pub(super) fn eval_by_number(
    op: &Op,
    inputs: &Inputs<'_>,
) -> Option<Result<Vec<Datum>, EvalError>> {
    let is = |d: &Option<&Datum>| matches!(d, Some(Datum::Strings(_)));
    if !by_number(op, inputs.0.iter().map(is)) {
        return None;
    }
    let mut all: Vec<&str> = Vec::new();
    for datum in inputs.0.iter().flatten() {
        if let Datum::Strings(s) = datum {
            all.extend(s.elements().iter().map(String::as_str));
        }
    }
    all.sort_unstable();
    all.dedup();
    let numbered: Vec<Option<Datum>> = inputs
        .0
        .iter()
        .map(|d| {
            d.map(|d| match d {
                Datum::Strings(s) => {
                    let place = |t: &String| all.partition_point(|&a| a < t.as_str()) as i64;
                    let places: Vec<i64> = s.elements().iter().map(place).collect();
                    Tensor::of(s.dims(), &places).into()
                }
                other => other.clone(),
            })
        })
        .collect();
    let refs: Vec<Option<&Datum>> = numbered.iter().map(Option::as_ref).collect();
    let back = |(i, datum): (usize, Datum)| match datum {
        Datum::Tensor(t) if is_text(op, i) => {
            let texts = t.to_i64().iter().map(|&p| all[p as usize].to_owned()).collect();
            Ok(Strings::new(t.dims(), texts)?.into())
        }
        other => Ok(other),
    };
    let results = op.eval_numbers(&Inputs(&refs));
    Some(results.and_then(|all| all.into_iter().enumerate().map(back).collect()))
}
