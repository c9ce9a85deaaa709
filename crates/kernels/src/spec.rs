//! Kernels as data: specs, recipes and packing.

use crate::{
    Isa,
    attention::{Attention, AttentionSpec},
    conv::{Conv, ConvSpec},
    matmul::{MatMul, MatMulSpec},
    movement::{Convert, ConvertSpec, Copy, CopySpec, Gather, GatherSpec, Resize, ResizeSpec},
    pointwise::{Pointwise, PointwiseOperand, PointwiseSpec},
    pooling::{PoolSpec, Pooling},
    recurrent::{Recurrent, RecurrentSpec},
    rows::{Norm, NormSpec, Reduce, ReduceSpec, Softmax, SoftmaxSpec},
};
use bricolage_runtime::{Kernel, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Layout, Storage, Tensor};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Name of the backend in the recipes of this crate's kernels.
pub const BACKEND: &str = "native";
/// Version of the recipes' form.
const VERSION: &str = "1";

/// Why a spec gives no kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The parameters do not fit together, or the kernel does not do this case.
    #[error("`{kind}` {what}")]
    Unsupported {
        /// The spec's kind.
        kind: &'static str,
        /// A clause with what was needed and what was found.
        what: String,
    },
    /// The processor lacks an instruction set.
    #[error("the kernel needs the instruction set `{isa}`, which this processor lacks")]
    Isa {
        /// Name of the set.
        isa: &'static str,
    },
    /// A recipe is not one of this crate's, or is damaged.
    #[error("recipe `{kernel}` of backend `{backend}` cannot be read: {why}")]
    Recipe {
        /// The recipe's backend.
        backend: String,
        /// The recipe's kernel.
        kernel: String,
        /// What is wrong.
        why: String,
    },
    /// Constants to pack are not what the kernel needs.
    #[error("kernel `{kernel}` cannot pack its constants: {what}")]
    Pack {
        /// Name of the kernel.
        kernel: String,
        /// What was needed and what was found.
        what: String,
    },
}

/// One constant operand as a kernel wants it.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The bytes, 64-byte aligned.
    pub bytes: Storage,
    /// Dims of the operand.
    pub dims: Vec<i64>,
    /// Its format; equal opaque tags mean equal packing.
    pub format: Format,
}

impl Packed {
    /// `f32` elements packed in the way that `tag` names.
    pub(crate) fn opaque(tag: &str, elements: Storage) -> Packed {
        Packed {
            dims: vec![elements.len() as i64 / 4],
            bytes: elements,
            format: Format { dtype: DType::F32, layout: Layout::Opaque(tag.into()) },
        }
    }
}

/// A kernel of this crate.
pub trait NativeKernel: Kernel {
    /// Packs row-major constants into the operands of [`bricolage_runtime::Run::constants`]; the spec
    /// says which constants there are and in what order.
    ///
    /// # Errors
    /// When the constants are not as the spec says.
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError>;

    /// The spec that the kernel was made from.
    fn spec(&self) -> Spec;
}

macro_rules! specs {
    ($($kind:ident($spec:ty, $kernel:ty),)*) => {
        /// Everything that makes a kernel but the instruction set.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum Spec {
            $($kind($spec),)*
        }

        impl Spec {
            /// Names of all kinds.
            pub const KINDS: &'static [&'static str] = &[$(stringify!($kind)),*];

            /// Name of the kind.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Spec::$kind(_) => stringify!($kind),)*
                }
            }

            /// Makes the kernel for `isa`.
            ///
            /// # Errors
            /// When the kernel does not do this case or the processor lacks the set.
            pub fn build(&self, isa: Isa) -> Result<Arc<dyn NativeKernel>, SpecError> {
                if !isa.is_available() {
                    return Err(SpecError::Isa { isa: isa.name() });
                }
                match self {
                    $(Spec::$kind(spec) => Ok(Arc::new(<$kernel>::new(spec.clone(), isa)?)),)*
                }
            }
        }
    };
}

specs! {
    MatMul(MatMulSpec, MatMul),
    Conv(ConvSpec, Conv),
    Pointwise(PointwiseSpec, Pointwise),
    Pool(PoolSpec, Pooling),
    Softmax(SoftmaxSpec, Softmax),
    Norm(NormSpec, Norm),
    Reduce(ReduceSpec, Reduce),
    Copy(CopySpec, Copy),
    Convert(ConvertSpec, Convert),
    Gather(GatherSpec, Gather),
    Resize(ResizeSpec, Resize),
    Attention(AttentionSpec, Attention),
    Recurrent(RecurrentSpec, Recurrent),
}

/// The recipe of a kernel named `name`.
pub(crate) fn recipe(name: &str, isa: Isa, spec: Spec) -> Recipe {
    Recipe {
        backend: BACKEND.to_owned(),
        kernel: format!("{name}/{VERSION}"),
        body: postcard::to_stdvec(&(isa, spec))
            .expect("a spec is plain data without maps of unknown size"),
    }
}

/// Makes the kernel that `recipe` describes.
///
/// # Errors
/// When the recipe is damaged, of another version, or needs what this processor lacks.
pub fn rebuild(recipe: &Recipe) -> Result<Arc<dyn NativeKernel>, SpecError> {
    let fail = |why: String| SpecError::Recipe {
        backend: recipe.backend.clone(),
        kernel: recipe.kernel.clone(),
        why,
    };
    if recipe.backend != BACKEND {
        return Err(fail(format!("this is the backend `{BACKEND}`")));
    }
    let version = recipe.kernel.rsplit_once('/').map(|(_, v)| v);
    if version != Some(VERSION) {
        return Err(fail(format!("needed version {VERSION}, found {}", version.unwrap_or("none"))));
    }
    let (isa, spec): (Isa, Spec) =
        postcard::from_bytes(&recipe.body).map_err(|e| fail(e.to_string()))?;
    spec.build(isa)
}

/// Checks number, element type and dims of constants to pack, and gives their elements.
pub(crate) fn raw_constants<'a>(
    kernel: &str,
    raw: &'a [Tensor],
    dims: &[&[i64]],
) -> Result<Vec<std::borrow::Cow<'a, [f32]>>, SpecError> {
    let fail = |what: String| SpecError::Pack { kernel: kernel.to_owned(), what };
    if raw.len() != dims.len() {
        return Err(fail(format!("needed {} constants, found {}", dims.len(), raw.len())));
    }
    for (i, (tensor, dims)) in raw.iter().zip(dims).enumerate() {
        if tensor.dtype() != DType::F32 || tensor.dims() != *dims {
            let (dtype, found) = (tensor.dtype(), tensor.dims());
            return Err(fail(format!("constant {i}: needed f32{dims:?}, found {dtype}{found:?}")));
        }
    }
    Ok(raw.iter().map(|t| t.elements::<f32>()).collect())
}

/// The one constant operand of a kernel that has exactly one.
pub(crate) fn only_constant<'a>(kernel: &str, run: &Run<'a>) -> Result<&'a Operand<'a>, RunError> {
    match run.constants {
        [constant] => Ok(constant),
        other => Err(RunError::Operand {
            kernel: kernel.to_owned(),
            what: format!("needs 1 constant, found {}", other.len()),
        }),
    }
}

/// Plain constants that a kernel reads as they are.
pub(crate) fn pack_as_they_are(
    kernel: &str,
    raw: &[Tensor],
    operands: &[PointwiseOperand],
) -> Result<Vec<Packed>, SpecError> {
    let fits = |(t, o): (&Tensor, &PointwiseOperand)| {
        t.dtype() == o.format.dtype && t.dims() == o.dims && o.format.layout == Layout::Plain
    };
    if raw.len() != operands.len() || !raw.iter().zip(operands).all(fits) {
        let list = |all: Vec<String>| all.join(", ");
        let needed = operands.iter().map(|o| format!("{}{:?}", o.format, o.dims)).collect();
        let found = raw.iter().map(|t| format!("{}{:?}", t.dtype(), t.dims())).collect();
        let what = format!("needed [{}], found [{}]", list(needed), list(found));
        return Err(SpecError::Pack { kernel: kernel.to_owned(), what });
    }
    let pack = |t: &Tensor| Packed {
        bytes: Storage::copy_of(t.bytes()),
        dims: t.dims().to_vec(),
        format: Format::plain(t.dtype()),
    };
    Ok(raw.iter().map(pack).collect())
}

/// The packing of a kernel without constants.
pub(crate) fn no_constants(kernel: &str, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
    pack_as_they_are(kernel, raw, &[])
}
