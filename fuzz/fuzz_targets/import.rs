//! Bytes as an ONNX model: read, verified, simplified, written and read again.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage_ir::{Graph, Op, ValueId, verify};
use bricolage_onnx::{export, import};
use bricolage_tensor::{Rng, Storage};
use bricolage_testkit::{
    damage,
    driver::{Target, nothing_more, nothing_noted},
    generate, prototext,
};

const TARGET: Target = Target {
    name: "import",
    run: target,
    known: prototext::hostile,
    fresh,
    damage: damage::message,
    explain: nothing_more,
    notes: nothing_noted,
};

bricolage_fuzz::entry!(TARGET);

/// A small model that ONNX can say.
fn fresh(rng: &mut Rng) -> Vec<u8> {
    (0..20).find_map(|_| export(&generate(rng.next_u64()).graph).ok()).unwrap_or_default()
}

fn names(graph: &Graph, values: &[ValueId]) -> Vec<String> {
    values.iter().map(|&v| graph.value(v).name.to_string()).collect()
}

fn require_sound(graph: &Graph, what: &str) {
    if let Some(fault) = verify(graph).first() {
        panic!("the {what} graph is unsound: {fault}");
    }
}

/// Whether the bytes are a model.
fn target(data: &[u8]) -> bool {
    let graph = match import(Storage::copy_of(data), None) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
        Ok(model) => model.graph,
    };
    require_sound(&graph, "imported");
    // What has no meaning here may have one, and a fault, in the version of the operators that is written.
    let is_known = graph.nodes().all(|n| !matches!(graph.node(n).op, Op::Opaque(_)));
    // What ONNX cannot say is refused in words.
    if let Some(bytes) = export(&graph).ok().filter(|_| is_known) {
        let again = import(Storage::copy_of(&bytes), None)
            .unwrap_or_else(|e| panic!("what was written is not read: {e}"));
        require_sound(&again.graph, "written");
        for (old, new) in
            [(&graph.inputs, &again.graph.inputs), (&graph.outputs, &again.graph.outputs)]
        {
            assert_eq!(names(&graph, old), names(&again.graph, new), "ports changed");
        }
    }
    // What cannot be held cannot be computed, nor simplified by computing.
    if bricolage::inputs::require_fixed(&graph).is_ok() {
        let rewritten = bricolage::rewrite(graph).unwrap_or_else(|e| panic!("{e}"));
        require_sound(&rewritten.graph, "rewritten");
    }
    true
}

#[test]
fn damaged_models_do_no_harm() {
    TARGET.smoke(1500, 75);
}
