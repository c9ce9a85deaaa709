//! Damage to bytes: to any, and to messages of protobuf, whose lengths stay right.

use bricolage_tensor::Rng;

/// Changes bytes a little; `other` gives what is spliced in.
pub type Damage = fn(Vec<u8>, &[u8], &mut Rng) -> Vec<u8>;

/// Damages the fields of a message, or its bytes.
pub fn message(bytes: Vec<u8>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    if rng.below(3) == 0 {
        return self::bytes(bytes, other, rng);
    }
    damage_fields(&bytes, other, rng).unwrap_or(bytes)
}

/// Moves, doubles, drops or splices lines of a text, or damages its bytes.
pub fn lines(text: Vec<u8>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut all: Vec<&[u8]> = text.split(|&b| b == b'\n').collect();
    let (at, len) = (rng.below(all.len()), all.len());
    match rng.below(10) {
        0 => drop(all.remove(at)),
        1 => all.insert(rng.below(all.len() + 1), all[at]),
        2 => all.swap(at, rng.below(len)),
        3 => {
            let theirs: Vec<&[u8]> = other.split(|&b| b == b'\n').collect();
            all.insert(at, theirs[rng.below(theirs.len())]);
        }
        4 | 5 => return words(text, rng),
        _ => return bytes(text, other, rng),
    }
    all.join(&b'\n')
}

/// Puts a word of the text in the place of another, or a number in the place of one.
fn words(text: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let len = text[at..].iter().take_while(|b| is_word(b)).count();
        if len > 0 {
            found.push(at..at + len);
        }
        at += len + 1;
    }
    if found.is_empty() {
        return text;
    }
    let place = found[rng.below(found.len())].clone();
    let new = if text[place.start].is_ascii_digit() && rng.below(4) > 0 {
        (NUMBERS[rng.below(NUMBERS.len())] as i64).to_string().into_bytes()
    } else {
        text[found[rng.below(found.len())].clone()].to_vec()
    };
    [&text[..place.start], &new, &text[place.end..]].concat()
}

/// Flips, cuts, doubles or splices a run of bytes, or puts a telling number there.
pub fn bytes(mut bytes: Vec<u8>, other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let at = rng.below(bytes.len().max(1));
    let len = rng.below(16.min(bytes.len() - at.min(bytes.len())).max(1)) + 1;
    let end = (at + len).min(bytes.len());
    match rng.below(6) {
        5 => {
            let number = NUMBERS[rng.below(NUMBERS.len())].to_le_bytes();
            bytes[at..end].iter_mut().zip(number).for_each(|(b, n)| *b = n);
        }
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
    use crate::generate;
    use bricolage_onnx::export;

    #[test]
    fn messages_survive_the_way_through_fields() {
        for seed in 0..20 {
            let Ok(bytes) = export(&generate(seed).graph) else { continue };
            assert_eq!(encode(&parse(&bytes).unwrap()), bytes);
        }
    }
}
