//! Running graphs whose sizes inputs tell, or the graph itself: a program for every shape that comes.
//!
//! The graph is cut into stages ([`crate::stages`]). A planned stage is compiled for the sizes that it meets,
//! without measuring, and kept for the next time. An artefact brings the programs of the sizes that it was
//! measured at, and their choices, which carry over to other sizes.
//!
//! Memory is bounded: a stage keeps few programs besides the measured one and has one arena, as large as
//! the largest program that it has run; constants that are packed alike are kept once.

use crate::{
    Error, Goal,
    artefact::Loaded,
    inputs, line,
    stages::{Cut, Sizes},
};
use bricolage_backend::Registry;
use bricolage_ir::{Graph, evaluate};
use bricolage_placement::Carried;
use bricolage_runtime::{Arena, Buffer, Place, Pool, Program, Session, Weights};
use bricolage_tensor::{Datum, Storage, Tensor};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// Programs of one stage that are kept besides the measured one, at most.
const MOST_CLASSES: usize = 8;

/// A graph that runs on inputs of any sizes that it allows.
pub struct DynamicSession {
    registry: Registry,
    goal: Goal,
    cut: Arc<Cut>,
    pool: Arc<dyn Pool + Send + Sync>,
    /// Whether stages are simplified for the sizes that they meet.
    simplifies: bool,
    stages: Vec<Stage>,
    constants: Constants,
    /// Sizes of the last run.
    sizes: Sizes,
    /// Whether every program of the last run was measured at its sizes.
    measured: bool,
}

/// The program of a stage at the sizes that it was measured at.
#[derive(Clone)]
pub(crate) struct Measured {
    /// As [`crate::stages::Part::class`] gives them.
    pub(crate) class: Vec<i64>,
    pub(crate) program: Arc<Program>,
    /// For other sizes.
    pub(crate) carried: Arc<[Carried]>,
}

/// What a stage keeps from run to run.
#[derive(Default)]
struct Stage {
    measured: Option<Measured>,
    /// Programs of other sizes, the one that ran last at the end.
    classes: Vec<Class>,
    /// Of the class that ran last.
    session: Option<(Vec<i64>, Session)>,
}

struct Class {
    sizes: Vec<i64>,
    program: Arc<Program>,
    /// Of its constants.
    hashes: Vec<Hash>,
}

type Hash = [u8; 32];

/// Packed constants by their content.
#[derive(Default)]
struct Constants {
    /// Those of measured programs, which stay; found when a program is first compiled.
    measured: Option<HashMap<Hash, Storage>>,
    /// Those of other programs.
    others: HashMap<Hash, Storage>,
}

/// The constants of a program by their content.
fn constants_of(program: &Program) -> impl Iterator<Item = (Hash, Storage)> {
    let constant = |buffer: &Buffer| match buffer.place {
        Place::Constant(at) => program.weights().get(at, buffer.len),
        _ => None,
    };
    let all = program.plan().buffers.iter().filter_map(constant);
    all.map(|bytes| (*blake3::hash(&bytes).as_bytes(), bytes))
}

impl Constants {
    /// Replaces constants that are known by the known ones, and returns the hashes of all.
    fn share(&mut self, weights: &mut Weights, stages: &[Stage]) -> Vec<Hash> {
        let programs = || stages.iter().filter_map(|s| Some(&*s.measured.as_ref()?.program));
        let measured =
            self.measured.get_or_insert_with(|| programs().flat_map(constants_of).collect());
        let one = |bytes: &mut Storage| {
            let hash = *blake3::hash(bytes).as_bytes();
            match measured.get(&hash).or_else(|| self.others.get(&hash)) {
                Some(known) => *bytes = known.clone(),
                None => {
                    self.others.insert(hash, bytes.clone());
                }
            }
            hash
        };
        weights.segments_mut().map(one).collect()
    }
}

impl DynamicSession {
    /// Simplifies the graph and cuts it into stages; nothing is compiled before the first run.
    pub fn new(registry: &Registry, graph: Graph, goal: &Goal) -> Result<DynamicSession, Error> {
        DynamicSession::of_rewritten(registry, line::rewrite(graph)?.graph, goal)
    }

    /// [`DynamicSession::new`] of the graph as it is: nothing is simplified, here or for any size.
    pub fn as_it_is(
        registry: &Registry,
        graph: Graph,
        goal: &Goal,
    ) -> Result<DynamicSession, Error> {
        let session = DynamicSession::of_rewritten(registry, graph, goal)?;
        Ok(DynamicSession { simplifies: false, ..session })
    }

    /// [`DynamicSession::new`] of a graph that is rewritten already.
    pub(crate) fn of_rewritten(
        registry: &Registry,
        graph: Graph,
        goal: &Goal,
    ) -> Result<DynamicSession, Error> {
        let cut = Arc::new(Cut::of(graph)?);
        let pool = line::pool(goal.threads)?;
        Ok(DynamicSession::of(registry.clone(), cut, goal.clone(), pool, &HashMap::new()))
    }

    /// A session of an artefact, whose measured programs it shares with other sessions of it. Threads that
    /// run at the same time need one each.
    pub fn open(
        artefact: &Loaded,
        pool: Arc<dyn Pool + Send + Sync>,
    ) -> Result<DynamicSession, Error> {
        let registry = artefact.registry.clone();
        let goal = Goal { threads: pool.threads(), ..artefact.manifest.goal() };
        Ok(DynamicSession::of(registry, artefact.cut()?, goal, pool, &artefact.stages))
    }

    pub(crate) fn of(
        registry: Registry,
        cut: Arc<Cut>,
        goal: Goal,
        pool: Arc<dyn Pool + Send + Sync>,
        measured: &HashMap<usize, Measured>,
    ) -> DynamicSession {
        let stage = |i| Stage { measured: measured.get(&i).cloned(), ..Stage::default() };
        let stages = (0..cut.parts.len()).map(stage).collect();
        let (constants, sizes) = (Constants::default(), Sizes::new());
        DynamicSession {
            registry,
            goal,
            cut,
            pool,
            simplifies: true,
            stages,
            constants,
            sizes,
            measured: false,
        }
    }

    /// The graph that runs: inputs and outputs are those of the model.
    pub fn graph(&self) -> &Graph {
        &self.cut.graph
    }

    /// How many programs are kept, over all stages, besides measured ones.
    pub fn classes(&self) -> usize {
        self.stages.iter().map(|s| s.classes.len()).sum()
    }

    /// The backends whose kernels are in the programs that are kept, each once.
    pub fn backends(&self) -> Vec<String> {
        let measured = self.stages.iter().filter_map(|s| Some(&s.measured.as_ref()?.program));
        let others = self.stages.iter().flat_map(|s| &s.classes).map(|c| &c.program);
        let kernels = measured.chain(others).flat_map(|p| &p.plan().kernels);
        let names: BTreeSet<&String> = kernels.map(|k| &k.recipe.backend).collect();
        names.into_iter().cloned().collect()
    }

    /// Bytes of all arenas.
    pub fn arena_bytes(&self) -> usize {
        let open = self.stages.iter().filter_map(|s| s.session.as_ref());
        open.map(|(_, session)| session.arena().len()).sum()
    }

    /// Bytes of packed constants that are kept besides those of measured programs.
    pub fn constant_bytes(&self) -> usize {
        self.constants.others.values().map(|bytes| bytes.len()).sum()
    }

    /// In words that the last run was at sizes that nothing was measured at; `None` when it was measured.
    pub fn unmeasured(&self) -> Option<String> {
        if self.measured {
            return None;
        }
        let sizes: Vec<String> = self.sizes.iter().map(|(s, n)| format!("{s}={n}")).collect();
        let sizes = match &sizes[..] {
            [] => "these sizes".to_owned(),
            all => all.join(", "),
        };
        let how = match self.stages.iter().any(|s| s.measured.is_some()) {
            true => "choices of the measured sizes carry over, guesses fill in",
            false => "guesses decided",
        };
        Some(format!("{sizes}: not measured; {how}"))
    }

    /// Runs once on inputs in the graph's order, and returns the outputs by name.
    pub fn run(&mut self, given: &[Datum]) -> Result<Vec<(String, Datum)>, Error> {
        let cut = self.cut.clone();
        self.measured = true;
        let (outputs, sizes) = cut.walk(given, |i, sizes, data| self.run_stage(i, sizes, data))?;
        self.sizes = sizes;
        Ok(outputs)
    }

    fn run_stage(
        &mut self,
        i: usize,
        sizes: &Sizes,
        data: Vec<Datum>,
    ) -> Result<Vec<Datum>, Error> {
        let part = &self.cut.parts[i];
        if !part.planned {
            return Ok(evaluate(&part.at(sizes)?, &data)?);
        }
        let class = part.class(sizes);
        let is_measured = self.stages[i].measured.as_ref().is_some_and(|m| m.class == class);
        self.measured &= is_measured;
        let tensors: Option<Vec<Tensor>> =
            data.into_iter().map(|d| d.as_tensor().cloned()).collect();
        let tensors = tensors.ok_or_else(|| Error::Internal {
            what: "a planned stage reads something other than a tensor".to_owned(),
        })?;
        let (known, mut session) = match self.stages[i].session.take() {
            Some((known, session)) if known == class => (known, session),
            open => {
                let arena = open.map(|(_, session)| session.into_arena());
                let session = self.switch(i, sizes, &class, arena)?;
                (class, session)
            }
        };
        match session.run(&tensors) {
            Ok(results) => {
                self.stages[i].session = Some((known, session));
                Ok(results.into_iter().map(Datum::from).collect())
            }
            Err(error) => {
                // What failed once is not kept.
                self.stages[i].classes.retain(|c| c.sizes != known);
                self.forget();
                Err(error.into())
            }
        }
    }

    /// A session of a stage at a class, in the arena of the class before it.
    fn switch(
        &mut self,
        i: usize,
        sizes: &Sizes,
        class: &[i64],
        arena: Option<Arena>,
    ) -> Result<Session, Error> {
        let stage = &mut self.stages[i];
        let program = match &stage.measured {
            Some(measured) if measured.class == class => measured.program.clone(),
            _ => {
                match stage.classes.iter().position(|c| c.sizes == class) {
                    Some(at) => stage.classes[at..].rotate_left(1),
                    None => {
                        if stage.classes.len() == MOST_CLASSES {
                            stage.classes.remove(0);
                            self.forget();
                        }
                        match self.compile(i, sizes, class) {
                            Ok(new) => self.stages[i].classes.push(new),
                            Err(error) => {
                                self.forget();
                                return Err(error);
                            }
                        }
                    }
                }
                let last = self.stages[i]
                    .classes
                    .last()
                    .ok_or_else(|| Error::Internal { what: "a stage has no program".to_owned() })?;
                last.program.clone()
            }
        };
        Ok(Session::open_in(program, self.pool.clone(), arena)?)
    }

    fn compile(&mut self, i: usize, sizes: &Sizes, class: &[i64]) -> Result<Class, Error> {
        let graph = self.cut.parts[i].at(sizes)?;
        let graph = if self.simplifies { line::rewrite(graph)?.graph } else { graph };
        inputs::require_fixed(&graph)?;
        let carried = self.stages[i].measured.as_ref().map_or(&[][..], |m| &*m.carried);
        let placed = line::place_carrying(&self.registry, &graph, &self.goal, carried)?;
        let mut emitted = line::emit_checked(&self.registry, &self.goal, &graph, &placed)?;
        let hashes = self.constants.share(&mut emitted.weights, &self.stages);
        let program = Program::new(emitted.plan, emitted.kernels, emitted.weights)?;
        Ok(Class { sizes: class.to_vec(), program: Arc::new(program), hashes })
    }

    /// Drops constants that no program has.
    fn forget(&mut self) {
        let classes = self.stages.iter().flat_map(|s| &s.classes);
        let needed: HashSet<Hash> = classes.flat_map(|c| c.hashes.iter().copied()).collect();
        self.constants.others.retain(|hash, _| needed.contains(hash));
    }
}
