//! ONNX models as text: the text format of protocol buffers, with fields from the schema in `crates/onnx`.
//!
//! `name: value` gives a number, a string in quotes or the name of an enum's value; `name { .. }` a message.
//! Of our own: `"text" * 3` repeats a string, and `name * 3 { .. }` a message, where `$i` in strings counts
//! from 0 and `$n` from 1; `#` starts a comment.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

const SCHEMA: &str = include_str!("../../onnx/proto/onnx.proto");

/// The bytes of the model that `text` describes. `Err` with a sentence.
pub fn model(text: &str) -> Result<Vec<u8>, String> {
    let schema = Schema::read();
    let mut reader = Reader { text, at: 0, schema: &schema, count: None };
    let bytes = reader.message("ModelProto", false)?;
    Ok(bytes)
}

/// Head and body of every part of a case file, each after a line `== HEAD`, and the comment before the
/// first.
pub fn parts(text: &str) -> (String, Vec<(String, String)>) {
    let (mut comment, mut parts) = (String::new(), Vec::<(String, String)>::new());
    for line in text.lines() {
        match (line.strip_prefix("== "), parts.last_mut()) {
            (Some(head), _) => parts.push((head.to_owned(), String::new())),
            (None, Some((_, body))) => body.push_str(&format!("{line}\n")),
            (None, None) => comment.push_str(&format!("{line}\n")),
        }
    }
    (comment, parts)
}

/// The bytes that hexadecimal digits say, whatever is between them; what is left of an odd one is dropped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| Some(c.to_digit(16)? as u8)).collect();
    digits.chunks_exact(2).map(|p| p[0] << 4 | p[1]).collect()
}

/// Every model in `cases/hostile` of at most 64 KiB.
pub fn hostile() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/hostile");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    let texts = paths.iter().filter_map(|p| fs::read_to_string(p).ok());
    let all = texts.flat_map(|text| parts(&text).1).filter_map(|(head, body)| {
        match head.split(' ').next()? {
            "model" => model(&body).ok(),
            "hex" => Some(hex(&body)),
            _ => None,
        }
    });
    all.filter(|bytes| bytes.len() <= 64 << 10).collect()
}

#[derive(Clone, Debug)]
struct Field {
    number: u64,
    /// A scalar's name, or the full name of a message or an enum.
    kind: String,
}

#[derive(Default)]
struct Schema {
    /// Fields by message and name.
    messages: HashMap<String, HashMap<String, Field>>,
    /// Numbers by enum and name.
    enums: HashMap<String, HashMap<String, u64>>,
}

impl Schema {
    fn read() -> Schema {
        let mut schema = Schema::default();
        // What is open: the full name of a message or an enum; none for a choice.
        let mut open: Vec<Option<String>> = Vec::new();
        for line in SCHEMA.lines() {
            let line = line.split("//").next().unwrap_or("").trim();
            let words: Vec<&str> = line.split_whitespace().collect();
            let around = open.iter().rev().flatten().next().cloned();
            match words[..] {
                [what @ ("message" | "enum"), name, "{", ..] => {
                    let full = around.map_or(name.to_owned(), |a| format!("{a}.{name}"));
                    match what {
                        "message" => drop(schema.messages.entry(full.clone()).or_default()),
                        _ => drop(schema.enums.entry(full.clone()).or_default()),
                    }
                    open.push((!line.ends_with('}')).then_some(full));
                    if line.ends_with('}') {
                        open.pop();
                    }
                }
                ["oneof", _, "{"] => open.push(None),
                ["}" | "};", ..] => drop(open.pop()),
                [name, "=", number, ..] if around.is_some() => {
                    let number = number.trim_end_matches(';').parse();
                    if let (Some(all), Ok(number)) =
                        (around.and_then(|a| schema.enums.get_mut(&a)), number)
                    {
                        all.insert(name.to_owned(), number);
                    }
                }
                _ => {
                    let rest = match words[..] {
                        ["optional" | "repeated", ref rest @ ..] => rest,
                        ref all => all,
                    };
                    let [kind, name, "=", number, ..] = rest[..] else { continue };
                    let number = number.trim_end_matches(';').parse();
                    if let (Some(all), Ok(number)) =
                        (around.and_then(|a| schema.messages.get_mut(&a)), number)
                    {
                        all.insert(name.to_owned(), Field { number, kind: kind.to_owned() });
                    }
                }
            }
        }
        schema
    }

    /// What a type's name means inside a message: the innermost that fits.
    fn resolve<T>(all: &HashMap<String, T>, inside: &str, name: &str) -> Option<String> {
        let mut scope = inside;
        loop {
            let full = format!("{scope}.{name}");
            if all.contains_key(&full) {
                return Some(full);
            }
            match scope.rsplit_once('.') {
                Some((outer, _)) => scope = outer,
                None => return all.contains_key(name).then(|| name.to_owned()),
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    schema: &'a Schema,
    /// Which of the repeated messages this is.
    count: Option<u64>,
}

impl<'a> Reader<'a> {
    fn fault<T>(&self, what: &str) -> Result<T, String> {
        let line = self.text[..self.at].lines().count().max(1);
        Err(format!("line {line} of the model: {what}"))
    }

    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            match self.text[self.at..].starts_with('#') {
                true => self.at += self.text[self.at..].find('\n').unwrap_or(rest.len() - blank),
                false => return,
            }
        }
    }

    fn takes(&mut self, token: char) -> bool {
        self.skip();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len_utf8() } else { 0 };
        found
    }

    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !(c.is_alphanumeric() || "_-+.".contains(c))).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// The fields up to the end of the text, or up to a brace.
    fn message(&mut self, name: &str, braced: bool) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        loop {
            self.skip();
            if braced && self.takes('}') || !braced && self.at == self.text.len() {
                return Ok(bytes);
            }
            let field = self.word();
            let schema = self.schema;
            let Some(found) = schema.messages.get(name).and_then(|m| m.get(field)) else {
                return self.fault(&format!("`{name}` has no field `{field}`"));
            };
            let times = if self.takes('*') { self.number()? } else { 1 };
            if self.takes('{') {
                let Some(inner) = Schema::resolve(&schema.messages, name, &found.kind) else {
                    return self.fault(&format!("`{field}` is no message"));
                };
                let (start, outer) = (self.at, self.count);
                for i in 0..times {
                    self.at = start;
                    self.count = if times > 1 { Some(i) } else { outer };
                    let content = self.message(&inner, true)?;
                    put_bytes(&mut bytes, found.number, &content);
                }
                self.count = outer;
            } else if self.takes(':') {
                self.value(name, found, &mut bytes)?;
            } else {
                return self.fault(&format!("`{field}` needs `:` or `{{`"));
            }
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        let word = self.word();
        word.parse().or_else(|_| self.fault(&format!("`{word}` is no number")))
    }

    fn value(&mut self, message: &str, field: &Field, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.skip();
        if matches!(field.kind.as_str(), "string" | "bytes") {
            let content = self.string()?;
            put_bytes(bytes, field.number, &content);
            return Ok(());
        }
        let word = self.word();
        let bad = || format!("`{word}` is no {}", field.kind);
        match field.kind.as_str() {
            "float" => {
                let Ok(number) = word.parse::<f32>() else { return self.fault(&bad()) };
                put_varint(bytes, field.number << 3 | 5);
                bytes.extend(number.to_le_bytes());
            }
            "double" => {
                let Ok(number) = word.parse::<f64>() else { return self.fault(&bad()) };
                put_varint(bytes, field.number << 3 | 1);
                bytes.extend(number.to_le_bytes());
            }
            kind => {
                let named = Schema::resolve(&self.schema.enums, message, kind);
                let named = named.and_then(|e| self.schema.enums[&e].get(word).copied());
                let plain = word.parse::<i64>().map(|n| n as u64).or_else(|_| word.parse::<u64>());
                let Some(number) = named.or(plain.ok()) else { return self.fault(&bad()) };
                put_varint(bytes, field.number << 3);
                put_varint(bytes, number);
            }
        }
        Ok(())
    }

    /// A string in quotes with the escapes `\n`, `\"`, `\\` and `\xNN`, repeated if a number follows.
    fn string(&mut self) -> Result<Vec<u8>, String> {
        if !self.takes('"') {
            return self.fault("needs a string in quotes");
        }
        let mut content = Vec::new();
        let mut rest = self.text[self.at..].char_indices();
        loop {
            let Some((at, c)) = rest.next() else { return self.fault("a string has no end") };
            match c {
                '"' => {
                    self.at += at + 1;
                    break;
                }
                '\\' => match rest.next().map(|(_, c)| c) {
                    Some('n') => content.push(b'\n'),
                    Some('x') => {
                        let digits: String = rest.by_ref().take(2).map(|(_, c)| c).collect();
                        let Ok(byte) = u8::from_str_radix(&digits, 16) else {
                            return self.fault("`\\x` needs two digits");
                        };
                        content.push(byte);
                    }
                    Some(c @ ('"' | '\\')) => content.push(c as u8),
                    _ => return self.fault("an unknown escape"),
                },
                c => content.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        if let (Some(i), Ok(text)) = (self.count, std::str::from_utf8(&content)) {
            content =
                text.replace("$i", &i.to_string()).replace("$n", &(i + 1).to_string()).into_bytes();
        }
        let times = if self.takes('*') { self.number()? } else { 1 };
        Ok(content.repeat(times as usize))
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_bytes(bytes: &mut Vec<u8>, field: u64, content: &[u8]) {
    put_varint(bytes, field << 3 | 2);
    put_varint(bytes, content.len() as u64);
    bytes.extend(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_a_model() {
        let text = r#"
            ir_version: 9
            opset_import { version: 17 }
            graph {
              name: "chain"
              input { name: "v0" type { tensor_type { elem_type: 1 shape { dim { dim_value: 2 } dim { dim_param: "n" } } } } }
              output { name: "v3" type { tensor_type { elem_type: 1 } } }
              node * 3 { op_type: "Relu" input: "v$i" output: "v$n" name: "cut$i" } # three in a row
            }"#;
        let bytes = model(text).unwrap();
        let graph = bricolage_onnx::import(bricolage_tensor::Storage::copy_of(&bytes), None);
        let graph = graph.unwrap().graph;
        assert_eq!(graph.nodes().count(), 3);
        assert_eq!(graph.fact(graph.inputs[0]).to_string(), "f32[2, n]");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, word) in
            [("grap { }", "grap"), ("graph { name: 3 }", "quotes"), ("ir_version: \"x\"", "int64")]
        {
            let error = model(text).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
