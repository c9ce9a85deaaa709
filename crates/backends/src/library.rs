//! Shared libraries of others: where they lie, and loading them.

use bricolage_backend::BackendStatus;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Where the system's loader looks, besides `LD_LIBRARY_PATH`.
const SYSTEM: &[&str] = &[
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
    "/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
];

/// How a library is called and where its packages put it.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Environment variable in which the user names it.
    pub(crate) variable: &'static str,
    /// What its file's name starts with; of several the first that there is.
    pub(crate) files: &'static [&'static str],
    /// Folders below the root of a wheel or a release in which it may lie.
    pub(crate) folders: &'static [&'static str],
    /// Its folder among the packages of a Python environment.
    pub(crate) packaged: &'static str,
    /// Name of the Python package, as the folder of its metadata writes it.
    pub(crate) package: &'static str,
}

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The file.
    pub(crate) path: PathBuf,
    /// As its name or its Python package says, or its size where neither does.
    pub(crate) version: String,
}

/// Looks at what the user named, or, where nothing is named, in the Python environment and in the folders
/// of the system's loader. Otherwise says where it looked. Loads nothing.
pub(crate) fn find(
    wanted: &Wanted,
    named: Option<&Path>,
    environment: Option<&Path>,
) -> Result<Found, String> {
    find_with(wanted, named, environment, std::env::var("LD_LIBRARY_PATH").ok().as_deref())
}

fn find_with(
    wanted: &Wanted,
    named: Option<&Path>,
    environment: Option<&Path>,
    loader_path: Option<&str>,
) -> Result<Found, String> {
    let files = || wanted.files.iter().map(|f| format!("{f}*")).collect::<Vec<_>>().join(" or ");
    if let Some(named) = named {
        let found = match named.is_file() {
            true => Some(named.to_owned()),
            false => in_any(wanted, &inside(wanted, named)),
        };
        return found.map(|path| Found::of(wanted, path)).ok_or_else(|| {
            format!("{} names `{}`, which holds no {}", wanted.variable, named.display(), files())
        });
    }
    let mut folders: Vec<PathBuf> = environment.map(|e| inside(wanted, e)).unwrap_or_default();
    folders
        .extend(loader_path.unwrap_or("").split(':').filter(|p| !p.is_empty()).map(PathBuf::from));
    folders.extend(SYSTEM.iter().map(PathBuf::from));
    in_any(wanted, &folders).map(|path| Found::of(wanted, path)).ok_or_else(|| {
        let environment = environment.map_or_else(
            || "no Python environment is active".to_owned(),
            |e| format!("the Python environment `{}` has none", e.display()),
        );
        format!("{environment}, and there is no {} in the system's library folders", files())
    })
}

/// Folders of an environment, a wheel or a release in which the library may lie.
fn inside(wanted: &Wanted, root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    all.extend(wanted.folders.iter().map(|f| root.join(f)));
    let mut pythons: Vec<PathBuf> = entries(&root.join("lib"))
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python")))
        .collect();
    pythons.sort();
    all.extend(pythons.iter().rev().map(|p| p.join("site-packages").join(wanted.packaged)));
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // A folder that cannot be read holds nothing for us.
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The library in the first folder that has one; of several the longest name, which has the version.
fn in_any(wanted: &Wanted, folders: &[PathBuf]) -> Option<PathBuf> {
    let places = folders.iter().flat_map(|d| wanted.files.iter().map(move |f| (entries(d), f)));
    places.into_iter().find_map(|(entries, file)| {
        entries
            .into_iter()
            .filter(|p| file_name(p).starts_with(file) && p.is_file())
            .max_by_key(|p| (p.as_os_str().len(), p.clone()))
    })
}

impl Found {
    fn of(wanted: &Wanted, path: PathBuf) -> Found {
        let name = file_name(&path);
        let suffix = name.split_once(".so.").map(|(_, suffix)| suffix.to_owned());
        let version = suffix.filter(|s| s.contains('.')).or_else(|| package(wanted, &path));
        let size = || fs::metadata(&path).map_or(0, |m| m.len());
        let version = version.unwrap_or_else(|| format!("of {} bytes", size()));
        Found { version, path }
    }
}

/// The version in the name of `PACKAGE-1.2.3.dist-info` among the packages around the library; of packages
/// whose names start alike that with the shortest.
fn package(wanted: &Wanted, library: &Path) -> Option<String> {
    let metadata = |p: PathBuf| {
        let name = file_name(&p);
        let (package, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
        package.starts_with(wanted.package).then(|| (package.len(), version.to_owned()))
    };
    let packages = library.ancestors().nth(3)?;
    entries(packages).into_iter().filter_map(metadata).min().map(|(_, version)| version)
}

/// What a backend says of a library that was found or not.
pub(crate) fn status(
    name: &str,
    wanted: &Wanted,
    found: &Result<Found, String>,
    install: &str,
    covers: &str,
) -> BackendStatus {
    BackendStatus {
        name: name.to_owned(),
        version: found.as_ref().ok().map(|f| f.version.clone()),
        found: match found {
            Ok(library) => library.path.display().to_string(),
            Err(why) => why.clone(),
        },
        how: format!(
            "run `pip install {install}` in a virtual environment, and activate it or name it in {}",
            wanted.variable
        ),
        covers: covers.to_owned(),
    }
}

/// A library that was loaded, for as long as the process lives: its threads may run until then.
pub(crate) struct Library {
    inner: libloading::Library,
    path: PathBuf,
}

impl Library {
    /// The function of this name.
    ///
    /// # Safety
    /// `F` is a pointer to a function of the signature that the library's has.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: the caller promises the signature, and the library is never unloaded.
        let found = unsafe { self.inner.get::<F>(name.as_bytes()) };
        found.map(|f| *f).map_err(|_| format!("`{}` has no `{name}`", self.path.display()))
    }
}

/// A table of functions of a library by their names there.
macro_rules! functions {
    ($(#[$doc:meta])* struct $table:ident { $($name:ident: fn($($arg:ty),* $(; $dots:tt)?) $(-> $result:ty)?,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $table { $($name: functions!(@type ($($arg),*) $($dots)? $(-> $result)?),)* }

        impl $table {
            /// Finds all of them.
            ///
            /// # Safety
            /// The library's functions of these names have these signatures.
            unsafe fn of(library: &$crate::library::Library) -> Result<$table, String> {
                // SAFETY: the caller promises it.
                unsafe { Ok($table { $($name: library.function(stringify!($name))?,)* }) }
            }
        }
    };
    (@type ($($arg:ty),*) $(-> $result:ty)?) => { unsafe extern "C" fn($($arg),*) $(-> $result)? };
    (@type ($($arg:ty),*) $dots:tt $(-> $result:ty)?) => { unsafe extern "C" fn($($arg),*, ...) $(-> $result)? };
}
pub(crate) use functions;

/// An object of a library that is released when it is dropped.
pub(crate) struct Owned<T> {
    ptr: *mut T,
    release: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes an object over.
    ///
    /// # Safety
    /// `ptr` is null or was made by the library for the caller alone, `release` takes it back, and the
    /// object is not bound to a thread.
    pub(crate) unsafe fn new(ptr: *mut T, release: unsafe extern "C" fn(*mut T)) -> Owned<T> {
        Owned { ptr, release }
    }

    /// Its address.
    pub(crate) fn ptr(&self) -> *mut T {
        self.ptr
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.ptr.is_null() {
            // SAFETY: the object is ours alone, and this is how it is given back.
            unsafe { (self.release)(self.ptr) }
        }
    }
}

// SAFETY: an object has one owner and is not bound to the thread that made it.
unsafe impl<T> Send for Owned<T> {}

/// The one library of a kind that a process loads, with what was made of it.
pub(crate) struct Loaded<T>(OnceLock<Result<(PathBuf, T), String>>);

impl<T> Loaded<T> {
    /// None yet.
    pub(crate) const fn new() -> Loaded<T> {
        Loaded(OnceLock::new())
    }

    /// What was made of the library, if that is loaded.
    pub(crate) fn loaded(&self) -> Option<&T> {
        self.0.get()?.as_ref().ok().map(|(_, made)| made)
    }

    /// What `make` made of the library at `path`, which is loaded by the first call.
    pub(crate) fn get(
        &self,
        path: &Path,
        make: impl FnOnce(&Library) -> Result<T, String>,
    ) -> Result<&T, String> {
        let load = || {
            // SAFETY: the user named this library or it lies where the library is installed; loading it
            // runs its initialisers, which touch nothing of ours.
            let inner = unsafe { libloading::Library::new(path) }
                .map_err(|e| format!("cannot load `{}`: {e}", path.display()))?;
            let library = Library { inner, path: path.to_owned() };
            let made = make(&library);
            std::mem::forget(library);
            Ok((path.to_owned(), made?))
        };
        let (loaded, made) = self.0.get_or_init(load).as_ref().map_err(Clone::clone)?;
        if loaded != path {
            return Err(format!(
                "this process has loaded `{}` and cannot load `{}` as well",
                loaded.display(),
                path.display()
            ));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        variable: "BRICOLAGE_THING",
        files: &["libthing.so", "libother.so"],
        folders: &["libs", "thing/libs", "lib"],
        packaged: "thing/libs",
        package: "thing",
    };

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
        let packages = root.0.join("lib/python3.11/site-packages");
        let libs = packages.join("thing/libs");
        fs::create_dir_all(&libs).unwrap();
        fs::write(libs.join("libthing_more.so"), "").unwrap();
        assert!(find_with(&WANTED, Some(&root.0), None, None).is_err());
        fs::write(libs.join("libother.so"), "12345").unwrap();
        let found = find_with(&WANTED, Some(&root.0), None, None).unwrap();
        assert_eq!(found.version, "of 5 bytes");
        fs::write(libs.join("libthing.so.77"), "").unwrap();
        fs::create_dir_all(packages.join("thing-1.20.1.dist-info")).unwrap();
        fs::create_dir_all(packages.join("thing_telemetry-9.9.9.dist-info")).unwrap();
        let found = find_with(&WANTED, None, Some(&root.0), None).unwrap();
        assert_eq!(found.version, "1.20.1");
        fs::write(libs.join("libthing.so.1.32.0"), "").unwrap();
        for named in [root.0.clone(), libs.clone(), libs.join("libthing.so.1.32.0")] {
            let found = find_with(&WANTED, Some(&named), None, None).unwrap();
            assert_eq!(found.version, "1.32.0");
            assert_eq!(found.path, libs.join("libthing.so.1.32.0"));
        }
        let loader = libs.display().to_string();
        assert_eq!(find_with(&WANTED, None, None, Some(&loader)).unwrap().version, "1.32.0");
    }

    #[test]
    fn says_what_was_named() {
        let root = folder("empty");
        let why = find_with(&WANTED, Some(&root.0), Some(Path::new("/nowhere")), None).unwrap_err();
        assert!(why.contains("BRICOLAGE_THING names"), "{why}");
        assert!(why.contains("libthing.so* or libother.so*"), "{why}");
    }

    #[test]
    fn a_process_loads_one_library_of_a_kind() {
        static NONE: Loaded<()> = Loaded::new();
        let why = NONE.get(Path::new("/nowhere/lib.so"), |_| Ok(())).unwrap_err();
        assert!(why.contains("cannot load `/nowhere/lib.so`"), "{why}");
        assert_eq!(NONE.get(Path::new("/nowhere/lib.so"), |_| Ok(())).unwrap_err(), why);
    }
}
