//! One measuring process on a machine at a time.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
};

/// Held while measuring; released when dropped, also when the process is killed.
#[derive(Debug)]
pub struct MeasuringLock {
    _file: File,
}

impl MeasuringLock {
    /// Takes the lock of the cache folder, or returns `None` when another process measures.
    pub fn try_take(folder: &Path) -> io::Result<Option<MeasuringLock>> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(MeasuringLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until the lock of the cache folder is free.
    pub fn take(folder: &Path) -> io::Result<MeasuringLock> {
        let file = open(folder)?;
        file.lock()?;
        Ok(MeasuringLock { _file: file })
    }
}

fn open(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    File::options().create(true).truncate(false).write(true).open(folder.join("measuring.lock"))
}
