//! The typed future around a wait for what is not acquired: events, barriers and promises.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::identity::in_runtime;
use super::raw::{Raw, Site};
use super::sync::block_on;
use super::wait::{Held, Wait};
use crate::{Error, Kind, Result};

/// What can be awaited without being acquired: events, barriers and promises, nothing else.
#[diagnostic::on_unimplemented(message = "`{Self}` is not an event, a barrier or a promise of `heirlock::local`")]
pub trait Awaitable: Sealed {}

impl<E: Sealed> Awaitable for E {}

/// What only this module may implement.
pub trait Sealed {
    /// What whoever waited has.
    type Output<'a>
    where
        Self: 'a;

    /// Whether it is over for good when it is there.
    const LASTS: bool;

    /// What is under its type.
    fn raw(&self) -> &Raw;

    /// What is had without waiting, if it is there.
    fn there(&self) -> Option<Result<Self::Output<'_>>>;

    /// What a wait that has ended gives; if that was at its first poll, it did not wait. Whoever is generic over [`Awaitable`] can call this, but has
    /// no `Held`.
    fn ended(&self, ended: Result<Held>, at_once: bool) -> Result<Self::Output<'_>>;
}

/// The future of [`Event::wait`](super::Event::wait), [`Barrier::wait`](super::Barrier::wait) and [`Promise::wait`](super::Promise::wait). What is
/// said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Await<'a, E: Awaitable> {
    source: &'a E,
    wait: Wait,
}

impl<'a, E: Awaitable> Await<'a, E> {
    #[inline]
    pub(super) fn new(source: &'a E, site: Site) -> Await<'a, E> {
        Await { source, wait: Wait::new(site) }
    }

    /// How urgent this wait is, in place of its worker's base priority: for whoever it waits for, if that is known, and among those who wait. Larger
    /// is more urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.wait.options.priority = Some(priority);
        self
    }

    /// How long it may wait, from its first poll. Zero takes what is there, and does not wait.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.wait.options.timeout = Some(span);
        self
    }

    /// When the wait ends at the latest; among equal priorities the earliest is first. An earlier deadline of the worker counts.
    pub fn deadline(mut self, instant: Instant) -> Self {
        self.wait.options.deadline = Some(instant);
        self
    }

    /// Waits on this thread instead of being polled. The thread waits, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As when awaited, and `WouldBlock` within an async runtime if it would have to wait: that would block one of the runtime's threads.
    #[inline]
    pub fn blocking(mut self) -> Result<E::Output<'a>> {
        let source = self.source;
        source.there().unwrap_or_else(|| self.block())
    }

    #[cold]
    fn block(&mut self) -> Result<E::Output<'a>> {
        self.wait.blocking = true;
        if !in_runtime() {
            return block_on(poll_fn(|cx| self.step(cx)));
        }
        // What can be had without waiting can be had here, too.
        self.wait.options.timeout = Some(Duration::ZERO);
        match self.step(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) if !ended.as_ref().is_err_and(Error::is_timeout) => ended,
            _ => Err(Error::new(
                Kind::WouldBlock,
                format!("waiting for {} here would block a thread of the async runtime: await wait() instead", self.source.raw().label()),
            )),
        }
    }

    #[inline]
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Result<E::Output<'a>>> {
        if (self.wait.is_new() || E::LASTS)
            && let Some(there) = self.source.there()
        {
            self.wait.end(self.source.raw());
            return Poll::Ready(there);
        }
        self.wait_for(cx)
    }

    fn wait_for(&mut self, cx: &mut Context<'_>) -> Poll<Result<E::Output<'a>>> {
        let (source, at_once) = (self.source, self.wait.is_new());
        if let Poll::Ready(ended) = self.wait.poll_contended(source.raw(), cx) {
            return Poll::Ready(source.ended(ended, at_once));
        }
        // It may have come between the look and the queue, to which nobody will come any more.
        if E::LASTS
            && let Some(there) = source.there()
        {
            self.wait.end(source.raw());
            return Poll::Ready(there);
        }
        Poll::Pending
    }
}

impl<'a, E: Awaitable> Future for Await<'a, E> {
    type Output = Result<E::Output<'a>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.step(cx)
    }
}

impl<E: Awaitable> Drop for Await<'_, E> {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(self.source.raw());
    }
}

impl<E: Awaitable> fmt::Debug for Await<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Await").field("name", &self.source.raw().name()).field("wait", &self.wait).finish()
    }
}
