//! Every model builds, is sound, can be written, and has the size of its original.

use bricolage_ir::{Graph, Op, Role, verify};
use bricolage_tensor::DType;
use bricolage_zoo::{ZooError, build, list};
use std::collections::HashSet;

/// What names of constants that are not trained hold.
const FIXED: [&str; 4] = ["running_", "mask", "sinusoids", "inv_freq"];

/// Elements of trained weights: scalars, masks, tables and running statistics are none.
fn parameters(graph: &Graph) -> u64 {
    let values = graph.values().map(|v| graph.value(v));
    let trained = values.filter_map(|v| match &v.role {
        Role::Constant(t) if t.dtype() == DType::F32 && !t.dims().is_empty() => {
            let fixed = FIXED.iter().any(|part| v.name.contains(part));
            (!fixed).then_some(t.len() as u64)
        }
        _ => None,
    });
    trained.sum()
}

/// Number of convolutions over so many spatial dims, and of different ones.
fn convolutions(graph: &Graph, spatial: usize) -> (usize, usize) {
    let mut all = Vec::new();
    for id in graph.nodes() {
        let node = graph.node(id);
        if let Op::Conv(op) = &node.op
            && op.strides.len() == spatial
        {
            let shape = |i: usize| {
                let fact = node.inputs[i].map(|v| graph.fact(v));
                let shape = fact.and_then(|f| f.ty.as_tensor()).and_then(|t| t.shape.as_fixed());
                shape.expect("every size is a number")
            };
            all.push((op.clone(), shape(0), shape(1)));
        }
    }
    let different: HashSet<_> = all.iter().collect();
    (all.len(), different.len())
}

#[test]
fn models_are_sound_and_have_known_sizes() {
    for entry in list() {
        let graph = build(entry.name, 2, 7).unwrap();
        assert_eq!(verify(&graph), [], "{}", entry.name);
        for &v in graph.inputs.iter().chain(&graph.outputs) {
            let shape = graph.fact(v).ty.as_tensor().and_then(|t| t.shape.as_fixed());
            assert_eq!(shape.unwrap()[0], 2, "{}: {}", entry.name, graph.value(v).name);
        }
        assert_eq!(parameters(&graph), entry.parameters, "{}", entry.name);
        let written = bricolage_onnx::export_structure(&graph).unwrap();
        let again: u64 = written.weights.iter().map(|(_, t)| t.bytes().len() as u64).sum();
        let large = graph.values().filter_map(|v| graph.constant_of(v));
        let large = large.map(|t| t.bytes().len() as u64).filter(|&n| n > 1024);
        assert_eq!(again, large.sum::<u64>(), "{}", entry.name);
        assert!(!written.bytes.is_empty());
    }
}

/// The numbers of convolutions in the artefact of the Collage paper.
#[test]
fn networks_of_the_collage_paper_have_its_convolutions() {
    for (name, spatial, expected) in [
        ("collage-nasnet-a", 2, (204, 15)),
        ("collage-resnet3d50", 3, (52, 22)),
        ("collage-resnext50", 2, (52, 23)),
    ] {
        assert_eq!(convolutions(&build(name, 1, 7).unwrap(), spatial), expected, "{name}");
    }
}

#[test]
fn weights_follow_from_the_seed() {
    let first = |seed| {
        let graph = build("mobilenet-v2", 2, seed).unwrap();
        let weight = graph.find("features.0.0.weight").unwrap();
        graph.constant_of(weight).unwrap().clone()
    };
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}

#[test]
fn unknown_names_and_empty_batches_are_refused() {
    let error = build("resnet19", 1, 0).unwrap_err();
    assert!(error.to_string().contains("resnet18, resnet50"), "{error}");
    assert_eq!(build("unet", 0, 0).unwrap_err(), ZooError::Batch { found: 0 });
}
