//! The trait that every store implements, and its contract.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::key::Key;
use super::ticket::{BlockedOn, Mode, Owner, SessionId};
use super::verb::{Answer, Beat, Enter, Evict, Leave, Left, News};
use crate::Result;

/// A future of a store, free of any runtime: it may be polled on any thread, and dropping it says nothing about whether the request is carried
/// out.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Where a session's hints go. Called on the store's own thread; it must not block.
pub type Sink = Arc<dyn Fn(Notice) + Send + Sync>;

/// Something to be done on a thread of a store's own; it never stands still.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Gives work to a store's own thread. What that cannot do any more, it drops.
pub type Spawner = Arc<dyn Fn(Work) + Send + Sync>;

/// A hint: something about this key has changed for one of this session's tickets. It has no authority, and losing one costs time only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The key.
    pub key: Key,
    /// What has changed.
    pub news: News,
}

/// What an engine can do beyond the three verbs.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether other processes can reach it.
    pub shared: bool,
    /// Whether leases survive the restart of the store.
    pub durable: bool,
    /// Whether it sends notices at all.
    pub notices: bool,
}

impl Capabilities {
    /// Of a store within one process, of which nothing outlives it.
    pub const LOCAL: Capabilities = Capabilities { shared: false, durable: false, notices: true };
    /// Of a store that other processes share and that keeps leases across a restart.
    pub const DURABLE: Capabilities = Capabilities { shared: true, durable: true, notices: true };
}

/// An engine that keeps leases.
///
/// The verbs do what [`ledger`](super::ledger) does, each atomically per key, durable before it is answered, in one round trip, and judge all time by
/// the store's clock, never by the client's. All of them
/// - *may be repeated*: the token makes them idempotent;
/// - *fail* with a transient kind ([`Kind::is_transient`](crate::Kind::is_transient)) where the request may or may not have been carried out; the
///   caller sends it again with a new sequence number, or withdraws;
/// - *may be dropped* while they wait: that gives up the answer, not the request.
///
/// The suite in `heirlock::conformance` (feature `conformance`) checks all of this for any store.
pub trait Store: Send + Sync + 'static {
    /// Asks for a key.
    ///
    /// *Requires* a sequence number above that of every request sent for the ticket, retries included; a ttl of at least [`Store::min_ttl`].
    /// *Does* queue a new ticket by (priority, arrival) and promote; on a live ticket, what a beat does; on one that has ended, nothing.
    /// *Answers* `Held` if nobody is before it, `Queued`, `Busy` if it may not queue, `Mismatch` if the key is in use with other slots, `Gone` if it
    /// had ended.
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer>;

    /// Beats many tickets in one round trip, on whatever keys.
    ///
    /// *Requires* at most 256 of them, each with a sequence number above that of every request sent for the ticket.
    /// *Does* renew what is held and not revoked, claim what is granted, keep alive what is queued; take over priority and what the owner waits for.
    /// *Answers* per ticket, in their order, as `enter`. One that fails does not fail the others, unless the store as a whole cannot be reached.
    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>>;

    /// Releases or withdraws.
    ///
    /// *Requires* that [`Leave::settled`] is true only if no `enter` of the ticket can still arrive.
    /// *Does* end the ticket whatever came before, hand its key on in the same step, and tell the next.
    /// *Answers* what the ticket was; a repeated `leave` repeats its answer; what is not known leaves a tombstone, so that a late `enter` finds it gone.
    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left>;

    /// Takes a key away from its holders.
    ///
    /// *Requires* nothing of the caller: it is an operator's.
    /// *Does* mark the holders (those with the fence, if one is named) as revoked, which keeps the key exclusive until they leave or expire; end those
    /// that have not claimed; with `force`, end all now, or, with the fence 0, which no holder has, all rests.
    /// *Answers* how many it met, holders and rests that it ended.
    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64>;

    /// One key as operators see it.
    ///
    /// *Requires* nothing. *Does* look first, so that what has expired is neither shown nor in the way.
    /// *Answers* holders and queue in order, without tokens; nobody, for a key that is not in use.
    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView>;

    /// The keys in use whose names start so.
    ///
    /// *Requires* nothing; no character of the prefix has a meaning. *Does* look at each key. The list is no snapshot of one moment.
    /// *Answers* as `inspect`, in order of name.
    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>>;

    /// Asks for hints.
    ///
    /// *Requires* that the sink does not block.
    /// *Does* send the hints for this session's tickets to the sink from now on, instead of to an earlier one. Hints may be lost, doubled and late.
    /// *Answers* when it listens.
    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()>;

    /// The session is over.
    ///
    /// *Requires* nothing. *Does* end its hints and forget where they went; its tickets stay until they leave or expire.
    /// *Answers* when that is done.
    fn goodbye(&self, session: SessionId) -> Pending<'_, ()>;

    /// The shortest ttl that this store can keep. *Answers* the same each time.
    fn min_ttl(&self) -> Duration;

    /// What it can do. *Answers* the same each time.
    fn capabilities(&self) -> Capabilities;

    /// What of its set-up can lose locks, as far as it can see: for an operator.
    ///
    /// *Requires* nothing. *Does* nothing to the leases. *Answers* with one sentence for each thing, that says what to do; nothing unless the store says
    /// otherwise.
    fn warnings(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// A way to the thread on which hints and answers come in, if there is one that can do more than that: whoever hears there that it may have been
    /// granted the key asks there, and is told there, without a change of thread.
    ///
    /// *Requires* nothing. *Does* nothing. *Answers* the same each time; with none unless the store says otherwise.
    fn spawner(&self) -> Option<Spawner> {
        None
    }

    /// Its address as operators see it, without any password; as far as it has none, a URL that leads to the same store again.
    fn url(&self) -> String;
}

/// A shared store is a store.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        (**self).enter(key, request)
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        (**self).beat(requests)
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        (**self).leave(key, request)
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        (**self).evict(key, request)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        (**self).inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        (**self).list(prefix)
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        (**self).notices(session, sink)
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        (**self).goodbye(session)
    }

    fn min_ttl(&self) -> Duration {
        (**self).min_ttl()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn warnings(&self) -> Pending<'_, Vec<String>> {
        (**self).warnings()
    }

    fn spawner(&self) -> Option<Spawner> {
        (**self).spawner()
    }

    fn url(&self) -> String {
        (**self).url()
    }
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.url())
    }
}

/// One key as operators see it: no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: Key,
    /// The tickets granted and held, the earliest grant first.
    pub holders: Vec<HolderView>,
    /// The queue in serving order.
    pub queue: Vec<WaiterView>,
    /// The fence minted last.
    pub last_fence: u64,
    /// How long the whole key rests yet, in milliseconds.
    pub resting_ms: Option<u64>,
}

/// A holder as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// Who.
    pub owner: Arc<Owner>,
    /// Of which session.
    pub session: SessionId,
    /// How.
    pub mode: Mode,
    /// In which slot.
    pub slot: Option<u32>,
    /// With which fence.
    pub fence: u64,
    /// Whether it knows.
    pub claimed: bool,
    /// Milliseconds since the grant.
    pub since_ms: u64,
    /// Milliseconds until it expires unless renewed.
    pub expires_in_ms: u64,
    /// Its own priority.
    pub priority: i32,
    /// With what it inherits.
    pub effective: i32,
    /// Whether an operator wants it back.
    pub revoked: bool,
    /// What its owner waits for outside this store.
    pub blocked: Option<BlockedOn>,
}

/// A waiter as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Who.
    pub owner: Arc<Owner>,
    /// Of which session.
    pub session: SessionId,
    /// How it wants to hold.
    pub mode: Mode,
    /// Its priority.
    pub priority: i32,
    /// Milliseconds since it entered.
    pub waiting_ms: u64,
    /// What its owner waits for outside this store.
    pub blocked: Option<BlockedOn>,
}

impl KeyView {
    /// Makes the view of a key from its tickets, after a look, at the store's instant.
    pub fn of(key: Key, last_fence: u64, resting_until: Option<u64>, tickets: Vec<super::Ticket>, now_ms: u64) -> KeyView {
        let (mut holders, mut queue): (Vec<_>, Vec<_>) = tickets.into_iter().partition(super::Ticket::holds);
        holders.sort_by_key(|ticket| (ticket.granted_ms, ticket.arrival));
        queue.sort_by_key(super::Ticket::rank);
        let top = queue.first().map_or(i32::MIN, |head| head.priority);
        KeyView {
            key,
            holders: holders
                .into_iter()
                .map(|ticket| HolderView {
                    session: ticket.session,
                    mode: ticket.mode,
                    slot: ticket.mode.slots().map(|_| ticket.slot),
                    fence: ticket.fence,
                    claimed: ticket.state == super::State::Held,
                    since_ms: now_ms.saturating_sub(ticket.granted_ms),
                    expires_in_ms: ticket.due_ms.saturating_sub(now_ms),
                    priority: ticket.priority,
                    effective: ticket.priority.max(top),
                    revoked: ticket.revoked,
                    blocked: ticket.blocked,
                    owner: ticket.owner,
                })
                .collect(),
            queue: queue
                .into_iter()
                .map(|ticket| WaiterView {
                    session: ticket.session,
                    mode: ticket.mode,
                    priority: ticket.priority,
                    waiting_ms: now_ms.saturating_sub(ticket.entered_ms),
                    blocked: ticket.blocked,
                    owner: ticket.owner,
                })
                .collect(),
            last_fence,
            resting_ms: resting_until.map(|until| until.saturating_sub(now_ms)),
        }
    }
}
