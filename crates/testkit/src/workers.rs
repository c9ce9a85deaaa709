//! Foreign code in processes of its own: workers of the product, which are this program started again.

use crate::{Fault, engines::foreign_here};
use bricolage::{
    WorkerCommand,
    worker::{self, OpenPlan},
};
use bricolage_backend::{Backend, Registry};
use bricolage_backends::{Native, OpenVino, Reference};
use bricolage_tensor::Tensor;
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// First argument of a program that is to be a worker.
const VERB: &str = "worker";
/// How the reason begins of an engine whose process ended or was stopped.
pub(crate) const ENDED: &str = "it ended its process";
/// Longest time for what foreign code is given at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Whether an engine gave up a case for this reason because foreign code crashed or hung.
pub fn ended(why: &str) -> bool {
    why.starts_with(ENDED)
}

/// What an engine that is not ours says of a fault in a worker that ended its process.
pub(crate) fn end_of(why: &str) -> Option<Fault> {
    worker::ended(why).then(|| Fault::Unsupported(format!("{ENDED}: {why}")))
}

/// Serves as a worker if the first argument asks for it: a program calls this before all else, and ends with
/// the code. Foreign libraries are those that environment variables name.
#[allow(clippy::print_stderr)] // it is the program
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args().skip(1);
    if words.next()? != VERB {
        return None;
    }
    let threads = words.next()?.parse().ok()?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(Native::default()), Arc::new(Reference)];
    all.extend(foreign_here(&variable).0.into_iter().map(|backend| {
        match backend.name() == OpenVino::NAME {
            // In a plan of its own kernels and the reference's it would show little.
            true => Arc::new(
                OpenVino::find(variable(OpenVino::VARIABLE).as_deref(), None).with_single_ops(),
            ),
            false => backend,
        }
    }));
    Some(match worker::serve(&Registry::new(all), &[], threads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    })
}

/// Worker processes that are started when they are needed, and again after a crash.
pub struct Workers {
    program: PathBuf,
    /// By the number of threads, those that are not busy.
    idle: Mutex<Vec<(usize, worker::Worker)>>,
}

impl Workers {
    /// Workers that are `program`, which calls [`serve_if_asked`].
    pub fn of(program: PathBuf) -> Arc<Workers> {
        Arc::new(Workers { program, idle: Mutex::default() })
    }

    /// Workers that are this program.
    pub fn of_this_program() -> std::io::Result<Arc<Workers>> {
        Ok(Workers::of(std::env::current_exe()?))
    }

    fn command(&self) -> WorkerCommand {
        WorkerCommand::new(self.program.clone(), vec![VERB.into()])
    }

    /// What the runtime of `backend` makes of the file `model` by itself, or why it makes nothing of it.
    pub(crate) fn by_itself(
        &self,
        backend: &str,
        model: &Path,
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<Vec<Tensor>, bricolage::Error> {
        let mut plan =
            worker::RemotePlan::open_peer(&self.command(), 1, backend, model, inputs, outputs)?;
        Ok(plan.outputs()?.into_iter().map(|(_, tensor)| tensor).collect())
    }

    /// Has `f` use a worker of so many threads.
    pub(crate) fn with<R>(
        &self,
        threads: usize,
        f: impl FnOnce(&Rc<RefCell<worker::Worker>>) -> R,
    ) -> R {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = {
            let mut idle = idle();
            let at = idle.iter().position(|(t, _)| *t == threads);
            at.map(|at| idle.swap_remove(at).1)
        };
        let worker = taken.unwrap_or_else(|| worker::Worker::new(self.command(), threads));
        let worker = Rc::new(RefCell::new(worker));
        let result = f(&worker);
        // What `f` keeps of it, it does not give back.
        if let Ok(worker) = Rc::try_unwrap(worker) {
            idle().push((threads, worker.into_inner()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bricolage_ir::Graph;

    #[test]
    fn a_process_that_ends_takes_no_case_and_is_wrong_on_none() {
        let workers = Workers::of("false".into());
        for _ in 0..2 {
            let answer = workers.with(1, |worker| {
                worker.borrow_mut().compute(&Graph::new("g"), &[], &["reference"], PATIENCE)
            });
            let fault = end_of(&answer.unwrap_err());
            assert!(matches!(fault, Some(Fault::Unsupported(why)) if ended(&why)));
        }
        assert_eq!(end_of("its result is wrong"), None);
    }
}
