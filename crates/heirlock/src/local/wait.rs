//! The one waiting future: unpolled, then perhaps queued, then done. The typed futures of the primitives are thin around it.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::core::Fate;
use super::graph::{Kind as LockKind, Mode, NEVER, WaitKey};
use super::identity::{Owner, in_runtime, number_of_call, number_of_poll};
use super::raw::{Ask, Entered, Raw, Site, Want, Word};
use super::sync::block_on;
use crate::clock::Moment;
use crate::{Error, Kind, Result};

/// What a call may say about its wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) want: Want,
    pub(super) priority: Option<i32>,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) even_poisoned: bool,
    /// The check of orders knows of it.
    pub(super) declared: bool,
}

impl Options {
    pub(super) fn of(want: Want) -> Options {
        Options { want, priority: None, timeout: None, deadline: None, even_poisoned: false, declared: false }
    }
}

/// Shows that a lock has just been acquired, for who makes its guard. Made here only.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// What the lock's kind wants its guard to know: of an exclusive lock, what its word became, or 0 if the graph knows of the hold.
    word: u64,
    want: Want,
    /// Whether the thread was panicking already: what becomes of such a guard says nothing of the value. Only looked at where poison matters.
    unwinding: bool,
}

impl Held {
    #[inline]
    pub(super) fn new(raw: &Raw, word: u64, want: Want) -> Held {
        Held { word, want, unwinding: !raw.poison.is_off() && std::thread::panicking() }
    }

    /// One level of an exclusive lock.
    #[inline]
    pub(super) fn with_word(raw: &Raw, word: u64) -> Held {
        Held::new(raw, word, Want::ONE)
    }

    /// The same, of which the graph knows.
    #[inline]
    pub(super) fn here(raw: &Raw) -> Held {
        Held::with_word(raw, 0)
    }

    #[inline]
    pub(super) fn word(self) -> Option<u64> {
        (self.word != 0).then_some(self.word)
    }

    #[inline]
    pub(super) fn levels(self) -> u32 {
        self.want.levels
    }

    #[inline]
    pub(super) fn mode(self) -> Mode {
        self.want.mode
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
        // Both are of one hold, whose number fits.
        self.want.levels += other.want.levels;
        self.unwinding &= other.unwinding;
    }
}

/// One acquire of one lock. Whoever owns it passes the lock each time, always the same.
#[derive(Debug)]
pub struct Wait {
    pub(super) options: Options,
    site: Site,
    /// Whether the thread waits, and not who is polled on it.
    pub(super) blocking: bool,
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
}

#[derive(Debug)]
enum State {
    Unpolled,
    /// The same, of who is known already.
    Bound(Bound),
    /// In the graph, queued or granted; which of both is known under the domain's mutex only.
    Queued(WaitKey, Bound),
    /// Of a condition: another wait of its worker has what it was notified of, or it did not take that in time.
    Displaced,
    Done,
}

impl Wait {
    pub(super) fn new(site: Site) -> Wait {
        Wait::of(Want::ONE, site)
    }

    pub(super) fn of(want: Want, site: Site) -> Wait {
        Wait { options: Options::of(want), site, blocking: false, state: State::Unpolled }
    }

    /// An acquire by whoever is known already.
    pub(super) fn bound(site: Site, options: Options, bound: Bound) -> Wait {
        Wait { options, site, blocking: false, state: State::Bound(bound) }
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
    pub(super) fn poll(&mut self, lock: &impl Word, cx: &mut Context<'_>) -> Poll<Result<Held>> {
        if matches!(self.state, State::Unpolled) {
            let number = if self.blocking { number_of_call() } else { number_of_poll() };
            if let Some(word) = lock.take(number, self.options.want, self.site) {
                self.state = State::Done;
                return Poll::Ready(self.held(lock, word));
            }
        }
        self.poll_contended(lock, cx)
    }

    /// The same where nothing is had without the graph.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_contended(&mut self, lock: &impl Word, cx: &mut Context<'_>) -> Poll<Result<Held>> {
        let raw = lock.raw();
        match std::mem::replace(&mut self.state, State::Done) {
            State::Unpolled => {
                let bound = Bound::new(raw, self.options, self.blocking);
                self.enter(lock, cx, bound, None)
            }
            State::Bound(bound) => match lock.take(bound.owner.number(), self.options.want, self.site) {
                Some(word) => Poll::Ready(self.held(lock, word)),
                None => self.enter(lock, cx, bound, None),
            },
            State::Queued(_, bound) if lock.take_offered(bound.owner.number(), self.site) => Poll::Ready(self.held(lock, 0)),
            State::Queued(wait, bound) => match self.look(lock, wait, cx) {
                (Fate::Queued, _) => {
                    self.state = State::Queued(wait, bound);
                    Poll::Pending
                }
                (Fate::Granted(_), word) => Poll::Ready(self.held(lock, word)),
                (Fate::TimedOut, _) => Poll::Ready(Err(timed_out(raw))),
                // What it waited for is there: nobody has to be granted that.
                (Fate::Dismissed, _) if raw.is_condition() => Poll::Ready(Ok(Held::here(raw))),
                (Fate::Dismissed, _) => Poll::Ready(Err(dismissed(raw))),
                (Fate::Deadlock(cycle), _) => Poll::Ready(Err(Error::new(Kind::Deadlock, cycle))),
                // Queued again it would miss what is notified in between. So it ends, and whoever waited looks for itself.
                (Fate::Displaced(_), _) if raw.is_condition() => {
                    self.state = State::Displaced;
                    Poll::Ready(Ok(Held::here(raw)))
                }
                (Fate::Displaced(arrival), _) => self.enter(lock, cx, bound, Some(arrival)),
            },
            State::Displaced | State::Done => panic!("a lock's future was polled after it had completed"),
        }
    }

    fn enter(&mut self, lock: &impl Word, cx: &mut Context<'_>, bound: Bound, arrival: Option<u64>) -> Poll<Result<Held>> {
        let raw = lock.raw();
        let ask = Ask {
            owner: &bound.owner,
            want: self.options.want,
            priority: self.options.priority,
            deadline: (bound.deadline != NEVER).then_some(bound.deadline),
            expires: (bound.expires != Moment::END).then_some(bound.expires),
            over: bound.over,
            arrival,
            declared: self.options.declared,
            site: self.site,
            at: raw.domain().about_now().as_nanos(),
        };
        // Cloned before the mutex is taken, and what is left of it is dropped after: a waker is foreign code.
        let mut waker = Some(cx.waker().clone());
        match enter_or_again(lock, &ask, &mut waker) {
            Entered::Held(word) => Poll::Ready(self.held(lock, word)),
            Entered::TimedOut => Poll::Ready(Err(timed_out(raw))),
            Entered::Deadlock(cycle) => Poll::Ready(Err(Error::new(Kind::Deadlock, cycle))),
            Entered::NeedsWorker => Poll::Ready(Err(needs_worker(raw))),
            Entered::Overflow => Poll::Ready(Err(overflow(raw.label()))),
            Entered::Refused(error) => Poll::Ready(Err(error)),
            Entered::Again => unreachable!("it was asked again"),
            Entered::Queued(wait) => {
                self.state = State::Queued(wait, bound);
                Poll::Pending
            }
        }
    }

    fn look(&self, lock: &impl Word, wait: WaitKey, cx: &mut Context<'_>) -> (Fate, u64) {
        let mut waker = Some(cx.waker().clone());
        lock.raw().domain().event(|core| lock.look(core, wait, self.options.want, self.site, &mut waker))
    }

    #[inline]
    fn held(&self, lock: &impl Word, word: u64) -> Result<Held> {
        held(lock, word, self.options.want, self.options.even_poisoned)
    }

    /// Whether it has yet to be polled.
    #[inline]
    pub(super) fn is_new(&self) -> bool {
        matches!(self.state, State::Unpolled)
    }

    /// It is over, because what it was for is there.
    #[inline]
    pub(super) fn end(&mut self, raw: &Raw) {
        self.cancel(raw);
        self.state = State::Done;
    }

    /// Whether it has ended without having been granted anything.
    pub(super) fn was_displaced(&self) -> bool {
        matches!(self.state, State::Displaced)
    }

    /// The future is dropped. A grant that it had goes on to the next, and so does nothing get lost that was granted a moment ago.
    #[inline]
    pub(super) fn cancel(&mut self, lock: &impl Word) {
        if let State::Queued(..) = self.state {
            self.cancel_queued(lock);
        }
    }

    #[cold]
    fn cancel_queued(&mut self, lock: &impl Word) {
        if let State::Queued(wait, _) = std::mem::replace(&mut self.state, State::Done) {
            let waker = lock.raw().domain().event(|core| lock.cancel(core, wait));
            drop(waker);
        }
    }

    /// Waits on this thread.
    #[inline]
    pub(super) fn block(&mut self, lock: &impl Word) -> Result<Held> {
        self.blocking = true;
        if matches!(self.state, State::Unpolled)
            && let Some(word) = lock.take(number_of_call(), self.options.want, self.site)
        {
            self.state = State::Done;
            return self.held(lock, word);
        }
        self.block_contended(lock)
    }

    #[cold]
    #[inline(never)]
    fn block_contended(&mut self, lock: &impl Word) -> Result<Held> {
        if in_runtime() {
            // What can be had without waiting can be had here, too.
            let attempted = attempt_contended(lock, self.options.want, self.site, &Owner::of_call(), self.options.even_poisoned);
            if !attempted.as_ref().is_err_and(|error| error.is_would_block() || error.is_needs_worker()) {
                // If this one was polled before, it has had its own grant, or is no longer needed.
                self.cancel(lock);
                self.state = State::Done;
                return attempted;
            }
            return Err(Error::new(
                Kind::WouldBlock,
                format!(
                    "{}, and waiting for it here would block a thread of the async runtime: await it instead, or in spawn_blocking \
                     pass the same future to Handle::current().block_on(..)",
                    lock.why_not()
                ),
            ));
        }
        block_on(std::future::poll_fn(|cx| self.poll(lock, cx)))
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
        Bound { owner, deadline: deadline.map_or(NEVER, |deadline| raw.domain().rank_of(deadline)), expires, over }
    }

    /// However long it takes.
    pub(super) fn unlimited(owner: Owner) -> Bound {
        Bound { owner, deadline: NEVER, expires: Moment::END, over: false }
    }
}

/// For who has just got the lock: what it has, unless an earlier holder poisoned it.
#[inline]
fn held(lock: &impl Word, word: u64, want: Want, even_poisoned: bool) -> Result<Held> {
    let raw = lock.raw();
    let held = Held::new(raw, word, want);
    if raw.poison.is_off() { Ok(held) } else { unless_poisoned(lock, held, even_poisoned) }
}

#[cold]
fn unless_poisoned(lock: &impl Word, held: Held, even_poisoned: bool) -> Result<Held> {
    let raw = lock.raw();
    if !raw.poison.is_poisoned() || even_poisoned {
        return Ok(held);
    }
    let error = raw.poison.error(&raw.label());
    lock.give_up(held);
    Err(error)
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

/// Acquires without waiting, or not at all.
#[inline]
pub(super) fn attempt(lock: &impl Word, want: Want, site: Site) -> Result<Held> {
    if let Some(word) = lock.take(number_of_poll(), want, site) {
        return held(lock, word, want, false);
    }
    attempt_contended(lock, want, site, &Owner::of_poll(), false)
}

fn attempt_contended(lock: &impl Word, want: Want, site: Site, owner: &Owner, even_poisoned: bool) -> Result<Held> {
    let raw = lock.raw();
    let ask = Ask::attempt(owner, want, site);
    match enter_or_again(lock, &ask, &mut None) {
        Entered::Held(word) => held(lock, word, want, even_poisoned),
        Entered::NeedsWorker => Err(needs_worker(raw)),
        Entered::Overflow => Err(overflow(raw.label())),
        Entered::Refused(error) => Err(error),
        _ => Err(Error::new(Kind::WouldBlock, lock.why_not())),
    }
}

/// Enters, in as many sections of the mutex as that takes.
fn enter_or_again(lock: &impl Word, ask: &Ask<'_>, waker: &mut Option<Waker>) -> Entered {
    loop {
        let entered = lock.raw().domain().event(|core| lock.enter(core, ask, waker));
        if !matches!(entered, Entered::Again) {
            return entered;
        }
    }
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
    Error::new(Kind::Closed, format!("{} is closed", raw.label()))
}

fn timed_out(raw: &Raw) -> Error {
    let (nameless, late) = match raw.kind() {
        LockKind::Condition => ("the condition was not notified in time", "was not notified in time"),
        LockKind::Event => ("the event was not set in time", "was not set in time"),
        LockKind::Promise => ("the promise was not set in time", "was not set in time"),
        LockKind::Barrier => ("the barrier was not complete in time", "was not complete in time"),
        LockKind::Semaphore => ("the semaphore had too few free permits all the time", "had too few free permits all the time"),
        _ => ("the lock was not free in time", "was not free in time"),
    };
    // Where many waits time out, text that is made anew each time would be most of what they cost.
    if raw.is_named() { Error::new(Kind::Timeout, format!("{} {late}", raw.label())) } else { Error::new(Kind::Timeout, nameless) }
}
