//! Guards that keep their lock alive, for where a lifetime is in the way.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::acquire::{Exclusive, Lockable, Way, options};
use super::all::Member;
use super::mutex::Mutex;
use super::raw::{Site, Want, Word};
use super::rlock::RLock;
use super::wait::{Held, Wait};
use crate::{Result, Worker};

/// The future of a `lock_owned()`. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireOwned<L: Lockable<M> + ?Sized, M: Way = Exclusive> {
    lock: Arc<L>,
    wait: Wait,
    way: PhantomData<fn(M)>,
}

impl<M: Way, L: Lockable<M> + ?Sized> AcquireOwned<L, M> {
    pub(super) fn new(lock: Arc<L>, site: Site) -> AcquireOwned<L, M> {
        AcquireOwned::of(lock, Want::mode(M::MODE), site)
    }

    pub(super) fn of(lock: Arc<L>, want: Want, site: Site) -> AcquireOwned<L, M> {
        AcquireOwned { lock, wait: Wait::of(want, site), way: PhantomData }
    }

    options!();

    /// As [`Acquire::blocking`](super::Acquire::blocking).
    ///
    /// # Errors
    /// As there.
    pub fn blocking(mut self) -> Result<L::OwnedGuard> {
        self.wait.block(self.lock.word()).map(|held| Arc::clone(&self.lock).owned_guard(held))
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> Future for AcquireOwned<L, M> {
    type Output = Result<L::OwnedGuard>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AcquireOwned { lock, wait, .. } = &mut *self;
        wait.poll(lock.word(), cx).map_ok(|held| Arc::clone(lock).owned_guard(held))
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> Member for AcquireOwned<L, M> {
    type Guard = L::OwnedGuard;

    type Word = L::Word;

    fn parts(&mut self) -> (&L::Word, &mut Wait) {
        (self.lock.word(), &mut self.wait)
    }

    fn guard(&mut self, held: Held) -> L::OwnedGuard {
        Arc::clone(&self.lock).owned_guard(held)
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> Drop for AcquireOwned<L, M> {
    fn drop(&mut self) {
        self.wait.cancel(self.lock.word());
    }
}

impl<M: Way, L: Lockable<M> + ?Sized> fmt::Debug for AcquireOwned<L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").field("name", &self.lock.word().raw().name()).field("wait", &self.wait).finish()
    }
}

/// The right to the value of a [`Mutex`] in an [`Arc`], until it is dropped. The hold stays its acquirer's wherever the guard goes, unless it is
/// [transferred](OwnedMutexGuard::transfer_to).
///
/// It is shared by threads only where a `T` is:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: T) {}
/// let lock = std::sync::Arc::new(heirlock::local::Mutex::new(std::cell::Cell::new(1)));
/// shared(pollster::block_on(lock.lock_owned()).unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedMutexGuard<T: ?Sized> {
    lock: Arc<Mutex<T>>,
    /// It is shared by threads only if a `&T` may be: `Arc<Mutex<T>>` alone would say that `T: Send` is enough.
    value: PhantomData<Box<T>>,
    held: Held,
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    pub(super) fn new(lock: Arc<Mutex<T>>, held: Held) -> OwnedMutexGuard<T> {
        OwnedMutexGuard { lock, value: PhantomData, held }
    }

    /// As [`MutexGuard::transfer_to`](super::MutexGuard::transfer_to).
    ///
    /// ```
    /// use heirlock::{Worker, local::Mutex};
    /// use std::sync::Arc;
    /// # pollster::block_on(async {
    /// let (first, second, lock) = (Worker::new("first"), Worker::new("second"), Arc::new(Mutex::new(())));
    /// let guard = first.run(lock.lock_owned()).await?;
    /// guard.transfer_to(&second);
    /// // From now on whoever waits boosts `second`; and `first` may wait for it.
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.lock.raw.transfer(worker);
    }
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { self.lock.value().as_ref() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { self.lock.value().as_mut() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    fn drop(&mut self) {
        self.lock.raw.release(1, self.held);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// One level of a hold of an [`RLock`] in an [`Arc`], until it is dropped.
///
/// ```
/// use heirlock::{Worker, local::RLock};
/// use std::sync::Arc;
/// # pollster::block_on(async {
/// let (worker, lock) = (Worker::new("walk"), Arc::new(RLock::new(5)));
/// let outer = worker.run(lock.lock_owned()).await?;
/// let inner = worker.run(lock.lock()).await?;
/// assert_eq!(*outer + *inner, 10);
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
#[must_use = "the level is given up as soon as its guard is dropped"]
pub struct OwnedRLockGuard<T: ?Sized> {
    lock: Arc<RLock<T>>,
    held: Held,
}

impl<T: ?Sized> OwnedRLockGuard<T> {
    pub(super) fn new(lock: Arc<RLock<T>>, held: Held) -> OwnedRLockGuard<T> {
        OwnedRLockGuard { lock, held }
    }

    /// As [`RLockGuard::again`](super::RLockGuard::again).
    ///
    /// # Errors
    /// As there.
    pub fn again(&self) -> Result<OwnedRLockGuard<T>> {
        self.lock.raw.again().map(|held| OwnedRLockGuard { lock: Arc::clone(&self.lock), held })
    }

    /// As [`RLockGuard::transfer_to`](super::RLockGuard::transfer_to).
    pub fn transfer_to(&self, worker: &Worker) {
        self.lock.raw.transfer(worker);
    }
}

impl<T: ?Sized> Deref for OwnedRLockGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while a guard lives its owner holds the lock, and no guard of it gives out a `&mut` of the value.
        unsafe { self.lock.value().as_ref() }
    }
}

impl<T: ?Sized> Drop for OwnedRLockGuard<T> {
    fn drop(&mut self) {
        self.lock.raw.release(1, self.held);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedRLockGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
