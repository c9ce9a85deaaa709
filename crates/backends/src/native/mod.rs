//! Our own kernels as a backend: one table of patterns, each a function from an exit node to
//! proposals.
//!
//! A proposal is a candidate with the spec of its kernel and the constants that the kernel packs.
//! A candidate is compiled by proposing again and taking the equal one, so that a candidate holds
//! nothing but what decides its kernel.

mod chain;
mod contraction;
mod image;
mod movement;
mod pointwise;
mod recurrent;
mod rows;
mod scalar;
mod view;

use crate::BUILT_IN_VERSION;
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Proposals, Setting,
};
use bricolage_ir::{Graph, NodeId, OpKind};
use bricolage_kernels::{ConvertSpec, Isa, NativeKernel, Spec};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use std::sync::Arc;

pub(crate) use chain::{Chain, chains};
pub(crate) use contraction::is_column_bias;
pub(crate) use view::{PLAIN, View};

const NAME: &str = "native";

/// The library of our own kernels.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    isa: Isa,
}

impl Default for Native {
    fn default() -> Native {
        Native { isa: Isa::detect() }
    }
}

/// One way to compute a region, with everything that its kernel is made from.
struct Proposal {
    candidate: Candidate,
    spec: Spec,
    /// Constants in the order in which the kernel packs them.
    raw: Vec<Tensor>,
}

/// A pattern: all proposals that end at the exit, or why it matched and does not apply.
type Pattern = fn(&View<'_>, NodeId) -> Result<Vec<Proposal>, String>;

/// Patterns by the kind of their exit; an empty list means any kind.
const PATTERNS: &[(&str, &[OpKind], Pattern)] = &[
    ("conv", &[], image::conv),
    ("pool", &[OpKind::Pool, OpKind::Reduce], image::pool),
    ("resize", &[OpKind::Resize], image::resize),
    ("matmul", &[], contraction::matmul),
    ("attention", &[OpKind::Attention], contraction::attention),
    ("pointwise", &[], pointwise::pointwise),
    ("softmax", &[OpKind::Softmax], rows::softmax),
    ("norm", &[OpKind::LayerNorm], rows::norm),
    ("reduce", &[OpKind::Reduce], rows::reduce),
    ("recurrent", &[OpKind::Recurrent], recurrent::recurrent),
    ("gather", &[OpKind::Gather], movement::gather),
    (
        "copy",
        &[
            OpKind::Transpose,
            OpKind::Expand,
            OpKind::Tile,
            OpKind::Concat,
            OpKind::Split,
            OpKind::Slice,
            OpKind::Pad,
        ],
        movement::copy,
    ),
];

impl Native {
    /// Every proposal that ends at `exit`, and every refusal.
    fn proposals(
        &self,
        graph: &Graph,
        exit: NodeId,
        setting: &Setting,
    ) -> (Vec<Proposal>, Vec<Declined>) {
        let view = View { graph, setting: *setting };
        let kind = graph.node(exit).op.kind();
        let (mut proposals, mut declined) = (Vec::new(), Vec::new());
        for (name, kinds, pattern) in PATTERNS {
            if !kinds.is_empty() && !kinds.contains(&kind) {
                continue;
            }
            let mut decline = |why: String| {
                declined.push(Declined { node: exit, pattern: (*name).to_owned(), why });
            };
            match pattern(&view, exit) {
                Ok(found) => {
                    for proposal in found {
                        // A spec that makes no kernel is a refusal of the kernel's own.
                        match proposal.spec.build(self.isa) {
                            Ok(_) => proposals.push(proposal),
                            Err(e) => decline(format!("{}: {e}", proposal.candidate)),
                        }
                    }
                }
                Err(why) => decline(why),
            }
        }
        (proposals, declined)
    }

    fn bound(&self, spec: &Spec, raw: &[Tensor]) -> Result<Bound, String> {
        let kernel = spec.build(self.isa).map_err(|e| e.to_string())?;
        let packed = kernel.pack(raw).map_err(|e| e.to_string())?;
        let constants = packed
            .into_iter()
            .map(|p| Packed { format: p.format, dims: p.dims, bytes: p.bytes })
            .collect();
        Ok(Bound { kernel: upcast(kernel), constants, built_in: Vec::new() })
    }
}

fn upcast(kernel: Arc<dyn NativeKernel>) -> Arc<dyn Kernel> {
    kernel
}

impl Backend for Native {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> BackendKind {
        BackendKind::OpLibrary
    }

    fn version(&self) -> String {
        format!("{BUILT_IN_VERSION}-{}", self.isa.name())
    }

    fn status(&self) -> BackendStatus {
        BackendStatus {
            name: NAME.to_owned(),
            version: Some(self.version()),
            found: format!("built in, for {}", self.isa.name()),
            how: "always there".to_owned(),
            covers:
                "f32 matrix products, convolutions, pooling, pointwise chains, softmax, norms, \
                     reductions, attention, recurrent layers, resizing; movement of any element type"
                    .to_owned(),
        }
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let (proposals, declined) = self.proposals(graph, exit, setting);
        Proposals { candidates: proposals.into_iter().map(|p| p.candidate).collect(), declined }
    }

    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let (proposals, _) = self.proposals(graph, candidate.region.exit(), setting);
        let found = proposals.into_iter().find(|p| p.candidate == *candidate);
        let proposal = found.ok_or("no longer proposes this candidate")?;
        self.bound(&proposal.spec, &proposal.raw)
    }

    fn convert(&self, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        let image = |f: &Format| f.dtype == DType::F32 && !matches!(f.layout, Layout::Opaque(_));
        if !image(from) || !image(to) || from == to {
            return None;
        }
        let spec = ConvertSpec { dims: dims.to_vec(), from: from.clone(), to: to.clone() };
        self.bound(&Spec::Convert(spec), &[]).ok()
    }

    fn rebuild(&self, recipe: &Recipe, _: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        bricolage_kernels::rebuild(recipe).map(upcast).map_err(|e| e.to_string())
    }
}
