//! What happens when the user, or the system, stops a verb: one way for all of them.

use bricolage::temporary;
use bricolage_runtime::Cancel;
use std::sync::{Arc, Mutex, MutexGuard};

/// Who stops with a result, at the moment.
static GRACEFUL: Mutex<Option<Arc<Cancel>>> = Mutex::new(None);

fn graceful() -> MutexGuard<'static, Option<Arc<Cancel>>> {
    GRACEFUL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Catches Ctrl-C, SIGTERM and SIGHUP. The first one asks who holds a [`Graceful`] to stop with the
/// best so far; otherwise, and the second time, the program ends with code 130 and leaves nothing
/// unfinished behind.
pub(crate) fn install() {
    let installed = ctrlc::set_handler(|| {
        match &*graceful() {
            Some(cancel) if !cancel.is_cancelled() => {
                eprintln!("stopping with the best so far; once more to stop at once");
                return cancel.cancel();
            }
            _ => eprintln!("stopped"),
        }
        temporary::end(130)
    });
    if let Err(error) = installed {
        eprintln!("warning: signals are not caught, so unfinished files may stay: {error}");
    }
}

/// While it is held, a first signal only sets the flag.
pub(crate) struct Graceful(Arc<Cancel>);

impl Graceful {
    pub(crate) fn new() -> Graceful {
        let cancel = Arc::new(Cancel::default());
        *graceful() = Some(cancel.clone());
        Graceful(cancel)
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.0
    }
}

impl Drop for Graceful {
    fn drop(&mut self) {
        *graceful() = None;
    }
}
