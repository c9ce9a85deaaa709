//! Damaged models: bytes of small ONNX models, changed at random. Whatever comes of them, it comes as an
//! answer or as an error, soon, and in little memory.

use crate::generate;
use bricolage_ir::verify;
use bricolage_onnx::{export, import};
use bricolage_tensor::{Rng, Storage};
use std::{
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

/// What reading a small model may take, by far: a machine that is busy is no fault, a hang is one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of address space that reading a small model may add.
const MOST_BYTES: u64 = 512 << 20;

/// A damaged model that was not answered well.
#[derive(Clone, Debug)]
pub struct DamageFault {
    /// In words.
    pub what: String,
    /// The model.
    pub bytes: Vec<u8>,
}

impl fmt::Display for DamageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (a model of {} bytes)", self.what, self.bytes.len())
    }
}

impl DamageFault {
    /// Writes the model under `folder`; returns where.
    pub fn write(&self, seed: u64, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let at = folder.join(format!("damaged-{seed}.onnx"));
        fs::write(&at, &self.bytes)?;
        Ok(at)
    }
}

/// Damages the model of a seed and reads it; whether it was understood all the same.
pub fn run_seed(seed: u64) -> Result<bool, DamageFault> {
    let mut rng = Rng::new(seed ^ 0x6461_6D61);
    // Several seeds share a graph: damage matters more here than graphs do.
    let Some(model) = (0..20).find_map(|i| export(&generate(seed / 16 + 1000 * i).graph).ok())
    else {
        return Ok(false);
    };
    let other = export(&generate(seed / 16 + 1).graph).unwrap_or_default();
    let mut bytes = model;
    for _ in 0..1 + rng.below(3) {
        bytes = if rng.below(3) == 0 {
            damage_bytes(bytes, &other, &mut rng)
        } else {
            damage_fields(&bytes, &other, &mut rng).unwrap_or(bytes)
        };
    }
    read(&bytes).map_err(|what| DamageFault { what, bytes })
}

/// Reads a model in a thread of its own and simplifies it; whether it was understood. `Err` with what
/// went wrong.
pub fn read(bytes: &[u8]) -> Result<bool, String> {
    let before = peak_address_space();
    let (tell, told) = mpsc::channel();
    let model = Storage::copy_of(bytes);
    let reader = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let answer = catch_unwind(AssertUnwindSafe(|| match import(model, None) {
            Err(error) => {
                let _ = error.to_string();
                Ok(false)
            }
            Ok(model) => {
                if let Some(fault) = verify(&model.graph).first() {
                    return Err(format!("the graph is unsound: {fault}"));
                }
                match bricolage::inputs::require_fixed(&model.graph) {
                    // What cannot be held cannot be computed, nor simplified by computing.
                    Err(_) => Ok(true),
                    Ok(()) => {
                        bricolage::rewrite(model.graph).map(|_| true).map_err(|e| e.to_string())
                    }
                }
            }
        }));
        let _ = tell.send(answer);
    });
    if let Err(e) = reader {
        return Err(format!("cannot start a thread: {e}"));
    }
    let answer = match told.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(_) => return Err(format!("it takes more than {} s", PATIENCE.as_secs())),
    };
    let understood = match answer {
        Ok(answer) => answer?,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            return Err(format!("it panics: {}", text.unwrap_or_default()));
        }
    };
    let grown = peak_address_space().saturating_sub(before);
    if grown > MOST_BYTES {
        return Err(format!("it takes {} MiB", grown >> 20));
    }
    Ok(understood)
}

/// The most address space that this process has had, in bytes; 0 where the system does not say.
fn peak_address_space() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmPeak:"));
    let kib = line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Flips, cuts, doubles or splices a run of bytes.
fn damage_bytes(mut bytes: Vec<u8>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(bytes.len().max(1));
    let len = rng.below(16.min(bytes.len() - at).max(1)) + 1;
    let end = (at + len).min(bytes.len());
    match rng.below(5) {
        0 => bytes[at..end].iter_mut().for_each(|b| *b ^= 1 << rng.below(8)),
        1 => bytes[at..end].iter_mut().for_each(|b| *b = rng.next_u64() as u8),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let run = bytes[at..end].to_vec();
            bytes.splice(at..at, run);
        }
        _ if rng.below(3) == 0 => bytes.truncate(at),
        _ => {
            let from = rng.below(other.len().max(1));
            let run = other[from..(from + len).min(other.len())].to_vec();
            bytes.splice(at..end, run);
        }
    }
    bytes
}

/// A field of a protobuf message, by the encoding alone.
#[derive(Clone, Debug)]
struct Field {
    number: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Varint(u64),
    Fixed(Vec<u8>, u64),
    Bytes(Vec<u8>),
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// The fields of a message; `None` for bytes that are none.
fn parse(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut at, mut fields) = (0, Vec::new());
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        let take = |at: &mut usize, len: usize| {
            let run = bytes.get(*at..at.checked_add(len)?)?.to_vec();
            *at += len;
            Some(run)
        };
        let content = match tag & 7 {
            0 => Content::Varint(varint(bytes, &mut at)?),
            1 => Content::Fixed(take(&mut at, 8)?, 1),
            2 => {
                let len = usize::try_from(varint(bytes, &mut at)?).ok()?;
                Content::Bytes(take(&mut at, len)?)
            }
            5 => Content::Fixed(take(&mut at, 4)?, 5),
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        fields.push(Field { number: tag >> 3, content });
    }
    Some(fields)
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        let kind = match &field.content {
            Content::Varint(_) => 0,
            Content::Fixed(_, kind) => *kind,
            Content::Bytes(_) => 2,
        };
        put_varint(field.number << 3 | kind, &mut bytes);
        match &field.content {
            Content::Varint(v) => put_varint(*v, &mut bytes),
            Content::Fixed(b, _) => bytes.extend(b),
            Content::Bytes(b) => {
                put_varint(b.len() as u64, &mut bytes);
                bytes.extend(b);
            }
        }
    }
    bytes
}

/// Numbers that break what counts on small ones.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    11,
    64,
    1000,
    65_536,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 62,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
    u64::MAX - 1,
    u64::MAX - 3,
];

/// Changes one field of the message, or of a message inside it. Lengths stay right.
fn damage_fields(bytes: &[u8], other: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut fields = parse(bytes).filter(|f| !f.is_empty())?;
    // Down into a message most of the time: the outermost one has few fields.
    let at = rng.below(fields.len());
    if let Content::Bytes(inner) = &fields[at].content
        && rng.below(6) > 0
    {
        let theirs = parse(other).and_then(|all| {
            let alike: Vec<Vec<u8>> = all
                .into_iter()
                .filter(|f| f.number == fields[at].number)
                .filter_map(|f| match f.content {
                    Content::Bytes(b) => Some(b),
                    _ => None,
                })
                .collect();
            let pick = rng.below(alike.len().max(1));
            alike.into_iter().nth(pick)
        });
        if let Some(inner) = damage_fields(inner, &theirs.unwrap_or_default(), rng) {
            fields[at].content = Content::Bytes(inner);
            return Some(encode(&fields));
        }
    }
    match rng.below(7) {
        0 => drop(fields.remove(at)),
        1 => {
            let twin = fields[at].clone();
            fields.insert(rng.below(fields.len() + 1), twin);
        }
        2 => {
            let with = rng.below(fields.len());
            fields.swap(at, with);
        }
        3 => {
            let theirs = parse(other).filter(|f| !f.is_empty())?;
            let field = theirs[rng.below(theirs.len())].clone();
            if rng.below(2) == 0 {
                fields[at] = field;
            } else {
                fields.insert(at, field);
            }
        }
        4 => {
            let number = fields[rng.below(fields.len())].number;
            fields[at].number = if rng.below(2) == 0 { number } else { 1 + rng.below(24) as u64 };
        }
        _ => match &mut fields[at].content {
            Content::Varint(v) => *v = NUMBERS[rng.below(NUMBERS.len())],
            Content::Fixed(b, _) => b.iter_mut().for_each(|b| *b = rng.next_u64() as u8),
            Content::Bytes(b) if b.is_empty() => b.push(b'x'),
            Content::Bytes(b) if b.len() % 8 == 0 && rng.below(2) == 0 => {
                // Raw data of an integer tensor, as likely as not.
                let number = NUMBERS[rng.below(NUMBERS.len())].to_le_bytes();
                let slot = 8 * rng.below(b.len() / 8);
                b[slot..slot + 8].copy_from_slice(&number);
            }
            Content::Bytes(b) => match rng.below(3) {
                0 => b.clear(),
                1 => b.truncate(b.len() / 2),
                _ => {
                    let at = rng.below(b.len());
                    b[at] ^= 1 << rng.below(7);
                }
            },
        },
    }
    Some(encode(&fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_through_fields() {
        for seed in 0..20 {
            let Ok(bytes) = export(&generate(seed).graph) else { continue };
            assert_eq!(encode(&parse(&bytes).unwrap()), bytes);
        }
    }
}
