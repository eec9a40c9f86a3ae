//! The conformance suite over stores that are wrong on purpose: each must be found out by the case that is about it.
#![cfg(feature = "conformance")]
// The broken stores are test code, though not within a test.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heirlock::Result;
use heirlock::conformance::{self, Factory};
use heirlock::lease::{
    Answer, Beat, Capabilities, Enter, Evict, Holding, Key, KeyView, Leave, Left, Pending, SessionId, Sink, Store, Token, Was,
};
use heirlock::store::MemoryStore;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// Whoever asks holds at once.
    Generous,
    /// A ticket that has left may enter again.
    NoTombstones,
    /// A repeated `leave` is not answered as the first.
    LeavesOnce,
    /// Waiters need not look for four seconds.
    Sleepy,
    /// Withdrawals of those that wait are lost.
    Leaky,
    /// A lease lives three times as long as was asked.
    Slow,
    /// A hold may be as long as it likes.
    Uncapped,
    /// A key never rests.
    Restless,
    /// All slots are one.
    OneSlot,
    /// Priorities are nothing.
    Fifo,
    /// Every hint comes twice.
    Loud,
    /// Large and small letters are one.
    Folding,
    /// Old requests do what new ones do.
    Unordered,
    /// Fences become smaller.
    Falling,
}

/// The memory store, but wrong.
#[derive(Clone)]
struct Broken {
    store: MemoryStore,
    wrong: Wrong,
    left: Arc<Mutex<HashSet<Token>>>,
}

impl Factory for Broken {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}

impl Broken {
    fn key(&self, key: &Key) -> Key {
        if self.wrong == Wrong::Folding { Key::new(key.as_str().to_lowercase()).unwrap() } else { key.clone() }
    }

    fn answer(&self, answer: Answer) -> Answer {
        match (self.wrong, answer) {
            (Wrong::Generous, Answer::Queued { .. }) => {
                Answer::Held(Holding { fence: 1, slot: None, expires_in: 10_000, effective: 0, revoked: false })
            }
            (Wrong::OneSlot, Answer::Held(holding)) => Answer::Held(Holding { slot: holding.slot.map(|_| 0), ..holding }),
            (Wrong::Sleepy, Answer::Queued { .. }) => Answer::Queued { next_look: 4_000 },
            (Wrong::Falling, Answer::Held(holding)) => Answer::Held(Holding { fence: u64::MAX - holding.fence, ..holding }),
            _ => answer,
        }
    }
}

impl Store for Broken {
    fn enter<'a>(&'a self, key: &'a Key, mut request: Enter) -> Pending<'a, Answer> {
        match self.wrong {
            Wrong::NoTombstones if self.left.lock().unwrap().contains(&request.token) => request.token = Token::random().unwrap(),
            Wrong::Slow => request.terms.ttl *= 3,
            Wrong::Uncapped => request.terms.max_hold = None,
            Wrong::Restless => request.terms.hold_at_least = None,
            Wrong::Fifo => request.priority = 0,
            Wrong::Unordered => request.seq = u64::MAX,
            _ => {}
        }
        Box::pin(async move { Ok(self.answer(self.store.enter(&self.key(key), request).await?)) })
    }

    fn beat(&self, mut requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        for (key, beat) in &mut requests {
            *key = self.key(key);
            match self.wrong {
                Wrong::Fifo => beat.priority = 0,
                Wrong::Unordered => beat.seq = u64::MAX,
                _ => {}
            }
        }
        Box::pin(async move { Ok(self.store.beat(requests).await?.into_iter().map(|answer| Ok(self.answer(answer?))).collect()) })
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        Box::pin(async move {
            let key = self.key(key);
            let queued = || self.store.book(&key).is_some_and(|book| book.waiters().any(|ticket| ticket.token == request.token));
            let again = !self.left.lock().unwrap().insert(request.token);
            match self.wrong {
                Wrong::LeavesOnce if again => Ok(Left { was: Was::Gone }),
                Wrong::Leaky if queued() => Ok(Left { was: Was::Queued }),
                _ => self.store.leave(&key, request).await,
            }
        })
    }

    fn evict<'a>(&'a self, key: &'a Key, mut request: Evict) -> Pending<'a, u64> {
        if self.wrong == Wrong::Falling {
            request.fence = request.fence.map(|fence| u64::MAX - fence);
        }
        self.store.evict(key, request)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        Box::pin(async move { Ok(KeyView { key: key.clone(), ..self.store.inspect(&self.key(key)).await? }) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        self.store.list(prefix)
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        let times = if self.wrong == Wrong::Loud { 2 } else { 1 };
        self.store.notices(session, Arc::new(move |notice| (0..times).for_each(|_| sink(notice.clone()))))
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        self.store.goodbye(session)
    }

    fn min_ttl(&self) -> Duration {
        self.store.min_ttl()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn url(&self) -> String {
        self.store.url()
    }
}

#[test]
fn a_wrong_store_is_found_out() {
    let found_by = [
        (Wrong::Generous, "case_s01_within_a_process"),
        (Wrong::NoTombstones, "case_s04_the_reply_of_enter_is_lost"),
        (Wrong::LeavesOnce, "case_s05_the_reply_of_leave_is_lost"),
        (Wrong::Sleepy, "case_s07_a_lost_notice_costs_time_only"),
        (Wrong::Leaky, "case_s08_dropped_acquires_leave_nothing"),
        (Wrong::Slow, "case_s09_durations_are_what_they_say"),
        (Wrong::Fifo, "case_s10_priority_then_arrival"),
        (Wrong::Loud, "case_s10_priority_then_arrival"),
        (Wrong::Generous, "case_s12_a_worker_asks_again"),
        (Wrong::Folding, "case_s14_keys_are_kept_apart_or_refused"),
        (Wrong::Uncapped, "case_s18_holds_have_ends_and_rests"),
        (Wrong::Restless, "case_s18_holds_have_ends_and_rests"),
        (Wrong::Generous, "case_s19_within_a_process"),
        (Wrong::OneSlot, "case_s20_within_a_process"),
        (Wrong::Falling, "case_s27_late_holders_are_refused"),
        (Wrong::Unordered, "random_histories_agree_with_the_ledger"),
    ];
    std::thread::scope(|threads| {
        for (wrong, name) in found_by {
            let case = conformance::CASES.iter().find(|case| case.name == name).unwrap();
            threads.spawn(move || {
                let broken = Broken { store: MemoryStore::new(), wrong, left: Arc::default() };
                let passed = catch_unwind(AssertUnwindSafe(|| (case.run)(&broken))).is_ok();
                assert!(!passed, "a store that is {wrong:?} passes {name}");
            });
        }
    });
}
