//! Whom an event concerns.

use std::collections::VecDeque;
use std::task::Waker;

use crate::Worker;
use crate::local::identity::Owner;

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
            && worker.has_hooks()
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
    /// Here rather than in a method, so that the rest is woken although one of them panics. An executor hears of priorities before it hears of
    /// what is ready.
    #[inline]
    fn drop(&mut self) {
        if let Some(mut rest) = self.rest.take() {
            if let Some(waker) = self.first.take() {
                rest.wakers.push_front(waker);
            }
        } else if let Some(waker) = self.first.take() {
            waker.wake();
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        // What is left, should one of these panic.
        struct Left<'a>(&'a mut Rest);
        impl Drop for Left<'_> {
            fn drop(&mut self) {
                self.0.call();
            }
        }
        let left = Left(self);
        left.0.call();
    }
}

impl Rest {
    fn call(&mut self) {
        while let Some(worker) = self.changed.pop_front() {
            worker.tell_change();
        }
        while let Some(waker) = self.wakers.pop_front() {
            waker.wake();
        }
    }
}
