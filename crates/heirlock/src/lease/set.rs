//! Leases that are held together.

use std::fmt;
use std::future::Future;
use std::slice;
use std::time::Duration;
use std::vec;

use futures_util::future::join_all;

use super::key::Key;
use super::lease::{Lease, Released};
use super::vital::LostReason;
use super::watch::{self, Watch};
use crate::Result;

/// Leases on several keys, as [`Locks::lock_all`](super::Locks::lock_all) gives them: in the order in which the keys were named. Dropping it releases
/// all, promptly, in the background.
///
/// ```
/// # use heirlock::{Locks, Released, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let leases = locks.lock_all(["b", "a"]).await?;
/// assert!(leases.is_valid() && leases.get("c").is_none());
/// let fences: Vec<(&str, u64)> = leases.iter().map(|lease| (lease.key().as_str(), lease.fence())).collect();
/// # assert_eq!((fences[0].0, fences[1].0), ("b", "a"));
/// assert_eq!(leases.release().await?, Released::InTime);
/// # Ok(()) }
/// ```
#[must_use = "leases that are dropped are released at once"]
pub struct LeaseSet(Vec<Lease>);

impl LeaseSet {
    pub(crate) fn new(leases: Vec<Lease>) -> LeaseSet {
        LeaseSet(leases)
    }

    /// The lease on this key.
    pub fn get(&self, key: impl AsRef<str>) -> Option<&Lease> {
        self.0.iter().find(|lease| lease.key().as_str() == key.as_ref())
    }

    /// All leases, in the order in which the keys were named.
    pub fn iter(&self) -> slice::Iter<'_, Lease> {
        self.0.iter()
    }

    /// The leases, each for itself.
    pub fn into_leases(self) -> Vec<Lease> {
        self.0
    }

    /// Whether nobody else can hold any of the keys now. Once false, always false.
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(Lease::is_valid)
    }

    /// For how long nobody else can hold any of the keys, even if no renewal succeeds any more: the shortest of all.
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Which one is lost and why, if one is; without waiting.
    pub fn lost_reason(&self) -> Option<(&Key, LostReason)> {
        watch::lost(&self.0).map(|(lease, reason)| (lease.key(), reason))
    }

    /// Waits until one is lost, as [`Lease::lost`], and tells which.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost by dropping it.
    pub async fn lost(&self) -> (&Key, LostReason) {
        let (lease, reason) = Watch::over(&self.0).lost().await;
        (lease.key(), reason)
    }

    /// Does the work while all are valid: when one is lost the work is dropped, and never polled again.
    ///
    /// # Errors
    /// `Lost` or `Evicted` if one was lost before the work was done, even if it was done in the same moment.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        watch::run(&self.0, work).await
    }

    /// Releases all, and waits for all. `AlreadyLost` if one was lost before; else `StillHeld` if the worker holds one of the keys by another lease.
    ///
    /// # Errors
    /// As [`Lease::release`], of one for which that is so; the others are released all the same.
    ///
    /// # Cancel safety
    /// Dropped half-way, the rest is released in the background.
    pub async fn release(self) -> Result<Released> {
        let mut worst = Released::InTime;
        for released in join_all(self.0.into_iter().map(Lease::release)).await {
            worst = match (worst, released?) {
                (Released::AlreadyLost, _) | (_, Released::AlreadyLost) => Released::AlreadyLost,
                (Released::StillHeld, _) | (_, Released::StillHeld) => Released::StillHeld,
                (Released::InTime, Released::InTime) => Released::InTime,
            };
        }
        Ok(worst)
    }

    /// Releases all from a thread: [`release`](LeaseSet::release) without a task.
    ///
    /// # Errors
    /// As [`release`](LeaseSet::release).
    pub fn release_blocking(self) -> Result<Released> {
        pollster::block_on(self.release())
    }
}

impl<'l> IntoIterator for &'l LeaseSet {
    type Item = &'l Lease;
    type IntoIter = slice::Iter<'l, Lease>;

    fn into_iter(self) -> slice::Iter<'l, Lease> {
        self.iter()
    }
}

impl IntoIterator for LeaseSet {
    type Item = Lease;
    type IntoIter = vec::IntoIter<Lease>;

    fn into_iter(self) -> vec::IntoIter<Lease> {
        self.0.into_iter()
    }
}

impl fmt::Debug for LeaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}
