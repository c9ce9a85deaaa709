//! Runs a function and sees to it that it neither panics nor takes too long nor too much memory.

use std::{
    cell::RefCell,
    fmt, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    time::{Duration, Instant},
};

/// What one run may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of time, unless the process computed less than that meanwhile: a busy machine is no fault.
    pub patience: Duration,
    /// Bytes of address space that it may add to the most that the process had.
    pub memory: u64,
}

impl Limits {
    /// 5 s and 1 GiB.
    pub const USUAL: Limits = Limits { patience: Duration::from_secs(5), memory: 1 << 30 };
}

/// What makes a deadlock, in runs as long as the patience.
const MOST_WAITS: u32 = 12;

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misdeed {
    /// In words.
    pub what: String,
    /// The same for misdeeds that are alike: their kind, and for panics the place and the first words.
    pub kind: String,
    /// Whether it still runs, which nothing can stop.
    pub runs_on: bool,
}

impl fmt::Display for Misdeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Lets panics be silent, and remembers where they were: misdeeds then say it.
pub fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PLACE.with(|p| p.replace(place));
    }));
}

/// Runs `f` in a thread of its own with a stack of 2 MiB.
pub fn watch<R: Send + 'static>(
    limits: Limits,
    f: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Misdeed> {
    let fault =
        |kind: &str, what: String, runs_on| Misdeed { what, kind: kind.to_owned(), runs_on };
    let before = peak_address_space();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let answer = catch_unwind(AssertUnwindSafe(f));
        let answer = answer.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            (text.unwrap_or_else(|| "without words".to_owned()), PLACE.with(|p| p.take()))
        });
        let _ = tell.send(answer);
    });
    if let Err(e) = thread {
        return Err(fault("thread", format!("cannot start a thread: {e}"), false));
    }
    let (started, computed) = (Instant::now(), process_time());
    let answer = loop {
        if let Ok(answer) = told.recv_timeout(limits.patience) {
            break answer;
        }
        let took = process_time().saturating_sub(computed);
        if took >= limits.patience || started.elapsed() >= limits.patience * MOST_WAITS {
            let what = format!("it takes more than {} s", limits.patience.as_secs());
            return Err(fault("time", what, true));
        }
    };
    let result = answer.map_err(|(text, place)| {
        let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
        // Numbers differ.
        let words: String = text.chars().filter(|c| !c.is_ascii_digit()).take(24).collect();
        fault(&format!("panic{at}: {words}"), format!("it panics{at}: {text}"), false)
    })?;
    let grown = peak_address_space().saturating_sub(before);
    if grown > limits.memory {
        return Err(fault("memory", format!("it takes {} MiB", grown >> 20), false));
    }
    Ok(result)
}

/// The most address space that this process has had, in bytes; 0 where the system does not say.
fn peak_address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmPeak:"));
    let kib = line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Processor time of all threads; 0 where the system does not say, so that only the
/// clock counts.
fn process_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before the parenthesis may hold spaces. Times are in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<u64>().ok();
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Duration::from_millis(10 * (user + system)),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misdeeds_are_seen() {
        assert_eq!(watch(Limits::USUAL, || 3), Ok(3));
        let panic = watch(Limits::USUAL, || -> u32 { panic!("so {}", 1) }).unwrap_err();
        assert!(panic.kind.starts_with("panic") && panic.what.ends_with(": so 1"), "{panic}");
        let brief = Limits { patience: Duration::from_millis(50), ..Limits::USUAL };
        let slow = watch(brief, || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(800) {}
        });
        assert!(slow.is_err_and(|m| m.kind == "time" && m.runs_on));
        let little = Limits { memory: 64 << 20, ..Limits::USUAL };
        // More than this process, whose other tests run meanwhile, ever had.
        let more = peak_address_space() as usize + (512 << 20);
        let large =
            watch(little, move || std::hint::black_box(Vec::<u8>::with_capacity(more)).capacity());
        assert!(large.is_err_and(|m| m.kind == "memory"));
    }
}
