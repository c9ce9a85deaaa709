//! The words of a pattern file.

use super::error::{Fault, Position};

/// Characters of a word that a message repeats.
const MOST_SHOWN: usize = 32;

/// One word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A letter or `_`, then letters, digits and `_`.
    Name(String),
    Int(i64),
    /// A number with a point or an exponent.
    Real(f64),
    /// A text in quotes, without them.
    Text(String),
    Mark(&'static str),
    End,
}

impl Token {
    /// The word as messages name it.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Name(name) => format!("`{}`", short(name)),
            Token::Int(n) => format!("the number {n}"),
            Token::Real(n) => format!("the number {n:?}"),
            Token::Text(text) => format!("the text {:?}", short(text)),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::End => "the end of the file".to_owned(),
        }
    }
}

/// The start of a long word.
fn short(word: &str) -> String {
    match word.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}..", &word[..end]),
        None => word.to_owned(),
    }
}

/// A word and where it starts.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) at: Position,
}

/// Marks, those that start with another one first.
const MARKS: &[&str] = &[
    "...", "..", "->", "==", "!=", "<=", ">=", "&&", "||", "{", "}", "(", ")", "[", "]", ",", ";",
    ":", "@", "?", "|", "$", "#", "/", "=", "<", ">", "+", "-", "*", "%", "!", ".",
];

/// All words of a text, the last of which is [`Token::End`]. `//` starts a comment that ends with
/// the line.
pub(super) fn words(text: &str) -> Result<Vec<Lexeme>, Fault> {
    let mut reader = Reader { rest: text, at: Position { line: 1, column: 1 } };
    let mut all = Vec::new();
    loop {
        reader.space();
        let at = reader.at;
        let token = reader.word()?;
        let end = token == Token::End;
        all.push(Lexeme { token, at });
        if end {
            return Ok(all);
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    at: Position,
}

impl<'a> Reader<'a> {
    /// Takes `len` bytes, which end where a character does.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        for c in taken.chars() {
            if c == '\n' {
                self.at.line = self.at.line.saturating_add(1);
                self.at.column = 1;
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !holds(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn space(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn word(&mut self) -> Result<Token, Fault> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Token::Name(name.to_owned()));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' {
            return self.text();
        }
        match MARKS.iter().find(|m| self.rest.starts_with(**m)) {
            Some(mark) => {
                self.take(mark.len());
                Ok(Token::Mark(mark))
            }
            None => Err(Fault::needed(self.at, "a word of the language", format!("{first:?}"))),
        }
    }

    fn number(&mut self) -> Result<Token, Fault> {
        let (at, start) = (self.at, self.rest);
        let digits = |r: &mut Reader<'a>| r.take_while(|c| c.is_ascii_digit()).len();
        let mut len = digits(self);
        let digit = |text: &str, i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
        let mut whole = true;
        if self.rest.starts_with('.') && digit(self.rest, 1) {
            self.take(1);
            len += 1 + digits(self);
            whole = false;
        }
        if self.rest.starts_with(['e', 'E']) {
            let sign = usize::from(self.rest[1..].starts_with(['+', '-']));
            if digit(self.rest, 1 + sign) {
                self.take(1 + sign);
                len += 1 + sign + digits(self);
                whole = false;
            }
        }
        let word = &start[..len];
        let huge = |needed: &str| Fault::needed(at, needed, format!("the number {}", short(word)));
        if whole {
            let needed = format!("a number of at most {}", i64::MAX);
            return word.parse().map(Token::Int).map_err(|_| huge(&needed));
        }
        match word.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Real(number)),
            _ => Err(huge("a number of double precision")),
        }
    }

    fn text(&mut self) -> Result<Token, Fault> {
        let at = self.at;
        self.take(1);
        let mut text = String::new();
        loop {
            match self.rest.chars().next() {
                Some('"') => {
                    self.take(1);
                    return Ok(Token::Text(text));
                }
                Some('\\') => {
                    self.take(1);
                    match self.rest.chars().next() {
                        Some(c @ ('"' | '\\')) => {
                            self.take(1);
                            text.push(c);
                        }
                        _ => return Err(Fault::needed(self.at, "`\\\"` or `\\\\`", "`\\`")),
                    }
                }
                None | Some('\n') => {
                    let found = format!("the text {:?} without its end", short(&text));
                    return Err(Fault::needed(at, "a text that ends on its line", found));
                }
                Some(c) => {
                    self.take(c.len_utf8());
                    text.push(c);
                }
            }
        }
    }
}
