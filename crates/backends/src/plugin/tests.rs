//! The sample in C against the reference, and libraries that keep to nothing.

use super::*;
use crate::trials::{self, Case, SETTING, drawn};
use bricolage_ir::ops::{Binary, MatMul, Unary};
use bricolage_tensor::DType;
use std::{fs, process::Command};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bricolage-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The library that the C compiler makes of a source.
    fn library(&self, name: &str, source: &str) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (from, to) = (self.0.join(format!("{name}.c")), self.0.join(format!("lib{name}.so")));
        fs::write(&from, source).unwrap();
        let compiled = Command::new("cc")
            .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I"])
            .arg(root.join("include"))
            .args([&from, Path::new("-o"), &to])
            .output()
            .expect("this test needs the C compiler `cc`");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        to
    }
}

const SAMPLE: &str = include_str!("../../../../examples/plugins/c/tinymath.c");

fn load(path: &Path) -> Result<PatternBackend, PluginError> {
    load_plugin(path, Arc::new(InProcess), &["native".to_owned()])
}

#[test]
fn the_sample_in_c_is_right_on_one_thread_and_several() {
    let folder = Folder::new("plugin-sample");
    let backend = load(&folder.library("tinymath", SAMPLE)).unwrap();
    assert_eq!(backend.name(), "tinymath");
    assert_eq!(backend.kind(), BackendKind::Supplement);
    assert!(backend.version().starts_with("1.0.0 ("), "{}", backend.version());
    assert!(backend.status().covers.starts_with("relu, and"));
    let plain = MatMul { transpose_lhs: false, transpose_rhs: false };
    for (threads, dims) in [(1, vec![5, 7]), (2, vec![2, 3, 7]), (3, vec![1, 7]), (2, vec![0, 7])] {
        let setting = Setting { threads, ..SETTING };
        let mut case = Case::new();
        let x = case.input(drawn(DType::F32, &dims, 1));
        let w = case.constant(drawn(DType::F32, &[7, 9], 2));
        let b = case.constant(drawn(DType::F32, &[9], 3));
        let product = case.op(plain, &[x, w]);
        let mut alone = Case { graph: case.graph.clone(), inputs: case.inputs.clone() };
        trials::check(&backend, &mut alone, &[product], &["dense"], &setting);
        let sum = case.op(Binary::Add, &[b, product]);
        let mut biased = Case { graph: case.graph.clone(), inputs: case.inputs.clone() };
        trials::check(&backend, &mut biased, &[sum], &["dense"], &setting);
        let y = case.op(Unary::Relu, &[sum]);
        trials::check(&backend, &mut case, &[y], &["relu", "dense"], &setting);
        let mut case = Case::new();
        let x = case.input(drawn(DType::F32, &[3, 5000], 4));
        let y = case.op(Unary::Relu, &[x]);
        trials::check(&backend, &mut case, &[y], &["relu"], &setting);
    }
}

#[test]
fn what_the_sample_does_not_take_is_refused_in_words() {
    let folder = Folder::new("plugin-refusals");
    let backend = load(&folder.library("tinymath", SAMPLE)).unwrap();
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 1], 1));
    let w = case.constant(drawn(DType::F32, &[1, (1 << 20) + 1], 2));
    let y = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, w]);
    case.graph.outputs = vec![y];
    let exit = case.graph.producer(y).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let why = backend.bind(&case.graph, &candidate, &SETTING).err().unwrap();
    assert_eq!(why, "needs at most 2^20 columns, found more");
}

#[test]
fn a_recipe_of_another_version_or_damaged_is_refused() {
    let folder = Folder::new("plugin-recipes");
    let backend = load(&folder.library("tinymath", SAMPLE)).unwrap();
    let newer = folder.library("newer", &SAMPLE.replace("1.0.0", "1.0.1"));
    let newer = load(&newer).unwrap();
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[2, 3], 1));
    let w = case.constant(drawn(DType::F32, &[3, 4], 2));
    let y = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, w]);
    case.graph.outputs = vec![y];
    let candidate = backend
        .propose(&case.graph, case.graph.producer(y).unwrap(), &SETTING)
        .candidates
        .remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    let (recipe, built_in) = (bound.kernel.recipe(), &bound.built_in);
    assert!(backend.rebuild(&recipe, built_in).is_ok());
    let refused = |b: &PatternBackend, r: &Recipe, c: &[Packed]| b.rebuild(r, c).err().unwrap();
    let why = refused(&newer, &recipe, built_in);
    assert!(why.starts_with("needs version 1.0.0 (") && why.contains("found 1.0.1 ("), "{why}");
    assert_eq!(refused(&backend, &recipe, &[]), "needs 1 constants, found 0");
    let other = Packed { dims: vec![4, 3], ..built_in[0].clone() };
    assert!(refused(&backend, &recipe, &[other]).contains("needs constant 0 as f32:plain[3, 4]"));
    // Whatever a file says is sound, or refused before the library sees it.
    for at in 0..recipe.body.len() {
        let mut changed = recipe.body.clone();
        changed[at] ^= 0x11;
        if let Ok(body) = postcard::from_bytes::<Body>(&changed) {
            let _ = Compiled::new("tinymath", PathBuf::new(), &body, built_in.clone());
        }
    }
}

/// Texts of the sample with what takes their place.
type Changes<'a> = &'a [(&'a str, &'a str)];

/// The sample with some of its text replaced.
fn changed(changes: Changes<'_>) -> String {
    changes.iter().fold(SAMPLE.to_owned(), |source, (from, to)| {
        assert!(source.contains(from), "the sample has no `{from}`");
        source.replace(from, to)
    })
}

#[test]
fn libraries_that_are_no_backends_are_refused_in_words() {
    let folder = Folder::new("plugin-hostile");
    let cases: &[(&str, Changes<'_>, &str)] = &[
        (
            "nosymbol",
            &[(
                "*bricolage_backend(uint32_t abi) {",
                "*other(uint32_t abi);\nconst bricolage_backend_table *other(uint32_t abi) {",
            )],
            "needs a function `bricolage_backend`, found none",
        ),
        (
            "unknown",
            &[("abi == BRICOLAGE_ABI ? &table : 0", "abi == 99 ? &table : 0")],
            "needs interface 1, found that the library does not know it",
        ),
        (
            "newer",
            &[("    BRICOLAGE_ABI, sizeof", "    7, sizeof")],
            "needs interface 1, found a table of interface 7",
        ),
        (
            "small",
            &[("sizeof(bricolage_backend_table), \"tinymath\"", "24, \"tinymath\"")],
            "needs a table of 80 bytes or more, found one of 24",
        ),
        (
            "nofunction",
            &[("plan, compile,\n    run, free}", "plan, compile, run, 0}")],
            "needs a function `destroy` in its table, found null",
        ),
        ("noname", &[("\"tinymath\", \"1.0.0\"", "0, \"1.0.0\"")], "needs a name, found null"),
        ("nottext", &[("\"1.0.0\"", "\"\\xff\"")], "needs a version in UTF-8, found other bytes"),
        (
            "garbage",
            &[("\"backend tinymath {\\n\"", "\"\\x01 no patterns {\\n\"")],
            "has a pattern file that cannot be used\ntinymath.patterns:1:1: ",
        ),
        (
            "entries",
            &[("{\"relu\", \"dense\"}", "{\"relu\", \"sparse\"}")],
            "needs an entry of the library, found `dense`",
        ),
        (
            "unclaimed",
            &[
                ("{\"relu\", \"dense\"}", "{\"relu\", \"dense\", \"more\"}"),
                ("entries, 2", "entries, 3"),
            ],
            "needs a pattern for the library's entry `more`",
        ),
        ("old", &[("\"1.0.0\"", "\"0.9\"")], "needs a library of version 1.0 or newer"),
        (
            "othername",
            &[("\"tinymath\", \"1.0.0\"", "\"bigmath\", \"1.0.0\"")],
            "needs a pattern file of `backend bigmath`, found `backend tinymath`",
        ),
        (
            "trusted",
            &[("kind: supplement", "kind: reference")],
            "needs a kind of backend that is compared with the reference, found `reference`",
        ),
        (
            "clash",
            &[
                ("\"tinymath\", \"1.0.0\"", "\"native\", \"1.0.0\""),
                ("backend tinymath", "backend native"),
            ],
            "needs a name that no other backend has, found `native`",
        ),
    ];
    for (name, changes, words) in cases {
        let library = folder.library(name, &changed(changes));
        let said = load(&library).err().unwrap().to_string();
        assert!(said.starts_with(&format!("backend library `{}` ", library.display())), "{said}");
        assert!(said.contains(words), "{name}: {said}");
    }
    let text = folder.0.join("text.so");
    fs::write(&text, "no library").unwrap();
    for (path, words) in [
        (&text, "cannot be loaded: "),
        (&folder.0, "cannot be read: needs a regular file, found a folder"),
    ] {
        let said = load(path).err().unwrap().to_string();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_a_library_returns_is_checked() {
    let folder = Folder::new("plugin-returns");
    let failing = |name: &str, changes: &[(&str, &str)]| {
        let backend = load(&folder.library(name, &changed(changes))).unwrap();
        let mut case = Case::new();
        let x = case.input(drawn(DType::F32, &[4], 1));
        let y = case.op(Unary::Relu, &[x]);
        case.graph.outputs = vec![y];
        let exit = case.graph.producer(y).unwrap();
        let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
        let bound = match backend.bind(&case.graph, &candidate, &SETTING) {
            Ok(bound) => bound,
            Err(why) => return why,
        };
        let kernel = match backend.rebuild(&bound.kernel.recipe(), &bound.built_in) {
            Ok(kernel) => kernel,
            Err(why) => return why,
        };
        let plain = Format::plain(DType::F32);
        let inputs = [(case.inputs[0].clone(), plain.clone())];
        let outputs = [(vec![4], plain)];
        trials::run(&*kernel, &[], &inputs, &outputs, 1).err().unwrap().to_string()
    };
    let run = "return host->cancelled(host->context) ? BRICOLAGE_CANCELLED : BRICOLAGE_OK;";
    let flags = "plan->flags = BRICOLAGE_DETERMINISTIC;";
    let made = "  *made = k;";
    for (name, changes, words) in [
        ("flags", [(flags, "plan->flags = 6;")], "its plan needs flags that are known, found 0x6"),
        (
            "workspace",
            [(flags, "plan->workspace = ~(uint64_t)0;")],
            "its plan needs a workspace of at most 1099511627776 bytes, found 18446744073709551615",
        ),
        ("silent", [(flags, "return BRICOLAGE_REFUSED;")], "it gave no reason"),
        (
            "compile",
            [(
                made,
                "host->reason(host->context, \"needs luck\"); free(made); return BRICOLAGE_FAILED;",
            )],
            "needs luck",
        ),
        (
            "status",
            [(run, "return 77;")],
            "kernel `tinymath-relu` failed: it needs a status from 0 to 4, found 77",
        ),
        (
            "cancel",
            [(run, "return BRICOLAGE_CANCELLED;")],
            "failed: it says that it was cancelled, and nobody asked for it",
        ),
        (
            "domain",
            [(run, "host->reason(host->context, \"index 9\"); return BRICOLAGE_DOMAIN;")],
            "kernel `tinymath-relu` cannot compute this: index 9",
        ),
    ] {
        let said = failing(name, &changes);
        assert!(said.contains(words), "{name}: {said}");
    }
}
