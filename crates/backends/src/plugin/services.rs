//! What the host does for a library during a call.

use bricolage_plugin::{ABI, Body, CANCELLED, DOMAIN, FAILED, Host, OK, REFUSED};
use bricolage_runtime::{Cancel, Pool};
use std::{
    ffi::{CStr, c_char, c_void},
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Where lines for people are kept.
static LOG: OnceLock<Mutex<File>> = OnceLock::new();

/// From now on keeps the lines that libraries log in this file, after what it holds; the first file that is
/// named counts.
///
/// # Errors
/// Those of the system, where the file cannot be opened for writing.
pub fn log_to(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    LOG.get_or_init(|| Mutex::new(file));
    Ok(())
}

/// How a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Because the host asked for it.
    Cancelled,
    /// The inputs hold values that the op does not allow.
    Domain(String),
    /// For the reason that the library gave.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Cancelled => f.write_str("it says that it was cancelled"),
            Failure::Domain(why) | Failure::Other(why) => f.write_str(why),
        }
    }
}

/// One call of a library.
pub(super) struct Services<'a> {
    pool: &'a dyn Pool,
    cancel: Option<&'a Cancel>,
    reason: Mutex<Option<String>>,
}

impl<'a> Services<'a> {
    pub(super) fn new(pool: &'a dyn Pool, cancel: Option<&'a Cancel>) -> Services<'a> {
        Services { pool, cancel, reason: Mutex::new(None) }
    }

    /// The table for the call; it holds for as long as this is borrowed.
    pub(super) fn host(&self) -> Host {
        Host {
            abi: ABI,
            size: size_of::<Host>() as u32,
            context: std::ptr::from_ref(self).cast_mut().cast(),
            threads,
            parallel_for,
            cancelled,
            log,
            reason,
        }
    }

    /// What a status means.
    pub(super) fn outcome(&self, status: i32) -> Result<(), Failure> {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reason = || reason.unwrap_or_else(|| "it gave no reason".to_owned());
        Err(match status {
            OK => return Ok(()),
            CANCELLED if self.cancel.is_some_and(Cancel::is_cancelled) => Failure::Cancelled,
            CANCELLED => {
                Failure::Other("it says that it was cancelled, and nobody asked for it".to_owned())
            }
            DOMAIN => Failure::Domain(reason()),
            REFUSED | FAILED => Failure::Other(reason()),
            other => {
                Failure::Other(format!("it needs a status from {OK} to {CANCELLED}, found {other}"))
            }
        })
    }
}

/// # Safety
/// `context` is that of the table of a call that has not returned.
unsafe fn services<'a>(context: *mut c_void) -> &'a Services<'a> {
    // SAFETY: the caller promises it.
    unsafe { &*context.cast::<Services<'a>>() }
}

/// # Safety
/// `text` is null or that of bytes that end with a zero.
unsafe fn words(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        // SAFETY: the caller promises it.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    }
}

unsafe extern "C" fn threads(context: *mut c_void) -> u32 {
    // SAFETY: libraries pass the context of the table that they were given.
    u32::try_from(unsafe { services(context) }.pool.threads()).unwrap_or(u32::MAX)
}

/// What a library hands to its own tasks, on whatever thread they run.
struct Argument(*mut c_void);

// SAFETY: the library asks for its tasks to be called with it by several threads.
unsafe impl Sync for Argument {}

unsafe extern "C" fn parallel_for(
    context: *mut c_void,
    tasks: u64,
    body: Body,
    argument: *mut c_void,
) {
    let argument = &Argument(argument);
    let task = |task: usize, thread: usize| {
        let argument: &Argument = argument;
        // SAFETY: `body` is the library's, and so is what it does with its argument.
        unsafe { body(argument.0, task as u64, thread as u32) }
    };
    // SAFETY: libraries pass the context of the table that they were given.
    unsafe { services(context) }.pool.run(usize::try_from(tasks).unwrap_or(usize::MAX), &task);
}

unsafe extern "C" fn cancelled(context: *mut c_void) -> i32 {
    // SAFETY: libraries pass the context of the table that they were given.
    i32::from(unsafe { services(context) }.cancel.is_some_and(Cancel::is_cancelled))
}

unsafe extern "C" fn log(_: *mut c_void, line: *const c_char) {
    if let Some(file) = LOG.get() {
        // SAFETY: libraries pass a text.
        let line = unsafe { words(line) };
        // A log that cannot be written is no reason to fail.
        let _ = writeln!(file.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
    }
}

unsafe extern "C" fn reason(context: *mut c_void, clause: *const c_char) {
    // SAFETY: libraries pass the context of the table that they were given, and a text.
    let (services, clause) = unsafe { (services(context), words(clause)) };
    *services.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(clause);
}
