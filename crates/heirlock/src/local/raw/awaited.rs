//! What conditions, events, barriers and promises need of a lock: that it is waited for without being acquired.

use std::sync::atomic::Ordering;

use super::word::{Entered, Word};
use super::{CONTENDED, LEVEL, Raw, Site, owner_in};
use crate::local::core::Core;
use crate::local::graph::{Kind, LockKey};
use crate::local::identity::BITS;
use crate::local::sync::{AtomicU64, const_fn};

/// The word of a condition. Nobody holds one, so there is room for more:
///
/// | bit 48 | bit 47 | bits 46 to 1 | bit 0 | means |
/// |---|---|---|---|---|
/// | 0 | 0 | n | 1 | nobody waits |
/// | 0 | 1 | n | 1 | somebody waits, or did a moment ago |
/// | 1 | 0 | 0 | 1 | an event that is set |
///
/// Of a barrier, n is how many complete a round; else it is 0. Bit 0 is always set, so that the graph decides. Bit 47 is written under the domain's
/// mutex only. Bit 48 is cleared by anybody; it is set by anybody while nobody waits, and under the mutex while somebody does.
pub(super) const AWAITED: u64 = LEVEL;
const SET: u64 = LEVEL << 1;

/// More can never wait at once.
const MOST_PARTIES: u64 = (1 << BITS) - 1;

impl Raw {
    const_fn! {
        /// What is under a barrier of so many.
        pub(in crate::local) const fn barrier(parties: usize, name: Option<&'static str>) -> Raw {
            let parties = if parties as u64 > MOST_PARTIES { MOST_PARTIES } else { parties as u64 };
            let mut raw = Raw::new(Kind::Barrier, name);
            raw.word = AtomicU64::new(parties << 1 | CONTENDED);
            raw
        }
    }

    pub(in crate::local) fn is_condition(&self) -> bool {
        self.setup.kind.is_condition()
    }

    /// Whether the event is set. Who sees that sees what was done before.
    #[inline]
    pub(in crate::local) fn is_set(&self) -> bool {
        self.word.load(Ordering::Acquire) & SET != 0
    }

    /// Sets the event, and ends all waits for it; how many.
    ///
    /// Where nobody waits this takes no mutex, and neither it nor a wait is missed. It may set bit 48 only while bit 47 is not set, and a wait that begins
    /// may set bit 47 only while bit 48 is not ([`must_wait`](Raw::must_wait)): of both, the one that comes second finds the other's, and goes its way.
    ///
    /// While somebody waits it happens under the mutex, all of it. Were bit 48 set before, another could clear it, wait anew, and have that wait ended by
    /// the set that it has already cleared.
    pub(in crate::local) fn set(&self) -> usize {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & AWAITED == 0 {
            // Written also if it is set: who clears it must see what was done before *this* call, for it will look for that no more.
            match self.word.compare_exchange_weak(word, word | SET, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return 0,
                Err(now) => word = now,
            }
        }
        self.set_awaited()
    }

    #[cold]
    fn set_awaited(&self) -> usize {
        let domain = self.domain();
        loop {
            let ended = domain.event(|core| {
                let key = self.begin(core);
                // Whoever is out of time by now was not told in time. Of the whole domain those may be many: then the mutex is released in between, and
                // all is looked at anew.
                if !core.end_late(domain.clock()) {
                    self.follow(core, key);
                    return None;
                }
                self.word.fetch_or(SET, Ordering::AcqRel);
                let waiting = core.graph.waiting(key);
                core.graph.dismiss(key, &mut core.effects);
                self.follow(core, key);
                Some(waiting)
            });
            if let Some(waiting) = ended {
                return waiting;
            }
        }
    }

    /// The event is no longer set; whether it was. Who calls this sees what was done before it was set.
    pub(in crate::local) fn clear(&self) -> bool {
        self.word.fetch_and(!SET, Ordering::AcqRel) & SET != 0
    }

    /// For who is about to wait, under the mutex: if it has to, whoever would end the wait comes here from now on; else what came of it.
    pub(super) fn must_wait(&self, core: &mut Core) -> Result<(), Entered> {
        let mut word = self.word.load(Ordering::Acquire);
        let parties = owner_in(word);
        if parties != 0 {
            self.arrive(core, parties)?;
        }
        while word & SET == 0 {
            match self.word.compare_exchange_weak(word, word | AWAITED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
        Err(Entered::Held(0))
    }

    /// Who arrives at the barrier may complete a round. All who wait go on then, and are in no one's way in the next.
    fn arrive(&self, core: &mut Core, parties: u64) -> Result<(), Entered> {
        let key = self.begin(core);
        // Whoever is out of time by now has not arrived.
        if !core.end_late(self.domain().clock()) {
            self.follow(core, key);
            return Err(Entered::Again);
        }
        if core.graph.waiting(key) as u64 + 1 < parties {
            return Ok(());
        }
        core.graph.dismiss(key, &mut core.effects);
        self.follow(core, key);
        Err(Entered::Held(0))
    }

    /// What [`follow`](Raw::follow) does for a condition. Who waits has said so before it queued; that nobody does any more is said here.
    pub(super) fn follow_waits(&self, core: &Core, key: LockKey) {
        if core.graph.waiting(key) == 0 && self.word.load(Ordering::Relaxed) & AWAITED != 0 {
            // An event may be cleared at the same time.
            self.word.fetch_and(!AWAITED, Ordering::Release);
        }
    }

    /// The hold of a promise becomes that of whoever will keep it.
    pub(in crate::local) fn bind(&self, number: u64, site: Site) {
        // First this: whoever waits tells the graph of both.
        self.note_site(site);
        self.give(number, Some(site));
    }
}
