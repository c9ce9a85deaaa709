//! Libraries that the user names as backends, loaded when backends are first looked for.

use crate::{
    args::{Arguments, Backend as BackendArguments, BackendVerb, Verb},
    setup,
};
use bricolage::{Error, worker::RemoteScout};
use bricolage_backend::{Backend, BackendStatus};
use bricolage_backends::{InProcess, PluginError, Scout, load_plugin, log_to};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// The libraries of this process, and whether it loads them to ask them.
struct Named {
    paths: Vec<PathBuf>,
    is_worker: bool,
}

static NAMED: OnceLock<Named> = OnceLock::new();
static LOADED: OnceLock<Vec<Result<Arc<dyn Backend>, PluginError>>> = OnceLock::new();

/// Takes the libraries that the arguments name, and the file for what they log.
pub(crate) fn name(arguments: &Arguments) -> Result<(), Error> {
    if let Some(path) = setup::variable("BRICOLAGE_BACKEND_LOG") {
        log_to(&path).map_err(Error::file("write", &path))?;
    }
    NAMED.get_or_init(|| match &arguments.verb {
        Verb::Worker { libraries, .. } => Named { paths: libraries.clone(), is_worker: true },
        _ => {
            // A variable that is set to nothing names nothing.
            let mut paths = arguments.libraries.clone();
            paths.retain(|p| !p.as_os_str().is_empty());
            if let Verb::Backend(BackendArguments { verb: BackendVerb::Test(test) }) =
                &arguments.verb
            {
                paths.extend(test.library().filter(|path| !paths.contains(path)));
            }
            Named { paths, is_worker: false }
        }
    });
    Ok(())
}

/// The paths that workers are given.
pub(crate) fn paths() -> Vec<PathBuf> {
    NAMED.get().map(|named| named.paths.clone()).unwrap_or_default()
}

/// Every library as a backend, or why it is none. `taken` holds the names of all other backends.
pub(crate) fn loaded(
    taken: impl FnOnce() -> Vec<String>,
) -> &'static [Result<Arc<dyn Backend>, PluginError>] {
    LOADED.get_or_init(|| {
        let Some(named) = NAMED.get().filter(|named| !named.paths.is_empty()) else {
            return Vec::new();
        };
        let mut taken = taken();
        let scout: Arc<dyn Scout> = match setup::bare_worker_command() {
            Some(command) if !named.is_worker => Arc::new(RemoteScout::new(command)),
            _ => Arc::new(InProcess),
        };
        let mut load = |path: &PathBuf| {
            let backend = load_plugin(path, scout.clone(), &taken)?;
            taken.push(backend.name().to_owned());
            Ok(Arc::new(backend) as Arc<dyn Backend>)
        };
        named.paths.iter().map(&mut load).collect()
    })
}

/// The name of the backend that a library of the user is, once backends were looked for.
pub(crate) fn name_of(path: &Path) -> Result<Option<String>, PluginError> {
    let place = NAMED.get().and_then(|named| named.paths.iter().position(|p| p == path));
    let found = place.and_then(|place| LOADED.get()?.get(place));
    match found {
        None => Ok(None),
        Some(Ok(backend)) => Ok(Some(backend.name().to_owned())),
        Some(Err(error)) => Err(error.clone()),
    }
}

/// What is said of a library that is no backend.
pub(crate) fn unusable(error: &PluginError) -> BackendStatus {
    let file = error.library.file_name().map(|n| n.to_string_lossy().into_owned());
    BackendStatus {
        name: file.unwrap_or_default(),
        version: None,
        found: error.to_string(),
        how: "a library of your own; docs/backends.md says how one is made".to_owned(),
        covers: "nothing".to_owned(),
    }
}
