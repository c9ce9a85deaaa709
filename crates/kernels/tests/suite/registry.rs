//! No kernel exists untested.

use crate::harness::isas;
use bricolage_kernels::{Spec, rebuild, registry::REGISTRY};
use std::collections::BTreeSet;

/// The test of each row, by name of the row. Each of them runs every set that the machine has.
const TESTED_BY: &[(&str, &str)] = &[
    ("matmul", "matmul::products_are_right"),
    ("conv-direct", "conv::direct_is_right"),
    ("conv-transposed", "conv::transposed_is_right"),
    ("conv-winograd-f2", "conv::winograd_is_right"),
    ("conv-winograd-f4", "conv::winograd_is_right"),
    ("conv-winograd-f6", "conv::winograd_is_right"),
    ("conv-depthwise", "conv::depthwise_is_right"),
    ("pointwise", "pointwise::operands_broadcast_in_every_layout"),
    ("pool-max", "movement::pooling_is_right"),
    ("pool-average", "movement::pooling_is_right"),
    ("softmax", "rows::softmax_is_right"),
    ("log-softmax", "rows::softmax_is_right"),
    ("layer-norm", "rows::norm_is_right"),
    ("rms-norm", "rows::norm_is_right"),
    ("reduce", "rows::reductions_are_right"),
    ("copy", "movement::transposes"),
    ("convert", "movement::converts_layouts"),
    ("gather", "movement::gathers"),
    ("resize", "movement::resizing_is_right"),
    ("attention", "rows::attention_is_right"),
    ("rnn", "recurrent::layers_are_right"),
    ("gru", "recurrent::layers_are_right"),
    ("lstm", "recurrent::layers_are_right"),
];

#[test]
fn every_row_has_a_test_and_every_kind_a_row() {
    let rows: BTreeSet<&str> = REGISTRY.iter().map(|r| r.name).collect();
    assert_eq!(rows.len(), REGISTRY.len(), "two rows share a name");
    assert_eq!(rows, TESTED_BY.iter().map(|t| t.0).collect());
    let sources = [
        ("matmul", include_str!("matmul.rs")),
        ("conv", include_str!("conv.rs")),
        ("pointwise", include_str!("pointwise.rs")),
        ("rows", include_str!("rows.rs")),
        ("recurrent", include_str!("recurrent.rs")),
        ("movement", include_str!("movement.rs")),
    ];
    for (row, test) in TESTED_BY {
        let (module, function) = test.split_once("::").unwrap();
        let source = sources.iter().find(|s| s.0 == module).unwrap().1;
        assert!(source.contains(&format!("fn {function}(")), "`{test}` of `{row}` does not exist");
    }
    let kinds: BTreeSet<&str> = REGISTRY.iter().map(|r| r.kind).collect();
    assert_eq!(kinds, Spec::KINDS.iter().copied().collect());
}

#[test]
fn every_example_builds_and_is_rebuilt_from_its_recipe() {
    for row in REGISTRY {
        let spec = (row.example)();
        assert_eq!(spec.kind(), row.kind, "{}", row.name);
        for isa in isas().filter(|i| row.isas.contains(i)) {
            let kernel = spec.build(isa).unwrap();
            let again = rebuild(&kernel.recipe()).unwrap();
            assert_eq!((again.name(), again.spec()), (kernel.name(), spec.clone()));
            assert!(kernel.name().starts_with(isa.name()));
        }
    }
}

#[test]
fn damaged_recipes_are_refused_in_words() {
    let kernel = (REGISTRY[0].example)().build(bricolage_kernels::Isa::Portable).unwrap();
    let recipe = kernel.recipe();
    let fail = |change: &dyn Fn(&mut bricolage_runtime::Recipe)| {
        let mut recipe = recipe.clone();
        change(&mut recipe);
        rebuild(&recipe).err().unwrap().to_string()
    };
    assert!(fail(&|r| r.backend = "other".into()).contains("`native`"));
    assert!(fail(&|r| r.kernel = "x/9".into()).contains("needed version 1, found 9"));
    assert!(fail(&|r| r.body.truncate(3)).contains("cannot be read"));
}
