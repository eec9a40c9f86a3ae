//! What a domain does that tracks its holds: it warns of long ones, and checks the order of locks. The graph knows all its locks at all times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Core;
use super::report::Report;
use crate::clock::Moment;
use crate::local::graph::{Effects, Graph, Holding, LockKey, Mode, Released, WorkerKey};
use crate::local::hash::IdMap;
use crate::local::nesting::{LockId, Nesting, Site};

/// So many inversions are shown; all are traced.
const SHOWN: usize = 256;

#[derive(Debug)]
pub(in crate::local) struct Tracking {
    warn_after: Option<Duration>,
    /// When to look at the holders of which lock, because somebody waits for it.
    due: BTreeSet<(Moment, LockKey)>,
    scheduled: IdMap<LockKey, Moment>,
    /// Holds that were warned of while they stood, by when they began.
    warned: BTreeMap<(LockKey, WorkerKey), u64>,
    nesting: Option<Nesting>,
    /// Whether it was said that there is no room.
    told_full: bool,
    pub(super) inversions: Vec<String>,
}

impl Tracking {
    pub(in crate::local) fn new(warn_after: Option<Duration>, check_order: bool) -> Tracking {
        Tracking {
            warn_after,
            due: BTreeSet::new(),
            scheduled: IdMap::default(),
            warned: BTreeMap::new(),
            nesting: check_order.then(Nesting::default),
            told_full: false,
            inversions: Vec::new(),
        }
    }

    /// When somebody is to look.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(moment, _)| *moment)
    }

    pub(super) fn forget(&mut self, lock: LockKey, name: Option<&'static str>) {
        if let Some(moment) = self.scheduled.remove(&lock) {
            self.due.remove(&(moment, lock));
        }
        self.warned.retain(|(other, _), _| *other != lock);
        if let Some(nesting) = &mut self.nesting {
            nesting.forget(LockId { number: lock.get(), name });
        }
    }

    fn is_warned_of(&self, hold: &Holding) -> bool {
        self.warned.get(&(hold.lock, hold.worker)) == Some(&hold.origin.at)
    }
}

impl Core {
    /// A hold has just begun, or was just granted.
    pub(in crate::local) fn began(&mut self, worker: WorkerKey, lock: LockKey) {
        if let Some(now) = self.now {
            self.graph.note_since(worker, lock, now.as_nanos());
            self.watch_holds(lock);
        }
    }

    /// The worker will wait for the lock if it has to: what it holds already comes before it from now on.
    pub(in crate::local) fn nests(&mut self, worker: WorkerKey, lock: LockKey, site: Site) {
        let Some(tracking) = &mut self.tracking else { return };
        let Some(nesting) = &mut tracking.nesting else { return };
        // What was granted and not taken is not held by whoever asks here, but by a future that is not polled.
        let mut held = self.graph.held(worker);
        held.retain(|hold| !self.graph.has_untaken(worker, hold.lock));
        held.sort_unstable_by_key(|hold| hold.lock);
        let id = |lock: LockKey| LockId { number: lock.get(), name: self.locks.get(&lock).and_then(|name| name.class) };
        let held: Vec<(LockId, Site)> = held.iter().map(|hold| (id(hold.lock), hold.origin.site)).collect();
        let Some(owner) = self.parties.get(&worker) else { return };
        for inversion in nesting.wants(id(lock), site, &held, owner) {
            let text = inversion.to_string();
            if tracking.inversions.len() < SHOWN {
                tracking.inversions.push(text.clone());
            }
            self.reports.push(Report::Inversion(text));
        }
        if nesting.is_full() && !std::mem::replace(&mut tracking.told_full, true) {
            self.reports.push(Report::Unlearned);
        }
    }

    /// Gives up levels; a hold that lasted too long is told of.
    pub(in crate::local) fn release(&mut self, holder: WorkerKey, lock: LockKey, levels: u32) -> Released {
        self.end_hold(holder, lock, |graph, effects| graph.release_levels(holder, lock, levels, effects))
    }

    /// The same for one level of this mode of a read-write lock.
    pub(in crate::local) fn release_mode(&mut self, holder: WorkerKey, lock: LockKey, mode: Mode) -> Released {
        self.end_hold(holder, lock, |graph, effects| graph.release_mode(holder, lock, mode, effects))
    }

    fn end_hold(&mut self, holder: WorkerKey, lock: LockKey, release: impl FnOnce(&mut Graph, &mut Effects) -> Released) -> Released {
        let span = self.tracking.as_ref().and_then(|tracking| tracking.warn_after);
        let hold = span.and_then(|_| self.graph.holding(lock).find(|hold| hold.worker == holder));
        let released = release(&mut self.graph, &mut self.effects);
        if let (Some(hold), Some(span), Some(now), Released::Freed) = (hold, span, self.now, released) {
            if let Some(tracking) = &mut self.tracking {
                tracking.warned.remove(&(lock, holder));
            }
            let lasted = now.since(Moment::from_nanos(hold.origin.at));
            if lasted >= span {
                self.warn(&hold, lasted, None);
            }
        }
        released
    }

    /// Somebody waits for the lock: if it is then still held as now, its holders are to be told of.
    pub(super) fn watch_holds(&mut self, lock: LockKey) {
        let Some(tracking) = &mut self.tracking else { return };
        let Some(span) = tracking.warn_after else { return };
        if tracking.scheduled.contains_key(&lock) || self.graph.waiting(lock) == 0 {
            return;
        }
        let holders = self.graph.holders(lock);
        let since = holders.iter().filter(|hold| !tracking.is_warned_of(hold)).map(|hold| hold.origin.at).min();
        if let Some(since) = since {
            let moment = Moment::from_nanos(since) + span;
            tracking.scheduled.insert(lock, moment);
            tracking.due.insert((moment, lock));
            self.ring |= !self.timed || tracking.next() == Some(moment);
        }
    }

    /// Tells of holds that stand for too long while others wait.
    pub(super) fn look_at_holds(&mut self, now: Moment) {
        while let Some(tracking) = &mut self.tracking
            && let Some((moment, lock)) = tracking.due.first().copied().filter(|(moment, _)| *moment <= now)
        {
            tracking.due.remove(&(moment, lock));
            tracking.scheduled.remove(&lock);
            let holders = self.graph.holders(lock);
            // Who gave back a grant, or passed its hold on, is a holder no more.
            tracking.warned.retain(|(other, worker), _| *other != lock || holders.iter().any(|hold| hold.worker == *worker));
            let waiting = self.graph.waiting(lock);
            let Some(span) = tracking.warn_after.filter(|_| waiting > 0) else { continue };
            for hold in holders {
                let lasts = now.since(Moment::from_nanos(hold.origin.at));
                let Some(tracking) = &mut self.tracking else { return };
                if lasts >= span && !tracking.is_warned_of(&hold) {
                    tracking.warned.insert((lock, hold.worker), hold.origin.at);
                    self.warn(&hold, lasts, Some(waiting));
                }
            }
            self.watch_holds(lock);
        }
    }

    fn warn(&mut self, hold: &Holding, lasts: Duration, waiting: Option<usize>) {
        let worker = self.parties.get(&hold.worker).map_or_else(String::new, ToString::to_string);
        let site = hold.origin.site.map_or_else(|| "an unknown line".to_owned(), |site| format!("{}:{}", site.file(), site.line()));
        self.reports.push(Report::Held { lock: self.lock_name(hold.lock), worker, site, lasts, waiting });
    }
}
