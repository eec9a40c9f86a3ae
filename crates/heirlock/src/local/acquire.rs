//! The typed future around a wait, the same for every lock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::raw::Raw;
use super::wait::{Held, Wait};
use crate::Result;

/// A lock that can be acquired: what the locks of this module are, and nothing else.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a lock of `heirlock::local`")]
pub trait Lockable: Sealed {}

impl<L: Sealed + ?Sized> Lockable for L {}

/// What only this module may implement.
pub trait Sealed {
    /// What its holder has.
    type Guard<'a>
    where
        Self: 'a;

    /// What is under its type.
    fn raw(&self) -> &Raw;

    /// A guard, for who has just acquired the lock. Whoever is generic over [`Lockable`] can call this, but has no `Held`.
    fn guard(&self, held: Held) -> Self::Guard<'_>;
}

/// The builder methods of an acquire.
macro_rules! options {
    () => {
        /// How urgent this wait is, in place of its worker's base priority. Larger is more urgent.
        pub fn priority(mut self, priority: i32) -> Self {
            self.wait.options.priority = Some(priority);
            self
        }

        /// How long it may wait, from when it queues. Zero takes a free lock only. It moves nobody in the queue.
        pub fn timeout(mut self, span: std::time::Duration) -> Self {
            self.wait.options.timeout = Some(span);
            self
        }

        /// When the wait ends at the latest; among equal priorities the earliest is served first. An earlier deadline of the worker counts.
        pub fn deadline(mut self, instant: std::time::Instant) -> Self {
            self.wait.options.deadline = Some(instant);
            self
        }
    };
}
pub(super) use options;

/// The future of a `lock()`. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<'a, L: Lockable + ?Sized> {
    lock: &'a L,
    wait: Wait,
}

impl<'a, L: Lockable + ?Sized> Acquire<'a, L> {
    pub(super) fn new(lock: &'a L) -> Acquire<'a, L> {
        Acquire { lock, wait: Wait::default() }
    }

    options!();

    /// Waits on this thread instead of being polled. The thread acquires, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As of `lock()`, and `WouldBlock` within an async runtime if the lock is held: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<L::Guard<'a>> {
        self.wait.block(self.lock.raw()).map(|held| self.lock.guard(held))
    }
}

impl<'a, L: Lockable + ?Sized> Future for Acquire<'a, L> {
    type Output = Result<L::Guard<'a>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lock = self.lock;
        self.wait.poll(lock.raw(), cx).map_ok(|held| lock.guard(held))
    }
}

impl<L: Lockable + ?Sized> Drop for Acquire<'_, L> {
    fn drop(&mut self) {
        self.wait.cancel(self.lock.raw());
    }
}

impl<L: Lockable + ?Sized> fmt::Debug for Acquire<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("name", &self.lock.raw().name()).field("wait", &self.wait).finish()
    }
}
