//! The discrete Fourier transform.

use super::{
    OpDef,
    elements::{one, sizes},
    results,
    types::{Operands, attribute, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, TypeError};
use bricolage_tensor::{Datum, Dim, Symbol, Tensor};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// `sum over n of exp(-2 pi i k n / length) x[n]` along a dim, or with `inverse` its inverse, which divides
/// by `length`.
///
/// The last dim of `x` is 1 for real numbers and 2 for complex ones, real part first; that of the result
/// is 2. Of the operand, positions from `length` on are left out, and missing ones are 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dft {
    /// The dim; not the last.
    pub axis: usize,
    /// Number of terms of each sum.
    pub length: Dim,
    /// Divides by `length`, and takes the other sign in the exponent.
    pub inverse: bool,
    /// The first `length / 2 + 1` positions tell the others, which are their conjugates: the result
    /// of a transform has only these; an inverse reads only these and gives real numbers, its last
    /// dim 1.
    pub one_sided: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn plus(self, other: Complex) -> Complex {
        Complex { re: self.re + other.re, im: self.im + other.im }
    }

    fn times(self, other: Complex) -> Complex {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

/// The transform of every `step`-th element of `x` from `start` on: `roots[i]` is `exp(-2 pi i / n)` to the
/// power of `i` for the whole length `n`. Even lengths are halved (Cooley and Tukey, 1965), odd ones summed
/// as they are.
fn transform(x: &[Complex], start: usize, step: usize, roots: &[Complex]) -> Vec<Complex> {
    let n = roots.len();
    let length = n / step;
    if length.is_multiple_of(2) && length > 2 {
        let even = transform(x, start, 2 * step, roots);
        let odd = transform(x, start + step, 2 * step, roots);
        let half = length / 2;
        let at = |k: usize| even[k % half].plus(odd[k % half].times(roots[k * step % n]));
        return (0..length).map(at).collect();
    }
    let term = |k: usize, i: usize| x[start + i * step].times(roots[i * k % length * step]);
    let at = |k| (0..length).map(|i| term(k, i)).fold(Complex::default(), Complex::plus);
    (0..length).map(at).collect()
}

impl Dft {
    /// Positions of a half of the spectrum.
    fn half(&self) -> Dim {
        self.length.floor_div(&Dim::from(2)) + Dim::from(1)
    }

    /// One lane: `read` gives the operand's elements, of which there are `count`.
    fn lane(
        &self,
        length: usize,
        roots: &[Complex],
        count: usize,
        read: impl Fn(usize) -> Complex,
    ) -> Vec<Complex> {
        let mut x = vec![Complex::default(); length];
        if self.inverse && self.one_sided {
            for (i, slot) in x.iter_mut().enumerate() {
                let mirrored = i > length / 2;
                let from = if mirrored { length - i } else { i };
                let found = if from < count { read(from) } else { Complex::default() };
                // A number that is its own conjugate is real.
                let own = from == 0 || 2 * from == length;
                let im = if own { 0.0 } else { found.im };
                *slot = Complex { re: found.re, im: if mirrored { -im } else { im } };
            }
        } else {
            x.iter_mut().enumerate().take(count).for_each(|(i, slot)| *slot = read(i));
        }
        if !self.inverse {
            return transform(&x, 0, 1, roots);
        }
        // The inverse is the conjugate of the transform of the conjugate.
        x.iter_mut().for_each(|c| c.im = -c.im);
        let of = |c: Complex| Complex { re: c.re / length as f64, im: -c.im / length as f64 };
        transform(&x, 0, 1, roots).into_iter().map(of).collect()
    }
}

impl OpDef for Dft {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.float(0)?;
        expect_rank(0, t, 2, usize::MAX)?;
        let last = t.shape.len() - 1;
        if self.axis >= last {
            return Err(TypeError::Axis { axis: self.axis, rank: last });
        }
        if !matches!(t.shape[last].as_const(), Some(1 | 2)) {
            let (expected, got) = (Dim::from(2), t.shape[last].clone());
            return Err(TypeError::Dim { operand: 0, dim: last, expected, got });
        }
        if self.length.as_const().is_some_and(|n| n < 1) {
            return Err(attribute("length", "above 0", &self.length));
        }
        let mut shape = t.shape.clone();
        shape[self.axis] =
            if self.one_sided && !self.inverse { self.half() } else { self.length.clone() };
        shape[last] = Dim::from(if self.one_sided && self.inverse { 1 } else { 2 });
        Ok(vec![Fact::tensor(t.dtype, shape.0)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let length = &self.length;
        let length =
            length.as_const().ok_or_else(|| EvalError::Symbolic { dim: length.clone() })? as usize;
        let (x, from, to) = (t.to_f64(), sizes(t.dims()), sizes(&dims));
        let (parts, wide) = (from[from.len() - 1], to[to.len() - 1]);
        let inner: usize = from[self.axis + 1..from.len() - 1].iter().product();
        let outer: usize = from[..self.axis].iter().product();
        let (count, positions) = (from[self.axis], to[self.axis]);
        let angle = |i: usize| -TAU * i as f64 / length as f64;
        let root = |i| Complex { re: f64::cos(angle(i)), im: f64::sin(angle(i)) };
        let roots: Vec<Complex> = (0..length).map(root).collect();
        let mut values = vec![0.0; to.iter().product()];
        for o in 0..outer {
            for i in 0..inner {
                let read = |at: usize| {
                    let flat = ((o * count + at) * inner + i) * parts;
                    Complex { re: x[flat], im: if parts == 2 { x[flat + 1] } else { 0.0 } }
                };
                let lane = self.lane(length, &roots, count.min(length), read);
                for (at, c) in lane.iter().enumerate().take(positions) {
                    let flat = ((o * positions + at) * inner + i) * wide;
                    values[flat] = c.re;
                    if wide == 2 {
                        values[flat + 1] = c.im;
                    }
                }
            }
        }
        one(Tensor::from_f64(dtype, &dims, &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(t) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        let last = t.shape.len() - 1;
        let whole = |map: &mut AxisMap, d: usize, name: &'static str| {
            map.axes[d].kind = AxisKind::Opaque;
            Index::axis(map.add(name, &t.shape[d], AxisKind::Opaque))
        };
        let (n, c) = (whole(&mut map, self.axis, "n"), whole(&mut map, last, "c"));
        let index = |d| match d {
            _ if d == self.axis => n.clone(),
            _ if d == last => c.clone(),
            d => Index::axis(d),
        };
        map.inputs = vec![Some((0..=last).map(index).collect())];
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Dft {
        Dft { length: self.length.substitute(value), ..self.clone() }
    }
}
