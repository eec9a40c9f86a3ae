//! Domains: locks that are looked at together.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex as StdMutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::core::{Core, Due, Tracking, Wakes};
use super::graph::{DeadlockPolicy, Graph, Order};
use super::raw::bypass_limit;
use super::sync::{Mutex, lock};
use super::timer;
use crate::Worker;
use crate::clock::{BootClock, Clock, Moment};
use crate::observe::Snapshot;
use crate::sync::lock as lock_std;

/// Locks with one wait-for graph: chains of inheritance and cycles of waits are seen within it, and end at its edge.
///
/// A clone is another handle to the same domain. A lock belongs to the [global](Domain::global) one unless it is told otherwise.
///
/// ```
/// use heirlock::local::{Domain, Mutex};
/// let domain = Domain::builder().build();
/// let lock = Mutex::new(7).in_domain(&domain);
/// assert_eq!(*pollster::block_on(lock.lock()).unwrap(), 7);
/// ```
#[derive(Clone)]
pub struct Domain(Arc<Inner>);

pub(super) struct Inner {
    /// The one mutex. No foreign code runs under it: no waker, no clock but for `now`, no destructor of a user's.
    core: Mutex<Core>,
    clock: Box<dyn Clock>,
    policy: DeadlockPolicy,
    order: Order,
    bypass: Option<NonZeroU32>,
    stall_time: Duration,
    /// Whether the graph is told of all holds, and when.
    tracks: bool,
    /// The same moment on the domain's clock and as an `Instant`, so that equal deadlines stay equal.
    anchor: OnceLock<(Moment, Instant)>,
}

/// All domains, for what concerns a worker wherever it is.
static ALL: StdMutex<Vec<Weak<Inner>>> = StdMutex::new(Vec::new());

impl Domain {
    /// A new domain, apart from all others.
    pub fn builder() -> Builder {
        Builder {
            policy: DeadlockPolicy::default(),
            order: Order::Priority,
            bypass: None,
            stall_time: Duration::from_secs(1),
            trust_tasks: false,
            warn_after: None,
            check_order: false,
            clock: Box::new(BootClock),
        }
    }

    /// The domain of all locks that were not put into another.
    pub fn global() -> &'static Domain {
        static GLOBAL: LazyLock<Domain> = LazyLock::new(|| Domain::builder().build());
        &GLOBAL
    }

    /// What is done about a cycle of waits.
    pub fn deadlock_policy(&self) -> DeadlockPolicy {
        self.0.policy
    }

    /// How long a granted lock may lie untaken before the next waiter takes it over; a fiftieth of it (a millisecond at least) where its worker has gone
    /// on with another future for the lock.
    pub fn stall_time(&self) -> Duration {
        self.0.stall_time
    }

    /// Who holds and who waits, at this moment: prints as text, serialises to JSON, and [draws](Snapshot::to_dot).
    ///
    /// It shows what the domain knows, and touches no lock: a lock for which nobody has had to wait since it was free is not shown, and a hold counts
    /// from when somebody first waited for it or looked. In a domain that tracks its holds, which [`warn_after`](Builder::warn_after) and
    /// [`check_order`](Builder::check_order) make it do, all locks are shown that are held, since when they are.
    ///
    /// ```
    /// use heirlock::{Worker, local::{Domain, Mutex}};
    /// use std::time::Duration;
    /// let domain = Domain::builder().warn_after(Duration::from_secs(5)).build();
    /// let lock = Mutex::named("db", ()).in_domain(&domain);
    /// let guard = Worker::new("import").scope(|| lock.try_lock()).unwrap();
    /// let snapshot = domain.snapshot();
    /// assert_eq!(snapshot.locks[0].holders[0].party.worker.name, "import");
    /// assert!(snapshot.to_string().starts_with("db (mutex)\n  held by  import  priority 0"), "{snapshot}");
    /// # drop(guard);
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let (now, about) = (self.clock().now(), self.about_now());
        self.event(|core| core.picture(now, about)).develop()
    }

    /// For tests: how many records of holds, waits and who has them there are. None is left where nobody holds or waits.
    #[doc(hidden)]
    pub fn records(&self) -> [usize; 7] {
        self.waking(Core::records)
    }

    pub(super) fn order(&self) -> Order {
        self.0.order
    }

    pub(super) fn bypass(&self) -> Option<NonZeroU32> {
        self.0.bypass
    }

    pub(super) fn tracks(&self) -> bool {
        self.0.tracks
    }

    pub(super) fn from_inner(inner: Arc<Inner>) -> Domain {
        Domain(inner)
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }

    /// The time by which holds and waits are said to have begun: exact where holds are tracked.
    pub(super) fn about_now(&self) -> Moment {
        if self.0.tracks { self.clock().now() } else { self.clock().coarse() }
    }

    /// Runs one event. Whoever it concerns is woken when the mutex has been released.
    pub(super) fn event<R>(&self, event: impl FnOnce(&mut Core) -> R) -> R {
        self.waking(|core, _| event(core))
    }

    fn waking<R>(&self, event: impl FnOnce(&mut Core, &mut Wakes) -> R) -> R {
        // Declared before the guard, and so dropped after it.
        let mut wakes = Wakes::default();
        let now = self.0.tracks.then(|| self.clock().now());
        let mut core = lock(&self.0.core);
        core.begin(now);
        let result = event(&mut core, &mut wakes);
        core.settle(|| self.about_now(), &mut wakes);
        let (rings, reports) = (core.rings(), core.take_reports());
        drop(core);
        if let Some(came) = rings {
            timer::ring(came.then(|| Arc::downgrade(&self.0)));
        }
        drop(wakes);
        for report in reports {
            report.trace();
        }
        result
    }

    /// Ends what has expired; when to come again. The timer's, and a model's, which has none.
    #[doc(hidden)]
    pub fn expire(&self) -> Option<Moment> {
        loop {
            let due = self.waking(|core, wakes| core.expire(self.clock().now(), self.about_now(), wakes));
            if let Due::Next(next) = due {
                return next;
            }
        }
    }

    /// A deadline on the domain's clock, the same for the same instant: it orders.
    pub(super) fn rank_of(&self, deadline: Instant) -> u64 {
        let (moment, instant) = *self.0.anchor.get_or_init(|| (self.clock().now(), Instant::now()));
        let moment = match deadline.checked_duration_since(instant) {
            Some(later) => moment + later,
            None => moment.before(instant.saturating_duration_since(deadline)),
        };
        moment.as_nanos()
    }
}

/// A worker's base priority was changed: every domain in which it takes part follows.
pub(crate) fn rebase(worker: &Worker) {
    for domain in all() {
        domain.event(|core| {
            if let Some(key) = core.worker(worker.id().get()) {
                // Read here: of two changes at once, the one that is seen last is the one that stands.
                core.graph.set_base(key, worker.own_priority(), &mut core.effects);
            }
        });
    }
}

/// The highest priority that a worker inherits anywhere.
pub(crate) fn effective_priority(worker: u64) -> Option<i32> {
    let effective = |domain: Domain| domain.event(|core| core.worker(worker).and_then(|worker| core.graph.effective_priority(worker)));
    all().into_iter().filter_map(effective).max()
}

fn all() -> Vec<Domain> {
    lock_std(&ALL).iter().filter_map(Weak::upgrade).map(Domain).collect()
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("policy", &self.0.policy).field("stall_time", &self.0.stall_time).finish_non_exhaustive()
    }
}

impl PartialEq for Domain {
    /// Whether both are handles to the same domain.
    fn eq(&self, other: &Domain) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Domain {}

/// Makes a [`Domain`].
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    policy: DeadlockPolicy,
    order: Order,
    bypass: Option<NonZeroU32>,
    stall_time: Duration,
    trust_tasks: bool,
    warn_after: Option<Duration>,
    check_order: bool,
    clock: Box<dyn Clock>,
}

impl Builder {
    /// What to do about a cycle of waits; at first, the wait that closes a certain one fails.
    pub fn deadlock_policy(mut self, policy: DeadlockPolicy) -> Builder {
        self.policy = policy;
        self
    }

    /// Who is served first by locks that do not say it themselves; by priority at first.
    pub fn order(mut self, order: Order) -> Builder {
        self.order = order;
        self
    }

    /// After how many grants to others the oldest waiter is next, on locks that do not say it themselves; without a limit at first.
    ///
    /// # Panics
    /// If the limit is 0.
    pub fn bypass_limit(mut self, limit: u32) -> Builder {
        self.bypass = Some(bypass_limit(limit));
        self
    }

    /// How long a granted lock may lie untaken before the next waiter takes it over, and a cycle of waits that may be a deadlock stand before it is
    /// traced: a second at first, and a millisecond at least. A future that is kept and no longer polled delays others by so much,
    /// and by a fiftieth of it (a millisecond at least) if its worker has gone on with another future for the lock.
    pub fn stall_time(mut self, span: Duration) -> Builder {
        self.stall_time = span.max(Duration::from_millis(1));
        self
    }

    /// Declares that every bare task is one line of work, so that a cycle through its only wait is a deadlock for certain. Wrong for tasks whose
    /// arms of `join!` or `select!` wait for each other's locks.
    ///
    /// ```
    /// use heirlock::local::{Domain, Mutex};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let domain = Domain::builder().trust_tasks(true).build();
    /// let lock = Mutex::named("config", ()).in_domain(&domain);
    /// let task = tokio::spawn(async move {
    ///     let _guard = lock.lock().await.unwrap();
    ///     lock.lock().await.unwrap_err()
    /// });
    /// assert!(task.await.unwrap().is_deadlock());
    /// # }
    /// ```
    pub fn trust_tasks(mut self, trust: bool) -> Builder {
        self.trust_tasks = trust;
        self
    }

    /// Traces locks that are held for so long or longer, with the worker and the line that acquired them: when they are released, and while they are
    /// held once somebody waits. The domain then tracks its holds: each acquire and release takes its mutex and reads its clock, waited for or not.
    ///
    /// ```
    /// use heirlock::local::{Domain, Mutex};
    /// use std::time::Duration;
    /// let domain = Domain::builder().warn_after(Duration::from_millis(200)).build();
    /// let lock = Mutex::named("config", 1).in_domain(&domain);
    /// assert_eq!(*pollster::block_on(lock.lock()).unwrap(), 1);
    /// ```
    pub fn warn_after(mut self, span: Duration) -> Builder {
        self.warn_after = Some(span);
        self
    }

    /// Learns in which order locks are taken while others are held, by their names, and traces where two are ever taken in both orders, before that
    /// deadlocks; [`Domain::snapshot`] shows it, too. Two locks of one name, one within the other, count as well: another worker may take them the
    /// other way round. `try_lock` cannot deadlock, and counts as held only. All arms of one bare task count as one line of work, and what has no
    /// worker nor task is passed by. The domain then tracks its holds, as with [`warn_after`](Builder::warn_after). It has room for 2,048 names and
    /// 8,192 pairs.
    ///
    /// ```
    /// use heirlock::{Worker, local::{Domain, Mutex}};
    /// # pollster::block_on(async {
    /// let domain = Domain::builder().check_order(true).build();
    /// let (db, cache) = (Mutex::named("db", ()).in_domain(&domain), Mutex::named("cache", ()).in_domain(&domain));
    /// Worker::new("import").run(async {
    ///     let _db = db.lock().await?;
    ///     drop(cache.lock().await?);
    ///     Ok::<_, heirlock::Error>(())
    /// }).await?;
    /// Worker::new("sweep").run(async {
    ///     let _cache = cache.lock().await?;
    ///     drop(db.lock().await?);
    ///     Ok::<_, heirlock::Error>(())
    /// }).await?;
    /// assert_eq!(domain.snapshot().inversions.len(), 1);
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    pub fn check_order(mut self, check: bool) -> Builder {
        self.check_order = check;
        self
    }

    /// Where the domain's time comes from; the machine's clock since boot at first.
    pub fn clock(mut self, clock: impl Clock) -> Builder {
        self.clock = Box::new(clock);
        self
    }

    /// The domain.
    pub fn build(self) -> Domain {
        let Builder { policy, order, bypass, stall_time, trust_tasks, warn_after, check_order, clock } = self;
        clock.on_jump(Box::new(timer::jumped));
        let tracks = warn_after.is_some() || check_order;
        let tracking = tracks.then(|| Box::new(Tracking::new(warn_after, check_order)));
        let core = Mutex::new(Core::new(Graph::new(policy), trust_tasks, stall_time, tracking));
        let inner = Arc::new(Inner { core, clock, policy, order, bypass, stall_time, tracks, anchor: OnceLock::new() });
        let mut all = lock_std(&ALL);
        all.retain(|domain| domain.strong_count() > 0);
        all.push(Arc::downgrade(&inner));
        drop(all);
        Domain(inner)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("policy", &self.policy).field("stall_time", &self.stall_time).finish_non_exhaustive()
    }
}
