//! oneDNN's convolutions and products with what follows them, loaded when it is first needed. Images have
//! their channels last; weights are brought once into the order that the library likes. Each primitive stays
//! on the thread that calls it; our threads take parts of the rows.

mod engine;
mod kernel;
#[cfg(test)]
mod tests;

use crate::{
    library::{self, Found, Wanted},
    matrices::Matrices,
    native::{Chain, PLAIN, View, chains, is_column_bias},
    proposal::{self, Proposal},
};
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Proposals, Setting,
};
use bricolage_ir::{Graph, Node, NodeId, Numerics, Op, ValueId};
use bricolage_kernels::{Post, Unary};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::{Format, Tensor};
use kernel::{After, Conv, IMAGE, KERNEL, Primitives, Spec, Work};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NAME: &str = "onednn";
/// Raised whenever the work is cut or described in another way.
const ADAPTER: &str = "1";

const WANTED: Wanted = Wanted {
    variable: "BRICOLAGE_ONEDNN",
    files: &["libdnnl.so.3"],
    folders: &["lib"],
    packaged: "onednn",
    package: "onednn_cpu_gomp",
};

/// oneDNN as a backend.
#[derive(Clone, Debug)]
pub struct OneDnn {
    library: Result<Found, String>,
}

impl OneDnn {
    /// The environment variable in which the user names the library.
    pub const VARIABLE: &str = WANTED.variable;

    /// Looks for the library, and does not load it.
    ///
    /// `named` is a library file, or a folder that holds it: a Python environment or a release. Where
    /// nothing is named, the library is looked for in the Python environment `environment`, and then where
    /// the system's loader looks.
    pub fn find(named: Option<&Path>, environment: Option<&Path>) -> OneDnn {
        OneDnn { library: library::find(&WANTED, named, environment) }
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }
}

/// What a contraction reads and does, before what follows it.
struct Anchor {
    work: Work,
    /// With the formats in which they are read.
    inputs: Vec<(ValueId, Format)>,
    weights: Option<Tensor>,
    bias: Option<Tensor>,
    format: Format,
    macs: f64,
}

fn anchor(view: &View<'_>, chain: &Chain) -> Result<Anchor, String> {
    match &view.node(chain.anchor).op {
        Op::Conv(_) => convolution(view, chain.anchor),
        _ => product(view, chain),
    }
}

fn convolution(view: &View<'_>, at: NodeId) -> Result<Anchor, String> {
    let node = view.node(at);
    let Op::Conv(op) = &node.op else { return Err("needs a convolution".to_owned()) };
    let image = |v: Option<ValueId>| {
        let dims = v.and_then(|v| view.float_dims(v)).unwrap_or_default();
        <[i64; 4]>::try_from(dims.clone())
            .map_err(|_| format!("needs f32 images of two spatial dims, found dims {dims:?}"))
    };
    let x = view.operand(node, 0);
    let (input, output) = (image(x)?, image(node.outputs.first().copied())?);
    let x = x.ok_or("needs an image")?;
    let constant = |i: usize| view.operand(node, i).map(|v| view.constant(v).cloned());
    let weights = constant(1).flatten().ok_or("needs constant weights")?;
    let bias = constant(2).map(|b| b.ok_or("needs a constant bias")).transpose()?;
    if input.contains(&0) || output.contains(&0) {
        return Err("needs images with elements".to_owned());
    }
    let pair = |all: &[i64]| [all[0], all[1]];
    let (filter, channels) = (pair(&weights.dims()[2..]), weights.dims()[1]);
    let conv = Conv {
        input,
        output,
        kernel: filter,
        strides: pair(&op.strides),
        dilations: pair(&op.dilations),
        pads: [op.pads[0], op.pads[1]],
        groups: op.groups,
    };
    let reads_some = |d: usize| {
        let end = (output[2 + d] - 1) * conv.strides[d] + (filter[d] - 1) * conv.dilations[d] + 1;
        let before = conv.pads[d].0;
        end > before && before + input[2 + d] > 0
    };
    if !(reads_some(0) && reads_some(1)) {
        return Err("needs windows that reach the image, found nothing but padding".to_owned());
    }
    let macs = output.iter().product::<i64>() as f64 * (channels * filter[0] * filter[1]) as f64;
    Ok(Anchor {
        work: Work::Conv(conv),
        inputs: vec![(x, IMAGE)],
        weights: Some(weights),
        bias,
        format: IMAGE,
        macs,
    })
}

fn product(view: &View<'_>, chain: &Chain) -> Result<Anchor, String> {
    let (matrices, a, b) = Matrices::of(view, chain.anchor)?;
    if view.constant(a).is_some() {
        return Err("needs a left factor that is no constant".to_owned());
    }
    let weights = view.constant(b).cloned();
    if weights.is_some() && matrices.b_batch.iter().any(|&d| d != 1) {
        return Err("needs one right factor where it is a constant".to_owned());
    }
    let mut inputs = vec![(a, PLAIN)];
    if weights.is_none() {
        inputs.push((b, PLAIN));
    }
    let bias = chain.bias.and_then(|v| view.constant(v));
    let bias = bias.map(|b| b.reshaped(&[matrices.n]).map_err(|e| e.to_string())).transpose()?;
    let macs = matrices.macs();
    let work = Work::Product(matrices, weights.is_some());
    Ok(Anchor { work, inputs, weights, bias, format: PLAIN, macs })
}

/// What follows a contraction, if the library has it.
fn steps(posts: &[Post]) -> Option<Vec<After>> {
    let one = |post: &Post| match *post {
        Post::Add => Some(After::Add),
        Post::Unary(Unary::Relu) => Some(After::Clamp(0.0, f32::INFINITY)),
        Post::Unary(Unary::Clip { min, max }) => Some(After::Clamp(min, max)),
        Post::Unary(_) => None,
    };
    posts.iter().map(one).collect()
}

/// Every chain that ends at `exit` and starts at a convolution or product.
fn proposals(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal<Spec>>, String> {
    let is_anchor = |n: &Node| matches!(n.op, Op::Conv(_) | Op::MatMul(_));
    let is_bias = |p: NodeId, c: ValueId| {
        matches!(view.node(p).op, Op::MatMul(_)) && is_column_bias(view, p, c)
    };
    let mut all = Vec::new();
    for chain in chains(view, exit, &is_anchor, &is_bias) {
        let Some(after) = steps(&chain.posts) else { continue };
        let Anchor { work, mut inputs, weights, bias, format, macs } = anchor(view, &chain)?;
        inputs.extend(chain.residual.map(|r| (r, format.clone())));
        let name = if matches!(work, Work::Conv(_)) { "conv" } else { "matmul" };
        let candidate = view.candidate(
            chain.nodes.clone(),
            &inputs,
            &[format],
            (&chain.name(name), "primitive".to_owned()),
            Numerics::Reassociates,
            view.compute_ns(macs),
        )?;
        let threads = u32::try_from(view.setting.threads).map_err(|e| e.to_string())?;
        let spec = Spec { work, bias: bias.is_some(), after, threads };
        let constants = weights.into_iter().chain(bias).collect();
        all.push(Proposal { candidate, spec, constants });
    }
    Ok(all)
}

impl Backend for OneDnn {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Supplement
    }

    fn version(&self) -> String {
        let library = self.library.as_ref().map_or("absent", |l| l.version.as_str());
        format!("{library}/{ADAPTER}")
    }

    fn status(&self) -> BackendStatus {
        let covers = "f32 convolutions over two dims, channels last, and products of matrices, with a bias, an \
                      addition and limits";
        library::status(NAME, &WANTED, &self.library, "onednn-cpu-gomp", covers)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let view = View { graph, setting: *setting };
        proposal::answer(proposals(&view, exit), exit, "primitive")
    }

    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let view = View { graph, setting: *setting };
        let all = proposals(&view, candidate.region.exit())?;
        let (spec, built_in) = proposal::parts(all, candidate)?;
        let kernel = Primitives::new(self.path()?, spec, built_in.clone())?;
        Ok(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in })
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        if recipe.kernel != KERNEL {
            return Err(format!("has no kernel `{}`", recipe.kernel));
        }
        let spec: Spec = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
        let kernel = Primitives::new(self.path()?, spec, built_in.to_vec())?;
        kernel.compile()?;
        Ok(Arc::new(kernel))
    }
}
