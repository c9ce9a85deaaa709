//! The header and the types are the same interface: C says what it sees, and Rust knows what that must be.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage_plugin::{
    ABI, Backend, Binding, CANCELLED, DETERMINISTIC, DOMAIN, DTYPES, FAILED, Host, Layout, NONE,
    Node, OK, Plan, REFUSED, Role, Subgraph, Tensor, VERSION, Value,
};
use std::{fmt::Write, fs, mem::offset_of, path::Path, process::Command};

fn sample() -> Subgraph {
    let tensor = |name: &str, role: Role, dims: &[i64], strides: &[i64]| Tensor {
        name: name.to_owned(),
        role,
        dims: dims.to_vec(),
        strides: strides.to_vec(),
        bytes: 4 * dims.iter().product::<i64>().unsigned_abs(),
        ..Tensor::default()
    };
    let mut x = tensor("x", Role::Input(0), &[1, 2, 3, 4], &[24, 1, 8, 2]);
    x.layout = Layout::ChannelsLast { halo: 1 };
    let mut w = tensor("wéights", Role::Constant(0), &[2, 2], &[2, 1]);
    (w.data, w.dtype) = (4096, 7);
    let mut y = tensor("y", Role::Output(0), &[1, 16, 1], &[16, 8, 8]);
    y.layout = Layout::Blocked { block: 8, halo: 0 };
    let text = |t: &str| Value::Text(t.to_owned());
    let pads = Value::List(vec![
        Value::List(vec![Value::Int(1), Value::Int(-2)]),
        Value::Fields(vec![("a".to_owned(), Value::Null), ("b".to_owned(), text("words"))]),
    ]);
    let mean = Value::Fields(vec![(
        "Mean".to_owned(),
        Value::Fields(vec![("x".to_owned(), Value::Bool(true))]),
    )]);
    Subgraph {
        entry: "conv".to_owned(),
        threads: 3,
        numerics: 1,
        tensors: vec![x, w, tensor("", Role::Inner, &[], &[]), y],
        nodes: vec![
            Node {
                op: "conv".to_owned(),
                operands: vec![Some(0), Some(1), None],
                results: vec![Some(2)],
                attributes: vec![
                    ("groups".to_owned(), Value::Real(-0.5)),
                    ("pads".to_owned(), pads),
                ],
            },
            Node {
                op: "pool".to_owned(),
                operands: vec![Some(2)],
                results: vec![Some(3), None],
                attributes: vec![("kind".to_owned(), mean), ("pads".to_owned(), Value::Real(0.1))],
            },
        ],
        inputs: vec![0],
        outputs: vec![3],
        constants: vec![1],
        bindings: vec![
            Binding { name: "x".to_owned(), tensor: Some(0), node: None, held: true },
            Binding { name: "y".to_owned(), tensor: Some(3), node: Some(1), held: true },
            Binding { name: "b".to_owned(), ..Binding::default() },
        ],
    }
}

macro_rules! offsets {
    ($text:ident $($name:literal $type:ident: $($field:ident)*;)*) => {
        $($(writeln!($text, "{} {} {}", $name, stringify!($field), offset_of!($type, $field)).unwrap();)*)*
    };
}

/// What the C program must print.
fn expected() -> String {
    let mut text = String::new();
    writeln!(text, "abi {ABI} magic {} version {VERSION}", u32::from_le_bytes(*b"BCSG")).unwrap();
    writeln!(text, "status {OK} {REFUSED} {DOMAIN} {FAILED} {CANCELLED} flag {DETERMINISTIC}")
        .unwrap();
    let sizes = [size_of::<Host>(), size_of::<Plan>(), size_of::<Backend>()];
    writeln!(text, "sizes {} {} {}", sizes[0], sizes[1], sizes[2]).unwrap();
    offsets! { text
        "bricolage_host" Host: abi size context threads parallel_for cancelled log reason;
        "bricolage_plan" Plan: size flags workspace;
        "bricolage_backend_table" Backend: abi size name version patterns entries entry_count own_threads
            plan compile run destroy;
    }
    let code = |name| DTYPES.iter().position(|(n, _)| *n == name).unwrap();
    writeln!(text, "dtypes {} {} {}", code("f32"), code("bool"), code("u2")).unwrap();
    text.push_str(&format!(
        "entry conv threads 3 numerics 1
tensor x role 1 place 0 dtype 0 layout 1 0 1 bytes 96 data 0 1/24 2/1 3/8 4/2
tensor wéights role 3 place 0 dtype 7 layout 0 0 0 bytes 16 data 4096 2/2 2/1
tensor  role 0 place {NONE} dtype 0 layout 0 0 0 bytes 4 data 0
tensor y role 2 place 0 dtype 0 layout 2 8 0 bytes 64 data 0 1/16 16/8 1/8
node conv 0 1 -1 -> 2 pads ( ( 1 -2 ) ( a:null b:'words' ) ) kind null none null
node pool 2 -> 3 -1 pads 0x1.999999999999ap-4 kind ( x:true ) none null
input 0
output 3
constant 1
bound 0 1 1 0 0
"
    ));
    text
}

#[test]
fn c_sees_what_rust_sees() {
    let folder = std::env::temp_dir().join(format!("bricolage-header-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (program, file) = (folder.join("header"), folder.join("subgraph"));
    fs::write(&file, sample().encode()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-I"])
        .arg(root.join("../../include"))
        .arg(root.join("tests/header.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("this test needs the C compiler `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let printed = Command::new(&program).arg(&file).output().unwrap();
    assert!(printed.status.success(), "{}", printed.status);
    assert_eq!(String::from_utf8_lossy(&printed.stdout), expected());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bytes_are_read_as_they_were_written() {
    let sample = sample();
    assert_eq!(Subgraph::decode(&sample.encode()), Ok(sample));
    let empty = Subgraph::default();
    assert_eq!(Subgraph::decode(&empty.encode()), Ok(empty));
}

#[test]
fn damaged_bytes_are_refused_or_mean_something() {
    let bytes = sample().encode();
    for len in 0..bytes.len() {
        assert!(Subgraph::decode(&bytes[..len]).is_err(), "{len}");
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 7, 0x7F, 0x80, 0xFF] {
            let mut changed = bytes.clone();
            changed[at] = value;
            // What is read can be written.
            if let Ok(read) = Subgraph::decode(&changed) {
                let again = Subgraph::decode(&read.encode()).unwrap();
                assert_eq!(again.encode(), read.encode());
            }
        }
    }
}
