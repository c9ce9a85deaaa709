//! Decision trees.

use super::{
    OpDef,
    elements::one,
    results,
    types::{Operands, attribute, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Real, TypeError};
use bricolage_tensor::{Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// What a node asks of its feature.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Question {
    LessEqual(Real),
    Less(Real),
    GreaterEqual(Real),
    Greater(Real),
    Equal(Real),
    NotEqual(Real),
    /// Whether it is one of these.
    Member(Vec<Real>),
}

impl Question {
    fn holds(&self, x: f64) -> bool {
        match self {
            Question::LessEqual(v) => x <= v.get(),
            Question::Less(v) => x < v.get(),
            Question::GreaterEqual(v) => x >= v.get(),
            Question::Greater(v) => x > v.get(),
            Question::Equal(v) => x == v.get(),
            Question::NotEqual(v) => x != v.get(),
            Question::Member(all) => all.iter().any(|v| v.get() == x),
        }
    }
}

/// Where to go from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Branch {
    /// To a node.
    Node(usize),
    /// To a leaf: the end.
    Leaf(usize),
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeNode {
    /// Which feature.
    pub feature: usize,
    /// What is asked.
    pub question: Question,
    /// NaN goes where the answer is yes.
    pub nan_is_yes: bool,
    /// Where to go if so; a later node, or a leaf.
    pub yes: Branch,
    /// Where to go if not; a later node, or a leaf.
    pub no: Branch,
}

/// How the leaves of all trees make one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Aggregate {
    Mean,
    Sum,
    Min,
    Max,
}

/// What is done with the values of a row in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Finish {
    /// Nothing.
    Plain,
    /// `exp(x) / sum(exp(x))`.
    Softmax,
    /// `1 / (1 + exp(-x))`.
    Logistic,
    /// Softmax over the values other than 0.
    SoftmaxZero,
}

/// Decision trees: each row of `[n, features]` goes through every tree, and the weights of the leaves
/// that it comes to make `[n, targets]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeEnsemble {
    /// The nodes of all trees.
    pub nodes: Vec<TreeNode>,
    /// Target and weight of every leaf.
    pub leaves: Vec<(usize, Real)>,
    /// Where each tree starts.
    pub roots: Vec<Branch>,
    /// Number of targets.
    pub targets: usize,
    /// How leaves of several trees go together.
    pub aggregate: Aggregate,
    /// What is done in the end.
    pub finish: Finish,
}

impl TreeEnsemble {
    /// Number of features that the nodes ask for.
    fn features(&self) -> usize {
        self.nodes.iter().map(|n| n.feature + 1).max().unwrap_or(0)
    }

    fn leaf(&self, mut at: Branch, row: &[f64]) -> Result<usize, EvalError> {
        // A way longer than there are nodes has come by one twice.
        for _ in 0..=self.nodes.len() {
            let node = match at {
                Branch::Leaf(leaf) => return Ok(leaf),
                Branch::Node(node) => &self.nodes[node],
            };
            let x = row[node.feature];
            let yes = node.question.holds(x) || (node.nan_is_yes && x.is_nan());
            at = if yes { node.yes } else { node.no };
        }
        Err(EvalError::Domain {
            operand: 0,
            what: "a way through the nodes without end".to_owned(),
        })
    }
}

fn finish(finish: Finish, row: &mut [f64]) {
    let taken = |x: f64| finish == Finish::Softmax || x != 0.0;
    match finish {
        Finish::Plain => {}
        Finish::Logistic => row.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
        Finish::Softmax | Finish::SoftmaxZero => {
            let max = row.iter().copied().filter(|&x| taken(x)).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.iter().filter(|&&x| taken(x)).map(|x| (x - max).exp()).sum();
            row.iter_mut().filter(|x| taken(**x)).for_each(|x| *x = (*x - max).exp() / sum);
        }
    }
}

impl OpDef for TreeEnsemble {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let x = Operands::new(inputs, 1, 1)?.float(0)?;
        expect_rank(0, x, 2, 2)?;
        let (nodes, leaves) = (self.nodes.len(), self.leaves.len());
        let inside = |b: &Branch| match b {
            Branch::Node(n) => *n < nodes,
            Branch::Leaf(l) => *l < leaves,
        };
        let branches = self.nodes.iter().flat_map(|n| [&n.yes, &n.no]).chain(&self.roots);
        if let Some(outside) = branches.into_iter().find(|b| !inside(b)) {
            let expected = format!("one of {nodes} nodes or {leaves} leaves");
            return Err(attribute("nodes", expected, outside));
        }
        if let Some((target, _)) = self.leaves.iter().find(|l| l.0 >= self.targets) {
            return Err(attribute("leaves", format!("targets below {}", self.targets), target));
        }
        let (features, have) = (self.features(), &x.shape[1]);
        if have.as_const().is_some_and(|n| n < features as i64) {
            let (expected, got) = (Dim::from(features as i64), have.clone());
            return Err(TypeError::Dim { operand: 0, dim: 1, expected, got });
        }
        Ok(vec![Fact::tensor(x.dtype, [x.shape[0].clone(), Dim::from(self.targets as i64)])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let x = inputs.tensor(0)?;
        let width = x.dims()[1] as usize;
        let mut out = vec![0.0; dims.iter().product::<i64>() as usize];
        if width > 0 {
            let rows = x.to_f64();
            for (row, out) in rows.chunks(width).zip(out.chunks_mut(self.targets.max(1))) {
                match self.aggregate {
                    Aggregate::Min => out.fill(f64::INFINITY),
                    Aggregate::Max => out.fill(f64::NEG_INFINITY),
                    _ => {}
                }
                for &root in &self.roots {
                    let (target, weight) = self.leaves[self.leaf(root, row)?];
                    let (slot, weight) = (&mut out[target], weight.get());
                    match self.aggregate {
                        Aggregate::Sum => *slot += weight,
                        Aggregate::Mean => *slot += weight / self.roots.len() as f64,
                        Aggregate::Min => *slot = slot.min(weight),
                        Aggregate::Max => *slot = slot.max(weight),
                    }
                }
                // A target that no tree came to.
                out.iter_mut().filter(|x| x.is_infinite()).for_each(|x| *x = 0.0);
                finish(self.finish, out);
            }
        }
        one(Tensor::from_f64(dtype, &dims, &out))
    }

    /// Rows are independent of each other.
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        map.axes[1].kind = AxisKind::Opaque;
        let features = map.add("f", &x.shape[1], AxisKind::Opaque);
        map.inputs = vec![Some(vec![Index::axis(0), Index::axis(features)])];
        map
    }
}
