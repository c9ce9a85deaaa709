//! What patterns ask of a graph.

use bricolage_backend::{Candidate, Region, Setting};
use bricolage_ir::{Graph, Node, NodeId, Numerics, Op, ValueId};
use bricolage_tensor::{DType, Format, Layout, Tensor};

/// A graph and the setting that kernels are wanted for.
pub(crate) struct View<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) setting: Setting,
}

pub(crate) const PLAIN: Format = Format::plain(DType::F32);

/// Row-major elements in blocks of eight channels, with a halo.
pub(crate) const fn blocked(halo: u8) -> Format {
    Format { dtype: DType::F32, layout: Layout::Blocked { block: 8, halo } }
}

/// Channels last, with a halo.
pub(crate) const fn channels_last(halo: u8) -> Format {
    Format { dtype: DType::F32, layout: Layout::ChannelsLast { halo } }
}

/// The same layout with another halo.
pub(crate) fn with_halo(format: &Format, halo: u8) -> Format {
    match format.layout {
        Layout::Blocked { block, .. } => {
            Format { dtype: format.dtype, layout: Layout::Blocked { block, halo } }
        }
        Layout::ChannelsLast { .. } => channels_last(halo),
        _ => format.clone(),
    }
}

impl<'a> View<'a> {
    pub(crate) fn node(&self, id: NodeId) -> &'a Node {
        self.graph.node(id)
    }

    pub(crate) fn operand(&self, node: &Node, i: usize) -> Option<ValueId> {
        node.inputs.get(i).copied().flatten()
    }

    pub(crate) fn dims(&self, value: ValueId) -> Option<Vec<i64>> {
        self.graph.fact(value).ty.as_tensor()?.shape.as_fixed()
    }

    pub(crate) fn dtype(&self, value: ValueId) -> Option<DType> {
        Some(self.graph.fact(value).ty.as_tensor()?.dtype)
    }

    /// Dims of an `f32` value.
    pub(crate) fn float_dims(&self, value: ValueId) -> Option<Vec<i64>> {
        if self.dtype(value)? == DType::F32 { self.dims(value) } else { None }
    }

    pub(crate) fn constant(&self, value: ValueId) -> Option<&'a Tensor> {
        self.graph.constant_of(value)
    }

    /// The number that every element of a float constant is.
    pub(crate) fn scalar(&self, value: ValueId) -> Option<f32> {
        let tensor = self
            .constant(value)
            .filter(|t| t.dtype() == DType::F32 && !t.is_empty() && t.len() <= 4096)?;
        let elements = tensor.elements::<f32>();
        elements.iter().all(|v| *v == elements[0]).then(|| elements[0])
    }

    /// The node that computes `value`, if nothing but `reader` reads it.
    pub(crate) fn private_producer(&self, value: ValueId, reader: NodeId) -> Option<NodeId> {
        let only =
            !self.graph.is_output(value) && self.graph.uses(value).iter().all(|u| u.node == reader);
        let id = self.graph.producer(value).filter(|_| only)?;
        let node = self.node(id);
        (node.aliases.is_empty() && node.after.is_empty()).then_some(id)
    }

    /// The halo that a convolution likes its input to have: its padding, where it reads the input
    /// window by window.
    pub(crate) fn liked_halo(&self, conv: &Node) -> u8 {
        let (Op::Conv(c), Some(weights)) = (&conv.op, self.operand(conv, 1)) else { return 0 };
        let Some(w) = self.dims(weights) else { return 0 };
        let pad = c.pads.iter().map(|p| p.0.max(p.1)).max().unwrap_or(0);
        let winograd = w[2..] == [3, 3]
            && c.groups == 1
            && c.strides.iter().chain(&c.dilations).all(|&v| v == 1)
            && w[0] >= 16
            && w[1] >= 16;
        if winograd || w[2..].iter().all(|&k| k == 1) { 0 } else { u8::try_from(pad).unwrap_or(0) }
    }

    /// The halos that readers of a value like: always 0, and those of its convolutions.
    pub(crate) fn liked_halos(&self, value: ValueId) -> Vec<u8> {
        let mut halos = vec![0];
        for at in self.graph.uses(value).iter().filter(|u| u.operand == 0) {
            let halo = self.liked_halo(self.node(at.node));
            if !halos.contains(&halo) && halo <= 3 {
                halos.push(halo);
            }
        }
        halos
    }

    /// A candidate over `nodes` (in topological order), with the formats of the values named.
    ///
    /// `inputs` lists the region's inputs in the order in which the kernel takes them.
    pub(crate) fn candidate(
        &self,
        nodes: Vec<NodeId>,
        inputs: &[(ValueId, Format)],
        outputs: &[Format],
        name: (&str, String),
        numerics: Numerics,
        guess_ns: f64,
    ) -> Result<Candidate, String> {
        let mut region = Region::of(self.graph, nodes).map_err(|e| e.to_string())?;
        // A value that the kernel takes twice is listed twice.
        let kernel_order: Vec<ValueId> = inputs.iter().map(|(v, _)| *v).collect();
        let mut expected = region.inputs.clone();
        let mut named = kernel_order.clone();
        expected.sort_unstable();
        named.sort_unstable();
        named.dedup();
        if expected != named {
            return Err("reads other values than its kernel takes".to_owned());
        }
        region.inputs = kernel_order;
        if region.outputs.len() != outputs.len() {
            return Err(format!(
                "gives {} results, its kernel gives {}",
                region.outputs.len(),
                outputs.len()
            ));
        }
        Ok(Candidate {
            region,
            pattern: name.0.to_owned(),
            variant: name.1,
            inputs: inputs.iter().map(|(_, f)| f.clone()).collect(),
            outputs: outputs.to_vec(),
            numerics,
            guess_ns: Some(guess_ns),
        })
    }

    /// A guess from the bytes moved: one microsecond and eight gigabytes a second a thread.
    pub(crate) fn movement_ns(&self, values: &[ValueId]) -> f64 {
        let bytes: i64 = values
            .iter()
            .filter_map(|&v| self.dims(v))
            .map(|d| 4 * d.iter().product::<i64>())
            .sum();
        1e3 + bytes as f64 / (8.0 * self.setting.threads.min(2) as f64)
    }

    /// A guess from multiply-adds: ninety gigaflops a thread.
    pub(crate) fn compute_ns(&self, macs: f64) -> f64 {
        1e3 + 2.0 * macs / (90.0 * self.setting.threads as f64)
    }
}
