//! Recurrent layers: simple, gated (Cho et al., "Learning Phrase Representations using RNN
//! Encoder-Decoder", 2014) and long short-term memory cells (Hochreiter and Schmidhuber, 1997; with
//! peepholes, Gers et al., 2002), with the equations of ONNX.
//!
//! One product makes what the inputs of all steps give to all gates of all directions. Each step then
//! adds the state's product, whose columns are packed so that one tile holds all gates of its units, and
//! applies the cell's functions over rows that are in the cache.

mod pack;
mod pass;

use crate::{
    Isa, MatMul, MatMulSpec, NativeKernel, Packed, Spec, SpecError, Unary,
    simd::LANES,
    spec::recipe,
    tile::Tiles,
    view::{Parts, Want, check, check_operand, dense, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use pass::{LengthsAt, Pass, Phase, Whole};
use serde::{Deserialize, Serialize};

/// What happens at one step; blocks of weights are in ONNX's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecurrentCell {
    /// `h' = f(x W + h R + b)`.
    Simple,
    /// Gates `z` and `r`, candidate `g`: `h' = (1 - z) g + z h`.
    Gru {
        /// The reset gate multiplies `h R + b` instead of `h`.
        linear_before_reset: bool,
    },
    /// Gates `i`, `o` and `f`, candidate `g`, cell `c`: `c' = f c + i g`, `h' = o k(c')`.
    Lstm {
        /// The forget gate is `1 - i`.
        input_forget: bool,
    },
}

impl RecurrentCell {
    fn gates(self) -> usize {
        match self {
            RecurrentCell::Simple => 1,
            RecurrentCell::Gru { .. } => 3,
            RecurrentCell::Lstm { .. } => 4,
        }
    }

    /// Functions of a direction: of the gates, of the candidate, of the cell's way out.
    fn functions(self) -> usize {
        match self {
            RecurrentCell::Simple => 1,
            RecurrentCell::Gru { .. } => 2,
            RecurrentCell::Lstm { .. } => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            RecurrentCell::Simple => "rnn",
            RecurrentCell::Gru { .. } => "gru",
            RecurrentCell::Lstm { .. } => "lstm",
        }
    }
}

/// The number of valid steps of each sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lengths {
    /// All steps.
    Whole,
    /// These, one for each sequence.
    Constant(Vec<i64>),
    /// An input, integers `[batch]` of 32 or 64 bits.
    Operand(DType),
}

/// What a state is before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// 0.
    Zero,
    /// A constant to pack, `f32[directions, batch, hidden]`.
    Constant,
    /// An input, `f32[directions, batch, hidden]`.
    Operand,
}

/// A recurrent layer.
///
/// With `d` directions and `g` blocks of weights (1 simple, 3 gated, 4 long short-term memory), inputs:
/// the sequences `f32[steps, batch, width]`; then lengths, state and cell, those that are operands.
/// Outputs, those that are wanted: the states of all steps `f32[steps, d, batch, hidden]`, 0 beyond a
/// sequence's length; the last state `f32[d, batch, hidden]`; the last cell, likewise. To pack: weights
/// of the input `f32[d, g hidden, width]` and of the state `f32[d, g hidden, hidden]`; the biases of both,
/// one after the other, `f32[d, 2 g hidden]`; peepholes `f32[d, 3 hidden]`; state and cell before the
/// first step; each of the last four only if the spec says so. All operands are dense.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecurrentSpec {
    /// What happens at one step.
    pub cell: RecurrentCell,
    /// For each direction, whether it runs from the last valid step back.
    pub directions: Vec<bool>,
    /// Steps of the longest sequence.
    pub steps: i64,
    /// Sequences.
    pub batch: i64,
    /// Elements of an input.
    pub width: i64,
    /// Elements of a state.
    pub hidden: i64,
    /// For each direction, the functions of gates, candidate (not of a simple cell) and cell (of a long
    /// short-term memory); each is a list of at least one, applied in order.
    pub functions: Vec<Vec<Unary>>,
    /// Biases are packed.
    pub bias: bool,
    /// Peepholes are packed; of a long short-term memory only.
    pub peepholes: bool,
    /// Valid steps.
    pub lengths: Lengths,
    /// The state before the first step.
    pub state: Start,
    /// The cell before the first step; zero unless the layer is a long short-term memory.
    pub memory: Start,
    /// Which outputs are wanted.
    pub outputs: [bool; 3],
}

/// One product with the state, and the part of a step that follows it.
#[derive(Clone, Copy)]
struct Stage {
    /// First block of weights and how many.
    first: usize,
    gates: usize,
    tiles: Tiles,
    /// Units of a panel.
    units: usize,
    panels: usize,
    /// Where its panels start in the packed constant, in elements.
    at: usize,
}

/// Offsets in the second packed constant, in elements.
#[derive(Clone, Copy)]
struct Constants {
    bias: usize,
    peepholes: usize,
    state: usize,
    memory: usize,
    len: usize,
}

/// A kernel for a [`RecurrentSpec`].
pub struct Recurrent {
    spec: RecurrentSpec,
    isa: Isa,
    name: String,
    tag: String,
    /// The product with all inputs; its result is `[steps, batch, directions, gates, row]`.
    projection: MatMul,
    stages: Vec<Stage>,
    /// Elements from one gate to the next: hidden units up to whole panels.
    row: usize,
    /// Elements kept aside for a sequence and a direction.
    aside: usize,
    constants: Constants,
    steps: usize,
    batch: usize,
    hidden: usize,
    /// Dims of x, lengths, a state, all states, and the second constant.
    dims: [Vec<i64>; 5],
    /// Dims and strides of the product's operands.
    flat: [[i64; 2]; 4],
}

impl Recurrent {
    pub(crate) fn new(spec: RecurrentSpec, isa: Isa) -> Result<Recurrent, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Recurrent", what });
        let s = &spec;
        if s.steps < 0 || s.batch < 0 || s.width < 1 || s.hidden < 1 {
            let sizes = [s.steps, s.batch, s.width, s.hidden];
            return fail(format!("needs steps and batch, and positive sizes, found {sizes:?}"));
        }
        let d = s.directions.len();
        let (cell, functions) = (s.cell, s.cell.functions() * d);
        if !(1..=2).contains(&d) || s.functions.len() != functions {
            let found = s.functions.len();
            return fail(format!(
                "needs 1 or 2 directions and {functions} functions, found {d} and {found}"
            ));
        }
        if s.functions.iter().any(Vec::is_empty) {
            return fail("needs at least one function in each list".into());
        }
        let lstm = matches!(cell, RecurrentCell::Lstm { .. });
        if !lstm && (s.peepholes || s.memory != Start::Zero || s.outputs[2]) {
            return fail("has a cell and peepholes in a long short-term memory only".into());
        }
        let lengths = match &s.lengths {
            Lengths::Whole | Lengths::Operand(DType::I32 | DType::I64) => true,
            Lengths::Constant(all) => {
                all.len() as i64 == s.batch && all.iter().all(|l| (0..=s.steps).contains(l))
            }
            Lengths::Operand(_) => false,
        };
        if !lengths {
            return fail(format!(
                "needs a length in 0..={} for each of {} sequences, found {:?}",
                s.steps, s.batch, s.lengths
            ));
        }
        let (steps, batch, hidden) = (s.steps as usize, s.batch as usize, s.hidden as usize);
        // Few rows leave room for wide panels.
        let wide = (if batch <= 3 { 4 } else { 2 }).min(hidden.div_ceil(LANES));
        let split: &[(usize, usize, usize)] = match cell {
            RecurrentCell::Simple => &[(0, 1, wide)],
            RecurrentCell::Gru { linear_before_reset: true } => &[(0, 3, 3)],
            RecurrentCell::Gru { linear_before_reset: false } => &[(0, 2, 2), (2, 1, wide)],
            RecurrentCell::Lstm { .. } => &[(0, 4, 4)],
        };
        let units = |gates: usize, vectors: usize| LANES * vectors / gates;
        let row = split.iter().map(|&(_, g, v)| hidden.next_multiple_of(units(g, v))).max();
        let row = row.unwrap_or(hidden);
        let mut parts = Parts::new();
        let stage = |&(first, gates, vectors): &(usize, usize, usize)| {
            let units = units(gates, vectors);
            let panels = hidden.div_ceil(units);
            let at = parts.add(d * panels * hidden * vectors * LANES);
            Stage { first, gates, tiles: Tiles::new(isa, vectors), units, panels, at }
        };
        let stages: Vec<Stage> = split.iter().map(stage).collect();
        let apart = matches!(cell, RecurrentCell::Gru { linear_before_reset: true });
        let bias = parts.add(if apart { d * stages[0].panels * 3 * LANES } else { 0 });
        let peepholes = parts.add(if s.peepholes { d * 3 * row } else { 0 });
        let all = d * batch * hidden;
        let state = parts.add(if s.state == Start::Constant { all } else { 0 });
        let memory = parts.add(if s.memory == Start::Constant { all } else { 0 });
        let len = parts.bytes() as usize / 4;
        let (rows, columns) = (s.steps * s.batch, (d * cell.gates() * row) as i64);
        let mut product = MatMulSpec::new(rows, s.width, columns);
        (product.transpose_b, product.bias) = (true, s.bias);
        Ok(Recurrent {
            name: format!("{}-f32-{}", isa.name(), cell.name()),
            tag: format!("{}{}", cell.name(), stages[0].tiles.cols()),
            projection: MatMul::new(product, isa)?,
            aside: match cell {
                RecurrentCell::Gru { linear_before_reset: true } => 3 * row,
                RecurrentCell::Gru { linear_before_reset: false } => row,
                _ => 0,
            },
            constants: Constants { bias, peepholes, state, memory, len },
            dims: [
                vec![s.steps, s.batch, s.width],
                vec![s.batch],
                vec![d as i64, s.batch, s.hidden],
                vec![s.steps, d as i64, s.batch, s.hidden],
                vec![len as i64],
            ],
            flat: [[rows, s.width], [s.width, 1], [rows, columns], [columns, 1]],
            stages,
            row,
            steps,
            batch,
            hidden,
            spec,
            isa,
        })
    }

    fn count(&self) -> usize {
        self.spec.directions.len()
    }

    /// Offsets in the workspace, in elements but for `bytes`.
    fn workspace(&self, threads: usize) -> Workspace {
        let all = self.count() * self.batch;
        let mut parts = Parts::new();
        let sums = parts.add(self.steps * all * self.spec.cell.gates() * self.row);
        let state = parts.add(2 * all * self.row);
        let lstm = matches!(self.spec.cell, RecurrentCell::Lstm { .. });
        let memory = parts.add(if lstm { all * self.row } else { 0 });
        let aside = parts.add(all * self.aside);
        let needs = self.projection.needs(&Dims { inputs: &[], outputs: &[] }, threads);
        let product = parts.add(needs.workspace.div_ceil(4) as usize);
        Workspace { sums, state, memory, aside, product, bytes: parts.bytes() }
    }

    /// Checks lengths that are data.
    fn lengths<'a>(&'a self, operand: Option<&Operand<'_>>) -> Result<LengthsAt<'a>, RunError> {
        let at = match (&self.spec.lengths, operand) {
            (Lengths::Constant(all), _) => LengthsAt::List(all),
            (Lengths::Operand(DType::I32), Some(o)) => LengthsAt::I32(o.as_ptr().cast()),
            (Lengths::Operand(_), Some(o)) => LengthsAt::I64(o.as_ptr().cast()),
            _ => LengthsAt::Same(self.steps),
        };
        for b in 0..self.batch {
            // SAFETY: the operand was checked to hold one length for each sequence.
            let length = unsafe { at.get(b) };
            if !(0..=self.spec.steps).contains(&length) {
                return Err(RunError::Domain {
                    kernel: self.name.clone(),
                    why: format!(
                        "sequence {b} has the length {length}, needed 0 to {}",
                        self.steps
                    ),
                });
            }
        }
        Ok(at)
    }

    /// Writes what the inputs of all steps give to all gates.
    fn project(&self, run: &Run<'_>, cut: &Workspace) -> Result<(), RunError> {
        let format = Format::plain(DType::F32);
        let [x_dims, x_strides, dims, strides] = &self.flat;
        let (x, base) = (&run.inputs[0], run.workspace.as_mut_ptr());
        let bytes = (dims[0] * dims[1]) as usize * 4;
        let start = cut.product * 4;
        // SAFETY: the parts lie in the workspace, which was checked, and apart from each other; x is dense.
        let (x, sums, rest) = unsafe {
            let w = &run.workspace;
            (
                Operand::new(x.as_mut_ptr(), x.len(), x.device, x_dims, x_strides, &format),
                Operand::new(base.add(cut.sums * 4), bytes, w.device, dims, strides, &format),
                Operand::new(
                    base.add(start),
                    cut.bytes as usize - start,
                    w.device,
                    w.dims,
                    w.strides,
                    w.format,
                ),
            )
        };
        self.projection.run(&mut Run {
            inputs: &[x],
            outputs: &[sums],
            constants: &run.constants[..1],
            workspace: rest,
            pool: run.pool,
            queue: run.queue,
            cancel: run.cancel,
        })
    }
}

/// Offsets of a workspace's parts, in elements but for `bytes`.
struct Workspace {
    sums: usize,
    state: usize,
    memory: usize,
    aside: usize,
    product: usize,
    bytes: u64,
}

impl Kernel for Recurrent {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        Needs {
            workspace: self.workspace(threads).bytes,
            foreign: Some(0),
            in_place: Vec::new(),
            deterministic: true,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let s = &self.spec;
        let plain = Format::plain(DType::F32);
        let integers = match s.lengths {
            Lengths::Operand(dtype) => Format::plain(dtype),
            _ => Format::plain(DType::I32),
        };
        let want = |i: usize| Want { dims: &self.dims[i], format: &plain };
        let mut inputs = [want(0), want(2), want(2), want(2)];
        let mut count = 1;
        let mut add = |is_operand: bool, want| {
            is_operand.then(|| {
                inputs[count] = want;
                count += 1;
                count - 1
            })
        };
        let lengths = add(
            matches!(s.lengths, Lengths::Operand(_)),
            Want { dims: &self.dims[1], format: &integers },
        );
        let state = add(s.state == Start::Operand, want(2));
        let memory = add(s.memory == Start::Operand, want(2));
        let mut outputs = [want(3), want(2), want(2)];
        let mut found = 0;
        for (i, _) in s.outputs.iter().enumerate().filter(|o| *o.1) {
            outputs[found] = want(if i == 0 { 3 } else { 2 });
            found += 1;
        }
        let cut = self.workspace(run.pool.threads());
        check(&self.name, run, &inputs[..count], &outputs[..found], cut.bytes)?;
        dense(&self.name, run)?;
        let [_, constant] = run.constants else {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!("needs 2 constants, found {}", run.constants.len()),
            });
        };
        let layout = Layout::Opaque(self.tag.as_str().into());
        let opaque = Format { dtype: DType::F32, layout };
        let want = Want { dims: &self.dims[4], format: &opaque };
        check_operand(&self.name, "constant", constant, &want)?;
        let lengths = self.lengths(lengths.map(|i| &run.inputs[i]))?;
        self.project(run, &cut)?;
        let base = run.workspace.as_mut_ptr().cast::<f32>();
        let weights = constant.as_ptr().cast::<f32>();
        let start = |kind: Start, operand: Option<usize>, at: usize| match (kind, operand) {
            (Start::Constant, _) => weights.wrapping_add(at),
            (_, Some(i)) => run.inputs[i].as_ptr().cast(),
            _ => std::ptr::null(),
        };
        let mut results = run.outputs.iter().map(|o| o.as_mut_ptr().cast::<f32>());
        let pass = Pass {
            of: self,
            lengths,
            sums: base.wrapping_add(cut.sums),
            state: base.wrapping_add(cut.state),
            memory: base.wrapping_add(cut.memory),
            aside: base.wrapping_add(cut.aside),
            weights,
            starts: [
                start(s.state, state, self.constants.state),
                start(s.memory, memory, self.constants.memory),
            ],
            results: s.outputs.map(|wanted| match wanted {
                true => results.next().unwrap_or(std::ptr::null_mut()),
                false => std::ptr::null_mut(),
            }),
            cancel: run.cancel,
        };
        // SAFETY: operands, constants and workspace were checked.
        unsafe { self.steps(run, &pass) }
        if run.cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl Recurrent {
    /// Runs all steps: directions and groups of sequences on threads of their own if there are enough of
    /// them, else every step split by units.
    ///
    /// # Safety
    /// The pass points at what the spec needs.
    unsafe fn steps(&self, run: &Run<'_>, pass: &Pass<'_>) {
        let (d, threads) = (self.count(), run.pool.threads());
        let each = threads.div_ceil(d);
        let groups = self.batch.div_ceil(self.stages[0].tiles.max_rows()).clamp(1, each);
        let step_work = self.batch * d * self.spec.cell.gates() * self.row * self.hidden;
        if d * groups >= threads {
            spread(run.pool, step_work * self.steps, d * groups, &|task, _| {
                let rows = crate::tile::part_range(self.batch, groups, task / d);
                // SAFETY: each task works on sequences and a direction of its own.
                unsafe { self.isa.enter(Whole { pass, direction: task % d, rows }) }
            });
            return;
        }
        let rows = (0, self.batch);
        (0..d).for_each(|direction| pass.start(direction, rows));
        for step in 0..self.steps {
            for stage in 0..self.stages.len() {
                spread(run.pool, step_work, d * each, &|task, _| {
                    let (direction, part) = (task % d, (task / d, each));
                    // SAFETY: each task works on units and a direction of its own, and those of the stage
                    // before have ended.
                    unsafe { self.isa.enter(Phase { pass, stage, direction, rows, part, step }) }
                });
            }
        }
        (0..d).for_each(|direction| pass.finish(direction, rows));
    }
}

impl NativeKernel for Recurrent {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        self.pack_all(raw)
    }

    fn spec(&self) -> Spec {
        Spec::Recurrent(self.spec.clone())
    }
}
