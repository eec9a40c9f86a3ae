//! What happens to a lock under its domain's mutex: the events of which the graph is told.

use std::ptr;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::{CONTENDED, DEPTH, FREE, OFFERED, Raw, Setup, Site, owner_in, whole};
use crate::clock::Moment;
use crate::local::core::{Core, Fate};
use crate::local::graph::{Acquired, Kind, LockKey, LockSpec, Mode, NEVER, Origin, Released, Request, WaitKey, WorkerKey};
use crate::local::identity::{ANONYMOUS, Owner};

/// An acquire that was not served at once.
pub(in crate::local) struct Ask<'a> {
    pub(in crate::local) owner: &'a Owner,
    pub(in crate::local) priority: Option<i32>,
    /// For ordering.
    pub(in crate::local) deadline: Option<u64>,
    pub(in crate::local) expires: Option<Moment>,
    /// It may not wait: its time is over already.
    pub(in crate::local) over: bool,
    /// Of an earlier wait that lost its place.
    pub(in crate::local) arrival: Option<u64>,
    /// How many levels at once.
    pub(in crate::local) depth: u32,
    /// The check of orders knows of it.
    pub(in crate::local) declared: bool,
    pub(in crate::local) site: Site,
    /// When it begins to wait; `NEVER` if it will not.
    pub(in crate::local) at: u64,
}

/// What came of it.
pub(in crate::local) enum Entered {
    Held,
    Queued(WaitKey),
    TimedOut,
    Deadlock(String),
    /// It would enter again, but arms of one task cannot be told apart.
    NeedsWorker,
    Overflow,
}

impl Raw {
    #[cold]
    pub(super) fn hand_over(&self, levels: u32) {
        let domain = self.domain();
        domain.event(|core| {
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            if let Some(holder) = core.graph.holder(key) {
                let released = core.release(holder, key, levels);
                if released == Released::Freed {
                    // Under the mutex, so that it does not fall upon the next holder, who learns of its grant there.
                    self.site.store(ptr::null_mut(), Ordering::Relaxed);
                }
                core.leaves(holder);
            }
            self.follow(core, key);
        });
    }

    /// Takes the lock or what the owner was granted of it, or queues with a waker, which must be there unless the time is over.
    pub(in crate::local) fn enter(&self, core: &mut Core, ask: &Ask<'_>, waker: &mut Option<Waker>) -> Entered {
        let number = ask.owner.number();
        if self.word.load(Ordering::Relaxed) & CONTENDED != 0 {
            self.begin(core);
        }
        let again = loop {
            let word = self.word.load(Ordering::Relaxed);
            let again = self.is_reentrant() && owner_in(word) == number && number != ANONYMOUS;
            if again && !self.may_reenter(core, ask.owner) {
                return Entered::NeedsWorker;
            }
            if word == FREE {
                if self.take_levels(number, ask.depth, ask.site) {
                    return Entered::Held;
                }
                // More levels than the word has room for: the graph has, and nobody else can take the lock before it has said so.
                let roomy = ask.depth > 1 && self.word.compare_exchange(FREE, CONTENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if roomy {
                    break false;
                }
            } else if word & CONTENDED != 0 {
                break again;
            } else if ask.over && !again {
                return Entered::TimedOut;
            } else if self.tell_graph(core, word) {
                break again;
            }
        };
        let key = self.key(core);
        let worker = core.enlist(ask.owner);
        if !ask.over && !ask.declared && !self.is_condition() {
            core.nests(worker, key, Some(ask.site));
        }
        let entered = queue(core, ask, waker, worker, key);
        // Only now: it may be the only one who waits, and a grant is taken over only by who does.
        core.take_over(key);
        if matches!(entered, Entered::Held) && !again {
            self.note_site(ask.site);
            core.began(worker, key);
        }
        if !matches!(entered, Entered::Held | Entered::Queued(..)) || self.is_condition() {
            core.leaves(worker);
        }
        self.follow(core, key);
        entered
    }

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

    /// What has become of a wait.
    pub(in crate::local) fn look(&self, core: &mut Core, wait: WaitKey, waker: &mut Option<Waker>) -> Fate {
        let key = self.begin(core);
        let fate = core.look(wait, key, waker);
        if matches!(fate, Fate::Queued) {
            core.take_over(key);
        }
        self.follow(core, key);
        fate
    }

    /// The future of a wait is dropped; its waker, to be dropped when the mutex has been released.
    pub(in crate::local) fn cancel(&self, core: &mut Core, wait: WaitKey) -> Option<Waker> {
        let key = self.begin(core);
        core.note_time(key, self.domain().clock());
        let waker = core.cancel(wait);
        self.follow(core, key);
        waker
    }

    /// An event on the lock begins, which ends with [`follow`](Raw::follow): from here to there nobody takes a grant without the mutex, and the
    /// graph knows whether somebody has.
    pub(super) fn begin(&self, core: &mut Core) -> LockKey {
        let key = self.key(core);
        // Nobody else sets the bit. Of the future that takes the grant and this one clears it.
        if self.offered.load(Ordering::Relaxed) {
            let still = self.word.load(Ordering::Relaxed) & OFFERED != 0 && self.word.fetch_and(!OFFERED, Ordering::AcqRel) & OFFERED != 0;
            core.note_offer(key, still);
            self.offered.store(false, Ordering::Relaxed);
        }
        key
    }

    /// The lock's key, made when it is first needed.
    pub(super) fn key(&self, core: &mut Core) -> LockKey {
        let number = self.key.load(Ordering::Relaxed);
        if number != 0 {
            return LockKey::from_number(number);
        }
        let Setup { kind, order, bypass } = self.setup;
        let domain = self.domain();
        let spec = LockSpec { order: order.unwrap_or(domain.order()), bypass: bypass.or(domain.bypass()), ..LockSpec::new(kind) };
        let key = core.graph.add_lock(spec);
        core.name_lock(key, self.full_name());
        self.key.store(key.get(), Ordering::Relaxed);
        key
    }

    /// The word becomes what the graph says, so that the lock passes from hand to hand without having been free. Only while bit 0 is set, when
    /// nobody else writes it: a wait that ended long ago may be dropped while somebody holds the lock whom the graph does not know.
    pub(super) fn follow(&self, core: &mut Core, key: LockKey) {
        if self.is_condition() {
            let awaited = core.graph.waiting(key) > 0;
            return self.word.store(if awaited { CONTENDED | whole::AWAITED } else { CONTENDED }, Ordering::Release);
        }
        if self.word.load(Ordering::Relaxed) & CONTENDED == 0 {
            return;
        }
        let owner = core.graph.holder(key).and_then(|holder| core.number_of(holder));
        let word = match owner {
            Some(owner) if self.setup.kind == Kind::Mutex && owner != ANONYMOUS && core.offer(key) => {
                self.offered.store(true, Ordering::Relaxed);
                owner << 1 | CONTENDED | OFFERED
            }
            Some(owner) => owner << 1 | CONTENDED,
            None if core.tracks() => CONTENDED,
            None => FREE,
        };
        self.word.store(word, Ordering::Release);
    }
}

/// The graph knows the lock, and decides.
fn queue(core: &mut Core, ask: &Ask<'_>, waker: &mut Option<Waker>, worker: WorkerKey, lock: LockKey) -> Entered {
    let origin = Origin { site: Some(ask.site), at: ask.at };
    let request = Request { origin, depth: ask.depth, ..Request::new(worker, lock, Mode::Exclusive) };
    let waker = if ask.over { None } else { waker.take() };
    let Some(waker) = waker else {
        let taken = core.graph.try_acquire(&request, &mut core.effects);
        return match taken {
            Some(Acquired::Held(_)) => Entered::Held,
            Some(Acquired::Overflow) => Entered::Overflow,
            _ => Entered::TimedOut,
        };
    };
    let request = Request {
        priority: ask.priority,
        deadline: ask.deadline,
        expires: ask.expires.map(Moment::as_nanos),
        arrival: ask.arrival,
        ..request
    };
    match core.graph.acquire(&request, &mut core.effects) {
        Acquired::Queued(wait) => {
            core.wait(wait, &request, waker, ask.expires);
            Entered::Queued(wait)
        }
        Acquired::Deadlock(cycle) => Entered::Deadlock(core.verdict(&cycle, Moment::from_nanos(ask.at))),
        Acquired::Held(_) => Entered::Held,
        Acquired::Overflow => Entered::Overflow,
    }
}
