//! Shared, immutable bytes: owned and aligned, or borrowed from a mapping.

use std::{fmt, ops::Deref, sync::Arc};

/// Cheaply cloned, immutable bytes with an owner that keeps them alive, such as a file mapping.
#[derive(Clone)]
pub struct Storage {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    start: usize,
    len: usize,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes of one huge page.
const HUGE: usize = 2 << 20;

/// Owned bytes that start on a 64-byte boundary.
struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl Storage {
    /// Bytes `start..start + len` of `owner`. Panics when they do not lie inside it.
    pub fn shared(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, start: usize, len: usize) -> Storage {
        let total = (*owner).as_ref().len();
        assert!(
            start <= total && len <= total - start,
            "range {start}+{len} lies outside {total} bytes"
        );
        Storage { owner, start, len }
    }

    /// `len` zero bytes filled in by `fill`, starting on a 64-byte boundary.
    ///
    /// From 2 MiB on they lie on huge pages where the system gives them: kernels that stream weights
    /// from small pages lose time to address translation.
    pub fn build(len: usize, fill: impl FnOnce(&mut [u8])) -> Storage {
        #[cfg(unix)]
        if len >= HUGE
            && let Some(storage) = Storage::on_huge_pages(len)
        {
            let (mut map, start) = storage;
            fill(&mut map[start..start + len]);
            return Storage { owner: Arc::new(map), start, len };
        }
        let mut lines: Vec<Line> = bytemuck::allocation::zeroed_vec(len.div_ceil(64));
        fill(&mut bytemuck::cast_slice_mut(&mut lines)[..len]);
        Storage { owner: Arc::new(Aligned { lines, len }), start: 0, len }
    }

    /// Zero memory that asks for huge pages, and where in it `len` bytes start on a 2 MiB boundary.
    #[cfg(unix)]
    fn on_huge_pages(len: usize) -> Option<(memmap2::MmapMut, usize)> {
        let map = memmap2::MmapMut::map_anon(len.checked_add(HUGE)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE);
        // A refusal leaves small pages, which are slower and as right.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
        Some((map, start))
    }

    /// A 64-byte aligned copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Storage {
        Storage::build(bytes.len(), |to| to.copy_from_slice(bytes))
    }

    /// The sub-range `start..start + len`, sharing the owner. Panics when it lies outside.
    pub fn slice(&self, start: usize, len: usize) -> Storage {
        assert!(start <= self.len && len <= self.len - start, "slice lies outside the storage");
        Storage { owner: self.owner.clone(), start: self.start + start, len }
    }
}

impl Deref for Storage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_storage_is_aligned_and_slices_share() {
        let storage = Storage::build(100, |b| b[99] = 7);
        assert_eq!(storage.as_ptr() as usize % 64, 0);
        assert_eq!(storage.slice(90, 10)[9], 7);
        assert_eq!(Storage::copy_of(&[]).len(), 0);
        let large = Storage::build(HUGE + 3, |b| b[HUGE + 2] = 9);
        assert_eq!(large.as_ptr() as usize % 64, 0);
        assert_eq!((large.len(), large[0], large[HUGE + 2]), (HUGE + 3, 0, 9));
    }
}
