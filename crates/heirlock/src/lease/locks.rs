//! A process's session with a store.

use std::future::poll_fn;
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;

use super::acquire::{Acquire, One};
use super::all::Several;
use super::handle::Handle;
use super::key::{Key, check_part};
use super::lease::Lease;
use super::session::Session;
use super::store::{Capabilities, KeyView, Store};
use super::verb::Evict;
use super::{keeper, ticket::SessionId};
use crate::Result;
use crate::clock::{BootClock, Clock};
use crate::process::Process;

/// A process's session with a store: leases are asked from it, and it keeps them alive. Clones share it; it ends with the last clone and lease.
///
/// ```
/// use heirlock::{Locks, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// let locks = Locks::new(MemoryStore::new()).await?;
/// let lease = locks.lock("nightly").await?;
/// assert!(locks.try_lock("nightly").await.unwrap_err().is_busy());
/// drop(lease);
/// locks.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks(Arc<Handle>);

impl Locks {
    /// A session with this store.
    ///
    /// # Errors
    /// What the store reports, `Unreachable` for instance; `Storage` if no thread can be started.
    pub async fn new(store: impl Store) -> Result<Locks> {
        Locks::with(Arc::new(store), Arc::new(BootClock)).await
    }

    /// A session with this store, in which validity is judged by this clock.
    ///
    /// # Errors
    /// As [`Locks::new`].
    pub async fn with(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Locks> {
        let session = Session::new(store, clock)?;
        let weak = Arc::downgrade(&session);
        let sink = Arc::new(move |notice| {
            if let Some(session) = weak.upgrade() {
                session.heard(&notice);
            }
        });
        session.store.notices(session.id, sink).await?;
        keeper::start(&session)?;
        Ok(Locks(Handle::new(session, Process::this())))
    }

    /// Asks for a lease on this key: see [`Acquire`] for the options.
    #[track_caller]
    pub fn lock(&self, key: impl AsRef<str>) -> Acquire {
        Acquire::new(Arc::clone(&self.0), One::new(key.as_ref()), Location::caller())
    }

    /// Asks for a lease that is free: `Busy` if the key is held, rests, or has a queue.
    #[track_caller]
    pub fn try_lock(&self, key: impl AsRef<str>) -> Acquire {
        self.lock(key).no_wait()
    }

    /// Asks for leases on all of these keys, or none: see [`Several`]. The options of [`Acquire`] are those of each.
    ///
    /// ```
    /// # use heirlock::{Locks, store::MemoryStore};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// // Somebody else may move money from bob to alice at the same time.
    /// let leases = locks.lock_all(["account/alice", "account/bob"]).timeout(Duration::from_secs(5)).await?;
    /// let moved = leases.run(async { 5 }).await?;
    /// leases.release().await?;
    /// # assert_eq!(moved, 5);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock_all<K: AsRef<str>>(&self, keys: impl IntoIterator<Item = K>) -> Acquire<Several> {
        Acquire::new(Arc::clone(&self.0), Several::new(keys), Location::caller())
    }

    /// Waits for a lease on this thread: `lock(key).blocking()`.
    ///
    /// # Errors
    /// As awaiting an [`Acquire`].
    #[track_caller]
    pub fn lock_blocking(&self, key: impl AsRef<str>) -> Result<Lease> {
        self.lock(key).blocking()
    }

    /// One key: who holds it, who waits.
    ///
    /// # Errors
    /// `Invalid` for a bad key, `Closed` in a forked child, and what the store reports; it is waited for as long as it takes.
    pub async fn inspect(&self, key: impl AsRef<str>) -> Result<KeyView> {
        self.0.session.check_process()?;
        self.0.session.store.inspect(&Key::new(key)?).await
    }

    /// All keys in use whose names start so, in order of name.
    ///
    /// # Errors
    /// `Invalid` for what no key can start with, `Closed` in a forked child, and what the store reports; it is waited for as long as it takes.
    pub async fn list(&self, prefix: &str) -> Result<Vec<KeyView>> {
        check_part(prefix)?;
        self.0.session.check_process()?;
        self.0.session.store.list(prefix).await
    }

    /// Takes a key away from its holders: see [`Evict`]. Answers how many it met.
    ///
    /// # Errors
    /// `Invalid` for a bad key, `Closed` in a forked child, and what the store reports; it is waited for as long as it takes.
    pub async fn evict(&self, key: impl AsRef<str>, request: Evict) -> Result<u64> {
        self.0.session.check_process()?;
        self.0.session.store.evict(&Key::new(key)?, request).await
    }

    /// The store, as operators see it: its address without any password.
    pub fn url(&self) -> String {
        self.0.session.store.url()
    }

    /// What the store fails with at the moment, while calls and renewals are retried; for a person who watches.
    pub fn trouble(&self) -> Option<String> {
        self.0.session.trouble()
    }

    /// What of the store's set-up can lose locks, as far as it can see, each with what to do; for an operator.
    ///
    /// # Errors
    /// `Closed` in a forked child, and what the store reports; it is waited for as long as it takes.
    pub async fn warnings(&self) -> Result<Vec<String>> {
        self.0.session.check_process()?;
        self.0.session.store.warnings().await
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.session.store.capabilities()
    }

    /// The session's id at the store.
    pub fn session(&self) -> SessionId {
        self.0.session.id
    }

    /// Ends the session: whoever waits gets `Closed`, leases are lost and released, and when it returns the store knows; or 6 s have passed. In a
    /// forked child it does nothing: the session is the parent's.
    ///
    /// # Cancel safety
    /// Dropped half-way, the rest is done in the background.
    pub async fn close(self) {
        if self.0.session.is_forked() {
            return;
        }
        self.0.session.close();
        self.0.session.end();
        poll_fn(|cx| if self.0.session.poll_ended(cx.waker().clone()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
