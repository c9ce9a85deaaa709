//! Reads formats.

use super::Parser;
use crate::pattern::{
    error::Fault,
    syntax::{FormatSet, FormatSpec, Name},
    token::Token,
};
use bricolage_tensor::{DType, Layout};

impl Parser {
    pub(super) fn formats(&mut self) -> Result<Vec<(Name, FormatSet)>, Fault> {
        self.expect("{")?;
        let mut all = Vec::new();
        while !self.eat("}") {
            let at = self.at();
            let name = match self.eat_word("_") {
                true => Name { text: "_".to_owned(), at },
                false => self.name("the name of a value, `_` or `}`")?,
            };
            self.expect(":")?;
            all.push((name, self.format_set()?));
            self.expect(";")?;
        }
        Ok(all)
    }

    fn format_set(&mut self) -> Result<FormatSet, Fault> {
        if self.eat_word("same_as") {
            return self.name("the name of a value").map(FormatSet::SameAs);
        }
        if self.is_word("any") && !matches!(self.peek_second(), Token::Mark(":")) {
            self.advance();
            return Ok(FormatSet::Any);
        }
        let mut all = vec![self.format()?];
        while self.eat("|") {
            all.push(self.format()?);
        }
        Ok(FormatSet::OneOf(all))
    }

    pub(super) fn format(&mut self) -> Result<FormatSpec, Fault> {
        let needed = "an element type or `any`";
        let at = self.at();
        let name = self.name(needed)?;
        let dtype = match DType::from_name(&name.text) {
            Some(dtype) => Some(dtype),
            None if name.text == "any" => None,
            None => return Err(Fault::needed(at, needed, format!("`{}`", name.text))),
        };
        self.expect(":")?;
        let layout = self.layout()?;
        Ok(FormatSpec { dtype, layout })
    }

    fn layout(&mut self) -> Result<Layout, Fault> {
        let needed = "`plain`, `channels-last` or `blocked` with a number";
        let at = self.at();
        let word = self.name(needed)?.text;
        if word == "plain" {
            return Ok(Layout::Plain);
        }
        if word == "channels" {
            self.expect("-")?;
            self.expect_word("last")?;
            return Ok(Layout::ChannelsLast { halo: self.halo()? });
        }
        let block = word.strip_prefix("blocked").and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        match block {
            Some(block) => Ok(Layout::Blocked { block, halo: self.halo()? }),
            None => Err(Fault::needed(at, needed, Token::Name(word).shown())),
        }
    }

    fn halo(&mut self) -> Result<u8, Fault> {
        if !self.eat("+") {
            return Ok(0);
        }
        let at = self.at();
        let halo = self.int()?;
        u8::try_from(halo)
            .map_err(|_| Fault::needed(at, "a halo of at most 255", format!("the number {halo}")))
    }
}
