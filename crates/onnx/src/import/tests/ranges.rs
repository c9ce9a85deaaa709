//! Ranges of floats whose bounds are sizes.

use super::*;

/// A range from 1 in steps of 2 to the first size of `x`, which is converted to these types in turn.
fn to_a_size(types: &[i64]) -> ModelProto {
    let mut nodes = vec![
        node("Shape", "s", &["x"], &["shape"]),
        node("Gather", "g", &["shape", "zero"], &["c0"]),
    ];
    let names: Vec<String> = (0..=types.len()).map(|i| format!("c{i}")).collect();
    for (ends, &to) in names.windows(2).zip(types) {
        let cast = node("Cast", &ends[1], &[&ends[0]], &[&ends[1]]);
        nodes.push(with(cast, "to", |a| a.i = Some(to)));
    }
    nodes.push(node("Squeeze", "q", &[&names[types.len()]], &["limit"]));
    nodes.push(node("Range", "r", &["start", "limit", "step"], &["y"]));
    let mut m = model(nodes);
    let graph = graph_of(&mut m);
    graph.initializer =
        vec![longs("zero", &[0]), floats("start", &[], &[1.0]), floats("step", &[], &[2.0])];
    graph.output[0] = info("y", 1, &["n"]);
    m
}

#[test]
fn they_may_end_at_a_size() {
    // FLOAT, INT32, DOUBLE.
    for types in [&[1][..], &[6, 1], &[11, 1]] {
        let m = read(&to_a_size(types)).unwrap();
        let ty = m.graph.fact(m.graph.outputs[0]).to_string();
        assert!(!ty.contains("y_d0"), "its length is a size of the input, found {ty}");
        let x = Tensor::of(&[6, 4], &[0f32; 24]);
        let y = evaluate(&m.graph, &[x.into()]).unwrap();
        assert_eq!(y[0].as_tensor().unwrap(), &Tensor::of(&[3], &[1f32, 3.0, 5.0]), "{types:?}");
    }
}

#[test]
fn a_number_that_is_not_the_size_any_more_is_none() {
    // BOOL, FLOAT16, UINT8.
    let lists: [&[f32]; 3] = [&[], &[1.0, 3.0, 5.0], &[1.0, 3.0, 5.0]];
    for (types, list) in [&[9, 1][..], &[10, 1], &[2, 1]].into_iter().zip(lists) {
        let m = read(&to_a_size(types)).unwrap();
        // Its length is data.
        let ty = m.graph.fact(m.graph.outputs[0]).to_string();
        assert!(ty.starts_with("f32[y_d0"), "{types:?}: {ty}");
        let x = Tensor::of(&[6, 4], &[0f32; 24]);
        let y = evaluate(&m.graph, &[x.into()]).unwrap();
        let expected = Tensor::of(&[list.len() as i64], list);
        assert_eq!(y[0].as_tensor().unwrap(), &expected, "{types:?}");
    }
}
