//! Gives the built-in backends a version that changes with their code, so that costs measured with
//! other code are never taken for theirs.

use std::{
    collections::hash_map::DefaultHasher,
    env, fs,
    hash::Hasher,
    io,
    path::{Path, PathBuf},
};

/// What the time of a built-in kernel depends on; a published crate has only its own sources beside
/// it, and its release's number stands for the others.
const SOURCES: [&str; 4] = ["src", "../ir/src", "../kernels/src", "../runtime/src"];

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    for source in SOURCES.iter().map(Path::new).filter(|s| s.is_dir()) {
        println!("cargo::rerun-if-changed={}", source.display());
        let mut files = Vec::new();
        collect(source, &mut files)?;
        files.sort();
        for file in files {
            hasher.write(&fs::read(file)?);
        }
    }
    let release = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=BUILT_IN_VERSION={release}-{:016x}", hasher.finish());
    Ok(())
}
