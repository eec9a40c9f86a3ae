//! What a semaphore is under its type: a word that counts its free permits.

use std::mem;
use std::sync::atomic::{AtomicU64 as Number, Ordering};

use super::word::{Ask, Entered, Want, Word};
use super::{CONTENDED, Raw, Site};
use crate::local::core::Core;
use crate::local::domain::Domain;
use crate::local::graph::{Kind, LockKey, Mode, WorkerKey};
use crate::local::identity::Owner;
use crate::local::sync::{AtomicU64, const_fn};
use crate::local::wait::Held;
use crate::{Error, Result, Worker};

/// A permit, in the word.
const PERMIT: u64 = 2;

/// The bits of the free permits.
const FREE_PERMITS: u64 = (1 << 33) - PERMIT;

/// In the word: nobody can acquire any more.
const CLOSED: u64 = 1 << 33;

/// The word of a semaphore:
///
/// | bit 33 | bits 32 to 1 | bit 0 | means |
/// |---|---|---|---|
/// | closed | the free permits | 0 | nobody waits; the graph knows nothing |
/// | closed | as of the last event | 1 | the graph has the free permits, and knows who waits |
///
/// Without bit 0 anybody takes permits and gives some back by compare-and-swap; with it, under the domain's mutex only. So a waiter cannot be missed: it
/// sets bit 0 under the mutex and queues before it lets go of it, and whoever gives a permit back either did so before, and the waiter finds
/// it, or finds bit 0 and comes after it.
///
/// Of a semaphore that is tracked bit 0 is always set: the graph knows who has its permits.
pub struct Permits {
    pub(in crate::local) raw: Raw,
    /// How many there are, free or not, and how many there may be at most.
    total: AtomicU64,
    most: u32,
}

impl Permits {
    const_fn! {
        pub(in crate::local) const fn new(permits: u32, most: u32, name: Option<&'static str>) -> Permits {
            let mut raw = Raw::new(Kind::Semaphore, name);
            raw.word = AtomicU64::new(permits as u64 * PERMIT);
            Permits { raw, total: AtomicU64::new(permits as u64), most }
        }
    }

    const_fn! {
        /// From now on, before it is shared, the graph knows who has which permits. What it knew of a semaphore that was not tracked it forgets when
        /// the key is next asked for: see [`Raw::key`].
        #[expect(clippy::cast_possible_truncation, reason = "no more permits are added than a u32 can count")]
        pub(in crate::local) const fn track(&mut self) {
            let total = mem::replace(&mut self.total, AtomicU64::new(0)).into_inner();
            let word = mem::replace(&mut self.raw.word, AtomicU64::new(0)).into_inner();
            self.total = AtomicU64::new(total);
            self.raw.word = AtomicU64::new((total * PERMIT) | (word & CLOSED) | CONTENDED);
            self.raw.setup.permits = Some(total as u32);
        }
    }

    /// Moves a semaphore that nobody has yet shared.
    pub(in crate::local) fn set_domain(&mut self, domain: &Domain) {
        self.raw.set_domain(domain);
        if self.is_tracked() || domain.tracks() {
            return self.track();
        }
        // Nobody has any of the permits, or who had some has leaked them.
        let closed = self.raw.word.load(Ordering::Relaxed) & CLOSED;
        self.raw.word.store((self.total.load(Ordering::Relaxed) * PERMIT) | closed, Ordering::Relaxed);
    }

    pub(in crate::local) fn is_tracked(&self) -> bool {
        self.raw.setup.permits.is_some()
    }

    pub(in crate::local) fn most(&self) -> u32 {
        self.most
    }

    /// How many are free, as of the last event while somebody waits.
    pub(in crate::local) fn free(&self) -> u32 {
        free_in(self.raw.word.load(Ordering::Acquire))
    }

    pub(in crate::local) fn is_closed(&self) -> bool {
        self.raw.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Why so many permits can never be acquired, if that is so.
    fn refusal(&self, permits: u32) -> Option<Error> {
        if permits == 0 {
            Some(Error::new(crate::Kind::Invalid, format!("0 permits of {} were asked for: ask for at least 1", self.raw.label())))
        } else if permits > self.most {
            let text = format!(
                "{permits} permits of {} were asked for, which has {} in all: nobody would ever get them",
                self.raw.label(),
                self.most
            );
            Some(Error::new(crate::Kind::Invalid, text))
        } else if self.is_closed() {
            Some(self.closed())
        } else {
            None
        }
    }

    fn closed(&self) -> Error {
        Error::new(crate::Kind::Closed, format!("{} is closed", self.raw.label()))
    }

    /// Tells the graph how many are free, if the word is still that.
    fn tell_graph(&self, core: &mut Core, word: u64) -> bool {
        if self.raw.word.compare_exchange(word, word | CONTENDED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let key = self.raw.key(core);
        core.graph.add_permits(key, u64::from(free_in(word)), &mut core.effects);
        true
    }

    /// Gives permits back, of whom the guard of these says.
    #[inline]
    pub(in crate::local) fn give_back(&self, permits: u32, holder: u64) {
        if holder == 0 && self.add_at_once(permits) {
            return;
        }
        self.give_back_to_graph(permits, holder);
    }

    #[inline]
    fn add_at_once(&self, permits: u32) -> bool {
        let mut word = self.raw.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            // There is room: those that there are in all were counted when they came to be.
            match self.raw.word.compare_exchange_weak(word, word + u64::from(permits) * PERMIT, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[cold]
    fn give_back_to_graph(&self, permits: u32, holder: u64) {
        let domain = self.raw.domain();
        domain.event(|core| {
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            if holder != 0 {
                let holder = WorkerKey::from_number(holder);
                core.release(holder, key, permits);
                core.leaves(holder);
            } else if !self.add_at_once(permits) {
                core.graph.add_permits(key, u64::from(permits), &mut core.effects);
            }
            self.follow(core, key);
        });
    }

    /// Adds permits that nobody had.
    pub(in crate::local) fn release(&self, permits: u32) -> Result<()> {
        let more = |total: u64| total.checked_add(u64::from(permits)).filter(|total| *total <= u64::from(self.most));
        if self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            let most = self.most;
            let text = if most == u32::MAX {
                format!("{} would have more permits than can be counted, which are {most}", self.raw.label())
            } else {
                format!(
                    "{} would have more permits than the {most} that it was made with: only forgotten ones can be added again",
                    self.raw.label()
                )
            };
            return Err(Error::new(crate::Kind::Overflow, text));
        }
        self.give_back(permits, 0);
        Ok(())
    }

    /// The permits of a guard are no more.
    pub(in crate::local) fn forget(&self, permits: u32, holder: u64) {
        self.total.fetch_sub(u64::from(permits), Ordering::Relaxed);
        if holder != 0 {
            self.raw.domain().event(|core| {
                let (key, holder) = (self.begin(core), WorkerKey::from_number(holder));
                core.graph.forget(holder, key, permits, &mut core.effects);
                core.leaves(holder);
                self.follow(core, key);
            });
        }
    }

    /// The permits become another worker's: of the holder that their guard knows as this number, which then is the other's.
    pub(in crate::local) fn transfer(&self, permits: u32, number: &Number, to: &Worker) {
        if !self.is_tracked() {
            return;
        }
        self.raw.domain().event(|core| {
            let heir = core.enlist(&Owner::Worker(to.clone()));
            self.assign(core, permits, WorkerKey::from_number(number.load(Ordering::Relaxed)), heir);
            number.store(heir.get(), Ordering::Relaxed);
        });
    }

    /// The permits of one holder become another's, as their guards know these.
    pub(in crate::local) fn join(&self, permits: u32, from: u64, to: u64) {
        if from != to {
            self.raw.domain().event(|core| self.assign(core, permits, WorkerKey::from_number(from), WorkerKey::from_number(to)));
        }
    }

    fn assign(&self, core: &mut Core, permits: u32, from: WorkerKey, to: WorkerKey) {
        let key = self.begin(core);
        core.graph.hold(to, key, Mode::Shared, permits, &mut core.effects);
        core.graph.forget(from, key, permits, &mut core.effects);
        core.leaves(from);
        core.leaves(to);
        self.follow(core, key);
    }

    /// All waits end, and nobody acquires any more. Whoever has permits goes on doing so.
    pub(in crate::local) fn close(&self) {
        self.raw.domain().event(|core| {
            let key = self.begin(core);
            self.raw.word.fetch_or(CLOSED, Ordering::AcqRel);
            core.graph.dismiss(key, &mut core.effects);
            self.follow(core, key);
        });
    }
}

impl Word for Permits {
    fn raw(&self) -> &Raw {
        &self.raw
    }

    fn is_held(&self) -> bool {
        u64::from(self.free()) < self.total.load(Ordering::Relaxed)
    }

    #[inline]
    fn take(&self, _: u64, want: Want, _: Site) -> Option<u64> {
        let permits = u64::from(want.levels) * PERMIT;
        let mut word = self.raw.word.load(Ordering::Relaxed);
        while word & (CONTENDED | CLOSED) == 0 && permits != 0 && word >= permits {
            match self.raw.word.compare_exchange_weak(word, word - permits, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(0),
                Err(now) => word = now,
            }
        }
        None
    }

    fn take_offered(&self, _: u64, _: Site) -> bool {
        false
    }

    fn approach(&self, core: &mut Core, ask: &Ask<'_>) -> core::result::Result<bool, Entered> {
        if let Some(refusal) = self.refusal(ask.want.levels) {
            return Err(Entered::Refused(refusal));
        }
        loop {
            let word = self.raw.word.load(Ordering::Acquire);
            if word & CONTENDED != 0 {
                return Ok(false);
            }
            if self.take(0, ask.want, ask.site).is_some() {
                return Err(Entered::Held(0));
            }
            if ask.over && free_in(word) < ask.want.levels {
                return Err(Entered::TimedOut);
            }
            if self.tell_graph(core, word) {
                return Ok(false);
            }
        }
    }

    /// Nothing happens here that the graph is not told.
    fn begin(&self, core: &mut Core) -> LockKey {
        self.raw.key(core)
    }

    fn follow(&self, core: &mut Core, key: LockKey) {
        let word = self.raw.word.load(Ordering::Relaxed);
        if word & CONTENDED == 0 {
            return;
        }
        let free = core.graph.free(key).unwrap_or(0);
        // A grant that is not taken may yet come back, to the graph.
        let known = if self.is_tracked() || core.graph.waiting(key) > 0 || core.graph.untaken(key).is_some() {
            CONTENDED
        } else {
            core.graph.take_permits(key, free);
            0
        };
        self.raw.word.store(((free * PERMIT) & FREE_PERMITS) | (word & CLOSED) | known, Ordering::Release);
    }

    fn given(&self, _: &mut Core, worker: WorkerKey, _: Want, _: Site) -> u64 {
        if self.is_tracked() { worker.get() } else { 0 }
    }

    fn give_up(&self, held: Held) {
        self.give_back(held.levels(), held.word().unwrap_or(0));
    }
}

fn free_in(word: u64) -> u32 {
    u32::try_from((word & FREE_PERMITS) / PERMIT).unwrap_or(u32::MAX)
}
