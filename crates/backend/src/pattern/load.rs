//! Turns what a file says into claims, and finds every name that stands for nothing.

use super::{
    constraint::Condition,
    error::{Fault, PatternError, Position},
    formats::Formats,
    growth::{GrowStep, Growth},
    names::{Library, Names},
    parser,
    shape::{self, Part, Places, op_sets},
    syntax::{
        BackendDeclaration, Claim, Convert, Declaration, Direction, Exclude, File, Grow, Let, Name,
    },
    view::OpSet,
};
use crate::BackendKind;
use bricolage_ir::Numerics;
use bricolage_tensor::{DType, Layout};

/// Nodes of a region that grows, at most, whatever a rule says.
const MOST_NODES: i64 = 64;

/// What a file claims, with all names looked up.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) backend: BackendDeclaration,
    pub(super) requires: Condition,
    pub(super) claims: Vec<Claimed>,
    pub(super) conversions: Vec<Conversion>,
}

/// A pattern or a rule.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) name: String,
    pub(super) entry: String,
    pub(super) numerics: Numerics,
    /// Names of values by slot; that of `exit` is among them.
    pub(super) names: Vec<String>,
    pub(super) exit: usize,
    pub(super) shape: Shape,
    /// What must hold of the parts that a match has, by their numbers.
    pub(super) of_parts: Vec<Condition>,
    pub(super) conditions: Condition,
    /// Regions not to be tried, each with the reason.
    pub(super) exclusions: Vec<(Condition, String)>,
    /// One at least.
    pub(super) formats: Vec<Formats>,
}

/// How regions are found.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Pattern(Part),
    Rule(Growth),
}

/// A conversion.
#[derive(Clone, Debug)]
pub(super) struct Conversion {
    pub(super) entry: String,
    pub(super) from: (Option<DType>, Layout),
    pub(super) to: (Option<DType>, Layout),
    pub(super) condition: Condition,
}

impl File {
    /// Reads a file; `name` is used in messages.
    ///
    /// Fails at the first fault of its grammar.
    pub fn parse(name: &str, text: &str) -> Result<File, PatternError> {
        parser::parse(text)
            .map_err(|fault| PatternError { file: name.to_owned(), faults: vec![fault] })
    }

    /// Checks every name of the file: ops, classes, attributes, fields, values, patterns, entries of the
    /// library in both directions, and its version.
    ///
    /// Fails with all faults at once.
    pub fn check(&self, name: &str, library: &Library) -> Result<(), PatternError> {
        self.load(name, library).map(drop)
    }

    pub(super) fn load(&self, name: &str, library: &Library) -> Result<Loaded, PatternError> {
        let mut loader = Loader { file: self, library, faults: Vec::new() };
        let loaded = loader.load();
        let mut faults = loader.faults;
        faults.sort_by_key(|f| f.at);
        faults.dedup();
        match loaded {
            Some(loaded) if faults.is_empty() => Ok(loaded),
            _ => Err(PatternError { file: name.to_owned(), faults }),
        }
    }
}

struct Loader<'a> {
    file: &'a File,
    library: &'a Library,
    faults: Vec<Fault>,
}

impl<'a> Loader<'a> {
    fn names(&self) -> Names<'a> {
        Names::new(self.library)
    }

    fn load(&mut self) -> Option<Loaded> {
        let declarations = &self.file.declarations;
        let mut lets: Vec<&Let> = Vec::new();
        let mut taken: Vec<&str> = Vec::new();
        let mut claims = Vec::new();
        let mut conversions = Vec::new();
        let mut backends: Vec<&BackendDeclaration> = Vec::new();
        for declaration in declarations {
            let name = match declaration {
                Declaration::Backend(d) => {
                    backends.push(d);
                    continue;
                }
                Declaration::Exclude(_) => continue,
                Declaration::Let(d) => &d.name,
                Declaration::Pattern(d) => &d.name,
                Declaration::Rule(d) => &d.name,
                Declaration::Convert(d) => &d.name,
            };
            let is_op =
                matches!(declaration, Declaration::Let(_)) && OpSet::named(&name.text).is_some();
            if is_op || taken.contains(&name.text.as_str()) {
                self.faults.push(Fault::taken(name.at, &name.text));
            }
            taken.push(&name.text);
        }
        let start = Position { line: 1, column: 1 };
        if let Some(second) = backends.get(1) {
            self.faults.push(Fault::needed(second.name.at, "one `backend`", "a second one"));
        }
        let Some(&backend) = backends.first() else {
            self.faults.push(Fault::needed(start, "one `backend`", "none"));
            return None;
        };
        let requires = self.requirements(backend);
        for declaration in declarations {
            match declaration {
                Declaration::Let(d) => {
                    let mut names = self.names();
                    shape::check(d, &lets, &mut names);
                    self.faults.append(&mut names.faults);
                    lets.push(d);
                }
                Declaration::Pattern(d) => {
                    let mut names = self.names();
                    let part = shape::root(&d.pattern, &d.name, &Places::new(&lets), &mut names);
                    let claimed = self.claim(backend, &d.name, &d.claim, &mut names);
                    self.faults.append(&mut names.faults);
                    claims.extend(part.map(|part| claimed(Shape::Pattern(part))));
                }
                Declaration::Rule(d) => {
                    let mut names = self.names();
                    let seed = shape::root(&d.seed, &d.name, &Places::new(&lets), &mut names);
                    let claimed = self.claim(backend, &d.name, &d.claim, &mut names);
                    let steps = grow_steps(&d.grow, &mut names);
                    let default = match backend.kind {
                        Some(BackendKind::GraphEngine) => 24,
                        _ => 8,
                    };
                    let max_nodes = d.max_nodes.unwrap_or(default);
                    let max_depth = d.max_depth.unwrap_or(max_nodes);
                    for (word, n) in [("max_nodes", max_nodes), ("max_depth", max_depth)] {
                        if !(1..=MOST_NODES).contains(&n) {
                            let needed = format!("`{word}` from 1 to {MOST_NODES}");
                            names.needed(&d.name, &needed, n.to_string());
                        }
                    }
                    self.faults.append(&mut names.faults);
                    let growth = |seed| Growth {
                        seed,
                        steps,
                        max_nodes: max_nodes.clamp(1, MOST_NODES) as usize,
                        max_depth: max_depth.clamp(1, MOST_NODES) as usize,
                        slots: names.slots.len(),
                    };
                    claims.extend(seed.map(|seed| claimed(Shape::Rule(growth(seed)))));
                }
                Declaration::Convert(d) => conversions.push(self.conversion(d)),
                Declaration::Exclude(d) => {
                    let known = declarations.iter().any(|other| match other {
                        Declaration::Pattern(p) => p.name == d.name,
                        Declaration::Rule(r) => r.name == d.name,
                        _ => false,
                    });
                    if !known {
                        let what = "the name of a pattern or rule";
                        self.faults.push(Fault::unknown(d.name.at, what, &d.name.text));
                    }
                }
                Declaration::Backend(_) => {}
            }
        }
        self.unclaimed(backend, &claims, &conversions);
        Some(Loaded { backend: backend.clone(), requires, claims, conversions })
    }

    fn requirements(&mut self, backend: &BackendDeclaration) -> Condition {
        let mut names = self.names();
        let mut requires = Condition::default();
        if let Some(expression) = &backend.requires {
            requires = Condition::compile(expression, &mut names);
        }
        if let Some((low, high)) = &backend.version {
            let found = version(&self.library.version);
            if found < version(low) || found >= version(high) {
                let needed = format!("a library of version {low} or newer, and older than {high}");
                names.needed(&backend.name, &needed, format!("`{}`", self.library.version));
            }
        }
        self.faults.append(&mut names.faults);
        requires
    }

    /// Checks what is said about regions; gives what makes a claim of their shape.
    fn claim<'n>(
        &mut self,
        backend: &BackendDeclaration,
        name: &'n Name,
        claim: &'n Claim,
        names: &mut Names<'_>,
    ) -> impl FnOnce(Shape) -> Claimed + use<'n> {
        let exit = names.add("exit", None, false);
        let mut conditions = Condition::default();
        for expression in &claim.conditions {
            conditions.extend(Condition::compile(expression, names));
        }
        let mut formats: Vec<Formats> =
            claim.formats.iter().map(|f| Formats::compile(f, names)).collect();
        if formats.is_empty() {
            formats.push(Formats::default());
        }
        let mut exclusions = Vec::new();
        for declaration in &self.file.declarations {
            if let Declaration::Exclude(Exclude { name: of, condition, because }) = declaration
                && of == name
            {
                exclusions.push((Condition::compile(condition, names), because.clone()));
            }
        }
        let entry = claim.entry.as_ref().unwrap_or(name);
        if !self.library.entries.contains(&entry.text) {
            names.unknown("an entry of the library", entry);
        }
        let entry = entry.text.clone();
        let numerics = claim.numerics.or(backend.numerics).unwrap_or(Numerics::Reassociates);
        let slots: Vec<String> = names.slots.iter().map(|s| s.name.clone()).collect();
        let of_parts = names.conditions.clone();
        move |shape| Claimed {
            name: name.text.clone(),
            entry,
            numerics,
            names: slots,
            exit,
            shape,
            of_parts,
            conditions,
            exclusions,
            formats,
        }
    }

    fn conversion(&mut self, written: &Convert) -> Conversion {
        let mut names = self.names();
        names.tensor = true;
        let condition = match &written.condition {
            Some(condition) => Condition::compile(condition, &mut names),
            None => Condition::default(),
        };
        if written.from.dtype != written.to.dtype {
            let needed = format!("two formats of one element type, as in `{}`", written.from);
            names.needed(&written.name, &needed, format!("`{}`", written.to));
        }
        if !self.library.entries.contains(&written.name.text) {
            names.unknown("an entry of the library", &written.name);
        }
        self.faults.append(&mut names.faults);
        Conversion {
            entry: written.name.text.clone(),
            from: (written.from.dtype, written.from.layout.clone()),
            to: (written.to.dtype, written.to.layout.clone()),
            condition,
        }
    }

    /// Entries of the library that nothing in the file names.
    fn unclaimed(
        &mut self,
        backend: &BackendDeclaration,
        claims: &[Claimed],
        conversions: &[Conversion],
    ) {
        // A claim with a fault of its own is none, and names its entry all the same.
        let written = self.file.declarations.iter().filter_map(|d| match d {
            Declaration::Pattern(p) => Some(p.claim.entry.as_ref().unwrap_or(&p.name)),
            Declaration::Rule(r) => Some(r.claim.entry.as_ref().unwrap_or(&r.name)),
            _ => None,
        });
        let mut named: Vec<&str> = written.map(|n| n.text.as_str()).collect();
        named.extend(claims.iter().map(|c| c.entry.as_str()));
        named.extend(conversions.iter().map(|c| c.entry.as_str()));
        for entry in &self.library.entries {
            if !named.contains(&entry.as_str()) {
                let needed = format!("a pattern for the library's entry `{entry}`");
                self.faults.push(Fault::needed(backend.name.at, needed, "none"));
            }
        }
    }
}

fn grow_steps(written: &[Grow], names: &mut Names<'_>) -> Vec<GrowStep> {
    // A region that grows has no exit yet.
    names.forget("exit");
    names.add("node", None, false);
    let mut steps = Vec::new();
    for grow in written {
        let ops = op_sets(&grow.ops, names);
        if grow.meet && grow.direction != Direction::Down {
            let (super::syntax::OpName::Op(name) | super::syntax::OpName::Class(name)) =
                &grow.ops[0];
            names.needed(
                name,
                "`via edge` for growth that is not `down`",
                "`via postdom`".to_owned(),
            );
        }
        let condition = match &grow.condition {
            Some(condition) => Condition::compile(condition, names),
            None => Condition::default(),
        };
        let (direction, meet) = (grow.direction, grow.meet);
        steps.extend(ops.map(|ops| GrowStep { direction, ops, meet, condition }));
    }
    steps
}

/// The numbers that a version starts with.
fn version(text: &str) -> Vec<u64> {
    let start = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = start.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(start.len());
    let mut numbers: Vec<u64> =
        start[..end].split('.').map(|n| n.parse().unwrap_or(u64::MAX)).collect();
    while numbers.last() == Some(&0) {
        numbers.pop();
    }
    numbers
}
