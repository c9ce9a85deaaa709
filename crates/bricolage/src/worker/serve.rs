//! The worker's side: what it holds open, and its answers.

use super::{
    graph::compute,
    local::LocalPlan,
    message::{Answer, Request, Wire, receive, send},
    plan::OpenPlan,
};
use crate::{DynamicSession, Opened, artefact, target};
use bricolage_backend::{Peer, Registry};
use bricolage_backends::{InProcess, PythonPeer, Scout};
use bricolage_measure::Sample;
use bricolage_placement::{LocalTrial, OpenTrial, Trial};
use bricolage_runtime::{BufferId, Plan, Pool, PoolOptions, ThreadPool, map_file};
use bricolage_tensor::{Datum, Storage, Tensor};
use std::{
    collections::HashMap,
    fs,
    io::{self, BufReader, BufWriter},
    os::fd::AsFd,
    sync::Arc,
    time::Instant,
};

/// A plan or a trial that a worker holds open.
enum Held {
    Trial(Box<LocalTrial>),
    Program(Box<LocalPlan>),
    Dynamic { session: Box<DynamicSession>, inputs: Vec<Datum> },
    Peer { peer: Box<dyn Peer>, inputs: Vec<(String, Tensor)> },
}

impl Held {
    /// An artefact with its inputs.
    fn of(opened: Opened, inputs: Vec<Tensor>) -> Held {
        match opened {
            Opened::Fixed(session) => Held::Program(Box::new(LocalPlan::new(session, inputs))),
            Opened::Dynamic(session) => {
                Held::Dynamic { session, inputs: inputs.into_iter().map(Datum::from).collect() }
            }
        }
    }

    /// Runs an artefact once; its outputs go nowhere.
    fn run_artefact(&mut self) -> Result<(), String> {
        match self {
            Held::Program(plan) => plan.run(false).map_err(|e| e.to_string()),
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
    take_no_more_than_is_free();
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
        Request::Compute { graph, constants, backends, inputs } => {
            compute(registry, pool.threads(), (graph, constants), &backends, inputs)
        }
        Request::Describe { library } => Ok(Answer::Described(InProcess.describe(&library))),
        Request::PlanRegion { library, subgraph } => {
            Ok(Answer::PlannedRegion(InProcess.plan(&library, &subgraph)))
        }
        Request::Stopped { id } => match held.get_mut(&id).ok_or_else(missing)? {
            Held::Trial(trial) => {
                trial.stopped().map_err(|e| e.why)?;
                Ok(Answer::Done)
            }
            _ => Err("it is no trial".to_owned()),
        },
        Request::Results { id } => match held.get_mut(&id).ok_or_else(missing)? {
            Held::Trial(trial) => {
                let tensors = trial.results().map_err(|e| e.why)?;
                Ok(Answer::Tensors(tensors.iter().map(Wire::from).collect()))
            }
            Held::Program(plan) => {
                let named = plan.outputs().map_err(|e| e.to_string())?;
                Ok(Answer::Named(named.iter().map(|(n, t)| (n.clone(), Wire::from(t))).collect()))
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
            open @ (Held::Program(_) | Held::Dynamic { .. }) => {
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
        Request::Steps { id } => match held.get_mut(&id).ok_or_else(missing)? {
            Held::Program(plan) => {
                let steps = plan.steps().map_err(|e| e.to_string())?;
                Ok(Answer::Steps { ns: steps.iter().map(|d| d.as_nanos() as u64).collect() })
            }
            _ => Err("it is no plan of fixed sizes".to_owned()),
        },
        Request::Close { id } => {
            held.remove(&id);
            Ok(Answer::Closed)
        }
    }
}

/// Share of the memory that is free when a worker starts which it may take for itself.
const SHARE: f64 = 0.9;

/// A foreign library that takes memory without end fails in this process: its own data may not grow beyond a
/// share of what is free, and where the system runs out all the same, it ends this process first.
fn take_no_more_than_is_free() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        // What the system does not allow stays as it was: these are guards against faults.
        let _ = fs::write("/proc/self/oom_score_adj", "1000");
        let free = bricolage_measure::free_memory();
        let limit = Rlimit {
            current: Some((SHARE * free as f64) as u64),
            maximum: getrlimit(Resource::Data).maximum,
        };
        if free > 0 {
            let _ = setrlimit(Resource::Data, limit);
        }
    }
}

/// The largest resident size that this process has had, in bytes; 0 where the system does not tell.
fn peak_resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kb| kb * 1024)
}
