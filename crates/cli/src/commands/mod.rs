//! One module a verb.

pub(crate) mod backend;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod doctor;
mod evolutions;
pub(crate) mod explain;
pub(crate) mod explain_error;
pub(crate) mod inspect;
pub(crate) mod optimize;
pub(crate) mod reduce;
pub(crate) mod run;
mod sizes;
mod survey;
pub(crate) mod zoo;

use crate::output::say;
use bricolage::Error;
use serde::Serialize;
use std::process::ExitCode;

/// Raised when the JSON of a verb changes its meaning.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Prints a result as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| Error::Internal { what: e.to_string() })?;
    say!("{text}");
    Ok(())
}

/// Serves another process of this program until it closes our input.
pub(crate) fn worker(threads: usize) -> Result<ExitCode, Error> {
    let registry = crate::setup::registry(&[])?;
    bricolage::worker::serve(&registry, &crate::setup::peers(), threads)
        .map_err(|e| Error::Worker(e.to_string()))?;
    Ok(ExitCode::SUCCESS)
}
