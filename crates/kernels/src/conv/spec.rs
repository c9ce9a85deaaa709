//! What a convolution computes, and which algorithms can.

use crate::{
    SpecError,
    post::Post,
    view::{ImageDims, Kind, image_kind},
};
use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};

/// A convolution, or with `transposed` its gradient by the input, then an epilogue.
///
/// Inputs: the image, then the residual (dims and format of the output) if the epilogue adds one.
/// Output: the image, whose halo and missing channels are written as zeros. To pack: the weights
/// `f32[out, in / groups, kernel..]`, or `f32[in, out / groups, kernel..]` when transposed, then the
/// bias `f32[out]` if there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvSpec {
    /// `[n, c, w]` or `[n, c, h, w]`.
    pub input: Vec<i64>,
    /// Plain, channels-last or blocked by 8; a halo of the padding's size or more is made use of.
    pub input_format: Format,
    /// Channels-last or blocked by 8.
    pub output_format: Format,
    /// Channels of the output.
    pub out_channels: i64,
    /// Extent of the window along each spatial dim.
    pub kernel: Vec<i64>,
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Distances inside the window.
    pub dilations: Vec<i64>,
    /// Zeros before each spatial dim, then after each.
    pub pads: Vec<i64>,
    /// Groups of channels that do not mix.
    pub groups: i64,
    /// Whether this is a transposed convolution.
    pub transposed: bool,
    /// Elements added after each spatial dim of a transposed convolution's output.
    pub output_padding: Vec<i64>,
    /// Whether there is a bias.
    pub bias: bool,
    /// What follows the bias.
    pub posts: Vec<Post>,
    /// How it is computed.
    pub algorithm: ConvAlgorithm,
    /// How it is blocked.
    pub knobs: ConvKnobs,
}

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConvAlgorithm {
    /// Sums over the window in registers; does every case.
    Direct,
    /// Winograd's minimal filtering F(tile x tile, 3 x 3) for 3x3 windows of stride 1 (Lavin and
    /// Gray, "Fast Algorithms for Convolutional Neural Networks", 2016); `tile` is 2, 4 or 6.
    Winograd {
        /// Outputs of a tile along each side.
        tile: u8,
    },
    /// One filter a channel.
    Depthwise,
}

impl ConvAlgorithm {
    /// `direct`, `winograd-f4`, ...
    pub fn name(self) -> String {
        match self {
            ConvAlgorithm::Direct => "direct".into(),
            ConvAlgorithm::Winograd { tile } => format!("winograd-f{tile}"),
            ConvAlgorithm::Depthwise => "depthwise".into(),
        }
    }
}

/// How a convolution is blocked; 0 leaves the choice to a rule of thumb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvKnobs {
    /// Vectors of output channels of a register tile, 1 to 4.
    pub vectors: u8,
    /// Direct: output pixels of a block. Winograd: tiles of a block. Depthwise: rows of a band.
    pub block: u32,
    /// Direct: parts of the output channels that are separate tasks.
    pub channel_parts: u32,
    /// Winograd: 0 by rule, 1 each thread its own blocks, 2 all threads on the same block.
    pub staged: u8,
}

impl ConvSpec {
    /// A convolution of a square window over `f32` images in one format, without bias or epilogue, by
    /// the algorithm that the rule of thumb prefers.
    ///
    /// # Errors
    /// When the parameters do not fit together.
    pub fn new(
        input: &[i64],
        format: Format,
        out_channels: i64,
        kernel: i64,
        stride: i64,
        pad: i64,
        groups: i64,
    ) -> Result<ConvSpec, SpecError> {
        let spatial = input.len().saturating_sub(2);
        let mut spec = ConvSpec {
            input: input.to_vec(),
            input_format: format.clone(),
            output_format: format,
            out_channels,
            kernel: vec![kernel; spatial],
            strides: vec![stride; spatial],
            dilations: vec![1; spatial],
            pads: vec![pad; 2 * spatial],
            groups,
            transposed: false,
            output_padding: vec![0; spatial],
            bias: false,
            posts: Vec::new(),
            algorithm: ConvAlgorithm::Direct,
            knobs: ConvKnobs::default(),
        };
        spec.algorithm = spec.algorithms()?[0];
        Ok(spec)
    }

    /// Dims of the weights before packing.
    pub fn weight_dims(&self) -> Vec<i64> {
        let (first, second) = if self.transposed {
            (self.input[1], self.out_channels / self.groups)
        } else {
            (self.out_channels, self.input[1] / self.groups)
        };
        [first, second].into_iter().chain(self.kernel.iter().copied()).collect()
    }

    /// Dims of the output.
    ///
    /// # Errors
    /// When the parameters do not fit together.
    pub fn output_dims(&self) -> Result<Vec<i64>, SpecError> {
        let g = Geometry::new(self)?;
        let mut dims = vec![g.output.n as i64, g.output.c as i64, g.output.h as i64];
        if self.input.len() == 3 {
            dims.pop();
        }
        dims.push(g.output.w as i64);
        Ok(dims)
    }

    /// The algorithms that can compute this, the one that the rule of thumb prefers first; the
    /// present choice of algorithm is ignored.
    ///
    /// # Errors
    /// When the parameters do not fit together.
    pub fn algorithms(&self) -> Result<Vec<ConvAlgorithm>, SpecError> {
        let g = Geometry::new(self)?;
        let mut all = vec![(ConvAlgorithm::Direct, g.direct_ns())];
        if g.fits_winograd() {
            for tile in [2u8, 4, 6] {
                all.push((ConvAlgorithm::Winograd { tile }, g.winograd_ns(tile)));
            }
        }
        if g.fits_depthwise() {
            all.push((ConvAlgorithm::Depthwise, 0.0));
        }
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        Ok(all.into_iter().map(|(algorithm, _)| algorithm).collect())
    }
}

/// A convolution's parameters as those of a two-dimensional one.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) input: ImageDims,
    pub(super) output: ImageDims,
    pub(super) input_kind: Kind,
    /// Halo of the input above and below, and left and right.
    pub(super) halo: (usize, usize),
    pub(super) kernel: (usize, usize),
    pub(super) strides: (usize, usize),
    pub(super) dilations: (usize, usize),
    /// Above, left.
    pub(super) pads: (usize, usize),
    pub(super) groups: usize,
    pub(super) transposed: bool,
}

impl Geometry {
    pub(super) fn new(spec: &ConvSpec) -> Result<Geometry, SpecError> {
        let fail = |what: String| SpecError::Unsupported { kind: "Conv", what };
        let input = ImageDims::of("Conv", &spec.input)?;
        let spatial = spec.input.len() - 2;
        let lists = [&spec.kernel, &spec.strides, &spec.dilations, &spec.output_padding];
        if lists.iter().any(|l| l.len() != spatial) || spec.pads.len() != 2 * spatial {
            return Err(fail(format!("needs one parameter for each of {spatial} spatial dims")));
        }
        if lists[..3].iter().any(|l| l.iter().any(|&v| v < 1))
            || spec.pads.iter().chain(&spec.output_padding).any(|&v| v < 0)
        {
            return Err(fail(
                "needs positive windows, steps and distances, and no negative pads".into(),
            ));
        }
        let (groups, out) = (spec.groups, spec.out_channels);
        if groups < 1 || out < 1 || out % groups != 0 || spec.input[1] % groups != 0 {
            let c = spec.input[1];
            return Err(fail(format!(
                "needs groups that divide the channels, found {groups} for {c} to {out}"
            )));
        }
        if spec.posts.iter().filter(|p| **p == Post::Add).count() > 1 {
            return Err(fail("adds at most one residual".into()));
        }
        let kind = |format: &Format| {
            image_kind(format).ok_or_else(|| fail(format!("does not take the format {format}")))
        };
        let (input_kind, halo) = kind(&spec.input_format)?;
        let (output_kind, _) = kind(&spec.output_format)?;
        if output_kind == Kind::Plain {
            return Err(fail("writes channels-last or blocked images only".into()));
        }
        let pair = |list: &[i64], none: usize| match *list {
            [w] => (none, w as usize),
            [h, w] => (h as usize, w as usize),
            _ => (none, none),
        };
        let (kernel, strides) = (pair(&spec.kernel, 1), pair(&spec.strides, 1));
        let dilations = pair(&spec.dilations, 1);
        let (before, after) = spec.pads.split_at(spatial);
        let (pads, ends) = (pair(before, 0), pair(after, 0));
        let extra = pair(&spec.output_padding, 0);
        let size = |i: usize, k: usize, s: usize, d: usize, p: usize, q: usize, e: usize| {
            let reach = d * (k - 1) + 1;
            if spec.transposed {
                (s * i.saturating_sub(1) + reach + e).checked_sub(p + q).filter(|_| i > 0)
            } else {
                (i + p + q).checked_sub(reach).map(|r| r / s + 1)
            }
        };
        let h = size(input.h, kernel.0, strides.0, dilations.0, pads.0, ends.0, extra.0);
        let w = size(input.w, kernel.1, strides.1, dilations.1, pads.1, ends.1, extra.1);
        let (Some(h), Some(w)) = (h, w) else {
            let (found, kernel) = (&spec.input, &spec.kernel);
            return Err(fail(format!("has no output for {found:?} with a window of {kernel:?}")));
        };
        Ok(Geometry {
            input,
            output: ImageDims { n: input.n, c: out as usize, h, w },
            input_kind,
            halo: if spatial == 1 { (0, halo) } else { (halo, halo) },
            kernel,
            strides,
            dilations,
            pads,
            groups: groups as usize,
            transposed: spec.transposed,
        })
    }

    pub(super) fn fits_winograd(&self) -> bool {
        self.kernel == (3, 3)
            && self.strides == (1, 1)
            && self.dilations == (1, 1)
            && self.groups == 1
            && !self.transposed
            && self.input_kind != Kind::Plain
    }

    pub(super) fn fits_depthwise(&self) -> bool {
        self.groups == self.input.c
            && self.output.c == self.input.c
            && self.groups > 1
            && !self.transposed
            && self.input_kind != Kind::Plain
    }

    /// Nanoseconds on one thread by the rule of thumb: multiply-adds at 95 GFLOP/s.
    fn direct_ns(&self) -> f64 {
        let (i, o) = (self.input.c / self.groups, self.output.c.next_multiple_of(8));
        let pixels = (self.output.n * self.output.h * self.output.w) as f64;
        2.0 * pixels * (i * o * self.kernel.0 * self.kernel.1) as f64 / 95.0
    }

    /// The same for Winograd's method: the larger of arithmetic and streaming the transformed
    /// weights from beyond the caches, then the transforms.
    fn winograd_ns(&self, tile: u8) -> f64 {
        let m = usize::from(tile);
        let side = (m + 2) as f64;
        let tiles = (self.output.n * self.output.h.div_ceil(m) * self.output.w.div_ceil(m)) as f64;
        let (i, o) =
            (self.input.c.next_multiple_of(8) as f64, self.output.c.next_multiple_of(8) as f64);
        let arithmetic = 2.0 * side * side * tiles * i * o / 95.0;
        let bytes = 4.0 * side * side * i * o;
        // Gigabytes a second of the third-level cache, or of memory when the weights exceed 32 MB.
        let stream = bytes / if bytes > 32e6 { 15.0 } else { 50.0 };
        // The 6x6 tile has a wider error than its gain is worth as a default.
        let transform = [10.0, 50.0, 105.0][m / 2 - 1] * if m == 6 { 4.0 } else { 1.0 };
        arithmetic.max(stream) + tiles * (i + o) / 8.0 * transform
    }
}
