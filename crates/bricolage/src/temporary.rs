//! What must not outlive this process: files and folders that are not finished, and workers.

use bricolage_runtime::{in_words, kind_of};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

/// Everything that is there at the moment.
struct Live {
    paths: BTreeSet<PathBuf>,
    groups: BTreeSet<i32>,
}

static LIVE: Mutex<Live> = Mutex::new(Live { paths: BTreeSet::new(), groups: BTreeSet::new() });

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A file or folder that is removed when this is dropped and when the process [`end`]s. What was
/// moved elsewhere meanwhile stays there.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Takes charge of `path`, which need not be there yet.
    pub fn new(path: PathBuf) -> Temporary {
        live().paths.insert(path.clone());
        Temporary(path)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed does no harm besides the space that it takes.
        let _ = remove(&self.0);
        live().paths.remove(&self.0);
    }
}

/// Writes a file whole or not at all: beside its place, and moved there when the system has all of it.
/// Errors say what lies at `path`.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<()> {
    require_place(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    let partial = Temporary::new(partial);
    let whole = |mut file: fs::File| {
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(partial.path(), path)
    };
    fs::File::create(partial.path()).and_then(whole).map_err(|e| in_words(e, path))
}

/// Fails when no file can be written at `path` as far as can be told beforehand: what lies there is no
/// regular file, or there is no folder for it.
pub fn require_place(path: &Path) -> io::Result<()> {
    if let Some(kind) = kind_of(path) {
        return Err(io::Error::other(format!("needs a regular file, found {kind}")));
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(parent) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("`{}` is no folder", parent.display()))),
        Err(e) => Err(in_words(e, path)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Takes charge of a process group, which is killed when this process [`end`]s.
pub(crate) fn add_group(id: u32) {
    live().groups.extend(i32::try_from(id));
}

/// The group has ended.
pub(crate) fn remove_group(id: u32) {
    if let Ok(id) = i32::try_from(id) {
        live().groups.remove(&id);
    }
}

/// Ends this process at once with an exit code, from any thread: nothing unfinished stays behind.
pub fn end(code: i32) -> ! {
    // Held to the end, so that nothing is added.
    let live = live();
    for &group in &live.groups {
        if let Some(group) = Pid::from_raw(group) {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    for path in &live.paths {
        // Another thread may be adding files to a folder.
        for _ in 0..10 {
            match remove(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
    }
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_stays_as_it_was() {
        let folder = std::env::temp_dir().join(format!("bricolage-whole-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        write_file(&path, |f| io::Write::write_all(f, b"old")).unwrap();
        let fault = |f: &mut fs::File| {
            io::Write::write_all(f, b"half")?;
            // No space left on the device.
            Err(io::Error::from_raw_os_error(28))
        };
        assert_eq!(write_file(&path, fault).unwrap_err().to_string(), "the disk is full");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let said = write_file(&folder, |_| Ok(())).unwrap_err().to_string();
        assert_eq!(said, "needs a regular file, found a folder");
        let said = write_file(&path.join("x"), |_| Ok(())).unwrap_err().to_string();
        assert!(said.ends_with("is no folder"), "{said}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_not_moved_goes() {
        let folder = std::env::temp_dir().join(format!("bricolage-tmp-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (kept, lost, inner) = (folder.join("kept"), folder.join("lost"), folder.join("inner"));
        for (path, to) in [(&lost, None), (&folder.join("new"), Some(&kept))] {
            let temporary = Temporary::new(path.clone());
            fs::write(temporary.path(), "x").unwrap();
            if let Some(to) = to {
                fs::rename(path, to).unwrap();
            }
        }
        {
            let temporary = Temporary::new(inner.clone());
            fs::create_dir_all(temporary.path().join("deep")).unwrap();
            assert!(live().paths.contains(&inner));
        }
        assert!(!live().paths.contains(&inner));
        assert!(kept.exists() && !lost.exists() && !inner.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
