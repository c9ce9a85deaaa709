//! Trials: one kernel, alone, on real data, with red zones around everything that it may write.

use bricolage_backend::{Bound, Packed};
use bricolage_measure::{Sample, SampleError};
use bricolage_runtime::{
    ALIGNMENT, Action, Buffer, BufferId, Dims, KernelSource, Place, Plan, Pool, Program, Queue,
    Rebuild, RunError, RunStep, Session, SessionError, Step,
};
use bricolage_tensor::{DType, Format, Layout, Storage, Tensor};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes left untouched on both sides of every buffer.
const RED_ZONE: u64 = 64;
/// What red zones, outputs and workspaces hold before checked runs, in turn. A result that holds any of it is
/// wrong: floats that are no number first, which spread to what is computed from them, then large ones.
const PATTERNS: [u8; 2] = [0xFF, 0x5A];
/// Constants smaller than this are warm in a cache anyway and are not rotated.
const ROTATE_FROM: u64 = 1 << 20;
/// Bytes of rotated constants, at most.
const ROTATE_BYTES: u64 = 64 << 20;
/// Copies of the constants, at most; of those built into a kernel, each of which is compiled again.
const ROTATE_COPIES: u64 = 6;
const ROTATE_KERNELS: u64 = 3;

/// One kernel as a plan without inputs and outputs: everything lies in the arena.
#[derive(Clone, Debug)]
pub struct Trial {
    /// One step, or several equal ones over rotated copies of the constants.
    pub plan: Plan,
    /// Constants, copies included.
    pub weights: Storage,
    /// What the kernel reads: first byte in the arena, and content.
    pub fills: Vec<(u64, Storage)>,
    /// What the kernel writes: index of its buffer in the plan.
    pub results: Vec<BufferId>,
}

/// Why no trial can be made of a kernel, in a clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct TrialError {
    /// A clause.
    pub why: String,
    /// It says nothing about the kernel: the machine lacked something just then, such as room on a disk.
    pub momentary: bool,
}

impl TrialError {
    /// The kernel's own fault.
    pub fn new(why: impl Into<String>) -> TrialError {
        TrialError { why: why.into(), momentary: false }
    }

    /// The machine's fault.
    pub fn momentary(why: impl Into<String>) -> TrialError {
        TrialError { why: why.into(), momentary: true }
    }
}

/// A trial that is open for running, here or in another process.
pub trait OpenTrial: Sample {
    /// Runs once on patterned memory and returns the results; fails when the kernel fails or
    /// touches a byte outside its outputs and its workspace.
    fn results(&mut self) -> Result<Vec<Tensor>, TrialError>;

    /// Runs once and asks meanwhile for a stop; the run may end with or without results. The trial is of no
    /// use afterwards.
    fn stopped(&mut self) -> Result<(), TrialError>;
}

/// Opens trials: in this process, or in a worker process for kernels that may crash or hang.
pub trait Bench {
    /// Opens `trial` for kernels of the backend with this name.
    fn open<'a>(
        &'a self,
        backend: &str,
        trial: Trial,
    ) -> Result<Box<dyn OpenTrial + 'a>, TrialError>;
}

impl Trial {
    /// A trial of `bound` on `inputs`, each in its format, for `threads` threads.
    ///
    /// Large constants are copied several times and used in turn, so that they come from memory as
    /// they do inside a model; `last_level_cache` is in bytes.
    pub fn new(
        bound: &Bound,
        inputs: &[(Tensor, Format)],
        outputs: &[(Vec<i64>, Format)],
        threads: usize,
        last_level_cache: u64,
    ) -> Result<Trial, TrialError> {
        let mut plan = Plan {
            name: bound.kernel.name().to_owned(),
            threads: threads as u32,
            inputs: Vec::new(),
            outputs: Vec::new(),
            buffers: Vec::new(),
            kernels: Vec::new(),
            steps: Vec::new(),
            arena: RED_ZONE,
            weights: 0,
        };
        let mut fills = Vec::new();
        let mut read = Vec::new();
        for (tensor, format) in inputs {
            let bytes = format.pack(tensor).ok_or_else(|| {
                TrialError::new(format!("{} has no format {format}", tensor.ty()))
            })?;
            let (id, at) = arena_buffer(&mut plan, tensor.dims(), format)?;
            fills.push((at, bytes));
            read.push(id);
        }
        let mut results = Vec::new();
        for (dims, format) in outputs {
            results.push(arena_buffer(&mut plan, dims, format)?.0);
        }
        let dims = |ids: &[BufferId]| -> Vec<Vec<i64>> {
            ids.iter().map(|&b| plan.buffer(b).dims.clone()).collect()
        };
        let (input_dims, output_dims) = (dims(&read), dims(&results));
        let needs =
            bound.kernel.needs(&Dims { inputs: &input_dims, outputs: &output_dims }, threads);
        let workspace = plan.arena;
        plan.arena += needs.workspace.next_multiple_of(ALIGNMENT) + RED_ZONE;

        let all = || bound.constants.iter().chain(&bound.built_in);
        let once: u64 = all().map(|p| (p.bytes.len() as u64).next_multiple_of(ALIGNMENT)).sum();
        let most = if bound.built_in.is_empty() { ROTATE_COPIES } else { ROTATE_KERNELS };
        let copies = match once {
            0..ROTATE_FROM => 1,
            _ => (2 * last_level_cache).min(ROTATE_BYTES).div_ceil(once).clamp(1, most),
        };
        for copy in 0..copies {
            let constants: Vec<BufferId> =
                bound.constants.iter().map(|p| constant_buffer(&mut plan, p)).collect();
            let built_in: Vec<BufferId> =
                bound.built_in.iter().map(|p| constant_buffer(&mut plan, p)).collect();
            if copy == 0 || !built_in.is_empty() {
                plan.kernels.push(KernelSource { recipe: bound.kernel.recipe(), built_in });
            }
            let run = RunStep {
                kernel: plan.kernels.len() as u32 - 1,
                inputs: read.clone(),
                outputs: results.clone(),
                constants,
                workspace,
                workspace_len: needs.workspace,
                threads: threads as u32,
                origin: Vec::new(),
            };
            plan.steps.push(Step { action: Action::Run(run), queue: Queue(0), waits: Vec::new() });
        }
        let weights = Storage::build(plan.weights as usize, |to| {
            let mut at = 0;
            for packed in (0..copies).flat_map(|_| all()) {
                to[at..at + packed.bytes.len()].copy_from_slice(&packed.bytes);
                at += packed.bytes.len().next_multiple_of(ALIGNMENT as usize);
            }
        });
        Ok(Trial { plan, weights, fills, results })
    }
}

fn arena_buffer(
    plan: &mut Plan,
    dims: &[i64],
    format: &Format,
) -> Result<(BufferId, u64), TrialError> {
    let (Some(len), Some(strides)) = (format.byte_len(dims), format.strides(dims)) else {
        return Err(TrialError::new(format!("dims {dims:?} have no format {format}")));
    };
    let at = plan.arena;
    plan.arena = (at + len).next_multiple_of(ALIGNMENT) + RED_ZONE;
    let id = BufferId(plan.buffers.len() as u32);
    plan.buffers.push(Buffer {
        name: String::new(),
        place: Place::Arena(at),
        len,
        dims: dims.to_vec(),
        strides,
        format: format.clone(),
    });
    Ok((id, at))
}

fn constant_buffer(plan: &mut Plan, packed: &Packed) -> BufferId {
    let at = plan.weights;
    let len = packed.bytes.len() as u64;
    plan.weights = (at + len).next_multiple_of(ALIGNMENT);
    let id = BufferId(plan.buffers.len() as u32);
    plan.buffers.push(Buffer {
        name: String::new(),
        place: Place::Constant(at),
        len,
        dims: packed.dims.clone(),
        strides: packed.format.strides(&packed.dims).unwrap_or_default(),
        format: packed.format.clone(),
    });
    id
}

/// A trial in this process.
pub struct LocalTrial {
    session: Session,
    trial: Trial,
    /// The step that runs next: the copies of the constants take turns.
    next: usize,
    /// The arena before a run: inputs in place, everything else patterned.
    before: Vec<u8>,
    /// Checked runs so far.
    checked: usize,
}

/// Inputs in place, everything else patterned for a checked run.
fn fill(arena: &mut [u8], trial: &Trial, checked: usize) {
    arena.fill(PATTERNS[checked % PATTERNS.len()]);
    for (at, bytes) in &trial.fills {
        arena[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

impl LocalTrial {
    /// Rebuilds the kernels of `trial` and fills its memory.
    pub fn open(
        trial: Trial,
        rebuild: &dyn Rebuild,
        pool: Arc<dyn Pool + Send>,
    ) -> Result<LocalTrial, TrialError> {
        let fault = |e: SessionError| TrialError::new(e.to_string());
        let program =
            Program::load(trial.plan.clone(), trial.weights.clone(), rebuild).map_err(fault)?;
        let mut session = Session::open(Arc::new(program), pool).map_err(fault)?;
        fill(session.arena_mut().bytes_mut(), &trial, 0);
        let before = session.arena().bytes().to_vec();
        Ok(LocalTrial { session, trial, next: 0, before, checked: 0 })
    }

    fn run(&mut self) -> Result<(), String> {
        let step = self.next;
        self.next = (step + 1) % self.trial.plan.steps.len().max(1);
        self.session.run_step(step).map_err(|e| match e {
            SessionError::Step { error, .. } => error.to_string(),
            other => other.to_string(),
        })
    }
}

impl Sample for LocalTrial {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        let start = Instant::now();
        for _ in 0..iterations {
            self.run().map_err(SampleError)?;
        }
        Ok(start.elapsed())
    }
}

/// When a run that shall be stopped is asked to.
const STOP_AFTER: Duration = Duration::from_micros(200);

impl OpenTrial for LocalTrial {
    fn stopped(&mut self) -> Result<(), TrialError> {
        let cancel = self.session.cancel().clone();
        let ran = std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(STOP_AFTER);
                cancel.cancel();
            });
            self.session.run_step(0)
        });
        match ran {
            Ok(()) | Err(SessionError::Step { error: RunError::Cancelled, .. }) => Ok(()),
            Err(error) => Err(TrialError::new(error.to_string())),
        }
    }

    fn results(&mut self) -> Result<Vec<Tensor>, TrialError> {
        fill(&mut self.before, &self.trial, self.checked);
        self.checked += 1;
        self.session.arena_mut().bytes_mut().copy_from_slice(&self.before);
        self.run().map_err(TrialError::new)?;
        let arena = self.session.arena().bytes();
        let plan = &self.trial.plan;
        let mut may_change: Vec<(u64, u64)> = plan
            .steps
            .iter()
            .filter_map(|s| match &s.action {
                Action::Run(run) => Some((run.workspace, run.workspace + run.workspace_len)),
                _ => None,
            })
            .collect();
        let mut tensors = Vec::new();
        for &id in &self.trial.results {
            let b = plan.buffer(id);
            let Place::Arena(at) = b.place else { continue };
            may_change.push((at, at + b.len));
            let bytes = &arena[at as usize..][..b.len as usize];
            check_padding(b, bytes)?;
            tensors
                .push(b.format.unpack(&b.dims, bytes).map_err(|e| TrialError::new(e.to_string()))?);
        }
        may_change.sort_unstable();
        let mut at = 0;
        for (start, end) in may_change.into_iter().chain([(arena.len() as u64, u64::MAX)]) {
            let (from, to) = (at as usize, start as usize);
            if from < to && arena[from..to] != self.before[from..to] {
                return Err(TrialError::new(
                    "it wrote outside its outputs and its workspace".to_owned(),
                ));
            }
            at = at.max(end.min(arena.len() as u64));
        }
        Ok(tensors)
    }
}

/// The padding of a blocked or haloed result is zero, as the kernels that read it expect.
fn check_padding(b: &Buffer, bytes: &[u8]) -> Result<(), TrialError> {
    if b.format.layout == Layout::Plain || b.format.dtype != DType::F32 {
        return Ok(());
    }
    let repacked = b.format.unpack(&b.dims, bytes).ok().and_then(|t| b.format.pack(&t));
    let clean = repacked.is_some_and(|again| {
        // Minus zero in the padding is as good as zero.
        again
            .chunks_exact(4)
            .zip(bytes.chunks_exact(4))
            .all(|(a, b)| a == b || (a == [0; 4] && b == [0, 0, 0, 128]))
    });
    if clean {
        Ok(())
    } else {
        Err(TrialError::new(format!("it left other than zero in the padding of {}", b.format)))
    }
}
