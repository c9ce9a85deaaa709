//! Packed constants on their way to a file or to a program.

use bricolage_tensor::Storage;
use std::io::{self, Write};

/// Segments of constants with their offsets; the gaps between them are zero.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    segments: Vec<(u64, Storage)>,
    len: u64,
}

impl Weights {
    /// Segments in rising order that do not overlap, within `len` bytes.
    pub(crate) fn new(segments: Vec<(u64, Storage)>, len: u64) -> Weights {
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
