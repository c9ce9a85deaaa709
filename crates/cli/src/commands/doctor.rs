//! `doctor`: the machine, its noise, the backends.

use super::{SCHEMA_VERSION, backend, print_json};
use crate::{
    args::{Format, Output},
    output::say,
    setup, units,
};
use bricolage::Error;
use bricolage_measure::{Machine, noise};
use bricolage_runtime::available_threads;
use std::process::ExitCode;

const TRIALS: u32 = 40;

pub(crate) fn run(output: &Output) -> Result<ExitCode, Error> {
    let machine = Machine::read();
    let threads = available_threads();
    eprintln!("racing one piece of work against itself {TRIALS} times");
    let noise = noise(TRIALS);
    let statuses = backend::statuses()?;
    let restless = noise.compute_spread > 0.03 || noise.aa_false * 20 > noise.aa_trials;
    match output.format {
        Format::Json => print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "machine": machine,
            "fingerprint": machine.fingerprint(),
            "threads": threads.threads,
            "noise": noise,
            "cache": setup::cache_folder(),
            "backends": statuses,
        }))?,
        Format::Text => {
            say!("processor    {} ({} {})", machine.model, machine.arch, machine.revision);
            say!("features     {}", machine.features.join(" "));
            let caches: Vec<String> = machine
                .caches
                .iter()
                .map(|c| {
                    format!("L{} {} {}", c.level, c.kind.to_lowercase(), units::bytes(c.bytes))
                })
                .collect();
            say!("caches       {}", caches.join(", "));
            say!(
                "processors   {} online; this process may use {}",
                machine.processors,
                threads.threads
            );
            say!("memory       {}", units::bytes(machine.memory));
            say!("system       {}", machine.system);
            say!("costs        {}", setup::cache_folder().display());
            say!(
                "noise        compute {:.1} %, memory {:.1} % between the 10th and the 90th percentile",
                100.0 * noise.compute_spread,
                100.0 * noise.memory_spread
            );
            say!(
                "self-test    {} of {} races of a thing against itself named a winner",
                noise.aa_false,
                noise.aa_trials
            );
            for status in statuses {
                say!(
                    "backend      {} {}: {}",
                    status.name,
                    status.version.as_deref().unwrap_or("absent"),
                    status.found
                );
            }
        }
    }
    if restless {
        eprintln!("warning: this machine is restless; small differences will not be told apart");
    }
    Ok(ExitCode::SUCCESS)
}
