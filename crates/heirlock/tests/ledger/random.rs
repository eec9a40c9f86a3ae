//! Long random histories of one key: the ledger and a naive reference agree after every event, and what always holds does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use heirlock::lease::ledger::{MAX_TOMBSTONES, Now};
use heirlock::lease::{Answer, Beat, BlockedOn, Book, Enter, Evict, Leave, Mode, News, Reason, State, Terms, Token, Was};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::ledger_invariants::check_step;
use crate::common::ledger_naive::{Naive, Snapshot};
use crate::common::ledger_requests::{Reply, Request, ask, entering, number, token};

/// Where time goes before an event; in a history without instants, which liveness keys die.
#[derive(Clone, Copy, Debug)]
enum Passing {
    Nothing,
    Ms(u64),
    /// To the instant at which the so many-th thing is over, or one millisecond before.
    ToAnEnd(usize, bool),
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
enum Who {
    New,
    /// So many before the newest.
    Back(u64),
}

/// Which sequence number the request has.
#[derive(Clone, Copy, Debug)]
enum Age {
    Newer,
    /// A copy of the last request, or of an earlier one.
    Older(u64),
}

#[derive(Clone, Debug)]
enum Verb {
    Enter { who: Who, age: Age, priority: i32, mode: usize, terms: Terms, may_queue: bool },
    Beat { who: Who, age: Age, priority: i32, blocked: Option<u64> },
    Leave { who: Who, settled: bool },
    Evict { fence: Option<u64>, force: bool },
    Look,
}

#[derive(Clone, Debug)]
struct Event {
    passing: Passing,
    /// The wall clock jumps there, in microseconds.
    wall: Option<u64>,
    verb: Verb,
}

/// The events of a history; a failure shows one a line.
#[derive(Clone)]
struct Events(Vec<Event>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|event| write!(f, "\n    {event:?}"))
    }
}

/// The modes that a history mostly and sometimes asks for.
const FLAVOURS: [[Mode; 4]; 5] = [
    [Mode::Exclusive, Mode::Exclusive, Mode::Exclusive, Mode::Shared],
    [Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Slot(2)],
    [Mode::Slot(2), Mode::Slot(2), Mode::Slot(2), Mode::Slot(3)],
    [Mode::Slot(3), Mode::Slot(3), Mode::Slot(3), Mode::Exclusive],
    [Mode::Exclusive, Mode::Shared, Mode::Slot(1), Mode::Slot(4)],
];

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![3 => Just(Who::New), 7 => (0..6_u64).prop_map(Who::Back), 1 => (0..90_u64).prop_map(Who::Back)]
}

fn age() -> impl Strategy<Value = Age> {
    prop_oneof![4 => Just(Age::Newer), 1 => (0..3_u64).prop_map(Age::Older)]
}

fn span(choices: &'static [u64]) -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 1 => proptest::sample::select(choices).prop_map(Some)]
}

fn terms() -> impl Strategy<Value = Terms> {
    let lives = proptest::sample::select(&[(20, 20), (90, 30), (3_000, 3_000), (3_000, 1_000), (30_000, 15_000)][..]);
    (lives, span(&[15, 100, 9_000]), span(&[7, 300, 4_000]), span(&[25, 500, 6_000]))
        .prop_map(|((ttl, queue_life), max_hold, lock_delay, hold_at_least)| Terms { ttl, queue_life, max_hold, lock_delay, hold_at_least })
}

fn verb() -> impl Strategy<Value = Verb> {
    let enter = (who(), age(), 0..4, 0..4_usize, terms(), prop::bool::weighted(0.8))
        .prop_map(|(who, age, priority, mode, terms, may_queue)| Verb::Enter { who, age, priority, mode, terms, may_queue });
    let beat = (who(), age(), 0..4, prop::option::weighted(0.1, 0..3_u64)).prop_map(|(who, age, priority, blocked)| Verb::Beat {
        who,
        age,
        priority,
        blocked,
    });
    let leave = (who(), any::<bool>()).prop_map(|(who, settled)| Verb::Leave { who, settled });
    let evict = (prop::option::of(0..4_u64), any::<bool>()).prop_map(|(fence, force)| Verb::Evict { fence, force });
    prop_oneof![8 => enter, 5 => beat, 3 => leave, 1 => evict, 1 => Just(Verb::Look)]
}

/// Some histories are hurried: little time passes, so that tombstones become too many before they end.
fn events(hurried: bool) -> impl Strategy<Value = Events> {
    let slow = u32::from(!hurried);
    let passing = prop_oneof![
        8 => Just(Passing::Nothing),
        4 => (0..40_u64).prop_map(Passing::Ms),
        slow => (0..3_000_u64).prop_map(Passing::Ms),
        3 * slow => (0..4_usize, any::<bool>()).prop_map(|(which, before)| Passing::ToAnEnd(which, before)),
        slow => (0..70_000_u64).prop_map(Passing::Ms),
    ];
    let wall = prop_oneof![9 => Just(None), 1 => (0..5_000_u64).prop_map(Some)];
    vec((passing, wall, verb()).prop_map(|(passing, wall, verb)| Event { passing, wall, verb }), 1..=600).prop_map(Events)
}

fn history() -> impl Strategy<Value = (usize, Events)> {
    (0..FLAVOURS.len(), any::<bool>()).prop_flat_map(|(flavour, hurried)| (Just(flavour), events(hurried)))
}

/// What the histories came across, to see that they are about something.
#[derive(Debug, Default)]
struct Met(BTreeMap<&'static str, u64>);

impl Met {
    fn note(&mut self, what: &'static str, met: bool) {
        *self.0.entry(what).or_default() += u64::from(met);
    }
}

/// Both ledgers, and what turns abstract events into requests.
#[derive(Default)]
struct History {
    book: Book,
    naive: Naive,
    mono_ms: u64,
    wall_us: u64,
    /// The last sequence number that each ticket sent.
    sent: BTreeMap<u64, u64>,
}

impl History {
    fn ticket(&mut self, who: Who) -> u64 {
        let newest = self.sent.len() as u64;
        let number = match who {
            Who::New => newest + 1,
            Who::Back(back) => newest.saturating_sub(back).max(1),
        };
        self.sent.entry(number).or_default();
        number
    }

    fn seq(&mut self, number: u64, age: Age) -> u64 {
        let last = self.sent.get_mut(&number).unwrap();
        match age {
            Age::Newer => {
                *last += 1;
                *last
            }
            Age::Older(by) => last.saturating_sub(by).max(1),
        }
    }

    fn request(&mut self, flavour: usize, verb: &Verb) -> Request {
        match *verb {
            Verb::Enter { who, age, priority, mode, terms, may_queue } => {
                let number = self.ticket(who);
                let seq = self.seq(number, age);
                Request::Enter(Enter { seq, priority, mode: FLAVOURS[flavour][mode], terms, may_queue, ..entering(number) })
            }
            Verb::Beat { who, age, priority, blocked } => {
                let number = self.ticket(who);
                let blocked = blocked.map(|wait| BlockedOn { wait, lock: "elsewhere".to_owned() });
                Request::Beat(Beat { token: token(number), seq: self.seq(number, age), priority, blocked })
            }
            Verb::Leave { who, settled } => Request::Leave(Leave { token: token(self.ticket(who)), settled }),
            Verb::Evict { fence, force } => {
                // A fence that may be held, or was some time ago, or the one that nobody has.
                let fence = fence.map(|back| if back == 3 { 0 } else { self.book.header().last_fence.saturating_sub(back) });
                Request::Evict(Evict { fence, force })
            }
            Verb::Look => Request::Look,
        }
    }

    /// One event on both, compared.
    fn step(&mut self, now: Now<'_>, request: &Request, met: &mut Met) -> Result<(), TestCaseError> {
        let clock = matches!(now, Now::Clock { .. });
        let before = self.book.clone();
        let (reply, told) = ask(&mut self.book, now, request);
        let (expected, expected_told) = self.naive.ask(now, request);
        prop_assert_eq!(reply, expected, "{:?} at {:?} is answered otherwise", request, now);
        let mut news: Vec<_> = told.iter().map(|told| (number(told.token), told.news)).collect();
        news.sort_unstable();
        prop_assert_eq!(&news, &expected_told, "{:?} at {:?} tells something else", request, now);
        prop_assert_eq!(Snapshot::of(&self.book, clock), self.naive.snapshot(), "{:?} at {:?} leaves another state", request, now);
        check_step(&before, now, request, &reply, &told, &self.book)
            .map_err(|broken| TestCaseError::fail(format!("{request:?} at {now:?}: {broken}")))?;
        meet(met, &before, request, reply, &news, &self.book);
        Ok(())
    }
}

fn meet(met: &mut Met, before: &Book, request: &Request, reply: Reply, news: &[(u64, News)], after: &Book) {
    let fresh: Vec<_> = {
        let old: BTreeSet<Token> = before.tombstones().map(|grave| grave.token).collect();
        after.tombstones().filter(|grave| !old.contains(&grave.token)).collect()
    };
    let live = |reason| fresh.iter().any(|grave| grave.reason == reason && before.tickets().any(|ticket| ticket.token == grave.token));
    met.note("expired", live(Reason::Expired));
    met.note("max_hold", live(Reason::MaxHold));
    met.note("evicted", live(Reason::Evicted));
    met.note("busy", reply == Reply::Stands(Answer::Busy));
    met.note("mismatch", matches!(reply, Reply::Stands(Answer::Mismatch { .. })));
    met.note("late enter", matches!((request, reply), (Request::Enter(_), Reply::Stands(Answer::Gone(_)))));
    let known = |ticket: Token| before.tombstones().any(|grave| grave.token == ticket);
    met.note("repeated leave", matches!(request, Request::Leave(leave) if known(leave.token)) && reply != Reply::Left(Was::Gone));
    met.note("revoked holder", after.tickets().any(|ticket| ticket.revoked && ticket.state == State::Held));
    met.note("unclaimed grant", after.tickets().any(|ticket| ticket.state == State::Granted));
    met.note("readers together", after.header().readers && after.header().holders > 1);
    met.note("slots together", after.header().slots > 1 && after.header().holders > 1);
    let slot_rests = after.header().rests.iter().any(|rest| rest.slot.is_some());
    met.note("a slot rests beside a holder", slot_rests && after.header().holders > 0);
    met.note("a key rests", after.header().rests.iter().any(|rest| rest.slot.is_none()));
    let gone = |settled: bool| {
        let left: BTreeSet<Token> = after.tombstones().map(|grave| grave.token).collect();
        before.header().graves == MAX_TOMBSTONES
            && after.header().graves == MAX_TOMBSTONES
            && before.tombstones().any(|grave| grave.settled == settled && !left.contains(&grave.token))
    };
    met.note("a settled tombstone goes first", gone(true));
    met.note("the oldest tombstone goes", gone(false));
    met.note("boosted", news.iter().any(|(_, news)| *news == News::Boosted));
    met.note("lowered", news.iter().any(|(_, news)| *news == News::Lowered));
    met.note("granted", news.iter().any(|(_, news)| *news == News::Granted));
}

/// Runs so many histories, and sees to it that they met each of these at least ten times.
fn run(cases: u32, absent: &[&str], replay: impl Fn(usize, &[Event], &mut Met) -> Result<(), TestCaseError>) {
    let met = RefCell::new(Met::default());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let result = runner.run(&history(), |(flavour, events)| replay(flavour, &events.0, &mut met.borrow_mut()));
    if let Err(failure) = result {
        panic!("{failure}");
    }
    println!("ledger random: {cases} histories of up to 600 events met {:?}", met.borrow().0);
    for (what, times) in &met.borrow().0 {
        assert!(*times >= 10 || absent.contains(what), "{what} was met {times} times only");
    }
}

#[test]
fn the_ledger_does_as_the_naive_one() {
    run(600, &[], |flavour, events, met| {
        let mut history = History::default();
        for event in events {
            let instants = history.naive.instants();
            let before = history.mono_ms;
            history.mono_ms = match event.passing {
                Passing::Nothing => before,
                Passing::Ms(ms) => before + ms,
                Passing::ToAnEnd(which, early) => instants.get(which).map_or(before, |end| end - u64::from(early)),
            };
            met.note("at the very instant", history.mono_ms > before && instants.contains(&history.mono_ms));
            history.wall_us = event.wall.unwrap_or(history.wall_us + (history.mono_ms - before));
            let now = Now::Clock { mono_ms: history.mono_ms, wall_us: history.wall_us };
            let request = history.request(flavour, &event.verb);
            history.step(now, &request, met)?;
        }
        Ok(())
    });
}

#[test]
fn the_ledger_without_instants_does_as_the_naive_one() {
    // The cap of a hold is then its owner's business: the key of the dead names no reason.
    run(400, &["max_hold"], |flavour, events, met| {
        let mut history = History::default();
        for event in events {
            let mortal = history.naive.mortal();
            let mut dead = match event.passing {
                Passing::Nothing => Vec::new(),
                Passing::Ms(ms) => mortal.into_iter().filter(|ticket| ms % 8 == number(*ticket) % 8).collect(),
                Passing::ToAnEnd(which, _) => mortal.get(which).copied().into_iter().collect(),
            };
            if event.wall.is_some() {
                // Who has ended before, or was never seen, may be among the dead too.
                dead.extend([token(1), token(1_000_000)]);
            }
            history.wall_us = event.wall.unwrap_or(history.wall_us + 1);
            let now = Now::Liveness { dead: &dead, wall_us: history.wall_us };
            let request = history.request(flavour, &event.verb);
            history.step(now, &request, met)?;
        }
        Ok(())
    });
}
