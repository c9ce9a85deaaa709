//! Maximum and average pooling, over windows or whole images.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    view::{Image, ImageDims, Kind, Shared, Want, check, image_kind, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{Format, Tensor};
use serde::{Deserialize, Serialize};

/// Pooling of one `f32` image; a window as large as the image is a global one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolSpec {
    /// `[n, c, w]` or `[n, c, h, w]`.
    pub input: Vec<i64>,
    /// Plain, channels-last or blocked by 8.
    pub input_format: Format,
    /// Plain where the input is, else channels-last or blocked; plain also for single pixels.
    pub output_format: Format,
    /// What is computed.
    pub op: PoolOp,
    /// Extent of the window along each spatial dim.
    pub kernel: Vec<i64>,
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Distances inside the window.
    pub dilations: Vec<i64>,
    /// Elements before each spatial dim, then after each.
    pub pads: Vec<i64>,
    /// Windows may reach over the end, but start before it.
    pub ceil: bool,
}

/// What pooling computes from a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PoolOp {
    /// The largest element; padding never counts.
    Max,
    /// The mean.
    Average {
        /// The padding counts as zeros.
        count_pads: bool,
    },
}

/// The window along one dim.
#[derive(Clone, Copy)]
struct Axis {
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    pads: (usize, usize),
}

impl Axis {
    /// Input positions of output `o`: the first, and how many lie inside.
    #[inline(always)]
    fn window(&self, o: usize) -> (usize, usize) {
        let start = (o * self.stride) as isize - self.pads.0 as isize;
        let d = self.dilation as isize;
        // Window elements before the input, and those up to its end.
        let skip = ((-start).max(0) + d - 1) / d;
        let end = ((self.input as isize - start).max(0) + d - 1) / d;
        let count = (end.min(self.kernel as isize) - skip).max(0);
        ((start + skip * d) as usize, count as usize)
    }

    /// Window elements that lie in the input or the padding.
    fn counted(&self, o: usize) -> usize {
        let start = o * self.stride;
        let end = self.pads.0 + self.input + self.pads.1;
        self.kernel.min((end - start).div_ceil(self.dilation))
    }
}

/// A kernel for a [`PoolSpec`].
pub struct Pooling {
    spec: PoolSpec,
    isa: Isa,
    name: String,
    output: Vec<i64>,
    y: Axis,
    x: Axis,
    /// Of each output column: the first input column of its window, and how many there are.
    columns: Vec<(usize, usize)>,
}

impl PoolSpec {
    fn axes(&self) -> Result<(Axis, Axis, ImageDims), SpecError> {
        let fail = |what: &str| SpecError::Unsupported { kind: "Pool", what: what.into() };
        let image = ImageDims::of("Pool", &self.input)?;
        let spatial = self.input.len() - 2;
        let lists = [&self.kernel, &self.strides, &self.dilations];
        if lists.iter().any(|l| l.len() != spatial || l.iter().any(|&v| v < 1))
            || self.pads.len() != 2 * spatial
            || self.pads.iter().any(|&p| p < 0)
        {
            return Err(fail("needs a positive window, step and distance for each spatial dim"));
        }
        let axis = |d: usize| {
            let u = |v: i64| v as usize;
            let (input, kernel) = (u(self.input[2 + d]), u(self.kernel[d]));
            let (stride, dilation) = (u(self.strides[d]), u(self.dilations[d]));
            let pads = (u(self.pads[d]), u(self.pads[spatial + d]));
            let room = (input + pads.0 + pads.1).checked_sub(dilation * (kernel - 1) + 1);
            let room =
                room.ok_or_else(|| fail("needs a window no larger than the padded image"))?;
            let mut output = if self.ceil { room.div_ceil(stride) } else { room / stride } + 1;
            if self.ceil && (output - 1) * stride >= input + pads.0 {
                output -= 1;
            }
            Ok(Axis { input, output, kernel, stride, dilation, pads })
        };
        let one = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pads: (0, 0) };
        let (y, x) = if spatial == 1 { (one, axis(0)?) } else { (axis(0)?, axis(1)?) };
        Ok((y, x, image))
    }

    /// Dims of the output.
    ///
    /// # Errors
    /// When the parameters do not fit together.
    pub fn output_dims(&self) -> Result<Vec<i64>, SpecError> {
        let (y, x, _) = self.axes()?;
        let mut dims = self.input[..2].to_vec();
        if self.input.len() == 4 {
            dims.push(y.output as i64);
        }
        dims.push(x.output as i64);
        Ok(dims)
    }
}

impl Pooling {
    pub(crate) fn new(spec: PoolSpec, isa: Isa) -> Result<Pooling, SpecError> {
        let (y, x, _) = spec.axes()?;
        let kind = |f: &Format| image_kind(f).map(|(kind, _)| kind);
        let single = y.output * x.output == 1;
        let fits = match (kind(&spec.input_format), kind(&spec.output_format)) {
            (Some(Kind::Plain), Some(Kind::Plain)) => true,
            (Some(Kind::Last | Kind::Blocked), Some(Kind::Last | Kind::Blocked)) => true,
            (Some(Kind::Last | Kind::Blocked), Some(Kind::Plain)) => single,
            _ => false,
        };
        if !fits {
            let (i, o) = (&spec.input_format, &spec.output_format);
            return Err(SpecError::Unsupported {
                kind: "Pool",
                what: format!("does not pool {i} to {o}"),
            });
        }
        let op = if spec.op == PoolOp::Max { "max" } else { "average" };
        let name = format!("{}-f32-pool-{op}", isa.name());
        let columns = (0..x.output).map(|o| x.window(o)).collect();
        Ok(Pooling { output: spec.output_dims()?, spec, isa, name, y, x, columns })
    }
}

impl Pooling {
    /// Elements of a thread's line of a plain image.
    fn line_len(&self) -> usize {
        let plain = image_kind(&self.spec.input_format).is_some_and(|k| k.0 == Kind::Plain);
        if plain { self.x.input.next_multiple_of(16) } else { 0 }
    }
}

/// One output row of one block of channels.
struct Row<'a> {
    of: &'a Pooling,
    input: Image,
    output: Image,
    n: usize,
    block: usize,
    y: usize,
    /// A line of the input, for plain images.
    line: *mut f32,
}

impl Body for Row<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { of, input, output, n, block, y, .. } = self;
        let max = of.spec.op == PoolOp::Max;
        let lanes = input.lanes(block);
        let (iy, rows) = of.y.window(y);
        if input.kind == Kind::Plain {
            return self.plain::<S>(iy, rows);
        }
        for x in 0..of.x.output {
            let (ix, columns) = of.columns[x];
            let start = input.at(n, iy as isize, ix as isize).wrapping_add(block * input.sb);
            let (row, pixel) = (of.y.dilation * input.sh, of.x.dilation * input.sw);
            let count = match of.spec.op {
                PoolOp::Average { count_pads: true } => of.y.counted(y) * of.x.counted(x),
                _ => rows * columns,
            };
            let to = output.at(n, y as isize, x as isize).wrapping_add(block * output.sb);
            let whole = input.whole(block);
            let mut acc = S::splat(if max { f32::NEG_INFINITY } else { 0.0 });
            let mut nan = S::zero();
            for r in 0..rows {
                for q in 0..columns {
                    let p = start.add(r * row + q * pixel);
                    let v = if whole { S::load(p) } else { S::load_part(p, lanes) };
                    if max {
                        acc = S::max(v, acc);
                        nan = S::or(nan, S::nan(v));
                    } else {
                        acc = S::add(acc, v);
                    }
                }
            }
            acc = S::select(nan, nan, acc);
            if !max {
                acc = S::div(acc, S::splat(count as f32));
            }
            if lanes == LANES {
                S::store(to, acc);
            } else {
                S::store_part(to, acc, lanes);
                if output.kind == Kind::Blocked {
                    std::ptr::write_bytes(to.add(lanes), 0, LANES - lanes);
                }
            }
        }
    }
}

impl Row<'_> {
    /// A plain image: the rows of the window are joined to one line, then its columns.
    #[inline(always)]
    unsafe fn plain<S: Simd>(&self, iy: usize, rows: usize) {
        let Row { of, input, output, n, block, y, line } = *self;
        let max = of.spec.op == PoolOp::Max;
        let w = input.dims.w;
        let start = if max { f32::NEG_INFINITY } else { 0.0 };
        let row = of.y.dilation * input.sh;
        for c in 0..input.lanes(block) {
            let at = block * input.sb + c * input.sc;
            let from = input.at(n, iy as isize, 0).wrapping_add(at) as *const f32;
            let mut i = 0;
            while i < w {
                let count = (w - i).min(LANES);
                let (mut acc, mut nan) = (S::splat(start), S::zero());
                for r in 0..rows {
                    let p = from.add(r * row + i);
                    let v = if count == LANES { S::load(p) } else { S::load_part(p, count) };
                    if max {
                        acc = S::max(v, acc);
                        nan = S::or(nan, S::nan(v));
                    } else {
                        acc = S::add(acc, v);
                    }
                }
                // The line has room for whole vectors.
                S::store(line.add(i), S::select(nan, nan, acc));
                i += count;
            }
            let to = output.at(n, y as isize, 0).wrapping_add(block * output.sb + c * output.sc);
            for x in 0..of.x.output {
                let (ix, columns) = of.columns[x];
                let mut acc = start;
                for q in 0..columns {
                    let v = *line.add(ix + q * of.x.dilation);
                    acc = if !max {
                        acc + v
                    } else if v > acc || v.is_nan() {
                        v
                    } else {
                        acc
                    };
                }
                if !max {
                    acc /= match of.spec.op {
                        PoolOp::Average { count_pads: true } => of.y.counted(y) * of.x.counted(x),
                        _ => rows * columns,
                    } as f32;
                }
                *to.wrapping_add(x * output.sw) = acc;
            }
        }
    }
}

impl Kernel for Pooling {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        Needs {
            workspace: self.line_len() as u64 * 4 * threads as u64,
            foreign: Some(0),
            in_place: Vec::new(),
            deterministic: true,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let input = Want { dims: &spec.input, format: &spec.input_format };
        let output = Want { dims: &self.output, format: &spec.output_format };
        let line = self.line_len();
        let bytes = (line * 4 * run.pool.threads()) as u64;
        check(&self.name, run, &[input], &[output], bytes)?;
        let (input, mut output) = (Image::new(&run.inputs[0]), Image::new(&run.outputs[0]));
        if output.dims.is_empty() {
            return Ok(());
        }
        if output.kind == Kind::Plain && input.kind != Kind::Plain {
            // A single pixel's channels, however far apart, are written one by one.
            if output.sc != 1 {
                return Err(RunError::Operand {
                    kernel: self.name.clone(),
                    what: format!("needs the output's channels 1 apart, found {}", output.sc),
                });
            }
            (output.kind, output.sb) = (Kind::Last, LANES);
        }
        let rows = self.y.output;
        let blocks = input.dims.blocks();
        let window = self.y.kernel * self.x.kernel;
        let work = input.dims.n * blocks * LANES * rows * self.x.output * window;
        // SAFETY: the operands were checked; each task writes rows of its own.
        unsafe {
            output.zero_halo();
            let bands = rows.div_ceil(8);
            // A channels-last pixel holds all channels, so its task takes them all.
            let (chunks, blocks_of_a_task) =
                if input.kind == Kind::Last { (1, blocks) } else { (blocks, 1) };
            let lines = Shared::new(run.workspace.as_mut_ptr().cast::<f32>());
            spread(run.pool, work, input.dims.n * chunks * bands, &|task, thread| {
                let (task, chunk) = (task / chunks, task % chunks);
                let (n, band) = (task / bands, task % bands);
                let line = lines.get().wrapping_add(thread * line);
                for y in band * 8..(band * 8 + 8).min(rows) {
                    for block in chunk..chunk + blocks_of_a_task {
                        self.isa.enter(Row { of: self, input, output, n, block, y, line });
                    }
                }
            });
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Pooling {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Pool(self.spec.clone())
    }
}
