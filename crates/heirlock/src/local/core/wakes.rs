//! Whom an event concerns.

use std::collections::VecDeque;
use std::task::Waker;

use crate::Worker;
use crate::local::identity::Owner;
use crate::sync::survives;

/// What is called when the mutex has been released: wakers, and hooks on changes of priority. Both are foreign code, which may come back here.
#[derive(Default)]
pub(in crate::local) struct Wakes {
    /// Most events wake one, and that one costs nothing more.
    first: Option<Waker>,
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    wakers: VecDeque<Waker>,
    /// Workers whose effective priority was changed, as far as anybody wants to know.
    changed: VecDeque<Worker>,
    /// Workers that leave the domain, and may be dropped with hooks: the last handle to each may be here.
    gone: Vec<Worker>,
}

impl Wakes {
    pub(super) fn push(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.first.is_none() => self.first = Some(waker),
            Some(waker) => self.rest().wakers.push_back(waker),
            None => {}
        }
    }

    pub(super) fn bury(&mut self, owner: Owner) {
        if let Owner::Worker(worker) = owner
            && worker.may_hold_hooks()
        {
            self.rest().gone.push(worker);
        }
    }

    pub(super) fn tell_change(&mut self, worker: &Worker) {
        self.rest().changed.push_back(worker.clone());
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }
}

impl Drop for Wakes {
    /// An executor hears of priorities before it hears of what is ready.
    #[inline]
    fn drop(&mut self) {
        let first = self.first.take();
        if let Some(mut rest) = self.rest.take() {
            while let Some(worker) = rest.changed.pop_front() {
                worker.tell_change();
            }
            first.into_iter().chain(rest.wakers.drain(..)).for_each(wake);
        } else if let Some(waker) = first {
            wake(waker);
        }
    }
}

/// A waker is foreign code. A panic of it ends here, and is traced: whoever acquires or releases a lock has no part in it, nor has who is to be
/// called next, nor has the timer's thread.
fn wake(waker: Waker) {
    if !survives(|| waker.wake()) {
        tracing::error!("a waker panicked; the lock that called it goes on");
    }
}
