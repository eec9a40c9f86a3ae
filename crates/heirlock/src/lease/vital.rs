//! What a holder, or whoever wants to be one, knows of its ticket: shared between the future or lease and the keeper.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use super::key::Key;
use super::ticket::{Reason, Was};
use super::verb::Holding;
use crate::clock::Moment;
use crate::sync::lock;
use crate::{Error, Kind};

/// Why a lease is lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostReason {
    /// It could not be renewed before its validity ended.
    Expired,
    /// Its `max_hold` was over.
    MaxHold,
    /// An operator asked for it back, or took it.
    Evicted,
    /// The store does not know it any more.
    Forgotten,
    /// The session was closed while it was held.
    Closed,
    /// It was made in another process: a forked child has no lease.
    Forked,
}

impl LostReason {
    pub(crate) fn of(reason: Reason) -> LostReason {
        match reason {
            Reason::MaxHold => LostReason::MaxHold,
            Reason::Evicted => LostReason::Evicted,
            Reason::Expired => LostReason::Expired,
            Reason::Released | Reason::Withdrawn | Reason::Busy | Reason::Unknown => LostReason::Forgotten,
        }
    }

    /// The reason as the crate's error: `Evicted`, or `Lost`.
    pub fn to_error(self) -> Error {
        Error::new(self.kind(), format!("the lease is lost: {self}"))
    }

    /// The same, where several may be meant.
    pub(crate) fn of_key(self, key: &Key) -> Error {
        Error::new(self.kind(), format!("the lease on {key} is lost: {self}"))
    }

    fn kind(self) -> Kind {
        if self == LostReason::Evicted { Kind::Evicted } else { Kind::Lost }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Expired => "it could not be renewed in time",
            LostReason::MaxHold => "its longest hold was over",
            LostReason::Evicted => "an operator took it away",
            LostReason::Forgotten => "the store does not know it any more",
            LostReason::Closed => "the session was closed",
            LostReason::Forked => "it belongs to the process that this one was forked from",
        })
    }
}

/// Why an attempt does not hold.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It never will.
    Error(Error),
    /// The store has forgotten the ticket while it waited: enter anew.
    Forgotten,
    /// It had no ticket, and waited for another call of its worker, which has come to its end: look again.
    Again,
}

/// The shared state of one ticket on the holder's side.
#[derive(Debug)]
pub(crate) struct Vital {
    /// The end of validity in the clock's nanoseconds; 0 when not held, or lost.
    until: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How the attempt came out, until its caller has heard it: that it holds, or not.
    is_news: bool,
    refusal: Option<Refusal>,
    /// What it holds since the grant was claimed, also after it was lost.
    holding: Option<Holding>,
    lost: Option<LostReason>,
    left: Option<Result<Was, Error>>,
    /// Who waits for a change, each under the number of its listener.
    wakers: Vec<(u64, Waker)>,
    listeners: u64,
    /// Where the end of validity is written, too.
    published: Option<&'static AtomicU64>,
}

impl Inner {
    /// Who waits for a change; called after the mutex is let go.
    fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers).into_iter().map(|(_, waker)| waker).collect()
    }

    /// Keeps the listener's waker, which was cloned before the mutex was taken, and gives back the one that it replaces.
    fn wait(&mut self, listener: &mut u64, waker: Waker) -> Option<Waker> {
        if *listener == 0 {
            self.listeners += 1;
            *listener = self.listeners;
        }
        if let Some((_, known)) = self.wakers.iter_mut().find(|(number, _)| number == listener) {
            return Some(std::mem::replace(known, waker));
        }
        self.wakers.push((*listener, waker));
        None
    }
}

/// Somebody who waits for a change. Its waker goes with it, however often a long-lived lease is listened to.
pub(crate) struct Listener<'v> {
    vital: &'v Vital,
    /// 0 until it has waited.
    number: u64,
}

impl Listener<'_> {
    pub(crate) fn verdict(&mut self, cx: &Context<'_>) -> Poll<Result<Holding, Refusal>> {
        self.poll(cx, |inner| match inner.holding {
            Some(holding) if std::mem::take(&mut inner.is_news) => Some(Ok(holding)),
            _ => inner.refusal.take().map(Err),
        })
    }

    pub(crate) fn lost(&mut self, cx: &Context<'_>) -> Poll<LostReason> {
        self.poll(cx, |inner| inner.lost)
    }

    pub(crate) fn left(&mut self, cx: &Context<'_>) -> Poll<Result<Was, Error>> {
        self.poll(cx, |inner| inner.left.take())
    }

    /// Wakers are cloned before, and dropped after, the mutex is held: a waker's code may call back into us.
    fn poll<T>(&mut self, cx: &Context<'_>, look: impl FnOnce(&mut Inner) -> Option<T>) -> Poll<T> {
        let waker = cx.waker().clone();
        let mut inner = lock(&self.vital.inner);
        if let Some(found) = look(&mut inner) {
            drop(inner);
            return Poll::Ready(found);
        }
        let spare = inner.wait(&mut self.number, waker);
        drop(inner);
        drop(spare);
        Poll::Pending
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.vital.inner);
        let at = inner.wakers.iter().position(|(number, _)| *number == self.number);
        let waker = at.map(|at| inner.wakers.swap_remove(at));
        drop(inner);
        drop(waker);
    }
}

impl Vital {
    pub(crate) fn new() -> Vital {
        Vital { until: AtomicU64::new(0), inner: Mutex::default() }
    }

    /// When validity ends; the start of time if it is not held.
    pub(crate) fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// Changes the end of validity; under the mutex, so that what is published is never behind.
    fn set_until(&self, inner: &Inner, nanos: u64) {
        self.until.store(nanos, Ordering::Release);
        if let Some(published) = inner.published {
            published.store(nanos, Ordering::Release);
        }
    }

    /// From now on the end of validity is written there, too.
    pub(crate) fn publish(&self, to: &'static AtomicU64) {
        let mut inner = lock(&self.inner);
        inner.published = Some(to);
        to.store(self.until.load(Ordering::Acquire), Ordering::Release);
    }

    /// Held from now on.
    pub(crate) fn hold(&self, holding: Holding, until: Moment) -> Vec<Waker> {
        let mut inner = lock(&self.inner);
        self.set_until(&inner, until.as_nanos());
        inner.holding = Some(holding);
        inner.is_news = true;
        inner.take_wakers()
    }

    /// Renewed. Never shortens: an older answer may come after a newer one, and both are true.
    pub(crate) fn renew(&self, effective: i32, until: Moment) {
        // Under the mutex, so that a loss that has been told is never undone.
        let mut inner = lock(&self.inner);
        if let Some(holding) = &mut inner.holding {
            holding.effective = effective;
        }
        if inner.lost.is_none_or(|reason| reason == LostReason::Evicted) && self.until.load(Ordering::Acquire) != 0 {
            let longest = self.until.load(Ordering::Acquire).max(until.as_nanos());
            self.set_until(&inner, longest);
        }
    }

    /// Lost, and no longer valid.
    pub(crate) fn lose(&self, reason: LostReason) -> Vec<Waker> {
        let mut inner = lock(&self.inner);
        self.set_until(&inner, 0);
        inner.lost.get_or_insert(reason);
        inner.take_wakers()
    }

    /// An operator wants it back: the holder is told now, though nobody else can hold before it ends.
    pub(crate) fn revoke(&self) -> Vec<Waker> {
        let mut inner = lock(&self.inner);
        inner.lost.get_or_insert(LostReason::Evicted);
        inner.take_wakers()
    }

    /// It will not hold.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Vec<Waker> {
        let mut inner = lock(&self.inner);
        if !inner.is_news {
            inner.refusal.get_or_insert(refusal);
        }
        inner.take_wakers()
    }

    /// The store has answered the `leave`, or will not in time.
    pub(crate) fn leave(&self, left: Result<Was, Error>) -> Vec<Waker> {
        let mut inner = lock(&self.inner);
        self.set_until(&inner, 0);
        inner.left = Some(left);
        inner.take_wakers()
    }

    /// Not valid any more because its owner gives it up.
    pub(crate) fn give_up(&self) {
        self.set_until(&lock(&self.inner), 0);
    }

    /// What it holds, if it does and nobody wants it back.
    pub(crate) fn holding(&self, now: Moment) -> Option<Holding> {
        let inner = lock(&self.inner);
        inner.holding.filter(|_| inner.lost.is_none() && now < self.until())
    }

    pub(crate) fn effective(&self) -> i32 {
        lock(&self.inner).holding.map_or(0, |holding| holding.effective)
    }

    pub(crate) fn lost(&self) -> Option<LostReason> {
        lock(&self.inner).lost
    }

    pub(crate) fn listen(&self) -> Listener<'_> {
        Listener { vital: self, number: 0 }
    }

    /// How many wait for a change.
    #[cfg(test)]
    pub(crate) fn listeners(&self) -> usize {
        lock(&self.inner).wakers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_takes_its_waker_with_it() {
        let vital = Vital::new();
        let cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            let mut listener = vital.listen();
            assert!(listener.lost(&cx).is_pending() && listener.lost(&cx).is_pending());
            assert_eq!(vital.listeners(), 1);
        }
        assert_eq!(vital.listeners(), 0);
        let mut listener = vital.listen();
        assert!(listener.lost(&cx).is_pending());
        assert_eq!(vital.lose(LostReason::Expired).len(), 1);
        assert_eq!(listener.lost(&cx), Poll::Ready(LostReason::Expired));
    }
}
