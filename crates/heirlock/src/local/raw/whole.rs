//! What conditions and cells need of a lock: to be given up whole, to be told to others, to be over for all.

use std::ptr;
use std::sync::atomic::Ordering;

use super::awaited::AWAITED;
use super::{CONTENDED, DEPTH, FREE, OVER, Raw, Word};

impl Raw {
    /// Whether the lock is held so many levels deep and no more. For whoever has guards of so many.
    pub(in crate::local) fn is_whole(&self, levels: u32) -> bool {
        if !self.is_reentrant() {
            return true;
        }
        let word = self.word.load(Ordering::Relaxed);
        if word & CONTENDED == 0 {
            return word >> DEPTH == u64::from(levels) - 1;
        }
        self.domain().event(|core| {
            let key = self.begin(core);
            core.graph.holding(key).next().is_some_and(|holding| holding.depth == levels)
        })
    }

    /// Gives up the hold, if it is so many levels deep and no more; otherwise it stays as it is. For whoever has guards of so many.
    ///
    /// What is looked at and what is given up is one: a guard of the same owner may be made or dropped on another thread in between.
    pub(in crate::local) fn release_whole(&self, levels: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            if word >> DEPTH != u64::from(levels) - 1 {
                return false;
            }
            let site = self.site.swap(ptr::null_mut(), Ordering::Relaxed);
            match self.word.compare_exchange(word, FREE, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                // A contender has come, or a level. Whoever still holds the lock got it where it did.
                Err(now) => word = now,
            }
            self.site.store(site, Ordering::Relaxed);
        }
        let domain = self.domain();
        domain.event(|core| {
            let key = self.begin(core);
            let Some(holding) = core.graph.holding(key).next().filter(|holding| holding.depth == levels) else { return false };
            core.note_time(key, domain.clock());
            core.release(holding.worker, key, levels);
            self.site.store(ptr::null_mut(), Ordering::Relaxed);
            core.leaves(holding.worker);
            self.follow(core, key);
            true
        })
    }

    /// Notifies the first who wait for the condition, at most so many; how many there were.
    ///
    /// If nobody waits, no mutex is taken, and no wake-up is lost. Whoever waits has written to the word, under the mutex, before it let go of its
    /// lock. A notifier that changed what is waited for has had that lock: if before the waiter, the waiter saw the change; if after, what the
    /// waiter wrote came before the lock did. One that never had the lock and sees nobody came first.
    pub(in crate::local) fn notify(&self, most: usize) -> usize {
        if self.word.load(Ordering::Relaxed) & AWAITED == 0 {
            return 0;
        }
        let domain = self.domain();
        domain.event(|core| {
            let key = self.begin(core);
            let mut notified = 0;
            while notified < most {
                core.note_time(key, domain.clock());
                if !core.graph.notify(key, &mut core.effects) {
                    break;
                }
                notified += 1;
            }
            self.follow(core, key);
            notified
        })
    }

    /// Gives the lock up, and ends all waits for it: there is nothing left to wait for. For whoever has the guard.
    ///
    /// It is not free after that, but over: whoever had looked before, and asks for the lock only now, would hold it for a moment, though it needs
    /// nothing of it, and a cycle could be named through that hold.
    pub(in crate::local) fn release_for_good(&self) {
        self.site.store(ptr::null_mut(), Ordering::Relaxed);
        let mut word = self.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            match self.word.compare_exchange(word, OVER, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                // A contender has come; or the hold is another's now, who waits for it no less in vain.
                Err(now) => word = now,
            }
        }
        self.domain().event(|core| {
            let key = self.begin(core);
            core.graph.dismiss(key, &mut core.effects);
            if let Some(holder) = core.graph.holder(key) {
                core.release(holder, key, 1);
                self.site.store(ptr::null_mut(), Ordering::Relaxed);
                core.leaves(holder);
            }
            self.word.store(OVER, Ordering::Release);
        });
    }

    /// Whether it was given up for good. Who sees that sees what was done before.
    pub(in crate::local) fn is_over(&self) -> bool {
        self.word.load(Ordering::Acquire) == OVER
    }

    /// What is over begins anew, or is over from the beginning. For whoever has it alone.
    pub(in crate::local) fn set_over(&mut self, over: bool) {
        let word = match over {
            true => OVER,
            false if self.domain().tracks() => CONTENDED,
            false => FREE,
        };
        self.word.store(word, Ordering::Relaxed);
    }
}
