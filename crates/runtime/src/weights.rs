//! Packed constants, in one block or as the segments that they were packed in.

use bricolage_tensor::Storage;
use std::io::{self, Write};

/// Segments of constants with their offsets; the gaps between them are zero.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    segments: Vec<(u64, Storage)>,
    len: u64,
}

impl From<Storage> for Weights {
    fn from(block: Storage) -> Weights {
        let len = block.len() as u64;
        Weights { segments: vec![(0, block)], len }
    }
}

impl Weights {
    /// Segments in rising order that do not overlap, within `len` bytes.
    pub fn new(segments: Vec<(u64, Storage)>, len: u64) -> Weights {
        Weights { segments, len }
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no constants.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes `at..at + len`, when they lie in one segment.
    pub fn get(&self, at: u64, len: u64) -> Option<Storage> {
        if len == 0 {
            return Some(Storage::copy_of(&[]));
        }
        let after = self.segments.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = self.segments.get(after.checked_sub(1)?)?;
        let from = at - start;
        let end = from.checked_add(len)?;
        (end <= bytes.len() as u64).then(|| bytes.slice(from as usize, len as usize))
    }

    /// The segments with their offsets.
    pub fn segments(&self) -> &[(u64, Storage)] {
        &self.segments
    }

    /// The segments, each to be replaced by equal bytes that lie elsewhere.
    pub fn segments_mut(&mut self) -> impl Iterator<Item = &mut Storage> {
        self.segments.iter_mut().map(|(_, bytes)| bytes)
    }

    /// One block of memory with everything in it.
    pub fn to_storage(&self) -> Storage {
        if let [(0, only)] = &self.segments[..]
            && only.len() as u64 == self.len
        {
            return only.clone();
        }
        Storage::build(self.len as usize, |to| {
            for (at, bytes) in &self.segments {
                to[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        })
    }

    /// Writes everything in order.
    pub fn write_to(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut written = 0u64;
        let zeros = [0u8; 64];
        let pad = |to: &mut dyn Write, until: u64, written: &mut u64| {
            while *written < until {
                let n = (until - *written).min(64) as usize;
                to.write_all(&zeros[..n])?;
                *written += n as u64;
            }
            Ok::<(), io::Error>(())
        };
        for (at, bytes) in &self.segments {
            pad(to, *at, &mut written)?;
            to.write_all(bytes)?;
            written += bytes.len() as u64;
        }
        pad(to, self.len, &mut written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_in_the_segment_that_holds_them() {
        let segments = vec![(0, Storage::copy_of(&[1, 2, 3])), (64, Storage::copy_of(&[4, 5]))];
        let weights = Weights::new(segments, 66);
        for whole in [weights.clone(), Weights::from(weights.to_storage())] {
            assert_eq!(&*whole.get(1, 2).unwrap(), &[2, 3]);
            assert_eq!(&*whole.get(64, 2).unwrap(), &[4, 5]);
            assert_eq!(whole.get(66, 0).unwrap().len(), 0);
            for (at, len) in [(65, 2), (66, 1), (u64::MAX, 1), (1, u64::MAX)] {
                assert!(whole.get(at, len).is_none(), "{at} {len}");
            }
        }
        assert!(weights.get(2, 2).is_none() && Weights::default().get(0, 1).is_none());
    }
}
