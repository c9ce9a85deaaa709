//! The artefact: a directory with the plan, its weights, a self-test and a manifest.
//!
//! It is written beside its final place and moved there when it is whole. Loading checks the hash
//! of every file and of the manifest itself, and that the machine is the one that the plan was made for.

use crate::{Error, Goal, InputShape, Temporary, Weights, npz};
use bricolage_backend::{Policy, Registry};
use bricolage_ir::{Graph, Tolerance};
use bricolage_measure::Machine;
use bricolage_placement::{Carried, Method};
use bricolage_runtime::{Plan, in_words, kind_of, map_file, open_file};
use bricolage_tensor::Tensor;
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    panic::resume_unwind,
    path::{Path, PathBuf},
};

pub use crate::loaded::{Loaded, load};

/// Raised when the directory changes in a way that older programs cannot read.
pub const SCHEMA_VERSION: u32 = 4;

pub(crate) const PLAN: &str = "plan";
pub(crate) const WEIGHTS: &str = "weights.bin";
pub(crate) const SELF_TEST: &str = "selftest.npz";
pub(crate) const MODEL: &str = "model.onnx";
const REPORT: &str = "report.json";
const MANIFEST: &str = "manifest.json";

/// How far an output may be from the self-test's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allowed {
    /// Name of the output.
    pub output: String,
    /// Largest absolute error of any element; infinite where rounding alone may make anything of it.
    #[serde(with = "infinite_as_null")]
    pub max_abs: f64,
    /// Largest relative error in the 2-norm; infinite likewise.
    #[serde(with = "infinite_as_null")]
    pub relative_l2: f64,
}

/// JSON has no infinite numbers.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(v: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        v.is_finite().then_some(v).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

impl Allowed {
    /// As a tolerance.
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { max_abs: self.max_abs, relative_l2: self.relative_l2 }
    }
}

/// Sizes that an artefact leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSizes {
    /// Least and largest size, by the names of sizes that inputs tell.
    pub ranges: BTreeMap<String, (i64, i64)>,
    /// The sizes at which it was measured, those that the model itself tells among them.
    pub measured: BTreeMap<String, i64>,
}

/// The plan of one stage at the sizes at which it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StagePlan {
    /// Number of the stage.
    pub(crate) part: u32,
    /// The sizes that decide all others in it.
    pub(crate) class: Vec<i64>,
    pub(crate) plan: Plan,
    /// Where its constants start among those of all stages.
    pub(crate) weights_at: u64,
    /// Its choices, for other sizes.
    pub(crate) carried: Vec<Carried>,
}

impl StagePlan {
    /// The plan of a model of fixed sizes.
    pub fn only(plan: Plan) -> StagePlan {
        StagePlan { part: 0, class: Vec::new(), plan, weights_at: 0, carried: Vec::new() }
    }
}

/// What an artefact says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program that wrote it.
    pub bricolage: String,
    /// Hash of the model's file and its external data.
    pub model: String,
    /// The machine that it was measured on.
    pub machine: Machine,
    /// Hash of what makes kernels fast or slow on that machine.
    pub fingerprint: String,
    /// Threads that the kernels were chosen for.
    pub threads: u32,
    /// Seed of inputs and of orders of measurement.
    pub seed: u64,
    /// What kernels may do to the numbers.
    pub policy: Policy,
    /// How nodes were given to backends.
    #[serde(default)]
    pub placement: Method,
    /// Sizes that are open; absent when all are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<OpenSizes>,
    /// Backends that the plan needs, with their versions.
    pub backends: BTreeMap<String, String>,
    /// Hashes of the other files; that of the manifest is the last field of its text.
    pub files: BTreeMap<String, String>,
    /// How far each output may be from the self-test's.
    pub allowed: Vec<Allowed>,
}

impl Manifest {
    /// Of a plan for `goal` and this machine, of which nothing else is known yet.
    pub(crate) fn new(goal: &Goal, machine: Machine) -> Manifest {
        Manifest {
            schema_version: SCHEMA_VERSION,
            bricolage: env!("CARGO_PKG_VERSION").to_owned(),
            model: String::new(),
            fingerprint: machine.fingerprint(),
            machine,
            threads: goal.threads as u32,
            seed: goal.seed,
            policy: goal.policy,
            placement: goal.placement,
            sizes: None,
            backends: BTreeMap::new(),
            files: BTreeMap::new(),
            allowed: Vec::new(),
        }
    }

    /// What it was optimised towards.
    pub fn goal(&self) -> Goal {
        Goal {
            policy: self.policy,
            placement: self.placement,
            seed: self.seed,
            shapes: self.shapes(),
            ..Goal::new(self.threads as usize)
        }
    }

    /// The ranges of its open sizes.
    pub fn shapes(&self) -> Vec<InputShape> {
        let ranges = self.sizes.iter().flat_map(|s| &s.ranges);
        ranges.map(|(name, &range)| InputShape { name: name.clone(), dims: vec![range] }).collect()
    }
}

/// What goes into an artefact, besides the hashes.
pub struct Contents<'a, R: Serialize> {
    /// Everything but `files`, which is filled in.
    pub manifest: Manifest,
    /// The plan of every stage.
    pub plans: &'a [StagePlan],
    /// Their constants.
    pub weights: &'a Weights,
    /// Inputs, by name.
    pub inputs: &'a [(String, Tensor)],
    /// The outputs that belong to them, by name.
    pub outputs: &'a [(String, Tensor)],
    /// The rewritten graph, which is kept when ONNX can say it.
    pub model: Option<&'a Graph>,
    /// What was tried and why.
    pub report: &'a R,
}

/// Writes an artefact to `folder`, replacing an artefact that is there when `overwrite` is set.
///
/// Nothing is left half-written: on an error the folder is as it was before.
pub fn save<R: Serialize>(
    folder: &Path,
    overwrite: bool,
    contents: Contents<'_, R>,
) -> Result<(), Error> {
    refuse_existing(folder, overwrite)?;
    let partial = Temporary::new(sibling(folder, "partial"));
    write_all(partial.path(), folder, contents)?;
    replace(partial.path(), folder)
}

/// Fails when `folder` could not be written as far as can be told beforehand: an artefact is saved
/// at the end of a search.
pub(crate) fn require_room(folder: &Path, overwrite: bool) -> Result<(), Error> {
    refuse_existing(folder, overwrite)?;
    let partial = Temporary::new(sibling(folder, "partial"));
    fs::create_dir(partial.path()).map_err(Error::file("write", folder))
}

/// Fails when something is at `folder` that may not be replaced: anything without `overwrite`, and
/// anything but an artefact with it.
pub fn refuse_existing(folder: &Path, overwrite: bool) -> Result<(), Error> {
    if fs::symlink_metadata(folder).is_err() {
        let parent =
            folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return match fs::metadata(parent) {
            Ok(m) if m.is_dir() => Ok(()),
            Ok(_) => Err(Error::File {
                action: "write",
                path: folder.to_owned(),
                why: "its parent is no folder".to_owned(),
            }),
            Err(e) => Err(Error::file("write", folder)(e)),
        };
    }
    let why = match (overwrite, foreign(folder)) {
        (true, None) => return Ok(()),
        (false, None) => "it exists; --overwrite replaces it".to_owned(),
        (_, Some(why)) => why,
    };
    Err(Error::File { action: "write", path: folder.to_owned(), why })
}

/// Why what lies at `folder` is not an artefact and nothing else.
fn foreign(folder: &Path) -> Option<String> {
    const OURS: [&str; 6] = [PLAN, WEIGHTS, SELF_TEST, MODEL, REPORT, MANIFEST];
    let whole = fs::symlink_metadata(folder).is_ok_and(|m| m.is_dir());
    if !whole || !folder.join(MANIFEST).is_file() {
        let kind = kind_of(folder).unwrap_or("a file");
        return Some(format!("it is {kind}, and no artefact that could be replaced"));
    }
    let names = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|e| e.file_name()),
        Err(e) => return Some(in_words(e, folder).to_string()),
    };
    let mut others = names.filter(|n| !OURS.iter().any(|o| n.to_str() == Some(*o)));
    others.next().map(|name| format!("it holds `{}`, which is not ours", name.to_string_lossy()))
}

fn sibling(folder: &Path, suffix: &str) -> PathBuf {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    folder.with_file_name(format!(".{name}.{suffix}-{}", std::process::id()))
}

fn replace(partial: &Path, folder: &Path) -> Result<(), Error> {
    if folder.exists() {
        // At once where the file system can: then the old artefact goes with the partial folder.
        if rustix::fs::renameat_with(CWD, partial, CWD, folder, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        let old = sibling(folder, "old");
        fs::rename(folder, &old).map_err(Error::file("replace", folder))?;
        if let Err(e) = fs::rename(partial, folder) {
            // Put back what was there.
            let _ = fs::rename(&old, folder);
            return Err(Error::file("write", folder)(e));
        }
        let _ = fs::remove_dir_all(&old);
        return Ok(());
    }
    fs::rename(partial, folder).map_err(Error::file("write", folder))
}

/// Writes everything to `folder`; errors name the places in `final_folder`, where it shall lie.
fn write_all<R: Serialize>(
    folder: &Path,
    final_folder: &Path,
    contents: Contents<'_, R>,
) -> Result<(), Error> {
    let fault = |name: &str| Error::file("write", &final_folder.join(name));
    fs::create_dir_all(folder).map_err(Error::file("write", final_folder))?;
    let put = |name: &str,
               write: &dyn Fn(&mut dyn Write) -> io::Result<()>|
     -> Result<(String, String), Error> {
        let file = File::create(folder.join(name)).map_err(fault(name))?;
        let mut hashing = Hashing { to: BufWriter::new(file), hash: blake3::Hasher::new() };
        write(&mut hashing).and_then(|()| hashing.flush()).map_err(fault(name))?;
        Ok((name.to_owned(), hashing.hash.finalize().to_hex().to_string()))
    };
    let plan =
        postcard::to_stdvec(contents.plans).map_err(|e| Error::Internal { what: e.to_string() })?;
    let report = serde_json::to_string_pretty(contents.report)
        .map_err(|e| Error::Internal { what: e.to_string() })?;
    let mut manifest = contents.manifest;
    manifest.files.extend([
        put(PLAN, &|to| to.write_all(&plan))?,
        put(REPORT, &|to| to.write_all(report.as_bytes()))?,
    ]);
    // The two large files at the same time.
    let (weights, model) = std::thread::scope(|scope| {
        let model = contents.model.map(|graph| {
            scope.spawn(|| {
                let bytes = bricolage_onnx::export(graph).ok();
                bytes.map(|bytes| put(MODEL, &|to| to.write_all(&bytes))).transpose()
            })
        });
        let weights = put(WEIGHTS, &|to| contents.weights.write_to(to));
        let model = model.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        (weights, model.transpose())
    });
    manifest.files.extend([weights?]);
    manifest.files.extend(model?.flatten());
    let test: Vec<(String, Tensor)> = contents
        .inputs
        .iter()
        .map(|(n, t)| (format!("input/{n}"), t.clone()))
        .chain(contents.outputs.iter().map(|(n, t)| (format!("output/{n}"), t.clone())))
        .collect();
    let test_path = folder.join(SELF_TEST);
    npz::write(&test_path, &test).map_err(|e| match e {
        npz::NpzError::Io { error, .. } => fault(SELF_TEST)(error),
        other => other.into(),
    })?;
    manifest.files.insert(SELF_TEST.to_owned(), hash_file(&test_path)?);
    write_manifest(folder, &manifest, fault(MANIFEST))
}

fn write_manifest(
    folder: &Path,
    manifest: &Manifest,
    fault: impl FnOnce(io::Error) -> Error,
) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(manifest)
        .map_err(|e| Error::Internal { what: e.to_string() })?;
    fs::write(folder.join(MANIFEST), sealed(&text)).map_err(fault)
}

/// Takes the files that lie in an artefact for right: writes the manifest with their hashes, and with its own.
/// For tests of what hashes keep away from everyone else.
pub fn seal(folder: &Path) -> Result<(), Error> {
    let mut manifest: Manifest = parse(folder, MANIFEST, &read_text(folder, MANIFEST)?)?;
    for (name, hash) in &mut manifest.files {
        *hash = hash_file(&folder.join(name))?;
    }
    write_manifest(folder, &manifest, Error::file("write", &folder.join(MANIFEST)))
}

/// Between the manifest's text and its hash, and after the hash.
const SEAL: (&str, &str) = (",\n  \"checksum\": \"", "\"\n}\n");

/// The text of a JSON object with the hash of all of it, but for the brace at its end, as its last field.
fn sealed(text: &str) -> String {
    let text = text.trim_end();
    let body = text.strip_suffix('}').unwrap_or(text).trim_end();
    let hash = blake3::hash(body.as_bytes()).to_hex();
    format!("{body}{}{hash}{}", SEAL.0, SEAL.1)
}

/// Whether the text is as [`sealed`] made it, to the byte.
fn is_sealed(text: &str) -> bool {
    let body = text.rfind(SEAL.0).map(|at| &text[..at]);
    body.is_some_and(|body| sealed(&format!("{body}\n}}")) == text)
}

struct Hashing<W> {
    to: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn hash_file(path: &Path) -> Result<String, Error> {
    let bytes = map_file(path).map_err(Error::file("read", path))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// Whether `path` is an artefact and not a model file.
pub fn is_artefact(path: &Path) -> bool {
    path.join(MANIFEST).is_file()
}

/// Reads only the manifest, which must be as it was written.
pub fn manifest(folder: &Path) -> Result<Manifest, Error> {
    let wrong = |why: String| Error::Artefact { path: folder.to_owned(), why };
    let text = read_text(folder, MANIFEST)?;
    // The fields of another version may be others.
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let Version { schema_version: found } = parse(folder, MANIFEST, &text)?;
    if found != SCHEMA_VERSION {
        return Err(wrong(format!(
            "it has schema version {found}, this program reads {SCHEMA_VERSION}"
        )));
    }
    if !is_sealed(&text) {
        return Err(wrong(format!("{MANIFEST} was changed: its checksum is that of another text")));
    }
    parse(folder, MANIFEST, &text)
}

/// Reads the report that was written with the artefact, after [`verify`].
pub fn report<R: DeserializeOwned>(folder: &Path) -> Result<R, Error> {
    verify(folder)?;
    parse(folder, REPORT, &read_text(folder, REPORT)?)
}

/// Fails when what lies at `folder` cannot be an artefact.
pub fn require_artefact(folder: &Path) -> Result<(), Error> {
    let found = match fs::metadata(folder).map_err(Error::file("read", folder))?.is_dir() {
        true if folder.join(MANIFEST).exists() => return Ok(()),
        true => format!("a folder without {MANIFEST}"),
        false => kind_of(folder).unwrap_or("a file").to_owned(),
    };
    let why = format!("it is {found}, and an artefact is a folder that `optimize` wrote");
    Err(Error::Artefact { path: folder.to_owned(), why })
}

fn read_text(folder: &Path, name: &str) -> Result<String, Error> {
    require_artefact(folder)?;
    let path = folder.join(name);
    open_file(&path).and_then(io::read_to_string).map_err(Error::file("read", &path))
}

fn parse<T: DeserializeOwned>(folder: &Path, name: &str, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| Error::Artefact {
        path: folder.to_owned(),
        why: format!("its {name} is damaged: {e}"),
    })
}

/// Checks that every file is as it was written, and returns the manifest.
pub fn verify(folder: &Path) -> Result<Manifest, Error> {
    let wrong = |why: String| Error::Artefact { path: folder.to_owned(), why };
    let manifest = manifest(folder)?;
    for needed in [PLAN, WEIGHTS, SELF_TEST, REPORT] {
        if !manifest.files.contains_key(needed) {
            return Err(wrong(format!("its manifest does not name {needed}")));
        }
    }
    for (name, hash) in &manifest.files {
        if Path::new(name).components().count() != 1 {
            return Err(wrong(format!("its manifest names `{name}`, which lies outside it")));
        }
        let found = hash_file(&folder.join(name))?;
        if found != *hash {
            return Err(wrong(format!(
                "{name} was changed: its hash is {}, the manifest says {}",
                &found[..16],
                hash.get(..16).unwrap_or(hash)
            )));
        }
    }
    Ok(manifest)
}

/// The model that the artefact computes, as ONNX, after [`verify`].
pub fn model(folder: &Path) -> Result<PathBuf, Error> {
    match verify(folder)?.files.contains_key(MODEL) {
        true => Ok(folder.join(MODEL)),
        false => Err(Error::Artefact {
            path: folder.to_owned(),
            why: "it holds no model, because ONNX cannot say its graph".to_owned(),
        }),
    }
}

/// Fails when this machine or the backends that are here cannot run the artefact.
pub fn require_here(folder: &Path, manifest: &Manifest, registry: &Registry) -> Result<(), Error> {
    let wrong = |why: String| Error::Artefact { path: folder.to_owned(), why };
    let here = Machine::read();
    let missing: Vec<&String> =
        manifest.machine.features.iter().filter(|f| !here.features.contains(f)).collect();
    if !missing.is_empty() {
        return Err(wrong(format!(
            "it was made for {} and this processor lacks {}; optimise the model again here",
            manifest.machine.model,
            missing.iter().map(|f| f.as_str()).collect::<Vec<_>>().join(", ")
        )));
    }
    for (backend, version) in &manifest.backends {
        let found = registry.get(backend).map_err(|e| {
            let library = "a library of your own is named with --backend-lib";
            wrong(format!("it needs backend `{backend}` {version}: {e}; {library}"))
        })?;
        let found = found.version();
        if found != *version {
            return Err(wrong(format!(
                "it needs backend `{backend}` {version}, found {found}; optimise the model again here"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_keeps_the_text_before_it() {
        for text in ["{\n  \"a\": 1\n}", "{\n  \"a\": {}\n}", "{\"a\":{\"b\":{}}}"] {
            let sealed = sealed(text);
            assert!(is_sealed(&sealed), "{sealed}");
            assert!(!is_sealed(&sealed.replacen('a', "c", 1)), "{sealed}");
            let mut read: serde_json::Value = serde_json::from_str(&sealed).unwrap();
            read.as_object_mut().unwrap().remove("checksum").unwrap();
            assert_eq!(read, serde_json::from_str::<serde_json::Value>(text).unwrap());
        }
    }
}
