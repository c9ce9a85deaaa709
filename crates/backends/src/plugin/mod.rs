//! Libraries that others write against the C interface of `bricolage-plugin`.
//!
//! A library is described and asked what it takes by a [`Scout`], which may do that in another process; it is
//! loaded into this one when a kernel of it is rebuilt.

mod ask;
mod error;
mod kernel;
mod services;
mod table;
#[cfg(test)]
mod tests;

pub use error::{PluginError, PluginFault};
pub use services::log_to;
pub use table::{Description, Planned};

use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Setting,
    pattern::{Bindings, Library, PatternBackend, Provider, syntax::Literal},
};
use bricolage_ir::Graph;
use bricolage_plugin::Subgraph;
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::Format;
use kernel::{Body, Compiled, KERNEL};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use table::Table;

/// Where a library is asked what it is and what it takes.
pub trait Scout: Send + Sync {
    /// What the library at `path` says of itself.
    fn describe(&self, path: &Path) -> Result<Description, PluginError>;

    /// Whether it takes a sub-graph, as bytes of the interface; in a clause why it does not.
    fn plan(&self, path: &Path, subgraph: &[u8]) -> Result<Planned, String>;
}

/// Loads libraries into this process, which a fault of theirs then ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Scout for InProcess {
    fn describe(&self, path: &Path) -> Result<Description, PluginError> {
        Ok(Table::open(path)?.1)
    }

    fn plan(&self, path: &Path, subgraph: &[u8]) -> Result<Planned, String> {
        Table::open(path).map_err(|e| e.to_string())?.0.plan(subgraph)
    }
}

/// Answers of a library by what it was asked.
type Plans = Mutex<HashMap<Vec<u8>, Result<Planned, String>>>;

/// A library as a provider of kernels.
struct Plugin {
    path: PathBuf,
    description: Description,
    scout: Arc<dyn Scout>,
    plans: Plans,
}

/// The library at `path` as a backend, if none of the names `taken` is its own.
///
/// # Errors
/// When it cannot be read or loaded, does not keep to the interface, has a pattern file that does not fit the
/// language or its entries, or a name that is taken.
pub fn load_plugin(
    path: &Path,
    scout: Arc<dyn Scout>,
    taken: &[String],
) -> Result<PatternBackend, PluginError> {
    let fault = |fault| PluginError { library: path.to_owned(), fault };
    let description = scout.describe(path)?;
    let (name, patterns) = (description.name.clone(), description.patterns.clone());
    if taken.contains(&name) {
        return Err(fault(PluginFault::Taken(name)));
    }
    let plugin = Plugin { path: path.to_owned(), description, scout, plans: Plans::default() };
    let backend = PatternBackend::load(&format!("{name}.patterns"), &patterns, Arc::new(plugin))
        .map_err(|e| fault(PluginFault::Patterns(e.to_string())))?;
    let table = |needed: String, found: String| fault(PluginFault::Table { needed, found });
    if backend.name() != name {
        let found = format!("`backend {}`", backend.name());
        return Err(table(format!("a pattern file of `backend {name}`"), found));
    }
    if backend.kind() == BackendKind::Reference {
        let needed = "a kind of backend that is compared with the reference";
        return Err(table(needed.to_owned(), "`reference`".to_owned()));
    }
    Ok(backend)
}

/// What a pattern file may ask of the machine.
fn machine() -> Vec<(String, Literal)> {
    #[cfg(target_arch = "x86_64")]
    let isa = match () {
        () if std::arch::is_x86_feature_detected!("avx512f") => "avx512",
        () if std::arch::is_x86_feature_detected!("avx2") => "avx2",
        () => "sse2",
    };
    #[cfg(target_arch = "aarch64")]
    let isa = "neon";
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let isa = "";
    let facts = [("isa", isa), ("arch", std::env::consts::ARCH), ("os", std::env::consts::OS)];
    facts.map(|(name, fact)| (name.to_owned(), Literal::Text(fact.to_owned()))).into()
}

impl Plugin {
    fn version(&self) -> String {
        format!("{} ({})", self.description.version, self.description.build)
    }

    /// The kernel of a sub-graph that the library takes.
    fn kernel(&self, subgraph: &Subgraph, built_in: Vec<Packed>) -> Result<Bound, String> {
        let bytes = subgraph.encode();
        let known = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known().get(&bytes).cloned();
        let planned = found.unwrap_or_else(|| {
            let planned = self.scout.plan(&self.path, &bytes);
            known().insert(bytes.clone(), planned.clone());
            planned
        })?;
        let body = Body { version: self.version(), planned, subgraph: bytes };
        let name = &self.description.name;
        let kernel = Compiled::new(name, self.path.clone(), &body, built_in.clone())?;
        Ok(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in })
    }
}

impl Provider for Plugin {
    fn library(&self) -> Library {
        Library {
            entries: self.description.entries.clone(),
            machine: machine(),
            version: self.version(),
        }
    }

    fn status(&self) -> BackendStatus {
        BackendStatus {
            name: self.description.name.clone(),
            version: Some(self.version()),
            found: self.path.display().to_string(),
            how: "a library of your own".to_owned(),
            covers: "what its pattern file says".to_owned(),
        }
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn own_threads(&self) -> Option<u32> {
        Some(self.description.own_threads)
    }

    fn bind(
        &self,
        entry: &str,
        graph: &Graph,
        candidate: &Candidate,
        bindings: &Bindings,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let (subgraph, constants) = ask::subgraph(entry, graph, candidate, bindings, setting)?;
        self.kernel(&subgraph, constants)
    }

    fn convert(&self, entry: &str, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        // Who refuses a copy is not asked for it.
        self.kernel(&ask::copy(entry, dims, from, to).ok()?, Vec::new()).ok()
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        if recipe.kernel != KERNEL {
            return Err(format!("has no kernel `{}`", recipe.kernel));
        }
        let body: Body = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
        if body.version != self.version() {
            let (needed, found) = (&body.version, self.version());
            return Err(format!("needs version {needed} of the library, found {found}"));
        }
        let name = &self.description.name;
        let kernel = Compiled::new(name, self.path.clone(), &body, built_in.to_vec())?;
        kernel.compile()?;
        Ok(Arc::new(kernel))
    }
}
