//! Operators of the domain `ai.onnx.ml`.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    Real, TypeError,
    ops::{
        Aggregate, Binary, Branch, Cast, Finish, Gather, Labels, Lookup, Question, TreeEnsemble,
        TreeNode,
    },
};
use bricolage_tensor::{DType, Dim, Tensor, Type};

/// Most targets of an ensemble of trees.
const MOST_TARGETS: usize = 1 << 24;

/// 1 above a threshold, else 0.
pub(crate) fn binarizer(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let threshold = at.float("threshold", 0.0)?;
    let dtype = at.ty(x)?.dtype;
    let threshold = at.scalar(dtype, threshold.into());
    let above = at.add(Binary::Greater, &[x, threshold])?;
    at.one(Cast::to(dtype), &[above])
}

/// `(x - offset) * scale`, with a number for all features or one for each; the result is `f32`.
pub(crate) fn scaler(at: &mut At<'_, '_>) -> Imported {
    let mut x = at.all(1, 1)?[0];
    let dtype = match at.ty(x)?.dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    if at.ty(x)?.dtype != dtype {
        x = at.add(Cast::to(dtype), &[x])?;
    }
    for (name, op) in [("offset", Binary::Sub), ("scale", Binary::Mul)] {
        let Some(list) = at.floats(name).filter(|l| !l.is_empty()) else {
            return malformed(format!("needs numbers as `{name}`, found none"));
        };
        let numbers: Vec<f64> = list.into_iter().map(f64::from).collect();
        let numbers = Tensor::from_f64(dtype, &[numbers.len() as i64], &numbers);
        let numbers = at.tensor_value(numbers);
        x = at.add(op, &[x, numbers])?;
    }
    match dtype {
        DType::F32 => Ok(vec![x]),
        _ => at.one(Cast::to(DType::F32), &[x]),
    }
}

/// Features at given positions of the last dim, all of one row for an operand of one dim.
pub(crate) fn feature_extractor(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let rank = at.rank(all[0])?;
    if rank == 0 {
        return Err(TypeError::Rank { operand: 0, min: 1, max: usize::MAX, got: 0 }.into());
    }
    let count = match at.ty(all[1])?.shape.elements() {
        n if n.as_const() == Some(0) => {
            return malformed("needs at least one position, found none");
        }
        n => n,
    };
    let places = at.reshape(all[1], vec![count.clone()])?;
    let taken = at.add(Gather { axis: rank - 1 }, &[all[0], places])?;
    match rank {
        1 => Ok(vec![at.reshape(taken, vec![Dim::from(1), count])?]),
        _ => Ok(vec![taken]),
    }
}

/// Labels of the attributes with one of these names, and their element type.
fn labels(
    at: &mut At<'_, '_>,
    [tensor, texts, ints, floats]: [&'static str; 4],
) -> Result<Option<(Labels, DType)>, Fault> {
    if let Some(t) = at.text_tensor(tensor)? {
        return Ok(Some((Labels::Texts(t.elements().to_vec()), DType::F32)));
    }
    if let Some(t) = at.tensor(tensor)? {
        return Ok(Some((of_tensor(&t), t.dtype())));
    }
    if let Some(list) = at.texts(texts)? {
        return Ok(Some((Labels::Texts(list), DType::F32)));
    }
    if let Some(list) = at.ints(ints)? {
        return Ok(Some((Labels::Ints(list), DType::I64)));
    }
    let list = at.floats(floats).map(|l| l.into_iter().map(Real::from).collect());
    Ok(list.map(|list| (Labels::Reals(list), DType::F32)))
}

fn of_tensor(t: &Tensor) -> Labels {
    match t.dtype().is_float() {
        true => Labels::Reals(t.to_f64().into_iter().map(Real::new).collect()),
        false => Labels::Ints(t.to_i64()),
    }
}

pub(crate) fn label_encoder(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let keys = ["keys_tensor", "keys_strings", "keys_int64s", "keys_floats"];
    let values = ["values_tensor", "values_strings", "values_int64s", "values_floats"];
    let default_tensor = match at.text_tensor("default_tensor")? {
        Some(t) => t.elements().first().cloned().map(|t| Labels::Texts(vec![t])),
        None => at.tensor("default_tensor")?.map(|t| of_tensor(&t)),
    };
    let (text, int) = (at.text("default_string", "_Unused")?, at.int_or("default_int64", -1)?);
    let float = at.float("default_float", -0.0)?;
    let (Some((keys, _)), Some((mut values, to))) = (labels(at, keys)?, labels(at, values)?) else {
        return malformed("needs keys and values, found none");
    };
    match (&mut values, default_tensor) {
        (Labels::Texts(v), Some(Labels::Texts(d))) => v.extend(d),
        (Labels::Ints(v), Some(Labels::Ints(d))) => v.extend(d.first()),
        (Labels::Reals(v), Some(Labels::Reals(d))) => v.extend(d.first()),
        (Labels::Texts(v), None) => v.push(text),
        (Labels::Ints(v), None) => v.push(int),
        (Labels::Reals(v), None) => v.push(Real::from(float)),
        (_, Some(other)) => {
            return malformed(format!("needs a default like the values, found {other:?}"));
        }
    }
    at.one(Lookup { keys, values, to }, &[x])
}

fn numbers(at: &mut At<'_, '_>, name: &'static str) -> Result<Vec<f64>, Fault> {
    Ok(at.tensor(name)?.map_or_else(Vec::new, |t| t.to_f64()))
}

fn index(n: i64, name: &str) -> Result<usize, Fault> {
    match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => malformed(format!("needs numbers of at least 0 as `{name}`, found {n}")),
    }
}

pub(crate) fn tree_ensemble(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let finish = match at.int_or("post_transform", 0)? {
        0 => Finish::Plain,
        1 => Finish::Softmax,
        2 => Finish::Logistic,
        3 => Finish::SoftmaxZero,
        other => {
            return unsupported(format!("needs a `post_transform` from 0 to 3, found {other}"));
        }
    };
    let aggregate = match at.int_or("aggregate_function", 1)? {
        0 => Aggregate::Mean,
        1 => Aggregate::Sum,
        2 => Aggregate::Min,
        3 => Aggregate::Max,
        other => return malformed(format!("needs a known `aggregate_function`, found {other}")),
    };
    // How often a way is taken changes nothing.
    at.ignore(&["nodes_hitrates"]);
    let mut list = |name| at.ints(name).map(Option::unwrap_or_default);
    let features = list("nodes_featureids")?;
    let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
    let (yes_leaf, no_leaf) = (list("nodes_trueleafs")?, list("nodes_falseleafs")?);
    let (targets, roots) = (list("leaf_targetids")?, list("tree_roots")?);
    let nan = list("nodes_missing_value_tracks_true")?;
    let modes = at.tensor("nodes_modes")?.map_or_else(Vec::new, |t| t.to_i64());
    let splits = numbers(at, "nodes_splits")?;
    let (weights, members) = (numbers(at, "leaf_weights")?, numbers(at, "membership_values")?);
    let count = features.len();
    for (name, found) in [
        ("nodes_truenodeids", yes.len()),
        ("nodes_falsenodeids", no.len()),
        ("nodes_trueleafs", yes_leaf.len()),
        ("nodes_falseleafs", no_leaf.len()),
        ("nodes_modes", modes.len()),
        ("nodes_splits", splits.len()),
    ] {
        if found != count {
            return malformed(format!("needs {count} numbers as `{name}`, found {found}"));
        }
    }
    if weights.len() != targets.len() {
        let (needed, found) = (targets.len(), weights.len());
        return malformed(format!("needs {needed} numbers as `leaf_weights`, found {found}"));
    }
    let branch = |leaf: i64, to: i64| -> Result<Branch, Fault> {
        let to = index(to, "nodes_truenodeids")?;
        Ok(if leaf != 0 { Branch::Leaf(to) } else { Branch::Node(to) })
    };
    // Sets of members stand one after the other, each with a NaN at its end.
    let mut sets = members.split(|v| v.is_nan());
    let mut nodes = Vec::with_capacity(count);
    for i in 0..count {
        let split = Real::new(splits[i]);
        let question = match modes[i] {
            0 => Question::LessEqual(split),
            1 => Question::Less(split),
            2 => Question::GreaterEqual(split),
            3 => Question::Greater(split),
            4 => Question::Equal(split),
            5 => Question::NotEqual(split),
            6 => {
                let Some(set) = sets.next() else {
                    return malformed("needs `membership_values` for every set, found too few");
                };
                Question::Member(set.iter().map(|&v| Real::new(v)).collect())
            }
            other => return malformed(format!("needs known `nodes_modes`, found {other}")),
        };
        nodes.push(TreeNode {
            feature: index(features[i], "nodes_featureids")?,
            question,
            nan_is_yes: nan.get(i).is_some_and(|&n| n != 0),
            yes: branch(yes_leaf[i], yes[i])?,
            no: branch(no_leaf[i], no[i])?,
        });
    }
    let mut leaves = Vec::new();
    for (&target, &weight) in targets.iter().zip(&weights) {
        leaves.push((index(target, "leaf_targetids")?, Real::new(weight)));
    }
    let mut starts = Vec::new();
    for root in roots {
        let root = index(root, "tree_roots")?;
        // A tree of one leaf is a node whose ways both lead there.
        let leaf = nodes.get(root).and_then(|n| match (n.yes, n.no) {
            (Branch::Leaf(a), Branch::Leaf(b)) if a == b => Some(Branch::Leaf(a)),
            _ => None,
        });
        starts.push(leaf.unwrap_or(Branch::Node(root)));
    }
    let most = leaves.iter().map(|l| l.0 as i64 + 1).max().unwrap_or(0);
    let targets = index(at.int_or("n_targets", most)?, "n_targets")?;
    if targets > MOST_TARGETS {
        return malformed(format!("needs at most {MOST_TARGETS} targets, found {targets}"));
    }
    let op = TreeEnsemble { nodes, leaves, roots: starts, targets, aggregate, finish };
    match at.any_ty(x) {
        Type::Tensor(t) if !t.dtype.is_float() => {
            let wide = at.add(Cast::to(DType::F32), &[x])?;
            at.one(op, &[wide])
        }
        _ => at.one(op, &[x]),
    }
}
