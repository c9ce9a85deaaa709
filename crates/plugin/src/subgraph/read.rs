//! Reads the bytes of a sub-graph, which may come from a file that anybody wrote.

use super::*;

/// Values inside each other, at most.
const MOST_DEPTH: usize = 64;

struct Reader<'a> {
    bytes: &'a [u8],
    /// Values that may still be read: each record is part of one value.
    values: usize,
}

fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault(what.into()))
}

impl<'a> Reader<'a> {
    fn slice(&self, at: usize, len: usize) -> Result<&'a [u8], Fault> {
        let end = at.checked_add(len).filter(|&end| end <= self.bytes.len());
        match end {
            Some(end) => Ok(&self.bytes[at..end]),
            None => fault(format!(
                "needs {len} bytes at {at} of the sub-graph, found {} in all",
                self.bytes.len()
            )),
        }
    }

    fn number(&self, at: usize) -> Result<u32, Fault> {
        let bytes = self.slice(at, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn wide(&self, at: usize) -> Result<u64, Fault> {
        let (low, high) = (self.number(at)?, self.number(at + 4)?);
        Ok(u64::from(low) | u64::from(high) << 32)
    }

    /// The text that the number at `at` names.
    fn text(&self, at: usize) -> Result<String, Fault> {
        let start = self.number(at)? as usize;
        let len = self.number(start)? as usize;
        let bytes = self.slice(start + 4, len)?;
        match (std::str::from_utf8(bytes), self.slice(start + 4 + len, 1)?, bytes.contains(&0)) {
            (Ok(text), [0], false) => Ok(text.to_owned()),
            _ => fault(format!(
                "needs UTF-8 that ends with a zero byte at {start}, found other bytes"
            )),
        }
    }

    /// Where records `first..first + count` of a table start.
    fn records(
        &self,
        header: usize,
        first: u32,
        count: u32,
        record: usize,
    ) -> Result<impl Iterator<Item = usize> + use<>, Fault> {
        let (start, all) = (self.number(header)? as usize, self.number(header + 4)?);
        if first.checked_add(count).is_none_or(|end| end > all) {
            return fault(format!("needs {count} records from {first} on, found {all} in all"));
        }
        self.slice(start, all as usize * record)?;
        Ok((first as usize..(first + count) as usize).map(move |i| start + i * record))
    }

    fn table(
        &self,
        header: usize,
        record: usize,
    ) -> Result<impl Iterator<Item = usize> + use<>, Fault> {
        self.records(header, 0, self.number(header + 4)?, record)
    }

    fn numbers(&self, header: usize) -> Result<Vec<u32>, Fault> {
        self.table(header, 4)?.map(|at| self.number(at)).collect()
    }

    fn sizes(&self, first: u32, count: u32) -> Result<Vec<i64>, Fault> {
        let places = self.records(SIZES, first, count, 8)?;
        places.map(|at| Ok(self.wide(at)?.cast_signed())).collect()
    }

    fn tensor(&self, at: usize) -> Result<Tensor, Fault> {
        let field = |offset: usize| self.number(at + offset);
        let place = field(8)?;
        let role = match field(4)? {
            0 => Role::Inner,
            1 => Role::Input(place),
            2 => Role::Output(place),
            3 => Role::Constant(place),
            other => return fault(format!("needs a role of a tensor, found {other}")),
        };
        let (block, halo) = (field(20)?, field(24)?);
        let layout = match field(16)? {
            0 => Layout::Plain,
            1 => Layout::ChannelsLast { halo },
            2 => Layout::Blocked { block, halo },
            other => return fault(format!("needs a layout, found {other}")),
        };
        let dtype = field(12)?;
        if dtype as usize >= DTYPES.len() {
            return fault(format!("needs an element type, found {dtype}"));
        }
        let rank = field(28)?;
        Ok(Tensor {
            name: self.text(at)?,
            role,
            dtype,
            layout,
            dims: self.sizes(field(32)?, rank)?,
            strides: self.sizes(field(36)?, rank)?,
            bytes: self.wide(at + 40)?,
            data: self.wide(at + 48)?,
        })
    }

    fn operands(&self, first: u32, count: u32, tensors: usize) -> Result<Vec<Option<u32>>, Fault> {
        let places = self.records(OPERANDS, first, count, 4)?;
        let one = |at: usize| match self.number(at)? {
            NONE => Ok(None),
            tensor if (tensor as usize) < tensors => Ok(Some(tensor)),
            other => fault(format!("needs one of {tensors} tensors, found {other}")),
        };
        places.map(one).collect()
    }

    fn fields(
        &mut self,
        first: u32,
        count: u32,
        depth: usize,
    ) -> Result<Vec<(String, Value)>, Fault> {
        if depth > MOST_DEPTH {
            return fault(format!("needs values at most {MOST_DEPTH} deep, found more"));
        }
        let Some(left) = self.values.checked_sub(count as usize) else {
            return fault("needs each value once, found one in two places");
        };
        self.values = left;
        let places = self.records(VALUES, first, count, 32)?;
        places.map(|at| self.value(at, depth)).collect()
    }

    fn value(&mut self, at: usize, depth: usize) -> Result<(String, Value), Fault> {
        let name = if self.number(at)? == 0 { String::new() } else { self.text(at)? };
        let (first, count, wide) =
            (self.number(at + 8)?, self.number(at + 12)?, self.wide(at + 16)?);
        let value = match self.number(at + 4)? {
            0 => Value::Null,
            1 => Value::Bool(wide != 0),
            2 => Value::Int(wide.cast_signed()),
            3 => Value::Real(f64::from_bits(wide)),
            4 => Value::Text(self.text(at + 16)?),
            5 => {
                let items = self.fields(first, count, depth + 1)?;
                Value::List(items.into_iter().map(|(_, value)| value).collect())
            }
            6 => Value::Fields(self.fields(first, count, depth + 1)?),
            other => return fault(format!("needs a kind of value, found {other}")),
        };
        Ok((name, value))
    }
}

impl Subgraph {
    /// Reads bytes as [`Subgraph::encode`] writes them, from wherever they come.
    ///
    /// # Errors
    /// In a clause, where they are cut short, of another version, or name what is not there.
    pub fn decode(bytes: &[u8]) -> Result<Subgraph, Fault> {
        let mut r = Reader { bytes, values: 0 };
        r.slice(0, HEADER)?;
        let (magic, version, length) = (r.number(0)?, r.number(4)?, r.wide(8)?);
        if magic != MAGIC || version != VERSION {
            return fault(format!(
                "needs a sub-graph of version {VERSION}, found {magic:#x} of {version}"
            ));
        }
        if length != bytes.len() as u64 {
            return fault(format!("needs {length} bytes, found {}", bytes.len()));
        }
        r.values = r.number(VALUES + 4)? as usize;
        let tensors: Vec<Tensor> =
            r.table(TENSORS, 64)?.map(|at| r.tensor(at)).collect::<Result<_, _>>()?;
        let mut nodes = Vec::new();
        for at in r.table(NODES, 32)? {
            let list = |field: usize| {
                r.operands(r.number(at + field)?, r.number(at + field + 4)?, tensors.len())
            };
            let (operands, results) = (list(4)?, list(12)?);
            let (op, first, count) = (r.text(at)?, r.number(at + 20)?, r.number(at + 24)?);
            let attributes = r.fields(first, count, 0)?;
            nodes.push(Node { op, operands, results, attributes });
        }
        let mut bindings = Vec::new();
        for at in r.table(BINDINGS, 16)? {
            let inside = |field: usize, count: usize| match r.number(at + field)? {
                NONE => Ok(None),
                found if (found as usize) < count => Ok(Some(found)),
                other => fault(format!("needs a name for one of {count}, found {other}")),
            };
            bindings.push(Binding {
                name: r.text(at)?,
                tensor: inside(4, tensors.len())?,
                node: inside(8, nodes.len())?,
                held: r.number(at + 12)? == 1,
            });
        }
        let all = Subgraph {
            entry: r.text(16)?,
            threads: r.number(20)?,
            numerics: r.number(24)?,
            inputs: r.numbers(INPUTS)?,
            outputs: r.numbers(OUTPUTS)?,
            constants: r.numbers(CONSTANTS)?,
            tensors,
            nodes,
            bindings,
        };
        all.check()?;
        Ok(all)
    }

    /// Tensors and the lists of inputs, outputs and constants name each other.
    fn check(&self) -> Result<(), Fault> {
        let lists = [&self.inputs, &self.outputs, &self.constants];
        for (which, list) in lists.iter().enumerate() {
            for (i, &tensor) in list.iter().enumerate() {
                let i = i as u32;
                let role = [Role::Input(i), Role::Output(i), Role::Constant(i)][which];
                if self.tensors.get(tensor as usize).map(|t| t.role) != Some(role) {
                    return fault(format!(
                        "needs a tensor whose role is {role:?}, found tensor {tensor}"
                    ));
                }
            }
        }
        let named = self.tensors.iter().filter(|t| t.role != Role::Inner).count();
        let listed = lists.iter().map(|l| l.len()).sum::<usize>();
        if named != listed {
            return fault(format!(
                "needs {listed} tensors that are listed, found {named} with such a role"
            ));
        }
        Ok(())
    }
}
