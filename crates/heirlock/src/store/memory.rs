//! The memory store: the ledger in a map. For the tasks of one process, and the measure that the other stores are compared with.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::Result;
use crate::clock::{BootClock, Clock, wall_micros};
use crate::lease::ledger::{self, Now};
use crate::lease::{
    Answer, Beat, Book, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, Notice, Outcome, Pending, SessionId, Sink, Store, Told,
};
use crate::sync::lock;

/// How many steps are done between two sweeps of idle keys.
const SWEEP_EVERY: u32 = 1024;

/// A store within this process. Clones share it.
///
/// ```
/// use heirlock::{Locks, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// let locks = Locks::new(MemoryStore::new()).await?;
/// let lease = locks.lock("cache").await?;
/// assert!(lease.is_valid());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    name: String,
    clock: Arc<dyn Clock>,
    keys: Mutex<Keys>,
    sinks: Mutex<HashMap<SessionId, Sink>>,
}

#[derive(Default)]
struct Keys {
    books: BTreeMap<Key, Book>,
    /// The highest fence of the keys that were dropped as idle: a new key starts above it.
    floor: u64,
    steps: u32,
}

impl MemoryStore {
    /// A new, empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(Arc::new(BootClock))
    }

    /// A new, empty store whose time is this clock's.
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore::build(String::new(), clock)
    }

    /// The store of this name in this process, made by the first who asks for it.
    pub fn named(name: &str) -> MemoryStore {
        static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
        let mut stores = lock(&STORES);
        let make = || MemoryStore::build(name.to_owned(), Arc::new(BootClock));
        stores.entry(name.to_owned()).or_insert_with(make).clone()
    }

    fn build(name: String, clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore(Arc::new(Inner { name, clock, keys: Mutex::default(), sinks: Mutex::default() }))
    }

    fn now(&self) -> Now<'static> {
        Now::Clock { mono_ms: self.0.clock.now().as_nanos() / 1_000_000, wall_us: wall_micros() }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        lock(&self.0.keys)
    }

    /// One step on a key; hints go out after the lock is let go.
    fn step<T>(&self, key: &Key, verb: impl FnOnce(&mut Book, Now<'static>) -> Result<Outcome<T>, Infallible>) -> T {
        let outcome = {
            let mut keys = self.keys();
            // The time is read under the lock: a later step never has an earlier time.
            let now = self.now();
            keys.sweep(now);
            let floor = keys.floor;
            let book = keys.books.entry(key.clone()).or_insert_with(|| Book::with_floor(floor));
            let Ok(outcome) = verb(book, now);
            outcome
        };
        self.tell(key, outcome.told);
        outcome.answer
    }

    fn tell(&self, key: &Key, told: Vec<Told>) {
        for Told { session, news, .. } in told {
            let sink = lock(&self.0.sinks).get(&session).cloned();
            if let Some(sink) = sink {
                sink(Notice { key: key.clone(), news });
            }
        }
    }

    /// What is kept of a key.
    pub fn book(&self, key: &Key) -> Option<Book> {
        self.keys().books.get(key).cloned()
    }

    /// How many keys are kept.
    pub fn key_count(&self) -> usize {
        self.keys().books.len()
    }
}

impl Keys {
    /// Now and then drops the keys of which only the last fence is left.
    fn sweep(&mut self, now: Now<'_>) {
        self.steps += 1;
        if self.steps < SWEEP_EVERY.max(u32::try_from(self.books.len()).unwrap_or(u32::MAX)) {
            return;
        }
        self.steps = 0;
        let floor = &mut self.floor;
        self.books.retain(|_, book| {
            if book.header().live() == 0 {
                let Ok(_) = ledger::look(book, now);
            }
            if book.header().is_idle() {
                *floor = (*floor).max(book.header().last_fence);
            }
            !book.header().is_idle()
        });
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

/// An answer that is there at once.
fn at_once<'a, T: Send + 'a>(answer: T) -> Pending<'a, T> {
    Box::pin(ready(Ok(answer)))
}

impl Store for MemoryStore {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        Box::pin(async move { Ok(self.step(key, |book, now| ledger::enter(book, now, &request))) })
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        Box::pin(async move {
            let one = |(key, request): (Key, Beat)| Ok(self.step(&key, |book, now| ledger::beat(book, now, &request)));
            Ok(requests.into_iter().map(one).collect())
        })
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        Box::pin(async move { Ok(self.step(key, |book, now| ledger::leave(book, now, &request))) })
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        Box::pin(async move { Ok(self.step(key, |book, now| ledger::evict(book, now, &request))) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        Box::pin(async move {
            Ok(self.step(key, |book, now| {
                let told = ledger::look(book, now)?.told;
                Ok(Outcome { answer: view(key.clone(), book, now), told })
            }))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        Box::pin(async move {
            let from = (Bound::Included(prefix), Bound::Unbounded);
            let names: Vec<Key> = self
                .keys()
                .books
                .range::<str, _>(from)
                .map(|(key, _)| key.clone())
                .take_while(|key| key.as_str().starts_with(prefix))
                .collect();
            let mut views = Vec::new();
            for key in names {
                let view = self.inspect(&key).await?;
                if !view.holders.is_empty() || !view.queue.is_empty() || view.resting_ms.is_some() {
                    views.push(view);
                }
            }
            Ok(views)
        })
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        lock(&self.0.sinks).insert(session, sink);
        at_once(())
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        lock(&self.0.sinks).remove(&session);
        at_once(())
    }

    fn min_ttl(&self) -> Duration {
        Duration::from_millis(50)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::LOCAL
    }

    fn url(&self) -> String {
        format!("memory:{}", self.0.name)
    }
}

fn view(key: Key, book: &Book, now: Now<'_>) -> KeyView {
    let now_ms = match now {
        Now::Clock { mono_ms, .. } => mono_ms,
        Now::Liveness { .. } => 0,
    };
    let rest = book.header().rests.iter().filter(|rest| rest.slot.is_none()).map(|rest| rest.until_ms).max();
    KeyView::of(key, book.header().last_fence, rest, book.tickets().cloned().collect(), now_ms)
}
