//! The tests as they lie in a folder: models, data and tolerances.

use super::compare::Limits;
use bricolage_ir::{Graph, named_inputs, verify};
use bricolage_onnx::{ImportError, Stored, load, read_datum};
use bricolage_tensor::{Datum, Storage};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

/// A sort of test, in a folder of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Name of the folder.
    pub(super) folder: &'static str,
    /// Its tests in words.
    pub(super) words: &'static str,
}

/// The folder of models that others drew.
const GENERATED: &str = "generated";

/// The longest tests first.
pub(super) const KINDS: [Kind; 4] = [
    Kind { folder: GENERATED, words: "generated models" },
    Kind { folder: "light", words: "light models" },
    Kind { folder: "simple", words: "simple tests" },
    Kind { folder: "node", words: "node tests" },
];

/// Files of one test: the model as it is, with all operands but the first constant, with constant inputs.
pub(super) const VARIANTS: [&str; 3] = ["model.onnx", "constants.onnx", "all_constants.onnx"];

/// One test.
pub(super) struct Test {
    pub(super) kind: Kind,
    pub(super) name: String,
    folder: PathBuf,
}

/// Inputs and what must come out.
pub(super) struct Set {
    inputs: Vec<Datum>,
    pub(super) outputs: Vec<Datum>,
}

/// The graph of one variant.
pub(super) enum Loaded {
    Graph(Box<Graph>),
    /// This program is lacking.
    Unsupported(String),
    /// It should be read and is not.
    Failed(String),
}

/// All tests in `folder` whose names contain `only`.
pub(super) fn tests(folder: &Path, only: &str) -> Result<Vec<Test>, String> {
    let fault = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut all = Vec::new();
    for kind in KINDS.into_iter().filter(|k| folder.join(k.folder).is_dir()) {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder.join(kind.folder)).map_err(fault)? {
            names.push(entry.map_err(fault)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        let tests = names.into_iter().map(|name| {
            let folder = folder.join(kind.folder).join(&name);
            Test { kind, name, folder }
        });
        all.extend(tests.filter(|t| t.label().contains(only)));
    }
    match all.is_empty() {
        true => Err(format!("{}: no test has `{only}` in its name", folder.display())),
        false => Ok(all),
    }
}

impl Test {
    /// Its kind and name.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.kind.folder, self.name)
    }

    /// The file of the model as it is.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(VARIANTS[0])
    }

    /// Whether others drew the model.
    pub(super) fn is_drawn(&self) -> bool {
        self.kind.folder == GENERATED
    }

    /// Whether its results are drawn: types and shapes are told, and each element that is not 0 by chance.
    pub(super) fn is_random(&self) -> bool {
        let drops =
            self.name.starts_with("test_training_dropout") && !self.name.contains("zero_ratio");
        drops || self.name.starts_with("test_bernoulli")
    }

    /// The variant, if the test has it.
    pub(super) fn load(&self, variant: &str) -> Option<Loaded> {
        let path = self.folder.join(variant);
        if !path.is_file() {
            return None;
        }
        let model = match load(&path) {
            Ok(model) => model,
            Err(e) if e.is_unsupported() || matches!(e, ImportError::Input { .. }) => {
                return Some(Loaded::Unsupported(format!("{e}: {}", e.notes().join("; "))));
            }
            Err(e) => return Some(Loaded::Failed(e.to_string())),
        };
        // Exporters declare sizes that are not those of the results; the tests of ONNX do not.
        if !model.warnings.is_empty() && !self.is_drawn() {
            return Some(Loaded::Failed(model.warnings.join("; ")));
        }
        if let Some(fault) = verify(&model.graph).first() {
            return Some(Loaded::Failed(format!("the graph is unsound: {fault}")));
        }
        Some(Loaded::Graph(Box::new(model.graph)))
    }

    /// Its data, set by set.
    pub(super) fn sets(&self) -> Result<Vec<Set>, String> {
        let mut all = Vec::new();
        loop {
            let folder = self.folder.join(format!("test_data_set_{}", all.len()));
            if !folder.is_dir() {
                break;
            }
            all.push(Set { inputs: data(&folder, "input")?, outputs: data(&folder, "output")? });
        }
        if all.is_empty() { Err("it has no data".to_owned()) } else { Ok(all) }
    }

    /// How far an output may be off.
    pub(super) fn limits(&self) -> Result<Limits, String> {
        let path = self.folder.join("tolerance.txt");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let numbers = text.split_once(' ').and_then(|(relative, absolute)| {
            Some(Limits { relative: relative.parse().ok()?, absolute: absolute.parse().ok()? })
        });
        numbers.ok_or_else(|| format!("{}: no numbers", path.display()))
    }
}

impl Set {
    /// The inputs of a graph, in its order.
    pub(super) fn inputs(&self, graph: &Graph) -> Result<Vec<Datum>, String> {
        let names = graph.inputs.iter().map(|&v| graph.value(v).name.to_string());
        let data: HashMap<String, Datum> = names.zip(self.inputs.iter().cloned()).collect();
        named_inputs(graph, data).map_err(|e| e.to_string())
    }
}

/// The data of a set; the kind of each value stands in the name of its file, a tensor's in none.
fn data(folder: &Path, prefix: &str) -> Result<Vec<Datum>, String> {
    let mut all = Vec::new();
    let kinds = [("", Stored::Tensor), (".seq", Stored::Sequence), (".opt", Stored::Optional)];
    loop {
        let found = kinds.iter().find_map(|(mark, kind)| {
            let path = folder.join(format!("{prefix}_{}{mark}.pb", all.len()));
            Some((fs::read(path).ok()?, *kind))
        });
        let Some((bytes, kind)) = found else { return Ok(all) };
        all.push(read_datum(Storage::copy_of(&bytes), kind).map_err(|e| e.to_string())?);
    }
}
