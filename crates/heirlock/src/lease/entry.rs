//! One ticket in the keeper's table: what was sent, what was answered, and when to do what next.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::key::Key;
use super::ticket::{Mode, Owner, Reason, SessionId, Terms, Token, Was};
use super::verb::{Answer, Beat, Enter, Leave, Left};
use super::vital::{LostReason, Verdict, Vital};
use crate::clock::Moment;
use crate::{Error, Kind, Result, Worker};

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
}

impl Ask {
    fn priority(&self) -> i32 {
        self.priority.or_else(|| self.worker.as_ref().map(Worker::base_priority)).unwrap_or(0)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.terms.ttl)
    }

    /// What is taken off a validity, for the difference in pace of two clocks.
    fn margin(&self) -> Duration {
        self.ttl() / 100 + Duration::from_millis(2)
    }

    /// How long a request may take before it is sent again.
    pub(crate) fn request_limit(&self) -> Duration {
        (self.ttl() / 3).clamp(Duration::from_millis(50), Duration::from_secs(5))
    }
}

/// Where an attempt stands on the holder's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It wants to hold.
    Asking,
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
    pub(crate) ask: Ask,
    pub(crate) vital: Arc<Vital>,
    session: SessionId,
    phase: Phase,
    /// The number of the last request sent.
    seq: u64,
    /// The number of the newest request answered.
    answered: u64,
    /// Enters whose answers never came: they may still arrive at the store.
    open_enters: u64,
    /// The request that the keeper waits for.
    in_flight: Option<u64>,
    /// Whether a hint came meanwhile, so that the answer may be older than the news.
    again: bool,
    /// The next request is due.
    pub(crate) next: Moment,
    /// Failures in a row.
    failures: u32,
    trouble: Option<Error>,
    deadline: Option<Moment>,
    last_sent: Option<Moment>,
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
}

impl Effect {
    fn wake(wakers: Vec<Waker>) -> Effect {
        Effect { wakers, over: false }
    }

    fn over(wakers: Vec<Waker>) -> Effect {
        Effect { wakers, over: true }
    }
}

impl Entry {
    pub(crate) fn new(token: Token, session: SessionId, ask: Ask, deadline: Option<Moment>, now: Moment) -> Entry {
        Entry {
            token,
            ask,
            vital: Arc::new(Vital::new()),
            session,
            phase: Phase::Asking,
            seq: 0,
            answered: 0,
            open_enters: 0,
            in_flight: None,
            again: false,
            next: now,
            failures: 0,
            trouble: None,
            deadline,
            last_sent: None,
            kept_until: now,
            fence: 0,
            capped: false,
            gone_by: now,
            scheduled: None,
        }
    }

    /// When the keeper must next look at it.
    pub(crate) fn due(&self) -> Moment {
        let request = if self.in_flight.is_some() { None } else { Some(self.next) };
        let bound = match self.phase {
            Phase::Asking => self.deadline,
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
        self.in_flight.is_none() && self.next <= now
    }

    /// The next request of this ticket, with a new number.
    pub(crate) fn request(&mut self, now: Moment) -> (Request, Sent) {
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
                    session: self.session,
                    mode: self.ask.mode,
                    terms: self.ask.terms,
                    may_queue: self.ask.may_queue,
                    owner: Arc::clone(&self.ask.owner),
                })
            }
            Phase::Asking | Phase::Held => Request::Beat(Beat { token, seq, priority, blocked: None }),
        };
        (request, Sent { seq, at: now, is_enter })
    }

    /// Something has changed at the store: look at once, or once more if an answer is on its way.
    pub(crate) fn hint(&mut self, now: Moment) {
        if self.phase == Phase::Leaving {
            return;
        }
        // Of the keeper or of the caller, who sends the first one itself: its answer may be older than the news, and must not put off the look.
        if self.seq > self.answered {
            self.again = true;
        }
        if self.in_flight.is_none() {
            self.next = now;
        }
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
        self.in_flight = None;
        self.gone_by = self.last_sent.map_or(when, |sent| sent + self.ask.ttl());
    }

    /// The store has answered an `enter` or a `beat`, or has failed to.
    pub(crate) fn answered(&mut self, sent: Sent, answer: Result<Answer>, now: Moment) -> Effect {
        if sent.is_enter && answer.is_ok() {
            self.open_enters = self.open_enters.saturating_sub(1);
        }
        if self.phase == Phase::Leaving {
            return Effect::default();
        }
        let again = std::mem::take(&mut self.again);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.failed(error, now),
        };
        let is_newest = sent.seq > self.answered;
        self.answered = self.answered.max(sent.seq);
        self.failures = 0;
        self.trouble = None;
        if !matches!(answer, Answer::Gone(_)) {
            self.kept_until = self.kept_until.max(sent.at + Duration::from_millis(self.ask.terms.queue_life));
        }
        let effect = match answer {
            Answer::Held(holding) => self.held(holding, sent, now),
            Answer::Queued { next_look } => {
                if self.phase == Phase::Held {
                    // An old answer that was overtaken by the grant; or the store says something that cannot be.
                    return if is_newest { self.lost(LostReason::Forgotten, now) } else { Effect::default() };
                }
                self.next = now + Duration::from_millis(next_look);
                Effect::default()
            }
            Answer::Busy => {
                let who = format!("{} is held by another", self.ask.key);
                let kind = if self.ask.busy_is_timeout { Kind::Timeout } else { Kind::Busy };
                self.refused(Verdict::Refused(Error::new(kind, who)))
            }
            Answer::Gone(reason) => self.gone(reason, sent, now),
            // Leaves no tombstone.
            Answer::Mismatch { slots } => {
                let how = if slots == 0 { "without slots".to_owned() } else { format!("with {slots} slots") };
                let what = format!("{} is in use {how}: ask for it in the same way, or wait until it is free", self.ask.key);
                self.refused_unknown(Verdict::Refused(Error::new(Kind::Invalid, what)), now)
            }
        };
        if again {
            self.next = now;
        }
        effect
    }

    fn held(&mut self, holding: super::Holding, sent: Sent, now: Moment) -> Effect {
        // Counted from before the request was sent: the store counts from when it came.
        let until = (sent.at + Duration::from_millis(holding.expires_in)).before(self.ask.margin());
        self.next = sent.at + self.ask.renew_every;
        let is_capped = self.ask.terms.max_hold.is_some() && !holding.revoked && holding.expires_in < self.ask.terms.ttl;
        if self.phase == Phase::Held {
            if self.fence != holding.fence {
                return self.lost(LostReason::Forgotten, now);
            }
            if now >= self.vital.until() {
                return self.lost(self.end(), now);
            }
            self.capped = is_capped;
            self.vital.renew(holding.effective, until);
            return if holding.revoked { Effect::wake(self.vital.revoke()) } else { Effect::default() };
        }
        if until <= now {
            // The answer took so long that nothing is left of it: ask anew, from now.
            self.next = now;
            return Effect::default();
        }
        self.phase = Phase::Held;
        self.fence = holding.fence;
        self.capped = is_capped;
        let mut wakers = self.vital.hold(holding, until);
        if holding.revoked {
            wakers.extend(self.vital.revoke());
        }
        Effect::wake(wakers)
    }

    fn gone(&mut self, reason: Reason, sent: Sent, now: Moment) -> Effect {
        if self.phase == Phase::Held {
            let mut effect = self.lost(LostReason::of(reason), now);
            // Nothing is left to be told to the store.
            effect.wakers.extend(self.vital.leave(Ok(Was::Gone)));
            return Effect { over: true, ..effect };
        }
        let key = &self.ask.key;
        self.refused(match reason {
            // It should still be there: the store was emptied. Had this process not run for so long, its tombstone may be gone as well.
            Reason::Unknown if sent.at < self.kept_until => return self.refused_unknown(Verdict::Forgotten, now),
            Reason::Evicted => Verdict::Refused(Error::new(Kind::Evicted, format!("an operator took {key} away before it was claimed"))),
            _ => Verdict::Refused(Error::new(
                Kind::Lost,
                format!("the place in the queue of {key} was lost: this process did not run for longer than it is kept; lock it again"),
            )),
        })
    }

    /// It will not hold, and the store knows.
    fn refused(&mut self, verdict: Verdict) -> Effect {
        self.phase = Phase::Leaving;
        Effect::over(self.vital.refuse(verdict))
    }

    /// It will not hold, and the store knows nothing of it: an `enter` that may still arrive would be taken for a new one, so it is withdrawn.
    fn refused_unknown(&mut self, verdict: Verdict, now: Moment) -> Effect {
        if self.open_enters == 0 {
            return self.refused(verdict);
        }
        let wakers = self.vital.refuse(verdict);
        self.withdraw(now);
        Effect::wake(wakers)
    }

    fn failed(&mut self, error: Error, now: Moment) -> Effect {
        if self.phase == Phase::Asking && !error.kind().is_transient() {
            let wakers = self.vital.refuse(Verdict::Refused(error));
            self.withdraw(now);
            return Effect::wake(wakers);
        }
        tracing::debug!(key = %self.ask.key, error = %error.chain(), "the store did not answer; trying again");
        self.failures += 1;
        let most = (self.ask.ttl() / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.next = now + (Duration::from_millis(10) * 2u32.saturating_pow(self.failures.min(10))).min(most);
        self.trouble = Some(error);
        Effect::default()
    }

    /// Lost without the store's word, or against it: it is told to let go, lest a late renewal keeps the key from others.
    fn lost(&mut self, reason: LostReason, now: Moment) -> Effect {
        tracing::warn!(key = %self.ask.key, fence = self.fence, %reason, "a lease is lost");
        let wakers = self.vital.lose(reason);
        self.withdraw(now);
        Effect::wake(wakers)
    }

    /// Why validity ends if it ends now.
    fn end(&self) -> LostReason {
        if self.capped { LostReason::MaxHold } else { LostReason::Expired }
    }

    /// What has run out by itself: validity, or the time for asking.
    pub(crate) fn tick(&mut self, now: Moment) -> Effect {
        match self.phase {
            Phase::Held if now >= self.vital.until() => self.lost(self.end(), now),
            Phase::Asking if self.deadline.is_some_and(|deadline| deadline <= now) => {
                let error = self.out_of_time();
                let wakers = self.vital.refuse(Verdict::Refused(error));
                self.withdraw(now);
                Effect::wake(wakers)
            }
            _ => Effect::default(),
        }
    }

    fn out_of_time(&mut self) -> Error {
        let key = &self.ask.key;
        match self.trouble.take() {
            Some(error) => Error::new(error.kind(), format!("cannot ask for {key}")).because(error),
            None if self.answered == 0 => Error::new(Kind::Unreachable, format!("the store did not answer in time whether {key} is free")),
            None => Error::new(Kind::Timeout, format!("{key} was not granted in time")),
        }
    }

    /// The session is closed.
    pub(crate) fn close(&mut self, now: Moment) -> Effect {
        let wakers = match self.phase {
            Phase::Asking => self.vital.refuse(Verdict::Refused(Error::new(Kind::Closed, "the session was closed"))),
            Phase::Held => self.vital.lose(LostReason::Closed),
            Phase::Leaving => return Effect::default(),
        };
        self.withdraw(now);
        Effect::wake(wakers)
    }

    /// The store has answered a `leave`, or has failed to.
    pub(crate) fn left(&mut self, answer: Result<Left>, now: Moment) -> Effect {
        let error = match answer {
            Ok(left) => return Effect::over(self.vital.leave(Ok(left.was))),
            Err(error) => error,
        };
        if now >= self.gone_by {
            return Effect::over(self.vital.leave(Err(error)));
        }
        self.failures += 1;
        self.next = now + (Duration::from_millis(10) * 2u32.saturating_pow(self.failures.min(7)));
        Effect::default()
    }

    /// Whether nothing was ever sent, so that there is nothing to take back.
    pub(crate) fn is_unsent(&self) -> bool {
        self.seq == 0
    }

    /// The keeper waits for the answer to this request, and sends no other meanwhile.
    pub(crate) fn fly(&mut self, sent: Sent) {
        self.in_flight = Some(sent.seq);
    }

    /// It does not wait any more: the answer came, or took too long.
    pub(crate) fn land(&mut self, sent: Sent) {
        if self.in_flight == Some(sent.seq) {
            self.in_flight = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn entry(now: Moment) -> Entry {
        let ask = Ask {
            key: Key::new("k").unwrap(),
            mode: Mode::Exclusive,
            terms: Terms::new(30_000),
            may_queue: true,
            busy_is_timeout: false,
            renew_every: Duration::from_secs(10),
            priority: None,
            worker: None,
            owner: Arc::default(),
        };
        Entry::new(Token::from_bytes([1; 16]), SessionId(1), ask, None, now)
    }

    #[test]
    fn a_hint_outlives_an_answer_that_is_older() {
        let now = ManualClock::new().now();
        for by_keeper in [false, true] {
            let mut entry = entry(now);
            let (_, sent) = entry.request(now);
            if by_keeper {
                entry.fly(sent);
            }
            // The store has queued it, then granted it; the hint overtakes the answer.
            entry.hint(now);
            entry.land(sent);
            entry.answered(sent, Ok(Answer::Queued { next_look: 1_000 }), now);
            assert!(entry.wants_request(now), "by_keeper: {by_keeper}");
        }
    }
    #[test]
    fn a_place_lost_long_ago_is_told_from_one_that_was_forgotten() {
        let start = ManualClock::new().now();
        for (asleep, lost) in [(14, false), (16, true), (3_600, true)] {
            let mut entry = entry(start);
            let (_, sent) = entry.request(start);
            entry.answered(sent, Ok(Answer::Queued { next_look: 1_000 }), start);
            let later = start + Duration::from_secs(asleep);
            let (_, sent) = entry.request(later);
            let effect = entry.answered(sent, Ok(Answer::Gone(Reason::Unknown)), later);
            assert!(effect.over);
            match entry.vital.poll_verdict(&Context::from_waker(Waker::noop())) {
                Poll::Ready(Verdict::Refused(error)) => assert!(lost && error.is_lost(), "{asleep} s: {error}"),
                Poll::Ready(Verdict::Forgotten) => assert!(!lost, "{asleep} s"),
                other => panic!("{asleep} s: {other:?}"),
            }
        }
    }
}
