//! Convolutions of `f32` images in channels-last or blocked layout.

mod depthwise;
mod direct;
mod spec;
mod winograd;

pub use spec::{ConvAlgorithm, ConvKnobs, ConvSpec};

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    post::Epilogue,
    spec::{only_constant, raw_constants, recipe},
    view::{Image, Want, check, check_operand},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use spec::Geometry;

/// What the algorithms share.
struct Common {
    geometry: Geometry,
    epilogue: Epilogue,
    isa: Isa,
}

/// One run of a convolution, with the operands checked and seen as images.
struct Call<'a> {
    run: &'a Run<'a>,
    input: Image,
    output: Image,
    residual: Option<Image>,
    /// The packed constant.
    constant: *const f32,
}

// SAFETY: the constant is only read, and the images are pointers whose tasks write disjoint pixels.
unsafe impl Sync for Call<'_> {}

trait Algorithm: Send + Sync {
    /// Part of the kernel's name.
    fn variant(&self) -> String;
    /// Names the packing; equal tags mean equal bytes for equal weights.
    fn tag(&self) -> String;
    fn workspace(&self, threads: usize) -> u64;
    /// Whether neighbouring pixels of the input must be neighbours in memory.
    fn needs_dense_rows(&self) -> bool {
        false
    }
    /// Whether the residual may share the output's memory.
    fn in_place(&self) -> bool;
    fn packed_len(&self) -> usize;
    /// Packs `weights` as the spec has them and `bias`, which may be empty, into zeroed `to`.
    fn pack(&self, weights: &[f32], bias: &[f32], to: &mut [f32]);
    /// # Safety
    /// The operands are as the spec says.
    unsafe fn run(&self, call: &Call<'_>);
}

/// A kernel for a [`ConvSpec`].
pub struct Conv {
    spec: ConvSpec,
    isa: Isa,
    name: String,
    algorithm: Box<dyn Algorithm>,
    output: Vec<i64>,
    adds: bool,
    /// Whether the output may lie over the residual.
    over_residual: bool,
    constant_dims: [i64; 1],
    constant_format: Format,
}

impl Conv {
    pub(crate) fn new(spec: ConvSpec, isa: Isa) -> Result<Conv, SpecError> {
        let geometry = Geometry::new(&spec)?;
        let epilogue = Epilogue::new(&spec.posts);
        let (adds, late) = (epilogue.adds(), epilogue.is_late());
        let common = Common { geometry, epilogue, isa };
        let algorithm: Box<dyn Algorithm> = match spec.algorithm {
            ConvAlgorithm::Direct => Box::new(direct::Direct::new(common, &spec)?),
            ConvAlgorithm::Winograd { tile } => {
                Box::new(winograd::Winograd::new(common, &spec, tile)?)
            }
            ConvAlgorithm::Depthwise => Box::new(depthwise::Depthwise::new(common, &spec)?),
        };
        let layout = Layout::Opaque(algorithm.tag().as_str().into());
        Ok(Conv {
            name: format!("{}-f32-conv-{}", isa.name(), algorithm.variant()),
            output: spec.output_dims()?,
            adds,
            over_residual: adds && !late && algorithm.in_place(),
            constant_dims: [algorithm.packed_len() as i64],
            constant_format: Format { dtype: DType::F32, layout },
            algorithm,
            spec,
            isa,
        })
    }
}

impl Kernel for Conv {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        Needs {
            workspace: self.algorithm.workspace(threads),
            foreign: Some(0),
            in_place: if self.over_residual { vec![(0, 1)] } else { Vec::new() },
            deterministic: true,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let out = || Want { dims: &self.output, format: &spec.output_format };
        let inputs = [Want { dims: &spec.input, format: &spec.input_format }, out()];
        let workspace = self.algorithm.workspace(run.pool.threads());
        check(&self.name, run, &inputs[..1 + usize::from(self.adds)], &[out()], workspace)?;
        let constant = only_constant(&self.name, run)?;
        let want = Want { dims: &self.constant_dims, format: &self.constant_format };
        check_operand(&self.name, "constant", constant, &want)?;
        let (input, output) = (Image::new(&run.inputs[0]), Image::new(&run.outputs[0]));
        let residual = self.adds.then(|| Image::new(&run.inputs[1]));
        let constant = constant.as_ptr().cast::<f32>();
        if output.dims.is_empty() {
            return Ok(());
        }
        if self.algorithm.needs_dense_rows() && input.sw != input.dims.c {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!("needs pixels {} elements apart, found {}", input.dims.c, input.sw),
            });
        }
        if let Some(residual) = &residual
            && residual.sb != output.sb
        {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!(
                    "needs the residual's blocks of channels {} elements apart, found {}",
                    output.sb, residual.sb
                ),
            });
        }
        let call = Call { run, input, output, residual, constant };
        // SAFETY: all operands were checked against the spec.
        unsafe { self.algorithm.run(&call) };
        if run.cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Conv {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        let weights = self.spec.weight_dims();
        let bias = [self.spec.out_channels];
        let dims: &[&[i64]] =
            if self.spec.bias { &[&weights, &bias] } else { &[weights.as_slice()] };
        let elements = raw_constants(&self.name, raw, dims)?;
        let len = self.algorithm.packed_len();
        let bytes = bricolage_tensor::Storage::build(4 * len, |bytes| {
            let to: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            let bias = elements.get(1).map_or(&[][..], |b| b);
            self.algorithm.pack(&elements[0], bias, to);
        });
        Ok(vec![Packed::opaque(&self.algorithm.tag(), bytes)])
    }

    fn spec(&self) -> Spec {
        Spec::Conv(self.spec.clone())
    }
}
