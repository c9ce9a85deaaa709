//! Operators that only training needs.

use super::at::{At, Fault, Imported, Step, malformed};
use bricolage_ir::{
    Real, ValueId,
    ops::{BatchNorm, Binary, Cast, Reduce, ReduceKind, Select, Unary},
};
use bricolage_tensor::{DType, Dim};

/// Arithmetic on values of one element type.
struct Sums<'x, 'a, 'm> {
    at: &'x mut At<'a, 'm>,
    dtype: DType,
}

impl Sums<'_, '_, '_> {
    fn on(&mut self, f: Binary, a: ValueId, b: ValueId) -> Step {
        self.at.add(f, &[a, b])
    }

    /// `f` of a value and a number.
    fn with(&mut self, f: Binary, a: ValueId, number: f64) -> Step {
        let number = self.at.scalar(self.dtype, number);
        self.at.add(f, &[a, number])
    }

    /// `f` of a number and a value.
    fn from(&mut self, f: Binary, number: f64, a: ValueId) -> Step {
        let number = self.at.scalar(self.dtype, number);
        self.at.add(f, &[number, a])
    }

    /// `a * share + b * (1 - share)`.
    fn mixed(&mut self, a: ValueId, b: ValueId, share: f64) -> Step {
        let (a, b) = (self.with(Binary::Mul, a, share)?, self.with(Binary::Mul, b, 1.0 - share)?);
        self.on(Binary::Add, a, b)
    }

    /// `x` divided by `sqrt(squares) + epsilon`.
    fn scaled(&mut self, x: ValueId, squares: ValueId, epsilon: f64) -> Step {
        let root = self.at.add(Unary::Sqrt, &[squares])?;
        let root = self.with(Binary::Add, root, epsilon)?;
        self.on(Binary::Div, x, root)
    }
}

/// Learning rate and number of updates so far, in the type of the tensors.
struct Progress {
    rate: ValueId,
    count: ValueId,
}

/// Applies `update` to every tensor: operands are the rate, the count, all tensors, all gradients, and
/// `states` lists of as many states; results are all tensors and then these lists.
fn updates(
    at: &mut At<'_, '_>,
    states: usize,
    mut update: impl FnMut(&mut Sums<'_, '_, '_>, &Progress, &[ValueId]) -> Result<Vec<ValueId>, Fault>,
) -> Imported {
    let all = at.all(2, usize::MAX)?;
    let lists = states + 2;
    let count = (all.len() - 2) / lists;
    if count == 0 || all.len() != 2 + count * lists {
        return malformed(format!(
            "needs 2 operands and {lists} for every tensor, found {}",
            all.len()
        ));
    }
    let mut results = vec![Vec::new(); states + 1];
    for i in 0..count {
        let own: Vec<ValueId> = (0..lists).map(|l| all[2 + l * count + i]).collect();
        let dtype = at.ty(own[0])?.dtype;
        let mut scalar = |v| match at.ty(v)?.dtype == dtype {
            true => Ok(v),
            false => at.add(Cast::to(dtype), &[v]),
        };
        let step = Progress { rate: scalar(all[0])?, count: scalar(all[1])? };
        let new = update(&mut Sums { at, dtype }, &step, &own)?;
        results.iter_mut().zip(new).for_each(|(list, v)| list.push(v));
    }
    Ok(results.concat())
}

/// The gradient with that of the penalty `norm / 2 * x^2`.
fn penalised(s: &mut Sums<'_, '_, '_>, x: ValueId, gradient: ValueId, norm: f64) -> Step {
    let pull = s.with(Binary::Mul, x, norm)?;
    s.on(Binary::Add, pull, gradient)
}

pub(crate) fn adagrad(at: &mut At<'_, '_>) -> Imported {
    let norm = f64::from(at.float("norm_coefficient", 0.0)?);
    let epsilon = f64::from(at.float("epsilon", 1e-6)?);
    let decay = f64::from(at.float("decay_factor", 0.0)?);
    updates(at, 1, |s, step, own| {
        let [x, gradient, squares] = own else { return Ok(Vec::new()) };
        let slower = s.with(Binary::Mul, step.count, decay)?;
        let slower = s.with(Binary::Add, slower, 1.0)?;
        let rate = s.on(Binary::Div, step.rate, slower)?;
        let gradient = penalised(s, *x, *gradient, norm)?;
        let square = s.on(Binary::Mul, gradient, gradient)?;
        let squares = s.on(Binary::Add, *squares, square)?;
        let wide = s.on(Binary::Mul, rate, gradient)?;
        let move_by = s.scaled(wide, squares, epsilon)?;
        Ok(vec![s.on(Binary::Sub, *x, move_by)?, squares])
    })
}

pub(crate) fn adam(at: &mut At<'_, '_>) -> Imported {
    let (alpha, beta) = (f64::from(at.float("alpha", 0.9)?), f64::from(at.float("beta", 0.999)?));
    let norm = f64::from(at.float("norm_coefficient", 0.0)?);
    let after = f64::from(at.float("norm_coefficient_post", 0.0)?);
    let epsilon = f64::from(at.float("epsilon", 1e-6)?);
    updates(at, 2, |s, step, own| {
        let [x, gradient, mean, squares] = own else { return Ok(Vec::new()) };
        let gradient = penalised(s, *x, *gradient, norm)?;
        let mean = s.mixed(*mean, gradient, alpha)?;
        let square = s.on(Binary::Mul, gradient, gradient)?;
        let squares = s.mixed(*squares, square, beta)?;
        // The first averages are too small, for they start at 0.
        let missing = |s: &mut Sums<'_, '_, '_>, share: f64| {
            let power = s.from(Binary::Pow, share, step.count)?;
            s.from(Binary::Sub, 1.0, power)
        };
        let (of_squares, of_mean) = (missing(s, beta)?, missing(s, alpha)?);
        let root = s.at.add(Unary::Sqrt, &[of_squares])?;
        let rate = s.on(Binary::Mul, step.rate, root)?;
        let rate = s.on(Binary::Div, rate, of_mean)?;
        let later = s.with(Binary::Greater, step.count, 0.0)?;
        let rate = s.at.add(Select, &[later, rate, step.rate])?;
        let direction = s.scaled(mean, squares, epsilon)?;
        let move_by = s.on(Binary::Mul, rate, direction)?;
        let moved = s.on(Binary::Sub, *x, move_by)?;
        Ok(vec![s.with(Binary::Mul, moved, 1.0 - after)?, mean, squares])
    })
}

pub(crate) fn momentum(at: &mut At<'_, '_>) -> Imported {
    let (alpha, beta) = (f64::from(at.float("alpha", 0.0)?), f64::from(at.float("beta", 0.0)?));
    let norm = f64::from(at.float("norm_coefficient", 0.0)?);
    let ahead = match at.text("mode", "")?.as_str() {
        "standard" => false,
        "nesterov" => true,
        other => {
            return malformed(format!("needs `mode` to be standard or nesterov, found `{other}`"));
        }
    };
    updates(at, 1, |s, step, own| {
        let [x, gradient, speed] = own else { return Ok(Vec::new()) };
        let gradient = penalised(s, *x, *gradient, norm)?;
        let later = s.with(Binary::Greater, step.count, 0.0)?;
        let (beta, one) = (s.at.scalar(s.dtype, beta), s.at.scalar(s.dtype, 1.0));
        let share = s.at.add(Select, &[later, beta, one])?;
        let pushed = s.on(Binary::Mul, share, gradient)?;
        let kept = s.with(Binary::Mul, *speed, alpha)?;
        let speed = s.on(Binary::Add, kept, pushed)?;
        let mut direction = speed;
        if ahead {
            let next = s.with(Binary::Mul, speed, alpha)?;
            direction = s.on(Binary::Add, gradient, next)?;
        }
        let move_by = s.on(Binary::Mul, step.rate, direction)?;
        Ok(vec![s.on(Binary::Sub, *x, move_by)?, speed])
    })
}

/// Normalisation by the statistics of the batch, which move the running ones.
pub(crate) fn batch_norm(at: &mut At<'_, '_>, all: &[ValueId], epsilon: Real) -> Imported {
    let momentum = f64::from(at.float("momentum", 0.9)?);
    let ty = at.ty(all[0])?;
    let rank = ty.shape.len();
    if rank < 2 {
        return malformed(format!("needs operand 0 to have channels, found {rank} dims"));
    }
    let wide = if ty.dtype.bits() < 32 { DType::F32 } else { ty.dtype };
    let x = if wide == ty.dtype { all[0] } else { at.add(Cast::to(wide), &[all[0]])? };
    let axes: Vec<usize> = (0..rank).filter(|&d| d != 1).collect();
    let mean_of = |keep_dims| Reduce { kind: ReduceKind::Mean, axes: axes.clone(), keep_dims };
    let middle = at.add(mean_of(true), &[x])?;
    let centred = at.add(Binary::Sub, &[x, middle])?;
    let squares = at.add(Binary::Mul, &[centred, centred])?;
    let variance = at.add(mean_of(false), &[squares])?;
    let mean = at.reshape(middle, vec![ty.shape.get(1).cloned().unwrap_or(Dim::from(1))])?;
    let mut results =
        vec![at.add(BatchNorm { epsilon }, &[all[0], all[1], all[2], mean, variance])?];
    for (running, current) in [(all[3], mean), (all[4], variance)] {
        let dtype = at.ty(running)?.dtype;
        let current = if dtype == wide { current } else { at.add(Cast::to(dtype), &[current])? };
        results.push(Sums { at, dtype }.mixed(running, current, momentum)?);
    }
    Ok(results)
}
