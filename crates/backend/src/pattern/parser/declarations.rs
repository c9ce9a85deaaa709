//! Reads declarations.

use super::Parser;
use crate::{
    BackendKind,
    pattern::{error::Fault, syntax::*, token::Token},
};
use bricolage_ir::Numerics;

const DIRECTIONS: &[(&str, Direction)] =
    &[("down", Direction::Down), ("up", Direction::Up), ("side", Direction::Side)];

impl Parser {
    pub(super) fn declaration(&mut self) -> Result<Declaration, Fault> {
        let word = match self.peek() {
            Token::Name(word) => word.clone(),
            _ => String::new(),
        };
        let read = match word.as_str() {
            "backend" => |p: &mut Parser| p.backend().map(Declaration::Backend),
            "let" => |p: &mut Parser| p.definition().map(Declaration::Let),
            "pattern" => |p: &mut Parser| p.pattern_declaration().map(Declaration::Pattern),
            "rule" => |p: &mut Parser| p.rule().map(Declaration::Rule),
            "convert" => |p: &mut Parser| p.convert().map(Declaration::Convert),
            "exclude" => |p: &mut Parser| p.exclude().map(Declaration::Exclude),
            _ => {
                return self.needed("`backend`, `let`, `pattern`, `rule`, `convert` or `exclude`");
            }
        };
        self.advance();
        read(self)
    }

    /// Fills a field that may be given once.
    fn once<T>(
        &mut self,
        field: &mut Option<T>,
        read: impl FnOnce(&mut Parser) -> Result<T, Fault>,
    ) -> Result<(), Fault> {
        if field.is_some() {
            let at = self.words[self.next.saturating_sub(1)].at;
            return Err(Fault::needed(at, "each field once", "it a second time"));
        }
        self.expect(":")?;
        *field = Some(read(self)?);
        self.expect(";")
    }

    fn backend(&mut self) -> Result<BackendDeclaration, Fault> {
        let mut b = BackendDeclaration {
            name: self.name("the name of the backend")?,
            kind: None,
            plugin: None,
            version: None,
            covers: None,
            numerics: None,
            requires: None,
        };
        self.expect("{")?;
        while !self.eat("}") {
            match () {
                () if self.eat_word("kind") => self.once(&mut b.kind, Parser::kind)?,
                () if self.eat_word("plugin") => self.once(&mut b.plugin, Parser::text)?,
                () if self.eat_word("version") => self.once(&mut b.version, |p| {
                    let low = p.text()?;
                    p.expect("..")?;
                    Ok((low, p.text()?))
                })?,
                () if self.eat_word("covers") => self.once(&mut b.covers, Parser::text)?,
                () if self.eat_word("numerics") => self.once(&mut b.numerics, Parser::numerics)?,
                () if self.eat_word("requires") => {
                    self.once(&mut b.requires, Parser::expression)?;
                }
                () => {
                    return self.needed(
                        "`kind`, `plugin`, `version`, `covers`, `numerics`, `requires` or `}`",
                    );
                }
            }
        }
        Ok(b)
    }

    fn kind(&mut self) -> Result<BackendKind, Fault> {
        self.word_of(KINDS)
    }

    fn numerics(&mut self) -> Result<Numerics, Fault> {
        self.word_of(NUMERICS)
    }

    /// What one of a few words stands for.
    fn word_of<T: Copy>(&mut self, all: &[(&str, T)]) -> Result<T, Fault> {
        match all.iter().find(|(word, _)| self.eat_word(word)) {
            Some((_, found)) => Ok(*found),
            None => {
                let words: Vec<String> = all.iter().map(|(word, _)| format!("`{word}`")).collect();
                self.needed(words.join(" or "))
            }
        }
    }

    fn definition(&mut self) -> Result<Let, Fault> {
        let name = self.name("the name of a pattern")?;
        let mut parameters = Vec::new();
        if self.eat("(") {
            parameters.push(self.name("the name of a parameter")?);
            while self.eat(",") {
                parameters.push(self.name("the name of a parameter")?);
            }
            self.expect(")")?;
        }
        self.expect("=")?;
        let pattern = self.pattern()?;
        let condition = if self.eat_word("where") { Some(self.expression()?) } else { None };
        self.expect(";")?;
        Ok(Let { name, parameters, pattern, condition })
    }

    /// The name of a pattern or rule: one, or several with `+` between them.
    fn title(&mut self, what: &'static str) -> Result<Name, Fault> {
        let mut title = self.name(what)?;
        while self.eat("+") {
            title.text.push('+');
            title.text.push_str(&self.name("a name after `+`")?.text);
        }
        Ok(title)
    }

    /// Reads a field that patterns and rules share, if one stands here.
    fn claim(&mut self, claim: &mut Claim) -> Result<bool, Fault> {
        match () {
            () if self.eat_word("where") => {
                self.expect(":")?;
                claim.conditions.push(self.expression()?);
                self.expect(";")?;
            }
            () if self.eat_word("formats") => {
                self.expect(":")?;
                claim.formats.push(self.formats()?);
                self.eat(";");
            }
            () if self.eat_word("entry") => {
                self.once(&mut claim.entry, |p| {
                    let at = p.at();
                    p.text().map(|text| Name { text, at })
                })?;
            }
            () if self.eat_word("numerics") => {
                self.once(&mut claim.numerics, Parser::numerics)?;
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    fn pattern_declaration(&mut self) -> Result<PatternDeclaration, Fault> {
        let name = self.title("the name of a pattern")?;
        self.expect("{")?;
        let (mut pattern, mut claim) = (None, Claim::default());
        while !self.is("}") {
            if self.eat_word("match") {
                self.once(&mut pattern, Parser::pattern)?;
            } else if !self.claim(&mut claim)? {
                return self.needed("`match`, `where`, `formats`, `entry`, `numerics` or `}`");
            }
        }
        let Some(pattern) = pattern else { return self.needed("`match` before the end") };
        self.advance();
        Ok(PatternDeclaration { name, pattern, claim })
    }

    fn rule(&mut self) -> Result<RuleDeclaration, Fault> {
        let name = self.title("the name of a rule")?;
        self.expect("{")?;
        let (mut seed, mut grow, mut claim) = (None, Vec::new(), Claim::default());
        let (mut max_nodes, mut max_depth) = (None, None);
        while !self.is("}") {
            if self.eat_word("seed") {
                self.once(&mut seed, Parser::pattern)?;
            } else if self.eat_word("grow") {
                self.expect(":")?;
                grow.push(self.grow()?);
                self.expect(";")?;
            } else if self.eat_word("max_nodes") {
                self.once(&mut max_nodes, Parser::int)?;
            } else if self.eat_word("max_depth") {
                self.once(&mut max_depth, Parser::int)?;
            } else if !self.claim(&mut claim)? {
                return self.needed(
                    "`seed`, `grow`, `max_nodes`, `max_depth`, `where`, `formats`, `entry`, `numerics` or `}`",
                );
            }
        }
        let Some(seed) = seed else { return self.needed("`seed` before the end") };
        self.advance();
        Ok(RuleDeclaration { name, seed, grow, max_nodes, max_depth, claim })
    }

    fn grow(&mut self) -> Result<Grow, Fault> {
        let direction = self.word_of(DIRECTIONS)?;
        let ops = self.ops()?;
        let mut meet = false;
        if self.eat_word("via") {
            if self.eat_word("postdom") {
                meet = true;
            } else {
                self.expect_word("edge")?;
            }
        }
        let condition = if self.eat_word("while") { Some(self.expression()?) } else { None };
        Ok(Grow { direction, ops, meet, condition })
    }

    fn convert(&mut self) -> Result<Convert, Fault> {
        let name = self.name("the name of a conversion")?;
        self.expect(":")?;
        let from = self.format()?;
        self.expect("->")?;
        let to = self.format()?;
        let condition = if self.eat_word("where") { Some(self.expression()?) } else { None };
        self.expect(";")?;
        Ok(Convert { name, from, to, condition })
    }

    fn exclude(&mut self) -> Result<Exclude, Fault> {
        let name = self.title("the name of a pattern or rule")?;
        self.expect_word("where")?;
        let condition = self.expression()?;
        self.expect_word("because")?;
        let because = self.text()?;
        self.expect(";")?;
        Ok(Exclude { name, condition, because })
    }
}
