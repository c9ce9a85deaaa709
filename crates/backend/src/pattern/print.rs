//! Prints what a pattern file says.

use super::syntax::*;
use std::fmt::{Display, Formatter, Result};

/// Things with a text between them.
struct Joined<'a, T>(&'a [T], &'static str);

impl<T: Display> Display for Joined<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (i, part) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(self.1)?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

/// A text in quotes, with the escapes that the language has.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&self.text)
    }
}

impl Display for File {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for declaration in &self.declarations {
            match declaration {
                Declaration::Backend(d) => d.fmt(f)?,
                Declaration::Let(d) => d.fmt(f)?,
                Declaration::Pattern(d) => d.fmt(f)?,
                Declaration::Rule(d) => d.fmt(f)?,
                Declaration::Convert(d) => d.fmt(f)?,
                Declaration::Exclude(d) => d.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl Display for BackendDeclaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "backend {} {{", self.name)?;
        if let Some(kind) = self.kind {
            let word = KINDS.iter().find(|(_, k)| *k == kind).map_or("", |(word, _)| *word);
            writeln!(f, "  kind: {word};")?;
        }
        if let Some(plugin) = &self.plugin {
            writeln!(f, "  plugin: {};", Quoted(plugin))?;
        }
        if let Some((low, high)) = &self.version {
            writeln!(f, "  version: {} .. {};", Quoted(low), Quoted(high))?;
        }
        if let Some(covers) = &self.covers {
            writeln!(f, "  covers: {};", Quoted(covers))?;
        }
        if let Some(numerics) = self.numerics {
            writeln!(f, "  numerics: {numerics};")?;
        }
        if let Some(requires) = &self.requires {
            writeln!(f, "  requires: {requires};")?;
        }
        writeln!(f, "}}")
    }
}

impl Display for Let {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "let {}", self.name)?;
        if !self.parameters.is_empty() {
            write!(f, "({})", Joined(&self.parameters, ", "))?;
        }
        write!(f, " = {}", self.pattern)?;
        if let Some(condition) = &self.condition {
            write!(f, " where {condition}")?;
        }
        f.write_str(";\n")
    }
}

impl Display for PatternDeclaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "pattern {} {{\n  match: {};\n{}}}", self.name, self.pattern, self.claim)
    }
}

impl Display for RuleDeclaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "rule {} {{\n  seed: {};", self.name, self.seed)?;
        for grow in &self.grow {
            writeln!(f, "  grow: {grow};")?;
        }
        for (word, number) in [("max_nodes", self.max_nodes), ("max_depth", self.max_depth)] {
            if let Some(number) = number {
                writeln!(f, "  {word}: {number};")?;
            }
        }
        writeln!(f, "{}}}", self.claim)
    }
}

impl Display for Grow {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let direction = match self.direction {
            Direction::Down => "down",
            Direction::Up => "up",
            Direction::Side => "side",
        };
        write!(f, "{direction} {}", Joined(&self.ops, "/"))?;
        if self.meet {
            f.write_str(" via postdom")?;
        }
        match &self.condition {
            Some(condition) => write!(f, " while {condition}"),
            None => Ok(()),
        }
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for condition in &self.conditions {
            writeln!(f, "  where: {condition};")?;
        }
        for formats in &self.formats {
            f.write_str("  formats: {")?;
            for (name, set) in formats {
                write!(f, " {name}: {set};")?;
            }
            f.write_str(" }\n")?;
        }
        if let Some(entry) = &self.entry {
            writeln!(f, "  entry: {};", Quoted(&entry.text))?;
        }
        if let Some(numerics) = self.numerics {
            writeln!(f, "  numerics: {numerics};")?;
        }
        Ok(())
    }
}

impl Display for Convert {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "convert {}: {} -> {}", self.name, self.from, self.to)?;
        if let Some(condition) = &self.condition {
            write!(f, " where {condition}")?;
        }
        f.write_str(";\n")
    }
}

impl Display for Exclude {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let because = Quoted(&self.because);
        writeln!(f, "exclude {} where {} because {because};", self.name, self.condition)
    }
}

/// Whether a pattern needs brackets where one without `|` and `?` must stand.
fn is_loose(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern::Any(_) | Pattern::Optional(_))
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Pattern::Op(op) => op.fmt(f),
            Pattern::Use(name) => name.fmt(f),
            Pattern::Leaf(leaf) => leaf.fmt(f),
            Pattern::Same(name) => write!(f, "${name}"),
            Pattern::Bind(name, inner)
                if is_loose(inner) || matches!(**inner, Pattern::Bind(..)) =>
            {
                write!(f, "{name}@({inner})")
            }
            Pattern::Bind(name, inner) => write!(f, "{name}@{inner}"),
            Pattern::Optional(inner) if is_loose(inner) => write!(f, "({inner})?"),
            Pattern::Optional(inner) => write!(f, "{inner}?"),
            Pattern::Any(all) => {
                for (i, part) in all.iter().enumerate() {
                    f.write_str(if i > 0 { " | " } else { "" })?;
                    match part {
                        Pattern::Any(_) => write!(f, "({part})")?,
                        _ => part.fmt(f)?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl Display for Leaf {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Leaf::Any => "_",
            Leaf::Const => "const",
            Leaf::Var => "var",
            Leaf::Scalar => "scalar",
            Leaf::Input => "input",
        })
    }
}

impl Display for OpName {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            OpName::Op(name) => name.fmt(f),
            OpName::Class(name) => write!(f, "#{name}"),
        }
    }
}

impl Display for OpPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Joined(&self.ops, "/").fmt(f)?;
        for (i, (name, value)) in self.attributes.iter().enumerate() {
            write!(f, "{}{name} = {value}", if i == 0 { "[" } else { ", " })?;
        }
        if !self.attributes.is_empty() {
            f.write_str("]")?;
        }
        match &self.arguments {
            Arguments::Exact(all) => write!(f, "({})", Joined(all, ", ")),
            Arguments::Open(all) if all.is_empty() => f.write_str("(...)"),
            Arguments::Open(all) => write!(f, "({}, ...)", Joined(all, ", ")),
            Arguments::Either(pair) => write!(f, "{{{}, {}}}", pair[0], pair[1]),
        }
    }
}

impl Display for FormatSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            FormatSet::Any => f.write_str("any"),
            FormatSet::SameAs(name) => write!(f, "same_as {name}"),
            FormatSet::OneOf(all) => Joined(all, " | ").fmt(f),
        }
    }
}

impl Display for FormatSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}:{}", self.dtype.map_or("any", |d| d.name()), self.layout)
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Literal::Int(n) => n.fmt(f),
            Literal::Real(n) => write!(f, "{n:?}"),
            Literal::Text(text) => Quoted(text).fmt(f),
            Literal::Bool(value) => value.fmt(f),
        }
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.root.fmt(f)?;
        for step in &self.steps {
            match step {
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(at) => write!(f, "[{at}]")?,
            }
        }
        Ok(())
    }
}

/// How tightly an expression holds together: `||` 0, `&&` 1, `!` and comparisons 2, sums 3, products 4,
/// `-` and what is one word 5.
fn tightness(expression: &Expression) -> u8 {
    match expression {
        Expression::Or(_) => 0,
        Expression::And(_) => 1,
        Expression::Not(_)
        | Expression::Compare(..)
        | Expression::OneOf(..)
        | Expression::Within(..) => 2,
        Expression::Arithmetic(Arithmetic::Add | Arithmetic::Subtract, _) => 3,
        Expression::Arithmetic(..) => 4,
        _ => 5,
    }
}

/// An expression in brackets where it is looser than its place allows.
struct Tight<'a>(&'a Expression, u8);

impl Display for Tight<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if tightness(self.0) < self.1 { write!(f, "({})", self.0) } else { self.0.fmt(f) }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let parts = |all: &[Expression], tight| -> Vec<String> {
            all.iter().map(|e| Tight(e, tight).to_string()).collect()
        };
        match self {
            Expression::Literal(literal) => literal.fmt(f),
            Expression::Path(path) => path.fmt(f),
            Expression::Not(inner) => write!(f, "!{}", Tight(inner, 2)),
            Expression::Negative(inner) => write!(f, "-{}", Tight(inner, 5)),
            Expression::Arithmetic(operation, pair) => {
                let (mark, tight) = match operation {
                    Arithmetic::Add => ("+", 3),
                    Arithmetic::Subtract => ("-", 3),
                    Arithmetic::Multiply => ("*", 4),
                    Arithmetic::Divide => ("/", 4),
                    Arithmetic::Remainder => ("%", 4),
                };
                write!(f, "{} {mark} {}", Tight(&pair[0], tight), Tight(&pair[1], tight + 1))
            }
            Expression::Compare(comparison, pair) => {
                let mark = match comparison {
                    Comparison::Equal => "==",
                    Comparison::Differs => "!=",
                    Comparison::Less => "<",
                    Comparison::AtMost => "<=",
                    Comparison::Greater => ">",
                    Comparison::AtLeast => ">=",
                };
                write!(f, "{} {mark} {}", Tight(&pair[0], 3), Tight(&pair[1], 3))
            }
            Expression::OneOf(inner, set) => {
                write!(f, "{} in {{{}}}", Tight(inner, 3), Joined(set, ", "))
            }
            Expression::Within(inner, low, high) => {
                write!(f, "{} in {low} .. {high}", Tight(inner, 3))
            }
            Expression::And(all) => f.write_str(&parts(all, 2).join(" && ")),
            Expression::Or(all) => f.write_str(&parts(all, 1).join(" || ")),
            Expression::Every(all, name, list, body) => {
                let word = if *all { "all" } else { "any" };
                write!(f, "{word}({name} in {list}: {body})")
            }
            Expression::Measure(measure, path) => {
                let word = match measure {
                    Measure::Product => "prod",
                    Measure::Length => "len",
                    Measure::Has => "has",
                };
                write!(f, "{word}({path})")
            }
            Expression::Aligned(path, by) => write!(f, "aligned({path}, {by})"),
            Expression::Macs(name) => write!(f, "mac({name})"),
            Expression::Same(a, b) => write!(f, "same({a}, {b})"),
        }
    }
}
