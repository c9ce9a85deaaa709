//! ONNX bytes to and from the graph; the only crate that knows protobuf and opsets.

mod proto;
