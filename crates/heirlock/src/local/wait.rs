//! The one waiting future: unpolled, then perhaps queued, then done. The typed futures of the primitives are thin around it.

use std::borrow::Cow;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::core::Fate;
use super::graph::{NEVER, WaitKey};
use super::identity::{Owner, in_runtime, is_one_line, number_of_call, number_of_poll};
use super::raw::{Ask, Entered, Raw, Site};
use super::sync::block_on;
use crate::clock::Moment;
use crate::{Error, Kind, Result};

/// What a call may say about its wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) priority: Option<i32>,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) even_poisoned: bool,
    /// The check of orders knows of it.
    pub(super) declared: bool,
}

/// Shows that a lock has just been acquired, for who makes its guard. Made here only.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// What the lock's word became, or 0 if the graph knows of the hold.
    word: u64,
    /// Whether the thread was panicking already: what becomes of such a guard says nothing of the value. Only looked at where poison matters.
    unwinding: bool,
}

impl Held {
    #[inline]
    pub(super) fn here(raw: &Raw) -> Held {
        Held::with_word(raw, 0)
    }

    #[inline]
    pub(super) fn with_word(raw: &Raw, word: u64) -> Held {
        Held { word, unwinding: !raw.poison.is_off() && std::thread::panicking() }
    }

    #[inline]
    pub(super) fn word(self) -> Option<u64> {
        (self.word != 0).then_some(self.word)
    }

    pub(super) fn is_dropped_by_a_panic(self) -> bool {
        !self.unwinding && std::thread::panicking()
    }

    /// Of a guard that nobody was given: a panic that takes it along has not touched the value.
    pub(super) fn untouched(self) -> Held {
        Held { unwinding: true, ..self }
    }

    /// Of two guards in one.
    pub(super) fn merge(&mut self, other: Held) {
        self.unwinding &= other.unwinding;
    }
}

/// One acquire of one lock. Whoever owns it passes the lock each time, always the same.
#[derive(Debug)]
pub struct Wait {
    pub(super) options: Options,
    site: Site,
    blocking: bool,
    state: State,
}

/// What holds for the whole of a wait, also when it loses its place and queues again. Bound at the first poll that finds the lock held.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) owner: Owner,
    /// `NEVER` if there is none.
    deadline: u64,
    expires: Moment,
    /// It was over when it began.
    over: bool,
    /// How many levels at once.
    depth: u32,
}

#[derive(Debug)]
enum State {
    Unpolled,
    /// The same, of who is known already.
    Bound(Bound),
    /// In the graph, queued or granted; which of both is known under the domain's mutex only.
    Queued(WaitKey, Bound),
    /// Of a condition: it lost its place, to another wait of its worker or with a notification that it did not take in time.
    Displaced,
    Done,
}

impl Wait {
    pub(super) fn new(site: Site) -> Wait {
        Wait { options: Options::default(), site, blocking: false, state: State::Unpolled }
    }

    /// An acquire by whoever is known already.
    pub(super) fn bound(site: Site, options: Options, bound: Bound) -> Wait {
        Wait { options, site, blocking: false, state: State::Bound(bound) }
    }

    pub(super) fn is_unpolled(&self) -> bool {
        matches!(self.state, State::Unpolled)
    }

    /// It is this owner's, whoever polls it first.
    pub(super) fn bind(&mut self, raw: &Raw, owner: u64) {
        self.state = State::Bound(Bound::by(Owner::from_number(owner), raw, self.options));
    }

    /// It is one of several that one call acquires in an order of its own: the check of orders learns now what its caller holds, and not later what
    /// that call has already.
    pub(super) fn declare(&mut self, raw: &Raw, blocking: bool) {
        self.options.declared = true;
        if raw.domain().tracks() {
            let owner = if blocking { Owner::of_call() } else { Owner::of_poll() };
            raw.domain().event(|core| raw.declare(core, &owner, self.site));
        }
    }

    #[inline]
    pub(super) fn poll(&mut self, raw: &Raw, cx: &mut Context<'_>) -> Poll<Result<Held>> {
        if matches!(self.state, State::Unpolled) {
            let number = if self.blocking { number_of_call() } else { number_of_poll() };
            if let Some(word) = take_at_once(raw, number, self.site) {
                self.state = State::Done;
                return Poll::Ready(held(raw, word, self.options.even_poisoned, 1));
            }
        }
        self.poll_contended(raw, cx)
    }

    #[cold]
    #[inline(never)]
    fn poll_contended(&mut self, raw: &Raw, cx: &mut Context<'_>) -> Poll<Result<Held>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Unpolled => {
                let bound = Bound::new(raw, self.options, self.blocking);
                self.enter(raw, cx, bound, None)
            }
            State::Bound(bound) => {
                if raw.take_levels(bound.owner.number(), bound.depth, self.site) {
                    return Poll::Ready(held(raw, 0, self.options.even_poisoned, bound.depth));
                }
                self.enter(raw, cx, bound, None)
            }
            State::Queued(_, bound) if raw.take_offered(bound.owner.number(), self.site) => {
                Poll::Ready(held(raw, 0, self.options.even_poisoned, 1))
            }
            State::Queued(wait, bound) => match look(raw, wait, cx) {
                Fate::Queued => {
                    self.state = State::Queued(wait, bound);
                    Poll::Pending
                }
                Fate::Granted => {
                    raw.note_site(self.site);
                    Poll::Ready(held(raw, 0, self.options.even_poisoned, bound.depth))
                }
                Fate::TimedOut => Poll::Ready(Err(timed_out(raw))),
                Fate::Dismissed => Poll::Ready(Err(dismissed(raw))),
                Fate::Deadlock(cycle) => Poll::Ready(Err(Error::new(Kind::Deadlock, cycle))),
                // Queued again it would miss what is notified in between. So it ends, and whoever waited looks for itself.
                Fate::Displaced(_) if raw.is_condition() => {
                    self.state = State::Displaced;
                    Poll::Ready(Ok(Held::here(raw)))
                }
                Fate::Displaced(arrival) => self.enter(raw, cx, bound, Some(arrival)),
            },
            State::Displaced | State::Done => panic!("a lock's future was polled after it had completed"),
        }
    }

    fn enter(&mut self, raw: &Raw, cx: &mut Context<'_>, bound: Bound, arrival: Option<u64>) -> Poll<Result<Held>> {
        let ask = Ask {
            owner: &bound.owner,
            priority: self.options.priority,
            deadline: (bound.deadline != NEVER).then_some(bound.deadline),
            expires: (bound.expires != Moment::END).then_some(bound.expires),
            over: bound.over,
            arrival,
            depth: bound.depth,
            declared: self.options.declared,
            site: self.site,
            at: raw.domain().about_now().as_nanos(),
        };
        // Cloned before the mutex is taken, and what is left of it is dropped after: a waker is foreign code.
        let mut waker = Some(cx.waker().clone());
        let entered = raw.domain().event(|core| raw.enter(core, &ask, &mut waker));
        match entered {
            Entered::Held => Poll::Ready(held(raw, 0, self.options.even_poisoned, bound.depth)),
            Entered::TimedOut => Poll::Ready(Err(timed_out(raw))),
            Entered::Deadlock(cycle) => Poll::Ready(Err(Error::new(Kind::Deadlock, cycle))),
            Entered::NeedsWorker => Poll::Ready(Err(needs_worker(raw))),
            Entered::Overflow => Poll::Ready(Err(overflow(raw.label()))),
            Entered::Queued(wait) => {
                self.state = State::Queued(wait, bound);
                Poll::Pending
            }
        }
    }

    /// Whether it has ended without having been granted anything.
    pub(super) fn was_displaced(&self) -> bool {
        matches!(self.state, State::Displaced)
    }

    /// The future is dropped. A grant that it had goes on to the next, and so does nothing get lost that was granted a moment ago.
    #[inline]
    pub(super) fn cancel(&mut self, raw: &Raw) {
        if let State::Queued(..) = self.state {
            self.cancel_queued(raw);
        }
    }

    #[cold]
    fn cancel_queued(&mut self, raw: &Raw) {
        if let State::Queued(wait, _) = std::mem::replace(&mut self.state, State::Done) {
            let waker = raw.domain().event(|core| raw.cancel(core, wait));
            drop(waker);
        }
    }

    /// Waits on this thread.
    #[inline]
    pub(super) fn block(&mut self, raw: &Raw) -> Result<Held> {
        self.blocking = true;
        if matches!(self.state, State::Unpolled)
            && let Some(word) = take_at_once(raw, number_of_call(), self.site)
        {
            self.state = State::Done;
            return held(raw, word, self.options.even_poisoned, 1);
        }
        self.block_contended(raw)
    }

    #[cold]
    #[inline(never)]
    fn block_contended(&mut self, raw: &Raw) -> Result<Held> {
        if in_runtime() {
            // What can be had without waiting can be had here, too.
            let attempted = attempt_contended(raw, self.site, &Owner::of_call(), self.options.even_poisoned);
            if !attempted.as_ref().is_err_and(|error| error.is_would_block() || error.is_needs_worker()) {
                self.state = State::Done;
                return attempted;
            }
            return Err(Error::new(
                Kind::WouldBlock,
                format!(
                    "{} is held, and waiting for it here would block a thread of the async runtime: await lock() instead, or in spawn_blocking \
                     call Handle::current().block_on(lock())",
                    raw.label()
                ),
            ));
        }
        block_on(std::future::poll_fn(|cx| self.poll(raw, cx)))
    }
}

impl Bound {
    /// Only here, when the lock is held, a clock is read; and only for who is in a hurry.
    pub(super) fn new(raw: &Raw, options: Options, blocking: bool) -> Bound {
        let owner = if blocking { Owner::of_call() } else { Owner::of_poll() };
        Bound::by(owner, raw, options)
    }

    /// The same for who is known already.
    pub(super) fn by(owner: Owner, raw: &Raw, options: Options) -> Bound {
        let of_worker = if let Owner::Worker(worker) = &owner { worker.current_deadline() } else { None };
        let deadline = [options.deadline, of_worker].into_iter().flatten().min();
        let (mut expires, mut over) = (Moment::END, false);
        if options.timeout.is_some() || deadline.is_some() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let span = [options.timeout, left].into_iter().flatten().min().unwrap_or(Duration::MAX);
            over = span.is_zero();
            expires = raw.domain().clock().now() + span;
        }
        Bound { owner, deadline: deadline.map_or(NEVER, |deadline| raw.domain().rank_of(deadline)), expires, over, depth: 1 }
    }

    /// However long it takes.
    pub(super) fn unlimited(owner: Owner) -> Bound {
        Bound { owner, deadline: NEVER, expires: Moment::END, over: false, depth: 1 }
    }

    pub(super) fn levels(self, depth: u32) -> Bound {
        Bound { depth, ..self }
    }
}

/// For who has just got the lock: what it has, unless an earlier holder poisoned it.
#[inline]
fn held(raw: &Raw, word: u64, even_poisoned: bool, levels: u32) -> Result<Held> {
    if !raw.poison.is_off() {
        raw.admit(even_poisoned, levels)?;
    }
    Ok(Held::with_word(raw, word))
}

/// Poisons the lock unless the holder's work is finished before this is dropped.
pub(super) struct Unfinished<'a>(&'a Raw);

impl<'a> Unfinished<'a> {
    pub(super) fn of(raw: &'a Raw) -> Unfinished<'a> {
        Unfinished(raw)
    }

    pub(super) fn finished(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.left(true);
    }
}

fn look(raw: &Raw, wait: WaitKey, cx: &mut Context<'_>) -> Fate {
    let mut waker = Some(cx.waker().clone());
    raw.domain().event(|core| raw.look(core, wait, &mut waker))
}

/// Acquires without waiting, or not at all.
#[inline]
pub(super) fn attempt(raw: &Raw, site: Site) -> Result<Held> {
    if let Some(word) = take_at_once(raw, number_of_poll(), site) {
        return held(raw, word, false, 1);
    }
    attempt_contended(raw, site, &Owner::of_poll(), false)
}

fn attempt_contended(raw: &Raw, site: Site, owner: &Owner, even_poisoned: bool) -> Result<Held> {
    let ask =
        Ask { owner, priority: None, deadline: None, expires: None, over: true, arrival: None, depth: 1, declared: false, site, at: NEVER };
    match raw.domain().event(|core| raw.enter(core, &ask, &mut None)) {
        Entered::Held => held(raw, 0, even_poisoned, 1),
        Entered::NeedsWorker => Err(needs_worker(raw)),
        Entered::Overflow => Err(overflow(raw.label())),
        _ => Err(Error::new(Kind::WouldBlock, format!("{} is held", raw.label()))),
    }
}

/// Takes the lock if it is free, or enters again who may.
#[inline]
fn take_at_once(raw: &Raw, number: u64, site: Site) -> Option<u64> {
    let taken = raw.take_free(number, site);
    if taken.is_none() && raw.is_reentrant() && is_one_line(number) {
        return raw.enter_again(number);
    }
    taken
}

fn needs_worker(raw: &Raw) -> Error {
    Error::new(
        Kind::NeedsWorker,
        format!(
            "{} is held by this task, whose arms cannot be told apart: run the task as a worker, Worker::new(\"..\").run(..), or declare all tasks \
             to be one line of work, Domain::builder().trust_tasks(true)",
            raw.label()
        ),
    )
}

pub(super) fn overflow(label: impl std::fmt::Display) -> Error {
    Error::new(Kind::Overflow, format!("{label} is held as many levels deep as can be counted"))
}

/// Only what is a lock under its type but no lock is waited for in vain; it looks there first.
fn dismissed(raw: &Raw) -> Error {
    Error::new(Kind::Closed, format!("{} need not be waited for any more", raw.label()))
}

fn timed_out(raw: &Raw) -> Error {
    match raw.label() {
        // Where many waits time out, text that is made anew each time would be most of what they cost.
        Cow::Borrowed(_) => Error::new(Kind::Timeout, "the lock was not free in time"),
        Cow::Owned(label) => Error::new(Kind::Timeout, format!("{label} was not free in time")),
    }
}
