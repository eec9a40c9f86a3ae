//! How requests get to the store's thread and answers come back.
//!
//! A transaction takes some ten microseconds, and waking a thread that sleeps takes as long again. So both sides look for a moment before they
//! sleep: the thread for the next request, the asker, if nobody is before it, for its answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::engine::Engine;
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// How long either side looks before it sleeps.
const LOOK: Duration = Duration::from_micros(40);

/// A request.
pub(super) struct Job {
    /// Whether it may make the file anew if it is gone. Only somebody who wants to hold may: a release must not bring back what was removed.
    pub(super) makes: bool,
    work: Work,
}

/// What the store's thread does with its engine, or with the reason why it has none.
type Work = Box<dyn for<'e, 'c> FnOnce(Result<&'e mut Engine<'c>>) + Send>;

impl Job {
    /// Does it.
    pub(super) fn run(self, engine: Result<&mut Engine<'_>>) {
        (self.work)(engine);
    }
}

/// The queue of requests.
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
    bell: Condvar,
    /// Whether there is something in it, to look at without the mutex.
    mail: AtomicBool,
    /// Whether looking makes sense: with one processor the other side cannot run meanwhile.
    look: bool,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    /// Whether the thread sleeps, and must be woken.
    asleep: bool,
    /// No more jobs are taken.
    closed: bool,
}

/// What the thread finds.
pub(super) enum Mail {
    Job(Job),
    /// Nothing came until then.
    Nothing,
    /// Nothing will come.
    Closed,
}

impl Mailbox {
    pub(super) fn new() -> Arc<Mailbox> {
        let look = std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        Arc::new(Mailbox { inner: Mutex::default(), bell: Condvar::new(), mail: AtomicBool::new(false), look })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Puts a request in. Answers whether no other waits before it, so that its answer is near.
    fn post(&self, job: Job) -> Result<bool> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(closed());
        }
        let alone = inner.jobs.is_empty();
        inner.jobs.push_back(job);
        self.mail.store(true, Ordering::Release);
        let asleep = std::mem::take(&mut inner.asleep);
        drop(inner);
        if asleep {
            self.bell.notify_one();
        }
        Ok(alone)
    }

    /// The next request, until then. For the store's thread alone.
    pub(super) fn take(&self, until: Instant) -> Mail {
        if self.look {
            look_for(|| self.mail.load(Ordering::Acquire).then_some(()));
        }
        let mut inner = self.lock();
        loop {
            if let Some(job) = inner.jobs.pop_front() {
                inner.asleep = false;
                self.mail.store(!inner.jobs.is_empty(), Ordering::Release);
                return Mail::Job(job);
            }
            if inner.closed {
                return Mail::Closed;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                inner.asleep = false;
                return Mail::Nothing;
            }
            inner.asleep = true;
            inner = self.bell.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes no more requests; those in it are still done.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.mail.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Takes no more requests and drops those in it: their askers learn that the thread has ended.
    pub(super) fn abandon(&self) {
        let jobs = {
            let mut inner = self.lock();
            inner.closed = true;
            std::mem::take(&mut inner.jobs)
        };
        drop(jobs);
    }

    /// Has the store's thread do some work, and waits for what it comes to. Nothing is sent before the first poll.
    ///
    /// Dropping the future gives up the answer; the work is done all the same, unless it was still waiting for the file.
    pub(super) async fn ask<T, F>(self: Arc<Self>, makes: bool, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Engine<'_>, &dyn Fn() -> bool) -> Result<T> + Send + 'static,
    {
        let (sender, mut receiver) = oneshot::channel();
        let work: Work = Box::new(move |engine| {
            let answer = engine.and_then(|engine| work(engine, &|| sender.is_canceled()));
            // Nobody listens any more: then nobody needs it.
            let _ = sender.send(answer);
        });
        let alone = self.post(Job { makes, work })?;
        if alone && self.look {
            let answer = look_for(|| receiver.try_recv().map_or_else(|ended| Some(Err(ended)), |answer| answer.map(Ok)));
            if let Some(answer) = answer {
                return answer.unwrap_or_else(|_| Err(closed()));
            }
        }
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }
}

/// Looks again and again, for a moment.
fn look_for<T>(mut seen: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if let Some(seen) = seen() {
                return Some(seen);
            }
            std::hint::spin_loop();
        }
        // The other side may want this very processor.
        std::thread::yield_now();
        if start.elapsed() >= LOOK {
            return None;
        }
    }
}

fn closed() -> Error {
    Error::new(Kind::Closed, "the store is closed")
}
