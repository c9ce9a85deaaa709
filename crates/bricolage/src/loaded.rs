//! An artefact that was read: its plans with their kernels, and the stages of its model.

use crate::{
    Error,
    artefact::{
        MODEL, Manifest, OpenSizes, PLAN, SELF_TEST, StagePlan, WEIGHTS, model, require_here,
        verify,
    },
    dynamic::Measured,
    line, npz,
    opened::Opened,
    stages::Cut,
};
use bricolage_backend::{BackendKind, Registry};
use bricolage_ir::{Error as Difference, Graph, ValueId};
use bricolage_measure::Machine;
use bricolage_runtime::{Pool, Program, read_file};
use bricolage_tensor::{DType, Ranges, Storage, Symbol, Tensor, Type};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// An artefact that is ready to be opened as sessions.
pub struct Loaded {
    /// What the artefact says of itself.
    pub manifest: Manifest,
    /// Where it lies.
    pub folder: PathBuf,
    /// The backends that rebuild its kernels, and make plans for other sizes.
    pub(crate) registry: Registry,
    /// Measured plans by the numbers of their stages.
    pub(crate) stages: HashMap<usize, Measured>,
    /// The stages of a model of open sizes.
    cut: Option<Arc<Cut>>,
}

/// Reads a graph as an artefact holds it, and gives it its ranges.
pub(crate) fn reread(bytes: Storage, ranges: &Ranges) -> Result<Graph, Error> {
    let model = bricolage_onnx::import(bytes, None)
        .map_err(|error| Error::Import { path: PathBuf::from(MODEL), error })?;
    ranged(model.graph, ranges)
}

fn ranged(graph: Graph, ranges: &Ranges) -> Result<Graph, Error> {
    let mut graph = line::rewrite(graph)?.graph;
    graph.ranges = ranges.clone();
    Ok(graph)
}

fn cut(folder: &Path, sizes: Option<&OpenSizes>) -> Result<Arc<Cut>, Error> {
    let ranges = sizes.iter().flat_map(|s| &s.ranges);
    let ranges = ranges.map(|(name, range)| (Symbol(Arc::from(name.as_str())), *range)).collect();
    let graph = line::import(&folder.join(MODEL), &[])?.graph;
    Ok(Arc::new(Cut::of(ranged(graph, &Ranges(ranges))?)?))
}

/// Checks hashes and machine, and rebuilds the kernels.
pub fn load(folder: &Path, registry: &Registry) -> Result<Loaded, Error> {
    let wrong = |why: String| Error::Artefact { path: folder.to_owned(), why };
    let manifest = verify(folder)?;
    require_here(folder, &manifest, registry)?;
    // Whoever makes plans for other sizes uses what the measured ones use.
    let needed = registry.iter().filter(|b| {
        manifest.sizes.is_none()
            || b.kind() == BackendKind::Reference
            || manifest.backends.contains_key(b.name())
    });
    let registry = Registry::new(needed.cloned().collect());
    let bytes = fs::read(folder.join(PLAN)).map_err(Error::file("read", &folder.join(PLAN)))?;
    let plans: Vec<StagePlan> =
        postcard::from_bytes(&bytes).map_err(|e| wrong(format!("its plan is damaged: {e}")))?;
    let path = folder.join(WEIGHTS);
    let weights = read_file(&path).map_err(Error::file("read", &path))?;
    let mut stages = HashMap::new();
    for StagePlan { part, class, plan, weights_at, carried } in plans {
        let end = weights_at.checked_add(plan.weights).filter(|&end| end <= weights.len() as u64);
        let end = end.ok_or_else(|| {
            let (needed, found) = (plan.weights, weights.len());
            wrong(format!("stage {part} needs {needed} bytes of weights from {weights_at} on, found {found} in all"))
        })?;
        let own = weights.slice(weights_at as usize, (end - weights_at) as usize);
        let program = Arc::new(Program::load(plan, own, &registry)?);
        stages.insert(part as usize, Measured { class, program, carried: carried.into() });
    }
    let cut = match &manifest.sizes {
        Some(sizes) => Some(cut(folder, Some(sizes))?),
        None if stages.contains_key(&0) => None,
        None => return Err(wrong("it holds no plan".to_owned())),
    };
    Ok(Loaded { manifest, folder: folder.to_owned(), registry, stages, cut })
}

impl Loaded {
    /// The program of an artefact of fixed sizes.
    pub fn fixed(&self) -> Option<&Arc<Program>> {
        match self.cut {
            None => self.stages.get(&0).map(|s| &s.program),
            Some(_) => None,
        }
    }

    /// The model's stages.
    pub(crate) fn cut(&self) -> Result<Arc<Cut>, Error> {
        match &self.cut {
            Some(cut) => Ok(cut.clone()),
            None => {
                model(&self.folder)?;
                cut(&self.folder, None)
            }
        }
    }

    /// A note for the user when the artefact was measured on another machine than this one.
    pub fn foreign_machine(&self) -> Option<String> {
        let here = Machine::read();
        (here.fingerprint() != self.manifest.fingerprint).then(|| {
            format!(
                "the plan was measured on {} and may not be the best here ({}); it still runs",
                self.manifest.machine.model, here.model
            )
        })
    }

    /// Names and element types of inputs and outputs, in the model's order.
    fn ports(&self) -> [Vec<(String, DType)>; 2] {
        if let Some(program) = self.fixed() {
            let port = |p: &bricolage_runtime::Port| (p.name.clone(), p.ty.dtype);
            let plan = program.plan();
            return [&plan.inputs, &plan.outputs].map(|ports| ports.iter().map(port).collect());
        }
        let Some(cut) = &self.cut else { return [Vec::new(), Vec::new()] };
        let port = |&v: &ValueId| match &cut.graph.fact(v).ty {
            Type::Tensor(t) => Some((cut.graph.value(v).name.to_string(), t.dtype)),
            _ => None,
        };
        [&cut.graph.inputs, &cut.graph.outputs].map(|all| all.iter().filter_map(port).collect())
    }

    fn pick(
        &self,
        test: &[(String, Tensor)],
        prefix: &str,
        ports: &[(String, DType)],
    ) -> Result<Vec<Tensor>, Error> {
        let find = |(name, dtype): &(String, DType)| {
            let name = format!("{prefix}{name}");
            let found = test.iter().find(|(n, _)| *n == name);
            let found = found.map(|(_, t)| npz::as_type(t.clone(), *dtype));
            found.ok_or_else(|| Error::Artefact {
                path: self.folder.clone(),
                why: format!("its self-test lacks `{name}`"),
            })
        };
        ports.iter().map(find).collect()
    }

    /// Runs on the self-test's inputs and compares with its outputs.
    pub fn self_test(&self, pool: Arc<dyn Pool + Send + Sync>) -> Result<(), Error> {
        let test = npz::read(&self.folder.join(SELF_TEST))?;
        let [inputs, outputs] = self.ports();
        let inputs = self.pick(&test, "input/", &inputs)?;
        let expected = self.pick(&test, "output/", &outputs)?;
        let found = Opened::new(self, pool)?.run(&inputs)?;
        for ((expected, (name, found)), allowed) in
            expected.iter().zip(&found).zip(&self.manifest.allowed)
        {
            let error = Difference::between(expected, found);
            let share = error.share_of(&allowed.tolerance());
            if share.is_nan() || share > 1.0 {
                return Err(Error::Artefact {
                    path: self.folder.clone(),
                    why: format!(
                        "its self-test fails on output `{name}`: {error}, allowed {:.3e}",
                        allowed.max_abs
                    ),
                });
            }
        }
        Ok(())
    }
}
