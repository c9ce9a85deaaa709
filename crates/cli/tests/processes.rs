//! Signals, and several processes at once.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_measure::MeasuringLock;
use folder::{Folder, model};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    time::Duration,
};

fn start(f: &Folder, arguments: &[&str]) -> Child {
    f.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

/// Reads standard error up to a line with `words`.
fn until(child: &mut Child, words: &str) -> BufReader<std::process::ChildStderr> {
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended without `{words}`");
    }
    said
}

#[test]
fn a_stopped_verb_says_so_and_leaves_nothing() {
    let f = Folder::new("stopped");
    for (name, delay) in [("-INT", 150), ("-TERM", 400)] {
        let child = start(&f, &["zoo", "vgg16", "-o", "v.onnx"]);
        std::thread::sleep(Duration::from_millis(delay));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(String::from_utf8_lossy(&output.stderr).contains("stopped"));
        assert_eq!(fs::read_dir(&f.0).unwrap().count(), 0);
    }
}

const OPTIMIZE: [&str; 8] = [
    "optimize",
    "small.onnx@native",
    "-o",
    "s.bricolage",
    "--shape",
    "x:2x4",
    "--time-limit",
    "1s",
];
const WAITS: &str = "wait for another measuring process";

#[test]
fn one_process_makes_an_output() {
    let f = Folder::new("outputs-claimed");
    model(&f.0);
    let cache = f.0.join("cache");
    let lock = MeasuringLock::take(&cache).unwrap();
    let mut first = start(&f, &OPTIMIZE);
    let _said = until(&mut first, WAITS);
    f.fails(&OPTIMIZE, 2, &["s.bricolage", "another process is making it"], &["s.bricolage"]);
    // A killed process leaves no claim.
    signal(&first, "-KILL");
    first.wait().unwrap();
    drop(lock);
    let output = f.run(&OPTIMIZE);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_dir(cache.join("outputs")).unwrap().count(), 0);
}

#[test]
fn waiting_for_others_is_said_and_does_not_count() {
    let f = Folder::new("waits");
    model(&f.0);
    let lock = MeasuringLock::take(&f.0.join("cache")).unwrap();
    let mut child = start(&f, &OPTIMIZE);
    let mut said = until(&mut child, WAITS);
    std::thread::sleep(Duration::from_millis(1500));
    drop(lock);
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("for another measuring process, besides the time limit"), "{rest}");
    assert!(!rest.contains("that it was given"), "{rest}");
}

#[test]
fn waiting_can_be_stopped() {
    let f = Folder::new("waits-stopped");
    model(&f.0);
    let _lock = MeasuringLock::take(&f.0.join("cache")).unwrap();
    let mut child = start(&f, &OPTIMIZE);
    let _said = until(&mut child, WAITS);
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!f.0.join("s.bricolage").exists());
}

/// A foreign library that takes memory without end must fail alone.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_may_not_take_all_memory() {
    let f = Folder::new("memory");
    let mut child = f
        .command(&["worker", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
    let is_limited = || {
        let limits = of("limits");
        let data = limits.lines().find(|l| l.starts_with("Max data size")).unwrap();
        !data.contains("Max data size             unlimited")
    };
    while !is_limited() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(of("oom_score_adj").trim(), "1000");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
