//! The right to write one output, held by one process at a time.

use crate::{Error, Temporary};
use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

/// Held while an output is made. The system releases it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The lock's file, which goes while it is still locked.
    _place: Temporary,
    _file: File,
}

impl Claim {
    /// Claims `output` among all processes with this cache folder. Fails when another one has it.
    pub(crate) fn take(cache: &Path, output: &Path) -> Result<Claim, Error> {
        let fault = |why: String| Error::File { action: "write", path: output.to_owned(), why };
        let folder = cache.join("outputs");
        fs::create_dir_all(&folder)
            .map_err(|e| fault(format!("its lock cannot be made in the cache folder: {e}")))?;
        let path = folder.join(format!("{}.lock", name(output)));
        match lock(&path) {
            Ok(Some(file)) => Ok(Claim { _place: Temporary::new(path), _file: file }),
            Ok(None) => Err(fault("another process is making it".to_owned())),
            Err(e) => Err(fault(format!("it cannot be locked: {e}"))),
        }
    }
}

/// A process that was killed holds its locks until the system has taken back its memory.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const RETRY: Duration = Duration::from_millis(20);

/// The lock, or `None` when another process keeps it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let start = Instant::now();
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(RETRY);
                continue;
            }
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Between opening and locking, its last holder may have removed it.
        let own = file.metadata()?;
        if fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (own.dev(), own.ino())) {
            return Ok(Some(file));
        }
    }
}

/// A name for the output's real place.
fn name(output: &Path) -> String {
    let parent = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
    let whole = match output.file_name() {
        Some(name) => real.join(name),
        None => real,
    };
    blake3::hash(whole.as_os_str().as_encoded_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let cache = std::env::temp_dir().join(format!("bricolage-claim-{}", std::process::id()));
        let output = cache.join("x.bricolage");
        let held = Claim::take(&cache, &output).unwrap();
        let error = Claim::take(&cache, &cache.join("outputs/../x.bricolage")).unwrap_err();
        assert!(error.to_string().contains("another process is making it"), "{error}");
        drop(Claim::take(&cache, &cache.join("y.bricolage")).unwrap());
        // As just after a kill: its last holder ends a moment later.
        let ending = Claim::take(&cache, &cache.join("z.bricolage")).unwrap();
        let end = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(ending);
        });
        drop(Claim::take(&cache, &cache.join("z.bricolage")).unwrap());
        end.join().unwrap();
        // As after a kill: the file is there, and nobody holds it.
        let path = held._place.path().to_owned();
        drop(held);
        fs::write(path, "").unwrap();
        drop(Claim::take(&cache, &output).unwrap());
        assert_eq!(fs::read_dir(cache.join("outputs")).unwrap().count(), 0);
        fs::remove_dir_all(&cache).unwrap();
    }
}
