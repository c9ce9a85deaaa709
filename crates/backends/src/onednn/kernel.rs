//! Primitives for parts of an image or of a product, one a task of our threads.

use super::{
    NAME,
    engine::{Compiled, Engine, Places, Step, Walk, engine},
};
use crate::{
    library::Owned,
    matrices::{Matrices, Shared, piece, plain_operand},
};
use bricolage_backend::Packed;
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Layout};
use serde::{Deserialize, Serialize};
use std::{
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};

/// What the recipe calls the kernel.
pub(super) const KERNEL: &str = "primitive/1";
const LABEL: &str = "onednn-f32-primitive";

/// How images lie.
pub(super) const IMAGE: Format =
    Format { dtype: DType::F32, layout: Layout::ChannelsLast { halo: 0 } };

/// A convolution of images with channels last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Conv {
    /// Images, channels, rows and columns.
    pub(super) input: [i64; 4],
    pub(super) output: [i64; 4],
    /// Rows and columns of the filter.
    pub(super) kernel: [i64; 2],
    pub(super) strides: [i64; 2],
    pub(super) dilations: [i64; 2],
    /// Zeros before and after rows, then columns.
    pub(super) pads: [(i64, i64); 2],
    pub(super) groups: i64,
}

/// What is computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// With constant weights.
    Conv(Conv),
    /// With a right factor that is a constant or an input.
    Product(Matrices, bool),
}

/// What happens to sums before they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum After {
    /// A tensor like the result is added, the last input.
    Add,
    /// Limits to an interval.
    Clamp(f32, f32),
}

/// The body of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) work: Work,
    /// Whether a constant number is added to each channel or column.
    pub(super) bias: bool,
    pub(super) after: Vec<After>,
    pub(super) threads: u32,
}

impl Spec {
    fn adds(&self) -> bool {
        self.after.contains(&After::Add)
    }

    /// Whether the weights are built in.
    fn has_weights(&self) -> bool {
        matches!(self.work, Work::Conv(_) | Work::Product(_, true))
    }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    bytes: [u8; 64],
}

/// Memory at a multiple of 64 bytes.
struct Buffer(Vec<Line>);

impl Buffer {
    fn new(bytes: usize) -> Buffer {
        Buffer(vec![Line { bytes: [0; 64] }; bytes.div_ceil(64)])
    }

    fn holding(bytes: &[u8]) -> Buffer {
        let mut all = Buffer::new(bytes.len());
        let to = all.0.iter_mut().flat_map(|l| &mut l.bytes);
        to.zip(bytes).for_each(|(to, from)| *to = *from);
        all
    }

    /// Its address, which is only written through where nobody else reads.
    fn ptr(&self) -> *mut f32 {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// A part of each image or product, and where it begins in it.
struct Part {
    compiled: Compiled,
    source: i64,
    result: i64,
    /// Elements of the result.
    len: i64,
}

/// Everything that runs need besides their operands.
struct Ready {
    engine: &'static Engine,
    parts: Vec<Part>,
    /// In the order that the primitives like.
    weights: Option<Buffer>,
    bias: Buffer,
    /// Source, weights and result of each image or product, in elements.
    items: Vec<[i64; 3]>,
    /// Bytes of scratch memory of one task.
    scratch: usize,
    idle: Mutex<Vec<Buffer>>,
}

/// A convolution or product that the library computes.
pub(super) struct Primitives {
    library: PathBuf,
    spec: Spec,
    built_in: Vec<Packed>,
    recipe: Recipe,
    ready: OnceLock<Result<Ready, String>>,
}

/// Where one part of a convolution reads, and what it lacks there.
fn rows_of(conv: &Conv, (first, end): (i64, i64)) -> ((i64, i64), (i64, i64)) {
    let start = first * conv.strides[0] - conv.pads[0].0;
    let stop =
        (end - 1) * conv.strides[0] + (conv.kernel[0] - 1) * conv.dilations[0] + 1 - conv.pads[0].0;
    let rows = (start.max(0), stop.min(conv.input[2]));
    (rows, (rows.0 - start, stop - rows.1))
}

impl Primitives {
    pub(super) fn new(
        library: PathBuf,
        spec: Spec,
        built_in: Vec<Packed>,
    ) -> Result<Primitives, String> {
        let needed = usize::from(spec.has_weights()) + usize::from(spec.bias);
        if built_in.len() != needed {
            return Err(format!("needs {needed} constants, found {}", built_in.len()));
        }
        let body = postcard::to_stdvec(&spec).map_err(|e| e.to_string())?;
        let recipe = Recipe { backend: NAME.to_owned(), kernel: KERNEL.to_owned(), body };
        Ok(Primitives { library, spec, built_in, recipe, ready: OnceLock::new() })
    }

    /// Compiles the primitives.
    pub(super) fn compile(&self) -> Result<(), String> {
        self.ready().map(|_| ())
    }

    fn ready(&self) -> Result<&Ready, String> {
        self.ready.get_or_init(|| self.make()).as_ref().map_err(Clone::clone)
    }

    fn make(&self) -> Result<Ready, String> {
        let engine = engine(&self.library)?;
        let steps: Vec<Step> = self
            .spec
            .after
            .iter()
            .map(|after| match *after {
                After::Add => Step::AddKept,
                After::Clamp(min, max) => Step::Clamp(min, max),
            })
            .collect();
        let (parts, plain, items) = match &self.spec.work {
            Work::Conv(conv) => self.convolutions(engine, conv, &steps)?,
            Work::Product(matrices, constant) => {
                self.products(engine, &matrices.merged(), *constant, &steps)?
            }
        };
        let weights = match self.spec.has_weights() {
            false => None,
            true => {
                let liked = &parts[0].compiled.weights;
                let (from, to) = (&self.built_in[0].bytes, Buffer::new(engine.size(liked)));
                let size = engine.size(&plain);
                if from.len() != size {
                    return Err(format!("needs {size} bytes of weights, found {}", from.len()));
                }
                // SAFETY: both have the sizes of their descriptions, and `to` is ours alone.
                unsafe {
                    engine.reorder((&plain, from.as_ptr().cast_mut().cast()), (liked, to.ptr()))?;
                }
                Some(to)
            }
        };
        let bias = match self.spec.bias {
            false => Buffer::new(0),
            true => Buffer::holding(&self.built_in[self.built_in.len() - 1].bytes),
        };
        let scratch = parts.iter().map(|p| p.compiled.scratch).max().unwrap_or(0);
        let scratch = scratch.next_multiple_of(64);
        Ok(Ready { engine, parts, weights, bias, items, scratch, idle: Mutex::default() })
    }

    /// A primitive for each part of the rows, the description of the weights as they are, and the images.
    #[allow(clippy::type_complexity)] // the parts of `Ready`
    fn convolutions(
        &self,
        engine: &Engine,
        conv: &Conv,
        steps: &[Step],
    ) -> Result<(Vec<Part>, Owned<super::engine::Desc>, Vec<[i64; 3]>), String> {
        let Conv { input, output, kernel, groups, .. } = conv;
        let ([images, channels, rows, columns], [_, filters, high, wide]) = (*input, *output);
        let mut weights = vec![filters / groups, channels / groups, kernel[0], kernel[1]];
        if *groups > 1 {
            weights.insert(0, *groups);
        }
        let threads = i64::from(self.spec.threads);
        let mut count = (threads + images - 1) / images;
        let cut = |count: i64| (0..count).map(move |part| piece(high, count, part, 1));
        // A part that reads nothing but zeros is no convolution.
        let reads = |piece: (i64, i64)| {
            let (rows, _) = rows_of(conv, piece);
            rows.0 < rows.1
        };
        if !cut(count).filter(|p| p.0 < p.1).all(reads) {
            count = 1;
        }
        let last = |dims: [i64; 4]| {
            let [_, c, h, w] = dims;
            engine.strided(&dims, &[h * w * c, 1, w * c, c])
        };
        let mut parts: Vec<Part> = Vec::new();
        for (first, end) in cut(count).filter(|p| p.0 < p.1) {
            let ((top, bottom), (before, after)) = rows_of(conv, (first, end));
            let walk = Walk {
                strides: conv.strides,
                dilations: conv.dilations,
                before: [before, conv.pads[1].0],
                after: [after, conv.pads[1].1],
            };
            let source = last([1, channels, bottom - top, columns])?;
            let result = last([1, filters, end - first, wide])?;
            let bias = self.spec.bias.then(|| engine.plain(&[filters])).transpose()?;
            let any;
            let liked = match parts.first() {
                Some(part) => &part.compiled.weights,
                None => {
                    any = engine.any(&weights)?;
                    &any
                }
            };
            let compiled = engine.convolution(source, liked, bias, result, &walk, steps)?;
            parts.push(Part {
                compiled,
                source: top * columns * channels,
                result: first * wide * filters,
                len: (end - first) * wide * filters,
            });
        }
        let items =
            (0..images).map(|i| [i * channels * rows * columns, 0, i * filters * high * wide]);
        Ok((parts, engine.plain(&weights)?, items.collect()))
    }

    #[allow(clippy::type_complexity)] // the parts of `Ready`
    fn products(
        &self,
        engine: &Engine,
        merged: &Matrices,
        constant: bool,
        steps: &[Step],
    ) -> Result<(Vec<Part>, Owned<super::engine::Desc>, Vec<[i64; 3]>), String> {
        let Matrices { m, k, n, ta, tb, .. } = *merged;
        let pairs = merged.pairs();
        let lie = |rows: i64, columns: i64, turned: bool, whole: i64| {
            let strides = if turned { [1, whole] } else { [columns, 1] };
            engine.strided(&[rows, columns], &strides)
        };
        let plain = lie(k, n, tb, k)?;
        let threads = i64::from(self.spec.threads);
        let products = pairs.len() as i64;
        // A few rows are not worth cutting.
        let count = if m < 8 * threads { 1 } else { (threads + products - 1) / products };
        let mut parts: Vec<Part> = Vec::new();
        for (first, end) in (0..count).map(|p| piece(m, count, p, 8)).filter(|p| p.0 < p.1) {
            let source = lie(end - first, k, ta, m)?;
            let result = engine.plain(&[end - first, n])?;
            let bias = self.spec.bias.then(|| engine.plain(&[1, n])).transpose()?;
            let any;
            let liked = match (parts.first(), constant) {
                (Some(part), _) => &part.compiled.weights,
                (None, true) => {
                    any = engine.any(&[k, n])?;
                    &any
                }
                (None, false) => &plain,
            };
            let compiled = engine.product(source, liked, bias, result, steps)?;
            parts.push(Part {
                compiled,
                source: if ta { first } else { first * k },
                result: first * n,
                len: (end - first) * n,
            });
        }
        let items = pairs.iter().enumerate().map(|(i, &(left, right))| {
            let right = if constant { 0 } else { right as i64 * k * n };
            [left as i64 * m * k, right, i as i64 * m * n]
        });
        Ok((parts, plain, items.collect()))
    }

    /// Source, weights where they are an input, residual and result.
    fn operands(&self, run: &Run<'_>) -> Result<[Shared; 4], String> {
        let mut inputs = run.inputs.iter();
        let output = run.outputs.first();
        let mut all = [Shared::of(None); 4];
        match &self.spec.work {
            Work::Conv(conv) => {
                let image = |operand: Option<&Operand<'_>>, dims: &[i64]| match operand {
                    Some(o) if o.dims == dims && *o.format == IMAGE => Ok(Shared::of(Some(o))),
                    Some(o) => {
                        Err(format!("needs {IMAGE}{dims:?}, found {}{:?}", o.format, o.dims))
                    }
                    None => Err("lacks an operand".to_owned()),
                };
                all[0] = image(inputs.next(), &conv.input)?;
                if self.spec.adds() {
                    all[2] = image(inputs.next(), &conv.output)?;
                }
                all[3] = image(output, &conv.output)?;
            }
            Work::Product(matrices, constant) => {
                let plain = |operand, dims: &[i64]| {
                    plain_operand(operand, dims).map(|o| Shared::of(Some(o)))
                };
                let ([a, b], result) = (matrices.factors(), matrices.result());
                all[0] = plain(inputs.next(), &a)?;
                if !constant {
                    all[1] = plain(inputs.next(), &b)?;
                }
                if self.spec.adds() {
                    all[2] = plain(inputs.next(), &result)?;
                }
                all[3] = plain(output, &result)?;
            }
        }
        Ok(all)
    }
}

impl Kernel for Primitives {
    fn name(&self) -> &str {
        LABEL
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        let residual = if self.spec.has_weights() { 1 } else { 2 };
        let in_place = if self.spec.adds() { vec![(0, residual)] } else { Vec::new() };
        Needs { workspace: 0, foreign: None, in_place, deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let kernel = || LABEL.to_owned();
        let ready = self.ready().map_err(|why| RunError::Failed { kernel: kernel(), why })?;
        let [source, weights, residual, result] =
            self.operands(run).map_err(|what| RunError::Operand { kernel: kernel(), what })?;
        let threads = run.pool.threads();
        let idle = || ready.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = ready.scratch * threads;
        let kept = idle().pop().filter(|b| b.0.len() * 64 >= needed);
        let scratch = kept.unwrap_or_else(|| Buffer::new(needed));
        let start = scratch.ptr().addr();
        let fault = Mutex::new(None);
        let task = |task: usize, thread: usize| {
            let (item, part) = (task / ready.parts.len(), &ready.parts[task % ready.parts.len()]);
            let [from, right, to] = ready.items[item];
            // SAFETY: the operands were found to have the dims of the spec; no two tasks have the same part
            // of the result, and no two threads the same scratch memory.
            let ran = unsafe {
                let result = result.at(to + part.result);
                if !residual.is_none() {
                    let kept = residual.at(to + part.result);
                    if kept != result {
                        std::ptr::copy_nonoverlapping(kept, result, part.len as usize);
                    }
                }
                let places = Places {
                    source: source.at(from + part.source),
                    weights: match &ready.weights {
                        Some(packed) => packed.ptr(),
                        None => weights.at(right),
                    },
                    bias: ready.bias.ptr(),
                    result,
                    scratch: scratch.ptr().cast::<u8>().with_addr(start + thread * ready.scratch),
                };
                ready.engine.run(&part.compiled, &places)
            };
            if let Err(why) = ran {
                *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        };
        run.pool.run(ready.items.len() * ready.parts.len(), &task);
        idle().push(scratch);
        match fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(RunError::Failed { kernel: kernel(), why }),
        }
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}
