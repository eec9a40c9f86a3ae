//! The graph once more, as plainly as can be: lists of workers, locks, waits and holds, everything else computed anew whenever it is asked.
//! Written from the design, not from `local/graph`, which must agree with it.
//!
//! Where the design leaves a choice (which of several cycles is named, which of several readers is let in), what the graph chose is looked at,
//! and must be one of those allowed.

use std::collections::{BTreeMap, BTreeSet};

use heirlock::local::graph::{DeadlockPolicy, Kind, LockSpec, Mode, NEVER, Urgency};

#[path = "graph_naive_acquire.rs"]
mod acquire;
#[path = "graph_naive_change.rs"]
mod change;
#[path = "graph_naive_permits.rs"]
mod permits;
#[path = "graph_naive_upgrade.rs"]
mod upgrade;
#[path = "graph_naive_view.rs"]
mod view;

use view::Soft;

pub(crate) type Id = u64;

#[derive(Clone, Debug)]
struct Worker {
    base: i32,
    deadline: u64,
    parent: Option<Id>,
    sequential: bool,
    /// Computed.
    inherited: Urgency,
}

#[derive(Clone, Debug)]
struct Lock {
    spec: LockSpec,
    /// The oldest waiter, and how many others were granted since it is.
    oldest: Option<Id>,
    bypassed: u32,
    /// Of a condition: notifications on their way to the first of the queue.
    owed: u32,
    /// Of a semaphore: free permits.
    free: u64,
    /// Whether who was upgradable, or wrote, has become a reader or has left some.
    loosened: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Wait {
    worker: Id,
    lock: Id,
    mode: Mode,
    upgrades: bool,
    depth: u32,
    priority: Option<i32>,
    deadline: u64,
    expires: u64,
    arrival: u64,
    granted: bool,
    /// Its worker was served by another since it was last polled.
    in_doubt: bool,
    /// Counts grants.
    turn: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: Id,
    pub(crate) lock: Id,
    pub(crate) mode: Mode,
    pub(crate) depth: u32,
}

/// An acquire, with the names of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) wait: Id,
    pub(crate) worker: Id,
    pub(crate) lock: Id,
    pub(crate) mode: Mode,
    pub(crate) depth: u32,
    pub(crate) priority: Option<i32>,
    pub(crate) deadline: Option<u64>,
    pub(crate) expires: Option<u64>,
    pub(crate) arrival: Option<u64>,
}

/// Who waits for which lock by which wait; a lock of 0 means the next is a fork of this.
pub(crate) type Cycle = Vec<(Id, Id, Id)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Held(u32),
    Queued,
    Deadlock,
    No,
    Overflow,
    Kept(u32),
    Freed,
    NotHeld,
    WasQueued,
    WasGranted,
    Gone,
    Done(bool),
}

/// What an event did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Did {
    pub(crate) granted: Vec<Id>,
    pub(crate) ended: Vec<(Id, Cycle)>,
    pub(crate) expired: Vec<Id>,
    /// With their arrival numbers.
    pub(crate) displaced: BTreeMap<Id, u64>,
    pub(crate) removed: BTreeSet<Id>,
    pub(crate) dismissed: BTreeSet<Id>,
    /// The first workers of the suspected cycles that were found.
    pub(crate) suspected: Vec<Id>,
    pub(crate) changed: BTreeSet<Id>,
    /// Whether an untaken grant came in doubt.
    pub(crate) doubts: bool,
    pub(crate) refused: Option<Cycle>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    policy: DeadlockPolicy,
    now: u64,
    arrivals: u64,
    turns: u64,
    workers: BTreeMap<Id, Worker>,
    locks: BTreeMap<Id, Lock>,
    waits: BTreeMap<Id, Wait>,
    holds: Vec<Hold>,
    // Within an event:
    did: Did,
    /// What the graph did.
    hint: Did,
    held: bool,
    /// The wait of the acquire that is the event.
    asks: Option<Id>,
    closers: Vec<Id>,
    /// Those of them who would be upgradable, and are looked at because who was has gone.
    reviewed: Vec<Id>,
    doubtful: Vec<Id>,
    /// How many readers were let in past writers; how many of them to be upgradable, how many when the upgradable one had gone.
    pub(crate) let_in: usize,
    pub(crate) let_in_upgradable: usize,
    pub(crate) let_in_late: usize,
}

impl Naive {
    pub(crate) fn new(policy: DeadlockPolicy) -> Naive {
        Naive { policy, ..Naive::default() }
    }

    pub(crate) fn add_worker(&mut self, id: Id, base: i32, deadline: Option<u64>, parent: Option<Id>, sequential: bool) {
        let deadline = deadline.unwrap_or(NEVER);
        self.workers.insert(id, Worker { base, deadline, parent, sequential, inherited: Urgency::NONE });
        self.compute();
    }

    pub(crate) fn add_lock(&mut self, id: Id, spec: LockSpec) {
        self.locks.insert(id, Lock { spec, oldest: None, bypassed: 0, owed: 0, free: spec.permits, loosened: false });
    }

    pub(crate) fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    pub(crate) fn set_deadline(&mut self, worker: Id, deadline: Option<u64>) {
        self.workers.get_mut(&worker).unwrap().deadline = deadline.unwrap_or(NEVER);
    }

    /// One event: `act` changes what it changes; then everything follows.
    pub(crate) fn event(&mut self, hint: &Did, held: bool, act: impl FnOnce(&mut Naive) -> Reply) -> (Reply, Did) {
        let before = self.effectives();
        (self.did, self.hint, self.held) = (Did::default(), hint.clone(), held);
        (self.let_in, self.let_in_upgradable, self.let_in_late, self.asks) = (0, 0, 0, None);
        self.reviewed.clear();
        let reply = act(self);
        self.finish();
        for (worker, effective) in self.effectives() {
            if before.get(&worker).is_some_and(|before| before.priority != effective.priority) {
                self.did.changed.insert(worker);
            }
        }
        (reply, std::mem::take(&mut self.did))
    }

    fn finish(&mut self) {
        self.promote();
        loop {
            if !self.closers.is_empty() {
                let worker = self.closers.remove(0);
                self.resolve(worker, None);
            } else if !self.doubtful.is_empty() {
                self.doubtful.sort_unstable();
                let worker = self.doubtful.remove(0);
                if self.workers.contains_key(&worker) && self.pending(worker).len() == 1 && self.closes(worker, true, Soft::None) {
                    self.resolve(worker, None);
                }
            } else {
                return;
            }
        }
    }

    // The events.

    pub(crate) fn notify(&mut self, lock: Id) -> Reply {
        if !self.is_condition(lock) {
            return Reply::Done(false);
        }
        self.owe(lock);
        self.promote();
        Reply::Done(self.did.granted.iter().any(|wait| self.waits[wait].lock == lock))
    }

    pub(crate) fn dismiss(&mut self, lock: Id) -> Reply {
        let all: Vec<Id> = self.waits.iter().filter(|(_, wait)| wait.lock == lock).map(|(id, _)| *id).collect();
        for wait in all {
            self.did.dismissed.insert(wait);
            if self.waits[&wait].granted { self.give_back(wait) } else { self.end(wait) }
        }
        Reply::Done(true)
    }

    pub(crate) fn set_base(&mut self, worker: Id, base: i32) -> Reply {
        self.workers.get_mut(&worker).unwrap().base = base;
        Reply::Done(true)
    }

    pub(crate) fn hold(&mut self, worker: Id, lock: Id, mode: Mode, depth: u32) -> Reply {
        let held = self.has_holders(lock);
        if held {
            self.add_hold(worker, lock, self.mode(lock, mode), depth);
        }
        Reply::Done(held)
    }

    pub(crate) fn take(&mut self, wait: Id) -> Reply {
        let Some(Wait { worker, lock, granted: true, .. }) = self.waits.get(&wait).cloned() else { return Reply::Done(false) };
        self.waits.remove(&wait);
        self.take_note(worker, lock);
        Reply::Done(true)
    }

    pub(crate) fn take_over(&mut self, wait: Id) -> Reply {
        let Some(Wait { lock, arrival, granted: true, .. }) = self.waits.get(&wait).cloned() else { return Reply::Done(false) };
        if self.queue(lock).is_empty() {
            return Reply::Done(false);
        }
        self.did.displaced.insert(wait, arrival);
        self.give_back(wait);
        Reply::Done(true)
    }

    pub(crate) fn revoke(&mut self, wait: Id) -> Reply {
        self.did.displaced.insert(wait, self.waits[&wait].arrival);
        self.give_back(wait);
        Reply::Done(true)
    }

    pub(crate) fn cancel(&mut self, wait: Id) -> Reply {
        match self.waits.get(&wait) {
            None => Reply::Gone,
            Some(Wait { granted: true, .. }) => {
                self.give_back(wait);
                Reply::WasGranted
            }
            Some(_) => {
                self.end(wait);
                Reply::WasQueued
            }
        }
    }

    pub(crate) fn expire(&mut self, wait: Id) -> Reply {
        match self.waits.get(&wait) {
            None => Reply::Gone,
            Some(Wait { granted: true, .. }) => Reply::WasGranted,
            Some(_) => {
                self.end(wait);
                Reply::WasQueued
            }
        }
    }

    pub(crate) fn release(&mut self, worker: Id, lock: Id, levels: u32) -> Reply {
        let released = self.depth(worker, lock).min(levels);
        if self.kind(lock) == Kind::Semaphore {
            self.free_up(lock, released);
        }
        self.give_up(worker, lock, levels)
    }

    fn give_up(&mut self, worker: Id, lock: Id, levels: u32) -> Reply {
        let Some(at) = self.find(worker, lock) else { return Reply::NotHeld };
        if self.holds[at].depth <= levels {
            self.end_upgrade(worker, lock);
        }
        let mine = |wait: &&Wait| wait.granted && wait.worker == worker && wait.lock == lock;
        let mut noted = false;
        let untaken = |naive: &Naive| naive.waits.values().filter(mine).map(|wait| u64::from(wait.depth)).sum::<u64>();
        while u64::from(self.holds[at].depth) < u64::from(levels) + untaken(self) {
            let Some(grant) = self.untaken(worker, lock) else { break };
            self.waits.remove(&grant);
            noted = true;
        }
        let left = self.holds[at].depth.saturating_sub(levels);
        self.holds[at].depth = left;
        if left > 0 {
            if noted {
                self.take_note(worker, lock);
            }
            return Reply::Kept(left);
        }
        self.drop_hold(at);
        Reply::Freed
    }

    pub(crate) fn transfer(&mut self, lock: Id, from: Id, to: Id) -> Reply {
        let Some(at) = self.find(from, lock) else { return Reply::Done(false) };
        if from != to {
            let depth = u64::from(self.holds[at].depth);
            let sum =
                depth + if self.kind(lock) == Kind::Semaphore { self.permits_to_be(to, lock) } else { u64::from(self.depth(to, lock)) };
            if sum > u64::from(u32::MAX) {
                return Reply::Done(false);
            }
            self.waits.retain(|_, wait| !(wait.granted && wait.worker == from && wait.lock == lock));
            self.end_upgrade(from, lock);
            let hold = self.drop_hold(at);
            self.add_hold(to, lock, hold.mode, hold.depth);
            if self.kind(lock) == Kind::RLock {
                self.take_note(to, lock);
            }
        }
        Reply::Done(true)
    }

    pub(crate) fn kind(&self, lock: Id) -> Kind {
        self.locks[&lock].spec.kind
    }

    pub(crate) fn claim(&mut self, wait: Id) -> Reply {
        let Wait { worker, lock, mode, upgrades, depth, granted, .. } = self.waits[&wait];
        if granted {
            return Reply::Done(false);
        }
        self.waits.get_mut(&wait).unwrap().in_doubt = false;
        if upgrades {
            return Reply::Done(false);
        }
        let grants = self.untaken_of(worker, lock);
        let same = |other: &Wait| other.mode == mode && !other.upgrades && (self.kind(lock) != Kind::Semaphore || other.depth == depth);
        let last = grants.iter().copied().filter(|grant| same(&self.waits[grant])).max_by_key(|grant| self.waits[grant].turn);
        if let Some(grant) = last {
            // It has that one's grant, and that one has none.
            self.end(wait);
            let other = self.waits.remove(&grant).unwrap();
            self.did.displaced.insert(grant, other.arrival);
            if let Some(at) = self.find(worker, lock) {
                self.holds[at].depth = self.holds[at].depth - other.depth + depth;
            }
            self.take_note(worker, lock);
            return Reply::Done(true);
        }
        let unnoted: u32 = grants.iter().map(|grant| self.waits[grant].depth).sum();
        let may = |at: &usize| self.holds[*at].depth > unnoted && self.holds[*at].depth.checked_add(depth).is_some();
        if let Some(at) = self.enters(worker, lock, mode).filter(may) {
            self.end(wait);
            self.holds[at].depth += depth;
            if self.upgrade_of(worker, lock).is_some() {
                self.closers.push(worker);
            }
            return Reply::Done(true);
        }
        self.doubt(grants);
        Reply::Done(false)
    }

    pub(crate) fn in_doubt(&self, wait: Id) -> bool {
        self.waits[&wait].in_doubt
    }

    pub(crate) fn waits(&self) -> BTreeMap<Id, (Id, Id, bool, Option<Urgency>)> {
        let view = |wait: &Wait| (wait.worker, wait.lock, wait.granted, (!wait.granted).then(|| self.urgency(wait)));
        self.waits.iter().map(|(id, wait)| (*id, view(wait))).collect()
    }

    pub(crate) fn holds(&self) -> &[Hold] {
        &self.holds
    }
}
