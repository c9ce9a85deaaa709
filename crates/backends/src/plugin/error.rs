//! Why a library is no backend.

use bricolage_plugin::SYMBOL;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A library that cannot be used as a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("backend library `{}` {fault}", library.display())]
pub struct PluginError {
    /// The file.
    pub library: PathBuf,
    /// What is wrong with it.
    pub fault: PluginFault,
}

/// What is wrong with a library, in a clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PluginFault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(String),
    /// The system does not load it, or the process that loaded it came to an end.
    #[error("cannot be loaded: {0}")]
    Load(String),
    /// It exports no backend.
    #[error("needs a function `{SYMBOL}`, found none")]
    Symbol,
    /// It does not know our interface.
    #[error("needs interface {needed}, found {found}")]
    Interface {
        /// The interface of this program.
        needed: u32,
        /// That of its table, or that there is none.
        found: String,
    },
    /// Its table is wrong.
    #[error("needs {needed}, found {found}")]
    Table {
        /// What a table has.
        needed: String,
        /// What this one has.
        found: String,
    },
    /// Its pattern file cannot be used; one line for each fault.
    #[error("has a pattern file that cannot be used\n{0}")]
    Patterns(String),
    /// Another backend has its name.
    #[error("needs a name that no other backend has, found `{0}`")]
    Taken(String),
}
