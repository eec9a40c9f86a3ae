//! Who waits for whom in a circle.
//!
//! A worker waits for the holders beside whom its wait cannot hold. A reader among readers waits for writers before it in the queue, and these for
//! the same holders: such an edge is soft, it is only a matter of order. So it is with who would be upgradable, and with who is kept out by an
//! upgrade. A parent waits, in a way, for its forks. These are the ways on which urgency travels, too: where no search finds a cycle, no phantom
//! can stay.
//!
//! There is one more way for urgency: who would be upgradable and waits for who is boosts the readers, too, like any wait for what they hold, and
//! does not wait for them. When the upgradable one goes, it may: if a writer is before it. That is when cycles over it are looked for
//! ([`Graph::review`]).
//!
//! The searches are depth first with an explicit stack and visit each worker once, so waits that converge (a diamond) are no cycle and a long
//! chain is no deep recursion.

use super::Graph;
use super::effects::{Cycle, On, Step};
use super::lock::Mode;
use super::records::{Hold, LockKey, OF_LOCK, OF_WORKER, Wait, WaitKey, WorkerKey};
use super::slab::NIL;

/// Which ways a search may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// All.
    Any,
    /// Those on which urgency travels: a worker that waits for itself gives itself nothing.
    Boosts,
    /// Those of waits, and not from parents to their forks.
    Waits,
    /// Those of a verdict: over sequential workers with one pending wait each.
    Certain,
    /// And of those only the ones to holders.
    CertainHolders,
}

/// One way from a worker to another.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    /// `NIL` to a fork.
    wait: u32,
    /// Whether only writers queued before it keep the reader from holding beside `to`.
    soft: bool,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    worker: u32,
    /// Whether the way here has whatever edge it must have.
    complete: bool,
    /// Where its edges begin, and the next to be tried.
    start: usize,
    next: usize,
}

/// The room that searches use.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Counts searches.
    epoch: u64,
    edges: Vec<Edge>,
    frames: Vec<Frame>,
    /// Whether the last search left out a way on which urgency travels.
    skipped: bool,
}

/// One worker on the way round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) worker: u32,
    /// `NIL` to a fork.
    pub(super) wait: u32,
    pub(super) soft: bool,
}

/// What is to be said of a worker's waits.
#[derive(Debug)]
pub(super) enum Judgement {
    Clear,
    /// This reader is kept out only by writers queued before it, and that closes a cycle.
    LetIn(u32),
    Certain(Vec<Hop>),
    Suspected(Vec<Hop>),
}

impl Graph {
    pub(super) fn judge(&mut self, worker: u32) -> Judgement {
        let Some(any) = self.find_cycle(worker, Ways::Any, false) else {
            if self.room.skipped {
                self.cyclic = self.cyclic || self.find_cycle(worker, Ways::Boosts, false).is_some();
            }
            return Judgement::Clear;
        };
        if let Some(cycle) = self.find_cycle(worker, Ways::CertainHolders, false) {
            return Judgement::Certain(cycle);
        }
        // That a parent waits for its forks is only a guess: it does not bend the order of a queue.
        let softened = if self.soft_waits > 0 { &[Ways::Certain, Ways::Waits][..] } else { &[] };
        for &ways in softened {
            let cycle = self.find_cycle(worker, ways, true).unwrap_or_default();
            if let Some(reader) = cycle.iter().find(|hop| hop.soft) {
                return Judgement::LetIn(reader.wait);
            }
        }
        Judgement::Suspected(any)
    }

    /// A way from the worker back to it; if `soft`, one over a soft edge.
    pub(super) fn find_cycle(&mut self, from: u32, ways: Ways, soft: bool) -> Option<Vec<Hop>> {
        self.room.skipped = false;
        if !self.is_waited_for(from) || !self.admits(from, ways) {
            return None;
        }
        let mut room = std::mem::take(&mut self.room);
        room.epoch += 1;
        room.edges.clear();
        room.frames.clear();
        self.enter(&mut room, from, ways, !soft, from);
        let mut found = None;
        while let Some((edge, complete)) = room.next_edge() {
            let complete = complete || edge.soft;
            if edge.to == from && complete {
                found = Some(room.path(0));
                break;
            }
            // With a soft edge behind, a worker may lead where it did not before.
            if self.workers[edge.to].scratch.seen[usize::from(complete)] != room.epoch && self.admits(edge.to, ways) {
                self.enter(&mut room, edge.to, ways, complete, from);
            }
        }
        self.room = room;
        found
    }

    /// Cycles that stand, at most so many. Every cycle shares a worker with one of them, if there is room.
    pub(super) fn standing(&mut self, ways: Ways, most: usize) -> Vec<Vec<Hop>> {
        let mut room = std::mem::take(&mut self.room);
        // Two numbers: on the way here, and done.
        room.epoch += 2;
        let (grey, black) = (room.epoch - 1, room.epoch);
        let mut found = Vec::new();
        let roots: Vec<u32> = self.workers.slots().filter(|worker| self.workers[*worker].pending > 0).collect();
        for root in roots {
            if self.workers[root].scratch.seen[1] >= grey {
                continue;
            }
            room.edges.clear();
            room.frames.clear();
            room.epoch = grey;
            self.enter(&mut room, root, ways, true, NIL);
            while let Some(&Frame { worker, .. }) = room.frames.last() {
                let Some((edge, _)) = room.next_edge_of_top() else {
                    self.workers[worker].scratch.seen[1] = black;
                    continue;
                };
                match self.workers[edge.to].scratch.seen[1] {
                    seen if seen == black => {}
                    seen if seen == grey => {
                        if found.len() == most {
                            continue;
                        }
                        let start = room.frames.iter().position(|frame| frame.worker == edge.to).unwrap_or(0);
                        found.push(room.path(start));
                    }
                    _ => self.enter(&mut room, edge.to, ways, true, NIL),
                }
            }
        }
        room.epoch = black;
        self.room = room;
        found
    }

    /// Whether anything can lead back to the worker. Most who wait hold nothing that others wait for, and need no search.
    pub(super) fn is_waited_for(&self, worker: u32) -> bool {
        let entry = &self.workers[worker];
        if entry.parent != NIL {
            return true;
        }
        let mut hold = entry.holds;
        while hold != NIL {
            if !self.locks[self.holds[hold].lock].queue.is_empty() {
                return true;
            }
            hold = self.holds[hold].link[OF_WORKER].next;
        }
        false
    }

    fn admits(&self, worker: u32, ways: Ways) -> bool {
        let worker = &self.workers[worker];
        !matches!(ways, Ways::Certain | Ways::CertainHolders) || (worker.sequential && worker.pending == 1)
    }

    /// Goes on from a worker. An edge that ends the search, as it leads to `goal`, is the only one then: the newest wait comes first, so that who has many
    /// for what it holds itself does not look at all of them each time that it begins another.
    fn enter(&mut self, room: &mut Room, worker: u32, ways: Ways, complete: bool, goal: u32) {
        let start = room.edges.len();
        room.frames.push(Frame { worker, complete, start, next: start });
        self.workers[worker].scratch.seen[usize::from(complete)] = room.epoch;
        let Self { workers, holds, locks, waits, .. } = &*self;
        let mut slot = workers[worker].waits;
        while slot != NIL {
            let (wait, lock) = (&waits[slot], &locks[waits[slot].lock]);
            if matches!(ways, Ways::Certain | Ways::CertainHolders) && !lock.spec.owned {
                // Whoever may release it is unknown.
            } else {
                let soft = lock.keeps_out(wait.mode);
                let strong = !soft && wait.mode == Mode::Upgradable;
                let mut hold = if soft && ways == Ways::CertainHolders { NIL } else { lock.holds };
                while hold != NIL {
                    let to = holds[hold].worker;
                    if strong && holds[hold].mode == Mode::Shared && ways != Ways::Boosts {
                        room.skipped = true;
                    } else if to != worker || ways != Ways::Boosts && self.bars_itself(wait, hold) {
                        if to == goal && (complete || soft) {
                            room.edges.truncate(start);
                            room.edges.push(Edge { to, wait: slot, soft });
                            return;
                        }
                        room.edges.push(Edge { to, wait: slot, soft });
                    }
                    hold = holds[hold].link[OF_LOCK].next;
                }
            }
            slot = waits[slot].link[0].next;
        }
        if matches!(ways, Ways::Any | Ways::Boosts) {
            let mut fork = workers[worker].forks;
            while fork != NIL {
                room.edges.push(Edge { to: fork, wait: NIL, soft: false });
                fork = workers[fork].link[0].next;
            }
        }
    }

    /// Whether a worker's hold is in the way of its own wait. One for a lock that was granted to its own worker, which has not taken note, is about
    /// to be served; and an upgradable level is in no upgrade's way.
    fn bars_itself(&self, wait: &Wait, hold: u32) -> bool {
        let Hold { worker, lock, mode, depth, .. } = self.holds[hold];
        if wait.mode == Mode::Upgradable && mode == Mode::Upgradable {
            return self.find_untaken_mode(worker, lock, mode).is_none();
        }
        self.untaken_levels(worker, lock) < depth.saturating_sub(u32::from(wait.upgrades))
    }

    /// The cycle, as others are told of it.
    pub(super) fn tell(&self, hops: &[Hop]) -> Cycle {
        hops.iter()
            .map(|hop| {
                let on = if hop.wait == NIL {
                    On::Fork
                } else {
                    let wait = &self.waits[hop.wait];
                    let key = WaitKey(self.waits.id(hop.wait));
                    On::Lock { lock: LockKey(self.locks.id(wait.lock)), mode: wait.mode, wait: Some(key), origin: wait.origin }
                };
                Step { worker: WorkerKey(self.workers.id(hop.worker)), on }
            })
            .collect()
    }
}

impl Room {
    /// The next edge to be tried, after leaving workers whose edges have all been; and whether the way to it is complete.
    fn next_edge(&mut self) -> Option<(Edge, bool)> {
        while !self.frames.is_empty() {
            if let Some(edge) = self.next_edge_of_top() {
                return Some(edge);
            }
        }
        None
    }

    /// The next edge of the worker reached last; leaves it if there is none.
    fn next_edge_of_top(&mut self) -> Option<(Edge, bool)> {
        let frame = self.frames.last_mut()?;
        if let Some(&edge) = self.edges.get(frame.next) {
            frame.next += 1;
            return Some((edge, frame.complete));
        }
        self.edges.truncate(frame.start);
        self.frames.pop();
        None
    }

    /// The way from the frame with this number to the top, each worker with the edge that was tried last.
    fn path(&self, start: usize) -> Vec<Hop> {
        let hops = self.frames.iter().skip(start).map(|frame| {
            let Edge { wait, soft, .. } = self.edges[frame.next - 1];
            Hop { worker: frame.worker, wait, soft }
        });
        hops.collect()
    }
}
