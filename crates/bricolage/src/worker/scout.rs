//! Asks libraries what they are and what they take in a process of its own.

use super::{
    message::{Answer, Request},
    process::{Worker, WorkerCommand},
};
use bricolage_backends::{Description, Planned, PluginError, PluginFault, Scout};
use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A scout whose libraries are loaded into another process, which is started when it is first needed and
/// again after a crash.
pub struct RemoteScout {
    worker: Mutex<Worker>,
}

/// Longest time for loading a library, and for its answer to what it takes, which is asked often.
const LOAD_LIMIT: Duration = Duration::from_secs(30);
const PLAN_LIMIT: Duration = Duration::from_secs(5);

impl RemoteScout {
    /// A scout in a process that `command` starts; it loads no library by itself.
    pub fn new(command: WorkerCommand) -> RemoteScout {
        RemoteScout { worker: Mutex::new(Worker::new(command, 1)) }
    }

    fn ask(&self, request: &Request, limit: Duration) -> Result<Answer, String> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner).call(request, limit)
    }
}

const OTHER: &str = "the worker answered something else";

impl Scout for RemoteScout {
    fn describe(&self, path: &Path) -> Result<Description, PluginError> {
        let library = path.to_owned();
        let lost = |why: String| {
            Err(PluginError { library: library.clone(), fault: PluginFault::Load(why) })
        };
        match self.ask(&Request::Describe { library: library.clone() }, LOAD_LIMIT) {
            Ok(Answer::Described(answer)) => answer,
            Ok(_) => lost(OTHER.to_owned()),
            Err(why) => lost(why),
        }
    }

    fn plan(&self, path: &Path, subgraph: &[u8]) -> Result<Planned, String> {
        let request = Request::PlanRegion { library: path.to_owned(), subgraph: subgraph.to_vec() };
        match self.ask(&request, PLAN_LIMIT) {
            Ok(Answer::PlannedRegion(answer)) => answer,
            Ok(_) => Err(OTHER.to_owned()),
            Err(why) => Err(format!("asked what it takes, {why}")),
        }
    }
}
