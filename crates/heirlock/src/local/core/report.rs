//! What a domain has to say to the log, once its mutex is released: who listens to `tracing` is foreign code, which may come back here.

use std::time::Duration;

use super::Core;

#[derive(Debug)]
pub(in crate::local) enum Report {
    /// A cycle that is not certain has stood for `stall_time`.
    Suspected(Vec<String>),
    /// A lock was held for longer than `warn_after`; if so many still wait for it, it is held.
    Held { lock: String, worker: String, site: String, lasts: Duration, waiting: Option<usize> },
    /// Locks were taken in both orders.
    Inversion(String),
    /// There was no room to learn more orders.
    Unlearned,
}

impl Core {
    /// What is to be said when the running event is over.
    pub(in crate::local) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }
}

impl Report {
    /// Says it. Never under a mutex.
    pub(in crate::local) fn trace(self) {
        match self {
            Report::Suspected(cycle) => {
                let cycle = cycle.join("; ");
                tracing::warn!(%cycle, "these workers wait for each other, which may be a deadlock");
            }
            Report::Held { lock, worker, site, lasts, waiting: Some(waiting) } => {
                tracing::warn!(%lock, %worker, %site, held_ms = millis(lasts), waiting, "a lock is held for long, and others wait for it");
            }
            Report::Held { lock, worker, site, lasts, waiting: None } => {
                tracing::warn!(%lock, %worker, %site, held_ms = millis(lasts), "a lock was held for long");
            }
            Report::Inversion(inversion) => tracing::warn!(%inversion, "locks are taken in both orders, which may deadlock one day"),
            Report::Unlearned => tracing::warn!("too many orders of locks to learn them all: some inversions will not be found"),
        }
    }
}

/// A span for who reads it, not for a store: without a limit.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
