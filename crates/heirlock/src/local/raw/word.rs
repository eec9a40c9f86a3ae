//! What all locks do alike under their domain's mutex, and in what their words differ.

use std::ptr;
use std::sync::atomic::Ordering;
use std::task::Waker;

use super::{Raw, Site};
use crate::Error;
use crate::clock::Moment;
use crate::local::core::{Core, Fate};
use crate::local::graph::{Acquired, LockKey, Mode, NEVER, Origin, Released, Request, WaitKey, WorkerKey};
use crate::local::identity::Owner;
use crate::local::wait::Held;

/// What a call wants of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub(in crate::local) mode: Mode,
    /// How many levels at once; of a semaphore, permits.
    pub(in crate::local) levels: u32,
}

impl Want {
    /// What a call wants that says nothing else.
    pub(in crate::local) const ONE: Want = Want::levels(1);

    pub(in crate::local) const fn levels(levels: u32) -> Want {
        Want { mode: Mode::Exclusive, levels }
    }

    pub(in crate::local) const fn mode(mode: Mode) -> Want {
        Want { mode, levels: 1 }
    }
}

/// An acquire that was not served at once.
pub struct Ask<'a> {
    pub(in crate::local) owner: &'a Owner,
    pub(in crate::local) want: Want,
    pub(in crate::local) priority: Option<i32>,
    /// For ordering.
    pub(in crate::local) deadline: Option<u64>,
    pub(in crate::local) expires: Option<Moment>,
    /// It may not wait: its time is over already.
    pub(in crate::local) over: bool,
    /// Of an earlier wait that lost its place.
    pub(in crate::local) arrival: Option<u64>,
    /// The check of orders knows of it.
    pub(in crate::local) declared: bool,
    pub(in crate::local) site: Site,
    /// When it begins to wait; `NEVER` if it will not.
    pub(in crate::local) at: u64,
}

/// What came of it.
pub enum Entered {
    /// With what the guard is to know: see [`Word::take`].
    Held(u64),
    Queued(WaitKey),
    TimedOut,
    Deadlock(String),
    /// Too much is to be done first for one section of the mutex: to be asked again.
    Again,
    /// It would enter again, but arms of one task cannot be told apart.
    NeedsWorker,
    Overflow,
    /// For good.
    Refused(Error),
}

/// The word of a lock: what is done without the graph, and how the two agree.
///
/// As long as the graph does not know the lock, the word (with what belongs to it) tells everything, and is changed by compare-and-swap. Whoever
/// has to wait tells the graph, under the domain's mutex; from then on the graph decides, and an event on the lock [begins](Word::begin) by telling
/// it what may have happened without the mutex, and ends by making the word [follow](Word::follow) it.
pub trait Word {
    fn raw(&self) -> &Raw;

    /// Whether anybody holds it, or was granted it.
    fn is_held(&self) -> bool;

    /// Takes it, if the graph need not be asked; what the guard is to know then, which is for the word to choose.
    fn take(&self, owner: u64, want: Want, site: Site) -> Option<u64>;

    /// Takes what the owner was granted, without the mutex; false if that must be asked for under it.
    fn take_offered(&self, owner: u64, site: Site) -> bool;

    /// Under the mutex: makes the graph know, if it has to decide. Else what came of it. The graph is to be asked as by a holder, who enters again,
    /// if so it says.
    fn approach(&self, core: &mut Core, ask: &Ask<'_>) -> Result<bool, Entered>;

    /// An event on the lock begins, which ends with [`follow`](Word::follow).
    fn begin(&self, core: &mut Core) -> LockKey;

    /// The word becomes what the graph says.
    fn follow(&self, core: &mut Core, key: LockKey);

    /// The graph has given it to the worker: what the guard is to know.
    fn given(&self, core: &mut Core, worker: WorkerKey, want: Want, site: Site) -> u64;

    /// Gives up what was just acquired.
    fn give_up(&self, held: Held);

    /// Whose acquire it is.
    fn asker(&self, core: &mut Core, ask: &Ask<'_>) -> WorkerKey {
        core.enlist(ask.owner)
    }

    /// Whether a lock that is waited for within holds of others comes after these: what waits for each other in a circle.
    fn nests(&self) -> bool {
        self.raw().nests()
    }

    /// For a sentence to who did not get it: what is in the way.
    fn why_not(&self) -> String {
        self.raw().taken_label()
    }

    /// Asks the graph for it; if it may not wait, it has it at once or `None`.
    fn ask_graph(&self, core: &mut Core, request: &Request, may_wait: bool) -> Option<Acquired> {
        let Core { graph, effects, .. } = core;
        if may_wait { Some(graph.acquire(request, effects)) } else { graph.try_acquire(request, effects) }
    }

    /// The one holder gives up so many levels; the last one to the next in line.
    #[cold]
    fn hand_over(&self, levels: u32) {
        let domain = self.raw().domain();
        domain.event(|core| {
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            if let Some(holder) = core.graph.holder(key) {
                let released = core.release(holder, key, levels);
                if released == Released::Freed {
                    // Under the mutex, so that it does not fall upon the next holder, who learns of its grant there.
                    self.raw().site.store(ptr::null_mut(), Ordering::Relaxed);
                }
                core.leaves(holder);
            }
            self.follow(core, key);
        });
    }

    /// Takes the lock or what the owner was granted of it, or queues with a waker, which must be there unless the time is over.
    fn enter(&self, core: &mut Core, ask: &Ask<'_>, waker: &mut Option<Waker>) -> Entered {
        let raw = self.raw();
        let again = match self.approach(core, ask) {
            Ok(again) => again,
            Err(entered) => return entered,
        };
        let key = raw.key(core);
        let worker = self.asker(core, ask);
        if !ask.over && !ask.declared && self.nests() {
            core.nests(worker, key, Some(ask.site));
        }
        if ask.over {
            core.take_back(key, worker);
        }
        let mut entered = queue(self, core, ask, waker, worker, key);
        // Only now: it may be the only one who waits, and a grant is taken over only by who does.
        core.take_over(key);
        if let Entered::Held(word) = &mut entered
            && !again
        {
            *word = self.given(core, worker, ask.want, ask.site);
            core.began(worker, key);
        }
        if !matches!(entered, Entered::Held(_) | Entered::Queued(..)) || raw.is_unheld() {
            core.leaves(worker);
        }
        self.follow(core, key);
        entered
    }

    /// What has become of a wait; if it was granted, with what the guard is to know.
    fn look(&self, core: &mut Core, wait: WaitKey, want: Want, site: Site, waker: &mut Option<Waker>) -> (Fate, u64) {
        let key = self.begin(core);
        let fate = core.look(wait, key, waker);
        let word = match fate {
            Fate::Granted(worker) => self.given(core, worker, want, site),
            Fate::Queued => {
                core.take_over(key);
                0
            }
            _ => 0,
        };
        self.follow(core, key);
        (fate, word)
    }

    /// The future of a wait is dropped; its waker, to be dropped when the mutex has been released.
    fn cancel(&self, core: &mut Core, wait: WaitKey) -> Option<Waker> {
        let key = self.begin(core);
        core.note_time(key, self.raw().domain().clock());
        let waker = core.cancel(wait);
        self.follow(core, key);
        waker
    }
}

/// The graph knows the lock, and decides. What the guard is to know is not said yet.
fn queue<W: Word + ?Sized>(
    word: &W,
    core: &mut Core,
    ask: &Ask<'_>,
    waker: &mut Option<Waker>,
    worker: WorkerKey,
    lock: LockKey,
) -> Entered {
    let origin = Origin { site: Some(ask.site), at: ask.at };
    let request = Request { origin, depth: ask.want.levels, ..Request::new(worker, lock, ask.want.mode) };
    let waker = if ask.over { None } else { waker.take() };
    let Some(waker) = waker else {
        return match word.ask_graph(core, &request, false) {
            Some(Acquired::Held(_)) => Entered::Held(0),
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
    match word.ask_graph(core, &request, true) {
        Some(Acquired::Queued(wait)) => {
            core.wait(wait, &request, waker, ask.expires);
            Entered::Queued(wait)
        }
        Some(Acquired::Deadlock(cycle)) => Entered::Deadlock(core.verdict(&cycle, Moment::from_nanos(ask.at))),
        Some(Acquired::Held(_)) => Entered::Held(0),
        Some(Acquired::Overflow) => Entered::Overflow,
        None => Entered::TimedOut,
    }
}

impl Ask<'_> {
    /// Of a call that does not wait.
    pub(in crate::local) fn attempt(owner: &Owner, want: Want, site: Site) -> Ask<'_> {
        Ask { owner, want, priority: None, deadline: None, expires: None, over: true, arrival: None, declared: false, site, at: NEVER }
    }
}
