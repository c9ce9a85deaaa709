//! Programs of scalar operations over broadcast operands, run on blocks of elements that stay in the
//! first-level cache from one operation to the next.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    iterate::{MAX_DIMS, MAX_OPERANDS, Nest},
    simd::{Body, LANES, Simd},
    spec::recipe,
    unary::{MapUnary, Unary},
    view::{Image, Kind, Parts, Shared, Want, check_operand, image_kind, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// A program over the elements of an output's dims.
///
/// Operands broadcast to `dims` from the last dim on. Inputs first, then constants (given to `pack`
/// as they are). All outputs have `dims` and one layout; operands that are not plain have that layout
/// too, and plain operands go with any. Elements are `f32`, or `bool` read as 0 and 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointwiseSpec {
    /// Dims of every output.
    pub dims: Vec<i64>,
    /// Format of the outputs, but for the element type.
    pub format: Format,
    /// What the program reads.
    pub operands: Vec<PointwiseOperand>,
    /// How many of the operands, the last ones, are constants.
    pub constants: usize,
    /// The program; an instruction's number names its value.
    pub body: Vec<Instruction>,
    /// Values to write, with `F32` or `Bool` (true for all but 0) as element type.
    pub outputs: Vec<(u16, DType)>,
}

/// One operand of a [`PointwiseSpec`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointwiseOperand {
    /// Dims, broadcast to those of the output.
    pub dims: Vec<i64>,
    /// Element type and layout.
    pub format: Format,
}

/// One step of a program; arguments are numbers of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Instruction {
    /// The element of an operand.
    Operand(u16),
    /// A number.
    Constant(f32),
    /// A function of one value.
    Unary(Unary, u16),
    /// A function of two values.
    Binary(Binary, u16, u16),
    /// The second value where the first is not 0, else the third.
    Select(u16, u16, u16),
}

/// A function of two `f32`; comparisons and logic give 1 or 0, and take all but 0 as true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    /// The remainder with the sign of the second value.
    Mod,
    /// The remainder with the sign of the first value.
    Rem,
    /// NaN when either is NaN.
    Min,
    /// NaN when either is NaN.
    Max,
    /// The first value where it is at least 0, else both multiplied.
    PRelu,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Xor,
}

/// Elements of a block.
const BLOCK: usize = 512;
/// Elements of a task.
const TASK: usize = 16 << 10;

/// A kernel for a [`PointwiseSpec`].
pub struct Pointwise {
    spec: PointwiseSpec,
    isa: Isa,
    name: String,
    kind: Kind,
    output_formats: Vec<Format>,
}

impl Pointwise {
    pub(crate) fn new(spec: PointwiseSpec, isa: Isa) -> Result<Pointwise, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Pointwise", what });
        if spec.operands.len() + spec.outputs.len() > MAX_OPERANDS {
            return fail(format!("takes at most {MAX_OPERANDS} operands and outputs"));
        }
        if spec.outputs.is_empty() || spec.body.len() > 4096 || spec.constants > spec.operands.len()
        {
            return fail(
                "needs an output, at most 4096 steps and no more constants than operands".into(),
            );
        }
        let float = Format { dtype: DType::F32, layout: spec.format.layout.clone() };
        let Some((kind, _)) = image_kind(&float) else {
            return fail(format!("does not write the format {}", spec.format));
        };
        let rank = spec.dims.len();
        let image = kind == Kind::Plain || (3..=4).contains(&rank);
        if rank > 8 || spec.dims.iter().any(|&d| d < 0) || !image {
            return fail(format!(
                "needs at most 8 dims that fit the layout, found {:?}",
                spec.dims
            ));
        }
        for operand in &spec.operands {
            let skip = rank.checked_sub(operand.dims.len());
            let fits = skip.is_some_and(|skip| {
                operand.dims.iter().zip(&spec.dims[skip..]).all(|(a, b)| *a == 1 || a == b)
            });
            let layout = operand.format.layout.clone();
            let operand_kind = image_kind(&Format { dtype: DType::F32, layout }).map(|(k, _)| k);
            let like = operand_kind == Some(Kind::Plain)
                || (operand_kind == Some(kind)
                    && operand.dims.len() == rank
                    && operand.format.dtype == DType::F32);
            if !fits || !like || !matches!(operand.format.dtype, DType::F32 | DType::Bool) {
                let (d, f) = (&operand.dims, &operand.format);
                return fail(format!(
                    "cannot broadcast {f}{d:?} to {}{:?}",
                    spec.format, spec.dims
                ));
            }
        }
        for (i, step) in spec.body.iter().enumerate() {
            let before = |v: u16| usize::from(v) < i;
            let ok = match *step {
                Instruction::Operand(n) => usize::from(n) < spec.operands.len(),
                Instruction::Constant(_) => true,
                Instruction::Unary(_, a) => before(a),
                Instruction::Binary(_, a, b) => before(a) && before(b),
                Instruction::Select(c, a, b) => before(c) && before(a) && before(b),
            };
            if !ok {
                return fail(format!("step {i} uses a value that does not exist before it"));
            }
        }
        for &(value, dtype) in &spec.outputs {
            let writable = dtype == DType::F32 || (dtype == DType::Bool && kind == Kind::Plain);
            if usize::from(value) >= spec.body.len() || !writable {
                return fail(format!("cannot write value {value} as {dtype}"));
            }
        }
        let layout = &spec.format.layout;
        let output_formats = spec
            .outputs
            .iter()
            .map(|&(_, dtype)| Format { dtype, layout: layout.clone() })
            .collect();
        let name = format!("{}-f32-pointwise-{}", isa.name(), spec.body.len());
        Ok(Pointwise { spec, isa, name, kind, output_formats })
    }

    fn scratch_len(&self) -> usize {
        self.spec.body.len() * BLOCK
    }

    /// Strides of an operand along the iteration space: its logical dims, with channels last, or as
    /// blocks and then channels of a block.
    fn strides(&self, operand: &Operand<'_>) -> [usize; MAX_DIMS] {
        let rank = self.spec.dims.len();
        let skip = rank - operand.dims.len();
        let mut logical = [0usize; 8];
        for (d, (&dim, &stride)) in operand.dims.iter().zip(operand.strides).enumerate() {
            logical[skip + d] =
                if dim == 1 && self.spec.dims[skip + d] != 1 { 0 } else { stride as usize };
        }
        let mut strides = [0usize; MAX_DIMS];
        match self.kind {
            Kind::Plain => strides[..rank].copy_from_slice(&logical[..rank]),
            Kind::Last => {
                strides[0] = logical[0];
                strides[1..rank - 1].copy_from_slice(&logical[2..rank]);
                strides[rank - 1] = logical[1];
            }
            Kind::Blocked => {
                strides[0] = logical[0];
                strides[2..rank].copy_from_slice(&logical[2..rank]);
                let plain = operand.format.layout == bricolage_tensor::Layout::Plain;
                let one = skip > 1 || operand.dims[1 - skip] == 1;
                let one = one && self.spec.dims[1] != 1;
                (strides[1], strides[rank]) = match (plain, one) {
                    (_, true) => (0, 0),
                    (true, false) => (LANES * logical[1], logical[1]),
                    (false, false) => (logical[1], 1),
                };
            }
        }
        strides
    }

    /// Extents of the iteration space: of the full blocks of channels, or of the last block when it is
    /// not full.
    fn extents(&self, tail: bool) -> ([usize; MAX_DIMS], usize) {
        let dims = &self.spec.dims;
        let rank = dims.len();
        let mut extents = [1usize; MAX_DIMS];
        for (e, &d) in extents.iter_mut().zip(dims) {
            *e = d as usize;
        }
        match self.kind {
            Kind::Plain => (extents, rank),
            Kind::Last => {
                extents[1..rank].rotate_left(1);
                (extents, rank)
            }
            Kind::Blocked => {
                let c = dims[1] as usize;
                (extents[1], extents[rank]) =
                    if tail { (1, c % LANES) } else { (c / LANES, LANES) };
                (extents, rank + 1)
            }
        }
    }
}

/// An operand with its element type and place.
#[derive(Clone, Copy)]
struct Source {
    start: *mut u8,
    bool: bool,
}

/// One task: blocks of rows of the nest.
struct Blocks<'a> {
    of: &'a Pointwise,
    nest: &'a Nest,
    sources: &'a [Source],
    rows: (usize, usize),
    /// Elements of each row.
    span: (usize, usize),
    scratch: *mut f32,
    pointers: *mut *const f32,
}

impl Body for Blocks<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let spec = &self.of.spec;
        for (i, step) in spec.body.iter().enumerate() {
            if let Instruction::Constant(x) = *step {
                let to = self.scratch.add(i * BLOCK);
                for j in (0..BLOCK).step_by(LANES) {
                    S::store(to.add(j), S::splat(x));
                }
                *self.pointers.add(i) = to;
            }
        }
        let width = self.span.1 - self.span.0;
        let together = (BLOCK / width.max(1)).max(1);
        let mut row = self.rows.0;
        while row < self.rows.1 {
            // Rows that follow each other along the last but one dim.
            let left = self.nest.inner_rows() - row % self.nest.inner_rows();
            let rows = together.min(self.rows.1 - row).min(left);
            let mut from = self.span.0;
            while from < self.span.1 {
                let count = (self.span.1 - from).min(BLOCK);
                self.block::<S>(row, rows, from, count);
                from += count;
            }
            row += rows;
        }
    }
}

impl Blocks<'_> {
    /// `rows` rows of `count` elements from element `from` on.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, row: usize, rows: usize, from: usize, count: usize) {
        let spec = &self.of.spec;
        let n = rows * count;
        let pointers = self.pointers;
        let last = spec.body.len() - 1;
        for (i, step) in spec.body.iter().enumerate() {
            let mut to = self.scratch.add(i * BLOCK);
            let arg = |v: u16| *pointers.add(usize::from(v));
            match *step {
                Instruction::Constant(_) => continue,
                Instruction::Operand(k) => {
                    *pointers.add(i) = self.load::<S>(usize::from(k), row, rows, from, count, to);
                    continue;
                }
                _ => {}
            }
            // The last value goes straight to its output.
            if i == last
                && let Some(o) = spec.outputs.iter().position(|o| *o == (last as u16, DType::F32))
                && let Some(place) =
                    self.contiguous(spec.operands.len() + o, row, rows, from, count)
            {
                to = place.cast();
            }
            match *step {
                Instruction::Unary(op, a) => {
                    S::enter(MapUnary { op, src: arg(a), dst: to, len: n });
                }
                Instruction::Binary(op, a, b) => {
                    S::enter(MapBinary { op, a: arg(a), b: arg(b), to, len: n });
                }
                Instruction::Select(c, a, b) => {
                    S::enter(MapSelect { c: arg(c), a: arg(a), b: arg(b), to, len: n });
                }
                _ => {}
            }
            *pointers.add(i) = to;
        }
        for (o, &(value, dtype)) in spec.outputs.iter().enumerate() {
            let from_value = *pointers.add(usize::from(value));
            let operand = spec.operands.len() + o;
            self.store(operand, row, rows, from, count, from_value, dtype == DType::Bool);
        }
    }

    /// Start of a block of an operand whose elements follow each other.
    #[inline(always)]
    unsafe fn contiguous(
        &self,
        operand: usize,
        row: usize,
        rows: usize,
        from: usize,
        count: usize,
    ) -> Option<*mut u8> {
        let (row_stride, stride) = self.nest.inner_strides(operand);
        let source = self.sources[operand];
        let follows = (count == 1 || stride == 1) && (rows == 1 || row_stride == count);
        if !follows || source.bool {
            return None;
        }
        let at = self.nest.offset(operand, row) + from * stride;
        Some(source.start.add(4 * at))
    }

    /// Where the elements are found, in place or copied to `to`.
    #[inline(always)]
    unsafe fn load<S: Simd>(
        &self,
        operand: usize,
        row: usize,
        rows: usize,
        from: usize,
        count: usize,
        to: *mut f32,
    ) -> *const f32 {
        if let Some(place) = self.contiguous(operand, row, rows, from, count) {
            return place.cast();
        }
        let (row_stride, stride) = self.nest.inner_strides(operand);
        let source = self.sources[operand];
        let at = self.nest.offset(operand, row) + from * stride;
        for r in 0..rows {
            let (at, to) = (at + r * row_stride, to.add(r * count));
            if source.bool {
                for j in 0..count {
                    *to.add(j) = f32::from(u8::from(*source.start.add(at + j * stride) != 0));
                }
                continue;
            }
            let p = source.start.cast::<f32>().add(at) as *const f32;
            match stride {
                0 => {
                    let x = S::splat(*p);
                    let mut j = 0;
                    while j < count {
                        store_some::<S>(to.add(j), x, (count - j).min(LANES));
                        j += LANES;
                    }
                }
                1 if count == LANES => S::store(to, S::load(p)),
                1 => std::ptr::copy_nonoverlapping(p, to, count),
                _ => {
                    for j in 0..count {
                        *to.add(j) = *p.add(j * stride);
                    }
                }
            }
        }
        to
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn store(
        &self,
        operand: usize,
        row: usize,
        rows: usize,
        from: usize,
        count: usize,
        values: *const f32,
        bool: bool,
    ) {
        let (row_stride, stride) = self.nest.inner_strides(operand);
        let start = self.sources[operand].start;
        let at = self.nest.offset(operand, row) + from * stride;
        for r in 0..rows {
            let (at, values) = (at + r * row_stride, values.add(r * count));
            if bool {
                for j in 0..count {
                    *start.add(at + j * stride) = u8::from(*values.add(j) != 0.0);
                }
                continue;
            }
            let to = start.cast::<f32>().add(at);
            if stride == 1 {
                if !std::ptr::eq(to, values) {
                    std::ptr::copy_nonoverlapping(values, to, count);
                }
                continue;
            }
            for j in 0..count {
                *to.add(j * stride) = *values.add(j);
            }
        }
    }
}

#[inline(always)]
unsafe fn load_some<S: Simd>(p: *const f32, n: usize) -> S::V {
    if n >= LANES { S::load(p) } else { S::load_part(p, n) }
}

#[inline(always)]
unsafe fn store_some<S: Simd>(p: *mut f32, v: S::V, n: usize) {
    if n >= LANES { S::store(p, v) } else { S::store_part(p, v, n) }
}

struct MapSelect {
    c: *const f32,
    a: *const f32,
    b: *const f32,
    to: *mut f32,
    len: usize,
}

impl Body for MapSelect {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut i = 0;
        while i < self.len {
            let n = self.len - i;
            let no = S::eq(load_some::<S>(self.c.add(i), n), S::zero());
            let (a, b) = (load_some::<S>(self.a.add(i), n), load_some::<S>(self.b.add(i), n));
            store_some::<S>(self.to.add(i), S::select(no, b, a), n);
            i += LANES;
        }
    }
}

struct MapBinary {
    op: Binary,
    a: *const f32,
    b: *const f32,
    to: *mut f32,
    len: usize,
}

impl Body for MapBinary {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let MapBinary { op, a, b, to, len } = self;
        macro_rules! all {
            ($x:ident, $y:ident => $e:expr) => {{
                let mut i = 0;
                while i < len {
                    let n = len - i;
                    let $x = load_some::<S>(a.add(i), n);
                    let $y = load_some::<S>(b.add(i), n);
                    store_some::<S>(to.add(i), $e, n);
                    i += LANES;
                }
            }};
        }
        macro_rules! scalar {
            ($f:expr) => {
                for i in 0..len {
                    *to.add(i) = $f(*a.add(i), *b.add(i));
                }
            };
        }
        let (zero, one) = (S::zero(), S::splat(1.0));
        match op {
            Binary::Add => all!(x, y => S::add(x, y)),
            Binary::Sub => all!(x, y => S::sub(x, y)),
            Binary::Mul => all!(x, y => S::mul(x, y)),
            Binary::Div => all!(x, y => S::div(x, y)),
            Binary::Pow => scalar!(f32::powf),
            Binary::Mod => scalar!(|x: f32, y: f32| {
                let r = x % y;
                if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
            }),
            Binary::Rem => scalar!(|x: f32, y: f32| x % y),
            Binary::Min => all!(x, y => S::select(S::nan(x), x, S::min(x, y))),
            Binary::Max => all!(x, y => S::select(S::nan(x), x, S::max(x, y))),
            Binary::PRelu => all!(x, y => S::select(S::lt(x, zero), S::mul(x, y), x)),
            Binary::Equal => all!(x, y => S::and(one, S::eq(x, y))),
            Binary::Less => all!(x, y => S::and(one, S::lt(x, y))),
            Binary::LessOrEqual => all!(x, y => S::and(one, S::le(x, y))),
            Binary::Greater => all!(x, y => S::and(one, S::lt(y, x))),
            Binary::GreaterOrEqual => all!(x, y => S::and(one, S::le(y, x))),
            Binary::And => all!(x, y => S::andnot(S::or(S::eq(x, zero), S::eq(y, zero)), one)),
            Binary::Or => all!(x, y => S::andnot(S::and(S::eq(x, zero), S::eq(y, zero)), one)),
            Binary::Xor => all!(x, y => S::and(S::xor(S::eq(x, zero), S::eq(y, zero)), one)),
        }
    }
}

impl Kernel for Pointwise {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        let inputs = self.spec.operands.len() - self.spec.constants;
        let mut in_place = Vec::new();
        // With several outputs one may be written before another's value is read.
        for (o, format) in
            self.output_formats.iter().enumerate().filter(|_| self.spec.outputs.len() == 1)
        {
            for (i, operand) in self.spec.operands[..inputs].iter().enumerate() {
                if operand.dims == self.spec.dims && operand.format == *format {
                    in_place.push((o, i));
                }
            }
        }
        Needs {
            workspace: self.workspace(threads),
            foreign: Some(0),
            in_place,
            deterministic: true,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let inputs = spec.operands.len() - spec.constants;
        if run.inputs.len() != inputs
            || run.outputs.len() != spec.outputs.len()
            || run.constants.len() != spec.constants
        {
            let (i, c, o) = (run.inputs.len(), run.constants.len(), run.outputs.len());
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!(
                    "needs {inputs} inputs, {} constants and {} outputs, found {i}, {c} and {o}",
                    spec.constants,
                    spec.outputs.len()
                ),
            });
        }
        for (operand, want) in run.inputs.iter().chain(run.constants).zip(&spec.operands) {
            let want = Want { dims: &want.dims, format: &want.format };
            check_operand(&self.name, "an operand", operand, &want)?;
        }
        for (operand, format) in run.outputs.iter().zip(&self.output_formats) {
            check_operand(&self.name, "an output", operand, &Want { dims: &spec.dims, format })?;
        }
        if (run.workspace.len() as u64) < self.workspace(run.pool.threads()) {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!("needs a larger workspace than {} bytes", run.workspace.len()),
            });
        }
        let blocked = self.kind == Kind::Blocked;
        for tail in [false, true] {
            if tail && (!blocked || spec.dims[1] % LANES as i64 == 0) {
                break;
            }
            self.pass(run, tail);
        }
        if self.kind != Kind::Plain {
            for output in run.outputs {
                // SAFETY: the outputs were checked, and all tasks have ended.
                unsafe {
                    let image = Image::new(output);
                    image.zero_halo();
                    image.zero_missing();
                }
            }
        }
        if run.cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl Pointwise {
    fn workspace(&self, threads: usize) -> u64 {
        let mut parts = Parts::new();
        // Values and, as wide as two of them, pointers to values.
        parts.add((self.scratch_len() + 2 * self.spec.body.len() + 16) * threads);
        parts.bytes()
    }

    /// All full blocks of channels, or the last one.
    fn pass(&self, run: &Run<'_>, tail: bool) {
        let spec = &self.spec;
        let (extents, rank) = self.extents(tail);
        let mut strides = [[0usize; MAX_DIMS]; MAX_OPERANDS];
        let mut sources = [Source { start: std::ptr::null_mut(), bool: false }; MAX_OPERANDS];
        let operands = run.inputs.iter().chain(run.constants).chain(run.outputs);
        let skip_blocks = if tail { spec.dims[1] as usize / LANES } else { 0 };
        let mut count = 0;
        for operand in operands {
            strides[count] = self.strides(operand);
            let bool = operand.format.dtype == DType::Bool;
            let size = if bool { 1 } else { 4 };
            let mut start = operand.as_mut_ptr();
            if operand.dims.len() >= 3
                && image_kind(operand.format).is_some_and(|k| k.0 != Kind::Plain)
            {
                start = Image::new(operand).base.cast();
            }
            if tail {
                start = start.wrapping_add(size * skip_blocks * strides[count][1]);
            }
            sources[count] = Source { start, bool };
            count += 1;
        }
        let nest = Nest::new(&extents[..rank], &strides[..count]);
        let (rows, width) = (nest.rows(), nest.width());
        if rows * width == 0 {
            return;
        }
        let pieces = width.div_ceil(TASK);
        let rows_of_a_task = (TASK / width).max(1);
        let groups = rows.div_ceil(rows_of_a_task);
        let tasks = groups * pieces;
        let one_image = extents[0] == 1;
        let workspace = Shared::new(run.workspace.as_mut_ptr().cast::<f32>());
        let sources = SharedSources(&sources[..count]);
        let steps = spec.body.len();
        let scratch_len = (self.scratch_len() + 2 * steps).next_multiple_of(16);
        // A step costs as much as a few multiply-adds.
        spread(run.pool, 4 * rows * width * steps, tasks, &|task, thread| {
            if run.cancel.is_cancelled() {
                return;
            }
            let (group, piece) = match one_image {
                true => (task % groups, task / groups),
                false => (task / pieces, task % pieces),
            };
            let scratch = workspace.get().wrapping_add(thread * scratch_len);
            let first = group * rows_of_a_task;
            // SAFETY: each task writes elements of its own and its thread's part of the workspace,
            // whose tail holds the pointers.
            unsafe {
                let pointers = scratch.add(steps * BLOCK).cast::<*const f32>();
                self.isa.enter(Blocks {
                    of: self,
                    nest: &nest,
                    sources: sources.get(),
                    rows: (first, (first + rows_of_a_task).min(rows)),
                    span: crate::tile::part_range(width, pieces, piece),
                    scratch,
                    pointers,
                });
            }
        });
    }
}

#[derive(Clone, Copy)]
struct SharedSources<'a>(&'a [Source]);

impl SharedSources<'_> {
    fn get(&self) -> &[Source] {
        self.0
    }
}

// SAFETY: tasks write disjoint elements of the outputs and only read the inputs.
unsafe impl Sync for SharedSources<'_> {}

impl NativeKernel for Pointwise {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        let inputs = self.spec.operands.len() - self.spec.constants;
        crate::spec::pack_as_they_are(&self.name, raw, &self.spec.operands[inputs..])
    }

    fn spec(&self) -> Spec {
        Spec::Pointwise(self.spec.clone())
    }
}
