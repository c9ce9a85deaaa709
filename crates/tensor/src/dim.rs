//! Symbolic dims: integer expressions in a canonical form, so that equal sizes compare equal.
//!
//! An expression is a polynomial with integer coefficients over *atoms*: symbols, and floor
//! divisions, minima and maxima of expressions. Ceiling division is written with floor division.
//! Arithmetic saturates at the limits of `i64`; a size that large is refused where bytes are
//! counted ([`crate::DType::byte_len`]).

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    ops::{Add, Mul, Neg, Sub},
    sync::Arc,
};

/// The name of an unknown size, such as `batch`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbol(pub Arc<str>);

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The closed interval that each symbol is known to lie in; a symbol not listed is at least 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges(pub BTreeMap<Symbol, (i64, i64)>);

impl Ranges {
    /// The interval of `symbol`.
    pub fn get(&self, symbol: &Symbol) -> (i64, i64) {
        self.0.get(symbol).copied().unwrap_or((0, i64::MAX))
    }
}

/// A size or an index: a constant or a canonical expression over symbols.
///
/// Serialised as its text; in a format for people, a constant is a plain number.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    constant: i64,
    /// Products of atoms with their coefficients, sorted, no coefficient zero.
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Term {
    /// Sorted; an atom that is squared appears twice.
    atoms: Vec<Atom>,
    coefficient: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Symbol),
    Floor(Box<(Dim, Dim)>),
    Min(Box<(Dim, Dim)>),
    Max(Box<(Dim, Dim)>),
}

impl From<i64> for Dim {
    fn from(constant: i64) -> Dim {
        Dim { constant, terms: Vec::new() }
    }
}

impl From<Atom> for Dim {
    fn from(atom: Atom) -> Dim {
        Dim { constant: 0, terms: vec![Term { atoms: vec![atom], coefficient: 1 }] }
    }
}

/// One factor of a product in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Factor {
    /// An unknown size.
    Symbol(Symbol),
    /// `floor(a / b)`.
    Floor(Dim, Dim),
    /// The smaller of two.
    Min(Dim, Dim),
    /// The larger of two.
    Max(Dim, Dim),
}

impl Dim {
    /// The expression as a sum: a constant, and products of factors with their coefficients.
    pub fn parts(&self) -> (i64, Vec<(i64, Vec<Factor>)>) {
        let factor = |atom: &Atom| match atom {
            Atom::Symbol(s) => Factor::Symbol(s.clone()),
            Atom::Floor(p) => Factor::Floor(p.0.clone(), p.1.clone()),
            Atom::Min(p) => Factor::Min(p.0.clone(), p.1.clone()),
            Atom::Max(p) => Factor::Max(p.0.clone(), p.1.clone()),
        };
        let product = |t: &Term| (t.coefficient, t.atoms.iter().map(factor).collect());
        (self.constant, self.terms.iter().map(product).collect())
    }

    /// How long the expression is: the number of symbols and calls in it, nested ones included.
    pub fn weight(&self) -> usize {
        let of = |atom: &Atom| match atom {
            Atom::Symbol(_) => 1,
            Atom::Floor(p) | Atom::Min(p) | Atom::Max(p) => 1 + p.0.weight() + p.1.weight(),
        };
        self.terms.iter().flat_map(|t| &t.atoms).map(of).sum()
    }

    /// The size called `name`.
    pub fn symbol(name: &str) -> Dim {
        Atom::Symbol(Symbol(Arc::from(name))).into()
    }

    /// The value, when no symbol is left.
    pub fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The symbol, when the expression is nothing else.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match (self.constant, self.terms.as_slice()) {
            (0, [Term { atoms, coefficient: 1 }]) => match atoms.as_slice() {
                [Atom::Symbol(s)] => Some(s),
                _ => None,
            },
            _ => None,
        }
    }

    /// `floor(self / by)`. Division by the constant 0 gives 0: callers refuse it before.
    pub fn floor_div(&self, by: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), by.as_const()) {
            return Dim::from(floor_div(a, b));
        }
        if self == by || by.as_const() == Some(1) {
            return if self == by { Dim::from(1) } else { self.clone() };
        }
        if let Some(quotient) = self.divide_exactly(by) {
            return quotient;
        }
        if let Some(b) = by.as_const().filter(|&b| b > 0) {
            // floor((b*q + r) / b) = q + floor(r / b) for the terms that b divides.
            let mut quotient = Dim::from(floor_div(self.constant, b));
            let mut rest = Dim::from(self.constant.rem_euclid(b));
            for term in &self.terms {
                let (whole, part) =
                    (floor_div(term.coefficient, b), term.coefficient.rem_euclid(b));
                for (to, coefficient) in [(&mut quotient, whole), (&mut rest, part)] {
                    if coefficient != 0 {
                        let term = Term { atoms: term.atoms.clone(), coefficient };
                        *to = &*to + &Dim { constant: 0, terms: vec![term] };
                    }
                }
            }
            return match rest.as_const() {
                Some(_) => quotient,
                None => quotient + Atom::Floor(Box::new((rest, by.clone()))).into(),
            };
        }
        Atom::Floor(Box::new((self.clone(), by.clone()))).into()
    }

    /// `ceil(self / by)` for a positive `by`.
    pub fn ceil_div(&self, by: &Dim) -> Dim {
        (self + &(by - &Dim::from(1))).floor_div(by)
    }

    /// The smaller of two expressions.
    pub fn smaller(&self, other: &Dim) -> Dim {
        self.pick(other, true)
    }

    /// The larger of two expressions.
    pub fn larger(&self, other: &Dim) -> Dim {
        self.pick(other, false)
    }

    /// The smallest or largest of all that the two choose among, each once: a choice of choices is one.
    fn pick(&self, other: &Dim, smaller: bool) -> Dim {
        let (mut choices, mut kept) = (Vec::new(), Vec::<&Dim>::new());
        self.choices(smaller, &mut choices);
        other.choices(smaller, &mut choices);
        // Sizes are at least 0, which decides more than equal expressions do.
        let beats = |a: &Dim, b: &Dim| {
            let (low, high) = (a - b).bounds(&Ranges::default());
            if smaller { high <= 0 } else { low >= 0 }
        };
        for choice in choices {
            if !kept.iter().any(|k| beats(k, choice)) {
                kept.retain(|k| !beats(choice, k));
                kept.push(choice);
            }
        }
        kept.sort_unstable();
        let last = kept.pop().expect("an expression is a choice").clone();
        kept.into_iter().rev().fold(last, |rest, choice| {
            let pair = Box::new((choice.clone(), rest));
            if smaller { Atom::Min(pair).into() } else { Atom::Max(pair).into() }
        })
    }

    /// What an expression that is nothing but a minimum, or a maximum, chooses among; else itself.
    fn choices<'a>(&'a self, smaller: bool, all: &mut Vec<&'a Dim>) {
        if let (0, [Term { atoms, coefficient: 1 }]) = (self.constant, self.terms.as_slice())
            && let [Atom::Min(pair) | Atom::Max(pair)] = atoms.as_slice()
            && matches!(atoms[0], Atom::Min(_)) == smaller
        {
            pair.0.choices(smaller, all);
            pair.1.choices(smaller, all);
        } else {
            all.push(self);
        }
    }

    /// `self / by` when `by` is a single product that divides every term.
    fn divide_exactly(&self, by: &Dim) -> Option<Dim> {
        let (divisor, coefficient) = match (by.constant, by.terms.as_slice()) {
            (c, []) if c != 0 => (&[][..], c),
            (0, [term]) => (term.atoms.as_slice(), term.coefficient),
            _ => return None,
        };
        if !divisor.is_empty() && self.constant != 0 || self.constant % coefficient != 0 {
            return None;
        }
        let mut quotient = Dim::from(self.constant / coefficient);
        for term in &self.terms {
            if term.coefficient % coefficient != 0 {
                return None;
            }
            let mut atoms = term.atoms.clone();
            for atom in divisor {
                atoms.remove(atoms.iter().position(|a| a == atom)?);
            }
            quotient.add_term(atoms, term.coefficient / coefficient);
        }
        Some(quotient)
    }

    fn add_term(&mut self, atoms: Vec<Atom>, coefficient: i64) {
        if atoms.is_empty() {
            self.constant = self.constant.saturating_add(coefficient);
            return;
        }
        match self.terms.binary_search_by(|t| t.atoms.cmp(&atoms)) {
            Ok(i) => {
                self.terms[i].coefficient = self.terms[i].coefficient.saturating_add(coefficient);
                if self.terms[i].coefficient == 0 {
                    self.terms.remove(i);
                }
            }
            Err(i) if coefficient != 0 => self.terms.insert(i, Term { atoms, coefficient }),
            Err(_) => {}
        }
    }

    /// The expression with each symbol replaced where `value` knows it.
    pub fn substitute(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        let mut sum = Dim::from(self.constant);
        for term in &self.terms {
            let mut product = Dim::from(term.coefficient);
            for atom in &term.atoms {
                let factor = match atom {
                    Atom::Symbol(s) => value(s).unwrap_or_else(|| atom.clone().into()),
                    Atom::Floor(p) => p.0.substitute(value).floor_div(&p.1.substitute(value)),
                    Atom::Min(p) => p.0.substitute(value).smaller(&p.1.substitute(value)),
                    Atom::Max(p) => p.0.substitute(value).larger(&p.1.substitute(value)),
                };
                product = product * factor;
            }
            sum = sum + product;
        }
        sum
    }

    /// Every symbol in the expression, in order of appearance, repeated when it recurs.
    pub fn symbols(&self, into: &mut Vec<Symbol>) {
        for atom in self.terms.iter().flat_map(|t| &t.atoms) {
            match atom {
                Atom::Symbol(s) => into.push(s.clone()),
                Atom::Floor(p) | Atom::Min(p) | Atom::Max(p) => {
                    p.0.symbols(into);
                    p.1.symbols(into);
                }
            }
        }
    }

    /// An interval that contains the expression for all symbols within their ranges.
    pub fn bounds(&self, ranges: &Ranges) -> (i64, i64) {
        let mut sum = (self.constant, self.constant);
        for term in &self.terms {
            let mut product = (term.coefficient, term.coefficient);
            for atom in &term.atoms {
                product = corners(product, atom.bounds(ranges), i64::saturating_mul);
            }
            sum = (sum.0.saturating_add(product.0), sum.1.saturating_add(product.1));
        }
        sum
    }
}

impl Atom {
    fn bounds(&self, ranges: &Ranges) -> (i64, i64) {
        match self {
            Atom::Symbol(s) => ranges.get(s),
            Atom::Floor(p) => {
                let (a, b) = (p.0.bounds(ranges), p.1.bounds(ranges));
                if b.0 > 0 { corners(a, b, floor_div) } else { (i64::MIN, i64::MAX) }
            }
            Atom::Min(p) => {
                let (a, b) = (p.0.bounds(ranges), p.1.bounds(ranges));
                (a.0.min(b.0), a.1.min(b.1))
            }
            Atom::Max(p) => {
                let (a, b) = (p.0.bounds(ranges), p.1.bounds(ranges));
                (a.0.max(b.0), a.1.max(b.1))
            }
        }
    }
}

fn corners(a: (i64, i64), b: (i64, i64), f: fn(i64, i64) -> i64) -> (i64, i64) {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    (all.into_iter().fold(i64::MAX, i64::min), all.into_iter().fold(i64::MIN, i64::max))
}

fn floor_div(a: i64, b: i64) -> i64 {
    let Some(quotient) = a.checked_div(b) else {
        return if b == 0 { 0 } else { i64::MAX };
    };
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

impl Add for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        let mut sum = self.clone();
        sum.constant = sum.constant.saturating_add(other.constant);
        for term in &other.terms {
            sum.add_term(term.atoms.clone(), term.coefficient);
        }
        sum
    }
}

impl Neg for &Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * &Dim::from(-1)
    }
}

impl Sub for &Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        self + &-other
    }
}

impl Mul for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        let one =
            |d: &Dim| (d.constant != 0).then(|| Term { atoms: vec![], coefficient: d.constant });
        let mut product = Dim::from(0);
        for a in one(self).iter().chain(&self.terms) {
            for b in one(other).iter().chain(&other.terms) {
                let mut atoms = [a.atoms.as_slice(), b.atoms.as_slice()].concat();
                atoms.sort();
                product.add_term(atoms, a.coefficient.saturating_mul(b.coefficient));
            }
        }
        product
    }
}

macro_rules! by_value {
    ($($op:ident $method:ident,)*) => { $(
        impl $op for Dim { type Output = Dim; fn $method(self, other: Dim) -> Dim { (&self).$method(&other) } }
    )* };
}
by_value! { Add add, Sub sub, Mul mul, }

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(s) => s.fmt(f),
            Atom::Floor(p) => write!(f, "floor({}, {})", p.0, p.1),
            Atom::Min(p) => write!(f, "min({}, {})", p.0, p.1),
            Atom::Max(p) => write!(f, "max({}, {})", p.0, p.1),
        }
    }
}

/// Terms joined with `+`, a constant last: `2*batch*floor(n, 2)+-1*k+3`. [`Dim::parse`] reads it back.
/// The expression: people read it in lists.
impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "+" })?;
            if term.coefficient != 1 {
                write!(f, "{}*", term.coefficient)?;
            }
            for (j, atom) in term.atoms.iter().enumerate() {
                write!(f, "{}{atom}", if j == 0 { "" } else { "*" })?;
            }
        }
        match (self.terms.is_empty(), self.constant) {
            (true, c) => write!(f, "{c}"),
            (false, 0) => Ok(()),
            (false, c) => write!(f, "+{c}"),
        }
    }
}

/// Why a text is not a dim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a dim: {why} at byte {at}")]
pub struct DimParseError {
    /// The whole text.
    pub text: String,
    /// Offset of the fault.
    pub at: usize,
    /// What was needed.
    pub why: &'static str,
}

impl Dim {
    /// Reads the form that `Display` writes.
    pub fn parse(text: &str) -> Result<Dim, DimParseError> {
        let mut p = Parser { text, at: 0, depth: 0 };
        let dim = p.sum()?;
        if p.at == text.len() { Ok(dim) } else { Err(p.fault("needed the end")) }
    }
}

impl Serialize for Dim {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.as_const() {
            Some(number) if to.is_human_readable() => to.serialize_i64(number),
            _ => to.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Dim, D::Error> {
        struct Reader;
        impl serde::de::Visitor<'_> for Reader {
            type Value = Dim;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or the text of a dim")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Dim, E> {
                Ok(Dim::from(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Dim, E> {
                i64::try_from(number).map(Dim::from).map_err(E::custom)
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Dim, E> {
                Dim::parse(text).map_err(E::custom)
            }
        }
        if from.is_human_readable() {
            from.deserialize_any(Reader)
        } else {
            from.deserialize_str(Reader)
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fault(&self, why: &'static str) -> DimParseError {
        DimParseError { text: self.text.to_owned(), at: self.at, why }
    }

    fn eat(&mut self, token: char) -> bool {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len_utf8();
        }
        found
    }

    fn need(&mut self, token: char, why: &'static str) -> Result<(), DimParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.fault(why)) }
    }

    fn sum(&mut self) -> Result<Dim, DimParseError> {
        self.depth += 1;
        if self.depth > 64 {
            return Err(self.fault("needed at most 64 nested expressions"));
        }
        let mut sum = self.product()?;
        while self.eat('+') {
            sum = sum + self.product()?;
        }
        self.depth -= 1;
        Ok(sum)
    }

    fn product(&mut self) -> Result<Dim, DimParseError> {
        let mut product = self.atom()?;
        while self.eat('*') {
            product = product * self.atom()?;
        }
        Ok(product)
    }

    fn atom(&mut self) -> Result<Dim, DimParseError> {
        let negative = self.eat('-');
        self.eat(' ');
        let rest = &self.text[self.at..];
        let end = |ok: fn(char) -> bool| rest.find(|c| !ok(c)).unwrap_or(rest.len());
        let digits = end(|c| c.is_ascii_digit());
        if digits > 0 {
            let sign = if negative { "-" } else { "" };
            let number = format!("{sign}{}", &rest[..digits]).parse::<i64>();
            let number = number.map_err(|_| self.fault("needed a 64-bit number"))?;
            self.at += digits;
            return Ok(Dim::from(number));
        }
        let name = &rest[..end(|c| !c.is_whitespace() && !"+*(),-[]".contains(c))];
        if negative || name.is_empty() {
            return Err(self.fault("needed a number, a name or a call"));
        }
        self.at += name.len();
        let call: Option<fn(&Dim, &Dim) -> Dim> = match name {
            "floor" => Some(Dim::floor_div),
            "min" => Some(Dim::smaller),
            "max" => Some(Dim::larger),
            _ => None,
        };
        match call {
            Some(call) if self.eat('(') => {
                let a = self.sum()?;
                self.need(',', "needed `,`")?;
                let b = self.sum()?;
                self.need(')', "needed `)`")?;
                Ok(call(&a, &b))
            }
            _ => Ok(Dim::symbol(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(text: &str) -> Dim {
        Dim::parse(text).unwrap()
    }

    #[test]
    fn parts_tell_the_whole_expression() {
        let d = dim("3*b*floor(n, 2)+min(b, n)+-4");
        let (constant, terms) = d.parts();
        let mut sum = Dim::from(constant);
        for (coefficient, factors) in terms {
            let of = |f: &Factor| match f {
                Factor::Symbol(s) => Dim::symbol(&s.0),
                Factor::Floor(a, b) => a.floor_div(b),
                Factor::Min(a, b) => a.smaller(b),
                Factor::Max(a, b) => a.larger(b),
            };
            sum = sum + factors.iter().fold(Dim::from(coefficient), |p, f| p * of(f));
        }
        assert_eq!(sum, d);
        assert_eq!((d.weight(), Dim::from(7).weight()), (6, 0));
    }

    #[test]
    fn equal_sizes_compare_equal() {
        let (a, b) = (Dim::symbol("a"), Dim::symbol("b"));
        assert_eq!(&(&a + &b) * &(&a - &b), &(&a * &a) - &(&b * &b));
        assert_eq!(dim("6*a*b").floor_div(&dim("2*b")), dim("3*a"));
        assert_eq!(dim("4*a+6").floor_div(&Dim::from(4)), dim("a+1"));
        assert_eq!(dim("a+3").smaller(&dim("a+2")), dim("a+2"));
        assert_eq!(dim("a").larger(&dim("b")), dim("b").larger(&dim("a")));
        let all = dim("a").larger(&dim("b")).larger(&dim("c"));
        assert_eq!(all, dim("c").larger(&dim("a").larger(&dim("b").larger(&dim("a+-1")))));
        assert_eq!((all.larger(&dim("b")), all.weight()), (all.clone(), 5));
        assert_eq!((dim("a").larger(&dim("0")), dim("a").smaller(&dim("0"))), (dim("a"), dim("0")));
        assert_eq!(dim("max(a, b)").larger(&dim("b+1")), dim("max(a, b+1)"));
        assert_eq!(all.smaller(&dim("d")).to_string(), format!("min(d, {all})"));
    }

    #[test]
    fn text_round_trips_and_faults_are_placed() {
        for text in ["0", "-3", "batch", "2*a*b+-1*c+7", "floor(a+1, 2)*b", "max(min(a, b), 4)"] {
            assert_eq!(dim(&dim(text).to_string()), dim(text), "{text}");
        }
        for text in ["", "a+", "floor(a", "--3", "9999999999999999999", "a)"] {
            assert!(Dim::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn substitution_and_bounds_agree() {
        let expression = dim("floor(3*n+2, 4)*k+max(n, k)+-1*n");
        let ranges = Ranges(
            [("n", (1, 9)), ("k", (2, 3))]
                .map(|(s, r)| (Symbol(Arc::from(s)), r))
                .into_iter()
                .collect(),
        );
        let (lo, hi) = expression.bounds(&ranges);
        for n in 1..=9i64 {
            for k in 2..=3 {
                let want = (3 * n + 2).div_euclid(4) * k + n.max(k) - n;
                let got = expression
                    .substitute(&|s| Some(Dim::from(if &*s.0 == "n" { n } else { k })))
                    .as_const();
                assert_eq!(got, Some(want));
                assert!(lo <= want && want <= hi);
            }
        }
    }
}
