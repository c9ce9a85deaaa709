//! Resizing of images by nearest, linear and cubic interpolation, as ONNX defines it.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    view::{Image, ImageDims, Kind, Want, check, image_kind, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{Format, Tensor};
use serde::{Deserialize, Serialize};

/// Resizes the spatial dims of an `f32` image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResizeSpec {
    /// `[n, c, w]` or `[n, c, h, w]`.
    pub input: Vec<i64>,
    /// Format of the input; the output has the same kind of layout.
    pub input_format: Format,
    /// Format of the output.
    pub output_format: Format,
    /// Spatial dims of the output.
    pub output: Vec<i64>,
    /// Output size by input size along each spatial dim, as the model gives it.
    pub scales: Vec<f64>,
    /// Interpolation.
    pub mode: ResizeMode,
    /// Where output elements lie in the input.
    pub coordinates: Coordinates,
}

/// Interpolation between input elements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum ResizeMode {
    /// One element.
    Nearest(Rounding),
    /// Two elements a dim.
    Linear,
    /// Four elements a dim by Keys' cubic.
    Cubic {
        /// The cubic's coefficient, usually -0.75.
        coefficient: f32,
        /// Weights of elements outside are given to those inside.
        exclude_outside: bool,
    },
}

/// How a coordinate becomes an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Rounding {
    HalfDown,
    HalfUp,
    Floor,
    Ceil,
}

/// ONNX's coordinate transformations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
}

/// The input elements of each output along one dim, with their weights.
#[derive(Clone, Debug)]
struct Taps {
    count: usize,
    index: Vec<usize>,
    weight: Vec<f32>,
}

/// A kernel for a [`ResizeSpec`].
pub struct Resize {
    spec: ResizeSpec,
    isa: Isa,
    name: String,
    output: Vec<i64>,
    y: Taps,
    x: Taps,
}

impl ResizeSpec {
    fn taps(&self, d: usize) -> Taps {
        let (input, output) = (self.input[2 + d], self.output[d]);
        // The nearest element is decided in single precision, as runtimes do.
        let single = matches!(self.mode, ResizeMode::Nearest(_));
        let r = |v: f64| if single { f64::from(v as f32) } else { v };
        let scale = r(self.scales[d]);
        let count = match self.mode {
            ResizeMode::Nearest(_) => 1,
            ResizeMode::Linear => 2,
            ResizeMode::Cubic { .. } => 4,
        };
        let mut taps = Taps { count, index: Vec::new(), weight: Vec::new() };
        let clamp = |i: i64| i.clamp(0, (input - 1).max(0)) as usize;
        for o in 0..output {
            let x = o as f64;
            let (n, m) = (input as f64, output as f64);
            let centred = || r(r((x + 0.5) / scale) - 0.5);
            let at = match self.coordinates {
                Coordinates::HalfPixel => centred(),
                Coordinates::HalfPixelSymmetric => {
                    let offset = r(n / 2.0 * r(1.0 - r(m / r(scale * n))));
                    r(r(offset + r((x + 0.5) / scale)) - 0.5)
                }
                Coordinates::PytorchHalfPixel if output > 1 => centred(),
                Coordinates::PytorchHalfPixel => 0.0,
                Coordinates::AlignCorners if output > 1 => r(r(x * (n - 1.0)) / (m - 1.0)),
                Coordinates::AlignCorners => 0.0,
                Coordinates::Asymmetric => r(x / scale),
            };
            let floor = at.floor();
            let ratio = at - floor;
            match self.mode {
                ResizeMode::Nearest(rounding) => {
                    let i = match rounding {
                        Rounding::Floor => floor,
                        Rounding::Ceil => at.ceil(),
                        Rounding::HalfDown => (at - 0.5).ceil(),
                        Rounding::HalfUp => (at + 0.5).floor(),
                    };
                    taps.index.push(clamp(i as i64));
                    taps.weight.push(1.0);
                }
                ResizeMode::Linear => {
                    taps.index.extend([clamp(floor as i64), clamp(floor as i64 + 1)]);
                    taps.weight.extend([(1.0 - ratio) as f32, ratio as f32]);
                }
                ResizeMode::Cubic { coefficient, exclude_outside } => {
                    let a = f64::from(coefficient);
                    let near = |t: f64| ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
                    let far = |t: f64| ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
                    let mut w =
                        [far(ratio + 1.0), near(ratio), near(1.0 - ratio), far(2.0 - ratio)];
                    if exclude_outside {
                        for (i, w) in w.iter_mut().enumerate() {
                            if !(0..input).contains(&(floor as i64 - 1 + i as i64)) {
                                *w = 0.0;
                            }
                        }
                        let sum: f64 = w.iter().sum();
                        w.iter_mut().for_each(|w| *w /= sum);
                    }
                    taps.index.extend((0..4).map(|i| clamp(floor as i64 - 1 + i)));
                    taps.weight.extend(w.map(|w| w as f32));
                }
            }
        }
        taps
    }
}

impl Resize {
    pub(crate) fn new(spec: ResizeSpec, isa: Isa) -> Result<Resize, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Resize", what });
        ImageDims::of("Resize", &spec.input)?;
        let spatial = spec.input.len() - 2;
        let kinds = (image_kind(&spec.input_format), image_kind(&spec.output_format));
        let same = matches!(kinds, (Some((a, _)), Some((b, _))) if (a == Kind::Plain) == (b == Kind::Plain));
        if !same
            || spec.output.len() != spatial
            || spec.scales.len() != spatial
            || spec.output.iter().any(|&d| d < 0)
            || spec.input[2..].contains(&0)
        {
            let (i, o) = (&spec.input_format, &spec.output_format);
            return fail(format!("does not resize {i}{:?} to {o}{:?}", spec.input, spec.output));
        }
        let one = Taps { count: 1, index: vec![0], weight: vec![1.0] };
        let (y, x) = if spatial == 1 { (one, spec.taps(0)) } else { (spec.taps(0), spec.taps(1)) };
        let output = [&spec.input[..2], &spec.output[..]].concat();
        Ok(Resize { name: format!("{}-f32-resize", isa.name()), output, spec, isa, y, x })
    }
}

/// One output row of one block of channels.
struct Row<'a> {
    of: &'a Resize,
    input: Image,
    output: Image,
    n: usize,
    block: usize,
    y: usize,
}

impl Body for Row<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { of, input, output, n, block, y } = self;
        let (ty, tx) = (&of.y, &of.x);
        let lanes = input.lanes(block);
        let from = input.at(n, 0, 0).wrapping_add(block * input.sb) as *const f32;
        let to = output.at(n, y as isize, 0).wrapping_add(block * output.sb);
        for x in 0..output.dims.w {
            let to = to.wrapping_add(x * output.sw);
            if input.kind == Kind::Plain {
                for c in 0..lanes {
                    let mut sum = 0.0;
                    for j in y * ty.count..(y + 1) * ty.count {
                        let row = from.add(c * input.sc + ty.index[j] * input.sh);
                        let mut line = 0.0;
                        for i in x * tx.count..(x + 1) * tx.count {
                            line += tx.weight[i] * *row.add(tx.index[i] * input.sw);
                        }
                        sum += ty.weight[j] * line;
                    }
                    *to.add(c * output.sc) = sum;
                }
                continue;
            }
            let whole = input.whole(block);
            let mut sum = S::zero();
            for j in y * ty.count..(y + 1) * ty.count {
                let row = from.add(ty.index[j] * input.sh);
                let mut line = S::zero();
                for i in x * tx.count..(x + 1) * tx.count {
                    let p = row.add(tx.index[i] * input.sw);
                    let v = if whole { S::load(p) } else { S::load_part(p, lanes) };
                    line = S::fma(S::splat(tx.weight[i]), v, line);
                }
                sum = S::fma(S::splat(ty.weight[j]), line, sum);
            }
            if output.whole(block) && lanes == LANES {
                S::store(to, sum);
            } else {
                S::store_part(to, sum, lanes);
                if output.kind == Kind::Blocked {
                    std::ptr::write_bytes(to.add(lanes), 0, LANES - lanes);
                }
            }
        }
    }
}

impl Kernel for Resize {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let input = Want { dims: &spec.input, format: &spec.input_format };
        let output = Want { dims: &self.output, format: &spec.output_format };
        check(&self.name, run, &[input], &[output], 0)?;
        let (input, output) = (Image::new(&run.inputs[0]), Image::new(&run.outputs[0]));
        if output.dims.is_empty() {
            return Ok(());
        }
        let (blocks, rows) = (input.dims.blocks(), output.dims.h);
        let work =
            output.dims.n * blocks * LANES * rows * output.dims.w * self.y.count * self.x.count;
        // SAFETY: the operands were checked; each task writes a row of its own.
        unsafe {
            output.zero_halo();
            spread(run.pool, work, input.dims.n * blocks * rows, &|task, _| {
                let (task, block) = (task / blocks, task % blocks);
                let (n, y) = (task / rows, task % rows);
                self.isa.enter(Row { of: self, input, output, n, block, y });
            });
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Resize {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Resize(self.spec.clone())
    }
}
