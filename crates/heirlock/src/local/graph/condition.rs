//! Notifications of conditions, and waits that are over because what they waited for is there.

use super::Graph;
use super::effects::Effects;
use super::records::{LockKey, WaitKey};
use super::slab::NIL;

impl Graph {
    /// Notifies the first who waits for a condition: it is granted that wait, and holds nothing. Whoever has expired is passed by. False if nobody
    /// waits: a notification is not kept.
    ///
    /// Like any grant it belongs to the worker; given up untaken, by a cancel or because the worker goes, it passes to the next who waits.
    pub fn notify(&mut self, condition: LockKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.locks.slot(condition.0).filter(|slot| self.locks[*slot].is_condition()) else { return false };
        let told = effects.granted.len();
        self.free_up(slot, 1);
        self.promote(effects);
        // That somebody's deadline has left the queue may have let in readers elsewhere.
        let mut granted = effects.granted[told..].iter().filter_map(|wait| self.waits.slot(wait.0));
        let notified = granted.any(|wait| self.waits[wait].lock == slot);
        self.finish(effects);
        notified
    }

    /// Ends all waits on a lock, those that were granted and not taken, too: what they waited for is there. Who holds it goes on doing so. False
    /// if there is no such lock.
    pub fn dismiss(&mut self, lock: LockKey, effects: &mut Effects) -> bool {
        let Some(slot) = self.locks.slot(lock.0) else { return false };
        while let Some(wait) = self.locks[slot].queue.first() {
            let key = self.end(wait);
            effects.dismissed.push(key);
        }
        // With the queue empty nobody gets what they give back.
        while self.locks[slot].untaken != NIL {
            let wait = self.locks[slot].untaken;
            effects.dismissed.push(WaitKey(self.waits.id(wait)));
            self.give_back(wait);
        }
        self.finish(effects);
        true
    }
}
