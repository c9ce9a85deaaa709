//! Where the library lies; nothing is loaded here.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of the shared library start so.
const LIBRARY: &str = "libonnxruntime.so";
/// Where the system's loader looks, besides `LD_LIBRARY_PATH`.
const SYSTEM: &[&str] = &[
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Library {
    /// The file.
    pub(super) path: PathBuf,
    /// As its name or its Python package says, or `unknown`.
    pub(super) version: String,
}

/// Looks at what the user named, or, where nothing is named, in the Python environment and in the
/// system's folders. Otherwise says where it looked.
pub(super) fn find(
    named: Option<&Path>,
    environment: Option<&Path>,
    loader_path: Option<&str>,
) -> Result<Library, String> {
    if let Some(named) = named {
        let found = if named.is_file() { Some(named.to_owned()) } else { in_any(&inside(named)) };
        return found.map(library).ok_or_else(|| {
            format!("BRICOLAGE_ONNXRUNTIME names `{}`, which holds no {LIBRARY}*", named.display())
        });
    }
    let mut folders: Vec<PathBuf> = environment.map(inside).unwrap_or_default();
    folders
        .extend(loader_path.unwrap_or("").split(':').filter(|p| !p.is_empty()).map(PathBuf::from));
    folders.extend(SYSTEM.iter().map(PathBuf::from));
    in_any(&folders).map(library).ok_or_else(|| {
        let environment = environment.map_or_else(
            || "no Python environment is active".to_owned(),
            |e| format!("the Python environment `{}` has none", e.display()),
        );
        format!("{environment}, and there is no {LIBRARY}* in the system's library folders")
    })
}

/// Folders of an environment, a wheel or a release in which the library may lie.
fn inside(root: &Path) -> Vec<PathBuf> {
    let mut all =
        vec![root.to_owned(), root.join("capi"), root.join("onnxruntime/capi"), root.join("lib")];
    let mut pythons: Vec<PathBuf> = entries(&root.join("lib"))
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python")))
        .collect();
    pythons.sort();
    all.extend(pythons.iter().rev().map(|p| p.join("site-packages/onnxruntime/capi")));
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // A folder that cannot be read holds nothing for us.
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// The library in the first folder that has one; of several the longest name, which has the version.
fn in_any(folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().find_map(|folder| {
        let name = |p: &PathBuf| p.file_name().map(|n| n.to_string_lossy().into_owned());
        entries(folder)
            .into_iter()
            .filter(|p| name(p).is_some_and(|n| n.starts_with(LIBRARY)) && p.is_file())
            .max_by_key(|p| (p.as_os_str().len(), p.clone()))
    })
}

fn library(path: PathBuf) -> Library {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let suffix = name.strip_prefix(LIBRARY).unwrap_or("").trim_start_matches('.');
    let version = if suffix.contains('.') { Some(suffix.to_owned()) } else { package(&path) };
    Library { version: version.unwrap_or_else(|| "unknown".to_owned()), path }
}

/// The version in the name of `onnxruntime-1.2.3.dist-info` next to the package.
fn package(library: &Path) -> Option<String> {
    let packages = library.parent()?.parent()?.parent()?;
    entries(packages).into_iter().find_map(|p| {
        let name = p.file_name()?.to_string_lossy().into_owned();
        let stem = name.strip_prefix("onnxruntime")?.strip_suffix(".dist-info")?;
        Some(stem.rsplit_once('-')?.1.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn folder(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("bricolage-find-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    #[test]
    fn finds_wheels_files_and_versions() {
        let root = folder("wheel");
        let capi = root.0.join("lib/python3.11/site-packages/onnxruntime/capi");
        fs::create_dir_all(&capi).unwrap();
        fs::write(capi.join("libonnxruntime_providers_shared.so"), "").unwrap();
        assert!(find(Some(&root.0), None, None).is_err());
        fs::write(capi.join("libonnxruntime.so"), "").unwrap();
        let dist = root.0.join("lib/python3.11/site-packages/onnxruntime-1.20.1.dist-info");
        fs::create_dir_all(dist).unwrap();
        let found = find(None, Some(&root.0), None).unwrap();
        assert_eq!(found.version, "1.20.1");
        fs::write(capi.join("libonnxruntime.so.1.32.0"), "").unwrap();
        for named in [root.0.clone(), capi.clone(), capi.join("libonnxruntime.so.1.32.0")] {
            let found = find(Some(&named), None, None).unwrap();
            assert_eq!(found.version, "1.32.0");
            assert_eq!(found.path, capi.join("libonnxruntime.so.1.32.0"));
        }
        let loader = capi.display().to_string();
        assert_eq!(find(None, None, Some(&loader)).unwrap().version, "1.32.0");
    }

    #[test]
    fn says_what_was_named() {
        let root = folder("empty");
        let why = find(Some(&root.0), Some(Path::new("/nowhere")), None).unwrap_err();
        assert!(why.contains("BRICOLAGE_ONNXRUNTIME names"), "{why}");
    }
}
