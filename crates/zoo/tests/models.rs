//! Every model builds, is sound, can be written, and has the size of its original.

use bricolage_ir::{Graph, Role, verify};
use bricolage_tensor::DType;
use bricolage_zoo::{ZooError, build, list};

/// Elements of trained weights: scalars, masks and running statistics are none.
fn parameters(graph: &Graph) -> u64 {
    let values = graph.values().map(|v| graph.value(v));
    let trained = values.filter_map(|v| match &v.role {
        Role::Constant(t) if t.dtype() == DType::F32 && !t.dims().is_empty() => {
            (!v.name.contains("running_")).then_some(t.len() as u64)
        }
        _ => None,
    });
    trained.sum()
}

#[test]
fn models_are_sound_and_have_known_sizes() {
    for entry in list() {
        let graph = build(entry.name, 1, 7).unwrap();
        assert_eq!(verify(&graph), [], "{}", entry.name);
        assert_eq!(parameters(&graph), entry.parameters, "{}", entry.name);
        let written = bricolage_onnx::export_structure(&graph).unwrap();
        let again: u64 = written.weights.iter().map(|(_, t)| t.bytes().len() as u64).sum();
        let large = graph.values().filter_map(|v| graph.constant_of(v));
        let large = large.map(|t| t.bytes().len() as u64).filter(|&n| n > 1024);
        assert_eq!(again, large.sum::<u64>(), "{}", entry.name);
        assert!(!written.bytes.is_empty());
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
