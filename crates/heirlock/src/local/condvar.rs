//! `Condvar`: waits until somebody says that something has changed.

mod waiting;

use std::fmt;
use std::panic::Location;

pub use self::waiting::{TimedWaiting, Waiting};
use self::waiting::{Until, While};
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::guard::{View, Waitable};
use super::raw::Raw;
use super::sync::const_fn;

/// How a wait with a timeout or a deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// It was notified; of [`wait_while`](Condvar::wait_while): what was waited for has come.
    Notified,
    /// Its time was over first.
    TimedOut,
}

/// A condition: holders of a [`Mutex`](super::Mutex) or an [`RLock`](super::RLock) wait for it with their lock given up, until another who has
/// changed something notifies them.
///
/// Who waits is notified in the order of their urgency, as by a lock, and then queues for its lock with its own priority. A notification is never
/// lost on a waiter that goes: it passes to the next. What was waited for may have gone again by the time the lock is back; and a wait may end
/// without a notification, if its worker has several for one condition at once, or did not poll it for long after it was notified (the domain's
/// [`stall_time`](super::Domain::stall_time)). So whoever waits looks again, as [`wait_while`](Condvar::wait_while) does.
///
/// ```
/// use heirlock::local::{Condvar, Mutex};
/// static JOBS: Mutex<Vec<u32>> = Mutex::named("jobs", Vec::new());
/// static MORE: Condvar = Condvar::named("more jobs");
/// # pollster::block_on(async {
/// let producer = std::thread::spawn(|| {
///     JOBS.lock_blocking().unwrap().push(7);
///     MORE.notify_one();
/// });
/// let mut jobs = MORE.wait_while(JOBS.lock().await?, |jobs| jobs.is_empty()).await?;
/// assert_eq!(jobs.pop(), Some(7));
/// # producer.join().unwrap();
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
///
/// Who will notify is not known, so nobody is boosted by such a wait and it is in no deadlock. The wait for the lock that follows is one like
/// any other.
pub struct Condvar {
    raw: Raw,
}

impl Condvar {
    const_fn! {
        /// A condition in the global domain, for which nobody waits.
        pub const fn new() -> Condvar {
            Condvar { raw: Raw::new(Kind::Condition, None) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str) -> Condvar {
            Condvar { raw: Raw::new(Kind::Condition, Some(name)) }
        }
    }

    /// The condition in another domain. The locks with which it is waited for may be in any.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Condvar {
        self.raw.set_domain(domain);
        self
    }

    /// Who is notified first; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Condvar {
        self.raw.set_order(order);
        self
    }

    /// After how many notifications of others since it became the oldest the oldest waiter is next.
    ///
    /// # Panics
    /// If the limit is 0.
    #[must_use]
    pub const fn bypass_limit(mut self, limit: u32) -> Condvar {
        self.raw.set_bypass_limit(limit);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// Gives the lock up, with all levels, waits to be notified, and acquires the lock again, as many levels deep: a future that also has a
    /// priority, a timeout and a deadline. It does nothing before its first poll; whose wait it is, is settled then. Nothing that is notified after
    /// the lock was given up is missed.
    ///
    /// ```
    /// use heirlock::local::{Condvar, Mutex, Wakeup};
    /// use std::time::Duration;
    /// # pollster::block_on(async {
    /// let (ready, never) = (Mutex::new(false), Condvar::new());
    /// let (guard, wakeup) = never.wait(ready.lock().await?).timeout(Duration::from_millis(5)).await?;
    /// assert_eq!((*guard, wakeup), (false, Wakeup::TimedOut));
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    ///
    /// Only a guard of the whole value can wait. A part of it may be gone by the time the lock is back:
    ///
    /// ```compile_fail,E0277
    /// use heirlock::local::{Condvar, Mutex, MutexGuard};
    /// let (pair, changed) = (Mutex::new((1, 2)), Condvar::new());
    /// let first = MutexGuard::map(pair.try_lock().unwrap(), |pair| &mut pair.0);
    /// let _ = changed.wait(first);
    /// ```
    ///
    /// # Errors
    /// All come without the lock. `Invalid` while the lock's holder has other guards of it: all levels must be this guard's, by
    /// [`merge`](super::RLockGuard::merge), or nobody else could change anything. `Timeout` when the worker's deadline is over; with a timeout or a
    /// deadline of its own the wait ends as [`Wakeup::TimedOut`] instead, with the lock. And those of acquiring the lock: `Deadlock`, `Poisoned`,
    /// `NeedsWorker`, `Overflow`.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: the lock is given up, and a notification that the future has not returned goes
    /// on to the next waiter.
    #[track_caller]
    pub fn wait<G: Waitable>(&self, guard: G) -> Waiting<'_, G> {
        Waiting::new(self, guard, Until, Location::caller())
    }

    /// As [`wait`](Condvar::wait), as long as the closure says so. It is called with the lock held: first, and after each notification. It is given
    /// a `&mut T` of a [`Mutex`](super::Mutex), a `&T` of an [`RLock`](super::RLock).
    ///
    /// With a timeout or a deadline the last word is the closure's, too: [`Wakeup::TimedOut`] means that it would still wait.
    ///
    /// ```
    /// use heirlock::local::{Condvar, Mutex};
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *ready.lock_blocking().unwrap() = true;
    ///         changed.notify_all();
    ///     });
    ///     let guard = changed.wait_while(ready.lock_blocking().unwrap(), |ready| !*ready).blocking().unwrap();
    ///     assert!(*guard);
    /// });
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    ///
    /// # Panics
    /// If the closure does. The lock is given up then.
    ///
    /// # Cancel safety
    /// As [`wait`](Condvar::wait).
    #[track_caller]
    pub fn wait_while<G, F>(&self, guard: G, condition: F) -> Waiting<'_, G, While<F>>
    where
        G: Waitable,
        F: for<'v> FnMut(<G as View<'v>>::Ref) -> bool,
    {
        Waiting::new(self, guard, While(condition), Location::caller())
    }

    /// Notifies the first who waits; whether there was one. If not, nothing is kept for whoever waits later.
    ///
    /// It may be called with the lock held or not. Whoever changes something under the lock and notifies afterwards is heard by all who saw the
    /// state before the change.
    pub fn notify_one(&self) -> bool {
        self.raw.notify(1) > 0
    }

    /// Notifies all who wait; how many there were.
    pub fn notify_all(&self) -> usize {
        self.raw.notify(usize::MAX)
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").field("name", &self.raw.name()).finish_non_exhaustive()
    }
}
