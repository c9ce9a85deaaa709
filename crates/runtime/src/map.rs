//! Files as shared bytes, without reading them.

use crate::path::{in_words, other_kind};
use bricolage_tensor::Storage;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::Arc,
};

/// Opens a regular file for reading; a link to one counts as one.
///
/// # Errors
/// Besides those of the system, which say what lies there, when something else lies there: opening a pipe or a device may wait
/// for ever or have effects, so it is not even opened.
pub fn open_file(path: &Path) -> io::Result<File> {
    let words = |error| in_words(error, path);
    if let Some(kind) = other_kind(&fs::metadata(path).map_err(words)?) {
        return Err(io::Error::other(format!("needs a regular file, found {kind}")));
    }
    File::open(path).map_err(words)
}

/// The content of a regular file, mapped: pages are read when they are touched and shared between
/// processes.
///
/// The file must not be changed or shortened while the mapping is in use.
///
/// # Errors
/// Those of [`open_file`] and of the system.
pub fn map_file(path: &Path) -> io::Result<Storage> {
    let file = open_file(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Storage::copy_of(&[]));
    }
    // SAFETY: read-only; the caller keeps the file as it is, as documented.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    let len = map.len();
    Ok(Storage::shared(Arc::new(map), 0, len))
}

/// The content of a regular file, read into memory of its own: for weights that every run streams,
/// since a mapping of a file has small pages.
///
/// # Errors
/// Those of [`open_file`] and of the system.
pub fn read_file(path: &Path) -> io::Result<Storage> {
    let mut file = open_file(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut read = Ok(());
    let bytes = Storage::build(len, |to| read = file.read_exact(to));
    read.map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("bricolage-map-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let cases =
            [(&*pipe, "a pipe"), (Path::new("/dev/zero"), "a device"), (&folder, "a folder")];
        for (path, found) in cases {
            let said = map_file(path).unwrap_err().to_string();
            assert_eq!(said, format!("needs a regular file, found {found}"));
        }
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, b"abc").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(&*map_file(&link).unwrap(), b"abc");
        fs::remove_dir_all(&folder).unwrap();
    }
}
