//! A random graph of open sizes, chosen by the bytes, in one session at several sizes against the reference.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage::DynamicSession;
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_fuzz::{fresh_choices, plain_goal, seed_and_choices};
use bricolage_ir::{Error, EvalError, Fact, Graph, evaluate_from, print, tolerances};
use bricolage_tensor::{Datum, Dim, Rng, Symbol, Tensor};
use bricolage_testkit::{
    Case, damage,
    driver::{Target, nothing_known, nothing_noted},
    generate_from,
    open::{draw_inputs, open},
};
use std::{collections::HashMap, fs, path::Path, sync::Arc};

const TARGET: Target = Target {
    name: "dynamic",
    run: target,
    known: nothing_known,
    fresh: fresh_choices,
    damage: damage::bytes,
    explain,
    notes: nothing_noted,
};

bricolage_fuzz::entry!(TARGET);

/// Runs of one session: some sizes come twice.
const RUNS: usize = 6;
const MOST: usize = 12;
/// Points of all ops together at sizes that are computed: several may be multiplied with each other.
const MOST_WORK: u64 = 1 << 20;

fn graph(data: &[u8]) -> (Option<Graph>, Rng) {
    let (seed, choices) = seed_and_choices(data);
    let mut rng = Rng::new(seed);
    (open(&Case::from(generate_from(seed, choices)), &mut rng), rng)
}

/// Whether a graph of open sizes came of the bytes and was computed at some of them.
fn target(data: &[u8]) -> bool {
    let (Some(graph), mut rng) = graph(data) else { return false };
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let session = DynamicSession::new(&registry, graph.clone(), &plain_goal());
    let mut session = session.unwrap_or_else(|e| panic!("no session: {e}"));
    let mut computed = false;
    let mut seen: Vec<HashMap<Symbol, i64>> = Vec::new();
    for _ in 0..RUNS {
        let sizes = match seen.len() {
            n @ 2.. if rng.below(3) == 0 => seen[rng.below(n)].clone(),
            _ => graph.symbols().into_iter().map(|s| (s, 1 + rng.below(MOST) as i64)).collect(),
        };
        if work(&graph, &sizes) > MOST_WORK {
            continue;
        }
        let inputs = draw_inputs(&graph, &sizes, &mut rng);
        let found = session.run(&inputs);
        match (evaluated(&graph, &sizes, &inputs), found) {
            // Sizes may be such that an op has no meaning, and its simpler form may have one.
            (Err(_), _) => {}
            (Ok((_, true)), Err(error)) => panic!("at {sizes:?} it fails: {error}"),
            (Ok((_, false)), Err(error)) => assert!(!error.to_string().is_empty()),
            (Ok((wanted, _)), Ok(found)) => {
                computed |= compare(&graph, &sizes, &inputs, &wanted, &found);
            }
        }
        seen.push(sizes);
    }
    computed
}

/// Points of all ops together, as far as the types tell: each op by itself, for at some sizes the whole graph has
/// no meaning, and the reference computes until it finds that.
fn work(graph: &Graph, sizes: &HashMap<Symbol, i64>) -> u64 {
    let size = |s: &Symbol| sizes.get(s).map(|&n| Dim::from(n));
    let fixed = |fact: &Fact| match fact.ty.as_tensor() {
        Some(t) => Fact::tensor(t.dtype, t.shape.iter().map(|d| d.substitute(&size))),
        None => fact.clone(),
    };
    let of = |id| {
        let node = graph.node(id);
        let inputs: Vec<Option<Fact>> =
            graph.facts(&node.inputs).into_iter().map(|f| f.map(fixed)).collect();
        let inputs: Vec<Option<&Fact>> = inputs.iter().map(Option::as_ref).collect();
        let outputs: Vec<Fact> = graph.output_facts(id).iter().map(fixed).collect();
        node.op.bind(&size).work(&inputs, &outputs).map_or(0, |w| w.points)
    };
    graph.nodes().map(of).fold(0, u64::saturating_add)
}

/// What the reference computes, and whether every value has the size that its type says. Types suppose that
/// operands are large enough for what is sliced off them.
fn evaluated(
    graph: &Graph,
    sizes: &HashMap<Symbol, i64>,
    inputs: &[Datum],
) -> Result<(Vec<Datum>, bool), EvalError> {
    let known = |d: &Dim| d.substitute(&|s| sizes.get(s).map(|&n| Dim::from(n))).as_const();
    let mut as_typed = true;
    let result = evaluate_from(graph, inputs, &HashMap::new(), &mut |v, datum| {
        if let (Some(ty), Some(found)) = (graph.fact(v).ty.as_tensor(), datum.as_tensor()) {
            let mut dims = ty.shape.iter().zip(found.dims());
            as_typed &= dims.all(|(d, &n)| known(d).is_none_or(|k| k == n));
        }
    })?;
    Ok((result.outputs, as_typed))
}

/// Whether the outputs are numbers that can be compared, which they then equal.
fn compare(
    graph: &Graph,
    sizes: &HashMap<Symbol, i64>,
    inputs: &[Datum],
    wanted: &[Datum],
    found: &[(String, Datum)],
) -> bool {
    let wanted: Vec<Option<&Tensor>> = wanted.iter().map(Datum::as_tensor).collect();
    let is_finite = |t: &&Tensor| t.to_f64().iter().all(|v| v.is_finite() && v.abs() < 1e6);
    if !wanted.iter().flatten().all(is_finite) {
        return false;
    }
    let fixed = graph
        .bind(&|s| sizes.get(s).map(|&n| Dim::from(n)))
        .unwrap_or_else(|e| panic!("at {sizes:?} the graph has no types: {e}"));
    let allowed = tolerances(&fixed, inputs, &wanted, &|_| None, &|_| 0.0, 1)
        .unwrap_or_else(|e| panic!("at {sizes:?} there is no tolerance: {e}"));
    for ((wanted, (name, found)), allowed) in wanted.iter().zip(found).zip(&allowed) {
        let (Some(wanted), Some(found)) = (wanted, found.as_tensor()) else { continue };
        assert_eq!(found.ty(), wanted.ty(), "`{name}` at {sizes:?}");
        let error = Error::between(wanted, found);
        let share = error.share_of(allowed);
        assert!(share <= 1.0, "`{name}` at {sizes:?}: {error}, {share:.2} of what is allowed");
    }
    true
}

/// Writes the graph's text.
fn explain(data: &[u8], folder: &Path) -> Option<String> {
    let text = print(&graph(data).0?).0;
    let path = folder.join("graph.case");
    fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).ok()?;
    Some(format!("the graph: {}", path.display()))
}

#[test]
fn sessions_are_right_at_every_size() {
    TARGET.smoke(80, 30);
}
