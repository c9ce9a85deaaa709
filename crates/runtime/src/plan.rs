//! The executable program as data: steps over preassigned memory.

use crate::{Queue, Recipe};
use bricolage_tensor::{Format, TensorType};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Write as _};

/// Where the bytes of a buffer lie while a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Place {
    /// In the session's arena, from this byte on.
    Arena(u64),
    /// In the caller's input with this number.
    Input(u32),
    /// In the caller's output with this number.
    Output(u32),
    /// In the weights file, from this byte on.
    Constant(u64),
}

/// A tensor at a fixed place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// Name of the value that it holds.
    pub name: String,
    /// Where its bytes lie.
    pub place: Place,
    /// Bytes, padding of the format included.
    pub len: u64,
    /// Logical dims, outermost first.
    pub dims: Vec<i64>,
    /// Element strides along the logical dims; see [`Format::strides`].
    pub strides: Vec<i64>,
    /// Element type and layout.
    pub format: Format,
}

/// Index of a buffer in [`Plan::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// A named tensor that the caller hands in or takes out, dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name in the user's model.
    pub name: String,
    /// Element type and constant dims.
    pub ty: TensorType,
}

/// What a kernel is rebuilt from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelSource {
    /// Backend, kernel and parameters.
    pub recipe: Recipe,
    /// Constants that the kernel is built with and that its runs are not given.
    pub built_in: Vec<BufferId>,
}

/// One kernel and the buffers it works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStep {
    /// Index into [`Plan::kernels`].
    pub kernel: u32,
    /// Read by the kernel.
    pub inputs: Vec<BufferId>,
    /// Written by the kernel.
    pub outputs: Vec<BufferId>,
    /// Packed constants that the kernel reads.
    pub constants: Vec<BufferId>,
    /// First byte of the workspace in the arena.
    pub workspace: u64,
    /// Bytes of workspace.
    pub workspace_len: u64,
    /// Threads that the kernel runs on: those of the plan, or the calling one alone.
    pub threads: u32,
    /// Names of the nodes of the user's model that this step computes; empty for a conversion.
    pub origin: Vec<String>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Action {
    /// Runs a kernel.
    Run(RunStep),
    /// Copies bytes between two buffers of equal length.
    Copy {
        /// Read.
        from: BufferId,
        /// Written.
        to: BufferId,
    },
}

/// An action, the queue it runs on and the steps that it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// Where it is ordered; steps of one queue run in the order of the plan.
    pub queue: Queue,
    /// Earlier steps on other queues that must have ended.
    pub waits: Vec<u32>,
}

/// The program that a session runs. Immutable, and shared between threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the model.
    pub name: String,
    /// Threads that the kernels were chosen for.
    pub threads: u32,
    /// What the caller hands in, in order.
    pub inputs: Vec<Port>,
    /// What the caller takes out, in order.
    pub outputs: Vec<Port>,
    /// Every tensor that a step reads or writes.
    pub buffers: Vec<Buffer>,
    /// Kernels, each named once.
    pub kernels: Vec<KernelSource>,
    /// In order of execution.
    pub steps: Vec<Step>,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the weights file.
    pub weights: u64,
}

impl Plan {
    /// The buffer with this index.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Arena(at) => write!(f, "arena+{at}"),
            Place::Input(i) => write!(f, "input {i}"),
            Place::Output(i) => write!(f, "output {i}"),
            Place::Constant(at) => write!(f, "weights+{at}"),
        }
    }
}

/// The text twin of the binary plan: for reading and for comparing.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "plan {:?} threads={} arena={} weights={}",
            self.name, self.threads, self.arena, self.weights
        )?;
        for (kind, ports) in [("input", &self.inputs), ("output", &self.outputs)] {
            for (i, port) in ports.iter().enumerate() {
                writeln!(f, "{kind} {i} {:?}: {}", port.name, port.ty)?;
            }
        }
        for (i, b) in self.buffers.iter().enumerate() {
            writeln!(
                f,
                "buffer {i} {:?}: {}{:?} at {} len {}",
                b.name, b.format, b.dims, b.place, b.len
            )?;
        }
        for (i, step) in self.steps.iter().enumerate() {
            match &step.action {
                Action::Run(run) => {
                    let recipe = &self.kernels[run.kernel as usize].recipe;
                    write!(f, "step {i} {}:{}", recipe.backend, recipe.kernel)?;
                    for (word, ids) in
                        [("in", &run.inputs), ("const", &run.constants), ("out", &run.outputs)]
                    {
                        let mut list = String::new();
                        for id in ids {
                            write!(list, " {}", id.0)?;
                        }
                        write!(f, " {word}[{}]", list.trim_start())?;
                    }
                    write!(f, " workspace arena+{} len {}", run.workspace, run.workspace_len)?;
                    if run.threads != self.threads {
                        write!(f, " threads={}", run.threads)?;
                    }
                    writeln!(f, " {:?}", run.origin)?;
                }
                Action::Copy { from, to } => writeln!(f, "step {i} copy {} -> {}", from.0, to.0)?,
            }
        }
        Ok(())
    }
}
