//! The one waiting future: unpolled, then perhaps queued, then done. The typed futures of the primitives are thin around it.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::core::Fate;
use super::graph::WaitKey;
use super::identity::{Owner, in_runtime, is_one_line, number_of_call, number_of_poll};
use super::raw::{Ask, Entered, Raw};
use crate::clock::Moment;
use crate::{Error, Kind, Result};

/// What a call may say about its wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) priority: Option<i32>,
    pub(super) timeout: Option<Duration>,
    pub(super) deadline: Option<Instant>,
}

/// Shows that a lock has just been acquired, for who makes its guard. Made here only.
#[derive(Debug)]
pub struct Held(());

/// One acquire of one lock. Whoever owns it passes the lock each time, always the same.
#[derive(Debug, Default)]
pub(super) struct Wait {
    pub(super) options: Options,
    blocking: bool,
    /// Bound at the first poll that finds the lock held.
    bound: Option<Bound>,
    state: State,
}

/// What holds for the whole of a wait, also when it loses its place and queues again.
#[derive(Debug)]
struct Bound {
    owner: Owner,
    deadline: Option<u64>,
    expires: Option<Moment>,
    /// It was over when it began.
    over: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Unpolled,
    /// In the graph, queued or granted; which of both is known under the domain's mutex only.
    Queued(WaitKey),
    Done,
}

impl Wait {
    pub(super) fn poll(&mut self, raw: &Raw, cx: &mut Context<'_>) -> Poll<Result<Held>> {
        let arrival = match self.state {
            State::Unpolled => {
                let number = if self.blocking { number_of_call() } else { number_of_poll() };
                if take_at_once(raw, number) {
                    self.state = State::Done;
                    return Poll::Ready(Ok(Held(())));
                }
                None
            }
            State::Queued(wait) => match look(raw, wait, cx) {
                Fate::Queued => return Poll::Pending,
                Fate::Granted => return self.done(Ok(Held(()))),
                Fate::TimedOut => return self.done(Err(timed_out(raw))),
                Fate::Deadlock(cycle) => return self.done(Err(Error::new(Kind::Deadlock, cycle))),
                Fate::Displaced(arrival) => Some(arrival),
            },
            State::Done => panic!("a lock's future was polled after it had completed"),
        };
        self.enter(raw, cx, arrival)
    }

    fn enter(&mut self, raw: &Raw, cx: &mut Context<'_>, arrival: Option<u64>) -> Poll<Result<Held>> {
        let (options, blocking) = (self.options, self.blocking);
        let bound = self.bound.get_or_insert_with(|| Bound::new(raw, options, blocking));
        let Bound { owner, deadline, expires, over } = bound;
        let ask = Ask { owner, priority: options.priority, deadline: *deadline, expires: *expires, over: *over, arrival };
        // Cloned before the mutex is taken, and what is left of it is dropped after: a waker is foreign code.
        let mut waker = Some(cx.waker().clone());
        let entered = raw.domain().event(|core| raw.enter(core, &ask, &mut waker));
        match entered {
            Entered::Held => self.done(Ok(Held(()))),
            Entered::TimedOut => self.done(Err(timed_out(raw))),
            Entered::Deadlock(cycle) => self.done(Err(Error::new(Kind::Deadlock, cycle))),
            Entered::NeedsWorker => self.done(Err(needs_worker(raw))),
            Entered::Overflow => self.done(Err(overflow(raw))),
            Entered::Queued(wait) => {
                self.state = State::Queued(wait);
                Poll::Pending
            }
        }
    }

    fn done(&mut self, result: Result<Held>) -> Poll<Result<Held>> {
        self.state = State::Done;
        self.bound = None;
        Poll::Ready(result)
    }

    /// The future is dropped. A grant that it had goes on to the next, and so does nothing get lost that was granted a moment ago.
    pub(super) fn cancel(&mut self, raw: &Raw) {
        if let State::Queued(wait) = std::mem::replace(&mut self.state, State::Done) {
            let waker = raw.domain().event(|core| raw.cancel(core, wait));
            drop(waker);
        }
    }

    /// Waits on this thread.
    pub(super) fn block(&mut self, raw: &Raw) -> Result<Held> {
        self.blocking = true;
        if matches!(self.state, State::Unpolled) && take_at_once(raw, number_of_call()) {
            self.state = State::Done;
            return Ok(Held(()));
        }
        if in_runtime() {
            return Err(Error::new(
                Kind::WouldBlock,
                format!(
                    "{} is held, and waiting for it here would block a thread of the async runtime: await lock() instead, or in spawn_blocking \
                     call Handle::current().block_on(lock())",
                    raw.label()
                ),
            ));
        }
        pollster::block_on(std::future::poll_fn(|cx| self.poll(raw, cx)))
    }
}

impl Bound {
    /// Only here, when the lock is held, a clock is read; and only for who is in a hurry.
    fn new(raw: &Raw, options: Options, blocking: bool) -> Bound {
        let owner = if blocking { Owner::of_call() } else { Owner::of_poll() };
        let of_worker = if let Owner::Worker(worker) = &owner { worker.current_deadline() } else { None };
        let deadline = [options.deadline, of_worker].into_iter().flatten().min();
        let (mut expires, mut over) = (None, false);
        if options.timeout.is_some() || deadline.is_some() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let span = [options.timeout, left].into_iter().flatten().min().unwrap_or(Duration::MAX);
            over = span.is_zero();
            expires = Some(raw.domain().clock().now() + span);
        }
        Bound { owner, deadline: deadline.map(|deadline| raw.domain().rank_of(deadline)), expires, over }
    }
}

fn look(raw: &Raw, wait: WaitKey, cx: &mut Context<'_>) -> Fate {
    let mut waker = Some(cx.waker().clone());
    raw.domain().event(|core| raw.look(core, wait, &mut waker))
}

/// Acquires without waiting, or not at all.
pub(super) fn attempt(raw: &Raw) -> Result<Held> {
    if take_at_once(raw, number_of_poll()) {
        return Ok(Held(()));
    }
    let owner = Owner::of_poll();
    let ask = Ask { owner: &owner, priority: None, deadline: None, expires: None, over: true, arrival: None };
    match raw.domain().event(|core| raw.enter(core, &ask, &mut None)) {
        Entered::Held => Ok(Held(())),
        Entered::NeedsWorker => Err(needs_worker(raw)),
        Entered::Overflow => Err(overflow(raw)),
        _ => Err(Error::new(Kind::WouldBlock, format!("{} is held", raw.label()))),
    }
}

/// Takes the lock if it is free, or enters again who may.
fn take_at_once(raw: &Raw, number: u64) -> bool {
    raw.take_free(number) || raw.is_reentrant() && is_one_line(number) && raw.enter_again(number)
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

fn overflow(raw: &Raw) -> Error {
    Error::new(Kind::Overflow, format!("{} is held as many levels deep as can be counted", raw.label()))
}

fn timed_out(raw: &Raw) -> Error {
    Error::new(Kind::Timeout, format!("{} was not free in time", raw.label()))
}
