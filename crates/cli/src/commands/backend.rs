//! `backend list`.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Backend, BackendVerb, Format},
    libraries,
    output::say,
    setup,
};
use bricolage::Error;
use bricolage_backend::BackendStatus;
use std::process::ExitCode;

/// Presence of every known backend.
pub(crate) fn statuses() -> Vec<BackendStatus> {
    let backends = setup::backends();
    let mut all: Vec<BackendStatus> = backends.usable.iter().map(|b| b.status()).collect();
    all.extend(backends.absent);
    all.extend(backends.broken.iter().map(libraries::unusable));
    all.extend(setup::peers().iter().map(|p| p.status()));
    all
}

pub(crate) fn run(a: &Backend) -> Result<ExitCode, Error> {
    let BackendVerb::List(output) = &a.verb;
    let all = statuses();
    match output.format {
        Format::Json => {
            print_json(&serde_json::json!({ "schema_version": SCHEMA_VERSION, "backends": all }))?
        }
        Format::Text => {
            for status in all {
                let version = status.version.unwrap_or_else(|| "absent".to_owned());
                say!("{:<12} {version}", status.name);
                say!("    {}", status.found);
                say!("    get it: {}", status.how);
                say!("    covers: {}", status.covers);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
