//! Open sizes: ranges, artefacts that run at every size in them, models that tell sizes themselves.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::{DType, Dim, Tensor, TensorType};
use folder::{Folder, model};
use std::fs;

/// Succeeds, and says `words` on either stream.
fn says(f: &Folder, arguments: &[&str], words: &[&str]) -> String {
    let output = f.run(arguments);
    let said = [output.stdout, output.stderr].map(|s| String::from_utf8_lossy(&s).into_owned());
    let said = said.concat();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?} says\n{said}\nwithout `{word}`");
    }
    said
}

fn give(f: &Folder, name: &str, rows: i64) {
    let x = Tensor::generate(DType::F32, &[rows, 4], |i| i as f64 - 3.0);
    bricolage::npz::write(&f.0.join(name), &[("x".to_owned(), x)]).unwrap();
}

#[test]
fn an_artefact_runs_at_every_size_in_its_range() {
    let f = Folder::new("range");
    model(&f.0);
    let optimize = ["optimize", "small.onnx@native", "--time-limit", "1s", "-o", "s.bricolage"];
    f.fails(&optimize, 2, &["`x` has the symbolic type", "--shape"], &["s.bricolage"]);
    for (shape, word) in [
        ("n:8..1", "the smaller end first"),
        ("n:1..", "needs sizes like"),
        ("m:1..8", "no open size of that name"),
        ("n:1..2x3", "no open size of that name"),
        ("x:1..8x5", "found 5 where it has 4"),
        ("n:1..9000000000000", "bytes of memory"),
    ] {
        f.fails(&[&optimize[..], &["--shape", shape]].concat(), 2, &[word], &["s.bricolage"]);
    }
    let shapes = ["--shape", "n:1..8", "--shape", "x:0..9x4"];
    says(&f, &[&optimize[..], &shapes].concat(), &["at n=8", "n 1..8"]);
    says(&f, &["explain", "s.bricolage"], &["memory", "at n=8", "n 1..8"]);
    assert!(!says(&f, &["run", "s.bricolage"], &["f32[8, 3]"]).contains("not measured"));
    let small = ["run", "s.bricolage", "--shape", "n:3"];
    says(&f, &small, &["f32[3, 3]", "`s.bricolage` at n=3: not measured"]);
    f.fails(&["run", "s.bricolage", "--shape", "n:9"], 2, &["`n` cannot be 1..8 and 9"], &[]);
    give(&f, "nine.npz", 9);
    let outside = ["input `x` has 9 for `n`, which goes from 1 to 8"];
    f.fails(&["run", "s.bricolage", "--input", "nine.npz"], 2, &outside, &[]);
    f.fails(&["run", "small.onnx", "--input", "nine.npz", "--shape", "n:1..8"], 2, &outside, &[]);
    give(&f, "five.npz", 5);
    let pair = ["compare", "small.onnx@reference", "s.bricolage"];
    says(&f, &[&pair[..], &["--input", "five.npz"]].concat(), &["ok ", "at n=5: not measured"]);
    says(&f, &[&pair[..], &["--shape", "x:1..8x4"]].concat(), &["ok "]);
    let bench = ["bench", "s.bricolage", "small.onnx@native", "--iterations", "3"];
    says(&f, &[&bench[..], &["--shape", "n:1..7"]].concat(), &["at n=7: not measured"]);
    // Its model keeps the range.
    let again = ["optimize", "s.bricolage", "--backend", "native", "-o", "t.bricolage"];
    says(&f, &[&again[..], &["--time-limit", "1s"]].concat(), &["at n=8", "n 1..8"]);
    let narrow = ["optimize", "s.bricolage", "--shape", "n:2..4", "-o", "u.bricolage"];
    says(&f, &[&narrow[..], &["--time-limit", "1s"]].concat(), &["at n=4", "n 2..4"]);
    fs::write(f.0.join("s.bricolage/model.onnx"), "x").unwrap();
    f.fails(&["run", "s.bricolage", "--shape", "n:3"], 2, &["was changed"], &[]);
}

/// The columns of what is not zero, times 2.
fn found() -> Graph {
    let mut g = Graph::new("found");
    let shape = [Dim::symbol("n"), Dim::from(4)].into_iter().collect();
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let w = g.constant("w", Tensor::generate(DType::F32, &[4, 3], |i| i as f64 - 5.0));
    let two = g.constant("two", Tensor::of(&[], &[2i64]));
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add1(product, &[x, w], origin("fc")).unwrap();
    let y = g.add1(ops::Unary::Relu, &[y], origin("relu")).unwrap();
    let at = g.add1(ops::NonZero { found: Dim::symbol("k") }, &[y], origin("at")).unwrap();
    g.outputs = vec![g.add1(ops::Binary::Mul, &[at, two], origin("twice")).unwrap(), y];
    g
}

#[test]
fn a_model_that_tells_sizes_goes_through_every_verb() {
    let f = Folder::new("found");
    fs::write(f.0.join("found.onnx"), bricolage_onnx::export(&found()).unwrap()).unwrap();
    let shape = ["--shape", "n:1..6"];
    let optimize = ["optimize", "found.onnx", "--time-limit", "2s", "-o", "f.bricolage"];
    says(&f, &[&optimize[..], &shape].concat(), &["stage 0: ", "n 1..6"]);
    says(&f, &["explain", "f.bricolage"], &["n=6"]);
    assert!(!says(&f, &["run", "f.bricolage"], &["i64[2, "]).contains("not measured"));
    give(&f, "five.npz", 5);
    let given = ["--input", "five.npz"];
    says(&f, &[&["run", "f.bricolage"][..], &given].concat(), &["n=5: not measured"]);
    for other in ["f.bricolage", "found.onnx", "found.onnx@native"] {
        let pair = ["compare", "found.onnx@reference", other];
        says(&f, &[&pair[..], &given].concat(), &["ok "]);
        says(&f, &[&pair[..], &shape].concat(), &["ok "]);
    }
    let bench = ["bench", "f.bricolage", "found.onnx@native", "--iterations", "3"];
    says(&f, &[&bench[..], &shape].concat(), &["found.onnx@native"]);
    says(&f, &[&bench[..], &["--shape", "n:2"]].concat(), &["not measured"]);
}
