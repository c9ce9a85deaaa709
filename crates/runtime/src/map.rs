//! Files as shared bytes, without reading them.

use bricolage_tensor::Storage;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// The content of a file, mapped: pages are read when they are touched and shared between processes.
///
/// The file must not be changed or shortened while the mapping is in use.
pub fn map_file(path: &Path) -> io::Result<Storage> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Storage::copy_of(&[]));
    }
    // SAFETY: read-only; the caller keeps the file as it is, as documented.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    let len = map.len();
    Ok(Storage::shared(Arc::new(map), 0, len))
}

/// The content of a file, read into memory of its own: for weights that every run streams, since a
/// mapping of a file has small pages.
pub fn read_file(path: &Path) -> io::Result<Storage> {
    let mut file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut read = Ok(());
    let bytes = Storage::build(len, |to| read = file.read_exact(to));
    read.map(|()| bytes)
}
