//! What every exclusive lock is under its type: one word, and a place in a domain's graph once it was contended.

mod awaited;
mod event;
mod many;
mod permits;
mod shared;
mod upgrade;
mod whole;
mod word;

use std::num::NonZeroU32;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use self::awaited::AWAITED;
pub(super) use self::permits::Permits;
pub(super) use self::shared::Shared;
pub(super) use self::upgrade::Upgrading;
pub(super) use self::word::{Ask, Entered, Want, Word};
use super::domain::Domain;
use super::graph::{Acquired, Kind, LockKey, Mode, NEVER, Order, Origin, Request};
use super::identity::{ANONYMOUS, BITS, Owner};
use super::name::Name;
use super::poison::Poison;
use super::sync::{AtomicBool, AtomicPtr, AtomicU64, const_fn};
use super::wait::{Held, overflow};
use crate::Worker;

/// The word of a lock:
///
/// | bits 63 to 47 | bits 46 to 1 | bit 0 | means |
/// |---|---|---|---|
/// | 0 | 0 | 0 | free |
/// | levels beyond the first | owner | 0 | held; the graph does not know |
/// | 0 | owner | 1 | held or granted; the graph knows by whom, how many levels deep, and who waits |
/// | bit 63 only | owner | 1 | granted, and the owner may take it without the mutex |
/// | 0 | 0 | 1 | free, in a domain that tracks its holds: the graph is told of each |
/// | bit 62 only | 0 | 1 | of a promise or a cell: over for good. Nobody holds it, and nobody acquires it any more |
///
/// The owner's number is of `identity.rs`. Without bit 0 anybody changes the word by compare-and-swap: a locker from free to held, the holder by a
/// level or back to free, a contender sets bit 0. With it, the word is changed under the domain's mutex only, and always to what the graph says.
///
/// So a waiter cannot be missed. A contender sets bit 0 under the mutex and queues before it lets go of it. Either that comes after the
/// holder's compare-and-swap to free, and fails, and the contender looks again; or it comes before, the holder's fails, and the holder must
/// pass through the mutex after the contender has queued. The same holds between a contender and a holder that enters again: either the level is
/// in the word that the contender tells the graph, or the holder must tell it itself.
///
/// A grant is mostly taken without the mutex: whoever was granted a lock that is offered clears bit 63. The graph learns of that by the next event
/// on the lock, which begins by clearing the bit itself. Of the two one fails: either the grant was taken, and the event tells the graph so, or it
/// can no longer be taken while the event runs, which may give it to another. Only what would change nothing else in the graph is offered.
pub struct Raw {
    word: AtomicU64,
    /// The lock's key in its domain's graph, 0 before it has one. Written under the domain's mutex.
    key: AtomicU64,
    /// Where the holder acquired the lock, for whoever looks: written after the word was taken, and taken away before the word is free, so that
    /// no holder is shown another's. A contender may see none.
    site: AtomicPtr<Location<'static>>,
    /// Whether its grant was offered, and the graph does not know what came of that. Written under the domain's mutex.
    offered: AtomicBool,
    setup: Setup,
    name: Option<&'static str>,
    /// Of one of many with the same name: which it is, once somebody has said so.
    place: Option<Box<OnceLock<Arc<str>>>>,
    domain: Option<Domain>,
    pub(super) poison: Poison,
}

/// The rules of a lock, fixed before it is shared.
#[derive(Clone, Copy)]
struct Setup {
    kind: Kind,
    /// The domain's, if there is none.
    order: Option<Order>,
    bypass: Option<NonZeroU32>,
    /// Of a semaphore that is tracked: how many permits it is made with.
    permits: Option<u32>,
}

const FREE: u64 = 0;
const CONTENDED: u64 = 1;
const OFFERED: u64 = 1 << 63;
const DEPTH: u32 = BITS + 1;
const LEVEL: u64 = 1 << DEPTH;
/// With bit 0 a word has no levels, and a condition's has other bits: so this is no other.
const OVER: u64 = OFFERED >> 1 | CONTENDED;

/// A source line.
pub(super) type Site = &'static Location<'static>;

/// The owner's number in a word.
fn owner_in(word: u64) -> u64 {
    (word & (LEVEL - 1)) >> 1
}

impl Raw {
    const_fn! {
        pub(super) const fn new(kind: Kind, name: Option<&'static str>) -> Raw {
            Raw {
                word: AtomicU64::new(match kind {
                    kind if kind.is_condition() => CONTENDED,
                    // By nobody known, so that who wants it waits.
                    Kind::Promise => ANONYMOUS << 1,
                    _ => FREE,
                }),
                key: AtomicU64::new(0),
                site: AtomicPtr::new(ptr::null_mut()),
                offered: AtomicBool::new(false),
                setup: Setup { kind, order: None, bypass: None, permits: None },
                name,
                place: None,
                domain: None,
                poison: Poison::off(),
            }
        }
    }

    /// What is set before the lock is shared.
    pub(super) const fn set_order(&mut self, order: Order) {
        self.setup.order = Some(order);
    }

    pub(super) const fn set_poisoning(&mut self) {
        self.poison.watch();
    }

    /// # Panics
    /// If the limit is 0.
    pub(super) const fn set_bypass_limit(&mut self, limit: u32) {
        self.setup.bypass = Some(bypass_limit(limit));
    }

    /// Moves a lock that nobody has yet shared.
    pub(super) fn set_domain(&mut self, domain: &Domain) {
        self.purge();
        self.domain = Some(domain.clone());
        self.offered.store(false, Ordering::Relaxed);
        // Of whoever had it something was leaked, which has it no more.
        let word = match (self.word.load(Ordering::Relaxed), self.setup.kind) {
            (word, Kind::Semaphore) => word,
            (OVER, Kind::Promise | Kind::Once) => OVER,
            (_, Kind::Promise) => ANONYMOUS << 1,
            (word, kind) if kind.is_condition() => word & !AWAITED,
            // So the fast path has nothing to ask: it fails, here as on any lock of which the graph knows.
            _ if domain.tracks() => CONTENDED,
            _ => FREE,
        };
        self.word.store(word, Ordering::Relaxed);
    }

    pub(super) fn domain(&self) -> &Domain {
        self.domain.as_ref().unwrap_or_else(|| Domain::global())
    }

    pub(super) fn name(&self) -> Option<&'static str> {
        self.name
    }

    pub(super) fn kind(&self) -> Kind {
        self.setup.kind
    }

    /// For a sentence.
    pub(super) fn label(&self) -> String {
        let noun = self.setup.kind.noun();
        self.full_name().text().map_or_else(|| format!("the {noun}"), |name| format!("{noun} {name:?}"))
    }

    /// The same for who did not get it.
    pub(super) fn taken_label(&self) -> String {
        let why = if self.is_semaphore() { "has too few free permits" } else { "is held" };
        format!("{} {why}", self.label())
    }

    pub(super) fn is_semaphore(&self) -> bool {
        self.setup.kind == Kind::Semaphore
    }

    /// See [`Word::nests`].
    fn nests(&self) -> bool {
        !self.is_condition() && !self.is_semaphore()
    }

    /// Whether nobody is known to hold what was granted.
    fn is_unheld(&self) -> bool {
        self.is_condition() || self.is_semaphore() && self.setup.permits.is_none()
    }

    /// Whether that names it, and not only what it is.
    pub(super) fn is_named(&self) -> bool {
        self.name.is_some() || self.place.as_ref().is_some_and(|place| place.get().is_some())
    }

    fn full_name(&self) -> Name {
        Name { class: self.name, place: self.place.as_ref().and_then(|place| place.get()).cloned() }
    }

    pub(super) fn is_reentrant(&self) -> bool {
        self.setup.kind == Kind::RLock
    }

    /// Who holds it, as a number; 0 if nobody does.
    pub(super) fn owner_number(&self) -> u64 {
        owner_in(self.word.load(Ordering::Acquire))
    }

    /// Takes the lock if it is free; the word that this made of it.
    #[inline]
    pub(super) fn take_free(&self, owner: u64, site: Site) -> Option<u64> {
        let held = owner << 1;
        let taken = self.word.compare_exchange(FREE, held, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.note_site(site);
        }
        taken.then_some(held)
    }

    /// Takes the lock so many levels deep, if it is free and the word has room for them.
    #[inline]
    pub(super) fn take_levels(&self, owner: u64, levels: u32, site: Site) -> bool {
        let Some(beyond) = (u64::from(levels) - 1).checked_mul(LEVEL) else { return false };
        let taken = self.word.compare_exchange(FREE, owner << 1 | beyond, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            self.note_site(site);
        }
        taken
    }

    /// Where the lock was acquired, for who has just got it.
    #[inline]
    pub(super) fn note_site(&self, site: Site) {
        self.site.store(ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    }

    /// Enters again, if the owner holds the lock and the graph does not know of it.
    pub(super) fn enter_again(&self, owner: u64) -> Option<u64> {
        let mut word = self.word.load(Ordering::Relaxed);
        // Guards of one owner may be on several threads: what fails because of another level is tried again.
        while owner_in(word) == owner && word & CONTENDED == 0 {
            let deeper = word.checked_add(LEVEL)?;
            match self.word.compare_exchange_weak(word, deeper, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(deeper),
                Err(now) => word = now,
            }
        }
        None
    }

    /// One more level for the holder, whoever that is. For whoever has a guard.
    pub(super) fn again(&self) -> crate::Result<Held> {
        if let Some(word) = self.enter_again(owner_in(self.word.load(Ordering::Relaxed))) {
            return Ok(Held::with_word(self, word));
        }
        let entered = self.domain().event(|core| {
            let key = self.tell_holder(core);
            let holder = core.graph.holder(key)?;
            core.graph.try_acquire(&Request::new(holder, key, Mode::Exclusive), &mut core.effects)
        });
        if matches!(entered, Some(Acquired::Held(_))) { Ok(Held::here(self)) } else { Err(overflow(self.label())) }
    }

    /// Gives up the levels of a guard; the last one to the next in line if there is one.
    #[inline]
    pub(super) fn release(&self, levels: u32, held: Held) {
        if !self.release_at_once(levels, held) {
            self.let_go(levels);
        }
    }

    /// The same, if the word is still what it became when the guard was made; false if not.
    #[inline]
    fn release_at_once(&self, levels: u32, held: Held) -> bool {
        if !self.poison.is_off() && held.is_dropped_by_a_panic() {
            self.left(false);
        }
        // Mostly the word is still what it became when the guard was made. Reading it first would wait for the processor to finish the last
        // change of it, which in a short hold is that one.
        held.word().is_some_and(|word| self.exchange_for_less(word, without(word, levels)).is_ok())
    }

    /// The word becomes one of less levels, if it is still that; else says what it is.
    #[inline]
    fn exchange_for_less(&self, word: u64, less: u64) -> Result<(), u64> {
        if less != FREE {
            return self.word.compare_exchange(word, less, Ordering::Release, Ordering::Relaxed).map(drop);
        }
        let site = self.site.load(Ordering::Relaxed);
        self.site.store(ptr::null_mut(), Ordering::Relaxed);
        let free = self.word.compare_exchange(word, FREE, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            // Whoever still holds the lock got it where it did.
            self.site.store(site, Ordering::Relaxed);
        }
        free.map(drop)
    }

    fn let_go(&self, levels: u32) {
        if !self.let_go_alone(levels) {
            self.hand_over(levels);
        }
    }

    /// Gives up so many levels, if the graph does not know of the hold.
    fn let_go_alone(&self, levels: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            // Meanwhile a contender may have come, whom the long way serves, or another guard of the same owner gone.
            match self.exchange_for_less(word, without(word, levels)) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Where the holder acquired it.
    pub(super) fn site(&self) -> Option<Site> {
        // SAFETY: null, or made of a `&'static Location` by `note_site`.
        unsafe { self.site.load(Ordering::Relaxed).as_ref() }
    }

    /// Whoever holds the lock has left its work unfinished, or has panicked.
    #[cold]
    pub(super) fn left(&self, unfinished: bool) {
        self.poison.poison(owner_in(self.word.load(Ordering::Relaxed)), self.site(), unfinished);
    }

    /// The hold, with all its levels, becomes another worker's. For whoever has a guard.
    pub(super) fn transfer(&self, to: &Worker) {
        self.give(to.id().get(), None);
    }

    /// The same for whoever has this number, if anybody holds the lock. Where that began is noted if it is not known.
    fn give(&self, number: u64, site: Option<Site>) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            let theirs = word & !(LEVEL - 1) | number << 1;
            // A contender that comes in between has told the graph of the old owner: the long way.
            match self.word.compare_exchange(word, theirs, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        let heir = Owner::from_number(number);
        self.domain().event(|core| {
            // A promise may be over at any time.
            if self.is_over() {
                return;
            }
            let key = self.begin(core);
            if let Some(holder) = core.graph.holder(key) {
                let heir = core.enlist(&heir);
                core.graph.transfer(key, holder, heir, &mut core.effects);
                core.graph.note_origin(heir, key, Origin { site, at: NEVER });
                core.leaves(holder);
                core.leaves(heir);
            }
            self.follow(core, key);
        });
    }

    /// The graph forgets the lock.
    fn purge(&self) {
        let number = self.key.load(Ordering::Relaxed);
        if number != 0 {
            self.key.store(0, Ordering::Relaxed);
            self.domain().event(|core| core.forget_lock(LockKey::from_number(number)));
        }
    }
}

/// What an uncontended word becomes when so many levels are given up.
#[inline]
fn without(word: u64, levels: u32) -> u64 {
    u64::from(levels).checked_mul(LEVEL).and_then(|less| word.checked_sub(less)).unwrap_or(FREE)
}

/// A limit that is one.
///
/// # Panics
/// If it is 0.
pub(super) const fn bypass_limit(limit: u32) -> NonZeroU32 {
    match NonZeroU32::new(limit) {
        Some(limit) => limit,
        None => panic!("a bypass limit of 0 would let nobody go first: give at least 1"),
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.purge();
    }
}
