//! Operands checked and seen as images or plain arrays.

use crate::{simd::LANES, spec::SpecError};
use bricolage_runtime::{Operand, Pool, Run, RunError};
use bricolage_tensor::{DType, Format, Layout};

/// A pointer that tasks on several threads share; they touch disjoint elements or only read.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: the tasks that share the pointer write disjoint elements, as each user states.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(p: *mut T) -> Shared<T> {
        Shared(p)
    }

    /// By method, so that a closure captures the whole wrapper.
    #[inline(always)]
    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

/// How an image's channels lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Last,
    Blocked,
}

/// Whether kernels for images take `format`: `f32`, plain, channels-last, or blocked by eight.
pub(crate) fn image_kind(format: &Format) -> Option<(Kind, usize)> {
    if format.dtype != DType::F32 {
        return None;
    }
    match format.layout {
        Layout::Plain => Some((Kind::Plain, 0)),
        Layout::ChannelsLast { halo } => Some((Kind::Last, usize::from(halo))),
        Layout::Blocked { block: 8, halo } => Some((Kind::Blocked, usize::from(halo))),
        _ => None,
    }
}

/// Dims of an image: batch, channels, height (1 for rank 3) and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageDims {
    pub(crate) n: usize,
    pub(crate) c: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
}

impl ImageDims {
    /// From logical dims of rank 3 or 4.
    pub(crate) fn of(kind: &'static str, dims: &[i64]) -> Result<ImageDims, SpecError> {
        let fail = || SpecError::Unsupported {
            kind,
            what: format!("needs an image of rank 3 or 4 without negative dims, found {dims:?}"),
        };
        let u = |d: i64| usize::try_from(d).map_err(|_| fail());
        match *dims {
            [n, c, w] => Ok(ImageDims { n: u(n)?, c: u(c)?, h: 1, w: u(w)? }),
            [n, c, h, w] => Ok(ImageDims { n: u(n)?, c: u(c)?, h: u(h)?, w: u(w)? }),
            _ => Err(fail()),
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.c.div_ceil(LANES)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.n * self.c * self.h * self.w == 0
    }
}

/// An image in memory. Element (n, c, y, x) lies at
/// `base + n sn + (c / 8) sb + (c % 8) sc + y sh + x sw`; halo elements have coordinates outside.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    pub(crate) base: *mut f32,
    pub(crate) dims: ImageDims,
    pub(crate) kind: Kind,
    /// Halo above and below, and left and right.
    pub(crate) halo: (usize, usize),
    pub(crate) sn: usize,
    pub(crate) sb: usize,
    pub(crate) sc: usize,
    pub(crate) sh: usize,
    pub(crate) sw: usize,
}

// SAFETY: an image is a pointer with strides; tasks that share it write disjoint elements.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// The operand as an image; it was checked against its spec by [`check`].
    pub(crate) fn new(operand: &Operand<'_>) -> Image {
        let (kind, halo) = image_kind(operand.format).expect("the spec admits image formats only");
        let (d, s) = (operand.dims, operand.strides);
        let u = |v: i64| v as usize;
        let (dims, sh, halo) = if d.len() == 3 {
            (ImageDims { n: u(d[0]), c: u(d[1]), h: 1, w: u(d[2]) }, 0, (0, halo))
        } else {
            let dims = ImageDims { n: u(d[0]), c: u(d[1]), h: u(d[2]), w: u(d[3]) };
            (dims, u(s[2]), (halo, halo))
        };
        let sw = u(s[s.len() - 1]);
        let (sb, sc) = match kind {
            Kind::Plain => (LANES * u(s[1]), u(s[1])),
            Kind::Last => (LANES, 1),
            Kind::Blocked => (u(s[1]), 1),
        };
        let origin = halo.0 * sh + halo.1 * sw;
        let base = operand.as_mut_ptr().cast::<f32>().wrapping_add(origin);
        Image { base, dims, kind, halo, sn: u(s[0]), sb, sc, sh, sw }
    }

    /// A dense image at `start`, the leading halo included.
    pub(crate) fn dense(
        start: *mut f32,
        dims: ImageDims,
        kind: Kind,
        halo: (usize, usize),
    ) -> Image {
        let (h, w) = (dims.h + 2 * halo.0, dims.w + 2 * halo.1);
        let (sw, sb, sc) = match kind {
            Kind::Plain => (1, LANES * h * w, h * w),
            Kind::Last => (dims.c, LANES, 1),
            Kind::Blocked => (LANES, LANES * h * w, 1),
        };
        let sh = w * sw;
        let sn = dense_len(ImageDims { n: 1, ..dims }, kind, halo);
        let base = start.wrapping_add(halo.0 * sh + halo.1 * sw);
        Image { base, dims, kind, halo, sn, sb, sc, sh, sw }
    }

    /// Channel 0 of a pixel, which may lie in the halo.
    #[inline(always)]
    pub(crate) fn at(&self, n: usize, y: isize, x: isize) -> *mut f32 {
        let offset = y * self.sh as isize + x * self.sw as isize;
        self.base.wrapping_add(n * self.sn).wrapping_offset(offset)
    }

    /// Number of channels of block `b` that exist.
    #[inline(always)]
    pub(crate) fn lanes(&self, b: usize) -> usize {
        (self.dims.c - b * LANES).min(LANES)
    }

    /// Whether block `b` can be read and written as whole vectors.
    #[inline(always)]
    pub(crate) fn whole(&self, b: usize) -> bool {
        self.kind == Kind::Blocked || self.lanes(b) == LANES
    }

    /// Zeroes the channels that the last block has room for but the image lacks.
    ///
    /// # Safety
    /// The image is writable.
    pub(crate) unsafe fn zero_missing(&self) {
        let lanes = self.dims.c % LANES;
        if self.kind != Kind::Blocked || lanes == 0 {
            return;
        }
        let block = (self.dims.blocks() - 1) * self.sb;
        for n in 0..self.dims.n {
            for y in 0..self.dims.h as isize {
                for x in 0..self.dims.w as isize {
                    let p = self.at(n, y, x).wrapping_add(block + lanes);
                    std::ptr::write_bytes(p, 0, LANES - lanes);
                }
            }
        }
    }

    /// Zeroes the halo.
    ///
    /// # Safety
    /// The image is writable.
    pub(crate) unsafe fn zero_halo(&self) {
        let (hy, hx) = (self.halo.0 as isize, self.halo.1 as isize);
        if (hy, hx) == (0, 0) {
            return;
        }
        let (h, w) = (self.dims.h as isize, self.dims.w as isize);
        // Elements of one pixel that lie together, and how many such groups there are.
        let (run, groups) = match self.kind {
            Kind::Last => (self.dims.c, 1),
            Kind::Blocked => (LANES, self.dims.blocks()),
            Kind::Plain => return,
        };
        for n in 0..self.dims.n {
            for g in 0..groups {
                for y in -hy..h + hy {
                    let row = self.at(n, y, 0).wrapping_add(g * self.sb);
                    let spans = if y < 0 || y >= h {
                        [(-hx, w + hx), (0, 0)]
                    } else {
                        [(-hx, 0), (w, w + hx)]
                    };
                    for (from, to) in spans {
                        for x in from..to {
                            let p = row.wrapping_offset(x * self.sw as isize);
                            std::ptr::write_bytes(p, 0, run);
                        }
                    }
                }
            }
        }
    }
}

/// Elements of a dense image.
pub(crate) fn dense_len(dims: ImageDims, kind: Kind, halo: (usize, usize)) -> usize {
    let pixels = (dims.h + 2 * halo.0) * (dims.w + 2 * halo.1);
    let channels = if kind == Kind::Blocked { dims.blocks() * LANES } else { dims.c };
    dims.n * channels * pixels
}

/// What an operand has to be.
pub(crate) struct Want<'a> {
    pub(crate) dims: &'a [i64],
    pub(crate) format: &'a Format,
}

/// Checks number, dims, formats, strides and sizes of a run's operands.
pub(crate) fn check(
    kernel: &str,
    run: &Run<'_>,
    inputs: &[Want<'_>],
    outputs: &[Want<'_>],
    workspace: u64,
) -> Result<(), RunError> {
    let fail = |what: String| Err(RunError::Operand { kernel: kernel.to_owned(), what });
    for (what, found, wanted) in
        [("inputs", run.inputs.len(), inputs.len()), ("outputs", run.outputs.len(), outputs.len())]
    {
        if found != wanted {
            return fail(format!("needs {wanted} {what}, found {found}"));
        }
    }
    let pairs = run.inputs.iter().zip(inputs).map(|p| ("input", p));
    for (what, (operand, want)) in
        pairs.chain(run.outputs.iter().zip(outputs).map(|p| ("output", p)))
    {
        check_operand(kernel, what, operand, want)?;
    }
    if (run.workspace.len() as u64) < workspace {
        return fail(format!(
            "needs {workspace} bytes of workspace, found {}",
            run.workspace.len()
        ));
    }
    Ok(())
}

/// Checks one operand.
pub(crate) fn check_operand(
    kernel: &str,
    what: &str,
    operand: &Operand<'_>,
    want: &Want<'_>,
) -> Result<(), RunError> {
    let fail = |what: String| Err(RunError::Operand { kernel: kernel.to_owned(), what });
    if operand.format != want.format || operand.dims != want.dims {
        return fail(format!(
            "needs {what} {}{:?}, found {}{:?}",
            want.format, want.dims, operand.format, operand.dims
        ));
    }
    let bytes = match want.format.layout {
        Layout::Opaque(_) => {
            want.format.dtype.byte_len(want.dims.iter().product::<i64>() as u64).unwrap_or(u64::MAX)
        }
        _ => match span(operand) {
            Some(elements) => want.format.dtype.byte_len(elements).unwrap_or(u64::MAX),
            None => return fail(format!("cannot read {what} with strides {:?}", operand.strides)),
        },
    };
    if (operand.len() as u64) < bytes {
        return fail(format!("needs {bytes} bytes for {what}, found {}", operand.len()));
    }
    let element = want.format.dtype.bits().div_ceil(8) as usize;
    if bytes > 0 && !(operand.as_ptr() as usize).is_multiple_of(element) {
        return fail(format!("needs {what} aligned to {element} bytes"));
    }
    Ok(())
}

/// Refuses an operand whose strides are not those of a dense tensor of its format.
pub(crate) fn dense_operand(kernel: &str, operand: &Operand<'_>) -> Result<(), RunError> {
    let (dims, strides) = (operand.dims, operand.strides);
    // Dims from the innermost out, as (logical dim, physical extent); the innermost stride.
    let (halo, block, first) = match operand.format.layout {
        Layout::ChannelsLast { halo } => (2 * i64::from(halo), 0, dims[1]),
        Layout::Blocked { block, halo } => {
            (2 * i64::from(halo), i64::from(block), i64::from(block))
        }
        _ => (0, 0, 1),
    };
    let plain = operand.format.layout == Layout::Plain;
    let mut inner = first;
    let mut dense = plain || block > 0 || dims[1] == 1 || strides[1] == 1;
    for d in (0..dims.len()).rev() {
        let extent = match d {
            _ if plain => dims[d],
            0 => dims[0],
            1 if block > 0 => (dims[1] + block - 1) / block,
            1 => continue,
            _ => dims[d] + halo,
        };
        dense &= extent <= 1 || strides[d] == inner;
        inner *= extent;
    }
    if dense {
        return Ok(());
    }
    Err(RunError::Operand {
        kernel: kernel.to_owned(),
        what: format!("needs a dense tensor, found strides {strides:?}"),
    })
}

/// [`dense_operand`] for all inputs and outputs.
pub(crate) fn dense(kernel: &str, run: &Run<'_>) -> Result<(), RunError> {
    run.inputs.iter().chain(run.outputs).try_for_each(|o| dense_operand(kernel, o))
}

/// Elements from the start of the memory to the end of the last element, halo and padding included;
/// `None` for strides that no kernel takes.
fn span(operand: &Operand<'_>) -> Option<u64> {
    let physical = operand.format.physical_dims(operand.dims)?;
    if operand.strides.len() != operand.dims.len() || operand.strides.iter().any(|&s| s < 0) {
        return None;
    }
    if physical.contains(&0) {
        return Some(0);
    }
    let mut strides = operand.strides.to_vec_on_stack()?;
    match operand.format.layout {
        Layout::Plain => {}
        Layout::ChannelsLast { .. } => {
            if operand.strides[1] != 1 && operand.dims[1] > 1 {
                return None;
            }
            // Physical order is batch, spatial dims, channels.
            let rank = operand.strides.len();
            strides.values[1..rank].rotate_left(1);
            strides.values[rank - 1] = 1;
        }
        Layout::Blocked { .. } => {
            strides.values[strides.len] = 1;
            strides.len += 1;
        }
        _ => return None,
    }
    let last: i64 = physical.iter().zip(&strides.values).map(|(d, s)| (d - 1) * s).sum();
    u64::try_from(last + 1).ok()
}

struct Few {
    values: [i64; 9],
    len: usize,
}

trait OnStack {
    fn to_vec_on_stack(&self) -> Option<Few>;
}

impl OnStack for [i64] {
    fn to_vec_on_stack(&self) -> Option<Few> {
        let mut values = [0; 9];
        values.get_mut(..self.len())?.copy_from_slice(self);
        (self.len() < 9).then_some(Few { values, len: self.len() })
    }
}

/// Multiply-adds below which splitting work among threads costs more than it saves.
const WORTH_SPLITTING: usize = 100_000;

/// Runs all tasks: on the pool when `work` (in multiply-adds, roughly) is worth a fork, else here.
///
/// Each thread takes an equal share of the numbers first. Kernels on images number their tasks by
/// image, then by rows, then by channels: then the rows that a thread reads are those that it wrote.
pub(crate) fn spread(
    pool: &dyn Pool,
    work: usize,
    tasks: usize,
    body: &(dyn Fn(usize, usize) + Sync),
) {
    if work < WORTH_SPLITTING || tasks <= 1 {
        (0..tasks).for_each(|task| body(task, 0));
    } else {
        pool.run(tasks, body);
    }
}

/// A workspace cut into parts of whole cache lines.
pub(crate) struct Parts {
    bytes: u64,
}

impl Parts {
    pub(crate) fn new() -> Parts {
        Parts { bytes: 0 }
    }

    /// Room for `elements` values of four bytes; gives the offset in such values.
    pub(crate) fn add(&mut self, elements: usize) -> usize {
        let at = self.bytes as usize / 4;
        self.bytes += (elements as u64 * 4).next_multiple_of(64);
        at
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
