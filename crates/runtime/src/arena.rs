//! One block of memory for everything that a session holds between steps.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr::NonNull,
};

/// Alignment in bytes of the arena and of every buffer in it.
pub const ALIGNMENT: u64 = 64;

/// From this size on, a block starts on a 2 MiB boundary and asks for huge pages.
const HUGE: usize = 2 << 20;

/// A block of bytes with a fixed address. Its content is zero at first.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: the arena owns its bytes alone; sharing follows the borrow rules of the methods.
unsafe impl Send for Arena {}
// SAFETY: as above; a shared arena is only read.
unsafe impl Sync for Arena {}

impl Arena {
    /// A block of `len` bytes, or `None` when `len` is more than memory can address.
    pub fn new(len: u64) -> Option<Arena> {
        let len = usize::try_from(len).ok()?;
        let align = if len >= HUGE { HUGE } else { ALIGNMENT as usize };
        let size = len.max(1).checked_next_multiple_of(align)?;
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the layout has a size of at least one byte.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        #[cfg(target_os = "linux")]
        if len >= HUGE {
            // SAFETY: advice on a range that was just allocated; a refusal changes nothing.
            unsafe { libc::madvise(start.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the range was just allocated with this size.
        unsafe { start.as_ptr().write_bytes(0, size) };
        Some(Arena { start, layout, len })
    }

    /// Bytes of the arena.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the arena holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block has `len` initialised bytes, and nobody writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All bytes, to be filled with a pattern before a run.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and not freed before.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zero() {
        for len in [0, 1, 100, HUGE as u64 + 3] {
            let arena = Arena::new(len).unwrap();
            assert_eq!(arena.bytes().len() as u64, len);
            assert_eq!(arena.as_ptr() as u64 % ALIGNMENT, 0);
            assert!(arena.bytes().iter().all(|&b| b == 0));
        }
        assert!(Arena::new(u64::MAX).is_none());
    }
}
