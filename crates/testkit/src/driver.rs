//! Feeds a fuzz target without a fuzzer: known inputs, then damaged ones, decided by a seed and counted, so
//! that every execution can be repeated.

use crate::{
    damage::Damage,
    serve_if_asked,
    watch::{Limits, Misdeed, note_panics, watch},
};
use bricolage_tensor::Rng;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// What is run on bytes.
pub struct Target {
    /// Name of its file and of its corpus.
    pub name: &'static str,
    /// Whether the bytes were understood; it panics when something is wrong.
    pub run: fn(&[u8]) -> bool,
    /// Inputs to start from besides those of the corpus.
    pub known: fn() -> Vec<Vec<u8>>,
    /// A new input.
    pub fresh: fn(&mut Rng) -> Vec<u8>,
    /// How inputs are changed.
    pub damage: Damage,
    /// Writes below a folder what shows a finding better than its bytes do, and says so in a sentence.
    pub explain: fn(&[u8], &Path) -> Option<String>,
    /// What is to be said at the end, in lines: what was given up that is no finding.
    pub notes: fn() -> Vec<String>,
}

/// What a target without known inputs has.
pub fn nothing_known() -> Vec<Vec<u8>> {
    Vec::new()
}

/// What a target says whose bytes are all that there is to say.
pub fn nothing_more(_: &[u8], _: &Path) -> Option<String> {
    None
}

/// What a target notes that gives nothing up.
pub fn nothing_noted() -> Vec<String> {
    Vec::new()
}

/// Bytes on which a target did wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it did.
    pub misdeed: Misdeed,
    /// Which execution it was.
    pub execution: u64,
    /// The smallest bytes that were found to do the same.
    pub bytes: Vec<u8>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "execution {}, {} bytes: {}", self.execution, self.bytes.len(), self.misdeed)
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Decides the inputs.
    pub seed: u64,
    /// The first execution; known inputs come first.
    pub start: u64,
    /// Executions, at most.
    pub executions: u64,
    /// Time, at most.
    pub time: Option<Duration>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Executions.
    pub executions: u64,
    /// Inputs that were understood.
    pub understood: u64,
    /// Different misdeeds, the first of each kind.
    pub findings: Vec<Finding>,
    /// Executions that did wrong in a way that was found before.
    pub repeated: u64,
}

/// Tries to make a finding smaller, at most.
const MOST_CUTS: u32 = 3000;
/// The same in time.
const CUTTING: Duration = Duration::from_secs(20);

/// The folder with fuzz targets.
fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

impl Target {
    /// The corpus, then what is known otherwise.
    fn inputs(&self) -> Vec<Vec<u8>> {
        let folder = home().join("corpus").join(self.name);
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort();
        let mut all: Vec<Vec<u8>> = paths.iter().filter_map(|p| fs::read(p).ok()).collect();
        all.extend((self.known)());
        all
    }

    /// The input of an execution.
    fn input(&self, execution: u64, known: &[Vec<u8>], seed: u64) -> Vec<u8> {
        if let Some(input) = known.get(execution as usize) {
            return input.clone();
        }
        let mut rng = Rng::new(Rng::new(seed).next_u64() ^ execution);
        let pick = |rng: &mut Rng| match rng.below(1 + known.len().min(3)) {
            0 => (self.fresh)(rng),
            _ => known[rng.below(known.len())].clone(),
        };
        let (mut bytes, other) = (pick(&mut rng), pick(&mut rng));
        // Mostly little damage: much is seen at once.
        let times = [0, 1, 1, 1, 2, 2, 3, 4, 8][rng.below(9)];
        for _ in 0..times {
            bytes = (self.damage)(bytes, &other, &mut rng);
        }
        bytes
    }

    fn execute(&self, bytes: &[u8]) -> Result<bool, Misdeed> {
        let (run, bytes) = (self.run, bytes.to_vec());
        watch(Limits::USUAL, move || run(&bytes))
    }

    /// Fewer bytes that do the same wrong.
    fn smaller(&self, finding: Finding) -> Finding {
        let (mut cuts, until) = (0, Instant::now() + CUTTING);
        let mut best = finding;
        // What takes too long still runs, and would run many times.
        if best.misdeed.runs_on {
            return best;
        }
        let mut len = best.bytes.len().div_ceil(2);
        while len > 0 {
            let (mut at, before) = (0, best.bytes.len());
            while at < best.bytes.len() {
                if cuts == MOST_CUTS || Instant::now() >= until {
                    return best;
                }
                cuts += 1;
                let mut bytes = best.bytes.clone();
                bytes.drain(at..(at + len).min(bytes.len()));
                match self.execute(&bytes) {
                    Err(misdeed) if misdeed.kind == best.misdeed.kind => {
                        best = Finding { misdeed, bytes, ..best };
                    }
                    _ => at += len,
                }
            }
            if best.bytes.len() == before || len > 1 {
                len /= 2;
            }
        }
        best
    }

    /// Runs the target; `before` sees every input first, and `found` every finding.
    fn run_on(&self, amount: Amount, before: &dyn Fn(&[u8]), found: &dyn Fn(&Finding)) -> Tally {
        let known = self.inputs();
        let until = amount.time.map(|t| Instant::now() + t);
        let mut tally = Tally::default();
        for execution in (amount.start..).take(amount.executions as usize) {
            if until.is_some_and(|u| Instant::now() >= u) {
                break;
            }
            let bytes = self.input(execution, &known, amount.seed);
            before(&bytes);
            tally.executions += 1;
            match self.execute(&bytes) {
                Ok(understood) => tally.understood += u64::from(understood),
                Err(misdeed) if tally.findings.iter().any(|f| f.misdeed.kind == misdeed.kind) => {
                    tally.repeated += 1;
                }
                Err(misdeed) => {
                    let runs_on = misdeed.runs_on;
                    let finding = self.smaller(Finding { misdeed, execution, bytes });
                    found(&finding);
                    tally.findings.push(finding);
                    if runs_on {
                        break;
                    }
                }
            }
        }
        tally
    }

    /// A fixed number of executions, the known inputs among them, as a test: nothing may be found, and
    /// `least` inputs must be understood.
    ///
    /// # Panics
    ///
    /// When that is not so.
    pub fn smoke(&self, executions: u64, least: u64) {
        let known = self.inputs().len() as u64;
        let amount = Amount { seed: 1, start: 0, executions: known + executions, time: None };
        let tally = self.run_on(amount, &|_| {}, &|_| {});
        let findings: Vec<String> = tally.findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}: {}", self.name, findings.join("\n"));
        assert!(tally.understood >= least, "{} inputs were understood", tally.understood);
        assert!(tally.executions == known + executions);
    }

    /// The program of a target: reads the arguments, runs, says what was found and where it lies.
    #[allow(clippy::print_stdout, clippy::print_stderr)] // a front end prints
    pub fn main(&self) -> ExitCode {
        if let Some(code) = serve_if_asked() {
            return code;
        }
        let Some((amount, files)) = arguments(std::env::args().skip(1)) else {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        };
        let folder = home().join("../target/fuzz").join(self.name);
        let running = folder.join(format!("running-{}", std::process::id()));
        if let Err(e) = fs::create_dir_all(&folder) {
            eprintln!("{}: {e}", folder.display());
            return ExitCode::from(2);
        }
        note_panics();
        let died = take_the_dead(&folder);
        for path in &died {
            println!("{}: a process died on {}", self.name, path.display());
        }
        let write = |bytes: &[u8]| {
            if let Err(e) = fs::write(&running, bytes) {
                eprintln!("{}: {e}", running.display());
            }
        };
        let say = |finding: &Finding| {
            println!("{}: {finding}", self.name);
            let path = folder.join(format!("{}-{}", amount.seed, finding.execution));
            match fs::write(&path, &finding.bytes) {
                Ok(()) => println!(
                    "  cargo xtask fuzz --target {} target/fuzz/{}/{}-{}",
                    self.name, self.name, amount.seed, finding.execution
                ),
                Err(e) => println!("  cannot write {}: {e}", path.display()),
            }
            if !finding.misdeed.runs_on
                && let Some(more) = (self.explain)(&finding.bytes, &path.with_extension("folder"))
            {
                println!("  {more}");
            }
        };
        let mut tally = Tally::default();
        for path in &files {
            match fs::read(path) {
                Err(e) => {
                    eprintln!("{}: {e}", path.display());
                    return ExitCode::from(2);
                }
                Ok(bytes) => {
                    tally.executions += 1;
                    write(&bytes);
                    match self.execute(&bytes) {
                        Ok(understood) => tally.understood += u64::from(understood),
                        Err(misdeed) => {
                            println!("{}: {}: {misdeed}", self.name, path.display());
                            tally.findings.push(Finding { misdeed, execution: 0, bytes });
                        }
                    }
                }
            }
        }
        if files.is_empty() {
            tally = self.run_on(amount, &write, &say);
        }
        let _ = fs::remove_file(&running);
        for note in (self.notes)() {
            println!("{}: {note}", self.name);
        }
        println!(
            "{}: {} executions, {} understood, {} findings, {} more alike",
            self.name,
            tally.executions,
            tally.understood,
            tally.findings.len() + died.len(),
            tally.repeated
        );
        match tally.findings.is_empty() && died.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// Inputs of processes that are no more, under names that stay.
fn take_the_dead(folder: &Path) -> Vec<PathBuf> {
    let taken = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let process = path.file_name()?.to_str()?.strip_prefix("running-")?.to_owned();
        if Path::new("/proc").join(&process).exists() {
            return None;
        }
        let to = folder.join(format!("died-{process}"));
        fs::rename(&path, &to).ok().map(|()| to)
    };
    fs::read_dir(folder).into_iter().flatten().filter_map(taken).collect()
}

const USAGE: &str = "\
--seconds T      stop after so long
--executions N   stop after so many (1000; with --seconds as many as there is time for)
--seed S         decides the inputs (0)
--start I        the first execution (0)
FILE..           these inputs alone";

fn arguments(mut words: impl Iterator<Item = String>) -> Option<(Amount, Vec<PathBuf>)> {
    let mut amount = Amount { seed: 0, start: 0, executions: 1000, time: None };
    let (mut executions, mut files) = (None, Vec::new());
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--seconds" => amount.time = Some(Duration::from_secs(number()?)),
            "--executions" => executions = Some(number()?),
            "--seed" => amount.seed = number()?,
            "--start" => amount.start = number()?,
            option if option.starts_with("--") => return None,
            file => files.push(PathBuf::from(file)),
        }
    }
    let usual = if amount.time.is_some() { u64::MAX } else { amount.executions };
    amount.executions = executions.unwrap_or(usual);
    Some((amount, files))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage;

    const PLANTED: Target = Target {
        name: "planted",
        run: |bytes| {
            assert!(!bytes.windows(2).any(|w| w == b"ab"), "a and b");
            bytes.len() > 3
        },
        known: nothing_known,
        fresh: |rng| (0..40).map(|_| b'a' + rng.below(9) as u8).collect(),
        damage: damage::bytes,
        explain: nothing_more,
        notes: nothing_noted,
    };

    #[test]
    fn a_planted_fault_is_found_made_small_and_repeated() {
        let amount = Amount { seed: 3, start: 0, executions: 300, time: None };
        let tally = PLANTED.run_on(amount, &|_| {}, &|_| {});
        let [finding] = &tally.findings[..] else { panic!("{} findings", tally.findings.len()) };
        assert_eq!(finding.bytes, b"ab");
        assert!(finding.misdeed.what.ends_with("a and b"));
        assert!(tally.repeated > 10 && tally.understood > 10);
        let again = Amount { start: finding.execution, executions: 1, ..amount };
        assert_eq!(PLANTED.run_on(again, &|_| {}, &|_| {}).findings.len(), 1);
    }

    #[test]
    fn arguments_are_understood() {
        let words = |text: &str| arguments(text.split_whitespace().map(str::to_owned));
        let (amount, files) = words("--seconds 3 --seed 4 a b").unwrap();
        assert_eq!((amount.seed, amount.executions, files.len()), (4, u64::MAX, 2));
        assert!(words("--other").is_none() && words("--seed x").is_none());
    }
}
