//! What an answer, its failure, or the passing of time means for a ticket on the holder's side.

use std::time::Duration;

use super::{Effect, Entry, Phase, SILENCE, Said, Sent, in_use, margin};
use crate::clock::Moment;
use crate::lease::key::Key;
use crate::lease::ticket::{Reason, Was};
use crate::lease::verb::{Answer, Holding, Left};
use crate::lease::vital::{LostReason, Refusal};
use crate::{Error, Kind, Result};

impl Entry {
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
            Answer::Busy => self.refused(Refusal::Error(self.ask.busy("held by another"))),
            Answer::Gone(reason) => self.gone(reason, sent, now),
            // Leaves no tombstone.
            Answer::Mismatch { slots } => self.refused_unknown(Refusal::Error(in_use(&self.ask.key, slots)), now),
        };
        if again {
            self.next = now;
        }
        effect
    }

    fn held(&mut self, holding: Holding, sent: Sent, now: Moment) -> Effect {
        // Counted from before the request was sent: the store counts from when it came.
        let span = Duration::from_millis(holding.expires_in);
        let until = (sent.at + span).before(margin(span));
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
            Reason::Unknown if sent.at < self.kept_until => return self.refused_unknown(Refusal::Forgotten, now),
            Reason::Evicted => Refusal::Error(Error::new(Kind::Evicted, format!("an operator took {key} away before it was claimed"))),
            _ => Refusal::Error(Error::new(
                Kind::Lost,
                format!("the place in the queue of {key} was lost: this process did not run for longer than it is kept; lock it again"),
            )),
        })
    }

    /// It will not hold, and the store knows.
    fn refused(&mut self, refusal: Refusal) -> Effect {
        self.phase = Phase::Leaving;
        Effect::over(self.vital.refuse(refusal))
    }

    /// It will not hold, and the store knows nothing of it: an `enter` that may still arrive would be taken for a new one, so it is withdrawn.
    fn refused_unknown(&mut self, refusal: Refusal, now: Moment) -> Effect {
        if self.open_enters == 0 {
            return self.refused(refusal);
        }
        let wakers = self.vital.refuse(refusal);
        self.withdraw(now);
        Effect::wake(wakers)
    }

    fn failed(&mut self, error: Error, now: Moment) -> Effect {
        // A store that cannot do its work now (a full disk, say) is waited for by those who may wait.
        let is_final = !error.kind().is_transient() || error.is_storage() && !self.ask.may_queue;
        if self.phase == Phase::Asking && is_final {
            let wakers = self.vital.refuse(Refusal::Error(error));
            self.withdraw(now);
            return Effect::wake(wakers);
        }
        let said = Some(Said::Again { key: self.ask.key.clone(), error: error.chain() });
        self.failures += 1;
        let most = (self.ask.ttl() / 10).clamp(Duration::from_millis(20), Duration::from_secs(1));
        self.next = now + (Duration::from_millis(10) * 2u32.saturating_pow(self.failures.min(10))).min(most);
        self.trouble = Some(error);
        Effect { said, ..Effect::default() }
    }

    /// Lost without the store's word, or against it: it is told to let go, lest a late renewal keeps the key from others.
    fn lost(&mut self, reason: LostReason, now: Moment) -> Effect {
        let wakers = self.vital.lose(reason);
        self.withdraw(now);
        Effect { wakers, said: Some(Said::Lost { key: self.ask.key.clone(), fence: self.fence, reason }), ..Effect::default() }
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
                let error = self.out_of_time(now);
                let wakers = self.vital.refuse(Refusal::Error(error));
                self.withdraw(now);
                Effect::wake(wakers)
            }
            Phase::Behind if self.deadline.is_some_and(|deadline| deadline <= now) => {
                Effect::over(self.vital.refuse(Refusal::Error(late(&self.ask.key))))
            }
            _ => Effect::default(),
        }
    }

    fn out_of_time(&mut self, now: Moment) -> Error {
        let key = &self.ask.key;
        match self.trouble.take() {
            Some(error) => Error::new(error.kind(), format!("cannot ask for {key}")).because(error),
            // A shorter wait says nothing about the store.
            None if self.answered == 0 && now.since(self.begun) >= SILENCE => {
                Error::new(Kind::Unreachable, format!("the store did not answer in time whether {key} is free"))
            }
            None => late(key),
        }
    }

    /// The session is closed.
    pub(crate) fn close(&mut self, now: Moment) -> Effect {
        let wakers = match self.phase {
            Phase::Asking | Phase::Behind => self.vital.refuse(Refusal::Error(Error::new(Kind::Closed, "the session was closed"))),
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
}

/// The end of a wait that nothing else came of.
fn late(key: &Key) -> Error {
    Error::new(Kind::Timeout, format!("{key} was not granted in time"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::lease::entry::Ask;
    use crate::lease::vital::Vital;
    use crate::lease::{Mode, SessionId, Terms, Token};

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
            witness: None,
        };
        Entry::new(Token::from_bytes([1; 16]), Arc::new(ask), Arc::new(Vital::new()), None, now)
    }

    #[test]
    fn a_hint_outlives_an_answer_that_is_older() {
        let now = ManualClock::new().now();
        for by_keeper in [false, true] {
            let mut entry = entry(now);
            let (_, sent) = entry.request(SessionId(1), now);
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
            let (_, sent) = entry.request(SessionId(1), start);
            entry.answered(sent, Ok(Answer::Queued { next_look: 1_000 }), start);
            let later = start + Duration::from_secs(asleep);
            let (_, sent) = entry.request(SessionId(1), later);
            let effect = entry.answered(sent, Ok(Answer::Gone(Reason::Unknown)), later);
            assert!(effect.over);
            match entry.vital.listen().verdict(&Context::from_waker(Waker::noop())) {
                Poll::Ready(Err(Refusal::Error(error))) => assert!(lost && error.is_lost(), "{asleep} s: {error}"),
                Poll::Ready(Err(Refusal::Forgotten)) => assert!(!lost, "{asleep} s"),
                other => panic!("{asleep} s: {other:?}"),
            }
        }
    }
}
