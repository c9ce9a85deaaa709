//! Model architectures built in Rust with seeded weights, written as ONNX.
