//! Live progress on a terminal, plain lines elsewhere; always on standard error.

use crate::units;
use bricolage::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    cell::RefCell,
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(5);

struct State {
    phase: &'static str,
    since: Instant,
    printed: Option<Instant>,
    best_ns: Option<f64>,
}

/// Shows where an optimisation stands.
pub(crate) struct Display {
    bar: Option<ProgressBar>,
    state: RefCell<State>,
}

impl Display {
    pub(crate) fn new() -> Display {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        let state = State { phase: "", since: Instant::now(), printed: None, best_ns: None };
        Display { bar, state: RefCell::new(state) }
    }

    pub(crate) fn show(&self, progress: &Progress) {
        let mut state = self.state.borrow_mut();
        let new_phase = state.phase != progress.phase;
        if new_phase {
            state.phase = progress.phase;
            state.since = Instant::now();
        }
        state.best_ns = progress.best_ns.or(state.best_ns);
        let mut line = progress.phase.to_owned();
        if progress.total > 0 {
            line.push_str(&format!(" {}/{}", progress.done, progress.total));
            if progress.done > 0 {
                let left = state
                    .since
                    .elapsed()
                    .mul_f64((progress.total - progress.done) as f64 / progress.done as f64);
                line.push_str(&format!(", about {:.0} s left", left.as_secs_f64()));
            }
        }
        if let Some(best) = state.best_ns {
            line.push_str(&format!(", best {}", units::time(best)));
        }
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None if new_phase || state.printed.is_none_or(|t| t.elapsed() >= EVERY) => {
                eprintln!("{line}");
                state.printed = Some(Instant::now());
            }
            None => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
