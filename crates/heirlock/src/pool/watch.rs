//! Traces polls that do not end.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::threads::Shared;

/// Starts the thread that looks every `span` what is polled: what it finds twice has been polled for at least so long. It reads no clock, and
/// whoever polls pays nothing for it. While nothing is polled it sleeps.
pub(super) fn start(shared: &Arc<Shared>, span: Duration) -> io::Result<()> {
    let name = format!("{}-watch", shared.name);
    let shared = Arc::clone(shared);
    thread::Builder::new().name(name).spawn(move || watch(&shared, span)).map(drop)
}

fn watch(shared: &Shared, span: Duration) {
    let mut state = shared.state();
    // The number of the poll that each thread was at, and whether it was traced.
    let mut seen: Vec<Option<(u64, bool)>> = vec![None; state.polls.len()];
    while !state.is_gone() {
        let mut late = Vec::new();
        for (seen, poll) in seen.iter_mut().zip(&state.polls) {
            let before = *seen;
            *seen = poll.map(|poll| (poll.number, false));
            if let (Some(poll), Some((number, traced))) = (poll, before)
                && poll.number == number
            {
                late.extend(state.polled(*poll).filter(|_| !traced).map(|task| task.worker.clone()));
                *seen = Some((number, true));
            }
        }
        if !late.is_empty() {
            drop(state);
            for worker in late {
                tracing::warn!(
                    worker = worker.name(),
                    pool = shared.name,
                    "a task has been polled for {span:?} and longer without yielding: it keeps a thread of the pool from all others; \
                     hand what blocks or computes to spawn_blocking"
                );
            }
            state = shared.state();
        }
        let idle = state.polls.iter().all(Option::is_none);
        state.watch_sleeps = idle;
        state = if idle {
            shared.watch.wait(state).unwrap_or_else(PoisonError::into_inner)
        } else {
            shared.watch.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0
        };
    }
}
