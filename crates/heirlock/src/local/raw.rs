//! What every exclusive lock is under its type: one word, and a place in a domain's graph once it was contended.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use super::core::{Core, Fate};
use super::domain::Domain;
use super::graph::{Acquired, Kind, LockKey, LockSpec, Mode, Request, WaitKey, WorkerKey};
use super::identity::{ANONYMOUS, BITS, Owner};
use crate::clock::Moment;

/// The word of a lock:
///
/// | bits 63 to 47 | bits 46 to 1 | bit 0 | means |
/// |---|---|---|---|
/// | 0 | 0 | 0 | free |
/// | levels beyond the first | owner | 0 | held; the graph does not know |
/// | 0 | owner | 1 | held or granted; the graph knows by whom, how many levels deep, and who waits |
///
/// The owner's number is of `identity.rs`. Without bit 0 anybody changes the word by compare-and-swap: a locker from free to held, the holder by a
/// level or back to free, a contender sets bit 0. With it, the word is changed under the domain's mutex only, and always to what the graph says.
///
/// So a waiter cannot be missed. A contender sets bit 0 under the mutex and queues before it lets go of it. Either that comes after the
/// holder's compare-and-swap to free, and fails, and the contender looks again; or it comes before, the holder's fails, and the holder must
/// pass through the mutex after the contender has queued. The same holds between a contender and a holder that enters again: either the level is
/// in the word that the contender tells the graph, or the holder must tell it itself.
pub struct Raw {
    word: AtomicU64,
    /// The lock's key in its domain's graph, 0 before it has one. Written under the domain's mutex.
    key: AtomicU64,
    kind: Kind,
    name: Option<&'static str>,
    domain: Option<Domain>,
}

const FREE: u64 = 0;
const CONTENDED: u64 = 1;
const DEPTH: u32 = BITS + 1;
const LEVEL: u64 = 1 << DEPTH;

/// The owner's number in a word.
fn owner_in(word: u64) -> u64 {
    (word & (LEVEL - 1)) >> 1
}

/// An acquire that was not served at once.
pub(super) struct Ask<'a> {
    pub(super) owner: &'a Owner,
    pub(super) priority: Option<i32>,
    /// For ordering.
    pub(super) deadline: Option<u64>,
    pub(super) expires: Option<Moment>,
    /// It may not wait: its time is over already.
    pub(super) over: bool,
    /// Of an earlier wait that lost its place.
    pub(super) arrival: Option<u64>,
}

/// What came of it.
pub(super) enum Entered {
    Held,
    Queued(WaitKey),
    TimedOut,
    Deadlock(String),
    /// It would enter again, but arms of one task cannot be told apart.
    NeedsWorker,
    Overflow,
}

impl Raw {
    pub(super) const fn new(kind: Kind, name: Option<&'static str>) -> Raw {
        Raw { word: AtomicU64::new(FREE), key: AtomicU64::new(0), kind, name, domain: None }
    }

    /// Moves a lock that nobody has yet shared.
    pub(super) fn set_domain(&mut self, domain: &Domain) {
        self.purge();
        self.domain = Some(domain.clone());
    }

    pub(super) fn domain(&self) -> &Domain {
        self.domain.as_ref().unwrap_or_else(|| Domain::global())
    }

    pub(super) fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// For a sentence.
    pub(super) fn label(&self) -> Cow<'static, str> {
        self.name.map_or(Cow::Borrowed("the lock"), |name| Cow::Owned(format!("lock {name:?}")))
    }

    pub(super) fn is_reentrant(&self) -> bool {
        self.kind == Kind::RLock
    }

    pub(super) fn is_held(&self) -> bool {
        self.word.load(Ordering::Acquire) != FREE
    }

    /// Takes the lock if it is free.
    pub(super) fn take_free(&self, owner: u64) -> bool {
        self.word.compare_exchange(FREE, owner << 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Enters again, if the owner holds the lock and the graph does not know of it.
    pub(super) fn enter_again(&self, owner: u64) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        // Guards of one owner may be on several threads: what fails because of another level is tried again.
        while owner_in(word) == owner && word & CONTENDED == 0 {
            let Some(deeper) = word.checked_add(LEVEL) else { return false };
            match self.word.compare_exchange_weak(word, deeper, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Gives a level up; the last one to the next in line if there is one. For whoever has a guard.
    pub(super) fn release(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & CONTENDED == 0 {
            let less = word.checked_sub(LEVEL).unwrap_or(FREE);
            // Between the two a contender may have come, whom the long way serves, or another guard of the same owner gone.
            match self.word.compare_exchange(word, less, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.hand_over();
    }

    #[cold]
    fn hand_over(&self) {
        let domain = self.domain();
        domain.event(|core| {
            let key = self.key(core);
            core.note_time(key, domain.clock());
            if let Some(holder) = core.graph.holder(key) {
                core.graph.release(holder, key, &mut core.effects);
                core.leaves(holder);
            }
            self.follow(core, key);
        });
    }

    /// Takes the lock or what the owner was granted of it, or queues with a waker, which must be there unless the time is over.
    pub(super) fn enter(&self, core: &mut Core, ask: &Ask<'_>, waker: &mut Option<Waker>) -> Entered {
        let number = ask.owner.number();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let again = self.kind == Kind::RLock && owner_in(word) == number && number != ANONYMOUS;
            if again && !self.may_reenter(core, ask.owner) {
                return Entered::NeedsWorker;
            }
            if word == FREE {
                if self.take_free(number) {
                    return Entered::Held;
                }
            } else if word & CONTENDED != 0 {
                break;
            } else if ask.over && !again {
                return Entered::TimedOut;
            } else if self.word.compare_exchange(word, word | CONTENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // The holder can no longer leave without this mutex. It enters the graph before whoever waits for it.
                let key = self.key(core);
                let holder = core.enlist(&Owner::from_number(owner_in(word)));
                let depth = u32::try_from(word >> DEPTH).unwrap_or(0) + 1;
                core.graph.hold(holder, key, Mode::Exclusive, depth, &mut core.effects);
                break;
            }
        }
        let key = self.key(core);
        let worker = core.enlist(ask.owner);
        core.take_over(key);
        let entered = queue(core, ask, waker, worker, key);
        if !matches!(entered, Entered::Held | Entered::Queued(..)) {
            core.leaves(worker);
        }
        self.follow(core, key);
        entered
    }

    /// Whether the owner, whose number the word has, may have one more level: a bare task only what it was granted and has not taken.
    fn may_reenter(&self, core: &Core, owner: &Owner) -> bool {
        if !matches!(owner, Owner::Task(_)) {
            return true;
        }
        core.trusts_tasks() || core.has_untaken(owner.number(), LockKey::from_number(self.key.load(Ordering::Relaxed)))
    }

    /// What has become of a wait.
    pub(super) fn look(&self, core: &mut Core, wait: WaitKey, waker: &mut Option<Waker>) -> Fate {
        let key = self.key(core);
        let fate = core.look(wait, key, waker);
        if matches!(fate, Fate::Queued) && core.take_over(key) {
            self.follow(core, key);
        }
        fate
    }

    /// The future of a wait is dropped; its waker, to be dropped when the mutex has been released.
    pub(super) fn cancel(&self, core: &mut Core, wait: WaitKey) -> Option<Waker> {
        let key = self.key(core);
        core.note_time(key, self.domain().clock());
        let waker = core.cancel(wait);
        self.follow(core, key);
        waker
    }

    /// The lock's key, made when it is first needed.
    fn key(&self, core: &mut Core) -> LockKey {
        let number = self.key.load(Ordering::Relaxed);
        if number != 0 {
            return LockKey::from_number(number);
        }
        let key = core.graph.add_lock(LockSpec::new(self.kind));
        core.name_lock(key, self.name);
        self.key.store(key.get(), Ordering::Relaxed);
        key
    }

    /// The word becomes what the graph says, so that the lock passes from hand to hand without having been free. Only while bit 0 is set, when
    /// nobody else writes it: a wait that ended long ago may be dropped while somebody holds the lock whom the graph does not know.
    fn follow(&self, core: &Core, key: LockKey) {
        if self.word.load(Ordering::Relaxed) & CONTENDED == 0 {
            return;
        }
        let owner = core.graph.holder(key).and_then(|holder| core.number_of(holder));
        let word = owner.map_or(FREE, |owner| owner << 1 | CONTENDED);
        self.word.store(word, Ordering::Release);
    }

    /// The graph forgets the lock.
    fn purge(&mut self) {
        let number = std::mem::replace(self.key.get_mut(), 0);
        if number != 0 {
            self.domain().event(|core| core.forget_lock(LockKey::from_number(number)));
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.purge();
    }
}

/// The graph knows the lock, and decides.
fn queue(core: &mut Core, ask: &Ask<'_>, waker: &mut Option<Waker>, worker: WorkerKey, lock: LockKey) -> Entered {
    let waker = if ask.over { None } else { waker.take() };
    let Some(waker) = waker else {
        let taken = core.graph.try_acquire(worker, lock, Mode::Exclusive, &mut core.effects);
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
        ..Request::new(worker, lock, Mode::Exclusive)
    };
    match core.graph.acquire(&request, &mut core.effects) {
        Acquired::Queued(wait) => {
            core.wait(wait, worker, waker, ask.expires);
            Entered::Queued(wait)
        }
        Acquired::Deadlock(cycle) => Entered::Deadlock(core.describe(&cycle)),
        Acquired::Held(_) => Entered::Held,
        Acquired::Overflow => Entered::Overflow,
    }
}
