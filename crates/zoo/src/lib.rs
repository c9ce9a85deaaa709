//! Model architectures built in Rust with seeded weights, written as ONNX.
use bricolage_ir::Graph;
/// One model.
pub struct Entry {
    /// Name.
    pub name: &'static str,
    /// What.
    pub description: &'static str,
}
/// All.
pub fn list() -> &'static [Entry] {
    &[]
}
/// Builds.
pub fn build(_: &str, _: i64, _: u64) -> Result<Graph, String> {
    Err("soon".into())
}
