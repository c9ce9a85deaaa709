//! What is wrong with a pattern file, and where.

use std::fmt;

/// A place in a text; lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    /// Something else was needed.
    #[error("needs {needed}, found {found}")]
    Needed {
        /// What would do.
        needed: String,
        /// What stands there.
        found: String,
    },
    /// A name that stands for nothing.
    #[error("needs {what}, found `{name}`")]
    Unknown {
        /// What the name should be the name of.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A name that already stands for something.
    #[error("needs a name that is free, found `{name}`")]
    Taken {
        /// The name.
        name: String,
    },
    /// More of something than files may have.
    #[error("needs at most {most} {what}, found more")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        most: usize,
    },
}

/// One thing that is wrong, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {kind}")]
pub struct Fault {
    /// Where.
    pub at: Position,
    /// What.
    pub kind: FaultKind,
}

impl Fault {
    pub(super) fn needed(
        at: Position,
        needed: impl Into<String>,
        found: impl Into<String>,
    ) -> Fault {
        Fault { at, kind: FaultKind::Needed { needed: needed.into(), found: found.into() } }
    }

    pub(super) fn unknown(at: Position, what: &'static str, name: &str) -> Fault {
        Fault { at, kind: FaultKind::Unknown { what, name: name.to_owned() } }
    }

    pub(super) fn taken(at: Position, name: &str) -> Fault {
        Fault { at, kind: FaultKind::Taken { name: name.to_owned() } }
    }

    pub(super) fn limit(at: Position, what: &'static str, most: usize) -> Fault {
        Fault { at, kind: FaultKind::Limit { what, most } }
    }
}

/// A pattern file that cannot be used: one fault of its grammar, or all faults of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// Name of the file.
    pub file: String,
    /// What is wrong, by place; never empty.
    pub faults: Vec<Fault>,
}

/// One line for each fault: `xlib.patterns:4:17: needs .., found ..`.
impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            let line = if i == 0 { "" } else { "\n" };
            write!(f, "{line}{}:{fault}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for PatternError {}
