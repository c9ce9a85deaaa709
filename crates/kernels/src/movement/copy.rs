//! Strided copies of any element size: transpose, slice, concatenate, split, expand, tile and pad.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    view::{Shared, Want, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{Format, Tensor};
use serde::{Deserialize, Serialize};

/// Most dims of a piece.
const MAX_DIMS: usize = 8;

/// Copies between dense operands, as boxes of strided elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopySpec {
    /// Dims and formats of the inputs; one element size for all operands.
    pub inputs: Vec<(Vec<i64>, Format)>,
    /// Dims and formats of the outputs.
    pub outputs: Vec<(Vec<i64>, Format)>,
    /// Bytes of the element that the outputs are filled with first.
    pub fill: Option<Vec<u8>>,
    /// What is copied; no two pieces write the same element.
    pub pieces: Vec<Piece>,
}

/// One box of elements; offsets and strides in elements, counted from the start of the operands' memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Piece {
    /// Which input.
    pub input: usize,
    /// Which output.
    pub output: usize,
    /// Extents of the box.
    pub dims: Vec<i64>,
    /// First element in the input.
    pub from: i64,
    /// Strides in the input; 0 repeats, negative ones walk back.
    pub from_strides: Vec<i64>,
    /// First element in the output.
    pub to: i64,
    /// Strides in the output.
    pub to_strides: Vec<i64>,
}

/// What padding repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PadMode {
    /// One element, given as bytes.
    Constant(Vec<u8>),
    /// The nearest element of the edge.
    Edge,
    /// The image mirrored at its edge element.
    Reflect,
    /// The image again.
    Wrap,
}

fn row_major(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d];
    }
    strides
}

impl CopySpec {
    fn of(
        inputs: Vec<(Vec<i64>, Format)>,
        outputs: Vec<(Vec<i64>, Format)>,
        pieces: Vec<Piece>,
    ) -> CopySpec {
        CopySpec { inputs, outputs, fill: None, pieces }
    }

    /// Output dim `i` is input dim `order[i]`, of a plain tensor.
    pub fn transpose(dims: &[i64], format: &Format, order: &[usize]) -> CopySpec {
        let strides = row_major(dims);
        let out: Vec<i64> = order.iter().map(|&d| dims[d]).collect();
        let piece = Piece {
            input: 0,
            output: 0,
            dims: out.clone(),
            from: 0,
            from_strides: order.iter().map(|&d| strides[d]).collect(),
            to: 0,
            to_strides: row_major(&out),
        };
        CopySpec::of(
            vec![(dims.to_vec(), format.clone())],
            vec![(out, format.clone())],
            vec![piece],
        )
    }

    /// `out[i] = in[start + step i]` along every dim of a plain tensor; steps may be negative.
    pub fn slice(
        dims: &[i64],
        format: &Format,
        starts: &[i64],
        steps: &[i64],
        out: &[i64],
    ) -> CopySpec {
        let strides = row_major(dims);
        let piece = Piece {
            input: 0,
            output: 0,
            dims: out.to_vec(),
            from: starts.iter().zip(&strides).map(|(a, s)| a * s).sum(),
            from_strides: steps.iter().zip(&strides).map(|(a, s)| a * s).collect(),
            to: 0,
            to_strides: row_major(out),
        };
        CopySpec::of(
            vec![(dims.to_vec(), format.clone())],
            vec![(out.to_vec(), format.clone())],
            vec![piece],
        )
    }

    /// Concatenates tensors of one format along a logical axis. Channels of blocked tensors must fill
    /// whole blocks but in the last one; `None` when they do not, or the halo would come between.
    pub fn concat(inputs: &[Vec<i64>], format: &Format, axis: usize) -> Option<CopySpec> {
        let mut out = inputs.first()?.clone();
        *out.get_mut(axis)? = inputs.iter().map(|d| d[axis]).sum();
        let (pieces, _) = CopySpec::along(inputs, &out, format, axis)?;
        let inputs = inputs.iter().map(|d| (d.clone(), format.clone())).collect();
        Some(CopySpec::of(inputs, vec![(out, format.clone())], pieces))
    }

    /// The inverse of [`CopySpec::concat`].
    pub fn split(outputs: &[Vec<i64>], format: &Format, axis: usize) -> Option<CopySpec> {
        let mut whole = outputs.first()?.clone();
        *whole.get_mut(axis)? = outputs.iter().map(|d| d[axis]).sum();
        let (mut pieces, _) = CopySpec::along(outputs, &whole, format, axis)?;
        for p in &mut pieces {
            std::mem::swap(&mut p.input, &mut p.output);
            std::mem::swap(&mut p.from, &mut p.to);
            std::mem::swap(&mut p.from_strides, &mut p.to_strides);
        }
        let outputs = outputs.iter().map(|d| (d.clone(), format.clone())).collect();
        Some(CopySpec::of(vec![(whole, format.clone())], outputs, pieces))
    }

    /// Pieces that copy each part into its place along a logical axis, in physical dims.
    fn along(
        parts: &[Vec<i64>],
        whole: &[i64],
        format: &Format,
        axis: usize,
    ) -> Option<(Vec<Piece>, Vec<i64>)> {
        use bricolage_tensor::Layout;
        let rank = whole.len();
        let (physical_axis, unit) = match format.layout {
            Layout::Plain => (axis, 1),
            Layout::ChannelsLast { halo } => match axis {
                0 => (0, 1),
                1 => (rank - 1, 1),
                _ if halo == 0 => (axis - 1, 1),
                _ => return None,
            },
            Layout::Blocked { block, halo } => match axis {
                1 => (1, i64::from(block)),
                0 => (0, 1),
                _ if halo == 0 => (axis, 1),
                _ => return None,
            },
            _ => return None,
        };
        if parts.iter().rev().skip(1).any(|d| d[axis] % unit != 0) {
            return None;
        }
        let to_strides = row_major(&format.physical_dims(whole)?);
        let mut at = 0;
        let mut pieces = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let dims = format.physical_dims(part)?;
            pieces.push(Piece {
                input: i,
                output: 0,
                from: 0,
                from_strides: row_major(&dims),
                to: at * to_strides[physical_axis],
                to_strides: to_strides.clone(),
                dims: dims.clone(),
            });
            at += dims[physical_axis];
        }
        Some((pieces, to_strides))
    }

    /// Repeats dims of 1 of a plain tensor, aligned at the last dim, to `out`.
    pub fn expand(dims: &[i64], format: &Format, out: &[i64]) -> CopySpec {
        let strides = row_major(dims);
        let skip = out.len() - dims.len();
        let from_strides = (0..out.len())
            .map(|i| if i < skip || dims[i - skip] == 1 { 0 } else { strides[i - skip] })
            .collect();
        let piece = Piece {
            input: 0,
            output: 0,
            dims: out.to_vec(),
            from: 0,
            from_strides,
            to: 0,
            to_strides: row_major(out),
        };
        CopySpec::of(
            vec![(dims.to_vec(), format.clone())],
            vec![(out.to_vec(), format.clone())],
            vec![piece],
        )
    }

    /// Repeats a plain tensor `times[d]` times along each dim; at most four dims of more than once.
    pub fn tile(dims: &[i64], format: &Format, times: &[i64]) -> CopySpec {
        let out: Vec<i64> = dims.iter().zip(times).map(|(d, t)| d * t).collect();
        let (from, to) = (row_major(dims), row_major(&out));
        let mut piece = Piece {
            input: 0,
            output: 0,
            dims: Vec::new(),
            from: 0,
            from_strides: Vec::new(),
            to: 0,
            to_strides: Vec::new(),
        };
        for d in 0..dims.len() {
            if times[d] != 1 {
                piece.dims.push(times[d]);
                piece.from_strides.push(0);
                piece.to_strides.push(to[d] * dims[d]);
            }
            piece.dims.push(dims[d]);
            piece.from_strides.push(from[d]);
            piece.to_strides.push(to[d]);
        }
        CopySpec::of(
            vec![(dims.to_vec(), format.clone())],
            vec![(out, format.clone())],
            vec![piece],
        )
    }

    /// Adds `before[d]` and `after[d]` elements around a plain tensor; negative counts cut off. `None`
    /// when the mode cannot make as many elements as asked for.
    pub fn pad(
        dims: &[i64],
        format: &Format,
        before: &[i64],
        after: &[i64],
        mode: &PadMode,
    ) -> Option<CopySpec> {
        let rank = dims.len();
        let out: Vec<i64> = (0..rank).map(|d| dims[d] + before[d] + after[d]).collect();
        if out.iter().any(|&d| d < 0) {
            return None;
        }
        // Along each dim: runs of (first output, count, first input, step).
        let mut runs: Vec<Vec<(i64, i64, i64, i64)>> = Vec::new();
        for d in 0..rank {
            let n = dims[d];
            let mut list: Vec<(i64, i64, i64, i64)> = Vec::new();
            for o in 0..out[d] {
                let at = o - before[d];
                let source = match mode {
                    _ if (0..n).contains(&at) => at,
                    PadMode::Constant(_) => continue,
                    _ if n == 0 => return None,
                    PadMode::Edge => at.clamp(0, n - 1),
                    PadMode::Wrap => at.rem_euclid(n),
                    PadMode::Reflect => {
                        let period = (2 * n - 2).max(1);
                        let at = at.rem_euclid(period);
                        if at < n { at } else { period - at }
                    }
                };
                match list.last_mut() {
                    Some(run) if run.1 == 1 && (source - run.2).abs() <= 1 => {
                        run.3 = source - run.2;
                        run.1 = 2;
                    }
                    Some(run) if run.1 > 1 && run.2 + run.1 * run.3 == source => run.1 += 1,
                    _ => list.push((o, 1, source, 1)),
                }
            }
            runs.push(list);
        }
        let (from, to) = (row_major(dims), row_major(&out));
        let mut pieces = Vec::new();
        let total: usize = runs.iter().map(Vec::len).product();
        for mut index in 0..total {
            let mut piece = Piece {
                input: 0,
                output: 0,
                dims: vec![0; rank],
                from: 0,
                from_strides: vec![0; rank],
                to: 0,
                to_strides: to.clone(),
            };
            for d in (0..rank).rev() {
                let (o, count, source, step) = runs[d][index % runs[d].len()];
                index /= runs[d].len();
                piece.dims[d] = count;
                piece.from += source * from[d];
                piece.from_strides[d] = step * from[d];
                piece.to += o * to[d];
            }
            pieces.push(piece);
        }
        let mut spec = CopySpec::of(
            vec![(dims.to_vec(), format.clone())],
            vec![(out, format.clone())],
            pieces,
        );
        if let PadMode::Constant(element) = mode {
            spec.fill = Some(element.clone());
        }
        Some(spec)
    }
}

/// A piece with joined dims, the last one along the output's neighbours.
#[derive(Clone, Debug)]
struct Plan {
    input: usize,
    output: usize,
    from: i64,
    to: i64,
    rank: usize,
    dims: [usize; MAX_DIMS],
    from_strides: [i64; MAX_DIMS],
    to_strides: [i64; MAX_DIMS],
    /// The dim along the input's neighbours, when it is another one: a transpose with the last dim.
    across: Option<usize>,
}

/// A kernel for a [`CopySpec`].
pub struct Copy {
    spec: CopySpec,
    isa: Isa,
    name: String,
    size: usize,
    plans: Vec<Plan>,
    output_lens: Vec<usize>,
}

impl Copy {
    pub(crate) fn new(spec: CopySpec, isa: Isa) -> Result<Copy, SpecError> {
        let fail = |what: String| SpecError::Unsupported { kind: "Copy", what };
        let operands = || spec.inputs.iter().chain(&spec.outputs);
        let size = operands().map(|(_, f)| f.dtype.bits() / 8).max().unwrap_or(0) as usize;
        if operands().any(|(_, f)| f.dtype.bits() as usize != 8 * size)
            || ![1, 2, 4, 8].contains(&size)
            || spec.fill.as_ref().is_some_and(|f| f.len() != size)
        {
            return Err(fail("needs one element size of 1, 2, 4 or 8 bytes for everything".into()));
        }
        let len = |(d, f): &(Vec<i64>, Format)| {
            let bytes = f.byte_len(d).filter(|&b| b < isize::MAX as u64);
            bytes.map(|b| b as usize / size).ok_or_else(|| fail(format!("cannot hold {f}{d:?}")))
        };
        let inputs: Vec<usize> = spec.inputs.iter().map(len).collect::<Result<_, _>>()?;
        let output_lens: Vec<usize> = spec.outputs.iter().map(len).collect::<Result<_, _>>()?;
        let mut plans = Vec::new();
        for (i, p) in spec.pieces.iter().enumerate() {
            let rank = p.dims.len();
            let lists = p.from_strides.len() == rank && p.to_strides.len() == rank;
            let exist = p.input < inputs.len() && p.output < output_lens.len();
            if !lists || !exist || p.dims.iter().any(|&d| d < 0) {
                return Err(fail(format!("piece {i} has no such operands or dims")));
            }
            if p.dims.contains(&0) {
                continue;
            }
            let inside = |at: i64, strides: &[i64], len: usize| {
                let (mut low, mut high) = (i128::from(at), i128::from(at));
                for (d, s) in p.dims.iter().zip(strides) {
                    let reach = i128::from(d - 1) * i128::from(*s);
                    (low, high) = (low + reach.min(0), high + reach.max(0));
                }
                low >= 0 && high < len as i128
            };
            if !inside(p.from, &p.from_strides, inputs[p.input])
                || !inside(p.to, &p.to_strides, output_lens[p.output])
            {
                return Err(fail(format!("piece {i} reaches outside its operands")));
            }
            plans.push(
                plan(p).ok_or_else(|| fail(format!("piece {i} has more than {MAX_DIMS} dims")))?,
            );
        }
        let name = format!("{}-b{}-copy", isa.name(), 8 * size);
        Ok(Copy { spec, isa, name, size, plans, output_lens })
    }
}

fn plan(piece: &Piece) -> Option<Plan> {
    let mut dims: Vec<(usize, i64, i64)> = Vec::new();
    for (d, &extent) in piece.dims.iter().enumerate() {
        let (from, to) = (piece.from_strides[d], piece.to_strides[d]);
        if extent == 1 {
            continue;
        }
        match dims.last_mut() {
            Some(last) if last.1 == from * extent && last.2 == to * extent => {
                *last = (last.0 * extent as usize, from, to);
            }
            _ => dims.push((extent as usize, from, to)),
        }
    }
    if dims.is_empty() {
        dims.push((1, 1, 1));
    }
    if dims.len() > MAX_DIMS {
        return None;
    }
    // Written in order of the output.
    dims.sort_by_key(|d| std::cmp::Reverse(d.2.abs()));
    let last = dims.len() - 1;
    let across = dims[..last].iter().position(|d| d.1 == 1).filter(|_| dims[last].1 != 1);
    let mut plan = Plan {
        input: piece.input,
        output: piece.output,
        from: piece.from,
        to: piece.to,
        rank: dims.len(),
        dims: [1; MAX_DIMS],
        from_strides: [0; MAX_DIMS],
        to_strides: [0; MAX_DIMS],
        across,
    };
    for (i, d) in dims.iter().enumerate() {
        (plan.dims[i], plan.from_strides[i], plan.to_strides[i]) = *d;
    }
    Some(plan)
}

/// The part of a plan that one task does: index `index` over the outer dims.
struct Run1<'a, T> {
    plan: &'a Plan,
    from: *const T,
    to: *mut T,
    index: usize,
}

/// Side of a square that is transposed at once.
const SIDE: usize = 32;

impl Plan {
    /// Number of independent parts.
    fn parts(&self) -> usize {
        match self.across {
            None => self.dims[..self.rank - 1].iter().product(),
            Some(a) => {
                let outer: usize =
                    (0..self.rank - 1).filter(|&d| d != a).map(|d| self.dims[d]).product();
                outer * self.dims[a].div_ceil(SIDE) * self.dims[self.rank - 1].div_ceil(SIDE)
            }
        }
    }

    fn offsets(&self, mut index: usize, without: Option<usize>) -> (isize, isize) {
        let (mut from, mut to) = (self.from, self.to);
        for d in (0..self.rank - 1).rev() {
            if Some(d) == without {
                continue;
            }
            let at = (index % self.dims[d]) as i64;
            index /= self.dims[d];
            from += at * self.from_strides[d];
            to += at * self.to_strides[d];
        }
        (from as isize, to as isize)
    }
}

impl<T: std::marker::Copy> Body for Run1<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let plan = self.plan;
        let last = plan.rank - 1;
        let (step, to_step) = (plan.from_strides[last] as isize, plan.to_strides[last] as isize);
        let Some(a) = plan.across else {
            let (from, to) = plan.offsets(self.index, None);
            let (from, to) = (self.from.offset(from), self.to.offset(to));
            let n = plan.dims[last];
            match (step, to_step) {
                (1, 1) => std::ptr::copy_nonoverlapping(from, to, n),
                (0, 1) => {
                    let x = *from;
                    for i in 0..n {
                        *to.add(i) = x;
                    }
                }
                _ => {
                    for i in 0..n as isize {
                        *to.offset(i * to_step) = *from.offset(i * step);
                    }
                }
            }
            return;
        };
        let (rows, columns) = (plan.dims[a], plan.dims[last]);
        let across = columns.div_ceil(SIDE);
        let squares = rows.div_ceil(SIDE) * across;
        let (from, to) = plan.offsets(self.index / squares, Some(a));
        let square = self.index % squares;
        let (r0, c0) = (square / across * SIDE, square % across * SIDE);
        let (r1, c1) = ((r0 + SIDE).min(rows), (c0 + SIDE).min(columns));
        // Element (r, c) goes from `r + c step` to `r row_step + c to_step`.
        let row_step = plan.to_strides[a] as isize;
        let (from, to) = (self.from.offset(from), self.to.offset(to));
        let mut r = r0;
        while r < r1 {
            let mut c = c0;
            while c < c1 {
                if size_of::<T>() == 4 && to_step == 1 && r + LANES <= r1 && c + LANES <= c1 {
                    let mut x = [S::zero(); 8];
                    for (i, x) in x.iter_mut().enumerate() {
                        *x = S::load(from.offset(r as isize + (c + i) as isize * step).cast());
                    }
                    for (i, y) in S::transpose(x).iter().enumerate() {
                        S::store(to.offset((r + i) as isize * row_step + c as isize).cast(), *y);
                    }
                } else {
                    for q in r..(r + LANES).min(r1) {
                        for p in c..(c + LANES).min(c1) {
                            let x = *from.offset(q as isize + p as isize * step);
                            *to.offset(q as isize * row_step + p as isize * to_step) = x;
                        }
                    }
                }
                c += LANES;
            }
            r += LANES;
        }
    }
}

impl Copy {
    fn go<T: std::marker::Copy + Send + Sync>(&self, run: &Run<'_>) {
        if let Some(element) = &self.spec.fill {
            for (output, &len) in run.outputs.iter().zip(&self.output_lens) {
                // SAFETY: the output holds `len` elements of the size of `T`.
                unsafe {
                    let x = element.as_ptr().cast::<T>().read_unaligned();
                    std::slice::from_raw_parts_mut(output.as_mut_ptr().cast::<T>(), len).fill(x);
                }
            }
        }
        for plan in &self.plans {
            let from = Shared::new(run.inputs[plan.input].as_mut_ptr().cast::<T>());
            let to = Shared::new(run.outputs[plan.output].as_mut_ptr().cast::<T>());
            let parts = plan.parts();
            let elements: usize = plan.dims[..plan.rank].iter().product();
            // Tasks of about 64 KiB.
            let tasks = (elements * size_of::<T>()).div_ceil(64 << 10).min(parts);
            spread(run.pool, 2 * elements, tasks, &|task, _| {
                let (first, end) = crate::tile::part_range(parts, tasks, task);
                for index in first..end {
                    let part = Run1 { plan, from: from.get(), to: to.get(), index };
                    // SAFETY: the pieces were proved to lie inside the operands; parts are disjoint.
                    unsafe { self.isa.enter(part) };
                }
            });
        }
    }
}

impl Kernel for Copy {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let wants = |list: &'_ [(Vec<i64>, Format)], found: usize| (list.len(), found);
        for (what, (needed, found)) in [
            ("inputs", wants(&self.spec.inputs, run.inputs.len())),
            ("outputs", wants(&self.spec.outputs, run.outputs.len())),
        ] {
            if needed != found {
                return Err(RunError::Operand {
                    kernel: self.name.clone(),
                    what: format!("needs {needed} {what}, found {found}"),
                });
            }
        }
        let pairs = run.inputs.iter().zip(&self.spec.inputs);
        for (operand, (dims, format)) in pairs.chain(run.outputs.iter().zip(&self.spec.outputs)) {
            let want = Want { dims, format };
            crate::view::check_operand(&self.name, "an operand", operand, &want)?;
            crate::view::dense_operand(&self.name, operand)?;
        }
        match self.size {
            1 => self.go::<u8>(run),
            2 => self.go::<u16>(run),
            4 => self.go::<u32>(run),
            _ => self.go::<u64>(run),
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Copy {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Copy(self.spec.clone())
    }
}
