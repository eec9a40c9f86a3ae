//! One key of a `KeyedLock` in the shape of a `Mutex`, for the cases that are the same for each lock.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use heirlock::Result;
use heirlock::local::{AcquireKeyed, Domain, KeyedGuard, KeyedLock};

const KEY: u8 = 7;

/// A value beside the lock of a key.
pub(crate) struct Lock<T> {
    keyed: Arc<KeyedLock<u8>>,
    value: T,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { keyed: Arc::new(KeyedLock::new()), value }
    }

    pub(crate) fn named(name: &'static str, value: T) -> Lock<T> {
        Lock { keyed: Arc::new(KeyedLock::named(name)), value }
    }

    pub(crate) fn in_domain(self, domain: &Domain) -> Lock<T> {
        let keyed = Arc::into_inner(self.keyed).unwrap().in_domain(domain);
        Lock { keyed: Arc::new(keyed), value: self.value }
    }

    pub(crate) fn lock(&self) -> Acquire<'_, &Lock<T>> {
        Acquire { of_key: self.keyed.lock(KEY), lock: self }
    }

    pub(crate) fn lock_owned(self: &Arc<Self>) -> Acquire<'static, Arc<Lock<T>>> {
        Acquire { of_key: self.keyed.lock_owned(KEY), lock: Arc::clone(self) }
    }

    pub(crate) fn try_lock(&self) -> Result<Guard<'_, &Lock<T>>> {
        self.keyed.try_lock(KEY).map(|of_key| Guard { of_key, lock: self })
    }

    pub(crate) fn lock_blocking(&self) -> Result<Guard<'_, &Lock<T>>> {
        self.keyed.lock_blocking(KEY).map(|of_key| Guard { of_key, lock: self })
    }

    /// While somebody has it, it has its entry.
    pub(crate) fn is_locked(&self) -> bool {
        let locked = self.keyed.is_locked(&KEY);
        assert!(!locked || self.keyed.len() == 1);
        locked
    }
}

#[must_use]
pub(crate) struct Acquire<'a, L> {
    of_key: AcquireKeyed<'a, u8>,
    lock: L,
}

impl<'a, L> Acquire<'a, L> {
    fn with(self, option: impl FnOnce(AcquireKeyed<'a, u8>) -> AcquireKeyed<'a, u8>) -> Self {
        Acquire { of_key: option(self.of_key), lock: self.lock }
    }

    pub(crate) fn priority(self, priority: i32) -> Self {
        self.with(|of_key| of_key.priority(priority))
    }

    pub(crate) fn timeout(self, span: Duration) -> Self {
        self.with(|of_key| of_key.timeout(span))
    }

    pub(crate) fn deadline(self, instant: Instant) -> Self {
        self.with(|of_key| of_key.deadline(instant))
    }
}

impl<'a, L: Clone + Unpin> Future for Acquire<'a, L> {
    type Output = Result<Guard<'a, L>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.of_key).poll(cx);
        polled.map_ok(|of_key| Guard { of_key, lock: self.lock.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct Guard<'a, L> {
    of_key: KeyedGuard<'a, u8>,
    lock: L,
}

impl<L: Deref<Target = Lock<T>>, T> Deref for Guard<'_, L> {
    type Target = T;

    fn deref(&self) -> &T {
        assert_eq!(*self.of_key.key(), KEY);
        &self.lock.value
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.keyed.fmt(f)
    }
}

/// The guard of [`Lock::lock_owned`].
pub(crate) type Owned = Guard<'static, Arc<Lock<()>>>;
