//! Placement against what it must beat: single backends, greedy placement and Collage's published method.
//!
//! Every finished step is a line of JSON in a file; a step whose line is there is not repeated, so that the
//! evaluation can run in pieces. The page is made from the lines alone.

mod details;
mod plans;
mod summary;
#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test may panic
mod tests;

use crate::{
    models::{build, finish, items, last_lines, text, write},
    test,
};
use serde_json::{Value, json};
use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// Where models, artefacts and costs lie, from the root.
const FOLDER: &str = "target/evaluation/placement";
/// Finished steps, and the page about them; without the former all is measured anew.
const RESULTS: &str = "docs/evaluation/placement.jsonl";
const PAGE: &str = "docs/evaluation/placement.md";

/// What the user asks for.
struct Options {
    models: Vec<String>,
    threads: Vec<u64>,
    only_summary: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options =
            Options { models: Vec::new(), threads: vec![1, 2], only_summary: false, program: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("`{word}` needs a value"));
            match *word {
                "--models" => options.models = next()?.split(',').map(str::to_owned).collect(),
                "--threads" => {
                    let number = |t: &str| match t.parse() {
                        Ok(n) if n > 0 => Ok(n),
                        _ => Err(format!("`--threads` needs numbers like 1,2, found `{t}`")),
                    };
                    options.threads = next()?.split(',').map(number).collect::<Result<_, _>>()?;
                }
                "--only-summary" => options.only_summary = true,
                "--program" => options.program = Some(PathBuf::from(next()?)),
                _ => return Err(format!("`bench placement` has no option `{word}`")),
            }
        }
        Ok(options)
    }
}

/// What steps are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    threads: u64,
    batch: u64,
    model: String,
}

impl Case {
    fn of(row: &Value) -> Case {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let model = text(row, "model").to_owned();
        Case { threads: number("threads"), batch: number("batch"), model }
    }

    /// The model, with its batch where that is not 1.
    fn name(&self) -> String {
        match self.batch {
            1 => self.model.clone(),
            batch => format!("{} batch {batch}", self.model),
        }
    }
}

/// Finished steps: lines of a file.
struct Results {
    file: PathBuf,
    rows: Vec<Value>,
}

impl Results {
    fn open(file: PathBuf) -> Result<Results, String> {
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(format!("{}: {e}", file.display())),
        };
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(row) => rows.push(row),
                // A line that was cut short when the program ended is of no step that finished.
                Err(e) if number + 1 == text.lines().count() => {
                    println!("{}:{}: left out: {e}", file.display(), number + 1);
                }
                Err(e) => return Err(format!("{}:{}: {e}", file.display(), number + 1)),
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            let whole: String = rows.iter().map(|row: &Value| format!("{row}\n")).collect();
            write(&file, &whole)?;
        }
        Ok(Results { file, rows })
    }

    /// What a step gave.
    fn get(&self, step: &str, case: &Case) -> Option<&Value> {
        self.rows.iter().find(|row| text(row, "step") == step && Case::of(row) == *case)
    }

    /// What a step gave, taken now where it is not there.
    fn take(
        &mut self,
        step: &str,
        case: &Case,
        make: &mut dyn FnMut() -> Result<Value, String>,
    ) -> Result<Value, String> {
        if let Some(known) = self.get(step, case) {
            return Ok(known.clone());
        }
        // A step that cannot be done is a result too.
        let mut row = make().unwrap_or_else(|why| json!({ "refused": why }));
        row["step"] = Value::from(step);
        row["model"] = Value::from(case.model.as_str());
        row["batch"] = Value::from(case.batch);
        row["threads"] = Value::from(case.threads);
        let fault = |e: std::io::Error| format!("{}: {e}", self.file.display());
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.file).map_err(fault)?;
        file.write_all(format!("{row}\n").as_bytes()).map_err(fault)?;
        let said = match row["refused"].as_str() {
            Some(why) => format!("refused: {why}"),
            None => plans::in_words(&row),
        };
        println!("{}, {} threads, {step}: {said}", case.name(), case.threads);
        self.rows.push(row.clone());
        Ok(row)
    }
}

/// Runs what is missing, and writes the page.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let page_folder = root.join(PAGE).with_file_name("");
    fs::create_dir_all(&page_folder).map_err(|e| format!("{}: {e}", page_folder.display()))?;
    let mut results = Results::open(root.join(RESULTS))?;
    if !options.only_summary {
        let program = match &options.program {
            Some(program) => {
                program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?
            }
            None => build(root)?,
        };
        let named = |v: &&&str| std::env::var_os(**v).is_some();
        let environment = match test::VARIABLES.iter().all(|v| named(&v)) {
            true => None,
            false => {
                test::environment(root)?;
                Some(root.join(test::ENVIRONMENT))
            }
        };
        let bench = Bench { program, environment, folder: folder.clone() };
        let all = bench.zoo()?;
        if let Some(name) = options.models.iter().find(|m| !all.contains(m)) {
            return Err(format!("the zoo has no model `{name}`; it has {}", all.join(", ")));
        }
        let models = if options.models.is_empty() { &all } else { &options.models };
        for case in plans::cases(models, &options.threads) {
            plans::evaluate(&bench, &mut results, &case)?;
            // The page is there whenever the run ends.
            page(root, &results)?;
        }
    }
    page(root, &results)
}

fn page(root: &Path, results: &Results) -> Result<(), String> {
    write(&root.join(PAGE), &summary::page(results))
}

/// The command line, and where it works.
struct Bench {
    program: PathBuf,
    /// Where the foreign libraries are that the user does not name.
    environment: Option<PathBuf>,
    folder: PathBuf,
}

impl Bench {
    /// One command of the command line with the costs in `cache`; what it prints.
    fn bricolage(&self, words: &[&str], cache: &Path) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(words).env("BRICOLAGE_CACHE_DIR", cache);
        if let Some(environment) = &self.environment {
            let unnamed = test::VARIABLES.iter().filter(|v| std::env::var_os(v).is_none());
            unnamed.for_each(|v| {
                command.env(v, environment);
            });
        }
        let output = finish(&mut command, None)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(last_lines(&output.stderr)),
        }
    }

    /// The same, where it prints JSON.
    fn json(&self, words: &[&str], cache: &Path) -> Result<Value, String> {
        let words = [words, &["--format", "json"]].concat();
        let printed = self.bricolage(&words, cache)?;
        serde_json::from_str(&printed).map_err(|e| format!("`{}`: {e}", words[0]))
    }

    /// Names of all models of the zoo.
    fn zoo(&self) -> Result<Vec<String>, String> {
        let list = self.json(&["zoo", "list"], &self.folder)?;
        Ok(items(&list["models"]).map(|m| text(m, "name").to_owned()).collect())
    }

    /// The file of a case's model, written once.
    fn model(&self, case: &Case) -> Result<PathBuf, String> {
        let (name, batch) = (&case.model, case.batch.to_string());
        let file = self.folder.join(format!("{name}-{batch}.onnx"));
        if !file.exists() {
            let partial = self.folder.join(format!("{name}-{batch}.partial.onnx"));
            let path = partial.display().to_string();
            let words = ["zoo", name, "--batch", &batch, "--output", &path, "--overwrite"];
            self.bricolage(&words, &self.folder)?;
            fs::rename(&partial, &file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(file)
    }
}
