//! Whole plans and peers, each in a process of its own.

use super::{
    message::{Answer, Request, Wire},
    process::{RUN_LIMIT, Worker, WorkerCommand},
};
use crate::Error;
use bricolage_measure::{Sample, SampleError};
use bricolage_tensor::Tensor;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// A whole model that is open for running, here or in another process.
pub trait OpenPlan: Sample {
    /// Runs once and returns the outputs by name.
    fn outputs(&mut self) -> Result<Vec<(String, Tensor)>, Error>;

    /// Runs once and tells how long each step of the plan took.
    fn steps(&mut self) -> Result<Vec<Duration>, Error>;

    /// Keeps it from using the processor until [`OpenPlan::resume`]; for runtimes whose threads spin.
    fn pause(&mut self) {}

    /// Ends a pause.
    fn resume(&mut self) {}
}

/// A plan that is paused except while it is sampled, so that it and others like it do not disturb
/// each other. It stays paused afterwards.
pub struct Alone<'a>(&'a mut dyn OpenPlan);

impl<'a> Alone<'a> {
    /// Pauses `plan`.
    pub fn new(plan: &'a mut dyn OpenPlan) -> Alone<'a> {
        plan.pause();
        Alone(plan)
    }
}

impl Sample for Alone<'_> {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        self.0.resume();
        let time = self.warm_up().and_then(|()| self.0.sample(iterations));
        self.0.pause();
        time
    }
}

impl Alone<'_> {
    /// [`OpenPlan::steps`], undisturbed and warm.
    pub fn steps(&mut self) -> Result<Vec<Duration>, Error> {
        self.0.resume();
        let warm = self.warm_up().map_err(|e| Error::Worker(e.0));
        let steps = warm.and_then(|()| self.0.steps());
        self.0.pause();
        steps
    }

    /// The first runs after a pause find cold caches and sleeping threads.
    fn warm_up(&mut self) -> Result<(), SampleError> {
        const ENOUGH: Duration = Duration::from_millis(15);
        if self.0.sample(1)? < ENOUGH {
            self.0.sample(1)?;
        }
        Ok(())
    }
}

/// An artefact or a peer's model that is open in a worker process of its own.
pub struct RemotePlan {
    worker: Worker,
    /// From opening the files to a session, in nanoseconds.
    pub load_ns: u64,
    /// The first run, in nanoseconds.
    pub first_run_ns: u64,
    /// Largest resident size of the process after the first run, in bytes.
    pub peak_bytes: u64,
    /// In words that an artefact was not measured at the sizes of the inputs.
    pub unmeasured: Option<String>,
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

impl RemotePlan {
    /// Opens the artefact in `folder` in a new process and runs it once on `inputs`.
    pub fn open(
        command: &WorkerCommand,
        threads: usize,
        folder: &Path,
        inputs: &[Tensor],
    ) -> Result<RemotePlan, Error> {
        let inputs = inputs.iter().map(Wire::from).collect();
        RemotePlan::start(
            command,
            threads,
            &Request::OpenArtefact { id: 1, folder: absolute(folder), inputs },
        )
    }

    /// Opens an ONNX file with a backend's own runtime in a new process and runs it once; `outputs`
    /// names the model's outputs.
    pub fn open_peer(
        command: &WorkerCommand,
        threads: usize,
        backend: &str,
        model: &Path,
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<RemotePlan, Error> {
        let inputs = inputs.iter().map(|(n, t)| (n.clone(), Wire::from(t))).collect();
        let request = Request::OpenPeer {
            id: 1,
            backend: backend.to_owned(),
            model: absolute(model),
            inputs,
            outputs: outputs.to_vec(),
        };
        RemotePlan::start(command, threads, &request)
    }

    fn start(
        command: &WorkerCommand,
        threads: usize,
        request: &Request,
    ) -> Result<RemotePlan, Error> {
        let mut worker = Worker::new(command.clone(), threads);
        match worker.call(request, RUN_LIMIT).map_err(Error::Worker)? {
            Answer::Opened { load_ns, first_run_ns, peak_bytes, unmeasured } => {
                Ok(RemotePlan { worker, load_ns, first_run_ns, peak_bytes, unmeasured })
            }
            _ => Err(Error::Worker("it answered something else".to_owned())),
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(process) = &self.worker.process {
            process.signal(signal);
        }
    }
}

impl OpenPlan for RemotePlan {
    fn outputs(&mut self) -> Result<Vec<(String, Tensor)>, Error> {
        match self.worker.call(&Request::Results { id: 1 }, RUN_LIMIT).map_err(Error::Worker)? {
            Answer::Named(all) => {
                all.into_iter().map(|(n, w)| Ok((n, w.tensor().map_err(Error::Worker)?))).collect()
            }
            _ => Err(Error::Worker("it answered something else".to_owned())),
        }
    }

    fn steps(&mut self) -> Result<Vec<Duration>, Error> {
        match self.worker.call(&Request::Steps { id: 1 }, RUN_LIMIT).map_err(Error::Worker)? {
            Answer::Steps { ns } => Ok(ns.into_iter().map(Duration::from_nanos).collect()),
            _ => Err(Error::Worker("it answered something else".to_owned())),
        }
    }

    fn pause(&mut self) {
        self.signal(rustix::process::Signal::STOP);
    }

    fn resume(&mut self) {
        self.signal(rustix::process::Signal::CONT);
    }
}

impl Sample for RemotePlan {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        match self.worker.call(&Request::Sample { id: 1, iterations }, RUN_LIMIT) {
            Ok(Answer::Time { ns }) => Ok(Duration::from_nanos(ns)),
            Ok(_) => Err(SampleError("the worker answered something else".to_owned())),
            Err(why) => Err(SampleError(why)),
        }
    }
}
