//! A library in this process: its table, checked, and calls through it.

use super::{
    PluginError, PluginFault,
    services::{Failure, Services},
};
use bricolage_plugin::{
    ABI, Backend, Compile, DETERMINISTIC, Destroy, Find, Plan, PlanFn, RunFn, SYMBOL, Subgraph,
};
use bricolage_runtime::{Serial, map_file};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{CStr, c_char, c_void},
    path::Path,
    ptr, slice,
};

/// What a library says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the backend.
    pub name: String,
    /// Version that the library declares.
    pub version: String,
    /// Start of the hash of its file: other bytes may be other kernels.
    pub build: String,
    /// Threads of its own that it keeps at most.
    pub own_threads: u32,
    /// Names of its entries.
    pub entries: Vec<String>,
    /// Its pattern file.
    pub patterns: String,
}

/// What a library says of a sub-graph that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Bytes of scratch memory for one run, at most.
    pub workspace: u64,
    /// Whether two runs on equal inputs give equal bits.
    pub deterministic: bool,
}

/// Bytes of workspace that a plan may ask for.
const MOST_WORKSPACE: u64 = 1 << 40;
/// Entries of a library, at most.
const MOST_ENTRIES: u32 = 4096;
/// Bytes of the hash of a file that tell builds apart, in hexadecimal digits.
const BUILD_DIGITS: usize = 16;

/// The functions of a library that was loaded, for as long as the process lives.
#[derive(Clone, Copy)]
pub(super) struct Table {
    plan: PlanFn,
    compile: Compile,
    run: RunFn,
    destroy: Destroy,
}

fn needs(needed: impl Into<String>, found: impl Into<String>) -> PluginFault {
    PluginFault::Table { needed: needed.into(), found: found.into() }
}

/// The text at a pointer of a table.
///
/// # Safety
/// The pointer is null or that of bytes that end with a zero and are never changed.
unsafe fn text(what: &str, at: *const c_char) -> Result<String, PluginFault> {
    if at.is_null() {
        return Err(needs(what, "null"));
    }
    // SAFETY: the caller promises it.
    match unsafe { CStr::from_ptr(at) }.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(e) => Err(needs(format!("{what} in UTF-8"), format!("other bytes: {e}"))),
    }
}

impl Table {
    /// Loads the library at `path`, if this process has not, and reads its table.
    pub(super) fn open(path: &Path) -> Result<(Table, Description), PluginError> {
        let fault = |fault| PluginError { library: path.to_owned(), fault };
        let bytes = map_file(path).map_err(|e| fault(PluginFault::File(e.to_string())))?;
        let mut build = blake3::hash(&bytes).to_hex().to_string();
        build.truncate(BUILD_DIGITS);
        // A name without a folder would be looked for elsewhere.
        let whole = path.canonicalize().map_err(|e| fault(PluginFault::File(e.to_string())))?;
        let (table, description) = Table::of(&whole, build).map_err(fault)?;
        Ok((table, description))
    }

    fn of(path: &Path, build: String) -> Result<(Table, Description), PluginFault> {
        let load = |e: libloading::Error| {
            let said =
                std::error::Error::source(&e).map_or_else(|| e.to_string(), |s| s.to_string());
            PluginFault::Load(said)
        };
        // SAFETY: the user named this library; its initialisers are the user's choice to run.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(load)?;
        // SAFETY: a symbol of this name has this signature: the header declares it.
        let find = unsafe { library.get::<Find>(SYMBOL.as_bytes()) }.map(|f| *f);
        // Its table, its kernels and its threads may be used until the process ends.
        std::mem::forget(library);
        let find = find.map_err(|_| PluginFault::Symbol)?;
        // SAFETY: as the header says; the result is null or lives as long as the library.
        let raw = unsafe { find(ABI) };
        let abi = |found: String| PluginFault::Interface { needed: ABI, found };
        if raw.is_null() {
            return Err(abi("that the library does not know it".to_owned()));
        }
        // SAFETY: a table starts with these two fields in every interface.
        let (found, size) = unsafe { ((*raw).abi, (*raw).size) };
        if found != ABI {
            return Err(abi(format!("a table of interface {found}")));
        }
        if (size as usize) < size_of::<Backend>() {
            let needed = format!("a table of {} bytes or more", size_of::<Backend>());
            return Err(needs(needed, format!("one of {size}")));
        }
        // SAFETY: the table has all fields of this interface, and lives as long as the library.
        let raw: &'static Backend = unsafe { &*raw };
        let function = |name: &str| needs(format!("a function `{name}` in its table"), "null");
        let table = Table {
            plan: raw.plan.ok_or_else(|| function("plan"))?,
            compile: raw.compile.ok_or_else(|| function("compile"))?,
            run: raw.run.ok_or_else(|| function("run"))?,
            destroy: raw.destroy.ok_or_else(|| function("destroy"))?,
        };
        if raw.entry_count > MOST_ENTRIES || (raw.entries.is_null() && raw.entry_count > 0) {
            let found = if raw.entries.is_null() { "null" } else { "more" };
            return Err(needs(format!("a list of at most {MOST_ENTRIES} entries"), found));
        }
        let entries = match raw.entry_count {
            0 => &[][..],
            // SAFETY: as many pointers lie there, as the header says.
            count => unsafe { slice::from_raw_parts(raw.entries, count as usize) },
        };
        // SAFETY: as the header says of texts in tables.
        let description = unsafe {
            Description {
                name: text("a name", raw.name)?,
                version: text("a version", raw.version)?,
                build,
                own_threads: raw.own_threads,
                entries: entries
                    .iter()
                    .map(|&e| text("names of entries", e))
                    .collect::<Result<_, _>>()?,
                patterns: text("a pattern file", raw.patterns)?,
            }
        };
        Ok((table, description))
    }

    /// Asks whether a sub-graph is taken; in a clause why it is not.
    pub(super) fn plan(&self, subgraph: &[u8]) -> Result<Planned, String> {
        let services = Services::new(&Serial, None);
        let mut plan = Plan { size: size_of::<Plan>() as u32, flags: 0, workspace: 0 };
        // SAFETY: host, bytes and plan live through the call.
        let status = unsafe {
            let bytes = subgraph.as_ptr().cast::<c_void>();
            (self.plan)(&services.host(), bytes, subgraph.len() as u64, &mut plan)
        };
        services.outcome(status).map_err(|failure| failure.to_string())?;
        if plan.workspace > MOST_WORKSPACE {
            return Err(format!(
                "its plan needs a workspace of at most {MOST_WORKSPACE} bytes, found {}",
                plan.workspace
            ));
        }
        match plan.flags {
            0 | DETERMINISTIC => {
                let deterministic = plan.flags == DETERMINISTIC;
                Ok(Planned { workspace: plan.workspace, deterministic })
            }
            other => Err(format!("its plan needs flags that are known, found {other:#x}")),
        }
    }

    /// Makes a kernel of a sub-graph whose constants lie at their addresses for as long as the kernel lives.
    pub(super) fn compile(&self, subgraph: &Subgraph) -> Result<Handle, String> {
        let services = Services::new(&Serial, None);
        let bytes = subgraph.encode();
        let mut kernel = ptr::null_mut();
        // SAFETY: host and bytes live through the call, constants longer.
        let status = unsafe {
            let start = bytes.as_ptr().cast::<c_void>();
            (self.compile)(&services.host(), start, bytes.len() as u64, &mut kernel)
        };
        services.outcome(status).map_err(|failure| failure.to_string())?;
        Ok(Handle { kernel, table: *self })
    }
}

/// A kernel of a library.
pub(super) struct Handle {
    kernel: *mut c_void,
    table: Table,
}

// SAFETY: the header asks libraries for kernels that any thread may run and give back.
unsafe impl Send for Handle {}
// SAFETY: as above, several at a time.
unsafe impl Sync for Handle {}

impl Handle {
    /// Runs the kernel.
    ///
    /// # Safety
    /// The pointers are those of tensors as the sub-graph describes them, outputs and workspace nobody else's,
    /// and the workspace has the bytes that were planned.
    pub(super) unsafe fn run(
        &self,
        services: &Services<'_>,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        workspace: *mut c_void,
    ) -> Result<(), Failure> {
        // SAFETY: the caller promises it.
        let status = unsafe {
            let (inputs, outputs) = (inputs.as_ptr(), outputs.as_ptr());
            (self.table.run)(&services.host(), self.kernel, inputs, outputs, workspace)
        };
        services.outcome(status)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the kernel is ours alone, and this is how it is given back.
        unsafe { (self.table.destroy)(self.kernel) }
    }
}
