//! Leases in one SQLite file, for all processes of one machine: the store that needs no server.
//!
//! ```
//! use heirlock::store::sqlite::SqliteStore;
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("leases.db");
//! let store = SqliteStore::open(&path)?;
//! # drop(store);
//! # Ok::<(), heirlock::Error>(())
//! ```
//!
//! # How it works
//! Each store has one connection on one thread. A request is one transaction, `BEGIN IMMEDIATE`, in which the [ledger] runs
//! over the rows of one key; so processes exclude each other step by step, and what was answered has been committed. The log is written ahead,
//! without a sync per step: a crash of any process loses nothing, a power cut may lose the last steps, together with every process that knew
//! of them. Fences still grow, as long as the wall clock is not behind.
//!
//! Waiters are woken through named pipes in a directory beside the file, `NAME.notify/`. Where they cannot be made, waiters still look from time
//! to time.
//!
//! # What it refuses
//! Files of other programs and of other major versions, before anything is written; filesystems of a network, on which SQLite cannot lock.

mod beside;
mod columns;
mod engine;
mod file;
mod idle;
mod log;
mod mailbox;
mod notify;
mod owners;
mod rows;
mod schema;
mod sql;
#[cfg(test)]
pub(crate) mod tests;
mod time;
mod trouble;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use self::engine::Outside;
use self::mailbox::Mailbox;
pub use self::time::{KernelClock, StoreClock, StoreTime};
use crate::connect::encode;
use crate::lease::{
    Answer, Beat, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, Pending, Reason, SessionId, Sink, Store, Was, check_part, ledger,
};
use crate::{Error, Kind, Result};

/// A store in one SQLite file. See the [module](self).
///
/// Dropping it lets its thread finish what was asked and end.
pub struct SqliteStore {
    mailbox: Arc<Mailbox>,
    path: PathBuf,
    mode: u32,
    prefix: Arc<str>,
    /// Tests wait for its end, to remove the file behind it; nobody else does.
    #[cfg_attr(not(test), allow(dead_code))]
    thread: Option<thread::JoinHandle<()>>,
}

/// How to open a [`SqliteStore`].
///
/// ```
/// use heirlock::store::sqlite::SqliteStore;
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("shared/leases.db");
/// // For a group, under a namespace of its own.
/// let store = SqliteStore::options().mode(0o660).prefix("reports/").open(&path)?;
/// # drop(store);
/// # Ok::<(), heirlock::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    clock: Option<Arc<dyn StoreClock>>,
    mode: u32,
    prefix: String,
    makes: bool,
}

impl Options {
    /// Takes the time from this clock instead of the [`KernelClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn StoreClock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The mode of the file if it is made, 0600 unless said otherwise; the directories made for it let enter whoever may read. The umask is not
    /// asked.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Puts every key under a namespace: it is stored with this before its name, and shown without.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Makes nothing: where there is no store yet, opening fails.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.makes = false;
        self
    }

    /// Opens the store at this path, and makes what is missing. Blocks for some milliseconds; longer, but at most ten seconds, while others keep
    /// the file busy.
    ///
    /// # Errors
    /// `Invalid` where the path, the mode or the prefix cannot be used, or nothing is there and nothing shall be made; `Incompatible` where the file is not a store of this major version, or lies
    /// on a network's filesystem; `Unreachable` where it stays busy; `Storage` where the disk or the system fails. Nothing is then left behind
    /// but directories, and perhaps an empty file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        pollster::block_on(self.connect(path))
    }

    /// [`Options::open`] as a future that blocks nobody. Nothing happens before its first poll; dropping it may leave the file made.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn connect(self, path: impl AsRef<Path>) -> impl Future<Output = Result<SqliteStore>> + Send + 'static {
        let path = path.as_ref().to_owned();
        async move {
            check_part(&self.prefix)?;
            if self.mode & !0o666 != 0 || self.mode & 0o600 != 0o600 {
                return Err(Error::new(
                    Kind::Invalid,
                    format!(
                        "a store's mode lets its owner read and write, and nobody execute: {:#o} does not; try 0600 or 0660",
                        self.mode
                    ),
                ));
            }
            let path = std::path::absolute(&path).map_err(|cause| {
                Error::new(Kind::Invalid, format!("{:?} is not a path: give that of a file", path.display())).because(cause)
            })?;
            if !self.makes {
                let is_there = path.try_exists().map_err(|cause| {
                    Error::new(Kind::Storage, format!("cannot look at {}: check the modes of its directories", path.display()))
                        .because(cause)
                })?;
                if !is_there {
                    return Err(Error::new(Kind::Invalid, format!("there is no store at {}: give the path of one", path.display())));
                }
            }
            let prefix: Arc<str> = self.prefix.into();
            let outside = Outside {
                boot: String::new(),
                path: path.clone(),
                mode: self.mode,
                prefix: Arc::clone(&prefix),
                clock: self.clock.unwrap_or_else(|| Arc::new(KernelClock::new())),
                notices: None,
                next_sweep: Instant::now() + idle::EVERY,
                was_replaced: false,
                leaving: false,
                swept_to: String::new(),
            };
            let (sender, opened) = oneshot::channel();
            let mailbox = Mailbox::new();
            let thread = thread::Builder::new()
                .name("heirlock-sqlite".to_owned())
                .spawn({
                    let mailbox = Arc::clone(&mailbox);
                    move || engine::run(&mailbox, outside, sender)
                })
                .map_err(|cause| Error::new(Kind::Storage, "the system gives no thread for the store").because(cause))?;
            // From here on its drop ends the thread.
            let store = SqliteStore { mailbox, path, mode: self.mode, prefix, thread: Some(thread) };
            opened.await.unwrap_or_else(|_| Err(Error::new(Kind::Closed, "the store's thread has ended")))?;
            Ok(store)
        }
    }
}

/// The mode of a new file, unless said otherwise: its owner's alone.
const DEFAULT_MODE: u32 = 0o600;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("mode", &format_args!("{:#o}", self.mode)).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// The shortest ttl: what a busy machine's scheduler may keep a thread waiting for, and some hundred steps.
    const MIN_TTL: Duration = Duration::from_millis(50);

    /// Opens the store at this path, for this user alone, and makes what is missing.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore> {
        SqliteStore::options().open(path)
    }

    /// The ways to open one.
    pub fn options() -> Options {
        Options { clock: None, mode: DEFAULT_MODE, prefix: String::new(), makes: true }
    }

    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self, key: &Key) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Asks for something that may make the file anew if it is gone.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut engine::Engine<'_>, engine::GaveUp<'_>) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        Box::pin(Arc::clone(&self.mailbox).ask(true, work))
    }

    /// Asks for something that leaves a file which is gone as it is, and then comes to `gone`: no ticket is known.
    fn ask_if_there<T: Send + 'static>(
        &self,
        gone: T,
        work: impl FnOnce(&mut engine::Engine<'_>, engine::GaveUp<'_>) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        let asked = Arc::clone(&self.mailbox).ask(false, work);
        Box::pin(async move {
            match asked.await {
                Err(error) if error.is_lost() => Ok(gone),
                answer => answer,
            }
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.mailbox.close();
        #[cfg(test)]
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.url())
    }
}

impl Store for SqliteStore {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        let name = self.name(key);
        self.ask(move |engine, gave_up| Ok(engine.step(&name, gave_up, |rows, now| ledger::enter(rows, now, &request))?.answer))
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        let requests: Vec<_> = requests.into_iter().map(|(key, beat)| (self.name(&key), beat)).collect();
        let gone = requests.iter().map(|_| Ok(Answer::Gone(Reason::Unknown))).collect();
        self.ask_if_there(gone, move |engine, gave_up| engine.beat(&requests, gave_up))
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        let name = self.name(key);
        self.ask_if_there(Left { was: Was::Gone }, move |engine, gave_up| {
            Ok(engine.step(&name, gave_up, |rows, now| ledger::leave(rows, now, &request))?.answer)
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        let name = self.name(key);
        self.ask_if_there(0, move |engine, gave_up| Ok(engine.step(&name, gave_up, |rows, now| ledger::evict(rows, now, &request))?.answer))
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        let (key, name) = (key.clone(), self.name(key));
        let gone = KeyView::of(key.clone(), 0, None, Vec::new(), 0);
        self.ask_if_there(gone, move |engine, gave_up| engine.inspect(key, &name, gave_up))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        let prefix = format!("{}{prefix}", self.prefix);
        self.ask_if_there(Vec::new(), move |engine, gave_up| engine.list(&prefix, gave_up))
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        self.ask_if_there((), move |engine, _| {
            engine.listen(session, sink);
            Ok(())
        })
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        let hush = self.ask_if_there((), move |engine, _| {
            engine.hush(session);
            Ok(())
        });
        // What the thread does between two requests is done when it answers the next: a process that ends now has left the file tidy.
        let tidy = self.ask_if_there((), |_, _| Ok(()));
        Box::pin(async move {
            hush.await?;
            tidy.await
        })
    }

    fn min_ttl(&self) -> Duration {
        SqliteStore::MIN_TTL
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::DURABLE
    }

    fn url(&self) -> String {
        let mut parameters = Vec::new();
        if self.mode != DEFAULT_MODE {
            parameters.push(format!("mode={:04o}", self.mode));
        }
        if !self.prefix.is_empty() {
            parameters.push(format!("prefix={}", encode(&self.prefix, "%&#+?")));
        }
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        format!("sqlite:{}{query}", encode(&self.path.to_string_lossy(), "%?#"))
    }
}
