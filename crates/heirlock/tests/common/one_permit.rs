//! A semaphore of one permit beside a value, in the shape of a `Mutex`, for the cases that are the same for each lock.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use heirlock::Result;
use heirlock::local::{Acquire as AcquirePermit, AcquireOwned, Domain, Semaphore, SemaphorePermit};

/// Whoever has the permit has the value. Who that is is known if the semaphore is tracked.
#[derive(Debug)]
pub(crate) struct Lock<T, const TRACKED: bool> {
    semaphore: Arc<Semaphore>,
    value: T,
}

impl<T, const TRACKED: bool> Lock<T, TRACKED> {
    fn of(semaphore: Semaphore, value: T) -> Self {
        Lock { semaphore: Arc::new(if TRACKED { semaphore.tracked() } else { semaphore }), value }
    }

    pub(crate) fn new(value: T) -> Self {
        Lock::of(Semaphore::new(1), value)
    }

    pub(crate) fn named(name: &'static str, value: T) -> Self {
        Lock::of(Semaphore::named(name, 1), value)
    }

    pub(crate) fn in_domain(self, domain: &Domain) -> Self {
        Lock { semaphore: Arc::new(Arc::into_inner(self.semaphore).unwrap().in_domain(domain)), value: self.value }
    }

    pub(crate) fn lock(&self) -> Acquire<'_, T> {
        Acquire { permit: self.semaphore.acquire(), value: &self.value }
    }

    /// The permit is all that is had.
    pub(crate) fn lock_owned(&self) -> AcquireOwned<Semaphore> {
        self.semaphore.acquire_owned()
    }

    pub(crate) fn try_lock(&self) -> Result<Guard<'_, T>> {
        self.semaphore.try_acquire().map(|permit| Guard { permit, value: &self.value })
    }

    pub(crate) fn lock_blocking(&self) -> Result<Guard<'_, T>> {
        self.semaphore.acquire_blocking().map(|permit| Guard { permit, value: &self.value })
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.semaphore.free_permits() == 0
    }
}

#[must_use]
pub(crate) struct Acquire<'a, T> {
    permit: AcquirePermit<'a, Semaphore>,
    value: &'a T,
}

impl<'a, T> Acquire<'a, T> {
    fn with(self, option: impl FnOnce(AcquirePermit<'a, Semaphore>) -> AcquirePermit<'a, Semaphore>) -> Self {
        Acquire { permit: option(self.permit), value: self.value }
    }

    pub(crate) fn priority(self, priority: i32) -> Self {
        self.with(|permit| permit.priority(priority))
    }

    pub(crate) fn timeout(self, span: Duration) -> Self {
        self.with(|permit| permit.timeout(span))
    }

    pub(crate) fn deadline(self, instant: Instant) -> Self {
        self.with(|permit| permit.deadline(instant))
    }
}

impl<'a, T> Future for Acquire<'a, T> {
    type Output = Result<Guard<'a, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let value = self.value;
        Pin::new(&mut self.permit).poll(cx).map_ok(|permit| Guard { permit, value })
    }
}

#[derive(Debug)]
#[must_use]
pub(crate) struct Guard<'a, T> {
    permit: SemaphorePermit<'a>,
    value: &'a T,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        assert_eq!(self.permit.permits(), 1);
        self.value
    }
}
