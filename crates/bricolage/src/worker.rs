//! Worker processes: where foreign kernels are compiled and first run, and whole plans are timed.
//!
//! A worker is this program started again with a hidden verb. Requests and answers are frames of
//! a length and a `postcard` message over its standard input and output. A worker that crashes or
//! does not answer in time costs the candidate that it was busy with, and is started again.

use crate::{DynamicSession, Error, Opened, Temporary, artefact, target, temporary};
use bricolage_backend::{Peer, Registry};
use bricolage_backends::PythonPeer;
use bricolage_measure::{Sample, SampleError};
use bricolage_placement::{Bench, LocalTrial, OpenTrial, Trial, TrialError};
use bricolage_runtime::{BufferId, Plan, Pool, PoolOptions, Session, ThreadPool, map_file};
use bricolage_tensor::{DType, Datum, Storage, Tensor};
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    collections::HashMap,
    fs,
    io::{self, BufReader, BufWriter, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// A tensor in a frame.
#[derive(Serialize, Deserialize)]
struct Wire {
    dtype: DType,
    dims: Vec<i64>,
    bytes: Vec<u8>,
}

impl From<&Tensor> for Wire {
    fn from(t: &Tensor) -> Wire {
        Wire { dtype: t.dtype(), dims: t.dims().to_vec(), bytes: t.bytes().to_vec() }
    }
}

impl Wire {
    fn tensor(self) -> Result<Tensor, String> {
        Tensor::new(self.dtype, &self.dims, Storage::copy_of(&self.bytes))
            .map_err(|e| e.to_string())
    }
}

#[derive(Serialize, Deserialize)]
enum Request {
    OpenTrial {
        id: u64,
        plan: Vec<u8>,
        weights: PathBuf,
        fills: Vec<(u64, Vec<u8>)>,
        results: Vec<u32>,
    },
    OpenArtefact {
        id: u64,
        folder: PathBuf,
        inputs: Vec<Wire>,
    },
    OpenPeer {
        id: u64,
        backend: String,
        model: PathBuf,
        inputs: Vec<(String, Wire)>,
        outputs: Vec<String>,
    },
    Results {
        id: u64,
    },
    Sample {
        id: u64,
        iterations: u32,
    },
    Close {
        id: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Opened { load_ns: u64, first_run_ns: u64, peak_bytes: u64, unmeasured: Option<String> },
    Tensors(Vec<Wire>),
    Named(Vec<(String, Wire)>),
    Time { ns: u64 },
    Closed,
    Failed(String),
}

fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(&bytes)?;
    to.flush()
}

fn receive<T: serde::de::DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 8];
    from.read_exact(&mut len)?;
    let mut bytes = Vec::new();
    let len = u64::from_le_bytes(len);
    if from.take(len).read_to_end(&mut bytes)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// A plan or a trial that a worker holds open.
enum Held {
    Trial(Box<LocalTrial>),
    Program { session: Session, inputs: Vec<Tensor>, outputs: Vec<Vec<u64>>, sizes: Vec<usize> },
    Dynamic { session: Box<DynamicSession>, inputs: Vec<Datum> },
    Peer { peer: Box<dyn Peer>, inputs: Vec<(String, Tensor)> },
}

impl Held {
    /// An artefact with its inputs, and room for its outputs where their sizes are known.
    fn of(opened: Opened, inputs: Vec<Tensor>) -> Held {
        match opened {
            Opened::Fixed(session) => {
                let ports = session.program().plan().outputs.iter();
                let sizes: Vec<usize> =
                    ports.map(|p| p.ty.byte_len().unwrap_or(0) as usize).collect();
                let outputs = sizes.iter().map(|s| vec![0; s.div_ceil(8)]).collect();
                Held::Program { session, inputs, outputs, sizes }
            }
            Opened::Dynamic(session) => {
                Held::Dynamic { session, inputs: inputs.into_iter().map(Datum::from).collect() }
            }
        }
    }

    /// Runs an artefact once; its outputs go nowhere.
    fn run_artefact(&mut self) -> Result<(), String> {
        match self {
            Held::Program { session, inputs, outputs, sizes } => {
                let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
                let mut taken: Vec<&mut [u8]> = outputs
                    .iter_mut()
                    .zip(sizes)
                    .map(|(words, size)| &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..*size])
                    .collect();
                session.run_into(&given, &mut taken, None).map_err(|e| e.to_string())
            }
            Held::Dynamic { session, inputs } => {
                session.run(inputs).map(|_| ()).map_err(|e| e.to_string())
            }
            Held::Trial(_) | Held::Peer { .. } => Err("it is no artefact".to_owned()),
        }
    }
}

/// Serves requests from standard input until it ends. `threads` is fixed for the process.
pub fn serve(registry: &Registry, peers: &[PythonPeer], threads: usize) -> io::Result<()> {
    // Also when it is stopped and the process that it serves is killed. Where the system cannot do
    // this, the end of standard input ends it.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let options = PoolOptions { threads, ..PoolOptions::default() };
    let pool: Arc<dyn Pool + Send + Sync> = Arc::new(ThreadPool::new(&options)?);
    let mut from = BufReader::new(io::stdin().lock());
    // Foreign libraries in this process may print: what they write goes where errors go, and answers to a
    // copy of standard output that only this function knows.
    let answers = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    let mut to = BufWriter::new(fs::File::from(answers));
    let mut held: HashMap<u64, Held> = HashMap::new();
    loop {
        let request: Request = match receive(&mut from) {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer =
            answer(request, &mut held, registry, peers, &pool).unwrap_or_else(Answer::Failed);
        send(&mut to, &answer)?;
    }
}

fn answer(
    request: Request,
    held: &mut HashMap<u64, Held>,
    registry: &Registry,
    peers: &[PythonPeer],
    pool: &Arc<dyn Pool + Send + Sync>,
) -> Result<Answer, String> {
    let missing = || "there is nothing open under this number".to_owned();
    match request {
        Request::OpenTrial { id, plan, weights, fills, results } => {
            let plan: Plan = postcard::from_bytes(&plan).map_err(|e| e.to_string())?;
            let weights = map_file(&weights).map_err(|e| e.to_string())?;
            let fills =
                fills.into_iter().map(|(at, bytes)| (at, Storage::copy_of(&bytes))).collect();
            let results = results.into_iter().map(BufferId).collect();
            let start = Instant::now();
            let trial =
                LocalTrial::open(Trial { plan, weights, fills, results }, registry, pool.clone());
            held.insert(id, Held::Trial(Box::new(trial.map_err(|e| e.why)?)));
            let load_ns = start.elapsed().as_nanos() as u64;
            Ok(Answer::Opened { load_ns, first_run_ns: 0, peak_bytes: 0, unmeasured: None })
        }
        Request::OpenArtefact { id, folder, inputs } => {
            let start = Instant::now();
            let loaded = artefact::load(&folder, registry).map_err(|e| e.to_string())?;
            let opened = Opened::new(&loaded, pool.clone()).map_err(|e| e.to_string())?;
            let load_ns = start.elapsed().as_nanos() as u64;
            let inputs: Result<Vec<Tensor>, String> =
                inputs.into_iter().map(Wire::tensor).collect();
            let mut open = Held::of(opened, inputs?);
            let start = Instant::now();
            open.run_artefact()?;
            let first_run_ns = start.elapsed().as_nanos() as u64;
            let unmeasured = match &open {
                Held::Dynamic { session, .. } => session.unmeasured(),
                _ => None,
            };
            held.insert(id, open);
            let peak_bytes = peak_resident_bytes();
            Ok(Answer::Opened { load_ns, first_run_ns, peak_bytes, unmeasured })
        }
        Request::OpenPeer { id, backend, model, inputs, outputs } => {
            let inputs: Result<Vec<_>, String> =
                inputs.into_iter().map(|(name, wire)| Ok((name, wire.tensor()?))).collect();
            let inputs = inputs?;
            let start = Instant::now();
            let mut peer = match peers.iter().find(|p| p.name() == backend) {
                Some(peer) => peer.open(&model, pool.threads(), &inputs, &outputs)?,
                None => {
                    let backend = registry.get(&backend).map_err(|e| e.to_string())?;
                    backend.open_peer(&model, pool.threads(), &inputs, &outputs)?
                }
            };
            let load_ns = start.elapsed().as_nanos() as u64;
            let start = Instant::now();
            peer.run(&inputs)?;
            let first_run_ns = start.elapsed().as_nanos() as u64;
            let peak_bytes = match peer.peak_bytes() {
                0 => peak_resident_bytes(),
                elsewhere => elsewhere,
            };
            held.insert(id, Held::Peer { peer, inputs });
            Ok(Answer::Opened { load_ns, first_run_ns, peak_bytes, unmeasured: None })
        }
        Request::Results { id } => match held.get_mut(&id).ok_or_else(missing)? {
            Held::Trial(trial) => {
                let tensors = trial.results().map_err(|e| e.why)?;
                Ok(Answer::Tensors(tensors.iter().map(Wire::from).collect()))
            }
            Held::Program { session, inputs, .. } => {
                let tensors = session.run(inputs).map_err(|e| e.to_string())?;
                let ports = session.program().plan().outputs.iter().map(|p| p.name.clone());
                Ok(Answer::Named(ports.zip(tensors.iter().map(Wire::from)).collect()))
            }
            Held::Dynamic { session, inputs } => {
                let named = session.run(inputs).map_err(|e| e.to_string())?;
                let one = |output| {
                    let (name, tensor) =
                        target::tensor_output(output).map_err(|e| e.to_string())?;
                    Ok((name, Wire::from(&tensor)))
                };
                Ok(Answer::Named(named.into_iter().map(one).collect::<Result<_, String>>()?))
            }
            Held::Peer { peer, inputs } => {
                let named = peer.run(inputs)?;
                Ok(Answer::Named(named.iter().map(|(n, t)| (n.clone(), Wire::from(t))).collect()))
            }
        },
        Request::Sample { id, iterations } => match held.get_mut(&id).ok_or_else(missing)? {
            Held::Trial(trial) => {
                let time = trial.sample(iterations).map_err(|e| e.0)?;
                Ok(Answer::Time { ns: time.as_nanos() as u64 })
            }
            open @ (Held::Program { .. } | Held::Dynamic { .. }) => {
                let start = Instant::now();
                for _ in 0..iterations {
                    open.run_artefact()?;
                }
                Ok(Answer::Time { ns: start.elapsed().as_nanos() as u64 })
            }
            Held::Peer { peer, inputs } => {
                let time = peer.sample(inputs, iterations)?;
                Ok(Answer::Time { ns: time.as_nanos() as u64 })
            }
        },
        Request::Close { id } => {
            held.remove(&id);
            Ok(Answer::Closed)
        }
    }
}

/// The largest resident size that this process has had, in bytes; 0 where the system does not tell.
pub fn peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kb| kb * 1024)
}

/// How to start a worker: the program and its first arguments; threads are added.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the number of threads.
    pub arguments: Vec<String>,
}

/// A running worker process.
struct Process {
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
    fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            // Processes that have ended need no signal.
            let _ = rustix::process::kill_process_group(id, signal);
        }
    }
}

/// A worker that is started when it is first needed, and again after a crash.
pub struct Worker {
    command: WorkerCommand,
    threads: usize,
    process: Option<Process>,
    /// How many processes were started; what is open in an earlier one is gone.
    generation: u64,
    next_id: u64,
}

impl Worker {
    /// A worker for `threads` threads.
    pub fn new(command: WorkerCommand, threads: usize) -> Worker {
        Worker { command, threads, process: None, generation: 0, next_id: 0 }
    }

    fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let mut child = Command::new(&self.command.program)
            .args(&self.command.arguments)
            .arg(self.threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // With what it starts, so that both are stopped and go on together.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start `{}`: {e}", self.command.program.display()))?;
        temporary::add_group(child.id());
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("it has no standard input or output".to_owned());
        };
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(stdout);
            loop {
                let answer = receive(&mut from);
                let ended = answer.is_err();
                if sender.send(answer).is_err() || ended {
                    return;
                }
            }
        });
        self.process = Some(Process { child, to: BufWriter::new(stdin), answers });
        self.generation += 1;
        Ok(())
    }

    fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, String> {
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
                Err(format!("the process that ran it {how}"))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.process = None;
                Err(format!("it did not answer within {} s and was stopped", limit.as_secs()))
            }
        }
    }
}

/// Longest time for compiling, and for one checked run.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Longest time for a process to end once its output has.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Opens trials of native kernels here and those of foreign backends in a worker.
pub struct Benches<'a> {
    registry: &'a Registry,
    pool: Arc<dyn Pool + Send + Sync>,
    worker: Option<Rc<RefCell<Worker>>>,
    /// Where weights of trials are written for the worker.
    scratch: PathBuf,
    /// When to stop waiting for a worker.
    deadline: Option<Instant>,
}

impl<'a> Benches<'a> {
    /// With no worker, foreign kernels run in this process.
    pub fn new(
        registry: &'a Registry,
        pool: Arc<dyn Pool + Send + Sync>,
        worker: Option<Rc<RefCell<Worker>>>,
        scratch: PathBuf,
    ) -> Benches<'a> {
        Benches { registry, pool, worker, scratch, deadline: None }
    }

    /// A worker that compiles or runs for the first time is not waited for beyond `deadline`.
    pub fn until(self, deadline: Option<Instant>) -> Benches<'a> {
        Benches { deadline, ..self }
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
            Some(worker) if foreign => {
                let mut remote = RemoteTrial::new(worker.clone(), trial, &self.scratch)?;
                remote.deadline = self.deadline;
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

/// A worker gets this long whatever the deadline.
const LEAST_LIMIT: Duration = Duration::from_secs(1);

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
        let weights = scratch.join(format!("trial-{}-{id}.bin", std::process::id()));
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
            worker.call(&self.request, self.limit(OPEN_LIMIT))?;
            self.generation = worker.generation;
        }
        Ok(())
    }

    fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, String> {
        self.open()?;
        self.worker.borrow_mut().call(request, limit)
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
        match self.call(&Request::Sample { id: self.id, iterations }, RUN_LIMIT) {
            Ok(Answer::Time { ns }) => Ok(Duration::from_nanos(ns)),
            Ok(_) => Err(SampleError("the worker answered something else".to_owned())),
            Err(why) => Err(SampleError(why)),
        }
    }
}

impl OpenTrial for RemoteTrial {
    fn results(&mut self) -> Result<Vec<Tensor>, TrialError> {
        let limit = self.limit(RUN_LIMIT);
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

/// A whole model that is open for running, here or in another process.
pub trait OpenPlan: Sample {
    /// Runs once and returns the outputs by name.
    fn outputs(&mut self) -> Result<Vec<(String, Tensor)>, Error>;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(script: &str) -> Worker {
        let (program, arguments) = (PathBuf::from("sh"), vec!["-c".into(), script.into()]);
        Worker::new(WorkerCommand { program, arguments }, 1)
    }

    #[test]
    fn a_worker_that_closes_its_output_and_lives_on_is_not_waited_for() {
        let start = Instant::now();
        let why = worker("exec 1>&-; sleep 300").call(&Request::Close { id: 1 }, RUN_LIMIT);
        assert!(why.err().is_some_and(|why| why.contains("closed its output")));
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }

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

    #[test]
    fn a_worker_that_ends_says_how() {
        let why = worker("exit 7").call(&Request::Close { id: 1 }, RUN_LIMIT);
        assert_eq!(why.err().as_deref(), Some("the process that ran it ended (exit status: 7)"));
    }
}
