//! The text form of a graph, which parses back to an equal one.
//!
//! One line per value or node, every value before its first use:
//!
//! ```text
//! graph "tiny"
//! range n 1 64
//! input %x: f32[n, 4]
//! constant %w: f32[4, 2] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
//! %y = MatMul(transpose_lhs:false,transpose_rhs:false) %x %w : f32[n, 2] from "fc"
//! output %y
//! ```
//!
//! Constants of more than [`INLINE`] elements are written as `#0`, `#1`, .. and lie in a list
//! beside the text. `_` is an absent operand; `alias 0 1` and `after %v` may follow the origin.

use crate::{Graph, NodeId, OpKind, Origin, Role, TypeError, ValueId};
use bricolage_tensor::{
    DType, Dim, Narrowing, Shape, Symbol, Tensor, TensorType, Type, decode_float, encode_float,
};
use half::{bf16, f16};
use std::{fmt::Write, sync::Arc};

/// Constants up to this many elements are written out.
pub const INLINE: usize = 16;

/// Writes a graph, and lists the constants that the text refers to by number.
pub fn print(graph: &Graph) -> (String, Vec<Tensor>) {
    let mut text = String::new();
    let mut aside = Vec::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "graph {:?}", graph.name);
    for (symbol, (low, high)) in &graph.ranges.0 {
        let _ = writeln!(text, "range {symbol} {low} {high}");
    }
    for &id in &graph.inputs {
        let _ = writeln!(text, "input {}: {}", name(graph, id), graph.fact(id).ty);
    }
    for id in graph.values() {
        let (word, tensor) = match &graph.value(id).role {
            Role::Constant(t) => ("constant", t),
            Role::State(t) => ("state", t),
            _ => continue,
        };
        let _ = write!(text, "{word} {}: {} = ", name(graph, id), graph.fact(id).ty);
        if tensor.len() > INLINE {
            let _ = writeln!(text, "#{}", aside.len());
            aside.push(tensor.clone());
        } else {
            let _ = writeln!(text, "[{}]", numbers(tensor).join(", "));
        }
    }
    for id in graph.order() {
        node(graph, id, &mut text);
    }
    for &id in &graph.outputs {
        let _ = writeln!(text, "output {}", name(graph, id));
    }
    (text, aside)
}

fn node(graph: &Graph, id: NodeId, text: &mut String) {
    let node = graph.node(id);
    let outputs: Vec<String> = node.outputs.iter().map(|&v| name(graph, v)).collect();
    let _ = write!(text, "{} = {}", outputs.join(", "), node.op);
    for value in &node.inputs {
        text.push(' ');
        text.push_str(&value.map_or("_".to_owned(), |v| name(graph, v)));
    }
    let types: Vec<String> = node.outputs.iter().map(|&v| graph.fact(v).ty.to_string()).collect();
    let _ = write!(text, " : {} from", types.join(", "));
    for origin in node.origin.iter() {
        let _ = write!(text, " {origin:?}");
    }
    for (output, input) in &node.aliases {
        let _ = write!(text, " alias {output} {input}");
    }
    for earlier in node.after.iter().filter_map(|&n| graph.get_node(n)?.outputs.first()) {
        let _ = write!(text, " after {}", name(graph, *earlier));
    }
    text.push('\n');
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

fn name(graph: &Graph, id: ValueId) -> String {
    let name = &*graph.value(id).name;
    if name.chars().all(is_bare) { format!("%{name}") } else { format!("%{name:?}") }
}

/// Each element as a text that reads back to the same bits.
fn numbers(t: &Tensor) -> Vec<String> {
    fn float(value: f64, short: String, bits: u64) -> String {
        if value.is_nan() { format!("nan:{bits:x}") } else { short }
    }
    match t.dtype() {
        DType::F32 => t
            .elements::<f32>()
            .iter()
            .map(|v| float(f64::from(*v), format!("{v:?}"), u64::from(v.to_bits())))
            .collect(),
        DType::F64 => {
            t.elements::<f64>().iter().map(|v| float(*v, format!("{v:?}"), v.to_bits())).collect()
        }
        DType::F16 => t
            .elements::<f16>()
            .iter()
            .map(|v| float(v.to_f64(), format!("{:?}", v.to_f32()), u64::from(v.to_bits())))
            .collect(),
        DType::BF16 => t
            .elements::<bf16>()
            .iter()
            .map(|v| float(v.to_f64(), format!("{:?}", v.to_f32()), u64::from(v.to_bits())))
            .collect(),
        dtype if dtype.is_narrow_float() => {
            let one = |&code: &u8| {
                let value = decode_float(dtype, code);
                float(value, format!("{value:?}"), u64::from(code))
            };
            t.codes().iter().map(one).collect()
        }
        DType::U64 => t.elements::<u64>().iter().map(u64::to_string).collect(),
        _ => t.to_i64().iter().map(i64::to_string).collect(),
    }
}

/// Why a text is not a graph. Lines and columns count from 1, columns in bytes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {fault}")]
pub struct ParseError {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// What is wrong there.
    pub fault: ParseFault,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseFault {
    /// Something else was needed.
    #[error("needs {0}")]
    Needed(String),
    /// A name that no line before defines.
    #[error("needs a value defined above, found `%{0}`")]
    Unknown(String),
    /// A name defined twice.
    #[error("the name `%{0}` is taken")]
    Taken(String),
    /// Operands do not fit the op.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// The type written is not the one that follows.
    #[error("needs type {needed}, found {found}")]
    Mismatch {
        /// The type that follows.
        needed: String,
        /// The type written.
        found: String,
    },
}

/// Reads a graph; `aside` holds the constants that the text refers to by number.
pub fn parse(text: &str, aside: &[Tensor]) -> Result<Graph, ParseError> {
    let mut graph = Graph::default();
    for (number, line) in text.lines().enumerate() {
        let mut reader = Reader { line, at: 0 };
        reader.space();
        if reader.rest().is_empty() || reader.rest().starts_with("//") {
            continue;
        }
        let located = |fault, at| ParseError { line: number + 1, column: at + 1, fault };
        if let Err(fault) = statement(&mut graph, &mut reader, aside) {
            return Err(located(fault, reader.at));
        }
        reader.space();
        if !reader.rest().is_empty() {
            return Err(located(ParseFault::Needed("the end of the line".to_owned()), reader.at));
        }
    }
    Ok(graph)
}

fn needed<T>(what: &str) -> Result<T, ParseFault> {
    Err(ParseFault::Needed(what.to_owned()))
}

fn statement(graph: &mut Graph, r: &mut Reader<'_>, aside: &[Tensor]) -> Result<(), ParseFault> {
    if r.rest().starts_with('%') {
        return read_node(graph, r);
    }
    match r.word() {
        "graph" => graph.name = r.string()?,
        "range" => {
            let symbol = r.until(char::is_whitespace).to_owned();
            let range = (r.integer()?, r.integer()?);
            graph.ranges.0.insert(Symbol(Arc::from(symbol)), range);
        }
        "input" => {
            let name = r.fresh(graph)?;
            r.expect(":")?;
            let ty = r.ty()?;
            graph.input(&name, ty);
        }
        word @ ("constant" | "state") => {
            let name = r.fresh(graph)?;
            r.expect(":")?;
            let Type::Tensor(ty) = r.ty()? else { return needed("a tensor type") };
            r.expect("=")?;
            let tensor = r.tensor(&ty, aside)?;
            match word {
                "constant" => graph.constant(&name, tensor),
                _ => graph.state(&name, tensor),
            };
        }
        "output" => {
            let value = r.value(graph)?;
            if graph.outputs.contains(&value) {
                return needed("a value that is no output yet");
            }
            graph.outputs.push(value);
        }
        _ => return needed("`graph`, `range`, `input`, `constant`, `state`, `output` or a value"),
    }
    Ok(())
}

fn read_node(graph: &mut Graph, r: &mut Reader<'_>) -> Result<(), ParseFault> {
    let mut names: Vec<Arc<str>> = Vec::new();
    loop {
        names.push(Arc::from(r.fresh(graph)?));
        if !r.eat(",") {
            break;
        }
    }
    r.expect("=")?;
    let start = r.at;
    let word = r.word();
    let Some(kind) = OpKind::ALL.iter().copied().find(|k| k.name() == word) else {
        r.at = start;
        r.space();
        return needed("the name of an op");
    };
    let start = r.at;
    let attributes = r.attributes()?;
    let op = kind.parse(attributes).map_err(|error| {
        r.at = start;
        ParseFault::Needed(format!("attributes of {}: {}", kind.name(), error.code))
    })?;
    let mut inputs: Vec<Option<ValueId>> = Vec::new();
    while !r.eat(":") {
        inputs.push(if r.eat("_") { None } else { Some(r.value(graph)?) });
    }
    let mut types = Vec::new();
    loop {
        r.space();
        types.push((r.at, r.ty()?));
        if !r.eat(",") {
            break;
        }
    }
    r.expect("from")?;
    let mut origin: Vec<Arc<str>> = Vec::new();
    while r.peek('"') {
        origin.push(Arc::from(r.string()?));
    }
    if origin.is_empty() {
        return needed("the name of a node in the model, in quotes");
    }
    let origin: Origin = Arc::from(origin);
    let outputs = graph.add_named(op, &inputs, origin, &names)?;
    if outputs.len() != names.len() || types.len() != names.len() {
        return needed(&format!("{} results", outputs.len()));
    }
    for (&output, (at, ty)) in outputs.iter().zip(&types) {
        if graph.fact(output).ty != *ty {
            r.at = *at;
            let needed = graph.fact(output).to_string();
            return Err(ParseFault::Mismatch { needed, found: ty.to_string() });
        }
    }
    let Some(node) = graph.producer(outputs[0]) else { return needed("an op with results") };
    loop {
        r.space();
        if r.eat("alias") {
            let (output, input) = (r.integer()? as usize, r.integer()? as usize);
            graph.add_alias(node, output, input);
        } else if r.eat("after") {
            let value = r.value(graph)?;
            let Some(earlier) = graph.producer(value) else { return needed("a computed value") };
            graph.add_control_edge(earlier, node);
        } else {
            return Ok(());
        }
    }
}

/// One line, read from the left; every method skips spaces first.
struct Reader<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&mut self, c: char) -> bool {
        self.space();
        self.rest().starts_with(c)
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseFault> {
        if self.eat(token) { Ok(()) } else { needed(&format!("`{token}`")) }
    }

    fn until(&mut self, end: fn(char) -> bool) -> &'a str {
        self.space();
        let rest = self.rest();
        let word = &rest[..rest.find(end).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn word(&mut self) -> &'a str {
        self.until(|c| !c.is_ascii_alphanumeric() && c != '_')
    }

    fn integer(&mut self) -> Result<i64, ParseFault> {
        self.space();
        let start = self.at;
        let word = self.until(|c| !c.is_ascii_digit() && c != '-');
        word.parse().or_else(|_| {
            self.at = start;
            needed("a 64-bit number")
        })
    }

    /// A string in quotes, as Rust's `{:?}` writes it.
    fn string(&mut self) -> Result<String, ParseFault> {
        self.space();
        let rest = self.rest();
        let Some(end) = rest.starts_with('"').then(|| quoted(rest)).flatten() else {
            return needed("a string in quotes");
        };
        let text = ron::from_str(&rest[..end]);
        self.at += end;
        text.or_else(|_| needed("a string with valid escapes"))
    }

    fn name(&mut self) -> Result<String, ParseFault> {
        self.space();
        if !self.rest().starts_with('%') {
            return needed("a value such as `%x`");
        }
        self.at += 1;
        if self.rest().starts_with('"') {
            return self.string();
        }
        let rest = self.rest();
        let name = &rest[..rest.find(|c| !is_bare(c)).unwrap_or(rest.len())];
        self.at += name.len();
        if name.is_empty() { needed("a name after `%`") } else { Ok(name.to_owned()) }
    }

    fn value(&mut self, graph: &Graph) -> Result<ValueId, ParseFault> {
        self.space();
        let start = self.at;
        let name = self.name()?;
        graph.find(&name).ok_or_else(|| {
            self.at = start;
            ParseFault::Unknown(name)
        })
    }

    fn fresh(&mut self, graph: &Graph) -> Result<String, ParseFault> {
        self.space();
        let start = self.at;
        let name = self.name()?;
        if graph.find(&name).is_some() {
            self.at = start;
            return Err(ParseFault::Taken(name));
        }
        Ok(name)
    }

    /// The text from here to the end of a word with brackets, or of brackets alone.
    fn attributes(&mut self) -> Result<&'a str, ParseFault> {
        self.space();
        let start = self.at;
        self.word();
        if self.rest().starts_with('(') {
            let Some(end) = bracketed(self.rest()) else { return needed("a closing bracket") };
            self.at += end;
        }
        Ok(&self.line[start..self.at])
    }

    fn ty(&mut self) -> Result<Type, ParseFault> {
        for (word, wrap) in [
            ("seq(", Type::Sequence as fn(Box<Type>) -> Type),
            ("optional(", Type::Optional as fn(Box<Type>) -> Type),
        ] {
            if self.eat(word) {
                let inner = self.ty()?;
                self.expect(")")?;
                return Ok(wrap(Box::new(inner)));
            }
        }
        self.space();
        let start = self.at;
        let word = self.word();
        let dtype = DType::from_name(word);
        if dtype.is_none() && word != "str" {
            self.at = start;
            return needed("a type");
        }
        self.expect("[")?;
        if let Some(dtype) = dtype
            && self.eat("..")
        {
            self.expect("]")?;
            return Ok(Type::Unranked(dtype));
        }
        let shape = self.shape()?;
        Ok(match dtype {
            Some(dtype) => Type::Tensor(TensorType { dtype, shape }),
            None => Type::Strings(shape),
        })
    }

    /// Dims up to the closing bracket.
    fn shape(&mut self) -> Result<Shape, ParseFault> {
        let rest = self.rest();
        let Some(end) = rest.find(']') else { return needed("`]`") };
        let mut dims = Vec::new();
        let (mut depth, mut from) = (0, 0);
        for (i, c) in rest[..end].char_indices().chain([(end, ',')]) {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0
                    && !(i == end && rest[from..i].trim().is_empty() && dims.is_empty()) =>
                {
                    let dim = Dim::parse(rest[from..i].trim()).map_err(|error| {
                        self.at += from;
                        ParseFault::Needed(format!("a dim: {error}"))
                    })?;
                    dims.push(dim);
                    from = i + 1;
                }
                _ => {}
            }
        }
        self.at += end + 1;
        Ok(Shape(dims))
    }

    fn tensor(&mut self, ty: &TensorType, aside: &[Tensor]) -> Result<Tensor, ParseFault> {
        if self.eat("#") {
            let number = self.integer()?;
            let found = usize::try_from(number).ok().and_then(|n| aside.get(n));
            let Some(tensor) = found else {
                return needed(&format!("a number below {}, found {number}", aside.len()));
            };
            if tensor.ty() != *ty {
                let (needed, found) = (tensor.ty().to_string(), ty.to_string());
                return Err(ParseFault::Mismatch { needed, found });
            }
            return Ok(tensor.clone());
        }
        self.expect("[")?;
        let Some(dims) = ty.shape.as_fixed() else { return needed("constant dims") };
        let mut words: Vec<&str> = Vec::new();
        while !self.eat("]") {
            if !words.is_empty() {
                self.expect(",")?;
            }
            let word = self.until(|c| c == ',' || c == ']' || c.is_whitespace());
            if word.is_empty() {
                return needed("a number");
            }
            words.push(word);
        }
        if ty.shape.element_count() != Some(words.len() as u64) {
            return needed(&format!("{} elements, found {}", ty.shape.elements(), words.len()));
        }
        read_numbers(ty.dtype, &dims, &words)
            .ok_or_else(|| ParseFault::Needed(format!("elements of {}", ty.dtype)))
    }
}

fn read_numbers(dtype: DType, dims: &[i64], words: &[&str]) -> Option<Tensor> {
    let bits = |word: &str| word.strip_prefix("nan:").and_then(|b| u64::from_str_radix(b, 16).ok());
    fn all<T>(words: &[&str], read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        words.iter().map(|w| read(w)).collect()
    }
    Some(match dtype {
        DType::F32 => {
            let read =
                |w: &str| bits(w).map(|b| f32::from_bits(b as u32)).or_else(|| w.parse().ok());
            Tensor::of(dims, &all(words, read)?)
        }
        DType::F64 => Tensor::of(
            dims,
            &all(words, |w| bits(w).map(f64::from_bits).or_else(|| w.parse().ok()))?,
        ),
        DType::F16 => {
            let near = |w: &str| w.parse().ok().map(f16::from_f32);
            Tensor::of(
                dims,
                &all(words, |w| bits(w).map(|b| f16::from_bits(b as u16)).or_else(|| near(w)))?,
            )
        }
        DType::BF16 => {
            let near = |w: &str| w.parse().ok().map(bf16::from_f32);
            Tensor::of(
                dims,
                &all(words, |w| bits(w).map(|b| bf16::from_bits(b as u16)).or_else(|| near(w)))?,
            )
        }
        dtype if dtype.is_narrow_float() => {
            let how = Narrowing { saturate: false, ..Narrowing::default() };
            let near = |w: &str| w.parse().ok().map(|v| encode_float(dtype, v, how));
            Tensor::from_codes(
                dtype,
                dims,
                &all(words, |w| bits(w).map(|b| b as u8).or_else(|| near(w)))?,
            )
        }
        DType::U64 => Tensor::of(dims, &all(words, |w| w.parse::<u64>().ok())?),
        _ => Tensor::from_i64(dtype, dims, &all(words, |w| w.parse().ok())?),
    })
}

/// Length of the quoted string that `text` starts with.
fn quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// Length of the bracketed text that `text` starts with; brackets in strings do not count.
fn bracketed(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' => {
                at += quoted(&text[at..])?;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}
