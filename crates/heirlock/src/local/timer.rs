//! One thread for all deadlines of the process, started by the first wait that has one.
//!
//! It keeps no deadlines, only the domains that have some: each knows its own, under its own mutex and by its own clock.

use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::domain::{Domain, Inner};
use super::sync::HAS_TIMER;
use crate::sync::lock;

static TIMER: Timer = Timer { state: Mutex::new(State { came: Vec::new(), rung: false, runs: false }), bell: Condvar::new() };

struct Timer {
    state: Mutex<State>,
    bell: Condvar,
}

struct State {
    /// Domains that have deadlines, and are new to the thread.
    came: Vec<Weak<Inner>>,
    /// Whether something has changed since the thread last looked: a bell that nobody hears is not lost.
    rung: bool,
    runs: bool,
}

/// Something is due earlier than the timer knew; `domain`, if it is not on the timer's list. Never called under a domain's mutex.
pub(super) fn ring(domain: Option<Weak<Inner>>) {
    if !HAS_TIMER {
        return;
    }
    let mut state = lock(&TIMER.state);
    state.came.extend(domain);
    state.rung = true;
    if state.runs {
        TIMER.bell.notify_one();
        return;
    }
    match thread::Builder::new().name("heirlock-timer".into()).spawn(run) {
        Ok(_) => state.runs = true,
        // The next one that rings tries again.
        Err(error) => tracing::error!(%error, "no thread for the timer: timeouts of local locks are late"),
    }
}

/// A clock jumped. Without a thread nobody has a deadline.
pub(super) fn jumped() {
    let mut state = lock(&TIMER.state);
    state.rung = true;
    TIMER.bell.notify_one();
}

fn run() {
    let mut domains: Vec<Weak<Inner>> = Vec::new();
    let mut sleep = None;
    loop {
        domains.append(&mut listen(sleep));
        sleep = None;
        domains.retain(|domain| {
            let Some(domain) = domain.upgrade().map(Domain::from_inner) else { return false };
            let Some(until) = domain.expire() else { return false };
            let span = domain.clock().sleep_for(until);
            sleep = [sleep, span].into_iter().flatten().min();
            true
        });
    }
}

/// Sleeps so long, or until the bell rings. Domains that have come.
fn listen(sleep: Option<Duration>) -> Vec<Weak<Inner>> {
    let mut state = lock(&TIMER.state);
    if !state.rung {
        state = match sleep {
            Some(span) => TIMER.bell.wait_timeout(state, span).unwrap_or_else(PoisonError::into_inner).0,
            None => TIMER.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
    state.rung = false;
    std::mem::take(&mut state.came)
}
