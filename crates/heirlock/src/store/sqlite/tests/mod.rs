//! What only this store has to show: that its rows do what the ledger says, and what it makes of files.
#![allow(clippy::unwrap_used)]

mod files;
mod histories;
mod power;
mod sharing;
mod vectors;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::engine::Engine;
use super::rows::KeyRows;
use super::{SqliteStore, StoreClock, StoreTime};
use crate::Result;
use crate::lease::ledger::{self, Now};
use crate::lease::{Answer, Beat, Book, Enter, Evict, Key, Leave, Left, Mode, Outcome, Owner, Rows, SessionId, Store, Terms, Token};

/// A time that is set.
#[derive(Debug)]
pub(crate) struct SetClock(Mutex<(StoreTime, String)>);

impl SetClock {
    pub(crate) fn new(boot: &str) -> Arc<SetClock> {
        Arc::new(SetClock(Mutex::new((StoreTime { mono_ms: 1_000, wall_us: 1_000_000 }, boot.to_owned()))))
    }

    pub(crate) fn set(&self, mono_ms: u64, wall_us: u64) {
        self.0.lock().unwrap().0 = StoreTime { mono_ms, wall_us };
    }
}

impl StoreClock for SetClock {
    fn now(&self) -> StoreTime {
        self.0.lock().unwrap().0
    }

    fn boot_id(&self) -> String {
        self.0.lock().unwrap().1.clone()
    }
}

/// One key of a store of its own, step by step: each verb at a given time, with all that it tells, and the rows as they are kept.
pub(crate) struct Hand {
    pub(crate) store: SqliteStore,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) key: Key,
    _directory: tempfile::TempDir,
}

impl Hand {
    /// A new file with nothing in it.
    pub(crate) fn new() -> Hand {
        let directory = tempfile::tempdir().unwrap();
        let clock = SetClock::new("boot");
        let store = SqliteStore::options().clock(clock.clone()).open(directory.path().join("leases.db")).unwrap();
        Hand { store, clock, key: Key::new("key").unwrap(), _directory: directory }
    }

    pub(crate) fn enter(&self, now: Now<'_>, request: &Enter) -> Outcome<Answer> {
        let request = request.clone();
        self.step(now, move |rows, now| ledger::enter(rows, now, &request))
    }

    pub(crate) fn beat(&self, now: Now<'_>, request: &Beat) -> Outcome<Answer> {
        let request = request.clone();
        self.step(now, move |rows, now| ledger::beat(rows, now, &request))
    }

    pub(crate) fn leave(&self, now: Now<'_>, request: &Leave) -> Outcome<Left> {
        let request = *request;
        self.step(now, move |rows, now| ledger::leave(rows, now, &request))
    }

    pub(crate) fn evict(&self, now: Now<'_>, request: &Evict) -> Outcome<u64> {
        let request = *request;
        self.step(now, move |rows, now| ledger::evict(rows, now, &request))
    }

    pub(crate) fn look(&self, now: Now<'_>) -> Outcome<()> {
        self.step(now, |rows, now| ledger::look(rows, now))
    }

    /// The whole state as it is kept, without another step.
    pub(crate) fn book(&self) -> Book {
        self.store.book(&self.key).unwrap()
    }

    fn step<T: Send + 'static>(
        &self,
        now: Now<'_>,
        verb: impl FnOnce(&mut KeyRows<'_, '_>, Now<'_>) -> rusqlite::Result<Outcome<T>> + Send + 'static,
    ) -> Outcome<T> {
        let Now::Clock { mono_ms, wall_us } = now else { panic!("this engine has a clock") };
        self.clock.set(mono_ms, wall_us);
        let name = self.store.name(&self.key);
        self.store.run(move |engine| engine.step(&name, &|| false, verb)).unwrap()
    }
}

impl SqliteStore {
    /// Has the store's thread do something.
    fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Engine<'_>) -> Result<T> + Send + 'static) -> Result<T> {
        pollster::block_on(self.ask(move |engine, _| work(engine)))
    }

    /// A key's rows as plain data.
    pub(crate) fn book(&self, key: &Key) -> Result<Book> {
        let name = self.name(key);
        self.run(move |engine| {
            engine.transaction(&|| false, |sql, _| {
                let mut rows = KeyRows::load(sql, &name)?;
                let mut book = Book::default();
                let Ok(()) = rows.tickets()?.iter().try_for_each(|ticket| book.put(None, ticket));
                let Ok(()) = rows.tombstones().iter().try_for_each(|grave| book.bury(grave));
                *Rows::header(&mut book) = rows.header().clone();
                Ok(book)
            })
        })
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn token(number: u8) -> Token {
    Token::from_bytes([number; 16])
}

fn request(number: u8) -> Enter {
    Enter {
        token: token(number),
        session: SessionId(u64::from(number)),
        seq: 1,
        priority: 0,
        mode: Mode::Exclusive,
        terms: Terms::new(30_000),
        may_queue: true,
        owner: Arc::new(Owner { name: format!("worker {number}"), ..Owner::default() }),
    }
}

fn enter(store: &SqliteStore, name: &str, request: Enter) -> Answer {
    pollster::block_on(store.enter(&key(name), request)).unwrap()
}

fn fence(answer: Answer) -> u64 {
    match answer {
        Answer::Held(holding) => holding.fence,
        other => panic!("not held: {other:?}"),
    }
}

/// All names in a directory and below, with the bytes of files.
fn everything(directory: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        }
        let bytes = if path.is_file() { Some(std::fs::read(&path).unwrap()) } else { None };
        found.push((path, bytes));
    }
    found.sort();
    found
}
