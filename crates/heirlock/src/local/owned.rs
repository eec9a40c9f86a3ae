//! The guard that keeps its lock alive, for where a lifetime is in the way.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::acquire::options;
use super::mutex::Mutex;
use super::wait::Wait;
use crate::Result;

/// The future of [`Mutex::lock_owned`]. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireOwned<T: ?Sized> {
    lock: Arc<Mutex<T>>,
    wait: Wait,
}

impl<T: ?Sized> AcquireOwned<T> {
    pub(super) fn new(lock: Arc<Mutex<T>>) -> AcquireOwned<T> {
        AcquireOwned { lock, wait: Wait::default() }
    }

    options!();
}

impl<T: ?Sized> Future for AcquireOwned<T> {
    type Output = Result<OwnedMutexGuard<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AcquireOwned { lock, wait } = &mut *self;
        wait.poll(&lock.raw, cx).map_ok(|_| OwnedMutexGuard { lock: Arc::clone(lock), value: PhantomData })
    }
}

impl<T: ?Sized> Drop for AcquireOwned<T> {
    fn drop(&mut self) {
        self.wait.cancel(&self.lock.raw);
    }
}

impl<T: ?Sized> fmt::Debug for AcquireOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").field("name", &self.lock.name()).field("wait", &self.wait).finish()
    }
}

/// The right to the value of a [`Mutex`] in an [`Arc`], until it is dropped. The hold stays its acquirer's wherever the guard goes.
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
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { &*self.lock.value() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: a guard exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    fn drop(&mut self) {
        self.lock.raw.release();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
