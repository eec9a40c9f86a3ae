//! One ticket in the keeper's table: what was sent, what was answered, and when to do what next.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

mod again;
mod answers;

pub(crate) use self::again::Again;

use super::acquire::Witness;
use super::hold::Hold;
use super::key::Key;
use super::ticket::{Mode, Owner, SessionId, Terms, Token};
use super::verb::{Beat, Enter, Leave, News};
use super::vital::{LostReason, Vital};
use crate::clock::Moment;
use crate::{Error, Kind, Worker};

/// A store that is silent for so long counts as unreachable.
const SILENCE: Duration = Duration::from_secs(1);

/// What an attempt asks for. It does not change.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) terms: Terms,
    pub(crate) may_queue: bool,
    /// How a refusal for want of a queue is told: a time that was over, or busy.
    pub(crate) busy_is_timeout: bool,
    pub(crate) renew_every: Duration,
    /// The call's own priority; else the worker's base counts.
    pub(crate) priority: Option<i32>,
    pub(crate) worker: Option<Worker>,
    pub(crate) owner: Arc<Owner>,
    pub(crate) witness: Option<Witness>,
}

impl Ask {
    fn priority(&self) -> i32 {
        self.priority.or_else(|| self.worker.as_ref().map(Worker::base_priority)).unwrap_or(0)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.terms.ttl)
    }

    /// How long a request may take before it is sent again.
    pub(crate) fn request_limit(&self) -> Duration {
        (self.ttl() / 3).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }

    /// The refusal of who may not wait.
    fn busy(&self, by: &str) -> Error {
        let kind = if self.busy_is_timeout { Kind::Timeout } else { Kind::Busy };
        Error::new(kind, format!("{} is {by}", self.key))
    }
}

/// What is taken off a validity of that length, for the difference in pace of two clocks.
fn margin(span: Duration) -> Duration {
    span / 100 + Duration::from_millis(2)
}

/// The refusal of a number of slots that is not the one in use; 0 stands for the other modes.
fn in_use(key: &Key, slots: u32) -> Error {
    let how = if slots == 0 { "without slots".to_owned() } else { format!("with {slots} slots") };
    Error::new(Kind::Invalid, format!("{key} is in use {how}: ask for it in the same way, or wait until it is free"))
}

/// Where an attempt stands on the holder's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It wants to hold.
    Asking,
    /// Another call of its worker wants to hold the key: it waits how that comes out, and has no ticket.
    Behind,
    /// It holds.
    Held,
    /// It is to be taken out of the store.
    Leaving,
}

/// A request for the store.
#[derive(Debug)]
pub(crate) enum Request {
    Enter(Enter),
    Beat(Beat),
    Leave(Leave),
}

/// When a request was sent, and which one: what an answer is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: u64,
    pub(crate) at: Moment,
    pub(crate) is_enter: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) token: Token,
    pub(crate) ask: Arc<Ask>,
    pub(crate) vital: Arc<Vital>,
    /// In whose hands it is.
    hold: Weak<Hold>,
    /// Who waits for how it comes out: further calls of its worker for the key.
    behind: Vec<Token>,
    phase: Phase,
    /// The number of the last request sent.
    seq: u64,
    /// The number of the newest request answered.
    answered: u64,
    /// Enters whose answers never came: they may still arrive at the store.
    open_enters: u64,
    /// The request that the keeper waits for; 0 if for none.
    in_flight: u64,
    /// Whether a hint came meanwhile, so that the answer may be older than the news.
    again: bool,
    /// The next request is due.
    pub(crate) next: Moment,
    /// Failures in a row.
    failures: u32,
    trouble: Option<Error>,
    deadline: Option<Moment>,
    last_sent: Option<Moment>,
    /// When it was begun: among its equals of this session, its place in the queue.
    begun: Moment,
    /// Until when its place in the queue is kept, at least, by the last answer.
    kept_until: Moment,
    fence: u64,
    /// Whether the last answer was cut short by `max_hold`.
    capped: bool,
    /// When nothing is left of it at the store, even if no `leave` arrives.
    gone_by: Moment,
    /// Its place in the keeper's agenda.
    pub(crate) scheduled: Option<Moment>,
}

/// What an answer means for the table.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// To be woken once no mutex is held.
    pub(crate) wakers: Vec<Waker>,
    /// The entry is done with.
    pub(crate) over: bool,
    /// To be traced once no mutex is held: a subscriber is foreign code, and may stand still or call back.
    pub(crate) said: Option<Said>,
}

/// What is traced of a ticket.
#[derive(Debug)]
pub(crate) enum Said {
    /// It does not hold any more.
    Lost { key: Key, fence: u64, reason: LostReason },
    /// The store did not answer, and is asked again.
    Again { key: Key, error: String },
}

impl Said {
    pub(crate) fn trace(self) {
        match self {
            Said::Lost { key, fence, reason } => tracing::warn!(%key, fence, %reason, "a lease is lost"),
            Said::Again { key, error } => tracing::debug!(%key, %error, "the store did not answer; trying again"),
        }
    }
}

impl Effect {
    fn wake(wakers: Vec<Waker>) -> Effect {
        Effect { wakers, ..Effect::default() }
    }

    fn over(wakers: Vec<Waker>) -> Effect {
        Effect { wakers, over: true, ..Effect::default() }
    }
}

impl Entry {
    /// Of the hold, in whose hands it is.
    pub(crate) fn of(hold: &Arc<Hold>, deadline: Option<Moment>, now: Moment) -> Entry {
        let vital = Arc::clone(&hold.vital);
        let entry = Entry::new(hold.token, Arc::clone(&hold.ask), vital, deadline, now);
        Entry { hold: Arc::downgrade(hold), ..entry }
    }

    fn new(token: Token, ask: Arc<Ask>, vital: Arc<Vital>, deadline: Option<Moment>, now: Moment) -> Entry {
        Entry {
            token,
            ask,
            vital,
            hold: Weak::new(),
            behind: Vec::new(),
            phase: Phase::Asking,
            seq: 0,
            answered: 0,
            open_enters: 0,
            in_flight: 0,
            again: false,
            next: now,
            failures: 0,
            trouble: None,
            deadline,
            last_sent: None,
            begun: now,
            kept_until: now,
            fence: 0,
            capped: false,
            gone_by: now,
            scheduled: None,
        }
    }

    /// When the keeper must next look at it.
    pub(crate) fn due(&self) -> Moment {
        let request = if self.in_flight != 0 { None } else { Some(self.next) };
        let bound = match self.phase {
            Phase::Asking | Phase::Behind => self.deadline,
            Phase::Held => Some(self.vital.until()),
            Phase::Leaving => None,
        };
        request.into_iter().chain(bound).min().unwrap_or(Moment::from_nanos(u64::MAX))
    }

    /// No request can be sent before then.
    pub(crate) fn put_off(&mut self, until: Moment) {
        self.next = self.next.max(until);
    }

    /// Whether a request is due now.
    pub(crate) fn wants_request(&self, now: Moment) -> bool {
        self.in_flight == 0 && self.next <= now
    }

    /// The next request of this ticket, with a new number.
    pub(crate) fn request(&mut self, session: SessionId, now: Moment) -> (Request, Sent) {
        self.seq += 1;
        self.last_sent = Some(now);
        // If no answer comes, whoever is next to look sends again.
        self.next = now + self.ask.request_limit();
        let (token, seq, priority) = (self.token, self.seq, self.ask.priority());
        let is_enter = self.phase == Phase::Asking && self.answered == 0;
        let request = match self.phase {
            Phase::Leaving => Request::Leave(Leave { token, settled: self.open_enters == 0 }),
            Phase::Asking if is_enter => {
                self.open_enters += 1;
                Request::Enter(Enter {
                    token,
                    seq,
                    priority,
                    session,
                    mode: self.ask.mode,
                    terms: self.ask.terms,
                    may_queue: self.ask.may_queue,
                    owner: Arc::clone(&self.ask.owner),
                })
            }
            Phase::Asking | Phase::Held | Phase::Behind => Request::Beat(Beat { token, seq, priority, blocked: None }),
        };
        (request, Sent { seq, at: now, is_enter })
    }

    /// Whether the news may be about it, and if so how near it is to its turn: the smallest first.
    pub(crate) fn concerns(&self, news: News) -> Option<(Reverse<i32>, Moment)> {
        let phase = if news == News::Granted { Phase::Asking } else { Phase::Held };
        (self.phase == phase).then_some((Reverse(self.ask.priority()), self.begun))
    }

    /// What the store last failed with, if it has not answered since.
    pub(crate) fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// Whether it holds beside others.
    pub(crate) fn holds_beside_others(&self) -> bool {
        self.phase == Phase::Held && self.ask.mode != Mode::Exclusive
    }

    /// Something has changed at the store: look at once, or once more if an answer is on its way.
    pub(crate) fn hint(&mut self, now: Moment) {
        if self.phase == Phase::Leaving {
            return;
        }
        self.look_again();
        if self.in_flight == 0 {
            self.next = now;
        }
    }

    /// Of the keeper or of the caller, who sends the first one itself: an answer that is on its way may be older than the news, and must not put off the
    /// look.
    pub(crate) fn look_again(&mut self) {
        if self.seq > self.answered {
            self.again = true;
        }
    }

    /// Whether it has asked, and nothing is on its way.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered > 0 && self.seq == self.answered && self.in_flight == 0
    }

    /// Its owner gives it up, or it must not be kept: the store is told at `when`.
    pub(crate) fn withdraw(&mut self, when: Moment) {
        self.vital.give_up();
        if self.phase == Phase::Leaving {
            // The store is being told already; only who tells it next, and when, may change.
            self.next = when;
            return;
        }
        self.phase = Phase::Leaving;
        self.next = when;
        self.failures = 0;
        // What is on its way does not matter any more.
        self.in_flight = 0;
        self.gone_by = self.last_sent.map_or(when, |sent| sent + self.ask.ttl());
    }

    /// Whether nothing was ever sent, so that there is nothing to take back.
    pub(crate) fn is_unsent(&self) -> bool {
        self.seq == 0
    }

    /// The keeper waits for the answer to this request, and sends no other meanwhile.
    pub(crate) fn fly(&mut self, sent: Sent) {
        self.in_flight = sent.seq;
    }

    /// It does not wait any more: the answer came, or took too long.
    pub(crate) fn land(&mut self, sent: Sent) {
        if self.in_flight == sent.seq {
            self.in_flight = 0;
        }
    }
}
