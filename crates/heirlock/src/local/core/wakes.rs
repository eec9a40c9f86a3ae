//! Whom an event concerns.

use std::collections::VecDeque;
use std::task::Waker;

use crate::Worker;
use crate::local::identity::Owner;

/// What is called when the mutex has been released: wakers, and hooks on changes of priority. Both are foreign code, which may come back here.
#[derive(Default)]
pub(in crate::local) struct Wakes {
    /// Most events wake one, and that one costs no allocation.
    first: Option<Waker>,
    more: VecDeque<Waker>,
    /// Workers whose effective priority was changed, as far as anybody wants to know.
    changed: Vec<Worker>,
    /// Workers that leave the domain, and may be dropped with hooks: the last handle to each may be here.
    gone: Vec<Worker>,
}

impl Wakes {
    pub(super) fn push(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.first.is_none() => self.first = Some(waker),
            Some(waker) => self.more.push_back(waker),
            None => {}
        }
    }

    pub(super) fn bury(&mut self, owner: Owner) {
        if let Owner::Worker(worker) = owner
            && worker.has_hooks()
        {
            self.gone.push(worker);
        }
    }

    pub(super) fn tell_change(&mut self, worker: &Worker) {
        self.changed.push(worker.clone());
    }
}

impl Drop for Wakes {
    /// Here rather than in a method, so that the rest is woken although one of them panics. An executor hears of priorities before it hears of
    /// what is ready.
    #[inline]
    fn drop(&mut self) {
        if self.changed.is_empty() && self.more.is_empty() {
            if let Some(waker) = self.first.take() {
                waker.wake();
            }
            return;
        }
        while let Some(worker) = self.changed.pop() {
            let mut rest = std::mem::take(self);
            worker.tell_change();
            std::mem::swap(self, &mut rest);
        }
        while let Some(waker) = self.first.take().or_else(|| self.more.pop_front()) {
            let mut rest = std::mem::take(self);
            waker.wake();
            std::mem::swap(self, &mut rest);
        }
    }
}
