//! Writes the bytes of a sub-graph.

use super::*;

/// The block: a header, then tables, then texts.
struct Writer {
    bytes: Vec<u8>,
    /// Where a text goes, and what it says.
    texts: Vec<(usize, String)>,
}

impl Writer {
    fn put(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }

    fn put_wide(&mut self, at: usize, number: u64) {
        self.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, at: usize, text: &str) {
        self.texts.push((at, text.to_owned()));
    }

    /// Room for a table of `count` records, named in the header; where it starts.
    fn table(&mut self, header: usize, count: usize, record: usize) -> usize {
        let start = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(start + count * record, 0);
        self.put(header, start as u32);
        self.put(header + 4, count as u32);
        start
    }

    fn numbers(&mut self, header: usize, numbers: &[u32]) {
        let start = self.table(header, numbers.len(), 4);
        for (i, &number) in numbers.iter().enumerate() {
            self.put(start + 4 * i, number);
        }
    }
}

/// Values in the order of their records: items of one value stand side by side.
#[derive(Default)]
struct Flat<'a> {
    records: Vec<(&'a str, &'a Value, u32, u32)>,
}

impl<'a> Flat<'a> {
    fn place(&mut self, items: Vec<(&'a str, &'a Value)>) -> (u32, u32) {
        let (first, count) = (self.records.len(), items.len());
        self.records.extend(items.into_iter().map(|(name, value)| (name, value, 0, 0)));
        for at in first..first + count {
            let inner = match self.records[at].1 {
                Value::List(all) => all.iter().map(|v| ("", v)).collect(),
                Value::Fields(all) => all.iter().map(|(n, v)| (n.as_str(), v)).collect(),
                _ => continue,
            };
            (self.records[at].2, self.records[at].3) = self.place(inner);
        }
        (first as u32, count as u32)
    }
}

impl Subgraph {
    /// The bytes that the header describes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer { bytes: vec![0; HEADER], texts: Vec::new() };
        w.put(0, MAGIC);
        w.put(4, VERSION);
        w.text(16, &self.entry);
        w.put(20, self.threads);
        w.put(24, self.numerics);
        let mut sizes: Vec<i64> = Vec::new();
        let start = w.table(TENSORS, self.tensors.len(), 64);
        for (i, t) in self.tensors.iter().enumerate() {
            let at = start + 64 * i;
            let (role, place) = match t.role {
                Role::Inner => (0, NONE),
                Role::Input(place) => (1, place),
                Role::Output(place) => (2, place),
                Role::Constant(place) => (3, place),
            };
            let (layout, block, halo) = match t.layout {
                Layout::Plain => (0, 0, 0),
                Layout::ChannelsLast { halo } => (1, 0, halo),
                Layout::Blocked { block, halo } => (2, block, halo),
            };
            w.text(at, &t.name);
            let fields = [role, place, t.dtype, layout, block, halo, t.dims.len() as u32];
            fields.iter().enumerate().for_each(|(f, &n)| w.put(at + 4 + 4 * f, n));
            w.put(at + 32, sizes.len() as u32);
            sizes.extend(&t.dims);
            w.put(at + 36, sizes.len() as u32);
            sizes.extend(&t.strides);
            w.put_wide(at + 40, t.bytes);
            w.put_wide(at + 48, t.data);
        }
        let mut operands: Vec<u32> = Vec::new();
        let mut flat = Flat::default();
        let start = w.table(NODES, self.nodes.len(), 32);
        for (i, node) in self.nodes.iter().enumerate() {
            let at = start + 32 * i;
            w.text(at, &node.op);
            for (field, all) in [(4, &node.operands), (12, &node.results)] {
                w.put(at + field, operands.len() as u32);
                w.put(at + field + 4, all.len() as u32);
                operands.extend(all.iter().map(|o| o.unwrap_or(NONE)));
            }
            let items = node.attributes.iter().map(|(n, v)| (n.as_str(), v)).collect();
            let (first, count) = flat.place(items);
            w.put(at + 20, first);
            w.put(at + 24, count);
        }
        w.numbers(INPUTS, &self.inputs);
        w.numbers(OUTPUTS, &self.outputs);
        w.numbers(CONSTANTS, &self.constants);
        let start = w.table(BINDINGS, self.bindings.len(), 16);
        for (i, binding) in self.bindings.iter().enumerate() {
            let at = start + 16 * i;
            w.text(at, &binding.name);
            w.put(at + 4, binding.tensor.unwrap_or(NONE));
            w.put(at + 8, binding.node.unwrap_or(NONE));
            w.put(at + 12, u32::from(binding.held));
        }
        let start = w.table(VALUES, flat.records.len(), 32);
        for (i, (name, value, first, count)) in flat.records.into_iter().enumerate() {
            let at = start + 32 * i;
            if !name.is_empty() {
                w.text(at, name);
            }
            let (kind, wide) = match value {
                Value::Null => (0, 0),
                Value::Bool(is) => (1, u64::from(*is)),
                Value::Int(number) => (2, number.cast_unsigned()),
                Value::Real(number) => (3, number.to_bits()),
                Value::Text(_) => (4, 0),
                Value::List(_) => (5, 0),
                Value::Fields(_) => (6, 0),
            };
            w.put(at + 4, kind);
            w.put(at + 8, first);
            w.put(at + 12, count);
            w.put_wide(at + 16, wide);
            if let Value::Text(text) = value {
                w.text(at + 16, text);
            }
        }
        w.numbers(OPERANDS, &operands);
        let start = w.table(SIZES, sizes.len(), 8);
        for (i, size) in sizes.iter().enumerate() {
            w.put_wide(start + 8 * i, size.cast_unsigned());
        }
        for (at, text) in std::mem::take(&mut w.texts) {
            let start = w.bytes.len() as u32;
            w.put(at, start);
            w.bytes.extend((text.len() as u32).to_le_bytes());
            w.bytes.extend(text.as_bytes());
            w.bytes.push(0);
        }
        let bytes = w.bytes.len() as u64;
        w.put_wide(8, bytes);
        w.bytes
    }
}
