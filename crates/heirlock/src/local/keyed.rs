//! `KeyedLock`: a lock for each key, kept only while it is used.

mod acquire;
mod guard;
mod pin;
mod shard;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::Location;
use std::sync::{Arc, LazyLock};

pub use self::acquire::{AcquireKeyed, AcquireKeyedOwned};
pub use self::guard::{KeyedGuard, OwnedKeyedGuard};
use self::pin::{Handle, Pinned};
use self::shard::Shard;
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::raw::{Raw, Site, Want, Word};
use super::sync::{Mutex, SHARDS, const_fn, each, lock};
use super::wait::attempt;
use crate::Result;

/// A lock for each key: a [`Mutex`](super::Mutex) in all that it does, made when somebody first wants the key and dropped when nobody holds it or
/// waits for it any more.
///
/// Holders inherit the priority of whoever waits for their key; the most urgent waiter is served first; a worker whose wait would close a cycle, of
/// two keys or of a key and any other lock, gets an error instead of waiting for ever. Keys that nobody uses cost nothing: a million users locked
/// once each leave no memory behind.
///
/// ```
/// use heirlock::local::KeyedLock;
/// use std::time::Duration;
/// static ACCOUNTS: KeyedLock<u64> = KeyedLock::named("accounts").label(|id| id.to_string());
/// # pollster::block_on(async {
/// let guard = ACCOUNTS.lock(7).priority(10).timeout(Duration::from_millis(50)).await?;
/// assert_eq!(*guard.key(), 7);
/// assert!(ACCOUNTS.try_lock(8).is_ok());
/// let error = ACCOUNTS.try_lock(7).unwrap_err();
/// assert_eq!(error.to_string(), r#"lock "accounts[7]" is held"#);
/// drop(guard);
/// assert!(ACCOUNTS.is_empty());
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
///
/// To hold several keys at once, take them by [`lock_all`](super::lock_all), so that it does not matter in which order others name them.
///
/// The `Hash`, `Eq`, `Drop` of a key, and the label, are never called under a mutex: they may panic, and then that one call has failed; they may even
/// use the same `KeyedLock`.
pub struct KeyedLock<K> {
    shards: [Cell<K>; SHARDS],
    /// Never acquired: all others are made like it.
    pattern: Raw,
    label: Option<fn(&K) -> String>,
}

/// On a cache line of its own, so that keys of different shards have nothing in common.
#[repr(align(64))]
struct Cell<K>(Mutex<Shard<K>>);

/// One for all, so that no `KeyedLock` needs to be made at run time. A hash tells nobody anything: it is not shown.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl<K> KeyedLock<K> {
    const_fn! {
        /// Without any key yet, in the global domain.
        pub const fn new() -> KeyedLock<K> {
            KeyedLock { shards: each![Cell(Mutex::new(Shard::new())); SHARDS], pattern: Raw::new(Kind::Mutex, None), label: None }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call each of its locks.
        pub const fn named(name: &'static str) -> KeyedLock<K> {
            KeyedLock { shards: each![Cell(Mutex::new(Shard::new())); SHARDS], pattern: Raw::new(Kind::Mutex, Some(name)), label: None }
        }
    }

    /// What errors and snapshots say of a key, in brackets after the name: `accounts[7]`. Without it they give the name alone. It is called when
    /// somebody wants a key that is in use, mostly once as long as it is; in a domain that tracks its holds for each key.
    ///
    /// ```
    /// use heirlock::local::KeyedLock;
    /// // A secret or an address has no place in a log: what is said of a key is for its owner to choose.
    /// static SESSIONS: KeyedLock<String> = KeyedLock::named("sessions").label(|token| format!("{:.4}..", token));
    /// let guard = SESSIONS.try_lock("f81d4fae7dec".into()).unwrap();
    /// assert!(SESSIONS.try_lock("f81d4fae7dec".into()).unwrap_err().to_string().contains("sessions[f81d..]"));
    /// # drop(guard);
    /// ```
    #[must_use]
    pub const fn label(mut self, label: fn(&K) -> String) -> KeyedLock<K> {
        self.label = Some(label);
        self
    }

    /// The locks in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> KeyedLock<K> {
        self.pattern.set_domain(domain);
        self
    }

    /// Who is served first, of those who want one key; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> KeyedLock<K> {
        self.pattern.set_order(order);
        self
    }

    /// After how many grants to others since it became the oldest the oldest waiter for a key is next.
    ///
    /// # Panics
    /// If the limit is 0.
    #[must_use]
    pub const fn bypass_limit(mut self, limit: u32) -> KeyedLock<K> {
        self.pattern.set_bypass_limit(limit);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.pattern.name()
    }

    /// How many keys are held, waited for, or about to be. It may be otherwise a moment later.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).len()).sum()
    }

    /// Whether no key is in use. It may be otherwise a moment later.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // The map within the shard goes by other bits, as by all of them.
        &self.shards[usize::try_from(hash >> 32).unwrap_or(0) & (SHARDS - 1)].0
    }
}

impl<K: Eq + Hash> KeyedLock<K> {
    /// Acquires the key's lock: a future that also has a priority, a deadline and a timeout. It does nothing before it is first polled; whose acquire
    /// it is, is settled then.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a lock that it was just granted goes on to the next waiter. A place in the
    /// queue is lost.
    #[track_caller]
    pub fn lock(&self, key: K) -> AcquireKeyed<'_, K> {
        AcquireKeyed::new(Handle::Borrowed(self), key, Location::caller())
    }

    /// As [`lock`](KeyedLock::lock), with a guard that keeps the `KeyedLock` alive and may go anywhere.
    ///
    /// # Errors
    /// As [`lock`](KeyedLock::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](KeyedLock::lock).
    ///
    /// ```
    /// use heirlock::local::KeyedLock;
    /// use std::sync::Arc;
    /// let files = Arc::new(KeyedLock::new());
    /// let guard = pollster::block_on(files.lock_owned("a.txt")).unwrap();
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// assert!(!files.is_locked("a.txt"));
    /// ```
    #[track_caller]
    pub fn lock_owned(self: &Arc<Self>, key: K) -> AcquireKeyedOwned<K>
    where
        K: 'static,
    {
        AcquireKeyed::new(Handle::Owned(Arc::clone(self)), key, Location::caller())
    }

    /// Acquires the key's lock if nobody holds it or waits for it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise.
    ///
    /// ```
    /// let locks = heirlock::local::KeyedLock::new();
    /// let guard = locks.try_lock("a").unwrap();
    /// assert!(locks.try_lock("a").unwrap_err().is_would_block());
    /// assert!(locks.try_lock("b").is_ok());
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn try_lock(&self, key: K) -> Result<KeyedGuard<'_, K>> {
        attempt_on(Pinned::of(Handle::Borrowed(self), key), Location::caller())
    }

    /// As [`try_lock`](KeyedLock::try_lock), with a guard that keeps the `KeyedLock` alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_lock`](KeyedLock::try_lock).
    ///
    /// ```
    /// let files = std::sync::Arc::new(heirlock::local::KeyedLock::new());
    /// let guard = files.try_lock_owned("a.txt").unwrap();
    /// assert!(files.try_lock_owned("a.txt").unwrap_err().is_would_block());
    /// std::thread::spawn(move || drop(guard)).join().unwrap();
    /// assert!(files.is_empty());
    /// ```
    #[track_caller]
    pub fn try_lock_owned(self: &Arc<Self>, key: K) -> Result<OwnedKeyedGuard<K>>
    where
        K: 'static,
    {
        attempt_on(Pinned::of(Handle::Owned(Arc::clone(self)), key), Location::caller())
    }

    /// Acquires the key's lock on this thread, for code that is not async: [`lock`](KeyedLock::lock) with [`AcquireKeyed::blocking`].
    ///
    /// # Errors
    /// As [`AcquireKeyed::blocking`].
    #[track_caller]
    pub fn lock_blocking(&self, key: K) -> Result<KeyedGuard<'_, K>> {
        self.lock(key).blocking()
    }

    /// Whether anybody holds the key's lock, or has been granted it. It may be otherwise a moment later.
    pub fn is_locked<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = HASHER.hash_one(key);
        let entries = lock(self.shard(hash)).pin_others(hash, std::iter::empty());
        let pinned: Vec<_> = entries.into_iter().map(|entry| Pinned::new(Handle::Borrowed(self), entry)).collect();
        pinned.iter().any(|pinned| pinned.key().borrow() == key && pinned.raw().is_held())
    }
}

fn attempt_on<K>(pinned: Pinned<'_, K>, site: Site) -> Result<KeyedGuard<'_, K>> {
    attempt(pinned.raw(), Want::ONE, site).map(|held| KeyedGuard::new(pinned, held))
}

impl<K> Drop for KeyedLock<K> {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl<K> Default for KeyedLock<K> {
    fn default() -> KeyedLock<K> {
        KeyedLock::new()
    }
}

impl<K> fmt::Debug for KeyedLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLock").field("name", &self.name()).field("len", &self.len()).finish_non_exhaustive()
    }
}
