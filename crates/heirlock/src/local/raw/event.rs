//! What happens to an exclusive lock under its domain's mutex: the events of which the graph is told.

use std::sync::atomic::Ordering;

use super::word::{Ask, Entered, Want, Word};
use super::{CONTENDED, DEPTH, FREE, OFFERED, OVER, Raw, Setup, Site, owner_in};
use crate::local::core::Core;
use crate::local::graph::{Kind, LockKey, LockSpec, Mode, NEVER, Origin, WorkerKey};
use crate::local::identity::{ANONYMOUS, Owner, is_one_line};
use crate::local::wait::Held;

impl Raw {
    /// Tells the graph who holds, if the word is still that.
    pub(super) fn tell_graph(&self, core: &mut Core, word: u64) -> bool {
        // The holder can no longer leave without the mutex. It enters the graph before whoever waits for it.
        if self.word.compare_exchange(word, word | CONTENDED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        let key = self.key(core);
        let holder = core.enlist(&Owner::from_number(owner_in(word)));
        let depth = u32::try_from(word >> DEPTH).unwrap_or(0) + 1;
        core.graph.hold(holder, key, Mode::Exclusive, depth, &mut core.effects);
        core.graph.note_origin(holder, key, Origin { site: self.site(), at: NEVER });
        true
    }

    /// Tells the graph who holds, if it does not know. For whoever has a guard, so that there is a holder.
    pub(super) fn tell_holder(&self, core: &mut Core) -> LockKey {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & CONTENDED != 0 || self.tell_graph(core, word) {
                return self.begin(core);
            }
        }
    }

    /// Whether the owner, whose number the word has, may have one more level: a bare task only what it was granted and has not taken.
    fn may_reenter(&self, core: &Core, owner: &Owner) -> bool {
        if !matches!(owner, Owner::Task(_)) {
            return true;
        }
        core.trusts_tasks() || core.has_untaken(owner.number(), LockKey::from_number(self.key.load(Ordering::Relaxed)))
    }

    /// The lock's key, made when it is first needed.
    pub(super) fn key(&self, core: &mut Core) -> LockKey {
        let number = self.key.load(Ordering::Relaxed);
        if number != 0 {
            let key = LockKey::from_number(number);
            // Made before the semaphore was declared tracked: what the graph knows by it was leaked.
            let is_outdated = self.setup.permits.is_some() && core.graph.spec(key).is_some_and(|spec| !spec.tracked);
            if !is_outdated {
                return key;
            }
            core.forget_lock(key);
        }
        let Setup { kind, order, bypass, permits } = self.setup;
        let domain = self.domain();
        let spec = LockSpec {
            order: order.unwrap_or(domain.order()),
            bypass: bypass.or(domain.bypass()),
            permits: permits.map_or(0, u64::from),
            tracked: permits.is_some(),
            ..LockSpec::new(kind)
        };
        let key = core.graph.add_lock(spec);
        core.name_lock(key, self.full_name());
        self.key.store(key.get(), Ordering::Relaxed);
        key
    }
}

impl Word for Raw {
    fn raw(&self) -> &Raw {
        self
    }

    fn is_held(&self) -> bool {
        self.owner_number() != 0
    }

    #[inline]
    fn take(&self, owner: u64, want: Want, site: Site) -> Option<u64> {
        if want.levels != 1 {
            // The word's levels are few enough to be in the graph's account, too.
            return self.take_levels(owner, want.levels, site).then_some(0);
        }
        let taken = self.take_free(owner, site);
        if taken.is_none() && self.is_reentrant() && is_one_line(owner) {
            return self.enter_again(owner);
        }
        taken
    }

    /// An event may have begun since, or have given the lock to another: then this fails, and the long way tells.
    fn take_offered(&self, owner: u64, site: Site) -> bool {
        let taken = owner << 1 | CONTENDED;
        if self.word.load(Ordering::Relaxed) != taken | OFFERED {
            return false;
        }
        let is_taken = self.word.compare_exchange(taken | OFFERED, taken, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_taken {
            self.note_site(site);
        }
        is_taken
    }

    fn approach(&self, core: &mut Core, ask: &Ask<'_>) -> Result<bool, Entered> {
        if self.is_condition() {
            self.must_wait(core)?;
        }
        let (number, levels) = (ask.owner.number(), ask.want.levels);
        let word = self.word.load(Ordering::Relaxed);
        if word & CONTENDED != 0 && word != OVER {
            self.begin(core);
        }
        loop {
            let word = self.word.load(Ordering::Acquire);
            // Who had looked before it was over, and comes only now: it has what it came for, and holds nothing.
            if word == OVER {
                return Err(Entered::Held(0));
            }
            let again = self.is_reentrant() && owner_in(word) == number && number != ANONYMOUS;
            if again && !self.may_reenter(core, ask.owner) {
                return Err(Entered::NeedsWorker);
            }
            if word == FREE {
                if self.take_levels(number, levels, ask.site) {
                    return Err(Entered::Held(0));
                }
                // More levels than the word has room for: the graph has, and nobody else can take the lock before it has said so.
                let roomy = levels > 1 && self.word.compare_exchange(FREE, CONTENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if roomy {
                    return Ok(false);
                }
            } else if word & CONTENDED != 0 {
                return Ok(again);
            } else if ask.over && !again {
                return Err(Entered::TimedOut);
            } else if self.tell_graph(core, word) {
                return Ok(again);
            }
        }
    }

    /// An event on the lock begins, which ends with [`follow`](Word::follow): from here to there nobody takes a grant without the mutex, and the
    /// graph knows whether somebody has.
    fn begin(&self, core: &mut Core) -> LockKey {
        let key = self.key(core);
        // Nobody else sets the bit. Of the future that takes the grant and this one clears it.
        if self.offered.load(Ordering::Relaxed) {
            let still = self.word.load(Ordering::Relaxed) & OFFERED != 0 && self.word.fetch_and(!OFFERED, Ordering::AcqRel) & OFFERED != 0;
            core.note_offer(key, still);
            self.offered.store(false, Ordering::Relaxed);
        }
        key
    }

    /// The word becomes what the graph says, so that the lock passes from hand to hand without having been free. Only while bit 0 is set, when
    /// nobody else writes it: a wait that ended long ago may be dropped while somebody holds the lock whom the graph does not know.
    fn follow(&self, core: &mut Core, key: LockKey) {
        if self.is_condition() {
            return self.follow_waits(core, key);
        }
        let word = self.word.load(Ordering::Relaxed);
        if word & CONTENDED == 0 || word == OVER {
            return;
        }
        let owner = core.graph.holder(key).and_then(|holder| core.number_of(holder));
        let word = match owner {
            Some(owner) if matches!(self.setup.kind, Kind::Mutex | Kind::Once) && owner != ANONYMOUS && core.offer(key) => {
                self.offered.store(true, Ordering::Relaxed);
                owner << 1 | CONTENDED | OFFERED
            }
            Some(owner) => owner << 1 | CONTENDED,
            None if core.tracks() => CONTENDED,
            None => FREE,
        };
        self.word.store(word, Ordering::Release);
    }

    /// The graph knows of the hold, and there is one at most.
    fn given(&self, _: &mut Core, _: WorkerKey, _: Want, site: Site) -> u64 {
        self.note_site(site);
        0
    }

    fn give_up(&self, held: Held) {
        self.let_go(held.levels());
    }
}
