//! Reads conditions.

use super::{MOST_DEPTH, Parser};
use crate::pattern::{
    error::Fault,
    syntax::{Arithmetic, Comparison, Expression, Measure, Name, Path, Step},
    token::Token,
};

const COMPARISONS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("!=", Comparison::Differs),
    ("<", Comparison::Less),
    ("<=", Comparison::AtMost),
    (">", Comparison::Greater),
    (">=", Comparison::AtLeast),
];

const SUMS: &[(&str, Arithmetic)] = &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];

const PRODUCTS: &[(&str, Arithmetic)] =
    &[("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Remainder)];

impl Parser {
    pub(super) fn expression(&mut self) -> Result<Expression, Fault> {
        self.deeper(|p| {
            p.chain("||", |p| p.chain("&&", Parser::negation, Expression::And), Expression::Or)
        })
    }

    /// Several conditions with a mark between them.
    fn chain(
        &mut self,
        mark: &str,
        part: impl Fn(&mut Parser) -> Result<Expression, Fault>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, Fault> {
        let first = part(self)?;
        if !self.is(mark) {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.eat(mark) {
            all.push(part(self)?);
        }
        Ok(join(all))
    }

    fn negation(&mut self) -> Result<Expression, Fault> {
        if self.eat("!") {
            return self.deeper(|p| p.negation().map(Box::new).map(Expression::Not));
        }
        let left = self.sum()?;
        if self.eat_word("in") {
            return self.set(left);
        }
        match COMPARISONS.iter().find(|(mark, _)| self.eat(mark)) {
            Some((_, comparison)) => {
                let right = self.sum()?;
                Ok(Expression::Compare(*comparison, Box::new([left, right])))
            }
            None => Ok(left),
        }
    }

    fn set(&mut self, left: Expression) -> Result<Expression, Fault> {
        let left = Box::new(left);
        if !self.eat("{") {
            let low = self.literal()?;
            self.expect("..")?;
            return Ok(Expression::Within(left, low, self.literal()?));
        }
        let mut all = vec![self.literal()?];
        while self.eat(",") {
            all.push(self.literal()?);
        }
        self.expect("}")?;
        Ok(Expression::OneOf(left, all))
    }

    fn operation(
        &mut self,
        marks: &[(&str, Arithmetic)],
        part: fn(&mut Parser) -> Result<Expression, Fault>,
    ) -> Result<Expression, Fault> {
        let mut left = part(self)?;
        let mut operations = 0;
        while let Some((_, operation)) = marks.iter().find(|(mark, _)| self.eat(mark)) {
            // Each is one level of what is read, though not of its text.
            operations += 1;
            if operations > MOST_DEPTH {
                let most = MOST_DEPTH;
                return Err(Fault::limit(self.at(), "operations after each other", most));
            }
            let right = part(self)?;
            left = Expression::Arithmetic(*operation, Box::new([left, right]));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expression, Fault> {
        self.operation(SUMS, |p| p.operation(PRODUCTS, Parser::factor))
    }

    fn factor(&mut self) -> Result<Expression, Fault> {
        if self.eat("-") {
            return self.deeper(|p| p.factor().map(Box::new).map(Expression::Negative));
        }
        if self.eat("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        match self.peek() {
            Token::Name(name) if !matches!(name.as_str(), "true" | "false") => self.named(),
            Token::Name(_) | Token::Int(_) | Token::Real(_) | Token::Text(_) => {
                self.literal().map(Expression::Literal)
            }
            _ => self.needed("a literal, a name, `-`, `!` or `(`"),
        }
    }

    /// A function or a path.
    fn named(&mut self) -> Result<Expression, Fault> {
        let root = self.name("a name")?;
        if !self.eat("(") {
            return self.path(root).map(Expression::Path);
        }
        let expression = match root.text.as_str() {
            word @ ("all" | "any") => {
                let each = self.name("a name for the elements")?;
                if !self.eat_word("in") {
                    return self.needed("`in`");
                }
                let list = self.argument()?;
                self.expect(":")?;
                let body = self.expression()?;
                Expression::Every(word == "all", each, list, Box::new(body))
            }
            "prod" => Expression::Measure(Measure::Product, self.argument()?),
            "len" => Expression::Measure(Measure::Length, self.argument()?),
            "has" => Expression::Measure(Measure::Has, self.argument()?),
            "aligned" => {
                let path = self.argument()?;
                self.expect(",")?;
                Expression::Aligned(path, self.int()?)
            }
            "mac" => Expression::Macs(self.name("the name of a node")?),
            "same" => {
                let first = self.name("the name of a value")?;
                self.expect(",")?;
                Expression::Same(first, self.name("the name of a value")?)
            }
            _ => return Err(Fault::unknown(root.at, "the name of a function", &root.text)),
        };
        self.expect(")")?;
        Ok(expression)
    }

    fn argument(&mut self) -> Result<Path, Fault> {
        let root = self.name("the name of a value")?;
        self.path(root)
    }

    fn path(&mut self, root: Name) -> Result<Path, Fault> {
        let mut steps = Vec::new();
        loop {
            if self.eat(".") {
                steps.push(Step::Field(self.name("the name of a field")?));
            } else if self.eat("[") {
                steps.push(Step::Index(self.int()?));
                self.expect("]")?;
            } else {
                return Ok(Path { root, steps });
            }
        }
    }
}
