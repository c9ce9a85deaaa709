//! Ops with graphs inside: what is an operand for the graph is a name from around in ONNX.

use super::writer::{
    At,
    Attr::{self, Int, Ints},
    Fault, Written, list,
};
use bricolage_ir::ops::{Along, If, Loop, Nested, Scan, SequenceMap};

/// The graph as an attribute, with the operands from `first` on as names from around.
fn attribute(
    at: &mut At<'_, '_>,
    name: &str,
    nested: &Nested,
    first: usize,
) -> Result<crate::proto::AttributeProto, Fault> {
    let captured = at.inputs.get(first..).unwrap_or_default().to_vec();
    let graph = at.writer.nested(nested.graph(), &captured).map_err(Fault::Inside)?;
    Ok(list(&[(name, Attr::Graph(&graph))]).swap_remove(0))
}

fn operands(at: &At<'_, '_>, count: usize) -> Vec<String> {
    at.inputs[..count.min(at.inputs.len())].to_vec()
}

fn finish(
    at: &mut At<'_, '_>,
    op: &str,
    inputs: &[String],
    attributes: Vec<crate::proto::AttributeProto>,
) -> Written {
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    at.finish_in("", op, &inputs, attributes)
}

pub(crate) fn choice(at: &mut At<'_, '_>, op: &If) -> Written {
    let attributes = vec![
        attribute(at, "then_branch", &op.then, 1)?,
        attribute(at, "else_branch", &op.otherwise, 1)?,
    ];
    let inputs = operands(at, 1);
    finish(at, "If", &inputs, attributes)
}

pub(crate) fn repeat(at: &mut At<'_, '_>, op: &Loop) -> Written {
    let attributes = vec![attribute(at, "body", &op.body, 2 + op.states)?];
    let inputs = operands(at, 2 + op.states);
    finish(at, "Loop", &inputs, attributes)
}

pub(crate) fn scan(at: &mut At<'_, '_>, op: &Scan) -> Written {
    let count = op.states + op.scanned.len();
    let mut attributes = vec![attribute(at, "body", &op.body, count)?];
    let axes = |all: &[Along]| -> Vec<i64> { all.iter().map(|a| a.axis as i64).collect() };
    let back = |all: &[Along]| -> Vec<i64> { all.iter().map(|a| a.reverse.into()).collect() };
    attributes.extend(list(&[
        ("num_scan_inputs", Int(op.scanned.len() as i64)),
        ("scan_input_axes", Ints(&axes(&op.scanned))),
        ("scan_input_directions", Ints(&back(&op.scanned))),
    ]));
    if !op.collected.is_empty() {
        attributes.extend(list(&[
            ("scan_output_axes", Ints(&axes(&op.collected))),
            ("scan_output_directions", Ints(&back(&op.collected))),
        ]));
    }
    let inputs = operands(at, count);
    finish(at, "Scan", &inputs, attributes)
}

/// Operands behind the last list are names from around.
pub(crate) fn map(at: &mut At<'_, '_>, op: &SequenceMap) -> Written {
    let count = 1 + op.zipped.iter().rposition(|&z| z).map_or(0, |last| last + 1);
    let attributes = vec![attribute(at, "body", &op.body, count)?];
    let inputs = operands(at, count);
    finish(at, "SequenceMap", &inputs, attributes)
}
