//! Asking for a lease: the call with its options, and the future that waits.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::Ask;
use super::handle::Handle;
use super::hold::Hold;
use super::key::Key;
use super::lease::Lease;
use super::ticket::{Mode, Owner, Terms, Token};
use crate::clock::{Moment, millis};
use crate::{Error, Kind, Result, Worker};

/// The ttl of a lease that does not say otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The most slots of a key.
pub const MAX_SLOTS: u32 = 10_000;
/// The longest reason, in bytes: it is kept with the lease and shown to operators.
const MAX_WHY: usize = 1024;
/// How long a call that may not wait gives the store to answer.
const ROUND_TRIP: Duration = Duration::from_secs(10);

/// A call for a lease, or for [`Several`](super::Several) at once: options first, then `.await`, or `blocking` on a thread. Nothing happens before
/// the first poll.
///
/// ```
/// # use heirlock::{Locks, store::MemoryStore};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let lease = locks.lock("nightly").priority(10).ttl(Duration::from_secs(10)).timeout(Duration::from_millis(50)).await?;
/// # Ok(()) }
/// ```
///
/// # Asking again
/// Every call is its own owner, except those of an explicit [`Worker`]: one that asks for a key which it holds through the same session gets a lease
/// of the same hold at once, whatever its time limit. It has the same fence, slot, ttl, `max_hold` and reason: what the further call says of them is
/// checked, and changes nothing. `release` of one of them tells so ([`Released::StillHeld`](super::Released::StillHeld)); the key goes on with the
/// last, and all are lost together. After a loss, an eviction included, a call asks for a new hold.
///
/// | holds | asks for | gets |
/// |---|---|---|
/// | exclusive | exclusive or shared | the same lease, still exclusive |
/// | shared | shared | the same lease |
/// | shared | exclusive | `Deadlock`: it would wait for itself |
/// | one of n slots | one of n slots | the same slot |
/// | slots | another number of slots, or none; or the other way round | `Invalid`, as from the store |
///
/// If the worker's first call for the key still waits, the further one waits for how that comes out, and shares its lease; the table holds for it,
/// too, and whoever may not wait is told `Busy`. If the first call ends without a lease, or is dropped, the further one asks for itself, and queues
/// last.
///
/// Arms of a `join!` that should exclude each other are [forks](Worker::fork).
///
/// ```
/// # use heirlock::{Locks, Released, Worker, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let work = async {
///     let outer = locks.lock("ledger").await?;
///     let inner = locks.lock("ledger").await?;
///     assert_eq!(inner.fence(), outer.fence());
///     assert_eq!(inner.release().await?, Released::StillHeld);
///     assert_eq!(outer.release().await?, Released::InTime);
///     heirlock::Result::Ok(())
/// };
/// Worker::new("booking").run(work).await?;
/// # Ok(()) }
/// ```
#[must_use = "a call for a lease does nothing unless awaited"]
#[derive(Clone, Debug)]
pub struct Acquire<K = One> {
    pub(super) handle: Arc<Handle>,
    /// What is asked for.
    pub(super) keys: K,
    mode: Mode,
    ttl: Duration,
    renew_every: Option<Duration>,
    max_hold: Option<Duration>,
    lock_delay: Option<Duration>,
    hold_at_least: Option<Duration>,
    priority: Option<i32>,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    may_queue: bool,
    why: Option<String>,
    command: Option<String>,
    witness: Option<Witness>,
    site: &'static Location<'static>,
}

/// Who hears of each ticket.
#[derive(Clone)]
pub(crate) struct Witness(Arc<dyn Fn(Token) + Send + Sync>);

impl Witness {
    pub(crate) fn hear(&self, token: Token) {
        (self.0)(token);
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness(..)")
    }
}

/// What an [`Acquire`] of [`Locks::lock`](super::Locks::lock) asks for: one key.
#[derive(Clone, Debug)]
pub struct One(Result<Key, String>);

impl One {
    pub(crate) fn new(key: &str) -> One {
        // Told when it is awaited, like every other bad option.
        One(Key::new(key).map_err(|error| error.to_string()))
    }

    pub(super) fn key(&self) -> Result<Key> {
        self.0.clone().map_err(|what| Error::new(Kind::Invalid, what))
    }
}

/// What is asked for each key, and until when.
pub(super) struct Call {
    pub(super) ask: Ask,
    pub(super) until: Option<Moment>,
}

impl<K> Acquire<K> {
    pub(crate) fn new(handle: Arc<Handle>, keys: K, site: &'static Location<'static>) -> Acquire<K> {
        Acquire {
            handle,
            keys,
            mode: Mode::Exclusive,
            ttl: DEFAULT_TTL,
            renew_every: None,
            max_hold: None,
            lock_delay: None,
            hold_at_least: None,
            priority: None,
            timeout: None,
            deadline: None,
            may_queue: true,
            why: None,
            command: None,
            witness: None,
            site,
        }
    }

    /// Holds beside other readers.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Holds one of so many slots, 1 to 10,000; all who use the key must give the same number.
    pub fn slots(mut self, slots: u32) -> Self {
        self.mode = Mode::Slot(slots);
        self
    }

    /// How long the lease lives without renewal; 30 s unless said, rounded up to milliseconds, at least the store's
    /// [`min_ttl`](super::Store::min_ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often it is renewed; a third of the ttl unless said, and at most that.
    pub fn renew_every(mut self, interval: Duration) -> Self {
        self.renew_every = Some(interval);
        self
    }

    /// The longest that it is held, counted from the grant, however well it is renewed.
    pub fn max_hold(mut self, span: Duration) -> Self {
        self.max_hold = Some(span);
        self
    }

    /// If it expires, nobody gets the key for so long: time for a holder that lost it to notice.
    pub fn lock_delay(mut self, span: Duration) -> Self {
        self.lock_delay = Some(span);
        self
    }

    /// If it is released earlier, nobody gets the key until so long after the grant.
    pub fn hold_at_least(mut self, span: Duration) -> Self {
        self.hold_at_least = Some(span);
        self
    }

    /// The priority of this wait, instead of the worker's base; larger is more urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How long to wait, from the first poll, whatever happens meanwhile. Zero takes a free key and does not wait for a held one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Until when to wait. The nearest of this, the timeout and the worker's deadline counts.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Does not wait: `Busy` if the key is held, rests, or has a queue.
    pub fn no_wait(mut self) -> Self {
        self.may_queue = false;
        self
    }

    /// Why it is wanted, in at most 1,024 bytes: shown to operators.
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The program that it is for, if not this one: shown to operators. Its name only, arguments can carry secrets.
    pub fn command(mut self, program: impl Into<String>) -> Self {
        self.command = Some(program.into());
        self
    }

    /// Tells the secret of each ticket that the call makes, before the store hears of it: with it another process, which outlives this one, can give
    /// back the place in the queue or the lease by a [`Leave`](super::Leave). `settled` is false there as long as the call may still be on its way.
    ///
    /// ```
    /// # use heirlock::{Locks, store::MemoryStore};
    /// # use std::sync::mpsc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// let (sender, tickets) = mpsc::channel();
    /// let lease = locks.lock("nightly").on_ticket(move |token| drop(sender.send(token))).await?;
    /// assert_eq!(tickets.recv().ok(), Some(lease.token()));
    /// # Ok(()) }
    /// ```
    pub fn on_ticket(mut self, hear: impl Fn(Token) + Send + Sync + 'static) -> Self {
        self.witness = Some(Witness(Arc::new(hear)));
        self
    }

    /// Checks the options.
    fn ask(&self, key: Key, worker: Option<Worker>, patience: Option<Duration>) -> Result<Ask> {
        let ttl = millis("ttl", self.ttl)?;
        let min_ttl = self.handle.session.store.min_ttl();
        if self.ttl < min_ttl {
            return Err(Error::new(Kind::Invalid, format!("a ttl of {:?} is too short: this store keeps at least {min_ttl:?}", self.ttl)));
        }
        if let Mode::Slot(slots) = self.mode
            && !(1..=MAX_SLOTS).contains(&slots)
        {
            return Err(Error::new(Kind::Invalid, format!("{slots} slots: give 1 to {MAX_SLOTS}")));
        }
        let third = self.ttl / 3;
        let renew_every = self.renew_every.unwrap_or(third);
        if renew_every.is_zero() || renew_every > third {
            return Err(Error::new(Kind::Invalid, format!("renewing every {renew_every:?} is not within a third of the ttl, {third:?}")));
        }
        let option = |what, span: Option<Duration>| span.map(|span| millis(what, span)).transpose();
        let terms = Terms {
            max_hold: option("max_hold", self.max_hold)?,
            lock_delay: option("lock_delay", self.lock_delay)?,
            hold_at_least: option("hold_at_least", self.hold_at_least)?,
            ..Terms::new(ttl)
        };
        if let Some(timeout) = self.timeout.filter(|timeout| !timeout.is_zero()) {
            millis("timeout", timeout)?;
        }
        if let Some(why) = self.why.as_ref().filter(|why| why.len() > MAX_WHY) {
            return Err(Error::new(Kind::Invalid, format!("a reason has at most {MAX_WHY} bytes, and this has {}: shorten it", why.len())));
        }
        // What is over already takes a free key, and does not wait for a held one.
        let at_once = patience.is_some_and(|span| span.is_zero());
        let owner = self.owner(worker.as_ref());
        let (mode, priority, witness) = (self.mode, self.priority, self.witness.clone());
        let may_queue = self.may_queue && !at_once;
        Ok(Ask { key, mode, terms, may_queue, busy_is_timeout: at_once && self.may_queue, renew_every, priority, worker, owner, witness })
    }

    fn owner(&self, worker: Option<&Worker>) -> Arc<Owner> {
        let process = &self.handle.process;
        let id = worker.map_or(0, |worker| worker.id().get());
        let name = worker.map_or(process.name.as_str(), Worker::name);
        let command = self.command.as_ref().or(process.command.as_ref());
        let is_last =
            |owner: &Owner| (owner.worker, owner.name.as_str(), owner.command.as_ref(), &owner.why) == (id, name, command, &self.why);
        self.handle.owner(self.site, is_last, || Owner {
            worker: id,
            name: name.to_owned(),
            host: process.host.clone(),
            pid: process.pid,
            command: command.cloned(),
            why: self.why.clone(),
            site: Some(format!("{}:{}", self.site.file(), self.site.line())),
        })
    }

    /// How long to wait: the nearest of the call's and the worker's. Zero if that is over already.
    fn patience(&self, worker: Option<&Worker>) -> Option<Duration> {
        let instants = self.deadline.into_iter().chain(worker.and_then(Worker::current_deadline));
        instants.map(|instant| instant.saturating_duration_since(Instant::now())).chain(self.timeout).min()
    }

    /// What is asked for this key, by who polls, from now on.
    pub(super) fn call(&self, key: Key) -> Result<Call> {
        self.handle.session.check_process()?;
        let worker = Worker::current();
        let patience = self.patience(worker.as_ref());
        let ask = self.ask(key, worker, patience)?;
        // A call that may not wait still has to hear the store's answer.
        let patience = if ask.may_queue { patience } else { Some(patience.filter(|span| !span.is_zero()).unwrap_or(ROUND_TRIP)) };
        let until = patience.map(|span| self.handle.session.clock.now() + span);
        Ok(Call { ask, until })
    }
}

impl Acquire {
    /// Waits on this thread instead of in a task.
    ///
    /// # Errors
    /// As awaiting it.
    pub fn blocking(self) -> Result<Lease> {
        pollster::block_on(self.into_future())
    }

    async fn run(self) -> Result<Lease> {
        let Call { ask, until } = self.call(self.keys.key()?)?;
        let (hold, holding) = Hold::take(&self.handle, ask, until).await?;
        Ok(Lease::new(hold, holding))
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Lease>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Lease>> + Send>>;

    /// # Errors
    /// `Busy`, `Timeout`, `Invalid` (an option, or the key is in use with other slots), `Deadlock` (its worker shares the key, and asks for it alone),
    /// `Closed`, `Evicted` (before it was claimed), `Lost` (its place in the queue), `Unreachable` or `Storage` (the store, at the deadline),
    /// `Incompatible`.
    ///
    /// # Cancel safety
    /// Dropped at any moment, it withdraws: no lock and no place in a queue is left behind. The store is told in the background, as it is after a
    /// timeout: for a moment after it, others may still find the key busy.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
