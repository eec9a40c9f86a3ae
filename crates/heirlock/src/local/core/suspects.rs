//! Cycles that are not certain: they stand, and are told of once they have stood for long.

use std::collections::BTreeMap;

use super::Core;
use super::report::Report;
use super::watch::Watch;
use crate::clock::Moment;
use crate::local::graph::{Cycle, On, State};

/// So many are kept an eye on; of more, `snapshot()` still shows some.
const MOST: usize = 256;

/// A cycle that was found.
#[derive(Debug)]
pub(super) struct Suspect {
    cycle: Cycle,
    /// When the watch first saw it: whoever closed it read no clock for that.
    since: Option<Moment>,
    told: bool,
}

/// By its workers and waits, the smallest first.
pub(super) type Suspects = BTreeMap<Vec<(u64, u64)>, Suspect>;

/// The same for a cycle wherever it was entered.
fn key(cycle: &Cycle) -> Vec<(u64, u64)> {
    let step = |step: &crate::local::graph::Step| {
        let wait = if let On::Lock { wait: Some(wait), .. } = step.on { wait.get() } else { 0 };
        (step.worker.get(), wait)
    };
    let mut key: Vec<_> = cycle.iter().map(step).collect();
    let first = key.iter().enumerate().min_by_key(|(_, step)| **step).map_or(0, |(at, _)| at);
    key.rotate_left(first);
    key
}

impl Core {
    /// A cycle was found that may be a deadlock.
    pub(super) fn suspect(&mut self, cycle: Cycle) {
        if self.suspects.len() == MOST {
            self.drop_broken_suspects();
        }
        if self.suspects.len() < MOST {
            self.suspects.entry(key(&cycle)).or_insert(Suspect { cycle, since: None, told: false });
            self.watch = Watch::Asked;
            self.ring = true;
        }
    }

    fn drop_broken_suspects(&mut self) {
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.retain(|_, suspect| self.stands(&suspect.cycle));
        self.suspects = suspects;
    }

    /// Whether all its waits still wait, each for a lock that the next worker has. An id is never used twice, so nothing else can look the same.
    fn stands(&self, cycle: &Cycle) -> bool {
        let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
        steps.into_iter().all(|(step, next)| match step.on {
            On::Lock { lock, wait: Some(wait), .. } => {
                let waits = self.graph.wait(wait).is_some_and(|view| view.state == State::Queued);
                waits && self.graph.holders(lock).iter().any(|hold| hold.worker == next.worker)
            }
            On::Lock { wait: None, .. } => false,
            On::Fork => self.parties.get(&step.worker).is_some() && self.parties.get(&next.worker).is_some(),
        })
    }

    /// Tells of those that have stood for `stall_time`, each once. When to look again.
    pub(super) fn look_at_suspects(&mut self, now: Moment) -> Option<Moment> {
        self.drop_broken_suspects();
        let mut suspects = std::mem::take(&mut self.suspects);
        let mut next = None;
        for suspect in suspects.values_mut().filter(|suspect| !suspect.told) {
            let over = *suspect.since.get_or_insert(now) + self.stall_time;
            if over > now {
                next = [next, Some(over)].into_iter().flatten().min();
            } else {
                suspect.told = true;
                let links = self.links(&suspect.cycle, now);
                self.reports.push(Report::Suspected(links.iter().map(ToString::to_string).collect()));
            }
        }
        self.suspects = suspects;
        next
    }
}
