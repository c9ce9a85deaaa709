//! The whole test command: makes what it needs and runs everything.

use crate::tidy;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// What the judges need from PyPI.
const PACKAGES: &[&str] =
    &["onnx==1.23.2", "onnxruntime==1.32.0", "numpy==2.4.6", "ml_dtypes==0.6.0"];
/// Wheels that are wanted for their shared libraries; what their Python code needs is not installed.
const LIBRARIES: &[&str] =
    &["openvino==2026.4.1", "onednn-cpu-gomp==2023.2.0", "scipy-openblas32==0.3.34.481.3"];
/// Variables in which backends are named.
pub(crate) const VARIABLES: &[&str] =
    &["BRICOLAGE_ONNXRUNTIME", "BRICOLAGE_OPENVINO", "BRICOLAGE_BLAS", "BRICOLAGE_ONEDNN"];

/// Where they are, from the root.
pub(crate) const ENVIRONMENT: &str = "target/python";

/// Runs every check; `quick` leaves out those that need a Python environment.
pub(crate) fn run(root: &Path, quick: bool) -> Result<(), String> {
    let started = Instant::now();
    tidy::run(root)?;
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let judges = if quick { None } else { Some(Judges::make(root)?) };
    let cargo = |arguments: &[&str]| Step {
        root,
        arguments: arguments.iter().map(OsString::from).collect(),
        judges: judges.as_ref(),
    };
    cargo(&["fmt", "--all", "--check"]).run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]).run()?;
    cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).run()?;
    cargo(&["test", "--workspace", "--release"]).run()?;
    println!("all checks passed in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// What independent judges are made of.
pub(crate) struct Judges {
    /// A Python environment with [`PACKAGES`] and [`LIBRARIES`].
    environment: PathBuf,
    python: PathBuf,
    conformance: PathBuf,
}

impl Judges {
    /// Makes what is missing.
    pub(crate) fn make(root: &Path) -> Result<Judges, String> {
        let python = environment(root)?;
        let conformance = conformance(root, &python)?;
        Ok(Judges { environment: root.join(ENVIRONMENT), python, conformance })
    }

    /// Names them to the tests.
    pub(crate) fn tell(&self, command: &mut Command) {
        command
            .env("BRICOLAGE_TEST_PYTHON", &self.python)
            .env("BRICOLAGE_CONFORMANCE", &self.conformance)
            .envs(VARIABLES.iter().map(|v| (v, &self.environment)));
    }
}

/// One cargo command.
struct Step<'a> {
    root: &'a Path,
    arguments: Vec<OsString>,
    judges: Option<&'a Judges>,
}

impl Step<'_> {
    fn run(&self) -> Result<(), String> {
        let words: Vec<String> =
            self.arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        println!("cargo {}", words.join(" "));
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(&self.arguments).current_dir(self.root).env("RUSTDOCFLAGS", "-D warnings");
        if let Some(judges) = self.judges {
            judges.tell(&mut command);
        }
        let status = command.status().map_err(|e| format!("cannot run cargo: {e}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("cargo {} failed ({status})", words.join(" ")))
        }
    }
}

/// The judges' environment, made when it is missing or of other versions.
pub(crate) fn environment(root: &Path) -> Result<PathBuf, String> {
    python(&root.join(ENVIRONMENT), PACKAGES, LIBRARIES)
}

/// The interpreter of a virtual environment with these packages, and with those that are wanted `alone`, without
/// what they depend on; made when it is missing or of other versions.
pub(crate) fn python(folder: &Path, packages: &[&str], alone: &[&str]) -> Result<PathBuf, String> {
    let python = folder.join("bin/python");
    let stamp = folder.join("packages");
    let wanted = [packages, alone].concat().join("\n");
    if python.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|s| s == wanted) {
        return Ok(python);
    }
    println!("making a Python environment in {}", folder.display());
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder).status();
    match made {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(format!("python3 -m venv failed ({status}); this needs python3 with venv"));
        }
        Err(e) => return Err(format!("this needs python3 with venv: {e}")),
    }
    let all = [(&[][..], packages), (&["--no-deps"][..], alone)];
    for (options, packages) in all.into_iter().filter(|(_, packages)| !packages.is_empty()) {
        let status = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(options)
            .args(packages)
            .status()
            .map_err(|e| format!("cannot run pip: {e}"))?;
        if !status.success() {
            return Err(format!("pip could not install {} ({status})", packages.join(", ")));
        }
    }
    std::fs::write(&stamp, wanted).map_err(|e| e.to_string())?;
    Ok(python)
}

/// The backend tests of the installed `onnx` package, written once for each version of it and of the script.
fn conformance(root: &Path, python: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/conformance");
    let script = root.join("crates/testkit/src/conformance/write_tests.py");
    let text =
        std::fs::read_to_string(&script).map_err(|e| format!("{}: {e}", script.display()))?;
    let stamp = folder.join("written-by");
    let wanted = format!("{}\n{text}", PACKAGES.join("\n"));
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == wanted) {
        return Ok(folder);
    }
    println!("writing the backend tests of ONNX to {}", folder.display());
    let fault = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(fault)?;
    }
    std::fs::create_dir_all(&folder).map_err(fault)?;
    let status = Command::new(python)
        .arg(&script)
        .arg(&folder)
        .status()
        .map_err(|e| format!("cannot run {}: {e}", python.display()))?;
    if !status.success() {
        return Err(format!("the backend tests could not be written ({status})"));
    }
    std::fs::write(&stamp, wanted).map_err(|e| e.to_string())?;
    Ok(folder)
}
