//! Reads the shapes of computations.

use super::Parser;
use crate::pattern::{
    error::Fault,
    syntax::{Arguments, Leaf, Literal, Name, OpName, OpPattern, Pattern},
    token::Token,
};

impl Parser {
    pub(super) fn pattern(&mut self) -> Result<Pattern, Fault> {
        self.deeper(|p| {
            let mut all = vec![p.optional()?];
            while p.eat("|") {
                all.push(p.optional()?);
            }
            match (all.pop(), all.is_empty()) {
                (Some(only), true) => Ok(only),
                (last, _) => {
                    all.extend(last);
                    Ok(Pattern::Any(all))
                }
            }
        })
    }

    fn optional(&mut self) -> Result<Pattern, Fault> {
        let pattern = self.primary()?;
        Ok(if self.eat("?") { Pattern::Optional(Box::new(pattern)) } else { pattern })
    }

    fn primary(&mut self) -> Result<Pattern, Fault> {
        if matches!(self.peek_second(), Token::Mark("@")) {
            let name = self.name("the name of a value")?;
            self.expect("@")?;
            let inner = self.unnamed()?;
            return Ok(Pattern::Bind(name, Box::new(inner)));
        }
        self.unnamed()
    }

    fn unnamed(&mut self) -> Result<Pattern, Fault> {
        if self.eat("(") {
            let inner = self.pattern()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.eat("$") {
            return self.name("the name of a value").map(Pattern::Same);
        }
        for (word, leaf) in [
            ("_", Leaf::Any),
            ("const", Leaf::Const),
            ("var", Leaf::Var),
            ("scalar", Leaf::Scalar),
            ("input", Leaf::Input),
        ] {
            if self.eat_word(word) {
                return Ok(Pattern::Leaf(leaf));
            }
        }
        if let Token::Name(_) = self.peek()
            && !matches!(self.peek_second(), Token::Mark("(" | "[" | "{" | "/"))
        {
            return self.name("a pattern").map(Pattern::Use);
        }
        if !matches!(self.peek(), Token::Name(_)) && !self.is("#") {
            return self.needed(
                "an op, `#` with a class of ops, `_`, `const`, `var`, `scalar`, `input`, `$` or `(`",
            );
        }
        let ops = self.ops()?;
        let attributes = if self.eat("[") { self.attributes()? } else { Vec::new() };
        let arguments = self.arguments()?;
        Ok(Pattern::Op(OpPattern { ops, attributes, arguments }))
    }

    pub(super) fn ops(&mut self) -> Result<Vec<OpName>, Fault> {
        let mut all = Vec::new();
        loop {
            all.push(match self.eat("#") {
                true => OpName::Class(self.name("a class of ops")?),
                false => OpName::Op(self.name("the name of an op")?),
            });
            if !self.eat("/") {
                return Ok(all);
            }
        }
    }

    fn attributes(&mut self) -> Result<Vec<(Name, Literal)>, Fault> {
        let mut all = Vec::new();
        loop {
            let name = self.name("the name of an attribute")?;
            self.expect("=")?;
            all.push((name, self.literal()?));
            if !self.eat(",") {
                self.expect("]")?;
                return Ok(all);
            }
        }
    }

    fn arguments(&mut self) -> Result<Arguments, Fault> {
        if self.eat("{") {
            let first = self.pattern()?;
            self.expect(",")?;
            let second = self.pattern()?;
            self.expect("}")?;
            return Ok(Arguments::Either(Box::new([first, second])));
        }
        if !self.eat("(") {
            return self.needed("`(` or `{` with the operands");
        }
        let mut all = Vec::new();
        if self.eat(")") {
            return Ok(Arguments::Exact(all));
        }
        loop {
            if self.eat("...") {
                self.expect(")")?;
                return Ok(Arguments::Open(all));
            }
            all.push(self.pattern()?);
            if !self.eat(",") {
                self.expect(")")?;
                return Ok(Arguments::Exact(all));
            }
        }
    }
}
