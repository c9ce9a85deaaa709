//! Files and commands as users have them, and exactly what the program says: `cases/errors` has one case for
//! each error code, `cases/hostile` files that are made to do harm.
//!
//! A case is a text in parts: `== model NAME` is followed by an ONNX model as text
//! ([`bricolage_testkit::prototext`]), `== hex NAME` by bytes, `== text NAME` by a text, `== npz NAME` by
//! lines such as `x i64[2] 3 4`, `== small NAME` by nothing, for a small right model; then come one or more of `== run ARGUMENTS`, each followed by
//! `== exit CODE` and what is said on standard error. `BLESS=1` writes what the program says, to be read as a
//! diff.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage::codes;
use bricolage_tensor::{DType, Tensor};
use bricolage_testkit::prototext::{self, hex, parts};
use folder::{Folder, model};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// What a refusal may take: seconds of a processor, and memory.
const SECONDS: u64 = 2;
const KIBIBYTES: u64 = 1 << 20;
/// What it may take on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(30);

/// Codes that no file and no command brings about, and where they are tested.
const WITHOUT_CASES: &[(&str, &str)] = &[
    ("backend::worker", "a worker is killed in the tests of processes"),
    ("bench::peer", "takes a foreign runtime, in the tests of foreign runtimes"),
    ("check::rewrite", "takes a wrong rule, in the tests of planted faults"),
    ("goal::interrupted", "takes a signal, in the tests of processes"),
    ("internal::broken-promise", "a bug, by its nature"),
    ("onnx::not-expressible", "what the importer reads can be written"),
    ("place::failed", "a bug, by its nature"),
];

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(folder);
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// Runs a case; gives every error code that it showed, or what went wrong.
fn check(path: &Path) -> Result<BTreeSet<String>, String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let (comment, parts) = parts(&text);
    let f = Folder::new(&format!("case-{name}"));
    let (mut blessed, mut shown) = (comment, BTreeSet::new());
    let mut ran: Option<(i32, String)> = None;
    for (head, body) in &parts {
        let (word, rest) = head.split_once(' ').unwrap_or((head, ""));
        let file = f.0.join(rest);
        if let Some(folder) = file.parent().filter(|_| matches!(word, "text" | "link")) {
            fs::create_dir_all(folder).unwrap();
        }
        let (mut head, mut said) = (head.clone(), body.clone());
        match word {
            "model" => {
                let bytes = prototext::model(body)?;
                fs::write(file, bytes).unwrap();
            }
            "hex" => fs::write(file, hex(body)).unwrap(),
            "text" => fs::write(file, body).unwrap(),
            "npz" => npz(&file, body),
            "small" => {
                model(&f.0);
                fs::rename(f.0.join("small.onnx"), file).unwrap();
            }
            "link" => {
                let (from, to) = rest.split_once(' ').unwrap();
                std::os::unix::fs::symlink(to, f.0.join(from)).unwrap();
            }
            "run" => ran = Some(run(&f, rest)?),
            "exit" => {
                let (code, found) = ran.take().ok_or("`== exit` comes after `== run`")?;
                if std::env::var_os("BLESS").is_some() {
                    (head, said) = (format!("exit {code}"), found.clone());
                } else if rest != code.to_string() || *body != found {
                    return Err(format!("exit {code}\n{found}\nexpected exit {rest}\n{body}"));
                }
                let codes = found.split("error[").skip(1).filter_map(|s| s.split(']').next());
                shown.extend(codes.map(str::to_owned));
            }
            _ => return Err(format!("unknown part `{head}`")),
        }
        blessed.push_str(&format!("== {head}\n{said}"));
    }
    if blessed != text {
        fs::write(path, blessed).unwrap();
    }
    Ok(shown)
}

/// Writes tensors, a line each: name, type and sizes, elements.
fn npz(file: &Path, body: &str) {
    let one = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (dtype, dims) = words[1].trim_end_matches(']').split_once('[').unwrap();
        let dims: Vec<i64> = dims.split(',').map(|d| d.parse().unwrap()).collect();
        let elements: Vec<f64> = words[2..].iter().map(|w| w.parse().unwrap()).collect();
        let dtype = DType::from_name(dtype).unwrap();
        (words[0].to_owned(), Tensor::from_f64(dtype, &dims, &elements))
    };
    let all: Vec<(String, Tensor)> = body.lines().map(one).collect();
    bricolage::npz::write(file, &all).unwrap();
}

/// The text with `MEMORY` for what the machine has, and `ISA` for the instruction set of kernels.
fn without_machine(text: &str) -> String {
    let sets = ["`portable-", "`avx2-", "`avx512-"];
    let text = sets.iter().fold(text.to_owned(), |text, set| text.replace(set, "`ISA-"));
    let line = |line: &str| match line.rsplit_once("found ") {
        Some((before, after)) if after.ends_with(" bytes of memory") => {
            format!("{before}found MEMORY bytes of memory\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The exit code and what is said, within time and memory.
fn run(f: &Folder, arguments: &str) -> Result<(i32, String), String> {
    let own = f.command(&[]);
    let mut command = Command::new("sh");
    let limits = format!("ulimit -t {SECONDS}; ulimit -v {KIBIBYTES}; exec \"$0\" \"$@\"");
    command.args(["-c", &limits]);
    command.arg(own.get_program()).args(arguments.split(' ')).current_dir(&f.0);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let start = Instant::now();
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).replace(&*f.0.to_string_lossy(), "FOLDER");
    let said = without_machine(&said);
    if start.elapsed() > PATIENCE {
        return Err(format!("`{arguments}` took {:?}", start.elapsed()));
    }
    match output.status.code() {
        Some(code) if !said.contains("panicked") => Ok((code, said)),
        _ => Err(format!("`{arguments}` ended with {}:\n{said}", output.status)),
    }
}

#[test]
fn every_error_says_what_its_case_has() {
    let mut faults = Vec::new();
    let mut covered = BTreeSet::new();
    for path in cases("errors") {
        let name = path.file_stem().unwrap().to_string_lossy().replace('.', "::");
        match check(&path) {
            Ok(shown) if shown.contains(&name) => drop(covered.insert(name)),
            Ok(shown) => faults.push(format!("{name}: shows {shown:?} only")),
            Err(why) => faults.push(format!("{name}: {why}")),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    for code in codes::CODES {
        let without = WITHOUT_CASES.iter().any(|w| w.0 == code.name);
        assert_ne!(covered.contains(code.name), without, "case of `{}`", code.name);
        assert!(code.prose.len() > 60, "{}", code.name);
    }
}

#[test]
fn every_code_is_explained() {
    for source in ["bricolage/src/error.rs", "onnx/src/error.rs"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source);
        let text = fs::read_to_string(path).unwrap();
        let quoted = text.split('"').skip(1).step_by(2);
        let is_code = |s: &&str| {
            s.contains("::") && s.chars().all(|c| c.is_ascii_lowercase() || ":-".contains(c))
        };
        for code in quoted.filter(is_code) {
            assert!(codes::find(code).is_some(), "`{code}` is not explained");
        }
    }
    let f = Folder::new("explain");
    for code in codes::CODES {
        assert!(f.run(&["explain-error", code.name]).status.success());
    }
    f.fails(&["explain-error", "onnx::nonsense"], 2, &["onnx::nonsense"], &[]);
}

#[test]
fn hostile_files_are_refused_in_time() {
    let all = cases("hostile");
    assert!(all.len() >= 60, "{} cases", all.len());
    let mut faults = Vec::new();
    for path in all {
        if let Err(why) = check(&path) {
            faults.push(format!("{}: {why}", path.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
