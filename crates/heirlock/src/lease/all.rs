//! `lock_all`: leases on several keys, all or none.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use super::acquire::{Acquire, Call, One};
use super::entry::Ask;
use super::hold::Hold;
use super::key::Key;
use super::lease::Lease;
use super::set::LeaseSet;
use super::ticket::Mode;
use super::vital::LostReason;
use super::watch;
use crate::{Error, Kind, Result};

/// What an [`Acquire`] of [`Locks::lock_all`](super::Locks::lock_all) asks for: several keys, all or none. It gives a [`LeaseSet`].
///
/// # How it does that
/// The keys are put in order by their bytes, and asked for one after the other, under one deadline; what it has already is renewed meanwhile. Every
/// process has that order, so among calls of `lock_all` nobody ever holds a key and waits for one that comes earlier. Whoever holds some other key at
/// the same time may still wait for ever: give such a call a timeout.
///
/// If one is refused, not granted in time, or lost while others are waited for, or if the call is dropped, those that it has are given up in the
/// background, as dropped leases are. To the store they were held: `hold_at_least` lets them rest. `max_hold` counts for each from its own grant.
///
/// # Errors
/// That of the first key which it does not get, as of one [`Acquire`]. `Invalid`, before anything is sent, for no keys, for one that is named twice,
/// and for one that [`shared_keys`](Acquire::shared_keys) names but not the call. `Lost` or `Evicted` if a key was lost while others were waited for.
///
/// # Cancel safety
/// Dropped at any moment, it leaves nothing behind, as one [`Acquire`].
///
/// ```
/// # use heirlock::{Locks, store::MemoryStore};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let schema = locks.lock("schema").shared().await?;
/// let leases = locks.lock_all(["table/2", "schema", "table/1"]).shared_keys(["schema"]).await?;
/// assert_eq!(leases.get("schema").unwrap().fence(), schema.fence(), "readers share a fence");
/// assert!(locks.lock_all(["table/3", "table/1"]).no_wait().await.unwrap_err().is_busy());
/// assert!(locks.lock_all(["table/3", "table/3"]).await.unwrap_err().is_invalid());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Several {
    keys: Vec<One>,
    shared: Vec<String>,
}

impl Several {
    pub(crate) fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Several {
        Several { keys: keys.into_iter().map(|key| One::new(key.as_ref())).collect(), shared: Vec::new() }
    }

    /// The keys with their places in the call, in the one order of all processes.
    fn in_order(&self) -> Result<Vec<(Key, usize)>> {
        let mut keys = self.keys.iter().enumerate().map(|(at, one)| Ok((one.key()?, at))).collect::<Result<Vec<_>>>()?;
        if keys.is_empty() {
            return Err(Error::new(Kind::Invalid, "lock_all was given no key: give it one or more"));
        }
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::new(Kind::Invalid, format!("{} was given to lock_all twice: give it once", pair[0].0)));
        }
        if let Some(other) = self.shared.iter().find(|name| keys.binary_search_by(|(key, _)| key.as_str().cmp(name)).is_err()) {
            return Err(Error::new(
                Kind::Invalid,
                format!("shared_keys names {other:?}, which was not given to lock_all: give it to both"),
            ));
        }
        Ok(keys)
    }
}

impl Acquire<Several> {
    /// Of these keys the lease is shared, whatever the others' are.
    pub fn shared_keys<K: AsRef<str>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.keys.shared.extend(keys.into_iter().map(|key| key.as_ref().to_owned()));
        self
    }

    /// Waits on this thread instead of in a task.
    ///
    /// # Errors
    /// As awaiting it.
    pub fn blocking(self) -> Result<LeaseSet> {
        pollster::block_on(self.into_future())
    }

    async fn run(self) -> Result<LeaseSet> {
        let keys = self.keys.in_order()?;
        let Call { ask, until } = self.call(keys[0].0.clone())?;
        let mut leases: Vec<Lease> = Vec::with_capacity(keys.len());
        for (key, _) in &keys {
            let mode = if self.keys.shared.iter().any(|name| name == key.as_str()) { Mode::Shared } else { ask.mode };
            let ask = Ask { key: key.clone(), mode, ..ask.clone() };
            // What is lost meanwhile ends the call: there would be nobody to whom its loss could be told.
            let taken = watch::run(&leases, Hold::take(&self.handle, ask, until)).await.flatten();
            let (hold, holding) = taken.map_err(|error| match watch::lost(&leases) {
                // What it waited for as well as what it had.
                Some((_, LostReason::Closed)) => Error::new(Kind::Closed, "the session was closed"),
                _ => error,
            })?;
            leases.push(Lease::new(hold, holding));
        }
        if let Some((lease, reason)) = watch::lost(&leases) {
            return Err(reason.of_key(lease.key()));
        }
        let mut named: Vec<(usize, Lease)> = keys.iter().map(|(_, at)| *at).zip(leases).collect();
        named.sort_unstable_by_key(|(at, _)| *at);
        Ok(LeaseSet::new(named.into_iter().map(|(_, lease)| lease).collect()))
    }
}

impl IntoFuture for Acquire<Several> {
    type Output = Result<LeaseSet>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<LeaseSet>> + Send>>;

    /// Errors and cancel safety: see [`Several`].
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
