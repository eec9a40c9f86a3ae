//! A `RwLock` that is only written, in the shape of a `Mutex`, for the cases that are the same for each lock.

use std::sync::Arc;

use heirlock::Result;
use heirlock::local::{Acquire, AcquireOwned, Domain, OwnedRwLockWriteGuard, RwLock, RwLockWriteGuard};

#[derive(Debug)]
pub(crate) struct Lock<T>(Arc<RwLock<T>>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock(Arc::new(RwLock::new(value)))
    }

    pub(crate) fn named(name: &'static str, value: T) -> Lock<T> {
        Lock(Arc::new(RwLock::named(name, value)))
    }

    pub(crate) fn in_domain(self, domain: &Domain) -> Lock<T> {
        Lock(Arc::new(Arc::into_inner(self.0).unwrap().in_domain(domain)))
    }

    pub(crate) fn lock(&self) -> Acquire<'_, RwLock<T>> {
        self.0.write()
    }

    pub(crate) fn lock_owned(&self) -> AcquireOwned<RwLock<T>> {
        self.0.write_owned()
    }

    pub(crate) fn try_lock(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    pub(crate) fn lock_blocking(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.0.write_blocking()
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// The guard of [`Lock::lock_owned`].
pub(crate) type Owned = OwnedRwLockWriteGuard<()>;
