//! The typed future around a wait, the same for every lock.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::all::Member;
use super::graph::Mode;
use super::raw::{Site, Want, Word};
use super::wait::{Held, Wait};
use crate::Result;

/// A lock that can be acquired, in the way that the parameter says: what the locks of this module are, and nothing else.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a lock of `heirlock::local`, or cannot be acquired in that way")]
pub trait Lockable<M: Way = Exclusive>: Sealed<M> {}

impl<M: Way, L: Sealed<M> + ?Sized> Lockable<M> for L {}

/// A way to acquire a lock.
pub trait Way {
    /// As the graph calls it.
    #[doc(hidden)]
    const MODE: Mode;
}

/// The way of what is had by one alone, and of whatever has one way only.
#[derive(Debug)]
pub enum Exclusive {}

impl Way for Exclusive {
    const MODE: Mode = Mode::Exclusive;
}

/// What only this module may implement.
pub trait Sealed<M: Way = Exclusive> {
    /// What its holder has.
    type Guard<'a>
    where
        Self: 'a;

    /// The type of what is under its type.
    type Word: Word;

    /// What is under its type.
    fn word(&self) -> &Self::Word;

    /// A guard, for who has just acquired the lock. Whoever is generic over [`Lockable`] can call this, but has no `Held`.
    fn guard(&self, held: Held) -> Self::Guard<'_>;

    /// What its holder has that keeps the lock itself alive.
    type OwnedGuard;

    /// The same as [`guard`](Sealed::guard).
    fn owned_guard(self: Arc<Self>, held: Held) -> Self::OwnedGuard;
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

        /// Acquires a poisoned lock, too.
        pub fn even_poisoned(mut self) -> Self {
            self.wait.options.even_poisoned = true;
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

/// What is said of a lock where it is made.
macro_rules! setup {
    ($lock:ident, $word:ident, $($raw:ident).+) => {
        /// The lock in another domain.
        #[must_use]
        pub fn in_domain(mut self, domain: &Domain) -> $lock<T> {
            self.$word.set_domain(domain);
            self
        }

        /// Who is served first; its domain's order if nothing is said, which is by priority unless changed.
        ///
        /// ```
        #[doc = concat!("use heirlock::local::{", stringify!($lock), ", Order};")]
        #[doc = concat!("static LINE: ", stringify!($lock), "<()> = ", stringify!($lock), "::named(\"line\", ()).order(Order::Fifo);")]
        /// assert_eq!(pollster::block_on(LINE.with(async |()| "in turn")).unwrap(), "in turn");
        /// ```
        #[must_use]
        pub const fn order(mut self, order: Order) -> $lock<T> {
            self.$($raw).+.set_order(order);
            self
        }

        /// After how many grants to others since it became the oldest the oldest waiter is next, so that it does not starve. Without a limit if
        /// nothing is said here or of the domain.
        ///
        /// # Panics
        /// If the limit is 0.
        #[must_use]
        pub const fn bypass_limit(mut self, limit: u32) -> $lock<T> {
            self.$($raw).+.set_bypass_limit(limit);
            self
        }

        /// Poisons the lock when a holder panics: whoever acquires it then gets `Poisoned`, naming who that was, until
        #[doc = concat!("[`clear_poison`](", stringify!($lock), "::clear_poison).")]
        #[must_use]
        pub const fn poisoning(mut self) -> $lock<T> {
            self.$($raw).+.set_poisoning();
            self
        }
    };
}
pub(super) use setup;

/// What can be asked of a lock.
macro_rules! questions {
    ($lock:ident, $raw:ident $(.$more:ident)*) => {
        /// Whether anybody holds it, or has been granted it. It may be otherwise a moment later.
        pub fn is_locked(&self) -> bool {
            self.$raw.is_held()
        }

        /// Whether a holder panicked, if the lock is [`poisoning`](Self::poisoning). It may be otherwise a moment later.
        pub fn is_poisoned(&self) -> bool {
            self.$raw$(.$more)*.poison.is_poisoned()
        }

        /// Declares the value right again: from now on the lock can be acquired as before.
        ///
        /// ```
        #[doc = concat!("use heirlock::local::", stringify!($lock), ";")]
        #[doc = concat!("static STATE: ", stringify!($lock), "<u8> = ", stringify!($lock), "::named(\"state\", 1).poisoning();")]
        /// std::thread::spawn(|| pollster::block_on(STATE.with(async |_| panic!("half way through")))).join().unwrap_err();
        /// assert!(pollster::block_on(STATE.with(async |_| ())).unwrap_err().is_poisoned());
        /// STATE.clear_poison();
        /// assert!(pollster::block_on(STATE.with(async |state| *state == 1)).unwrap());
        /// ```
        pub fn clear_poison(&self) {
            self.$raw$(.$more)*.poison.clear();
        }

        /// Its name.
        pub fn name(&self) -> Option<&'static str> {
            self.$raw$(.$more)*.name()
        }

        /// The value, without locking: nobody else can have the lock.
        pub fn get_mut(&mut self) -> &mut T {
            self.value.get_mut()
        }
    };
}
pub(super) use questions;

/// The future of an acquire, such as `lock()`. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Acquire<'a, L: Lockable<M> + ?Sized, M: Way = Exclusive> {
    lock: &'a L,
    wait: Wait,
    way: PhantomData<fn(M)>,
}

impl<'a, M: Way, L: Lockable<M> + ?Sized> Acquire<'a, L, M> {
    #[inline]
    pub(super) fn new(lock: &'a L, site: Site) -> Acquire<'a, L, M> {
        Acquire::of(lock, Want::mode(M::MODE), site)
    }

    #[inline]
    pub(super) fn of(lock: &'a L, want: Want, site: Site) -> Acquire<'a, L, M> {
        Acquire { lock, wait: Wait::of(want, site), way: PhantomData }
    }

    options!();

    /// Waits on this thread instead of being polled. The thread acquires, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As of `lock()`, and `WouldBlock` within an async runtime if the lock is held: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<L::Guard<'a>> {
        self.wait.block(self.lock.word()).map(|held| self.lock.guard(held))
    }
}

impl<'a, M: Way, L: Lockable<M> + ?Sized> Future for Acquire<'a, L, M> {
    type Output = Result<L::Guard<'a>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lock = self.lock;
        self.wait.poll(lock.word(), cx).map_ok(|held| lock.guard(held))
    }
}

impl<'a, M: Way, L: Lockable<M> + ?Sized> Member for Acquire<'a, L, M> {
    type Guard = L::Guard<'a>;

    type Word = L::Word;

    fn parts(&mut self) -> (&L::Word, &mut Wait) {
        (self.lock.word(), &mut self.wait)
    }

    fn guard(&mut self, held: Held) -> L::Guard<'a> {
        self.lock.guard(held)
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> Drop for Acquire<'_, L, M> {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(self.lock.word());
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> fmt::Debug for Acquire<'_, L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("name", &self.lock.word().raw().name()).field("wait", &self.wait).finish()
    }
}
