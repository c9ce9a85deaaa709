//! Two small artefacts whose files the bytes damage: loading one and its self-test give an error, or what it
//! computes is right.
//!
//! The first byte says whether the manifest is sealed anew, so that hashes hide nothing, and which artefact is
//! loaded; then each eight bytes are one change: a file, what is done to it, where, and two bytes of data.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage::Opened;
use bricolage::{
    Temporary, Weights,
    artefact::{
        Allowed, Contents, Manifest, OpenSizes, SCHEMA_VERSION, StagePlan, load, save, seal,
    },
    compile_unmeasured, pool,
};
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_fuzz::plain_goal;
use bricolage_ir::{Error, Graph, Tolerance, evaluate, ops, origin, tolerances};
use bricolage_measure::Machine;
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Tensor, TensorType};
use bricolage_testkit::{
    damage,
    driver::{Target, nothing_known, nothing_more, nothing_noted},
};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

const TARGET: Target = Target {
    name: "artefact",
    run: target,
    known: nothing_known,
    fresh: |rng| {
        let len = 1 + 8 * (1 + rng.below(3));
        (0..len).map(|_| rng.next_u64() as u8).collect()
    },
    damage: damage::bytes,
    explain: nothing_more,
    notes: nothing_noted,
};

bricolage_fuzz::entry!(TARGET);

const FILES: [&str; 6] =
    ["plan", "weights.bin", "selftest.npz", "model.onnx", "report.json", "manifest.json"];

fn registry() -> Registry {
    Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)])
}

/// An artefact in memory, and what it must compute.
struct Whole {
    files: Vec<Vec<u8>>,
    input: Tensor,
    output: Tensor,
    allowed: Tolerance,
}

/// Of fixed sizes with a plan, and of open sizes without one.
static WHOLE: LazyLock<[Whole; 2]> =
    LazyLock::new(|| [whole(Dim::from(3)), whole(Dim::symbol("n"))]);

/// Two dense layers with a function between them.
fn graph(rows: Dim) -> Graph {
    let mut rng = Rng::new(7);
    let mut g = Graph::new("dense");
    let shape = Shape(vec![rows, Dim::from(4)]);
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let mut value = x;
    for (name, dims) in [("first", [4, 8]), ("second", [8, 2])] {
        let weight = Tensor::generate(DType::F32, &dims, |_| 0.5 * rng.normal());
        let weight = g.constant(&format!("{name}.w"), weight);
        let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
        let bias = Tensor::generate(DType::F32, &[dims[1]], |_| 0.5 * rng.normal());
        let bias = g.constant(&format!("{name}.b"), bias);
        let y = g.add1(product, &[value, weight], origin(name)).expect("the sizes fit");
        let y = g.add1(ops::Binary::Add, &[y, bias], origin(name)).expect("the sizes fit");
        value = g.add1(ops::Unary::Tanh, &[y], origin(name)).expect("the sizes fit");
    }
    g.outputs = vec![value];
    g
}

fn whole(rows: Dim) -> Whole {
    let (graph, fixed) = (graph(rows.clone()), graph(Dim::from(3)));
    let registry = registry();
    let input = Tensor::generate(DType::F32, &[3, 4], |i| (i as f64).sin());
    let data = [Datum::from(input.clone())];
    let output = evaluate(&fixed, &data).expect("it has a meaning");
    let output = output[0].as_tensor().expect("it is a tensor").clone();
    let allowed = tolerances(&fixed, &data, &[Some(&output)], &|_| None, &|_| 0.0, 1);
    let allowed = allowed.expect("it has a meaning")[0];
    let is_open = rows.as_const().is_none();
    let (graph, plans, weights) = if is_open {
        let graph = bricolage::rewrite(graph).expect("it can be rewritten").graph;
        (graph, Vec::new(), Weights::default())
    } else {
        let (graph, plan, session) =
            compile_unmeasured(&registry, graph, &plain_goal()).expect("it can be compiled");
        (graph, vec![StagePlan::only(plan)], session.program().weights().clone())
    };
    let machine = Machine::read();
    let name = |v| graph.value(v).name.to_string();
    let (input_name, output_name) = (name(graph.inputs[0]), name(graph.outputs[0]));
    let manifest = Manifest {
        placement: bricolage::Method::Exact,
        schema_version: SCHEMA_VERSION,
        bricolage: String::new(),
        model: String::new(),
        fingerprint: machine.fingerprint(),
        machine,
        threads: 1,
        seed: 0,
        policy: plain_goal().policy,
        sizes: is_open.then(OpenSizes::default),
        backends: registry.iter().map(|b| (b.name().to_owned(), b.version())).collect(),
        files: BTreeMap::new(),
        allowed: vec![Allowed {
            output: output_name.clone(),
            max_abs: allowed.max_abs,
            relative_l2: allowed.relative_l2,
        }],
    };
    let folder = temporary();
    let contents = Contents {
        manifest,
        plans: &plans,
        weights: &weights,
        inputs: &[(input_name, input.clone())],
        outputs: &[(output_name, output.clone())],
        model: Some(&graph),
        report: &(),
    };
    save(folder.path(), false, contents).expect("it can be written");
    let read = |name: &&str| fs::read(folder.path().join(name)).expect("it was written");
    Whole { files: FILES.iter().map(read).collect(), input, output, allowed }
}

fn temporary() -> Temporary {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("bricolage-fuzz-{}-{number}", std::process::id());
    Temporary::new(std::env::temp_dir().join(name))
}

/// The files of the artefact that the bytes choose, as they damage them; `None` for one that is taken away.
fn damaged(data: &[u8]) -> (&'static Whole, Vec<Option<Vec<u8>>>, bool) {
    let first = data.first().copied().unwrap_or(0);
    let (own, other) =
        (&WHOLE[usize::from(first >> 1 & 1)], &WHOLE[usize::from(!(first >> 1) & 1)]);
    let mut files: Vec<Option<Vec<u8>>> = own.files.iter().cloned().map(Some).collect();
    for change in data.get(1..).unwrap_or_default().chunks_exact(8) {
        let which = usize::from(change[0]) % FILES.len();
        let Some(file) = &mut files[which] else { continue };
        let at = u32::from_le_bytes([change[2], change[3], change[4], change[5]]) as usize;
        let at = at % (file.len() + 1);
        match change[1] % 8 {
            0 => files[which] = None,
            1 => file.truncate(at),
            2 => *file = other.files[which].clone(),
            3 => file.insert(at, change[6]),
            4 => drop(file.drain(at..(at + usize::from(change[6])).min(file.len()))),
            5 => *file = own.files[usize::from(change[6]) % FILES.len()].clone(),
            // Mostly one bit.
            kind => {
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= if kind == 6 { 1 << (change[6] % 8) } else { change[6] };
                }
            }
        }
    }
    (own, files, first & 1 == 1)
}

/// Whether the artefact loads and passes its self-test.
fn target(data: &[u8]) -> bool {
    let (own, files, sealed) = damaged(data);
    let folder = temporary();
    fs::create_dir_all(folder.path()).expect("a folder for files can be made");
    for (name, bytes) in FILES.iter().zip(&files) {
        if let Some(bytes) = bytes {
            fs::write(folder.path().join(name), bytes).expect("files can be written");
        }
    }
    let is_whole = |i: usize| files[i].as_ref() == Some(&own.files[i]);
    // What computes: with these, the answers are those of the model.
    let computes = ["plan", "weights.bin", "model.onnx", "manifest.json"];
    let computes = (0..FILES.len()).filter(|&i| computes.contains(&FILES[i])).all(is_whole);
    if sealed {
        // A manifest that is none cannot be sealed.
        let _ = seal(folder.path());
    }
    match answer(folder.path(), &own.input) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let all = (0..FILES.len()).all(is_whole);
            assert!(!all, "a whole artefact is refused: {error}");
            false
        }
        Ok(found) => {
            let all = (0..FILES.len()).all(is_whole);
            assert!(all || sealed, "damage is not seen");
            if computes {
                let error = Error::between(&own.output, &found);
                let share = error.share_of(&own.allowed);
                assert!(share <= 1.0, "it computes something else: {error}");
            }
            true
        }
    }
}

/// Loads, tests and runs.
fn answer(folder: &Path, input: &Tensor) -> Result<Tensor, bricolage::Error> {
    let loaded = load(folder, &registry())?;
    let pool = pool(1)?;
    loaded.self_test(pool.clone())?;
    let outputs = Opened::new(&loaded, pool)?.run(std::slice::from_ref(input))?;
    Ok(outputs.into_iter().map(|(_, t)| t).next().expect("a run gives every output"))
}

#[test]
fn damage_is_seen_or_does_nothing() {
    TARGET.smoke(600, 10);
}
