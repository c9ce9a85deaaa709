//! Runtimes that run whole models for comparison, each through its Python package in a process of
//! its own, at its own best settings.

use bricolage_backend::{BackendStatus, Peer};
use bricolage_tensor::{DType, Storage, Tensor};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

const SERVE: &str = include_str!("serve.py");

/// How a runtime is found and run.
struct Entry {
    name: &'static str,
    variable: &'static str,
    /// Folder of the package in an environment.
    package: &'static str,
    install: &'static str,
    script: &'static str,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "mnn",
        variable: "BRICOLAGE_MNN",
        package: "MNN",
        install: "MNN numpy",
        script: include_str!("mnn.py"),
    },
    Entry {
        name: "ncnn",
        variable: "BRICOLAGE_NCNN",
        package: "ncnn",
        install: "ncnn numpy && pip install --no-deps pnnx",
        script: include_str!("ncnn.py"),
    },
];

/// A runtime with a Python package.
pub struct PythonPeer {
    entry: &'static Entry,
    /// The environment, or why there is none.
    environment: Result<PathBuf, String>,
}

impl PythonPeer {
    /// Every runtime that is known, present or not. `variable` gives the content of an environment
    /// variable.
    pub fn all(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PythonPeer> {
        let find = |entry: &'static Entry| {
            let environment = match variable(entry.variable) {
                Some(named) if has(&named, entry.package) => Ok(named),
                Some(named) => Err(format!(
                    "{} names `{}`, which is no Python environment with the package `{}`",
                    entry.variable,
                    named.display(),
                    entry.package
                )),
                None => Err(format!("{} names no Python environment", entry.variable)),
            };
            PythonPeer { entry, environment }
        };
        ENTRIES.iter().map(find).collect()
    }

    /// Name used in targets: `MODEL@mnn`.
    pub fn name(&self) -> &str {
        self.entry.name
    }

    /// Presence, and how to get it.
    pub fn status(&self) -> BackendStatus {
        BackendStatus {
            name: self.entry.name.to_owned(),
            version: self.environment.as_ref().ok().map(|e| version(e, self.entry.package)),
            found: match &self.environment {
                Ok(environment) => environment.display().to_string(),
                Err(why) => why.clone(),
            },
            how: format!(
                "run `pip install {}` in a virtual environment and name that in {}",
                self.entry.install, self.entry.variable
            ),
            covers: "whole models, for comparison only".to_owned(),
        }
    }

    /// Opens an ONNX file for these inputs in a new process; `outputs` names the model's outputs.
    ///
    /// # Errors
    /// In a clause, when the runtime is absent or does not take the model.
    pub fn open(
        &self,
        model: &Path,
        threads: usize,
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<Box<dyn Peer>, String> {
        let environment = self.environment.as_ref().map_err(|why| {
            format!("`{}` is not here: {why}; {}", self.entry.name, self.status().how)
        })?;
        let python = environment.join("bin/python");
        let mut command = Command::new(&python);
        for variable in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
            command.env(variable, threads.to_string());
        }
        let mut child = command
            .arg("-c")
            .arg(format!("{SERVE}\n\n{}", self.entry.script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot start `{}`: {e}", python.display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no standard input or output".to_owned());
        };
        let mut process = Process {
            child,
            to: BufWriter::new(to),
            from: BufReader::new(from),
            given: inputs.to_vec(),
            peak: 0,
        };
        let request = Request {
            verb: "open",
            model: model.display().to_string(),
            threads,
            outputs: outputs.to_vec(),
            ..Request::default()
        };
        process.call(request, inputs)?;
        Ok(Box::new(process))
    }
}

/// The folders of packages in a Python environment.
fn packages(environment: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    entries.map(|e| e.path().join("site-packages")).filter(|p| p.is_dir()).collect()
}

fn has(environment: &Path, package: &str) -> bool {
    environment.join("bin/python").exists()
        && packages(environment).iter().any(|p| p.join(package).is_dir())
}

/// The version in the name of the package's folder of metadata.
fn version(environment: &Path, package: &str) -> String {
    let find = |folder: &PathBuf| {
        fs::read_dir(folder).into_iter().flatten().flatten().find_map(|e| {
            let name = e.file_name().to_string_lossy().to_ascii_lowercase();
            let rest = name.strip_prefix(&format!("{}-", package.to_ascii_lowercase()))?;
            rest.strip_suffix(".dist-info").map(str::to_owned)
        })
    };
    packages(environment).iter().find_map(find).unwrap_or_else(|| "unknown".to_owned())
}

#[derive(Default, Serialize)]
struct Request {
    verb: &'static str,
    model: String,
    threads: usize,
    outputs: Vec<String>,
    iterations: u32,
    tensors: Vec<Described>,
}

/// A tensor whose bytes follow the header.
#[derive(Serialize, Deserialize)]
struct Described {
    name: String,
    dtype: String,
    dims: Vec<i64>,
    bytes: usize,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    #[serde(default)]
    ns: u64,
    #[serde(default)]
    peak: u64,
    #[serde(default)]
    tensors: Vec<Described>,
}

/// A process with an open model.
struct Process {
    child: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// The inputs that it has.
    given: Vec<(String, Tensor)>,
    /// Largest resident size in bytes.
    peak: u64,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn call(
        &mut self,
        mut request: Request,
        tensors: &[(String, Tensor)],
    ) -> Result<(Answer, Vec<(String, Tensor)>), String> {
        let described = |(name, t): &(String, Tensor)| Described {
            name: name.clone(),
            dtype: t.dtype().name().to_owned(),
            dims: t.dims().to_vec(),
            bytes: t.bytes().len(),
        };
        request.tensors = tensors.iter().map(described).collect();
        let exchanged = self.exchange(&request, tensors);
        let (answer, parts) = exchanged.map_err(|e| match self.child.try_wait() {
            Ok(Some(status)) => format!("its process ended ({status})"),
            _ => format!("its process cannot be talked to: {e}"),
        })?;
        if let Some(why) = answer.error {
            return Err(why);
        }
        self.peak = self.peak.max(answer.peak);
        let tensor = |(d, bytes): (&Described, Vec<u8>)| {
            let dtype = DType::from_name(&d.dtype)
                .ok_or_else(|| format!("output `{}` has the type `{}`", d.name, d.dtype))?;
            let tensor = Tensor::new(dtype, &d.dims, Storage::copy_of(&bytes));
            Ok((d.name.clone(), tensor.map_err(|e| e.to_string())?))
        };
        let named: Result<Vec<_>, String> = answer.tensors.iter().zip(parts).map(tensor).collect();
        Ok((answer, named?))
    }

    /// Sends a frame and reads the one that answers it.
    fn exchange(
        &mut self,
        request: &Request,
        tensors: &[(String, Tensor)],
    ) -> io::Result<(Answer, Vec<Vec<u8>>)> {
        let text = serde_json::to_vec(request)?;
        self.to.write_all(&(text.len() as u64).to_le_bytes())?;
        self.to.write_all(&text)?;
        for (_, tensor) in tensors {
            self.to.write_all(tensor.bytes())?;
        }
        self.to.flush()?;
        let mut start = [0; 8];
        self.from.read_exact(&mut start)?;
        let text = self.bytes(u64::from_le_bytes(start))?;
        let answer: Answer = serde_json::from_slice(&text)?;
        let lengths: Vec<u64> = answer.tensors.iter().map(|t| t.bytes as u64).collect();
        let parts: io::Result<Vec<Vec<u8>>> =
            lengths.into_iter().map(|len| self.bytes(len)).collect();
        Ok((answer, parts?))
    }

    fn bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if (&mut self.from).take(len).read_to_end(&mut bytes)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

impl Peer for Process {
    fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, String> {
        let request = Request { verb: "run", ..Request::default() };
        let found = if self.given == inputs {
            self.call(request, &[])?
        } else {
            self.given = inputs.to_vec();
            self.call(request, inputs)?
        };
        Ok(found.1)
    }

    fn sample(&mut self, inputs: &[(String, Tensor)], iterations: u32) -> Result<Duration, String> {
        if self.given != inputs {
            self.run(inputs)?;
        }
        let request = Request { verb: "sample", iterations, ..Request::default() };
        Ok(Duration::from_nanos(self.call(request, &[])?.0.ns))
    }

    fn peak_bytes(&self) -> u64 {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_runtime_says_how_to_get_it() {
        let nothing = |_: &str| None;
        for peer in PythonPeer::all(&nothing) {
            let Err(why) = peer.open(Path::new("model.onnx"), 1, &[], &[]) else {
                panic!("`{}` is not here", peer.name())
            };
            assert!(why.contains(peer.entry.variable), "{why}");
            assert!(why.contains(peer.entry.install), "{why}");
        }
    }

    #[test]
    fn a_folder_that_is_no_environment_is_named() {
        let named = |_: &str| Some(PathBuf::from("/nowhere"));
        for peer in PythonPeer::all(&named) {
            assert_eq!(peer.status().version, None);
            assert!(peer.status().found.contains("`/nowhere`"), "{}", peer.status().found);
        }
    }

    /// Only where the variables name environments.
    #[test]
    #[allow(clippy::print_stderr)]
    fn those_that_are_here_run_a_file() {
        use bricolage_ir::{Error, Graph, evaluate, ops::Unary, origin};
        use bricolage_tensor::TensorType;
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let mut graph = Graph::new("case");
        let x = graph.input("x", TensorType::fixed(DType::F32, &[1, 3, 4, 4]));
        let y = graph.add1(Unary::Relu, &[x], origin("y")).unwrap();
        graph.outputs = vec![y];
        let tensor =
            |sign: f64| Tensor::generate(DType::F32, &[1, 3, 4, 4], |i| sign * (i as f64 - 20.0));
        let path = std::env::temp_dir().join(format!("bricolage-py-{}.onnx", std::process::id()));
        fs::write(&path, bricolage_onnx::export(&graph).unwrap()).unwrap();
        for peer in PythonPeer::all(&variable) {
            if let Err(why) = &peer.environment {
                eprintln!("skipped `{}`: {why}", peer.name());
                continue;
            }
            let named = |sign| [("x".to_owned(), tensor(sign))];
            let mut open = peer.open(&path, 1, &named(1.0), &["y".to_owned()]).unwrap();
            for sign in [1.0, -1.0] {
                let exact = evaluate(&graph, &[tensor(sign).into()]).unwrap();
                let found = open.run(&named(sign)).unwrap();
                assert_eq!(found.len(), 1, "{}", peer.name());
                assert_eq!(found[0].0, "y", "{}", peer.name());
                // Signs of zeros are free.
                let error = Error::between(exact[0].as_tensor().unwrap(), &found[0].1);
                assert_eq!(error.max_abs, 0.0, "{}: {error}", peer.name());
            }
            assert!(open.sample(&named(1.0), 2).unwrap() > Duration::ZERO);
            assert!(open.peak_bytes() > 0);
            let missing = Path::new("/nowhere.onnx");
            assert!(peer.open(missing, 1, &named(1.0), &["y".to_owned()]).is_err());
        }
        fs::remove_file(&path).unwrap();
    }
}
