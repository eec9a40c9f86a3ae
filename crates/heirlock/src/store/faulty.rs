//! A store that fails on purpose: it wraps any other and drops, delays, duplicates and hangs requests and replies.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_channel::oneshot;

use crate::lease::{
    Answer, Beat, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, News, Notice, Pending, SessionId, Sink, Spawner, Store,
};
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// One thing that goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing goes wrong.
    Pass,
    /// The request never arrives; the caller learns that the connection is gone.
    LoseRequest,
    /// The request is carried out; the caller learns only that the connection is gone.
    LoseReply,
    /// The request never arrives, and the caller is told nothing until [`Faulty::heal`], which cuts the connection.
    HangRequest,
    /// The request is carried out, and the caller is told nothing until [`Faulty::heal`], which cuts the connection.
    HangReply,
    /// The request is carried out twice; the caller gets the second answer.
    Duplicate,
    /// The caller learns that the connection is gone; the request arrives so much later.
    ArriveLate(Duration),
    /// The answer takes so long.
    SlowReply(Duration),
}

/// The verbs that faults can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// [`Store::enter`].
    Enter,
    /// [`Store::beat`].
    Beat,
    /// [`Store::leave`].
    Leave,
}

/// How many requests of each kind were made, and how many notices came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `enter`.
    pub enters: u64,
    /// Calls of `beat`.
    pub beats: u64,
    /// Calls of `leave`.
    pub leaves: u64,
    /// Notices that came from the store, cut off ones included.
    pub notices: u64,
    /// Those of them that told of a grant.
    pub granted: u64,
    /// Requests that [`Fault::ArriveLate`] delayed and that the store has answered since.
    pub late: u64,
}

/// A store whose faults are set by the test: see [`Fault`].
///
/// ```
/// use heirlock::{Locks, store::{Fault, Faulty, MemoryStore, Point}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// let store = Faulty::new(MemoryStore::new());
/// store.next(Point::Enter, [Fault::LoseReply]);
/// let lease = Locks::new(store.clone()).await?.lock("k").await?;
/// assert_eq!(store.counts().enters, 2, "the first reply was lost, so the request was sent again");
/// # Ok(()) }
/// ```
pub struct Faulty<S>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    plan: Mutex<Plan>,
    /// What hangs: it ends when these are dropped.
    hung: Mutex<Vec<oneshot::Sender<()>>>,
    enters: AtomicU64,
    beats: AtomicU64,
    leaves: AtomicU64,
    notices: AtomicU64,
    granted: AtomicU64,
    late: AtomicU64,
}

#[derive(Default)]
struct Plan {
    /// Used up one by one, per verb.
    next: [VecDeque<Fault>; 3],
    /// Used when the above is empty.
    always: [Option<Fault>; 3],
    deaf: bool,
}

impl<S: Store> Faulty<S> {
    /// Wraps the store; nothing goes wrong yet.
    pub fn new(store: S) -> Faulty<S> {
        Faulty(Arc::new(Inner {
            store,
            plan: Mutex::default(),
            hung: Mutex::default(),
            enters: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            leaves: AtomicU64::new(0),
            notices: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }))
    }

    /// The next requests of this verb fail so, one after the other.
    pub fn next(&self, point: Point, faults: impl IntoIterator<Item = Fault>) {
        self.plan(|plan| plan.next[point as usize].extend(faults));
    }

    /// All further requests of this verb fail so, once those of [`Faulty::next`] are used up.
    pub fn always(&self, point: Point, fault: Fault) {
        self.plan(|plan| plan.always[point as usize] = Some(fault));
    }

    /// Cuts notices off, or lets them through again.
    pub fn set_deaf(&self, deaf: bool) {
        self.plan(|plan| plan.deaf = deaf);
    }

    /// Cuts the session off: no further request arrives, no notice comes, and its user is told nothing. To the store it is dead.
    pub fn cut_off(&self) {
        self.plan(|plan| *plan = Plan { always: [Some(Fault::HangRequest); 3], deaf: true, ..Plan::default() });
    }

    /// Ends all faults; what hangs fails.
    pub fn heal(&self) {
        self.plan(|plan| *plan = Plan::default());
        // Dropped after the mutex is let go: that wakes who waits for them.
        let hung = std::mem::take(&mut *lock(&self.0.hung));
        drop(hung);
    }

    /// What has been asked so far.
    pub fn counts(&self) -> Counts {
        Counts {
            enters: self.0.enters.load(Ordering::SeqCst),
            beats: self.0.beats.load(Ordering::SeqCst),
            leaves: self.0.leaves.load(Ordering::SeqCst),
            notices: self.0.notices.load(Ordering::SeqCst),
            granted: self.0.granted.load(Ordering::SeqCst),
            late: self.0.late.load(Ordering::SeqCst),
        }
    }

    /// The store within.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    fn plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut lock(&self.0.plan))
    }

    fn fault(&self, point: Point) -> Fault {
        self.plan(|plan| plan.next[point as usize].pop_front().or(plan.always[point as usize])).unwrap_or(Fault::Pass)
    }

    async fn hang(&self) -> Error {
        let (ends, end) = oneshot::channel();
        lock(&self.0.hung).push(ends);
        // Nothing is ever sent: it ends when the other side is dropped.
        let _ = end.await;
        cut()
    }

    /// Sends a request with its fault. `send` makes the request anew each time, on a handle that lives as long as need be.
    async fn through<T, F>(&self, point: Point, send: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> Fn(&'s S) -> Pending<'s, T> + Send + 'static,
    {
        let store = &self.0.store;
        match self.fault(point) {
            Fault::Pass => send(store).await,
            Fault::LoseRequest => Err(cut()),
            Fault::LoseReply => send(store).await.and(Err(cut())),
            Fault::HangRequest => Err(self.hang().await),
            Fault::HangReply => {
                send(store).await?;
                Err(self.hang().await)
            }
            Fault::Duplicate => {
                send(store).await?;
                send(store).await
            }
            Fault::ArriveLate(delay) => {
                let inner = Arc::clone(&self.0);
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    // Nobody waits for the answer.
                    drop(pollster::block_on(send(&inner.store)));
                    inner.late.fetch_add(1, Ordering::SeqCst);
                });
                Err(cut())
            }
            Fault::SlowReply(delay) => {
                let answer = send(store).await;
                sleep(delay).await;
                answer
            }
        }
    }
}

/// A pause that needs no runtime.
async fn sleep(span: Duration) {
    let (done, waits) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        std::thread::sleep(span);
        // The caller may have gone.
        let _ = done.send(());
    });
    let _ = waits.await;
}

fn cut() -> Error {
    Error::new(Kind::Unreachable, "the connection was cut on purpose")
}

impl<S> Clone for Faulty<S> {
    fn clone(&self) -> Self {
        Faulty(Arc::clone(&self.0))
    }
}

impl<S: Store> Store for Faulty<S> {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        self.0.enters.fetch_add(1, Ordering::SeqCst);
        let key = key.clone();
        Box::pin(self.through(Point::Enter, move |store| {
            let (key, request) = (key.clone(), request.clone());
            Box::pin(async move { store.enter(&key, request).await })
        }))
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        self.0.beats.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.through(Point::Beat, move |store| store.beat(requests.clone())))
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        self.0.leaves.fetch_add(1, Ordering::SeqCst);
        let key = key.clone();
        Box::pin(self.through(Point::Leave, move |store| {
            let key = key.clone();
            Box::pin(async move { store.leave(&key, request).await })
        }))
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        self.0.store.evict(key, request)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        self.0.store.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        self.0.store.list(prefix)
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        let inner = Arc::clone(&self.0);
        let filter = move |notice: Notice| {
            inner.notices.fetch_add(1, Ordering::SeqCst);
            inner.granted.fetch_add(u64::from(notice.news == News::Granted), Ordering::SeqCst);
            if !lock(&inner.plan).deaf {
                sink(notice);
            }
        };
        self.0.store.notices(session, Arc::new(filter))
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        self.0.store.goodbye(session)
    }

    fn min_ttl(&self) -> Duration {
        self.0.store.min_ttl()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.store.capabilities()
    }

    fn warnings(&self) -> Pending<'_, Vec<String>> {
        self.0.store.warnings()
    }

    fn spawner(&self) -> Option<Spawner> {
        self.0.store.spawner()
    }

    fn url(&self) -> String {
        self.0.store.url()
    }
}
