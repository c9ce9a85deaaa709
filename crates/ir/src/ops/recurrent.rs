//! Recurrent layers: simple, gated and long short-term memory cells run along a sequence.
//!
//! The equations are those of the ONNX operators `RNN`, `GRU` and `LSTM`.

use super::{
    OpDef,
    elements::sizes,
    results,
    types::{Operands, attribute, differ, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Real, TypeError, Work, cost};
use bricolage_tensor::{Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// What happens at one step; `x` is the step's input, `h` the state before, `h'` after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cell {
    /// `h' = f(x W + h R + b)`.
    Simple,
    /// Gates `z` and `r`, candidate `g`: `h' = (1 - z) g + z h`.
    Gru {
        /// The reset gate multiplies `h R + b` instead of `h`.
        linear_before_reset: bool,
    },
    /// Gates `i`, `o` and `f`, cell `c`: `c' = f c + i g(..)`, `h' = o h(c')`.
    Lstm {
        /// The forget gate is `1 - i`.
        input_forget: bool,
    },
}

impl Cell {
    /// Blocks of the weights: gates and candidate.
    pub fn gates(self) -> i64 {
        match self {
            Cell::Simple => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// Functions that one direction needs: for the gates, the candidate, the cell's way out.
    pub fn functions(self) -> usize {
        match self {
            Cell::Simple => 1,
            Cell::Gru { .. } => 2,
            Cell::Lstm { .. } => 3,
        }
    }
}

/// Which way along the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// From the first step on.
    Forward,
    /// From the last valid step back.
    Reverse,
    /// Both, with weights of their own.
    Both,
}

impl Direction {
    /// How many directions.
    pub fn count(self) -> i64 {
        if self == Direction::Both { 2 } else { 1 }
    }
}

/// A function of a gate, a candidate or a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Activation {
    Sigmoid,
    Tanh,
    Relu,
    Softsign,
    Softplus,
    /// `alpha x + beta`.
    Affine {
        alpha: Real,
        beta: Real,
    },
    /// `alpha tanh(beta x)`.
    ScaledTanh {
        alpha: Real,
        beta: Real,
    },
    /// `alpha x + beta`, limited to 0 and 1.
    HardSigmoid {
        alpha: Real,
        beta: Real,
    },
    /// `alpha x` below 0.
    LeakyRelu {
        alpha: Real,
    },
    /// 0 below `alpha`.
    ThresholdedRelu {
        alpha: Real,
    },
    /// `alpha (exp(x) - 1)` below 0.
    Elu {
        alpha: Real,
    },
}

impl Activation {
    /// The function's value.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Tanh => x.tanh(),
            Activation::Relu => x.max(0.0),
            Activation::Softsign => x / (1.0 + x.abs()),
            Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Activation::Affine { alpha, beta } => alpha.get() * x + beta.get(),
            Activation::ScaledTanh { alpha, beta } => alpha.get() * (beta.get() * x).tanh(),
            Activation::HardSigmoid { alpha, beta } => {
                (alpha.get() * x + beta.get()).clamp(0.0, 1.0)
            }
            Activation::LeakyRelu { alpha } if x < 0.0 => alpha.get() * x,
            Activation::Elu { alpha } if x < 0.0 => alpha.get() * x.exp_m1(),
            Activation::ThresholdedRelu { alpha } if x <= alpha.get() => 0.0,
            _ => x,
        }
    }
}

/// A recurrent layer over a sequence of `s` steps, `b` sequences at once, `d` directions, `i`
/// inputs and `h` hidden units, with `g` blocks of weights ([`Cell::gates`]).
///
/// Operands: the sequences `[s, b, i]`; weights of the input `[d, g h, i]` and of the state
/// `[d, g h, h]`; optionally the biases of both, one after the other, `[d, 2 g h]`; the number of
/// valid steps of each sequence, integers `[b]`; the state before `[d, b, h]`; and, for an LSTM, the
/// cell before `[d, b, h]` and peephole weights `[d, 3 h]`. Blocks are in the order `i o f c` for an
/// LSTM (peepholes `i o f`) and `z r h` for a GRU.
///
/// Results: the states of all steps `[s, d, b, h]`, which are 0 beyond a sequence's valid steps; the
/// state after the last valid step `[d, b, h]`; and the LSTM's cell after it, `[d, b, h]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recurrent {
    /// What happens at one step.
    pub cell: Cell,
    /// Which way along the sequence.
    pub direction: Direction,
    /// [`Cell::functions`] for every direction.
    pub activations: Vec<Activation>,
    /// What gates and candidates are made of is first limited to this magnitude; a cell is not.
    pub clip: Option<Real>,
}

/// Positions of the operands.
const LENGTHS: usize = 4;
const HIDDEN: usize = 5;
const CELL: usize = 6;
const PEEPHOLES: usize = 7;

/// Weights of one direction.
struct Weights<'a> {
    input: &'a [f64],
    state: &'a [f64],
    bias: Option<&'a [f64]>,
    peepholes: Option<&'a [f64]>,
}

/// Sum of products of a row of weights and a vector.
fn dot(row: &[f64], x: &[f64]) -> f64 {
    row.iter().zip(x).map(|(a, b)| a * b).sum()
}

impl Recurrent {
    fn lstm(&self) -> bool {
        matches!(self.cell, Cell::Lstm { .. })
    }

    fn most_operands(&self) -> usize {
        if self.lstm() { PEEPHOLES + 1 } else { HIDDEN + 1 }
    }

    /// One step of one sequence: changes `h` and `c`.
    fn step(
        &self,
        w: &Weights<'_>,
        functions: &[Activation],
        x: &[f64],
        h: &mut [f64],
        c: &mut [f64],
    ) {
        let n = h.len();
        let limit = self.clip.map_or(f64::INFINITY, Real::get);
        let act = |f: usize, v: f64| functions[f].at(v.clamp(-limit, limit));
        let input = |block: usize, j: usize| {
            let row = block * n + j;
            dot(&w.input[row * x.len()..][..x.len()], x) + w.bias.map_or(0.0, |b| b[row])
        };
        let gates = self.cell.gates() as usize;
        let row = |block: usize, j: usize| &w.state[(block * n + j) * n..][..n];
        let bias = |block: usize, j: usize| w.bias.map_or(0.0, |b| b[(gates + block) * n + j]);
        let state = |block: usize, j: usize, h: &[f64]| dot(row(block, j), h) + bias(block, j);
        match self.cell {
            Cell::Simple => {
                let next: Vec<f64> = (0..n).map(|j| act(0, input(0, j) + state(0, j, h))).collect();
                h.copy_from_slice(&next);
            }
            Cell::Gru { linear_before_reset } => {
                let gate = |block: usize| -> Vec<f64> {
                    (0..n).map(|j| act(0, input(block, j) + state(block, j, h))).collect()
                };
                let (z, r) = (gate(0), gate(1));
                let reset: Vec<f64> = r.iter().zip(h.iter()).map(|(r, h)| r * h).collect();
                let next = |j: usize| {
                    let inner = match linear_before_reset {
                        true => r[j] * state(2, j, h),
                        false => state(2, j, &reset),
                    };
                    (1.0 - z[j]) * act(1, input(2, j) + inner) + z[j] * h[j]
                };
                let next: Vec<f64> = (0..n).map(next).collect();
                h.copy_from_slice(&next);
            }
            Cell::Lstm { input_forget } => {
                let peep = |block: usize, j: usize, c: f64| {
                    w.peepholes.map_or(0.0, |p| p[block * n + j] * c)
                };
                let mut next_h = vec![0.0; n];
                for j in 0..n {
                    let sum = |block: usize| input(block, j) + state(block, j, h);
                    let i = act(0, sum(0) + peep(0, j, c[j]));
                    let f = match input_forget {
                        true => 1.0 - i,
                        false => act(0, sum(2) + peep(2, j, c[j])),
                    };
                    let next = f * c[j] + i * act(1, sum(3));
                    let o = act(0, sum(1) + peep(1, j, next));
                    c[j] = next;
                    next_h[j] = o * functions[2].at(next);
                }
                h.copy_from_slice(&next_h);
            }
        }
    }
}

impl OpDef for Recurrent {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, self.most_operands())?;
        let (x, w, r) = (operands.float(0)?, operands.float(1)?, operands.float(2)?);
        for (i, t) in [x, w, r].into_iter().enumerate() {
            expect_rank(i, t, 3, 3)?;
        }
        let (d, g) = (self.direction.count(), Dim::from(self.cell.gates()));
        let needed = self.cell.functions() * d as usize;
        if self.activations.len() != needed {
            let expected = format!("{needed} functions");
            return Err(attribute("activations", expected, self.activations.len()));
        }
        if let Some(limit) = self.clip.map(Real::get)
            && (limit.is_nan() || limit < 0.0)
        {
            return Err(attribute("clip", "a number of at least 0", limit));
        }
        let (steps, batch, width) = (&x.shape[0], &x.shape[1], &x.shape[2]);
        let hidden = &r.shape[2];
        let (d, rows) = (Dim::from(d), &g * hidden);
        let expected: [(usize, Vec<Dim>); 7] = [
            (1, vec![d.clone(), rows.clone(), width.clone()]),
            (2, vec![d.clone(), rows.clone(), hidden.clone()]),
            (3, vec![d.clone(), &Dim::from(2) * &rows]),
            (LENGTHS, vec![batch.clone()]),
            (HIDDEN, vec![d.clone(), batch.clone(), hidden.clone()]),
            (CELL, vec![d.clone(), batch.clone(), hidden.clone()]),
            (PEEPHOLES, vec![d.clone(), &Dim::from(3) * hidden]),
        ];
        for (operand, shape) in &expected {
            let Some(t) = operands.optional(*operand)? else { continue };
            expect_rank(*operand, t, shape.len(), shape.len())?;
            if *operand == LENGTHS {
                operands.int(LENGTHS)?;
            } else {
                operands.same_dtype(0, *operand)?;
            }
            for (dim, (got, expected)) in t.shape.iter().zip(shape).enumerate() {
                if differ(got, expected) {
                    let (expected, got) = (expected.clone(), got.clone());
                    return Err(TypeError::Dim { operand: *operand, dim, expected, got });
                }
            }
        }
        let last = Fact::tensor(x.dtype, [d.clone(), batch.clone(), hidden.clone()]);
        let all = [steps.clone(), d, batch.clone(), hidden.clone()];
        let mut outputs = vec![Fact::tensor(x.dtype, all), last.clone()];
        if self.lstm() {
            outputs.push(last);
        }
        Ok(outputs)
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let types = results(self, inputs)?;
        let all = sizes(&types[0].1);
        let (steps, directions, batch, n) = (all[0], all[1], all[2], all[3]);
        let x = inputs.tensor(0)?;
        let width = x.dims()[2] as usize;
        let rows = self.cell.gates() as usize * n;
        let floats = |i: usize| -> Result<Option<Vec<f64>>, EvalError> {
            Ok(inputs.optional(i)?.map(Tensor::to_f64))
        };
        let (x, w, r) = (x.to_f64(), inputs.tensor(1)?.to_f64(), inputs.tensor(2)?.to_f64());
        let (bias, peepholes) = (floats(3)?, floats(PEEPHOLES)?);
        let blank = || vec![0.0; directions * batch * n];
        let mut h = floats(HIDDEN)?.unwrap_or_else(blank);
        let mut c = floats(CELL)?.unwrap_or_else(blank);
        let lengths = match inputs.optional(LENGTHS)? {
            None => vec![steps; batch],
            Some(t) => {
                let inside = |l: i64| (0..=steps as i64).contains(&l).then_some(l as usize);
                let bad = |l: i64| EvalError::Domain {
                    operand: LENGTHS,
                    what: format!("the length {l} for sequences of {steps} steps"),
                };
                let all = t.to_i64().into_iter().map(|l| inside(l).ok_or_else(|| bad(l)));
                all.collect::<Result<Vec<usize>, EvalError>>()?
            }
        };
        let mut states = vec![0.0; steps * directions * batch * n];
        for d in 0..directions {
            let weights = Weights {
                input: &w[d * rows * width..][..rows * width],
                state: &r[d * rows * n..][..rows * n],
                bias: bias.as_ref().map(|b| &b[d * 2 * rows..][..2 * rows]),
                peepholes: peepholes.as_ref().map(|p| &p[d * 3 * n..][..3 * n]),
            };
            let count = self.cell.functions();
            let functions = &self.activations[d * count..][..count];
            let back = self.direction == Direction::Reverse || d == 1;
            for (b, &length) in lengths.iter().enumerate() {
                let at = (d * batch + b) * n;
                for step in 0..length {
                    let step = if back { length - 1 - step } else { step };
                    let x = &x[(step * batch + b) * width..][..width];
                    self.step(&weights, functions, x, &mut h[at..at + n], &mut c[at..at + n]);
                    let to = ((step * directions + d) * batch + b) * n;
                    states[to..to + n].copy_from_slice(&h[at..at + n]);
                }
            }
        }
        let round = |i: usize, v: &[f64]| Datum::from(Tensor::from_f64(types[i].0, &types[i].1, v));
        let mut outputs = vec![round(0, &states), round(1, &h)];
        if self.lstm() {
            outputs.push(round(2, &c));
        }
        Ok(outputs)
    }

    /// Sequences are independent of each other.
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(x), Ok(r)) = (operands.tensor(0), operands.tensor(2)) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::new(inputs.len(), outputs.len());
        let b = map.add("b", &x.shape[1], AxisKind::Parallel);
        let mut opaque = |name, extent: &Dim| map.add(name, extent, AxisKind::Opaque);
        let s = opaque("s", &x.shape[0]);
        let d = opaque("d", &Dim::from(self.direction.count()));
        let i = opaque("i", &x.shape[2]);
        let h = opaque("h", &r.shape[2]);
        let rows = opaque("g", &r.shape[1]);
        let k = opaque("k", &r.shape[2]);
        let twice = opaque("bias", &(&Dim::from(2) * &r.shape[1]));
        let peepholes = opaque("p", &(&Dim::from(3) * &r.shape[2]));
        let of = |operand: usize| match operand {
            0 => vec![s, b, i],
            1 => vec![d, rows, i],
            2 => vec![d, rows, k],
            3 => vec![d, twice],
            LENGTHS => vec![b],
            PEEPHOLES => vec![d, peepholes],
            _ => vec![d, b, h],
        };
        for (operand, fact) in inputs.iter().enumerate() {
            map.inputs[operand] = fact.map(|_| of(operand).into_iter().map(Index::axis).collect());
        }
        for (output, index) in map.outputs.iter_mut().enumerate() {
            let all = if output == 0 { vec![s, d, b, h] } else { vec![d, b, h] };
            *index = all.into_iter().map(Index::axis).collect();
        }
        map
    }

    /// For every step, sequence and row of weights, one multiply-add per input and per hidden unit.
    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        let states = outputs.first()?.ty.as_tensor()?.shape.element_count()?;
        let width = inputs.first()?.as_ref()?.ty.as_tensor()?.shape[2].as_const()?;
        let hidden = outputs[0].ty.as_tensor()?.shape[3].as_const()?;
        let points = states
            .checked_mul(self.cell.gates() as u64)?
            .checked_mul(u64::try_from(width.checked_add(hidden)?).ok()?)?;
        let facts = inputs.iter().flatten().copied().chain(outputs);
        let bytes = facts.map(cost::byte_len).sum::<Option<u64>>()?;
        Some(Work { points, macs: points, bytes })
    }
}
