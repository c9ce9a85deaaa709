//! What must not outlive this process: files and folders that are not finished, and workers.

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
