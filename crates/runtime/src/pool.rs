//! The thread pool: fork and join in about a microsecond while its threads are awake.
//!
//! A job is opened by one atomic store; workers that see it in time enlist, and those that sleep
//! or were preempted are not waited for: the caller takes their share. Workers spin for a bounded
//! time after a job and then sleep.

use crate::{
    Pool, available_threads,
    threads::{affinity_mask, pin_to},
};
use std::{
    any::Any,
    cell::{Cell, UnsafeCell},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How a [`ThreadPool`] is made.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Threads, the caller included; at least 1.
    pub threads: usize,
    /// How long a worker spins for the next job before it sleeps.
    pub spin: Duration,
    /// Bind the thread that makes the pool, and each worker, to processors of their own from the
    /// affinity mask, as far as there are enough.
    pub pin: bool,
}

impl Default for PoolOptions {
    /// As many threads as [`available_threads`] says, 200 microseconds of spinning, no binding.
    fn default() -> PoolOptions {
        PoolOptions {
            threads: available_threads().threads,
            spin: Duration::from_micros(200),
            pin: false,
        }
    }
}

/// Threads that split one piece of work among them; see [`Pool`].
///
/// Several threads may call at once: one of them has the workers, the others meanwhile run their
/// tasks on their own thread as thread 0. A call from inside a task runs serially. When a task
/// panics no further tasks are handed out, and the panic goes on in the caller after the join.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// Keeps a value on cache lines of its own.
#[repr(align(128))]
struct Lines<T>(T);

type Body = dyn Fn(usize, usize) + Sync;

struct Shared {
    /// Generation of the job in the upper half, [`OPEN`], and the number of enlisted workers.
    state: Lines<AtomicU64>,
    /// Of each thread: first and end of its own tasks that are left, packed by [`range`].
    ranges: Vec<Lines<AtomicU64>>,
    job: Lines<UnsafeCell<Option<*const Body>>>,
    /// Whether a caller has the workers.
    taken: AtomicBool,
    stop: AtomicBool,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    spin: Duration,
}

// SAFETY: `job` is written only by the caller that has `taken` while no worker is enlisted, and read
// by workers only after they enlisted in an open job, which orders the write before the read.
unsafe impl Sync for Shared {}
// SAFETY: the job pointer is followed only between opening and join, while the caller's body lives.
unsafe impl Send for Shared {}

const OPEN: u64 = 1 << 31;
const COUNT: u64 = OPEN - 1;
/// Spins between two looks at the clock; about a microsecond.
const SPINS_PER_LOOK: u32 = 32;

thread_local! {
    /// The pool whose task this thread runs, and the thread's number there.
    static INSIDE: Cell<Option<(*const Shared, usize)>> = const { Cell::new(None) };
}

impl ThreadPool {
    /// Starts the workers.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(options: &PoolOptions) -> std::io::Result<ThreadPool> {
        let shared = Arc::new(Shared {
            state: Lines(AtomicU64::new(0)),
            ranges: (0..options.threads.max(1)).map(|_| Lines(AtomicU64::new(0))).collect(),
            job: Lines(UnsafeCell::new(None)),
            taken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
            panic: Mutex::new(None),
            spin: options.spin,
        });
        let mask = if options.pin { affinity_mask() } else { Vec::new() };
        let place = |thread: usize| (!mask.is_empty()).then(|| mask[thread % mask.len()]);
        let mut pool = ThreadPool { shared, workers: Vec::new() };
        for thread in 1..options.threads {
            let (shared, place) = (pool.shared.clone(), place(thread));
            let builder = std::thread::Builder::new().name(format!("bricolage-{thread}"));
            pool.workers.push(builder.spawn(move || {
                if let Some(processor) = place {
                    pin_to(processor);
                }
                work(&shared, thread);
            })?);
        }
        if let Some(processor) = place(0) {
            pin_to(processor);
        }
        Ok(pool)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.bed));
        self.shared.bell.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of tasks and has no other.
            let _ = worker.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool for ThreadPool {
    fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        let shared = &*self.shared;
        let serially = |thread: usize| (0..tasks).for_each(|task| body(task, thread));
        if let Some((pool, thread)) = INSIDE.get() {
            return serially(if std::ptr::eq(pool, shared) { thread } else { 0 });
        }
        let threads = self.threads();
        let alone = tasks <= 1 || threads == 1 || u32::try_from(tasks).is_err();
        if alone || shared.taken.swap(true, Ordering::Acquire) {
            return serially(0);
        }
        // SAFETY: this caller has `taken` and the last job was joined, so no worker looks at `job`.
        // The lifetime is only erased: the job is closed and joined before `body` is given back.
        unsafe {
            let body =
                std::mem::transmute::<*const (dyn Fn(usize, usize) + Sync), *const Body>(body);
            *shared.job.0.get() = Some(body);
        }
        for (thread, left) in shared.ranges.iter().enumerate() {
            let (first, end) = (thread * tasks / threads, (thread + 1) * tasks / threads);
            left.0.store(range(first as u32, end as u32), Ordering::Relaxed);
        }
        let generation = (shared.state.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        shared.state.0.store(generation << 32 | OPEN, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) != 0 {
            drop(lock(&shared.bed)); // who decided to sleep before the job opened, sleeps by now
            shared.bell.notify_all();
        }
        hand_out(shared, body, 0);
        let mut seen = shared.state.0.fetch_and(!OPEN, Ordering::AcqRel) & COUNT;
        let mut spins = 0u32;
        while seen != 0 {
            spins += 1;
            if spins < 2000 {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            seen = shared.state.0.load(Ordering::Acquire) & COUNT;
        }
        let panic = lock(&shared.panic).take();
        shared.taken.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Tasks `first..end` in one word.
fn range(first: u32, end: u32) -> u64 {
    u64::from(first) << 32 | u64::from(end)
}

/// Takes a task out of a range: its first for the thread it belongs to, its last for others.
fn take(left: &AtomicU64, own: bool) -> Option<usize> {
    let split = |packed: u64| ((packed >> 32) as u32, packed as u32);
    let shorter = |packed| match split(packed) {
        (first, end) if first >= end => None,
        (first, end) if own => Some(range(first + 1, end)),
        (first, end) => Some(range(first, end - 1)),
    };
    let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shorter).ok()?;
    let (first, end) = split(before);
    Some(if own { first } else { end - 1 } as usize)
}

/// Runs the thread's own tasks, then those that others have not come to.
///
/// Equal jobs thus give equal tasks to each thread, whose data are in its own cache already.
fn hand_out(shared: &Shared, body: &(dyn Fn(usize, usize) + Sync), thread: usize) {
    INSIDE.set(Some((shared, thread)));
    let result = catch_unwind(AssertUnwindSafe(|| {
        let threads = shared.ranges.len();
        for at in 0..threads {
            let left = &shared.ranges[(thread + at) % threads].0;
            while let Some(task) = take(left, at == 0) {
                body(task, thread);
            }
        }
    }));
    INSIDE.set(None);
    if let Err(panic) = result {
        shared.ranges.iter().for_each(|left| left.0.store(0, Ordering::Relaxed));
        lock(&shared.panic).get_or_insert(panic);
    }
}

/// A worker's life.
fn work(shared: &Shared, thread: usize) {
    let mut last = 0;
    while let Some(generation) = enlist(shared, last) {
        last = generation;
        // SAFETY: this worker is enlisted in an open job, so the caller wrote `job` before, and
        // keeps the body alive until the count below has gone back.
        let body =
            unsafe { &*(*shared.job.0.get()).expect("a job is written before it is opened") };
        hand_out(shared, body, thread);
        shared.state.0.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for an open job newer than `last` and enlists in it; `None` when the pool stops.
fn enlist(shared: &Shared, last: u64) -> Option<u64> {
    let mut since: Option<Instant> = None;
    let mut spins = 0;
    loop {
        let state = shared.state.0.load(Ordering::Acquire);
        if state & OPEN != 0 && state >> 32 != last {
            let enlisted = shared.state.0.compare_exchange_weak(
                state,
                state + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match enlisted {
                Ok(_) => return Some(state >> 32),
                Err(_) => continue,
            }
        }
        std::hint::spin_loop();
        spins += 1;
        if spins % SPINS_PER_LOOK == 0 {
            if shared.stop.load(Ordering::Relaxed) {
                return None;
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= shared.spin {
                sleep(shared, last);
                since = None;
            }
        }
    }
}

/// Sleeps until a job opens or the pool stops.
fn sleep(shared: &Shared, last: u64) {
    let guard = lock(&shared.bed);
    shared.sleeping.fetch_add(1, Ordering::SeqCst);
    let state = shared.state.0.load(Ordering::SeqCst);
    let open = state & OPEN != 0 && state >> 32 != last;
    if !open && !shared.stop.load(Ordering::SeqCst) {
        drop(shared.bell.wait(guard).unwrap_or_else(PoisonError::into_inner));
    }
    shared.sleeping.fetch_sub(1, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn pool(threads: usize, spin_us: u64) -> ThreadPool {
        let options =
            PoolOptions { threads, spin: Duration::from_micros(spin_us), ..Default::default() };
        ThreadPool::new(&options).unwrap()
    }

    #[test]
    fn every_task_runs_once_and_threads_are_named_right() {
        for (threads, spin) in [(1, 0), (2, 200), (3, 0), (8, 50)] {
            let pool = pool(threads, spin);
            for tasks in [0, 1, 2, 3, 64, 1000] {
                let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
                pool.run(tasks, &|task, thread| {
                    assert!(thread < threads);
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn no_two_tasks_share_a_thread_number_at_a_time() {
        let pool = pool(4, 100);
        let busy: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
        for _ in 0..200 {
            pool.run(16, &|_, thread| {
                assert!(!busy[thread].swap(true, Ordering::AcqRel));
                std::hint::black_box((0..100).sum::<u64>());
                busy[thread].store(false, Ordering::Release);
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = pool(3, 20);
        for round in 0..50 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(32, &|task, _| assert!(task != round % 32, "task {task} fails"));
            }));
            let message = caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(*message, format!("task {} fails", round % 32));
            let sum = AtomicUsize::new(0);
            pool.run(10, &|task, _| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn nested_calls_run_serially_on_the_same_thread() {
        let pool = pool(2, 100);
        let sum = AtomicUsize::new(0);
        pool.run(8, &|_, outer| {
            let id = std::thread::current().id();
            pool.run(5, &|task, inner| {
                assert_eq!((inner, std::thread::current().id()), (outer, id));
                sum.fetch_add(task, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 8 * 10);
    }

    #[test]
    fn several_callers_and_more_threads_than_processors_lose_nothing() {
        let pool = pool(4 * available_threads().threads, 0);
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..1000 {
                        pool.run(round % 7, &|task, _| {
                            sum.fetch_add(task + 1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        let per_caller: usize = (0..1000).map(|r| (1..=r % 7).sum::<usize>()).sum();
        assert_eq!(sum.into_inner(), 3 * per_caller);
    }

    #[test]
    fn sleepers_wake_for_a_job_that_needs_them() {
        let pool = pool(2, 0);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1)); // past the spinning time
            let met = AtomicUsize::new(0);
            pool.run(2, &|_, _| {
                met.fetch_add(1, Ordering::AcqRel);
                let start = Instant::now();
                while met.load(Ordering::Acquire) < 2 && start.elapsed() < Duration::from_secs(20) {
                    std::thread::yield_now();
                }
                assert_eq!(met.load(Ordering::Acquire), 2, "the other thread never came");
            });
        }
    }

    #[test]
    fn binding_keeps_to_the_mask() {
        std::thread::spawn(|| {
            let before = affinity_mask();
            let pool =
                ThreadPool::new(&PoolOptions { threads: 2, pin: true, ..Default::default() });
            let pool = pool.unwrap();
            pool.run(4, &|_, _| assert!(affinity_mask().iter().all(|c| before.contains(c))));
            if cfg!(target_os = "linux") {
                assert_eq!(affinity_mask(), before[..1]);
            }
        })
        .join()
        .unwrap();
    }
}
