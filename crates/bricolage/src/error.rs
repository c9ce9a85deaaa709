//! What can go wrong, with a code, the facts and one thing to do about it.

use bricolage_placement::PlaceError;
use bricolage_runtime::in_words;
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Whose fault it is; decides the exit code of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The file or the arguments: exit code 2.
    Input,
    /// A condition that was asked for does not hold: exit code 1.
    Condition,
    /// Ours: exit code 3.
    Internal,
    /// The user stopped it: exit code 130.
    Interrupted,
}

/// An error of the facade.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("cannot {action} `{path}`: {why}")]
    File {
        /// `read`, `write`, `replace`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The model cannot be imported.
    #[error("{}{error}", model_name(path, error))]
    Import {
        /// The model's file.
        path: PathBuf,
        /// What is wrong with it.
        error: bricolage_onnx::ImportError,
    },
    /// The graph cannot be written as ONNX.
    #[error(transparent)]
    Export(#[from] bricolage_onnx::ExportError),
    /// An npz file cannot be read or written.
    #[error(transparent)]
    Npz(#[from] crate::npz::NpzError),
    /// A value has a size that no input fixes.
    #[error("value `{value}` has the symbolic type {ty}: give its inputs' sizes")]
    Symbolic {
        /// Name of the value.
        value: String,
        /// Its type.
        ty: String,
    },
    /// The inputs given are not those of the model.
    #[error("{what}")]
    Inputs {
        /// A sentence with what was needed and found.
        what: String,
        /// What would help.
        help: String,
    },
    /// An input has a size outside the range that was given for it.
    #[error("input `{input}` has {found} for `{size}`, which goes from {low} to {high}")]
    OutOfRange {
        /// Name of the input.
        input: String,
        /// Name of the size.
        size: String,
        /// The size of the input.
        found: i64,
        /// The least size.
        low: i64,
        /// The largest size.
        high: i64,
    },
    /// A backend that is not known or not present was asked for.
    #[error("{what}")]
    Backend {
        /// A sentence.
        what: String,
        /// How to get it.
        help: String,
    },
    /// A library that was named as a backend is none.
    #[error(transparent)]
    Plugin(#[from] bricolage_backends::PluginError),
    /// The graph cannot be placed.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The artefact is damaged or made for something else.
    #[error("artefact `{path}`: {why}")]
    Artefact {
        /// The directory.
        path: PathBuf,
        /// A clause.
        why: String,
    },
    /// A run failed.
    #[error(transparent)]
    Run(#[from] bricolage_runtime::SessionError),
    /// The result differs from the reference.
    #[error("{what}")]
    Mismatch {
        /// A sentence with the error and what was allowed.
        what: String,
    },
    /// The rewritten graph means something else than the model.
    #[error("a rewrite changed what the model computes: {what}")]
    Rewrite {
        /// The output, its error and what was allowed.
        what: String,
    },
    /// A rewrite found the graph not to be well typed, or the evaluator failed.
    #[error(transparent)]
    Evaluate(#[from] bricolage_ir::EvalError),
    /// The cost database failed.
    #[error(transparent)]
    Database(#[from] bricolage_measure::DatabaseError),
    /// A worker process failed.
    #[error("worker process: {0}")]
    Worker(String),
    /// A peer cannot be run here.
    #[error("cannot run `{target}`: {why}")]
    Peer {
        /// Model and backend.
        target: String,
        /// A clause.
        why: String,
    },
    /// The user stopped before there was a result.
    #[error("stopped before there was a result")]
    Interrupted,
    /// Something that should hold does not.
    #[error("{what}")]
    Internal {
        /// What does not hold.
        what: String,
    },
}

/// The model's name before the message, unless that names it already.
fn model_name(path: &Path, error: &bricolage_onnx::ImportError) -> String {
    match error {
        bricolage_onnx::ImportError::File { .. } => String::new(),
        _ => format!("`{}`: ", path.display()),
    }
}

impl Error {
    /// Whether it says nothing about the model or a plan: the machine lacked something just then.
    pub fn is_momentary(&self) -> bool {
        matches!(self, Error::File { .. } | Error::Backend { .. } | Error::Interrupted)
    }

    /// A file that cannot be read, written or replaced, from what the system said.
    pub fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |e| {
            let why = in_words(e, &path).to_string();
            Error::File { action, path, why }
        }
    }

    /// The code under which the error is known.
    pub fn code(&self) -> &'static str {
        match self {
            Error::File { .. } => "file::unusable",
            Error::Import { error, .. } => error.code(),
            Error::Export(_) => "onnx::not-expressible",
            Error::Npz(_) => "file::npz",
            Error::Symbolic { .. } => "type::symbolic-dim",
            Error::Inputs { .. } => "run::wrong-inputs",
            Error::OutOfRange { .. } => "run::out-of-range",
            Error::Backend { .. } => "backend::absent",
            Error::Plugin(_) => "backend::library",
            Error::Place(PlaceError::Uncovered { .. }) => "place::uncovered",
            Error::Place(PlaceError::Wish { .. }) => "place::wish",
            Error::Place(_) => "place::failed",
            Error::Artefact { .. } => "artefact::unusable",
            Error::Run(_) => "run::failed",
            Error::Mismatch { .. } => "check::mismatch",
            Error::Rewrite { .. } => "check::rewrite",
            Error::Evaluate(_) => "run::evaluation",
            Error::Database(_) => "measure::database",
            Error::Worker(_) => "backend::worker",
            Error::Peer { .. } => "bench::peer",
            Error::Interrupted => "goal::interrupted",
            Error::Internal { .. } => "internal::broken-promise",
        }
    }

    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Error::Mismatch { .. } | Error::Peer { .. } => Blame::Condition,
            Error::Place(PlaceError::Uncovered { .. }) => Blame::Condition,
            Error::Place(PlaceError::Wish { .. }) => Blame::Input,
            Error::Run(_) | Error::Evaluate(_) | Error::Worker(_) => Blame::Condition,
            Error::Place(_) | Error::Rewrite { .. } | Error::Internal { .. } => Blame::Internal,
            Error::Interrupted => Blame::Interrupted,
            Error::Import { error, .. } if error.is_unsupported() => Blame::Condition,
            _ => Blame::Input,
        }
    }

    /// One thing that helps, if there is one.
    pub fn help(&self) -> Option<String> {
        match self {
            Error::Inputs { help, .. } | Error::Backend { help, .. } if !help.is_empty() => {
                Some(help.clone())
            }
            Error::Plugin(_) => Some(
                "`bricolage backend test LIBRARY` tries a library; docs/backends.md says how one is made"
                    .to_owned(),
            ),
            Error::Symbolic { .. } => Some(
                "give the sizes with --shape NAME:1x3x224x224, or a range of them with 1..32 for a number"
                    .to_owned(),
            ),
            Error::OutOfRange { .. } => Some(
                "give a wider range with --shape; an artefact keeps the one that it was optimised for"
                    .to_owned(),
            ),
            Error::Import { error, .. } if error.is_unsupported() => {
                let whole = "a foreign runtime takes the model whole in `run`, `bench` and `compare`, as \
                             MODEL@onnxruntime";
                Some(error.help().map_or_else(|| whole.to_owned(), |h| format!("{h}; {whole}")))
            }
            Error::Import { error, .. } => error.help(),
            Error::Place(PlaceError::Uncovered { .. }) => Some(
                "allow more backends; a foreign runtime takes the model whole in `run`, `bench` and \
                 `compare`, as MODEL@onnxruntime"
                    .to_owned(),
            ),
            Error::Place(PlaceError::Wish { .. }) => {
                Some("`optimize --dry-run` lists nodes with the backends that take them".to_owned())
            }
            _ => None,
        }
    }

    /// Facts besides the primary line.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Error::Import { error, .. } => error.notes(),
            _ => Vec::new(),
        }
    }
}

/// A text with escapes for what would move the cursor or change colours of whoever reads it: names come
/// from files that anybody may have written.
fn visible(text: &str) -> String {
    let one = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(one).collect()
}

/// The whole message: severity, code, primary line, notes and help.
pub fn render(error: &Error) -> impl fmt::Display + '_ {
    struct Rendered<'a>(&'a Error);
    impl fmt::Display for Rendered<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let severity =
                if self.0.blame() == Blame::Internal { "internal error" } else { "error" };
            write!(f, "{severity}[{}]: {}", self.0.code(), visible(&self.0.to_string()))?;
            for note in self.0.notes() {
                write!(f, "\n   = {}", visible(&note))?;
            }
            if self.0.blame() == Blame::Internal {
                write!(f, "\n   = this is a bug in bricolage, not in your model")?;
            }
            if let Some(help) = self.0.help() {
                write!(f, "\n   = help: {help}")?;
            }
            Ok(())
        }
    }
    Rendered(error)
}
