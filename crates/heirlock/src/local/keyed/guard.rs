//! The guard of a key's lock.

use std::fmt;

#[cfg(doc)]
use super::KeyedLock;
use super::pin::Pinned;
use crate::Worker;
use crate::local::wait::Held;

/// The hold of one key of a [`KeyedLock`], until it is dropped. The hold stays its acquirer's wherever the guard goes, unless it is
/// [transferred](KeyedGuard::transfer_to).
///
/// It crosses threads only where its keys do:
///
/// ```compile_fail,E0277
/// fn sent<T: Send>(_: T) {}
/// let locks = heirlock::local::KeyedLock::new();
/// sent(locks.try_lock(std::rc::Rc::new(1)).unwrap());
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct KeyedGuard<'a, K> {
    pinned: Pinned<'a, K>,
    held: Held,
}

/// A [`KeyedGuard`] that may go anywhere: what [`lock_owned`](KeyedLock::lock_owned) gives, and `lock` of a `static`.
pub type OwnedKeyedGuard<K> = KeyedGuard<'static, K>;

impl<'a, K> KeyedGuard<'a, K> {
    pub(super) fn new(pinned: Pinned<'a, K>, held: Held) -> Self {
        KeyedGuard { pinned, held }
    }

    /// The key that is held: as it was given by whoever first wanted it.
    pub fn key(&self) -> &K {
        self.pinned.key()
    }

    /// Makes the hold another worker's: from now on that one inherits from who waits, and is named by errors and snapshots.
    ///
    /// ```
    /// use heirlock::{Worker, local::KeyedLock};
    /// # pollster::block_on(async {
    /// let (first, second, locks) = (Worker::new("first"), Worker::new("second"), KeyedLock::new());
    /// let guard = first.run(locks.lock("a")).await?;
    /// guard.transfer_to(&second);
    /// assert!(second.run(locks.lock("a")).await.unwrap_err().is_deadlock());
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn transfer_to(&self, worker: &Worker) {
        self.pinned.raw().transfer(worker);
    }
}

impl<K> Drop for KeyedGuard<'_, K> {
    fn drop(&mut self) {
        // The pin goes after this, with its field: whoever finds the entry until then waits for nobody.
        self.pinned.raw().release(1, self.held);
    }
}

impl<K: fmt::Debug> fmt::Debug for KeyedGuard<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedGuard").field("key", self.key()).finish_non_exhaustive()
    }
}
