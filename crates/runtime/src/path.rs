//! What lies at a path, and what went wrong there, in words.

use std::{
    fs::{self, Metadata},
    io::{self, ErrorKind},
    os::unix::fs::FileTypeExt,
    path::Path,
};

/// What lies at `path` when that is no regular file: links are looked at themselves. `None` when
/// nothing is there, too.
pub fn kind_of(path: &Path) -> Option<&'static str> {
    let own = fs::symlink_metadata(path).ok()?;
    if !own.is_symlink() {
        return other_kind(&own);
    }
    Some(match fs::metadata(path) {
        Ok(_) => "a symbolic link",
        Err(e) if is_loop(&e) => "a symbolic link that leads in a circle",
        Err(e) if e.kind() == ErrorKind::NotFound => "a symbolic link to nothing",
        Err(_) => "a symbolic link that cannot be followed",
    })
}

/// What it is that is no regular file.
pub(crate) fn other_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    Some(match () {
        () if kind.is_file() => return None,
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    })
}

fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ELOOP)
}

/// An error of the system about `path` in words that say what lies there; others stay as they are.
pub fn in_words(error: io::Error, path: &Path) -> io::Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let words = match error.kind() {
        _ if is_loop(&error) => match kind_of(path) {
            Some(kind) => format!("it is {kind}"),
            None => "a part of the path is a symbolic link that leads in a circle".to_owned(),
        },
        ErrorKind::NotFound => match (kind_of(path), parent) {
            (Some(kind), _) => format!("it is {kind}"),
            (None, Some(parent)) if !parent.exists() => {
                format!("there is no folder `{}`", parent.display())
            }
            _ => "there is no such file or folder".to_owned(),
        },
        ErrorKind::NotADirectory => "a part of the path is no folder".to_owned(),
        ErrorKind::IsADirectory => "it is a folder".to_owned(),
        ErrorKind::StorageFull => "the disk is full".to_owned(),
        ErrorKind::QuotaExceeded => "this user's share of the disk is used up".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is for reading only".to_owned(),
        ErrorKind::PermissionDenied => "this user is not permitted to".to_owned(),
        ErrorKind::FileTooLarge => "the file would be larger than is permitted".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn errors_say_what_lies_there() {
        let folder = std::env::temp_dir().join(format!("bricolage-path-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (circle, dangling, file) =
            (folder.join("circle"), folder.join("dangling"), folder.join("file"));
        symlink(&circle, &circle).unwrap();
        symlink(folder.join("nothing"), &dangling).unwrap();
        fs::write(&file, b"abc").unwrap();
        let read = |path: &Path| in_words(fs::read(path).unwrap_err(), path).to_string();
        for (path, words) in [
            (circle.clone(), "it is a symbolic link that leads in a circle"),
            (circle.join("x"), "a part of the path is a symbolic link that leads in a circle"),
            (dangling, "it is a symbolic link to nothing"),
            (folder.clone(), "it is a folder"),
            (file.join("x"), "a part of the path is no folder"),
            (folder.join("x"), "there is no such file or folder"),
            (folder.join("x/y"), "there is no folder `"),
        ] {
            assert!(read(&path).contains(words), "{}: {}", path.display(), read(&path));
        }
        assert_eq!((kind_of(&file), kind_of(&folder.join("x"))), (None, None));
        fs::remove_dir_all(&folder).unwrap();
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(in_words(full, Path::new("x")).to_string(), "the disk is full");
    }
}
