//! When each step of a run began and ended.

use std::time::{Duration, Instant};

/// Begin and end of one step, counted from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// From the start of the run to the start of the step.
    pub begin: Duration,
    /// From the start of the run to the end of the step.
    pub end: Duration,
}

impl Span {
    /// How long the step took.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.begin)
    }
}

/// The spans of one run, in the order of the plan's steps. Reused from run to run.
#[derive(Clone, Debug)]
pub struct Trace {
    started: Instant,
    spans: Vec<Span>,
}

impl Trace {
    /// A trace with room for `steps` spans; recording allocates nothing within that.
    pub fn with_capacity(steps: usize) -> Trace {
        Trace { started: Instant::now(), spans: Vec::with_capacity(steps) }
    }

    /// The spans of the last run.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn start(&mut self) {
        self.spans.clear();
        self.started = Instant::now();
    }

    pub(crate) fn begin(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn end(&mut self, begin: Duration) {
        self.spans.push(Span { begin, end: self.started.elapsed() });
    }
}
