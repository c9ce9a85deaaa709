//! Runs a plan: one arena, one run at a time, nothing allocated and nothing decided on the way.

use crate::{
    Action, Arena, BufferId, Cancel, DeviceId, Kernel, Operand, Place, Plan, Pool, Recipe, Run,
    RunError, Serial, Trace, Weights,
};
use bricolage_tensor::{DType, Format, Storage, Tensor, TensorType};
use std::{ops::Range, sync::Arc};

/// A constant that a kernel is built with.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Element type and layout.
    pub format: Format,
    /// Logical dims.
    pub dims: Vec<i64>,
    /// The bytes, shared with the weights.
    pub bytes: Storage,
}

/// Turns recipes back into kernels.
pub trait Rebuild {
    /// The kernel that `recipe` names, built with these constants, or why there is none, in a clause.
    fn rebuild(&self, recipe: &Recipe, built_in: &[Constant]) -> Result<Arc<dyn Kernel>, String>;
}

/// Why a program or a session cannot be opened, or a run gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A kernel cannot be rebuilt here.
    #[error("cannot rebuild kernel `{kernel}` of backend `{backend}`: {why}")]
    Rebuild {
        /// Backend that the recipe names.
        backend: String,
        /// Kernel that the recipe names.
        kernel: String,
        /// A clause.
        why: String,
    },
    /// The weights are not those of the plan.
    #[error("the plan needs {needed} bytes of weights, found {found}")]
    Weights {
        /// Bytes that the plan names.
        needed: u64,
        /// Bytes given.
        found: u64,
    },
    /// A buffer or a step of the plan points outside its memory.
    #[error("the plan is damaged: {what}")]
    Damaged {
        /// Which rule is broken, with numbers.
        what: String,
    },
    /// The arena is larger than memory can address.
    #[error("cannot allocate an arena of {needed} bytes")]
    Arena {
        /// Bytes that the plan names.
        needed: u64,
    },
    /// The number of inputs or outputs is not the plan's.
    #[error("needed {needed} {what}, found {found}")]
    Count {
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many the plan has.
        needed: usize,
        /// How many were given.
        found: usize,
    },
    /// An input or output has another type than the plan's.
    #[error("`{name}` needs {needed}, found {found}")]
    Type {
        /// Name of the port.
        name: String,
        /// Type in the plan.
        needed: TensorType,
        /// Type or size given.
        found: String,
    },
    /// A step failed.
    #[error("step {step} ({origin}): {error}")]
    Step {
        /// Index of the step.
        step: usize,
        /// Nodes of the user's model.
        origin: String,
        /// What the kernel said.
        error: RunError,
    },
}

/// A plan with its kernels and weights: immutable, shared by any number of sessions.
pub struct Program {
    plan: Plan,
    kernels: Vec<Arc<dyn Kernel>>,
    weights: Weights,
}

impl Program {
    /// Rebuilds the kernels of `plan` and checks that every step stays within its memory.
    pub fn load(
        plan: Plan,
        weights: impl Into<Weights>,
        rebuild: &dyn Rebuild,
    ) -> Result<Program, SessionError> {
        let weights = weights.into();
        check(&plan, plan.kernels.len(), &weights)?;
        let kernels = plan.kernels.iter().map(|source| {
            let recipe = &source.recipe;
            let built_in = source.built_in.iter().filter_map(|&id| {
                let b = plan.buffer(id);
                let Place::Constant(at) = b.place else { return None };
                let bytes = weights.get(at, b.len)?;
                Some(Constant { format: b.format.clone(), dims: b.dims.clone(), bytes })
            });
            rebuild.rebuild(recipe, &built_in.collect::<Vec<_>>()).map_err(|why| {
                SessionError::Rebuild {
                    backend: recipe.backend.clone(),
                    kernel: recipe.kernel.clone(),
                    why,
                }
            })
        });
        let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
        Program::new(plan, kernels, weights)
    }

    /// A program from kernels that exist already, in the order of [`Plan::kernels`].
    pub fn new(
        plan: Plan,
        kernels: Vec<Arc<dyn Kernel>>,
        weights: impl Into<Weights>,
    ) -> Result<Program, SessionError> {
        let weights = weights.into();
        check(&plan, kernels.len(), &weights)?;
        Ok(Program { plan, kernels, weights })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The kernel with this index in [`Plan::kernels`].
    pub fn kernel(&self, index: u32) -> &Arc<dyn Kernel> {
        &self.kernels[index as usize]
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// The plan fits its weights, and stays within its memory.
fn check(plan: &Plan, kernels: usize, weights: &Weights) -> Result<(), SessionError> {
    let found = weights.len();
    if plan.weights != found {
        return Err(SessionError::Weights { needed: plan.weights, found });
    }
    check_bounds(plan, kernels).map_err(|what| SessionError::Damaged { what })?;
    let missing = plan.buffers.iter().find(|b| match b.place {
        Place::Constant(at) => weights.get(at, b.len).is_none(),
        _ => false,
    });
    missing.map_or(Ok(()), |b| {
        let what = format!("there is no constant of {} bytes at {}", b.len, b.place);
        Err(SessionError::Damaged { what })
    })
}

/// Every index and byte range of the plan lies inside what it points into.
fn check_bounds(plan: &Plan, kernels: usize) -> Result<(), String> {
    let port_len = |ports: &[crate::Port], i: u32| {
        let port = ports.get(i as usize).ok_or_else(|| format!("there is no port {i}"))?;
        port.ty.byte_len().ok_or_else(|| format!("port `{}` has no constant size", port.name))
    };
    for (i, b) in plan.buffers.iter().enumerate() {
        let room = match b.place {
            Place::Arena(at) => plan.arena.checked_sub(at),
            Place::Constant(at) => plan.weights.checked_sub(at),
            Place::Input(p) => Some(port_len(&plan.inputs, p)?),
            Place::Output(p) => Some(port_len(&plan.outputs, p)?),
        };
        if room.is_none_or(|room| room < b.len) {
            return Err(format!("buffer {i} of {} bytes does not fit at {}", b.len, b.place));
        }
        if b.dims.len() != b.strides.len()
            && !matches!(b.format.layout, bricolage_tensor::Layout::Opaque(_))
        {
            return Err(format!(
                "buffer {i} has {} dims and {} strides",
                b.dims.len(),
                b.strides.len()
            ));
        }
        if b.format.byte_len(&b.dims).is_some_and(|needed| needed > b.len) {
            return Err(format!("buffer {i} has {} bytes, its format needs more", b.len));
        }
    }
    let exists = |ids: &[BufferId]| ids.iter().all(|id| (id.0 as usize) < plan.buffers.len());
    let writable = |ids: &[BufferId]| {
        ids.iter().all(|&id| matches!(plan.buffer(id).place, Place::Arena(_) | Place::Output(_)))
    };
    for (i, source) in plan.kernels.iter().enumerate() {
        let constant = |id: &BufferId| matches!(plan.buffer(*id).place, Place::Constant(_));
        if !exists(&source.built_in) || !source.built_in.iter().all(constant) {
            return Err(format!("kernel {i} is built with a buffer that is not a constant"));
        }
    }
    for (i, step) in plan.steps.iter().enumerate() {
        let fine = match &step.action {
            Action::Run(run) => {
                (run.kernel as usize) < kernels
                    && exists(&run.inputs)
                    && exists(&run.outputs)
                    && exists(&run.constants)
                    && writable(&run.outputs)
                    && run
                        .workspace
                        .checked_add(run.workspace_len)
                        .is_some_and(|end| end <= plan.arena)
            }
            Action::Copy { from, to } => {
                exists(&[*from, *to])
                    && writable(&[*to])
                    && plan.buffer(*from).len == plan.buffer(*to).len
            }
        };
        if !fine {
            return Err(format!(
                "step {i} names a kernel, a buffer or a workspace that is not there"
            ));
        }
    }
    Ok(())
}

/// The operands of one step, as ranges of [`Session::operands`].
struct Bound {
    inputs: Range<usize>,
    outputs: Range<usize>,
    constants: Range<usize>,
    workspace: usize,
}

/// An operand whose memory the caller brings to each run.
struct Patch {
    operand: usize,
    place: Place,
}

/// One user of a program: it owns an arena and runs one thing at a time.
pub struct Session {
    // The operands point into `arena` and `program`, which outlive them: fields drop in this order.
    operands: Vec<Operand<'static>>,
    bound: Vec<Bound>,
    patches: Vec<Patch>,
    arena: Arena,
    program: Arc<Program>,
    pool: Arc<dyn Pool + Send>,
    cancel: Arc<Cancel>,
}

// SAFETY: operands point into memory that the session owns or that a run borrows from its caller.
unsafe impl Send for Session {}

static WORKSPACE: Format = Format::plain(bricolage_tensor::DType::U8);

impl Session {
    /// Allocates the arena; from here on nothing else is.
    pub fn open(
        program: Arc<Program>,
        pool: Arc<dyn Pool + Send>,
    ) -> Result<Session, SessionError> {
        Session::open_in(program, pool, None)
    }

    /// [`Session::open`] in the arena of an earlier session, which is replaced when it is too small.
    pub fn open_in(
        program: Arc<Program>,
        pool: Arc<dyn Pool + Send>,
        arena: Option<Arena>,
    ) -> Result<Session, SessionError> {
        let plan = program.plan();
        let arena = match arena.filter(|a| a.len() as u64 >= plan.arena) {
            Some(arena) => arena,
            None => Arena::new(plan.arena).ok_or(SessionError::Arena { needed: plan.arena })?,
        };
        let mut session = Session {
            operands: Vec::new(),
            bound: Vec::new(),
            patches: Vec::new(),
            arena,
            pool,
            cancel: Arc::new(Cancel::default()),
            program: program.clone(),
        };
        for step in &plan.steps {
            let bound = match &step.action {
                Action::Run(run) => Bound {
                    inputs: session.bind(&run.inputs),
                    outputs: session.bind(&run.outputs),
                    constants: session.bind(&run.constants),
                    workspace: session.bind_workspace(run.workspace, run.workspace_len),
                },
                Action::Copy { from, to } => Bound {
                    inputs: session.bind(&[*from]),
                    outputs: session.bind(&[*to]),
                    constants: 0..0,
                    workspace: session.bind_workspace(0, 0),
                },
            };
            session.bound.push(bound);
        }
        Ok(session)
    }

    fn bind(&mut self, ids: &[BufferId]) -> Range<usize> {
        let first = self.operands.len();
        // SAFETY: the program is kept alive by the `Arc` that this session holds, and is immutable.
        let program: &'static Program = unsafe { &*Arc::as_ptr(&self.program) };
        for &id in ids {
            let b = program.plan.buffer(id);
            let ptr = match b.place {
                // SAFETY: `check_bounds` found the range inside the arena.
                Place::Arena(at) => unsafe { self.arena.as_ptr().add(at as usize) },
                Place::Constant(at) => {
                    let bytes = program.weights.get(at, b.len);
                    bytes.expect("`check` found the constant").as_ptr().cast_mut()
                }
                place @ (Place::Input(_) | Place::Output(_)) => {
                    self.patches.push(Patch { operand: self.operands.len(), place });
                    std::ptr::null_mut()
                }
            };
            // SAFETY: the memory outlives the operand; the plan orders reads and writes.
            let operand = unsafe {
                Operand::new(ptr, b.len as usize, DeviceId(0), &b.dims, &b.strides, &b.format)
            };
            self.operands.push(operand);
        }
        first..self.operands.len()
    }

    fn bind_workspace(&mut self, at: u64, len: u64) -> usize {
        // SAFETY: `check_bounds` found the range inside the arena; no buffer that is alive shares it.
        let operand = unsafe {
            let ptr = self.arena.as_ptr().add(at as usize);
            Operand::new(ptr, len as usize, DeviceId(0), &[], &[], &WORKSPACE)
        };
        self.operands.push(operand);
        self.operands.len() - 1
    }

    /// The program that the session runs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Ends the session and leaves its arena to the next one.
    pub fn into_arena(self) -> Arena {
        self.arena
    }

    /// The memory between steps.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The memory between steps, to be filled with a pattern before a run.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The flag that stops a run of this session from another thread.
    pub fn cancel(&self) -> &Arc<Cancel> {
        &self.cancel
    }

    /// Runs on `inputs` and writes `outputs`, all dense and row-major, in the plan's order.
    ///
    /// Allocates nothing. With a trace, records when each step began and ended.
    pub fn run_into(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        trace: Option<&mut Trace>,
    ) -> Result<(), SessionError> {
        self.run_observed(inputs, outputs, trace, &mut |_, _, _| {})
    }

    /// Runs one step on what the arena holds, as for a trial of its kernel; the plan has no inputs
    /// and no outputs.
    pub fn run_step(&mut self, index: usize) -> Result<(), SessionError> {
        let program = self.program.clone();
        let plan = program.plan();
        check_ports("inputs", &plan.inputs, std::iter::empty())?;
        check_ports("outputs", &plan.outputs, std::iter::empty())?;
        self.step(&program, index)
    }

    fn step(&self, program: &Program, index: usize) -> Result<(), SessionError> {
        let (step, bound) = (&program.plan.steps[index], &self.bound[index]);
        let result = match &step.action {
            Action::Run(run) => program.kernels[run.kernel as usize].run(&mut Run {
                inputs: &self.operands[bound.inputs.clone()],
                outputs: &self.operands[bound.outputs.clone()],
                constants: &self.operands[bound.constants.clone()],
                workspace: self.operands[bound.workspace],
                pool: if run.threads == 1 { &Serial } else { &*self.pool },
                queue: step.queue,
                cancel: &self.cancel,
            }),
            Action::Copy { .. } => {
                let (from, to) =
                    (&self.operands[bound.inputs.start], &self.operands[bound.outputs.start]);
                // SAFETY: both have the same length, and ranges may overlap.
                unsafe { std::ptr::copy(from.as_ptr(), to.as_mut_ptr(), from.len()) };
                Ok(())
            }
        };
        result.map_err(|error| {
            let origin = match &step.action {
                Action::Run(run) if !run.origin.is_empty() => run.origin.join(", "),
                _ => "conversion".to_owned(),
            };
            SessionError::Step { step: index, origin, error }
        })
    }

    /// [`Session::run_into`], showing each buffer with its bytes as soon as a step, which goes by its number,
    /// has written it.
    pub fn run_observed(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        mut trace: Option<&mut Trace>,
        observe: &mut dyn FnMut(usize, &crate::Buffer, &[u8]),
    ) -> Result<(), SessionError> {
        let program = self.program.clone();
        let plan = program.plan();
        check_ports("inputs", &plan.inputs, inputs.iter().map(|b| &**b))?;
        check_ports("outputs", &plan.outputs, outputs.iter().map(|b| &**b))?;
        for patch in &self.patches {
            self.operands[patch.operand].set_ptr(match patch.place {
                Place::Input(i) => inputs[i as usize].as_ptr().cast_mut(),
                Place::Output(i) => outputs[i as usize].as_mut_ptr(),
                Place::Arena(_) | Place::Constant(_) => continue,
            });
        }
        if let Some(trace) = trace.as_deref_mut() {
            trace.start();
        }
        for (index, (step, bound)) in plan.steps.iter().zip(&self.bound).enumerate() {
            let begin = trace.as_deref().map(Trace::begin);
            self.step(&program, index)?;
            if let (Some(trace), Some(begin)) = (trace.as_deref_mut(), begin) {
                trace.end(begin);
            }
            let written: &[BufferId] = match &step.action {
                Action::Run(run) => &run.outputs,
                Action::Copy { to, .. } => std::slice::from_ref(to),
            };
            for (&id, operand) in written.iter().zip(&self.operands[bound.outputs.clone()]) {
                // SAFETY: the step has written the operand's memory, and nothing runs meanwhile.
                let bytes = unsafe { std::slice::from_raw_parts(operand.as_ptr(), operand.len()) };
                observe(index, plan.buffer(id), bytes);
            }
        }
        Ok(())
    }

    /// Runs on `inputs` in the plan's order, wherever their bytes begin, and returns fresh outputs.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, SessionError> {
        let program = self.program.clone();
        let plan = program.plan();
        for (port, tensor) in plan.inputs.iter().zip(inputs) {
            if port.ty != tensor.ty() {
                let found = tensor.ty().to_string();
                return Err(SessionError::Type {
                    name: port.name.clone(),
                    needed: port.ty.clone(),
                    found,
                });
            }
        }
        // Kernels read elements where they lie.
        let copies: Vec<Option<Storage>> = inputs
            .iter()
            .map(|t| {
                let bytes = t.bytes();
                (!is_aligned(bytes, t.dtype())).then(|| Storage::copy_of(bytes))
            })
            .collect();
        let given: Vec<&[u8]> =
            inputs.iter().zip(&copies).map(|(t, c)| c.as_deref().unwrap_or(t.bytes())).collect();
        let sizes: Vec<usize> =
            plan.outputs.iter().map(|p| p.ty.byte_len().unwrap_or(0) as usize).collect();
        // Each output starts on a 64-byte boundary of one block.
        let starts: Vec<usize> = sizes
            .iter()
            .scan(0, |at, size| {
                let start = *at;
                *at += size.next_multiple_of(64);
                Some(start)
            })
            .collect();
        let total =
            starts.last().zip(sizes.last()).map_or(0, |(at, size)| at + size.next_multiple_of(64));
        let mut result = Ok(());
        let block = Storage::build(total, |block| {
            let mut rest = block;
            let mut taken: Vec<&mut [u8]> = Vec::with_capacity(sizes.len());
            for size in &sizes {
                let (head, tail) = rest.split_at_mut(size.next_multiple_of(64));
                taken.push(&mut head[..*size]);
                rest = tail;
            }
            result = self.run_into(&given, &mut taken, None);
        });
        result?;
        let outputs =
            plan.outputs.iter().zip(starts.iter().zip(&sizes)).map(|(port, (&at, &size))| {
                let dims = port.ty.shape.as_fixed().unwrap_or_default();
                Tensor::new(port.ty.dtype, &dims, block.slice(at, size))
                    .expect("the size was computed from this type")
            });
        Ok(outputs.collect())
    }
}

fn is_aligned(bytes: &[u8], dtype: DType) -> bool {
    (bytes.as_ptr() as u64).is_multiple_of((dtype.bits() / 8).max(1))
}

/// Each port has its bytes, aligned to the element type.
fn check_ports<'a>(
    what: &'static str,
    ports: &[crate::Port],
    given: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), SessionError> {
    if ports.len() != given.len() {
        return Err(SessionError::Count { what, needed: ports.len(), found: given.len() });
    }
    for (port, bytes) in ports.iter().zip(given) {
        let wrong = |found: String| SessionError::Type {
            name: port.name.clone(),
            needed: port.ty.clone(),
            found,
        };
        if port.ty.byte_len() != Some(bytes.len() as u64) {
            return Err(wrong(format!("{} bytes", bytes.len())));
        }
        if !is_aligned(bytes, port.ty.dtype) {
            return Err(wrong("bytes that are not aligned to the element type".to_owned()));
        }
    }
    Ok(())
}
