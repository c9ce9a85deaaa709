//! A backend made of a pattern file and a library of entries.

use super::{
    bindings::Bindings,
    error::PatternError,
    evaluate::{Scope, Truth},
    growth::{Find, Grower},
    load::{Claimed, Conversion, Loaded, Shape},
    matcher::{Binding, Match, matches},
    names::Library,
    sample::Samples,
    syntax::File,
    view::View,
};
use crate::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Proposals, Region,
    Setting,
};
use bricolage_ir::{Graph, NodeId};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::{DType, Format, Layout, Shape as Dims};
use std::sync::Arc;

/// A library whose entries a pattern file claims regions for.
///
/// It neither matches nor chooses; it makes kernels.
pub trait Provider: Send + Sync {
    /// Its version, the names of its entries, and facts about the machine that the file may ask for.
    fn library(&self) -> Library;

    /// Presence and coverage; the name and what it covers come from the file.
    fn status(&self) -> BackendStatus;

    /// Whether it is compiled and first run in a process of its own.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Threads of its own that it keeps at most; `None` where it does not say.
    fn own_threads(&self) -> Option<u32> {
        None
    }

    /// A guess of the time in nanoseconds that an entry takes for a region; see [`Candidate::guess_ns`].
    fn guess_ns(
        &self,
        entry: &str,
        graph: &Graph,
        region: &Region,
        setting: &Setting,
    ) -> Option<f64> {
        let _ = (entry, graph, region, setting);
        None
    }

    /// Makes the kernel of an entry, or says in a clause why it cannot. The kernel's operands are the
    /// candidate's inputs and outputs in its order.
    fn bind(
        &self,
        entry: &str,
        graph: &Graph,
        candidate: &Candidate,
        bindings: &Bindings,
        setting: &Setting,
    ) -> Result<Bound, String>;

    /// Makes the kernel of an entry that converts, if it does so for these dims.
    fn convert(&self, entry: &str, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        let _ = (entry, dims, from, to);
        None
    }

    /// Rebuilds a kernel from its recipe and the constants that were built in.
    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String>;
}

/// A backend made of a pattern file and the library that it describes.
pub struct PatternBackend {
    loaded: Loaded,
    library: Library,
    provider: Arc<dyn Provider>,
    /// What the machine lacks, if it lacks anything.
    lacks: Option<String>,
}

/// A candidate with what its kernel is made from.
struct Proposal<'a> {
    candidate: Candidate,
    claimed: &'a Claimed,
    found: Match,
}

impl PatternBackend {
    /// The backend that a file describes; `name` is the file's, used in messages.
    ///
    /// Fails when the file does not fit the language or the library: an entry that the library lacks, and
    /// an entry that the file does not name, are faults both.
    pub fn load(
        name: &str,
        text: &str,
        provider: Arc<dyn Provider>,
    ) -> Result<PatternBackend, PatternError> {
        let library = provider.library();
        let loaded = File::parse(name, text)?.load(name, &library)?;
        let scope = Scope { view: None, setting: None, bindings: &[], nodes: 0, tensor: None };
        let lacks = scope.check(&loaded.requires).err();
        Ok(PatternBackend { loaded, library, provider, lacks })
    }

    fn proposals(
        &self,
        graph: &Graph,
        exit: NodeId,
        setting: &Setting,
    ) -> (Vec<Proposal<'_>>, Vec<Declined>) {
        let view = View::new(graph);
        let (mut proposals, mut declined) = (Vec::new(), Vec::new());
        if self.lacks.is_some() {
            return (proposals, declined);
        }
        for claimed in &self.loaded.claims {
            let mut decline = |why: String| {
                let one = Declined { node: exit, pattern: claimed.name.clone(), why };
                if !declined.contains(&one) {
                    declined.push(one);
                }
            };
            let mut regions: Vec<(Region, usize)> = Vec::new();
            for find in finds(&view, claimed, exit, setting) {
                let found = match find {
                    Find::Region(found) => found,
                    Find::Cut(why) => {
                        decline(why);
                        continue;
                    }
                };
                let is_rule = matches!(claimed.shape, Shape::Rule(_));
                let region = match region(&view, &found, exit) {
                    Ok(region) => region,
                    // What grows passes through sets that nobody claims.
                    Err(_) if is_rule => continue,
                    Err(why) => {
                        decline(why);
                        continue;
                    }
                };
                match offers(&view, claimed, &found, &region, setting) {
                    Err(why) => decline(why),
                    Ok(candidates) => {
                        // Other ways to match the same region are told apart by a number.
                        let number = match regions.iter_mut().find(|(r, _)| *r == region) {
                            Some((_, number)) => {
                                *number += 1;
                                *number
                            }
                            None => {
                                regions.push((region, 1));
                                1
                            }
                        };
                        for mut candidate in candidates {
                            candidate.guess_ns = self.provider.guess_ns(
                                &claimed.entry,
                                graph,
                                &candidate.region,
                                setting,
                            );
                            if number > 1 {
                                candidate.variant = format!("{}/{number}", claimed.entry);
                            }
                            let found = found.clone();
                            proposals.push(Proposal { candidate, claimed, found });
                        }
                    }
                }
            }
        }
        (proposals, declined)
    }
}

/// Everything that a claim finds at an exit.
fn finds(view: &View<'_>, claimed: &Claimed, exit: NodeId, setting: &Setting) -> Vec<Find> {
    let mut finds = match &claimed.shape {
        Shape::Pattern(part) => {
            let found = matches(view, part, claimed.names.len(), exit);
            let mut finds: Vec<Find> = found.all.into_iter().map(Find::Region).collect();
            if found.cut {
                finds.push(Find::Cut("has more matches here than are followed".to_owned()));
            }
            finds
        }
        Shape::Rule(growth) => Grower { view, setting: *setting, growth }.ending_at(exit),
    };
    let value = view.graph.node(exit).outputs.first().copied();
    for find in &mut finds {
        if let Find::Region(found) = find {
            found.bindings[claimed.exit] =
                Binding { seen: true, held: true, value, node: Some(exit) };
        }
    }
    finds
}

/// The region of a match, or why its nodes are none that a kernel could replace.
fn region(view: &View<'_>, found: &Match, exit: NodeId) -> Result<Region, String> {
    let graph = view.graph;
    let nodes = Region::in_order(graph, found.nodes.clone());
    if nodes.last() != Some(&exit) {
        return Err("needs an exit that no other node of the region reads".to_owned());
    }
    for &node in &nodes {
        let found = graph.node(node);
        if !found.aliases.is_empty() || !found.after.is_empty() {
            let name = found.outputs.first().map_or("", |&v| &*graph.value(v).name);
            return Err(format!(
                "needs nodes that neither write in place nor wait for others, found that of `{name}`"
            ));
        }
    }
    for &leaf in &found.leaves {
        if graph.producer(leaf).is_some_and(|p| found.nodes.contains(&p)) {
            let name = &graph.value(leaf).name;
            return Err(format!("needs `{name}` from outside, found that the region computes it"));
        }
    }
    Region::of(graph, nodes).map_err(|e| e.to_string())
}

/// The candidates for a region, or why there are none.
fn offers(
    view: &View<'_>,
    claimed: &Claimed,
    found: &Match,
    region: &Region,
    setting: &Setting,
) -> Result<Vec<Candidate>, String> {
    if !setting.policy.admits(claimed.numerics) {
        return Err(format!("needs leave for {} numerics", claimed.numerics));
    }
    let scope = Scope {
        view: Some(view),
        setting: Some(*setting),
        bindings: &found.bindings,
        nodes: region.nodes.len(),
        tensor: None,
    };
    let of_parts = found.conditions.iter().filter_map(|&number| claimed.of_parts.get(number));
    of_parts.chain([&claimed.conditions]).try_for_each(|condition| scope.check(condition))?;
    for (condition, because) in &claimed.exclusions {
        match scope.holds(condition) {
            Truth::True => return Err(format!("is left out here: {because}")),
            // Nothing guards a candidate at run time.
            Truth::Unknown => {
                let why = "may be one to leave out, which is not known here";
                return Err(format!("{why}: {because}"));
            }
            Truth::False | Truth::Fault => {}
        }
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut refusal = String::new();
    for formats in &claimed.formats {
        match formats.choices(view.graph, region, found, &claimed.names) {
            Err(why) => refusal = why,
            Ok(choices) => {
                for (inputs, outputs) in choices {
                    let candidate = Candidate {
                        region: region.clone(),
                        pattern: claimed.name.clone(),
                        variant: claimed.entry.clone(),
                        inputs,
                        outputs,
                        numerics: claimed.numerics,
                        guess_ns: None,
                    };
                    if !candidates.contains(&candidate) {
                        candidates.push(candidate);
                    }
                }
            }
        }
    }
    if candidates.is_empty() { Err(refusal) } else { Ok(candidates) }
}

impl Conversion {
    fn fits(&self, dims: &Dims, from: &Format, to: &Format) -> bool {
        let is = |(dtype, layout): &(Option<DType>, Layout), format: &Format| {
            dtype.is_none_or(|d| d == format.dtype) && *layout == format.layout
        };
        let scope = Scope {
            view: None,
            setting: None,
            bindings: &[],
            nodes: 0,
            tensor: Some((from.dtype, dims)),
        };
        from.dtype == to.dtype
            && is(&self.from, from)
            && is(&self.to, to)
            && scope.check(&self.condition).is_ok()
    }
}

impl Backend for PatternBackend {
    fn name(&self) -> &str {
        &self.loaded.backend.name.text
    }

    fn kind(&self) -> BackendKind {
        self.loaded.backend.kind.unwrap_or(BackendKind::OpLibrary)
    }

    fn version(&self) -> String {
        self.library.version.clone()
    }

    fn status(&self) -> BackendStatus {
        let mut status = self.provider.status();
        status.name = self.name().to_owned();
        if let Some(covers) = &self.loaded.backend.covers {
            status.covers.clone_from(covers);
        }
        if let Some(lacks) = &self.lacks {
            status.found = format!("not usable here: {lacks}");
            status.version = None;
        }
        status
    }

    fn is_foreign(&self) -> bool {
        self.provider.is_foreign()
    }

    fn own_threads(&self) -> Option<u32> {
        self.provider.own_threads()
    }

    fn samples(&self) -> Option<Samples> {
        Some(Samples::new(&self.loaded.claims))
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
        let proposal = proposals.into_iter().find(|p| p.candidate == *candidate);
        let Proposal { claimed, found, .. } =
            proposal.ok_or("no longer proposes this candidate")?;
        let bindings = Bindings::new(&claimed.names, found.bindings);
        self.provider.bind(&claimed.entry, graph, candidate, &bindings, setting)
    }

    fn convert(&self, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        if self.lacks.is_some() {
            return None;
        }
        let shape = Dims::fixed(dims);
        let mut fitting =
            self.loaded.conversions.iter().filter(|conversion| conversion.fits(&shape, from, to));
        fitting.find_map(|conversion| self.provider.convert(&conversion.entry, dims, from, to))
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        self.provider.rebuild(recipe, built_in)
    }
}
