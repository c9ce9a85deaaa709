//! Names of sizes that no input has, settled by the values that are declared with them.

use super::Importer;
use crate::proto::{tensor_shape_proto::dimension::Value as DimValue, type_proto::Value};
use bricolage_ir::Op;
use bricolage_tensor::{Dim, Symbol};
use std::collections::{BTreeSet, HashMap};

impl Importer<'_> {
    /// A node without meaning here has results of declared types, whose sizes may have names. Where a
    /// value of known size is declared with the same name, the name means that size; a name that would
    /// mean several keeps none.
    pub(super) fn settle_sizes(&mut self) {
        let opaque = |n| matches!(self.graph.node(n).op, Op::Opaque(_));
        if !self.graph.nodes().any(opaque) {
            return;
        }
        let given: BTreeSet<Symbol> = self.graph.symbols();
        let mut meanings: HashMap<Symbol, Option<Dim>> = HashMap::new();
        for (name, declared) in &self.declared {
            let Some(Some(value)) = self.values.get(name) else { continue };
            let Some(found) = self.graph.fact(*value).ty.as_tensor() else { continue };
            let Some(Value::TensorType(t)) = &declared.value else { continue };
            let dims = t.shape.as_ref().map_or(&[][..], |s| &s.dim);
            if dims.len() != found.shape.len() {
                continue;
            }
            for (dim, have) in dims.iter().zip(found.shape.iter()) {
                let Some(DimValue::DimParam(name)) = &dim.value else { continue };
                let symbol = self.symbols.get(name).and_then(Dim::as_symbol);
                let Some(symbol) = symbol.filter(|s| !given.contains(s)) else { continue };
                let mut used = Vec::new();
                have.symbols(&mut used);
                if used.iter().all(|s| given.contains(s)) {
                    let meaning =
                        meanings.entry(symbol.clone()).or_insert_with(|| Some(have.clone()));
                    if meaning.as_ref() != Some(have) {
                        *meaning = None;
                    }
                }
            }
        }
        if meanings.values().all(Option::is_none) {
            return;
        }
        // Declarations that the operators contradict are worth nothing.
        if let Ok(settled) = self.graph.bind(&|s| meanings.get(s).cloned().flatten()) {
            self.graph = settled;
        }
    }
}
