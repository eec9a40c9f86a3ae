//! Cycles that are not certain: they stand, and are told of once they have stood for long.

use std::collections::BTreeMap;

use super::Core;
use super::report::Report;
use super::watch::Watch;
use crate::clock::Moment;
use crate::local::graph::{Cycle, On, State};

/// So many are kept an eye on.
const MOST: usize = 256;

/// The cycles that stand, as far as the watch has seen them.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Whether there may be others: found since the watch last looked, or hidden behind one that stands no more. Arms of one task that wait for each
    /// other are found so often that an event does no more than set this.
    doubt: bool,
    /// When it last looked for them, which is to look at the whole graph.
    looked: Option<Moment>,
    known: BTreeMap<Vec<(u64, u64)>, Suspect>,
}

#[derive(Debug)]
struct Suspect {
    cycle: Cycle,
    /// When the watch first saw it.
    since: Moment,
    told: bool,
}

/// Its workers and waits, the smallest first: the same wherever the cycle was entered.
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
    pub(super) fn suspect(&mut self) {
        self.suspects.doubt = true;
        if self.watch == Watch::Off {
            self.watch = Watch::Asked;
            self.ring = true;
        }
    }

    /// Whether all its waits still wait, each for a lock that the next worker has. An id is never used twice, so nothing else can look the same.
    fn stands(&self, cycle: &Cycle) -> bool {
        let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
        steps.into_iter().all(|(step, next)| match step.on {
            On::Lock { lock, wait: Some(wait), .. } => {
                let waits = self.graph.wait(wait).is_some_and(|view| view.state == State::Queued);
                waits && self.graph.holding(lock).any(|hold| hold.worker == next.worker)
            }
            On::Lock { wait: None, .. } => false,
            On::Fork => self.parties.get(&step.worker).is_some() && self.parties.get(&next.worker).is_some(),
        })
    }

    /// Tells of those that have stood for `stall_time`, each once. When to look again.
    pub(super) fn look_at_suspects(&mut self, now: Moment, about: Moment) -> Option<Moment> {
        let Suspects { mut doubt, mut known, mut looked } = std::mem::take(&mut self.suspects);
        let before = known.len();
        known.retain(|_, suspect| self.stands(&suspect.cycle));
        doubt |= known.len() < before;
        // The watch may come much more often than that, for grants in doubt.
        let again = looked.map(|looked| looked + self.stall_time / 2).filter(|again| doubt && *again > now);
        if doubt && again.is_none() {
            for cycle in self.graph.suspected(MOST) {
                if known.len() < MOST {
                    known.entry(key(&cycle)).or_insert(Suspect { cycle, since: now, told: false });
                }
            }
            (doubt, looked) = (false, Some(now));
        }
        for suspect in known.values_mut().filter(|suspect| !suspect.told && suspect.since + self.stall_time <= now) {
            suspect.told = true;
            let links = self.links(&suspect.cycle, about);
            self.reports.push(Report::Suspected(links.iter().map(ToString::to_string).collect()));
        }
        // As long as any stands, another may be hidden behind it.
        let next = known.values().map(|suspect| if suspect.told { now + self.stall_time } else { suspect.since + self.stall_time });
        let next = next.chain(again).min();
        self.suspects = Suspects { doubt, looked, known };
        next
    }
}
