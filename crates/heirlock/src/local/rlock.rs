//! `RLock`: one holder at a time, who may enter again.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{AsyncFnOnce, Deref};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

use super::acquire::{Acquire, Sealed, questions, setup};
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::guard::{Part, Whole};
use super::owned::{AcquireOwned, OwnedRLockGuard};
use super::raw::{Raw, Want, Word};
use super::sync::const_fn;
use super::wait::{Held, Unfinished, attempt};
use crate::{Result, Worker};

/// A [`Mutex`](super::Mutex) whose holder may acquire it again: it is free when all its guards have gone.
///
/// Who holds it is a [`Worker`], or for blocking calls outside a runtime the thread. A bare task gets `NeedsWorker` when it would
/// enter again, for its arms of `join!` or `select!` cannot be told apart and would all be inside. As one worker may have several guards, they give
/// `&T` only.
///
/// ```
/// use heirlock::Worker;
/// use heirlock::local::RLock;
/// use std::cell::Cell;
/// # pollster::block_on(async {
/// static TREE: RLock<u8> = RLock::named("tree", 7);
/// let outer = Worker::new("walk").run(async {
///     let outer = TREE.lock().await?;
///     let inner = TREE.lock().await?;
///     assert_eq!((*outer, *inner), (7, 7));
///     drop(outer);
///     assert!(TREE.is_locked());
///     Ok::<_, heirlock::Error>(())
/// }).await?;
/// assert!(!TREE.is_locked());
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct RLock<T: ?Sized> {
    pub(super) raw: Raw,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, so it may go wherever the value may.
unsafe impl<T: ?Sized + Send> Send for RLock<T> {}
// SAFETY: through a shared lock `&T` is handed out, perhaps to several guards of one owner on several threads, so the value must be `Sync`; and it
// passes from thread to thread as the lock does, with interior mutability also what is in it, so it must be `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RLock<T> {}

impl<T> RLock<T> {
    const_fn! {
        /// A free lock in the global domain.
        pub const fn new(value: T) -> RLock<T> {
            RLock { raw: Raw::new(Kind::RLock, None), value: UnsafeCell::new(value) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str, value: T) -> RLock<T> {
            RLock { raw: Raw::new(Kind::RLock, Some(name)), value: UnsafeCell::new(value) }
        }
    }

    setup!(RLock, raw, raw);

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RLock<T> {
    /// Acquires the lock, or enters again, whatever the deadline: a future that also has a priority, a deadline and a timeout. It does nothing
    /// before it is first polled; whose acquire it is, is settled then.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end; `NeedsWorker` when a bare task would enter
    /// again; `Overflow` when it is held 2^32 - 1 levels deep.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a lock that it was just granted goes on to the next waiter. A place in the
    /// queue is lost.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Acquire<'_, RLock<T>> {
        Acquire::new(self, Location::caller())
    }

    /// Runs the closure on the value, and the lock is held that long. If the lock is [`poisoning`](RLock::poisoning), work that is dropped
    /// unfinished poisons it, as a panic does.
    ///
    /// # Errors
    /// As [`lock`](RLock::lock).
    ///
    /// # Cancel safety
    /// While it waits, as [`lock`](RLock::lock); from then on as the closure's future.
    #[track_caller]
    pub fn with<R>(&self, work: impl AsyncFnOnce(&T) -> R) -> impl Future<Output = Result<R>> {
        let acquire = self.lock();
        async move {
            let guard = acquire.await?;
            let unfinished = Unfinished::of(&self.raw);
            let result = work(&guard).await;
            unfinished.finished();
            Ok(result)
        }
    }

    /// As [`lock`](RLock::lock), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`lock`](RLock::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](RLock::lock).
    #[track_caller]
    pub fn lock_owned(self: &Arc<Self>) -> AcquireOwned<RLock<T>> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// Acquires the lock if nobody holds it or waits for it, or enters again.
    ///
    /// # Errors
    /// `WouldBlock` if another has it or waits for it; `NeedsWorker` and `Overflow` as [`lock`](RLock::lock).
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Result<RLockGuard<'_, T>> {
        attempt(&self.raw, Want::ONE, Location::caller()).map(|held| self.guard(held))
    }

    /// As [`try_lock`](RLock::try_lock), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_lock`](RLock::try_lock).
    #[track_caller]
    pub fn try_lock_owned(self: &Arc<Self>) -> Result<OwnedRLockGuard<T>> {
        attempt(&self.raw, Want::ONE, Location::caller()).map(|held| Arc::clone(self).owned_guard(held))
    }

    /// Acquires the lock on this thread, or enters again, for code that is not async: [`lock`](RLock::lock) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    ///
    /// ```
    /// let lock = heirlock::local::RLock::new(3);
    /// let (first, second) = (lock.lock_blocking().unwrap(), lock.lock_blocking().unwrap());
    /// assert_eq!(*first + *second, 6);
    /// ```
    #[track_caller]
    pub fn lock_blocking(&self) -> Result<RLockGuard<'_, T>> {
        self.lock().blocking()
    }

    questions!(RLock, raw);

    /// Where the value is. To be read by who holds the lock only.
    #[inline]
    pub(super) fn value(&self) -> NonNull<T> {
        // SAFETY: the pointer of a cell is never null.
        unsafe { NonNull::new_unchecked(self.value.get()) }
    }
}

impl<T: ?Sized> Sealed for RLock<T> {
    type Guard<'a>
        = RLockGuard<'a, T>
    where
        T: 'a;

    type Word = Raw;

    #[inline]
    fn word(&self) -> &Raw {
        &self.raw
    }

    #[inline]
    fn guard(&self, held: Held) -> RLockGuard<'_, T> {
        RLockGuard { raw: &self.raw, value: self.value(), held, marker: PhantomData }
    }

    type OwnedGuard = OwnedRLockGuard<T>;

    fn owned_guard(self: Arc<Self>, held: Held) -> OwnedRLockGuard<T> {
        OwnedRLockGuard::new(self, held)
    }
}

impl<T: Default> Default for RLock<T> {
    fn default() -> RLock<T> {
        RLock::new(T::default())
    }
}

impl<T> From<T> for RLock<T> {
    fn from(value: T) -> RLock<T> {
        RLock::new(value)
    }
}

impl<T: ?Sized> fmt::Debug for RLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RLock").field("name", &self.raw.name()).field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// One level of a hold of an [`RLock`], or several [merged](RLockGuard::merge), until it is dropped.
///
/// It crosses threads, and is shared by them, only where a `&T` may be, and the lock with it:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let lock = heirlock::local::RLock::new(std::cell::Cell::new(1));
/// sent(lock.try_lock().unwrap());
/// ```
#[must_use = "the level is given up as soon as its guard is dropped"]
pub struct RLockGuard<'a, T: ?Sized, P = Whole> {
    pub(super) raw: &'a Raw,
    /// The value, or the part of it that the guard gives. Not a reference: that would claim the value until the guard has been dropped whole, when
    /// the next holder may be changing it.
    value: NonNull<T>,
    pub(super) held: Held,
    marker: PhantomData<(&'a T, P)>,
}

/// The same of a part of the value: what [`RLockGuard::map`] gives.
pub type MappedRLockGuard<'a, T> = RLockGuard<'a, T, Part>;

// SAFETY: a guard is a `&T` and a `&Raw`, which is `Sync`; and with it goes the lock's last level perhaps, so that the next holder may be on another
// thread than the last: what is in a `T` moves with that.
unsafe impl<T: ?Sized + Send + Sync, P> Send for RLockGuard<'_, T, P> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync, P> Sync for RLockGuard<'_, T, P> {}

impl<'a, T: ?Sized, P> RLockGuard<'a, T, P> {
    /// Enters again, whoever calls: having a guard is proof enough.
    ///
    /// ```
    /// let lock = heirlock::local::RLock::new(7);
    /// # pollster::block_on(async {
    /// let outer = lock.lock().await?;
    /// let inner = outer.again()?;
    /// drop(outer);
    /// assert!(*inner == 7 && lock.is_locked());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// `Overflow` if the lock is held as many levels deep as can be counted.
    pub fn again(&self) -> Result<RLockGuard<'a, T, P>> {
        self.raw.again().map(|held| RLockGuard { raw: self.raw, value: self.value, held, marker: PhantomData })
    }

    /// Takes the levels of another guard of the same lock into this one.
    ///
    /// ```
    /// # use heirlock::{Worker, local::RLock};
    /// # pollster::block_on(Worker::new("w").run(async {
    /// let lock = RLock::new(());
    /// let (mut outer, inner) = (lock.lock().await?, lock.lock().await?);
    /// outer.merge(inner);
    /// drop(outer);
    /// assert!(!lock.is_locked());
    /// # Ok::<(), heirlock::Error>(()) })).unwrap();
    /// ```
    ///
    /// # Panics
    /// If the other guard is of another lock.
    pub fn merge<U: ?Sized, Q>(&mut self, other: RLockGuard<'a, U, Q>) {
        assert!(std::ptr::eq(self.raw, other.raw), "guards of two locks cannot be merged");
        self.held.merge(other.held);
        std::mem::forget(other);
    }

    /// The guard of a part of the value.
    pub fn map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> &U) -> MappedRLockGuard<'a, U> {
        let value = NonNull::from(part(&guard));
        guard.of(value)
    }

    /// The guard of a part of the value that may not be there.
    ///
    /// # Errors
    /// The guard itself, if it is not.
    pub fn filter_map<U: ?Sized>(guard: Self, part: impl FnOnce(&T) -> Option<&U>) -> Result<MappedRLockGuard<'a, U>, Self> {
        match part(&guard).map(NonNull::from) {
            Some(value) => Ok(guard.of(value)),
            None => Err(guard),
        }
    }

    fn of<U: ?Sized>(self, value: NonNull<U>) -> MappedRLockGuard<'a, U> {
        let RLockGuard { raw, held, .. } = self;
        std::mem::forget(self);
        RLockGuard { raw, value, held, marker: PhantomData }
    }

    /// Makes the whole hold, with the levels of all its guards, another worker's: from now on that one inherits from who waits, and may enter
    /// again.
    pub fn transfer_to(&self, worker: &Worker) {
        self.raw.transfer(worker);
    }
}

impl<T: ?Sized, P> Deref for RLockGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while a guard lives its owner holds the lock, and neither a guard of it nor anything else gives out a `&mut` of the value.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, P> Drop for RLockGuard<'_, T, P> {
    #[inline]
    fn drop(&mut self) {
        self.raw.release(self.held.levels(), self.held);
    }
}

impl<T: ?Sized + fmt::Debug, P> fmt::Debug for RLockGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, P> fmt::Display for RLockGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(heirlock_loom, heirlock_shuttle))))]
mod tests {
    use super::super::identity::Owner;
    use super::super::raw::{Ask, Entered, Word};
    use super::*;

    /// A hold as a condition gives it back, of so many levels that one more is the last that can be counted.
    #[test]
    fn one_level_more_than_can_be_counted() {
        const LEVELS: u32 = u32::MAX - 1;
        let domain = Domain::builder().build();
        let (lock, worker) = (RLock::named("deep", 7).in_domain(&domain), Worker::new("deep"));
        let owner = Owner::Worker(worker.clone());
        let site = Location::caller();
        let ask = Ask::attempt(&owner, Want::levels(LEVELS), site);
        let Entered::Held(word) = domain.event(|core| lock.raw.enter(core, &ask, &mut None)) else { panic!() };
        let mut guard = lock.guard(Held::new(&lock.raw, word, Want::levels(LEVELS)));
        let last = worker.scope(|| lock.try_lock()).unwrap();
        let errors = [
            worker.scope(|| lock.try_lock()).unwrap_err(),
            worker.scope(|| lock.lock_blocking()).unwrap_err(),
            pollster::block_on(worker.run(lock.lock())).unwrap_err(),
            last.again().unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_overflow());
            assert_eq!(error.to_string(), "lock \"deep\" is held as many levels deep as can be counted");
        }
        // None of them has changed the count.
        drop(last);
        guard.merge(guard.again().unwrap());
        drop(guard);
        assert_eq!((lock.is_locked(), domain.records()), (false, [0; 7]));
    }
}
