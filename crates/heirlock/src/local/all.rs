//! `lock_all`: several locks at once, in whatever order they are named.

mod member;
mod set;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pub(super) use self::member::Member;
pub use self::set::Acquires;
use self::set::Seats;
use super::domain::Domain;
use super::identity::number_of_poll;
use crate::clock::Moment;
use crate::{Error, Kind, Result};

/// Acquires several locks, all or none: a future that gives their guards, in the order in which the acquires were given.
///
/// Any mix of locks: one to eight in a tuple, or as many as you like of one type in an array or a `Vec`. No two calls of it can wait for each other
/// for ever, whatever the order in which each names its locks.
///
/// ```
/// use heirlock::local::{KeyedLock, Mutex, lock_all};
/// use std::time::Duration;
/// static ACCOUNTS: KeyedLock<&str> = KeyedLock::named("accounts");
/// static BOOK: Mutex<Vec<(&str, &str, u32)>> = Mutex::named("book", Vec::new());
/// # pollster::block_on(async {
/// // Somebody else may move money from bob to alice at the same time.
/// let locks = (ACCOUNTS.lock("alice"), ACCOUNTS.lock("bob"), BOOK.lock());
/// let (_alice, _bob, mut book) = lock_all(locks).timeout(Duration::from_millis(50)).await?;
/// book.push(("alice", "bob", 5));
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
///
/// # How it does that
/// The locks are put in order by where they are in memory, which does not change while they are borrowed, shared by an `Arc` or, of a `KeyedLock`, in
/// use. In that order they are acquired, one after the other, each by a wait like any other: it boosts who holds that lock, and whoever waits for a
/// lock that this call has already boosts this call. So among calls of `lock_all` nobody ever holds a lock and waits for one that comes earlier. A
/// worker that holds some other lock at the same time may still be part of a cycle; that is a `Deadlock` error, as ever.
///
/// If a wait fails, or the future is dropped, what was acquired is given up, the last first.
///
/// # What an acquire may say for itself
/// Its own `priority` counts for its own wait. Of its own `timeout` or `deadline` and those of all, the nearest counts. The lock-order check of a
/// domain compares the locks with what is held already, but not with each other: their order is not the caller's.
///
/// # Errors
/// That of the first acquire that fails. `Invalid`, before anything is acquired, if one lock is there twice, also one that can be entered again, or if
/// an acquire was polled before.
///
/// # Cancel safety
/// Dropping the future in whatever state leaves nothing behind. One that is kept and no longer polled holds what it has acquired, as guards would.
///
/// ```
/// use heirlock::local::{Mutex, lock_all};
/// # pollster::block_on(async {
/// let tables = [Mutex::new(1), Mutex::new(2), Mutex::new(3)];
/// let sum: i32 = lock_all(tables.each_ref().map(Mutex::lock)).await?.iter().map(|guard| **guard).sum();
/// assert_eq!(sum, 6);
/// assert!(lock_all((tables[0].lock(), tables[0].lock())).await.unwrap_err().is_invalid());
/// assert!(!tables[0].is_locked());
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub fn lock_all<A: Acquires>(acquires: A) -> LockAll<A> {
    let seats = acquires.seats();
    let order = seats.order();
    LockAll { seats, order, begun: 0, got: 0, priority: None, timeout: None, deadline: None, waits_since: None, by: 0, over: false }
}

/// The future of [`lock_all`]. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct LockAll<A: Acquires> {
    seats: A::Seats,
    /// Which seat is which in the order in which they are taken.
    order: <A::Seats as Seats>::Order,
    /// How many of them have begun to acquire, and how many have done so: the same, or one more.
    begun: usize,
    got: usize,
    priority: Option<i32>,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// When it first waited, by the clock of this domain.
    waits_since: Option<(Domain, Moment)>,
    /// Whose call it is: the number of its owner, 0 before the first poll.
    by: u64,
    over: bool,
}

/// Nothing in it is ever pinned.
impl<A: Acquires> Unpin for LockAll<A> {}

impl<A: Acquires> LockAll<A> {
    /// How urgent its waits are, in place of its worker's base priority. Larger is more urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How long it may wait in all, from when it first queues. Zero takes free locks only. It moves nobody in a queue.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span);
        self
    }

    /// When it ends at the latest; among equal priorities the earliest is served first. An earlier deadline of the worker counts.
    pub fn deadline(mut self, instant: Instant) -> Self {
        self.deadline = Some(instant);
        self
    }

    /// Waits on this thread instead of being polled. The thread acquires, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As of [`lock_all`], and `WouldBlock` within an async runtime if one of the locks is held: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<A::Guards> {
        let all = self.block();
        self.end(all)
    }

    fn block(&mut self) -> Result<()> {
        self.begin(true)?;
        while let Some(at) = self.next() {
            // It may be free: but if it waits, it does not return before it has.
            self.waits(at);
            self.begun += 1;
            self.limit(at);
            self.seats.seat(at).block()?;
            self.got += 1;
        }
        Ok(())
    }

    fn proceed(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let by = number_of_poll();
        if self.by == 0 {
            self.begin(false)?;
            self.by = by;
        }
        while let Some(at) = self.next() {
            if self.begun == self.got {
                self.begun += 1;
                self.limit(at);
                let (raw, wait) = self.seats.seat(at).parts();
                if by != self.by {
                    // Polled by somebody else since: the rest is the first one's, too.
                    wait.bind(raw, self.by);
                }
            }
            let polled = self.seats.seat(at).poll(cx);
            if polled.is_pending() {
                self.waits(at);
            }
            ready!(polled)?;
            self.got += 1;
        }
        Poll::Ready(Ok(()))
    }

    /// Puts the locks in order, and tells their waits what is said of all.
    fn begin(&mut self, blocking: bool) -> Result<()> {
        let LockAll { seats, order, priority, timeout, deadline, .. } = self;
        let order = order.as_mut();
        for at in 0..order.len() {
            let (raw, wait) = seats.seat(at).parts();
            if !wait.is_new() {
                let text = format!("lock_all cannot take an acquire of {} that was polled before: give it a new one", raw.label());
                return Err(Error::new(Kind::Invalid, text));
            }
            wait.options.priority = wait.options.priority.or(*priority);
            wait.options.deadline = [wait.options.deadline, *deadline].into_iter().flatten().min();
        }
        order.sort_unstable_by_key(|at| seats.seat(*at).parts().0.address());
        for pair in order.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(|at| seats.seat(at).parts().0.address());
            if one == other {
                let raw = seats.seat(pair[0]).parts().0;
                return Err(Error::new(Kind::Invalid, format!("{} was given to lock_all twice: give it once", raw.label())));
            }
        }
        // Where the order of locks is checked: none of these is held yet, and what only tries cannot deadlock.
        if *timeout != Some(Duration::ZERO) {
            for at in 0..order.len() {
                let (raw, wait) = seats.seat(at).parts();
                wait.declare(raw, blocking);
            }
        }
        Ok(())
    }

    /// The seat whose turn it is.
    fn next(&self) -> Option<usize> {
        self.order.as_ref().get(self.got).copied()
    }

    /// It waits, at this seat: its time begins, if it has not.
    fn waits(&mut self, at: usize) {
        if self.timeout.is_some() && self.waits_since.is_none() {
            let domain = self.seats.seat(at).parts().0.domain();
            self.waits_since = Some((domain.clone(), domain.clock().now()));
        }
    }

    /// What is left of the time of all is all that this seat has.
    fn limit(&mut self, at: usize) {
        let Some(timeout) = self.timeout else { return };
        let spent = self.waits_since.as_ref().map_or(Duration::ZERO, |(domain, since)| domain.clock().now().since(*since));
        let options = &mut self.seats.seat(at).parts().1.options;
        options.timeout = Some(timeout.saturating_sub(spent)).into_iter().chain(options.timeout).min();
    }

    fn end(&mut self, all: Result<()>) -> Result<A::Guards> {
        self.over = true;
        match all {
            Ok(()) => {
                self.begun = 0;
                Ok(self.seats.guards())
            }
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    /// Gives up what it has and waits for, the last first.
    fn give_up(&mut self) {
        while self.begun > 0 {
            self.begun -= 1;
            let at = self.order.as_ref()[self.begun];
            self.seats.seat(at).give_up();
        }
    }
}

impl<A: Acquires> Future for LockAll<A> {
    type Output = Result<A::Guards>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.over, "the future of lock_all was polled after it had completed");
        let all = ready!(self.proceed(cx));
        Poll::Ready(self.end(all))
    }
}

impl<A: Acquires> Drop for LockAll<A> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<A: Acquires> fmt::Debug for LockAll<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.order.as_ref().len();
        f.debug_struct("LockAll").field("locks", &count).field("acquired", &self.got).finish_non_exhaustive()
    }
}
