//! Random graphs whose sizes are open: random graphs of fixed sizes, some sizes of whose inputs become
//! symbols, as far as the ops allow.

use crate::Case;
use bricolage_ir::{Graph, Op, Role, ValueId, ops};
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Symbol, Tensor, TensorType};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Symbols by the sizes that they take the place of, in every input and shape.
type Opened = BTreeMap<i64, Symbol>;

/// The graph of a case with one or two sizes open; nodes that need the fixed size are left out, and so are
/// those whose results jump where their operands are rounded. `None` when nothing of open size is left.
pub fn open(case: &Case, rng: &mut Rng) -> Option<Graph> {
    let old = &case.graph;
    let mut opened = Opened::new();
    for name in ["n", "m"].iter().take(1 + rng.below(2)) {
        let input = old.inputs[rng.below(old.inputs.len())];
        let dims = old.fact(input).ty.as_tensor()?.shape.as_fixed()?;
        if !dims.is_empty() {
            opened.entry(dims[rng.below(dims.len())]).or_insert_with(|| Symbol(Arc::from(*name)));
        }
    }
    let mut new = Graph::new(old.name.clone());
    let mut map: HashMap<ValueId, ValueId> = HashMap::new();
    for id in old.values() {
        let value = old.value(id);
        match &value.role {
            Role::Input => {
                let ty = value.fact.ty.as_tensor()?;
                let own = |d: &Dim| Some(Dim::symbol(&opened.get(&d.as_const()?)?.0));
                let dims = ty.shape.0.iter().map(|d| own(d).unwrap_or_else(|| d.clone()));
                let shape = Shape(dims.collect());
                map.insert(id, new.input(&value.name, TensorType { dtype: ty.dtype, shape }));
            }
            Role::Constant(t) => drop(map.insert(id, new.constant(&value.name, t.clone()))),
            _ => {}
        }
    }
    for id in old.order() {
        let node = old.node(id);
        if is_jumping(old, &node.op, &node.inputs, &node.outputs) {
            continue;
        }
        let inputs: Option<Vec<Option<ValueId>>> = node
            .inputs
            .iter()
            .map(|v| v.map_or(Some(None), |v| map.get(&v).map(|&v| Some(v))))
            .collect();
        let Some(inputs) = inputs else { continue };
        for op in [with_opened_shape(&node.op, &opened), node.op.clone()] {
            if let Ok(outputs) = new.add(op, &inputs, node.origin.clone()) {
                map.extend(node.outputs.iter().copied().zip(outputs));
                break;
            }
        }
    }
    let results: Vec<ValueId> = new.nodes().flat_map(|n| new.node(n).outputs.clone()).collect();
    new.outputs = results.into_iter().filter(|&v| new.uses(v).is_empty()).collect();
    let is_open = |&v: &ValueId| {
        let ty = new.fact(v).ty.as_tensor();
        ty.is_some_and(|t| t.shape.as_fixed().is_none())
    };
    new.outputs.iter().any(is_open).then_some(new)
}

/// Every size that has a symbol, and small multiples of one, through it.
fn opened_shape(shape: &Shape, opened: &Opened) -> Shape {
    let one = |dim: &Dim| {
        let size = dim.as_const()?;
        (1..=4).find_map(|times| {
            let part = size / times;
            let symbol = opened.get(&part).filter(|_| part * times == size)?;
            let is_plain = times == 1 || part > 1;
            is_plain.then(|| &Dim::symbol(&symbol.0) * &Dim::from(times))
        })
    };
    Shape(shape.0.iter().map(|d| one(d).unwrap_or_else(|| d.clone())).collect())
}

fn with_opened_shape(op: &Op, opened: &Opened) -> Op {
    match op {
        Op::Reshape(r) => ops::Reshape { to: opened_shape(&r.to, opened) }.into(),
        Op::Expand(e) => ops::Expand { to: opened_shape(&e.to, opened) }.into(),
        other => other.clone(),
    }
}

/// Whether a small change of a float can change a result much.
fn is_jumping(graph: &Graph, op: &Op, inputs: &[Option<ValueId>], outputs: &[ValueId]) -> bool {
    let is_float = |v: &ValueId| graph.fact(*v).ty.as_tensor().is_some_and(|t| t.dtype.is_float());
    let jumps = matches!(
        op,
        Op::Unary(
            ops::Unary::Floor
                | ops::Unary::Ceil
                | ops::Unary::Round
                | ops::Unary::Trunc
                | ops::Unary::Sign
                | ops::Unary::ThresholdedRelu { .. }
        ) | Op::Binary(ops::Binary::Mod | ops::Binary::Fmod)
    );
    inputs.iter().flatten().any(is_float) && (jumps || !outputs.iter().all(is_float))
}

/// Inputs for an open graph at these sizes.
pub fn draw_inputs(graph: &Graph, sizes: &HashMap<Symbol, i64>, rng: &mut Rng) -> Vec<Datum> {
    let one = |&input: &ValueId| {
        let ty = graph.fact(input).ty.as_tensor().expect("inputs of random graphs are tensors");
        let dims: Vec<i64> = ty
            .shape
            .0
            .iter()
            .map(|d| d.substitute(&|s| sizes.get(s).map(|&n| Dim::from(n))).as_const().unwrap_or(1))
            .collect();
        let tensor = Tensor::generate(ty.dtype, &dims, |_| match ty.dtype {
            DType::Bool => rng.below(2) as f64,
            d if d.is_float() => rng.normal().clamp(-3.0, 3.0),
            _ => rng.below(3) as f64,
        });
        Datum::from(tensor)
    };
    graph.inputs.iter().map(one).collect()
}
