//! Bytes as the text form of a graph: what is read is sound, and printing it gives a text that reads as the
//! same.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage_ir::{parse, print, verify};
use bricolage_tensor::Rng;
use bricolage_testkit::{
    constants_aside, damage,
    driver::{Target, nothing_more, nothing_noted},
    generate,
};
use std::{fs, path::Path};

const TARGET: Target = Target {
    name: "text",
    run: target,
    known,
    fresh: |rng| print(&generate(rng.next_u64()).graph).0.into_bytes(),
    damage: damage::lines,
    explain: nothing_more,
    notes: nothing_noted,
};

bricolage_fuzz::entry!(TARGET);

/// Graphs of ops that generated ones lack.
fn known() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/graphs");
    let mut paths: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths.iter().filter_map(|p| fs::read(p).ok()).collect()
}

/// Whether the bytes are a graph.
fn target(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    // A text that names constants wrongly is read without them.
    let aside = constants_aside(text, &mut Rng::new(11)).unwrap_or_default();
    let graph = match parse(text, &aside) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
        Ok(graph) => graph,
    };
    if let Some(fault) = verify(&graph).first() {
        panic!("the graph is unsound: {fault}");
    }
    let printed = print(&graph);
    let again = parse(&printed.0, &printed.1)
        .unwrap_or_else(|e| panic!("what was printed is not read: {e}\n{}", printed.0));
    assert_eq!(print(&again), printed, "another graph is read");
    true
}

#[test]
fn texts_are_read_or_refused() {
    TARGET.smoke(2000, 300);
}
