//! Reads a pattern file: words here, and each part of the language in a module of its own.

mod declarations;
mod expressions;
mod formats;
mod patterns;

use super::{
    error::{Fault, Position},
    syntax::{File, Literal, Name},
    token::{Lexeme, Token, words},
};

/// Brackets inside brackets, at most.
pub(super) const MOST_DEPTH: usize = 64;

/// Reads a file; the first fault of its grammar ends it.
pub(super) fn parse(text: &str) -> Result<File, Fault> {
    let mut parser = Parser { words: words(text)?, next: 0, depth: 0 };
    let mut file = File::default();
    while *parser.peek() != Token::End {
        file.declarations.push(parser.declaration()?);
    }
    Ok(file)
}

pub(super) struct Parser {
    words: Vec<Lexeme>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.words[self.next].token
    }

    fn peek_second(&self) -> &Token {
        &self.words[(self.next + 1).min(self.words.len() - 1)].token
    }

    fn at(&self) -> Position {
        self.words[self.next].at
    }

    fn advance(&mut self) {
        // The end is never passed.
        self.next = (self.next + 1).min(self.words.len() - 1);
    }

    fn needed<T>(&self, needed: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::needed(self.at(), needed, self.peek().shown()))
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(m) if *m == mark)
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Result<(), Fault> {
        if self.eat(mark) { Ok(()) } else { self.needed(format!("`{mark}`")) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(n) if n == word)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Fault> {
        if self.eat_word(word) { Ok(()) } else { self.needed(format!("`{word}`")) }
    }

    fn name(&mut self, what: &str) -> Result<Name, Fault> {
        match self.peek() {
            Token::Name(text) if text != "_" => {
                let name = Name { text: text.clone(), at: self.at() };
                self.advance();
                Ok(name)
            }
            _ => self.needed(what),
        }
    }

    fn text(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Token::Text(text) => {
                let text = text.clone();
                self.advance();
                Ok(text)
            }
            _ => self.needed("a text in quotes"),
        }
    }

    fn int(&mut self) -> Result<i64, Fault> {
        let negative = self.eat("-");
        match *self.peek() {
            Token::Int(n) => {
                self.advance();
                Ok(if negative { -n } else { n })
            }
            _ => self.needed("an integer"),
        }
    }

    fn literal(&mut self) -> Result<Literal, Fault> {
        if self.eat("-") {
            let literal = match *self.peek() {
                Token::Int(n) => Literal::Int(-n),
                Token::Real(n) => Literal::Real(-n),
                _ => return self.needed("a number"),
            };
            self.advance();
            return Ok(literal);
        }
        let literal = match self.peek() {
            Token::Int(n) => Literal::Int(*n),
            Token::Real(n) => Literal::Real(*n),
            Token::Text(text) => Literal::Text(text.clone()),
            Token::Name(name) if name == "true" => Literal::Bool(true),
            Token::Name(name) if name == "false" => Literal::Bool(false),
            _ => return self.needed("a number, a text in quotes, `true` or `false`"),
        };
        self.advance();
        Ok(literal)
    }

    /// What `read` reads, one level deeper.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Parser) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if self.depth == MOST_DEPTH {
            return Err(Fault::limit(self.at(), "brackets inside each other", MOST_DEPTH));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }
}
