//! The future of a key's lock.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(doc)]
use super::KeyedLock;
use super::guard::KeyedGuard;
use super::pin::{Handle, Pinned};
use crate::Result;
use crate::local::acquire::options;
use crate::local::all::Member;
use crate::local::raw::{Raw, Site};
use crate::local::wait::{Held, Wait};

/// The future of [`KeyedLock::lock`]. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct AcquireKeyed<'a, K> {
    stage: Stage<'a, K>,
    wait: Wait,
}

/// The future of [`KeyedLock::lock_owned`].
pub type AcquireKeyedOwned<K> = AcquireKeyed<'static, K>;

enum Stage<'a, K> {
    /// Nothing has happened yet.
    Unpolled(Handle<'a, K>, K),
    Waiting(Pinned<'a, K>),
    Done,
}

/// Nothing in it is ever pinned.
impl<K> Unpin for AcquireKeyed<'_, K> {}

impl<'a, K: Eq + Hash> AcquireKeyed<'a, K> {
    pub(super) fn new(keyed: Handle<'a, K>, key: K, site: Site) -> Self {
        AcquireKeyed { stage: Stage::Unpolled(keyed, key), wait: Wait::new(site) }
    }

    options!();

    /// Waits on this thread instead of being polled. The thread acquires, unless it runs as a [`Worker`](crate::Worker).
    ///
    /// # Errors
    /// As of `lock()`, and `WouldBlock` within an async runtime if the lock is held: it would block one of the runtime's threads.
    pub fn blocking(mut self) -> Result<KeyedGuard<'a, K>> {
        let (raw, wait) = self.parts();
        wait.block(raw).map(|held| self.guard(held))
    }
}

impl<'a, K: Eq + Hash> Member for AcquireKeyed<'a, K> {
    type Guard = KeyedGuard<'a, K>;

    type Word = Raw;

    fn parts(&mut self) -> (&Raw, &mut Wait) {
        if let Stage::Unpolled(..) = self.stage
            && let Stage::Unpolled(keyed, key) = replace(&mut self.stage, Stage::Done)
        {
            self.stage = Stage::Waiting(Pinned::of(keyed, key));
        }
        let Stage::Waiting(pinned) = &self.stage else { panic!("a lock's future was polled after it had completed") };
        (pinned.raw(), &mut self.wait)
    }

    fn guard(&mut self, held: Held) -> KeyedGuard<'a, K> {
        let Stage::Waiting(pinned) = replace(&mut self.stage, Stage::Done) else { unreachable!("its lock has just been acquired") };
        KeyedGuard::new(pinned, held)
    }
}

impl<'a, K: Eq + Hash> Future for AcquireKeyed<'a, K> {
    type Output = Result<KeyedGuard<'a, K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (raw, wait) = self.parts();
        wait.poll(raw, cx).map_ok(|held| self.guard(held))
    }
}

impl<K> Drop for AcquireKeyed<'_, K> {
    fn drop(&mut self) {
        if let Stage::Waiting(pinned) = &self.stage {
            self.wait.cancel(pinned.raw());
        }
    }
}

impl<K> fmt::Debug for AcquireKeyed<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireKeyed").field("wait", &self.wait).finish_non_exhaustive()
    }
}
