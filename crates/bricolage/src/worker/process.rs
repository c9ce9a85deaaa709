//! The side that starts workers, waits for them and ends them.

use super::message::{Answer, Request, receive, send};
use crate::temporary;
use std::{
    ffi::OsString,
    io::{self, BufReader, BufWriter},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

/// How to start a worker: the program and its first arguments; threads are added.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the number of threads.
    pub arguments: Vec<OsString>,
    /// Longest time for a kernel to be compiled, and for a checked run of it; a minute and two where nothing
    /// is said.
    pub kernel_limit: Option<Duration>,
}

impl WorkerCommand {
    /// A program with its first arguments.
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> WorkerCommand {
        WorkerCommand { program, arguments, kernel_limit: None }
    }

    /// Longest time for compiling.
    pub(super) fn open_limit(&self) -> Duration {
        self.kernel_limit.unwrap_or(OPEN_LIMIT)
    }

    /// Longest time for one checked run.
    pub(super) fn run_limit(&self) -> Duration {
        self.kernel_limit.unwrap_or(RUN_LIMIT)
    }
}

/// A running worker process.
pub(super) struct Process {
    child: Child,
    to: BufWriter<std::process::ChildStdin>,
    answers: mpsc::Receiver<io::Result<Answer>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        // It may have ended by itself.
        let _ = self.child.wait();
        temporary::remove_group(self.child.id());
    }
}

impl Process {
    /// How a worker whose answers have ended came to its end, in a clause. One that only closed its
    /// output, and so cannot answer any more, is not waited for.
    fn end(&mut self) -> String {
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("ended ({status})"),
                Ok(None) if start.elapsed() < END_LIMIT => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) => return "closed its output and was stopped".to_owned(),
                Err(e) => return format!("cannot be waited for: {e}"),
            }
        }
    }

    /// Signals the worker and everything that it has started.
    pub(super) fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            // Processes that have ended need no signal.
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }
}

/// A worker that is started when it is first needed, and again after a crash.
pub struct Worker {
    pub(super) command: WorkerCommand,
    threads: usize,
    pub(super) process: Option<Process>,
    /// How many processes were started; what is open in an earlier one is gone.
    pub(super) generation: u64,
    pub(super) next_id: u64,
}

impl Worker {
    /// A worker for `threads` threads.
    pub fn new(command: WorkerCommand, threads: usize) -> Worker {
        Worker { command, threads, process: None, generation: 0, next_id: 0 }
    }

    /// Number of the process, if one runs.
    pub(crate) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(|p| p.child.id())
    }

    pub(super) fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut command = Command::new(&self.command.program);
        command
            .args(&self.command.arguments)
            .arg(self.threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // With what it starts, so that both are stopped and go on together.
            .process_group(0);
        let (started, start) = mpsc::sync_channel(1);
        let (sender, answers) = mpsc::channel();
        // The system ends a worker with the thread that started it, which is therefore the one that waits for
        // its answers, whoever asks.
        std::thread::spawn(move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(e) => {
                    let _ = started.send(Err(e));
                    return;
                }
            };
            let stdout = child.stdout.take();
            if started.send(Ok(child)).is_err() {
                return;
            }
            let Some(stdout) = stdout else { return };
            let mut from = BufReader::new(stdout);
            loop {
                let answer = receive(&mut from);
                let ended = answer.is_err();
                if sender.send(answer).is_err() || ended {
                    return;
                }
            }
        });
        let cannot = |e: &dyn std::fmt::Display| {
            format!("cannot start `{}`: {e}", self.command.program.display())
        };
        let child = start.recv().map_err(|e| cannot(&e))?;
        let mut child = child.map_err(|e| cannot(&e))?;
        temporary::add_group(child.id());
        let stdin = child.stdin.take().ok_or("it has no standard input")?;
        self.process = Some(Process { child, to: BufWriter::new(stdin), answers });
        self.generation += 1;
        Ok(())
    }

    pub(super) fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, String> {
        self.start()?;
        let Some(process) = &mut self.process else { return Err("it did not start".to_owned()) };
        let sent = send(&mut process.to, request);
        let answer = match sent {
            Ok(()) => process.answers.recv_timeout(limit),
            Err(_) => Ok(Err(io::ErrorKind::UnexpectedEof.into())),
        };
        match answer {
            Ok(Ok(Answer::Failed(why))) => Err(why),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                let how = process.end();
                self.process = None;
                Err(format!("{ENDED} {how}"))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.process = None;
                let limit = limit.as_secs();
                Err(format!("{ENDED} did not answer within {limit} s and was stopped"))
            }
        }
    }
}

/// How the fault begins of what ended its worker's process, or never answered.
const ENDED: &str = "the process that ran it";

/// Whether a fault in words, of a trial or a run in a worker, is that its process ended or was stopped.
pub fn ended(why: &str) -> bool {
    why.contains(ENDED)
}

/// Longest time for compiling, and for one checked run, where nothing is said.
pub(super) const OPEN_LIMIT: Duration = Duration::from_secs(60);
pub(super) const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Longest time for a process to end once its output has.
const END_LIMIT: Duration = Duration::from_secs(2);

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::worker) fn worker(script: &str) -> Worker {
        let (program, arguments) = (PathBuf::from("sh"), vec!["-c".into(), script.into()]);
        Worker::new(WorkerCommand::new(program, arguments), 1)
    }

    #[test]
    fn a_worker_that_closes_its_output_and_lives_on_is_not_waited_for() {
        let start = Instant::now();
        let why = worker("exec 1>&-; sleep 300").call(&Request::Close { id: 1 }, RUN_LIMIT);
        assert!(why.err().is_some_and(|why| why.contains("closed its output")));
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }

    #[test]
    fn a_worker_that_ends_says_how() {
        let why = worker("exit 7").call(&Request::Close { id: 1 }, RUN_LIMIT);
        assert_eq!(why.err().as_deref(), Some("the process that ran it ended (exit status: 7)"));
    }

    #[test]
    fn a_worker_outlives_the_thread_that_asked_first() {
        // Answers every such request with `Answer::Closed`.
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        send(&mut asked, &Request::Close { id: 1 }).unwrap();
        send(&mut answered, &Answer::Closed).unwrap();
        let answered: String = answered.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let length = asked.len();
        let mut worker =
            worker(&format!("while head -c {length} >/dev/null; do printf '{answered}'; done"));
        let ask = move || {
            let answer = worker.call(&Request::Close { id: 1 }, RUN_LIMIT);
            assert!(matches!(answer, Ok(Answer::Closed)), "{:?}", answer.err());
            worker
        };
        let mut worker = std::thread::spawn(ask).join().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let answer = worker.call(&Request::Close { id: 1 }, RUN_LIMIT);
        assert!(matches!(answer, Ok(Answer::Closed)), "{:?}", answer.err());
        assert_eq!(worker.generation, 1);
    }
}
