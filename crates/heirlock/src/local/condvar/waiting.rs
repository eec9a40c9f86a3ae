//! The futures of a condition: a wait for the notification, then one for the lock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem::{ManuallyDrop, replace, take};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use super::{Condvar, Wakeup};
use crate::local::guard::{View, Waitable};
use crate::local::identity::{Owner, in_runtime};
use crate::local::raw::{Raw, Site, Want};
use crate::local::sync::block_on;
use crate::local::wait::{Bound, Options, Wait};
use crate::{Error, Kind, Result};

/// Waits for one notification.
#[derive(Debug)]
pub struct Until;

/// Waits as long as the closure says so.
#[derive(Debug)]
pub struct While<F>(pub(super) F);

/// Whether to wait.
pub trait Test<G> {
    /// For who holds the lock, before any wait or after one that ended so: how it ended in all, or `None` to wait (on).
    fn judge(&mut self, guard: &mut G, wakeup: Option<Wakeup>) -> Option<Wakeup>;
}

impl<G> Test<G> for Until {
    fn judge(&mut self, _: &mut G, wakeup: Option<Wakeup>) -> Option<Wakeup> {
        wakeup
    }
}

impl<G: Waitable, F: for<'v> FnMut(<G as View<'v>>::Ref) -> bool> Test<G> for While<F> {
    fn judge(&mut self, guard: &mut G, wakeup: Option<Wakeup>) -> Option<Wakeup> {
        if (self.0)(guard.view()) { wakeup.filter(|wakeup| *wakeup == Wakeup::TimedOut) } else { Some(Wakeup::Notified) }
    }
}

/// The future of [`Condvar::wait`] and [`Condvar::wait_while`]: the guard, when it was notified. What is said of it after its first poll changes
/// nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Waiting<'c, G: Waitable, P = Until> {
    condvar: &'c Condvar,
    test: P,
    options: Options,
    site: Site,
    blocking: bool,
    /// Whether it says in time that it was not notified, instead of failing.
    timed: bool,
    /// Who waits, and until when at most, however often it waits.
    bound: Option<Bound>,
    /// Whether it was notified and has not yet returned: the next waiter's, should that never be.
    owes: bool,
    stage: Stage<G>,
}

/// What is given up is kept, to be had again; only while it is `Holding` it may be used or dropped.
enum Stage<G> {
    Holding(G, Option<Wakeup>),
    /// For a notification.
    Waiting(ManuallyDrop<G>, Wait),
    /// For the lock.
    Returning(ManuallyDrop<G>, Wait, Wakeup),
    Done,
}

impl<'c, G: Waitable, P> Waiting<'c, G, P> {
    pub(super) fn new(condvar: &'c Condvar, guard: G, test: P, site: Site) -> Waiting<'c, G, P> {
        let stage = Stage::Holding(guard, None);
        Waiting { condvar, test, options: Options::of(Want::ONE), site, blocking: false, timed: false, bound: None, owes: false, stage }
    }

    /// How urgent this wait is, for the notification and for the lock, in place of its worker's base priority. Larger is more urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = Some(priority);
        self
    }

    /// Acquires the lock again although it was poisoned meanwhile.
    pub fn even_poisoned(mut self) -> Self {
        self.options.even_poisoned = true;
        self
    }

    /// How long it may wait to be notified. Then it acquires the lock, however long that takes, and says [`Wakeup::TimedOut`].
    pub fn timeout(mut self, span: Duration) -> TimedWaiting<'c, G, P> {
        self.options.timeout = Some(span);
        self.timed()
    }

    /// Until when it may wait to be notified; of equals, the earliest is notified first. An earlier deadline of the worker counts. Then it acquires
    /// the lock, however long that takes, and says [`Wakeup::TimedOut`].
    pub fn deadline(mut self, instant: Instant) -> TimedWaiting<'c, G, P> {
        self.options.deadline = Some(instant);
        self.timed()
    }

    fn timed(mut self) -> TimedWaiting<'c, G, P> {
        self.timed = true;
        TimedWaiting(self)
    }
}

impl<G: Waitable, P: Test<G>> Waiting<'_, G, P> {
    /// Waits on this thread instead of being polled. The thread waits, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As of [`Condvar::wait`], and `WouldBlock` within an async runtime: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<G> {
        self.block().map(|(guard, _)| guard)
    }

    fn block(&mut self) -> Result<(G, Wakeup)> {
        self.blocking = true;
        if !in_runtime() {
            return block_on(poll_fn(|cx| self.step(cx)));
        }
        if let Stage::Holding(mut guard, None) = replace(&mut self.stage, Stage::Done)
            && let Some(wakeup) = self.test.judge(&mut guard, None)
        {
            return Ok((guard, wakeup));
        }
        let label = self.condvar.raw.label();
        Err(Error::new(
            Kind::WouldBlock,
            format!("waiting for {label} here would block a thread of the async runtime: await wait() instead"),
        ))
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(G, Wakeup)>> {
        loop {
            match &mut self.stage {
                Stage::Holding(..) => {
                    if let Some(ended) = self.judge(cx)? {
                        return Poll::Ready(Ok(ended));
                    }
                }
                Stage::Waiting(_, wait) => {
                    let wakeup = match ready!(wait.poll(&self.condvar.raw, cx)) {
                        Ok(_) => Wakeup::Notified,
                        Err(error) if self.timed && error.is_timeout() => Wakeup::TimedOut,
                        Err(error) => return self.failed(error),
                    };
                    self.owes = wakeup == Wakeup::Notified && !wait.was_displaced();
                    if let Stage::Waiting(guard, _) = replace(&mut self.stage, Stage::Done) {
                        self.stage = self.returning(guard, wakeup);
                    }
                }
                Stage::Returning(guard, wait, wakeup) => match ready!(wait.poll(guard.raw(), cx)) {
                    Ok(held) => {
                        let wakeup = *wakeup;
                        guard.regain(held);
                        if let Stage::Returning(guard, ..) = replace(&mut self.stage, Stage::Done) {
                            self.stage = Stage::Holding(ManuallyDrop::into_inner(guard), Some(wakeup));
                        }
                    }
                    Err(error) => return self.failed(error),
                },
                Stage::Done => panic!("a condition's future was polled after it had completed"),
            }
        }
    }

    /// Whoever holds the lock has what it waited for, or gives the lock up.
    fn judge(&mut self, cx: &mut Context<'_>) -> Result<Option<(G, Wakeup)>> {
        let Stage::Holding(mut guard, wakeup) = replace(&mut self.stage, Stage::Done) else { return Ok(None) };
        let ended = self.test.judge(&mut guard, wakeup);
        // Returned, or used up in vain.
        self.owes = false;
        match ended {
            Some(wakeup) => Ok(Some((guard, wakeup))),
            None => self.give_up(guard, cx).map(|()| None),
        }
    }

    /// Queues, then lets go of the lock: whoever has the lock next and notifies finds it waiting.
    fn give_up(&mut self, guard: G, cx: &mut Context<'_>) -> Result<()> {
        let (condvar, levels) = (self.condvar, guard.levels());
        if !guard.raw().is_whole(levels) {
            return Err(not_whole(guard.raw()));
        }
        let (options, blocking) = (self.options, self.blocking);
        let bound = self.bound.get_or_insert_with(|| Bound::new(&condvar.raw, options, blocking)).clone();
        let mut wait = Wait::bound(self.site, self.options, bound);
        let entered = wait.poll(&condvar.raw, cx);
        // From here on the guard is dropped by hand only: that it is given up below must not depend on what becomes of this frame.
        let guard = ManuallyDrop::new(guard);
        self.stage = match entered {
            Poll::Pending => Stage::Waiting(guard, wait),
            Poll::Ready(Ok(_)) => {
                // An earlier wait of the same worker was notified and is not polled any more: this one is what the worker hears it by.
                self.owes = true;
                self.stage = Stage::Holding(ManuallyDrop::into_inner(guard), Some(Wakeup::Notified));
                return Ok(());
            }
            Poll::Ready(Err(error)) if self.timed && error.is_timeout() => self.returning(guard, Wakeup::TimedOut),
            Poll::Ready(Err(error)) => {
                drop(ManuallyDrop::into_inner(guard));
                return Err(error);
            }
        };
        let (Stage::Waiting(guard, _) | Stage::Returning(guard, ..)) = &self.stage else { return Ok(()) };
        if guard.raw().release_whole(levels) {
            return Ok(());
        }
        // Another guard was made meanwhile.
        let error = not_whole(guard.raw());
        match replace(&mut self.stage, Stage::Done) {
            Stage::Waiting(guard, mut wait) => {
                let _guard = ManuallyDrop::into_inner(guard);
                wait.cancel(&condvar.raw);
            }
            Stage::Returning(guard, ..) => drop(ManuallyDrop::into_inner(guard)),
            Stage::Holding(..) | Stage::Done => {}
        }
        Err(error)
    }

    /// The wait for the lock, as deep as it was held, by the same worker.
    fn returning(&self, guard: ManuallyDrop<G>, wakeup: Wakeup) -> Stage<G> {
        let Options { priority, even_poisoned, .. } = self.options;
        let options = Options { priority, even_poisoned, ..Options::of(Want::levels(guard.levels())) };
        let owner = self.bound.as_ref().map_or(Owner::Anonymous, |bound| bound.owner.clone());
        let bound = if self.timed { Bound::unlimited(owner) } else { Bound::by(owner, guard.raw(), options) };
        let wait = Wait::bound(self.site, options, bound);
        Stage::Returning(guard, wait, wakeup)
    }

    /// It ends without the lock.
    fn failed(&mut self, error: Error) -> Poll<Result<(G, Wakeup)>> {
        self.stage = Stage::Done;
        if take(&mut self.owes) {
            self.condvar.notify_one();
        }
        Poll::Ready(Err(error))
    }
}

impl<G: Waitable, P: Test<G>> Future for Waiting<'_, G, P> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.step(cx).map_ok(|(guard, _)| guard)
    }
}

/// Nothing in it is pinned.
impl<G: Waitable, P> Unpin for Waiting<'_, G, P> {}

impl<G: Waitable, P> Drop for Waiting<'_, G, P> {
    fn drop(&mut self) {
        /// Last, also when a waker that is dropped before panics.
        struct PassOn<'c>(&'c Condvar);

        impl Drop for PassOn<'_> {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }

        let _pass_on = self.owes.then(|| PassOn(self.condvar));
        match &mut self.stage {
            // One that was notified passes that on in the graph.
            Stage::Waiting(_, wait) => wait.cancel(&self.condvar.raw),
            Stage::Returning(guard, wait, _) => wait.cancel(guard.raw()),
            Stage::Holding(..) | Stage::Done => {}
        }
    }
}

impl<G: Waitable, P> fmt::Debug for Waiting<'_, G, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Holding(..) => "holding",
            Stage::Waiting(..) => "waiting",
            Stage::Returning(..) => "returning",
            Stage::Done => "done",
        };
        f.debug_struct("Waiting").field("condvar", &self.condvar.name()).field("stage", &stage).finish_non_exhaustive()
    }
}

/// A [`Waiting`] with a timeout or a deadline: the guard, and how it ended.
#[must_use = "futures do nothing unless awaited"]
pub struct TimedWaiting<'c, G: Waitable, P = Until>(Waiting<'c, G, P>);

impl<G: Waitable, P> TimedWaiting<'_, G, P> {
    /// As [`Waiting::priority`].
    pub fn priority(self, priority: i32) -> Self {
        TimedWaiting(self.0.priority(priority))
    }

    /// As [`Waiting::even_poisoned`].
    pub fn even_poisoned(self) -> Self {
        TimedWaiting(self.0.even_poisoned())
    }

    /// As [`Waiting::timeout`].
    pub fn timeout(self, span: Duration) -> Self {
        self.0.timeout(span)
    }

    /// As [`Waiting::deadline`].
    pub fn deadline(self, instant: Instant) -> Self {
        self.0.deadline(instant)
    }
}

impl<G: Waitable, P: Test<G>> TimedWaiting<'_, G, P> {
    /// As [`Waiting::blocking`].
    ///
    /// # Errors
    /// As there.
    pub fn blocking(mut self) -> Result<(G, Wakeup)> {
        self.0.block()
    }
}

impl<G: Waitable, P: Test<G>> Future for TimedWaiting<'_, G, P> {
    type Output = Result<(G, Wakeup)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.step(cx)
    }
}

impl<G: Waitable, P> fmt::Debug for TimedWaiting<'_, G, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn not_whole(raw: &Raw) -> Error {
    let what = format!(
        "the holder of {} has other guards of it, so giving up this one would free it for nobody: drop or merge() them first",
        raw.label()
    );
    Error::new(Kind::Invalid, what)
}
