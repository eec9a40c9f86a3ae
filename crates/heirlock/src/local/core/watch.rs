//! What is due: deadlines, grants that nobody takes, cycles and holds that stand for long.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Core, Wakes};
use crate::clock::{Clock, Moment};
use crate::local::graph::{Left, LockKey, State, WaitKey, WorkerKey};

/// The watch over grants that nobody takes, and over cycles that may be deadlocks. It is set by a grant and looks at least once each half
/// `stall_time` while there are any, so that a hand-over reads no clock, and rings for the timer once in that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    Off,
    Asked,
    Next(Moment),
    /// A grant has come in doubt: as `Asked`, and to look again soon.
    Doubted,
    /// It looks again that soon, for grants in doubt.
    Soon(Moment),
}

/// For how small a part of `stall_time` a grant in doubt may lie untaken; and for how long at least, as threads do not wake up faster than that.
const IN_DOUBT: u32 = 50;
const LEAST: Duration = Duration::from_millis(1);

/// What is to be done next.
pub(in crate::local) enum Due {
    /// The rest, at once: others may be served in between.
    More,
    /// To come again then; with `None` there is no need, and the timer forgets the domain.
    Next(Option<Moment>),
}

/// How many waits end before the mutex is released for a moment.
const AT_ONCE: usize = 64;

impl Core {
    /// Ends the waits whose time is over, and looks for grants that nobody takes. `about` is the same moment as
    /// [`Origin`](crate::local::graph::Origin)s have it.
    pub(in crate::local) fn expire(&mut self, now: Moment, about: Moment, wakes: &mut Wakes) -> Due {
        if !self.end_due(now, AT_ONCE) {
            return Due::More;
        }
        self.look_round(now, about, wakes);
        self.look_at_holds(now);
        let holds = self.tracking.as_ref().and_then(|tracking| tracking.next());
        let watch = if let Watch::Next(moment) | Watch::Soon(moment) = self.watch { Some(moment) } else { None };
        let next = [watch, holds, self.deadlines.first().map(|(moment, _)| moment)].into_iter().flatten().min();
        self.timed = next.is_some();
        Due::Next(next)
    }

    /// Ends waits whose time is over; if those were all, so that who is left waits in time, `true`. Else it is to be called again, and the mutex
    /// released before that. A clock is read only where somebody is in a hurry.
    #[must_use]
    pub(in crate::local) fn end_late(&mut self, clock: &dyn Clock) -> bool {
        self.deadlines.is_empty() || self.end_due(clock.now(), AT_ONCE)
    }

    /// Ends waits whose time is over, at most so many; whether those were all.
    fn end_due(&mut self, now: Moment, most: usize) -> bool {
        let mut ended = 0;
        while let Some((_, slot)) = self.deadlines.first().filter(|(moment, _)| *moment <= now) {
            if ended == most {
                return false;
            }
            ended += 1;
            let Some(wait) = self.waiters.at(slot).map(|(wait, _)| wait) else { unreachable!("who has a deadline waits") };
            self.undue(wait);
            // One that was granted before this has its lock: whoever came first under this mutex decides.
            if self.graph.expire(wait, &mut self.effects) == Left::Queued {
                self.effects.expired.push(wait);
            }
        }
        true
    }

    /// A grant has come in doubt.
    pub(super) fn watch_doubts(&mut self) {
        if !matches!(self.watch, Watch::Doubted | Watch::Soon(_)) {
            self.watch = Watch::Doubted;
            self.ring = true;
        }
    }

    /// Notes since when grants have not been taken, and have been in doubt. Of one for which that is too long all who wait behind it are told, as who is
    /// first of them may not be polled any more either; what they do, they do with the lock at hand.
    fn look_round(&mut self, now: Moment, about: Moment, wakes: &mut Wakes) {
        match self.watch {
            Watch::Off => return,
            Watch::Next(moment) | Watch::Soon(moment) if moment > now => return,
            _ => {}
        }
        // Once asked it stays for a while, or each hand-over would ask anew.
        let (half, brief) = (now + self.stall_time / 2, (self.stall_time / IN_DOUBT).clamp(LEAST, self.stall_time.max(LEAST)));
        let mut next = (self.watch == Watch::Asked).then_some(half);
        let mut soon = (self.watch == Watch::Doubted).then_some(now + brief);
        let (mut stalled, mut locks) = (Vec::new(), BTreeSet::new());
        self.stalled.clear();
        for (wait, waiter) in self.waiters.iter_mut().filter(|(_, waiter)| waiter.granted) {
            let mut over = *waiter.untaken.get_or_insert(now) + self.stall_time;
            // One that is offered may have been taken long ago.
            if !waiter.offered && self.graph.wait(wait).is_some_and(|view| view.in_doubt) {
                over = over.min(*waiter.doubted.get_or_insert(now) + brief);
                soon = soon.into_iter().chain([over]).filter(|over| *over > now).min();
            }
            if over > now {
                next = next.into_iter().chain([half.min(over)]).min();
            } else {
                // Whoever waits behind it is told now, and whoever comes later sees the mark: there is nothing more to look for.
                stalled.push(wait);
            }
        }
        for wait in stalled {
            let Some(lock) = self.graph.wait(wait).map(|view| view.lock) else { continue };
            self.stalled.insert((lock, wait));
            locks.insert(lock);
        }
        for lock in locks {
            for behind in self.graph.queue(lock) {
                wakes.push(self.waiters.get_mut(&behind).and_then(|waiter| waiter.waker.take()));
            }
        }
        let next = [next, soon, self.look_at_suspects(now, about)].into_iter().flatten().min();
        self.watch = next.map_or(Watch::Off, if soon.is_some() { Watch::Soon } else { Watch::Next });
    }

    /// Takes away from a worker what it was granted of the lock and has not taken for too long: another of its calls, which does not wait, may want it.
    pub(in crate::local) fn take_back(&mut self, lock: LockKey, worker: WorkerKey) {
        let marked = self.stalled.range((lock, WaitKey::from_number(0))..).take_while(|(of, _)| *of == lock);
        let mine = |wait: &WaitKey| self.graph.wait(*wait).is_some_and(|view| view.worker == worker);
        let mine: Vec<WaitKey> = marked.map(|(_, wait)| *wait).filter(mine).collect();
        for wait in mine {
            self.graph.revoke(wait, &mut self.effects);
            self.stalled.remove(&(lock, wait));
        }
    }

    /// Takes the lock's grants away from those who have not taken them for too long.
    pub(in crate::local) fn take_over(&mut self, lock: LockKey) {
        while let Some((_, wait)) = self.stalled.range((lock, WaitKey::from_number(0))..).next().copied().filter(|(of, _)| *of == lock) {
            // Of several that were marked at once, the first may have been taken or dropped since.
            let stands = self.graph.wait(wait).is_some_and(|view| view.state == State::Granted);
            // Where nobody waits (any more) it stays marked, for the next who will.
            if stands && self.graph.take_over(wait, &mut self.effects).is_none() {
                return;
            }
            self.stalled.remove(&(lock, wait));
        }
    }
}
