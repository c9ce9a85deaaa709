//! Trials of kernels: of native ones here, of foreign ones in a worker.

use super::{
    message::{Answer, Request},
    process::{RUN_LIMIT, Worker},
};
use crate::Temporary;
use bricolage_backend::Registry;
use bricolage_measure::{Sample, SampleError};
use bricolage_placement::{Bench, LocalTrial, OpenTrial, Trial, TrialError};
use bricolage_runtime::Pool;
use bricolage_tensor::Tensor;
use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Opens trials of native kernels here and those of foreign backends in a worker.
pub struct Benches<'a> {
    registry: &'a Registry,
    pool: Arc<dyn Pool + Send + Sync>,
    worker: Option<Rc<RefCell<Worker>>>,
    /// Where weights of trials are written for the worker.
    scratch: PathBuf,
    /// When to stop waiting for a worker.
    deadline: Cell<Option<Instant>>,
    /// Whether kernels of ours run in the worker too.
    apart: bool,
}

impl<'a> Benches<'a> {
    /// With no worker, foreign kernels run in this process.
    pub fn new(
        registry: &'a Registry,
        pool: Arc<dyn Pool + Send + Sync>,
        worker: Option<Rc<RefCell<Worker>>>,
        scratch: PathBuf,
    ) -> Benches<'a> {
        Benches { registry, pool, worker, scratch, deadline: Cell::new(None), apart: false }
    }

    /// All kernels run in the worker, ours too.
    pub fn apart(self) -> Benches<'a> {
        Benches { apart: true, ..self }
    }

    /// A worker that compiles or runs for the first time is not waited for beyond `deadline`.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.set(deadline);
    }
}

impl Bench for Benches<'_> {
    fn open<'b>(
        &'b self,
        backend: &str,
        trial: Trial,
    ) -> Result<Box<dyn OpenTrial + 'b>, TrialError> {
        let foreign = self.registry.get(backend).is_ok_and(|b| b.is_foreign());
        match &self.worker {
            Some(worker) if foreign || self.apart => {
                let mut remote = RemoteTrial::new(worker.clone(), trial, &self.scratch)?;
                remote.deadline = self.deadline.get();
                remote.open().map_err(|why| remote.fault(why))?;
                Ok(Box::new(remote))
            }
            _ => Ok(Box::new(LocalTrial::open(trial, self.registry, self.pool.clone())?)),
        }
    }
}

/// A trial in a worker process.
struct RemoteTrial {
    worker: Rc<RefCell<Worker>>,
    request: Request,
    id: u64,
    generation: u64,
    /// When to stop waiting for what is not a sample.
    deadline: Option<Instant>,
    _weights: Temporary,
}

/// Files of weights that this process has written for any worker.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// A worker gets this long whatever the deadline.
const LEAST_LIMIT: Duration = Duration::from_secs(1);
/// A sample gets this long whatever the limit of a kernel.
const LEAST_SAMPLE_LIMIT: Duration = Duration::from_secs(5);

impl RemoteTrial {
    fn new(
        worker: Rc<RefCell<Worker>>,
        trial: Trial,
        scratch: &Path,
    ) -> Result<RemoteTrial, TrialError> {
        let id = {
            let mut worker = worker.borrow_mut();
            worker.next_id += 1;
            worker.next_id
        };
        let fault = |e: io::Error| {
            TrialError::momentary(format!("its weights cannot be handed to a worker: {e}"))
        };
        fs::create_dir_all(scratch).map_err(fault)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let weights = scratch.join(format!("trial-{}-{number}.bin", std::process::id()));
        let file = Temporary::new(weights.clone());
        fs::write(&weights, &*trial.weights).map_err(fault)?;
        let plan = postcard::to_stdvec(&trial.plan).map_err(|e| TrialError::new(e.to_string()))?;
        let fills = trial.fills.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect();
        let results = trial.results.iter().map(|b| b.0).collect();
        let request = Request::OpenTrial { id, plan, weights, fills, results };
        Ok(RemoteTrial { worker, request, id, generation: 0, deadline: None, _weights: file })
    }

    fn open(&mut self) -> Result<(), String> {
        let mut worker = self.worker.borrow_mut();
        worker.start()?;
        if worker.generation != self.generation {
            let limit = self.limit(worker.command.open_limit());
            worker.call(&self.request, limit)?;
            self.generation = worker.generation;
        }
        Ok(())
    }

    fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, String> {
        self.open()?;
        self.worker.borrow_mut().call(request, limit)
    }

    fn run_limit(&self) -> Duration {
        self.worker.borrow().command.run_limit()
    }

    /// `longest`, or what is left until the deadline.
    fn limit(&self, longest: Duration) -> Duration {
        let left = self.deadline.map(|d| d.saturating_duration_since(Instant::now()));
        left.map_or(longest, |left| longest.min(left.max(LEAST_LIMIT)))
    }

    /// After the deadline the kernel may have had too little time.
    fn fault(&self, why: String) -> TrialError {
        match self.deadline.is_some_and(|d| Instant::now() >= d) {
            true => TrialError::momentary(why),
            false => TrialError::new(why),
        }
    }
}

impl Sample for RemoteTrial {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        // Of runs of which one was checked, a sample has few that are slow.
        let limit = self.run_limit().max(LEAST_SAMPLE_LIMIT);
        match self.call(&Request::Sample { id: self.id, iterations }, limit) {
            Ok(Answer::Time { ns }) => Ok(Duration::from_nanos(ns)),
            Ok(_) => Err(SampleError("the worker answered something else".to_owned())),
            Err(why) => Err(SampleError(why)),
        }
    }
}

impl OpenTrial for RemoteTrial {
    fn stopped(&mut self) -> Result<(), TrialError> {
        let limit = self.limit(self.run_limit());
        match self.call(&Request::Stopped { id: self.id }, limit).map_err(|why| self.fault(why))? {
            Answer::Done => Ok(()),
            _ => Err(TrialError::new("the worker answered something else")),
        }
    }

    fn results(&mut self) -> Result<Vec<Tensor>, TrialError> {
        let limit = self.limit(self.run_limit());
        match self.call(&Request::Results { id: self.id }, limit).map_err(|why| self.fault(why))? {
            Answer::Tensors(all) => {
                all.into_iter().map(|w| w.tensor().map_err(TrialError::new)).collect()
            }
            _ => Err(TrialError::new("the worker answered something else".to_owned())),
        }
    }
}

impl Drop for RemoteTrial {
    fn drop(&mut self) {
        let mut worker = self.worker.borrow_mut();
        if worker.process.is_some() && worker.generation == self.generation {
            // A worker that is gone has closed it already.
            let _ = worker.call(&Request::Close { id: self.id }, RUN_LIMIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::process::{OPEN_LIMIT, tests::worker};

    #[test]
    fn a_compile_that_hangs_is_not_waited_for_beyond_the_deadline() {
        let start = Instant::now();
        let mut remote = RemoteTrial {
            worker: Rc::new(RefCell::new(worker("sleep 300"))),
            request: Request::Close { id: 1 },
            id: 1,
            generation: 0,
            deadline: Some(start),
            _weights: Temporary::new(std::env::temp_dir().join("bricolage-no-such-weights")),
        };
        let why = remote.open().expect_err("it hangs");
        assert!(remote.fault(why).momentary);
        assert!(start.elapsed() < OPEN_LIMIT / 2, "{:?}", start.elapsed());
    }
}
