//! Conversions between layouts of images.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    layout::CopyRows,
    spec::{no_constants, recipe},
    view::{Image, ImageDims, Want, check, image_kind, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{Format, Tensor};
use serde::{Deserialize, Serialize};

/// The same `f32` image in another layout, or with another halo.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvertSpec {
    /// `[n, c, w]` or `[n, c, h, w]`.
    pub dims: Vec<i64>,
    /// Format of the input.
    pub from: Format,
    /// Format of the output.
    pub to: Format,
}

/// A kernel for a [`ConvertSpec`].
pub struct Convert {
    spec: ConvertSpec,
    isa: Isa,
    name: String,
}

impl Convert {
    pub(crate) fn new(spec: ConvertSpec, isa: Isa) -> Result<Convert, SpecError> {
        ImageDims::of("Convert", &spec.dims)?;
        for format in [&spec.from, &spec.to] {
            if image_kind(format).is_none() {
                return Err(SpecError::Unsupported {
                    kind: "Convert",
                    what: format!("does not know the format {format}"),
                });
            }
        }
        let name = format!("{}-f32-convert", isa.name());
        Ok(Convert { spec, isa, name })
    }
}

/// Rows of a task.
const ROWS: usize = 8;

impl Kernel for Convert {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let input = Want { dims: &spec.dims, format: &spec.from };
        check(&self.name, run, &[input], &[Want { dims: &spec.dims, format: &spec.to }], 0)?;
        let (from, to) = (Image::new(&run.inputs[0]), Image::new(&run.outputs[0]));
        if from.dims.is_empty() {
            return Ok(());
        }
        let (blocks, bands) = (from.dims.blocks(), from.dims.h.div_ceil(ROWS));
        let work = 2 * from.dims.n * from.dims.c * from.dims.h * from.dims.w;
        // SAFETY: the operands were checked; each task writes rows of one block of its own.
        unsafe {
            to.zero_halo();
            spread(run.pool, work, from.dims.n * blocks * bands, &|task, _| {
                let (task, block) = (task / blocks, task % blocks);
                let (n, band) = (task / bands, task % bands);
                let y = band * ROWS;
                let rows = (from.dims.h - y).min(ROWS);
                self.isa.enter(CopyRows { from, to, n, block, y, rows });
            });
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Convert {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Convert(self.spec.clone())
    }
}
