//! A domain for operators: plain data copied under its mutex, and put into words after that.

use std::borrow::Cow;

use super::Core;
use super::report::millis;
use super::words::Link;
use crate::clock::{Moment, wall_micros};
use crate::local::graph::{Holding, Kind, LockKey, LockSpec, Mode, NEVER, Origin, State, WaitView, WorkerKey};
use crate::local::hash::IdMap;
use crate::local::identity::{ANONYMOUS, Owner};
use crate::local::name::Name;
use crate::observe::{Edge, Holder, Lock, Party, Snapshot, Waiter, WorkerView};
use crate::process::host;

/// Cycles are looked for until there are so many; each that stands shares a worker with one of them.
const CYCLES: usize = 64;

/// As much of a worker's key as fits below the kind of an owner's number: the slot and a part of how often it was used.
const ANONYMOUS_ID: u64 = (1 << 44) - 1;

/// What a domain knows at one moment.
#[derive(Debug)]
pub(in crate::local) struct Picture {
    now: Moment,
    /// By what waits and holds are said to have begun.
    about: Moment,
    parties: IdMap<WorkerKey, (Owner, i32)>,
    locks: Vec<LockPicture>,
    /// Forks, and whose.
    forks: Vec<(WorkerKey, WorkerKey)>,
    suspected: Vec<Vec<Link>>,
    deadlocks: Vec<Vec<String>>,
    inversions: Vec<String>,
}

#[derive(Debug)]
struct LockPicture {
    key: LockKey,
    name: Name,
    spec: LockSpec,
    holders: Vec<Holding>,
    queue: Vec<WaitView>,
    /// Holders that were granted the lock and have not taken note.
    untaken: Vec<WorkerKey>,
}

impl Core {
    pub(in crate::local) fn picture(&mut self, now: Moment, about: Moment) -> Picture {
        let mut keys: Vec<LockKey> = self.locks.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        let locks = keys.into_iter().filter_map(|key| self.lock_picture(key, about)).collect();
        let cycles = self.graph.suspected(CYCLES);
        let suspected = cycles.iter().map(|cycle| self.links(cycle, about)).collect();
        let with_effective = |(key, owner): (WorkerKey, &Owner)| (key, (owner.clone(), self.graph.effective_priority(key).unwrap_or(0)));
        let parents = self.parties.iter().filter_map(|(key, owner)| Some((self.worker(owner.parent()?.id().get())?, key)));
        let mut forks: Vec<_> = parents.collect();
        forks.sort_unstable();
        Picture {
            now,
            about,
            parties: self.parties.iter().map(with_effective).collect(),
            locks,
            forks,
            suspected,
            deadlocks: self.deadlocks.iter().cloned().collect(),
            inversions: self.tracking.as_ref().map_or_else(Vec::new, |tracking| tracking.inversions.clone()),
        }
    }

    /// A lock that is held or waited for, as far as the graph knows.
    fn lock_picture(&mut self, key: LockKey, about: Moment) -> Option<LockPicture> {
        // A hold of which it is not known since when it stands does so from now on at the latest.
        for hold in self.graph.holders(key) {
            self.graph.note_since(hold.worker, key, about.as_nanos());
        }
        let spec = self.graph.spec(key)?;
        let mut holders = self.graph.holders(key);
        if spec.kind == Kind::Promise {
            // Held so that others wait, until somebody undertakes to keep it.
            holders.retain(|hold| !matches!(self.parties.get(&hold.worker), Some(Owner::Anonymous)));
        }
        holders.sort_unstable_by_key(|hold| (hold.origin.at, hold.worker));
        let queue: Vec<WaitView> = self.graph.queue(key).into_iter().filter_map(|wait| self.graph.wait(wait)).collect();
        let untaken = holders.iter().map(|hold| hold.worker).filter(|worker| self.graph.has_untaken(*worker, key)).collect();
        let name = self.name(key);
        (!holders.is_empty() || !queue.is_empty()).then_some(LockPicture { key, name, spec, holders, queue, untaken })
    }
}

impl Picture {
    /// In words. Not under the mutex: it takes its time, and drops handles to workers.
    pub(in crate::local) fn develop(self) -> Snapshot {
        let host = host();
        let views: IdMap<WorkerKey, WorkerView> = self.parties.iter().map(|(key, (owner, _))| (*key, view(*key, owner, &host))).collect();
        let mut edges: Vec<Edge> = self.locks.iter().flat_map(|lock| lock.edges(&views)).collect();
        edges.extend(self.forks.iter().map(|(parent, fork)| Edge { from: views[parent].clone(), to: views[fork].clone(), lock: None }));
        let locks = self.locks.iter().map(|lock| self.lock(lock, &views)).collect();
        let words = |links: &Vec<Link>| links.iter().map(ToString::to_string).collect();
        Snapshot {
            store: None,
            at: wall_micros() / 1000,
            locks,
            edges,
            suspected: self.suspected.iter().map(words).collect(),
            deadlocks: self.deadlocks,
            losses: Vec::new(),
            inversions: self.inversions,
        }
    }

    fn lock(&self, lock: &LockPicture, views: &IdMap<WorkerKey, WorkerView>) -> Lock {
        let party = |worker: &WorkerKey, mode| Party { worker: views[worker].clone(), command: None, why: None, mode };
        let since = |origin: Origin| millis(self.about.since(Moment::from_nanos(origin.at)));
        let site = |origin: Origin| origin.site.map(|site| format!("{}:{}", site.file(), site.line()));
        let holder = |hold: &Holding| Holder {
            party: party(&hold.worker, word(hold.mode)),
            slot: None,
            fence: None,
            since_ms: since(hold.origin),
            expires_in_ms: None,
            priority: base(&self.parties[&hold.worker].0),
            effective: self.parties[&hold.worker].1,
            revoked: None,
            site: site(hold.origin),
        };
        let waiter = |(at, wait): (usize, &WaitView)| Waiter {
            position: at + 1,
            party: party(&wait.worker, word(wait.mode)),
            priority: wait.priority.unwrap_or_else(|| base(&self.parties[&wait.worker].0)),
            effective: wait.urgency.priority,
            waiting_ms: since(wait.origin),
            deadline_in_ms: (wait.expires != NEVER).then(|| millis(Moment::from_nanos(wait.expires).since(self.now))),
            site: site(wait.origin),
        };
        Lock {
            name: lock.label(),
            kind: lock.spec.kind.word(),
            unknown_releaser: !lock.spec.owned || lock.spec.kind == Kind::Promise && lock.holders.is_empty(),
            holders: lock.holders.iter().map(holder).collect(),
            queue: lock.queue.iter().enumerate().map(waiter).collect(),
            resting_ms: None,
        }
    }
}

impl LockPicture {
    fn label(&self) -> String {
        self.name.text().map_or_else(|| format!("#{}", self.key.get()), Cow::into_owned)
    }

    /// Who waits for whom, as the graph sees it: a worker with an untaken grant is about to be served, and does not wait for itself.
    fn edges<'a>(&'a self, views: &'a IdMap<WorkerKey, WorkerView>) -> impl Iterator<Item = Edge> + 'a {
        let queued = self.queue.iter().filter(|wait| wait.state == State::Queued);
        // Who would be upgradable waits for who is, or writes, and not for the readers, beside whom it can hold.
        let beside_readers = self.holders.iter().any(|hold| hold.mode != Mode::Shared);
        queued.flat_map(move |wait| {
            let in_its_way = move |hold: &&Holding| {
                let own = hold.worker == wait.worker && (wait.upgrades || self.untaken.contains(&hold.worker));
                let beside = beside_readers && wait.mode == Mode::Upgradable && hold.mode == Mode::Shared;
                !own && !beside
            };
            let edge =
                move |hold: &Holding| Edge { from: views[&wait.worker].clone(), to: views[&hold.worker].clone(), lock: Some(self.label()) };
            self.holders.iter().filter(in_its_way).map(edge)
        })
    }
}

fn base(owner: &Owner) -> i32 {
    if let Owner::Worker(worker) = owner { worker.base_priority() } else { 0 }
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Upgradable => "upgradable",
        Mode::Shared => "shared",
    }
}

fn view(key: WorkerKey, owner: &Owner, host: &str) -> WorkerView {
    let (id, name) = match owner {
        Owner::Worker(worker) => (worker.id().get(), worker.name().to_owned()),
        // Of these there are many: what tells one from the others is its place in the graph.
        Owner::Anonymous => (ANONYMOUS | (key.get() & ANONYMOUS_ID), "anonymous".to_owned()),
        _ => (owner.number(), owner.to_string()),
    };
    WorkerView { id, name, host: host.to_owned(), pid: std::process::id() }
}
