//! Candidates: one way of one backend to compute a region in given formats.

use crate::{Policy, Region};
use bricolage_ir::{NodeId, Numerics};
use bricolage_runtime::Kernel;
use bricolage_tensor::{Format, Storage};
use std::{fmt, sync::Arc};

/// What candidates are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Threads that kernels may use.
    pub threads: usize,
    /// What kernels may do to the numbers.
    pub policy: Policy,
}

/// One way to compute a region.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// What is computed.
    pub region: Region,
    /// Name of the backend's pattern that matched: `conv+bias+relu`.
    pub pattern: String,
    /// Which kernel with which parameters; with the pattern and the formats it decides the kernel.
    pub variant: String,
    /// Format in which each of the region's inputs is read.
    pub inputs: Vec<Format>,
    /// Format in which each of the region's outputs is made.
    pub outputs: Vec<Format>,
    /// What the kernel does to the numbers.
    pub numerics: Numerics,
    /// The backend's own guess of the time in nanoseconds, used only to decide what is measured first.
    pub guess_ns: Option<f64>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pattern, self.variant)?;
        for (mark, formats) in [(" in", &self.inputs), (" out", &self.outputs)] {
            f.write_str(mark)?;
            for format in formats {
                write!(f, " {format}")?;
            }
        }
        Ok(())
    }
}

/// A constant in the form in which a kernel reads it.
#[derive(Clone, Debug)]
pub struct Packed {
    /// How the elements lie.
    pub format: Format,
    /// Logical dims; of an opaque format, whatever the kernel wants to be told.
    pub dims: Vec<i64>,
    /// The bytes; shared with the model where nothing was packed.
    pub bytes: Storage,
}

/// A kernel with the constants it was made for.
#[derive(Clone)]
pub struct Bound {
    /// Compiled code.
    pub kernel: Arc<dyn Kernel>,
    /// Handed to every run as constants.
    pub constants: Vec<Packed>,
    /// Handed to the loader together with the kernel's recipe, and not to the runs.
    pub built_in: Vec<Packed>,
}

/// A refusal, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// The node at which the pattern would have ended.
    pub node: NodeId,
    /// The pattern.
    pub pattern: String,
    /// A clause with what was needed and what was found.
    pub why: String,
}

/// What a backend answers for one exit node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposals {
    /// Every way that it offers.
    pub candidates: Vec<Candidate>,
    /// Patterns that matched and were refused.
    pub declined: Vec<Declined>,
}
