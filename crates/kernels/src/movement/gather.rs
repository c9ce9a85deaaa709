//! Selecting slices by index.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    spec::{no_constants, recipe},
    view::{Shared, Want, check_operand, dense_operand, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// `out[a.., i.., b..] = data[a.., indices[i..], b..]` over plain dense operands.
///
/// The data may be a constant, packed as it is; else it is the first input. Indices count from the end
/// when negative.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GatherSpec {
    /// Dims of the data.
    pub data: Vec<i64>,
    /// Element type of the data.
    pub dtype: DType,
    /// Whether the data is a constant.
    pub constant: bool,
    /// The axis that is indexed.
    pub axis: usize,
    /// Dims of the indices.
    pub indices: Vec<i64>,
    /// `I64` or `I32`.
    pub index_dtype: DType,
}

impl GatherSpec {
    /// Dims of the output.
    pub fn output_dims(&self) -> Vec<i64> {
        let (before, after) = (&self.data[..self.axis], &self.data[self.axis + 1..]);
        [before, &self.indices, after].concat()
    }
}

/// A kernel for a [`GatherSpec`].
pub struct Gather {
    spec: GatherSpec,
    isa: Isa,
    name: String,
    output: Vec<i64>,
    outer: usize,
    axis: usize,
    /// Bytes of a slice.
    slice: usize,
    count: usize,
}

impl Gather {
    pub(crate) fn new(spec: GatherSpec, isa: Isa) -> Result<Gather, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Gather", what });
        if spec.axis >= spec.data.len() || spec.data.iter().chain(&spec.indices).any(|&d| d < 0) {
            return fail(format!(
                "needs an axis of the dims, found {} of {:?}",
                spec.axis, spec.data
            ));
        }
        if !matches!(spec.index_dtype, DType::I64 | DType::I32)
            || !spec.dtype.bits().is_multiple_of(8)
        {
            return fail(format!("needs i64 or i32 as indices, found {}", spec.index_dtype));
        }
        let product = |d: &[i64]| d.iter().product::<i64>() as usize;
        Ok(Gather {
            name: format!("{}-b{}-gather", isa.name(), spec.dtype.bits()),
            output: spec.output_dims(),
            outer: product(&spec.data[..spec.axis]),
            axis: spec.data[spec.axis] as usize,
            slice: product(&spec.data[spec.axis + 1..]) * spec.dtype.bits() as usize / 8,
            count: product(&spec.indices),
            spec,
            isa,
        })
    }

    /// Index `i`, counted from the first.
    fn index(&self, indices: &Operand<'_>, i: usize) -> i64 {
        // SAFETY: the operand was checked to hold `count` indices of the type.
        let index = unsafe {
            if self.spec.index_dtype == DType::I64 {
                *indices.as_ptr().cast::<i64>().add(i)
            } else {
                i64::from(*indices.as_ptr().cast::<i32>().add(i))
            }
        };
        if index < 0 { index + self.axis as i64 } else { index }
    }
}

impl Kernel for Gather {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let operands: [&[Operand<'_>]; 2] = [run.constants, run.inputs];
        let (data, indices) = match (spec.constant, operands) {
            (true, [[data], [indices]]) | (false, [[], [data, indices]]) => (data, indices),
            _ => {
                return Err(RunError::Operand {
                    kernel: self.name.clone(),
                    what: format!(
                        "needs data and indices, found {} constants and {} inputs",
                        run.constants.len(),
                        run.inputs.len()
                    ),
                });
            }
        };
        let [output] = run.outputs else {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!("needs 1 output, found {}", run.outputs.len()),
            });
        };
        let (element, index) = (Format::plain(spec.dtype), Format::plain(spec.index_dtype));
        for (operand, dims, format) in [
            (data, &spec.data, &element),
            (indices, &spec.indices, &index),
            (output, &self.output, &element),
        ] {
            check_operand(&self.name, "an operand", operand, &Want { dims, format })?;
            dense_operand(&self.name, operand)?;
        }
        for i in 0..self.count {
            let index = self.index(indices, i);
            if !(0..self.axis as i64).contains(&index) {
                return Err(RunError::Domain {
                    kernel: self.name.clone(),
                    why: format!(
                        "index {index} (number {i}) is outside an axis of {} elements",
                        self.axis
                    ),
                });
            }
        }
        let from = Shared::new(data.as_mut_ptr());
        let to = Shared::new(output.as_mut_ptr());
        let slices = self.outer * self.count;
        let of_a_task = (32 << 10) / self.slice.clamp(1, 32 << 10);
        spread(run.pool, slices * self.slice, slices.div_ceil(of_a_task), &|task, _| {
            for slice in task * of_a_task..((task + 1) * of_a_task).min(slices) {
                let (outer, i) = (slice / self.count, slice % self.count);
                let at = (outer * self.axis + self.index(indices, i) as usize) * self.slice;
                // SAFETY: the index was checked, so the slice lies inside the data; slices of the
                // output are disjoint.
                unsafe {
                    let to = to.get().add(slice * self.slice);
                    std::ptr::copy_nonoverlapping(from.get().add(at), to, self.slice);
                }
            }
        });
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Gather {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        if !self.spec.constant {
            return no_constants(&self.name, raw);
        }
        let operand = crate::pointwise::PointwiseOperand {
            dims: self.spec.data.clone(),
            format: Format::plain(self.spec.dtype),
        };
        crate::spec::pack_as_they_are(&self.name, raw, &[operand])
    }

    fn spec(&self) -> Spec {
        Spec::Gather(self.spec.clone())
    }
}
