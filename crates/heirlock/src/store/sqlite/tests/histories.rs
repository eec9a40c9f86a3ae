//! Random histories, step by step beside the ledger on plain data.

use proptest::prelude::*;

use super::*;
use crate::lease::{BlockedOn, Told};

#[derive(Clone, Debug)]
enum Verb {
    Enter(Enter),
    Beat(Beat),
    Leave(Leave),
    Evict(Evict),
    Look,
}

#[derive(Clone, Debug)]
struct Event {
    key: usize,
    wait_ms: u64,
    wall_us: u64,
    verb: Verb,
}

/// What a step came to, however its verb is answered.
#[derive(Debug, PartialEq)]
enum Came {
    Answer(Answer),
    Left(Left),
    Met(u64),
    Looked,
}

fn apply<R: Rows>(rows: &mut R, now: Now<'_>, verb: &Verb) -> Result<Outcome<Came>, R::Error> {
    fn came<T>(outcome: Outcome<T>, wrap: impl FnOnce(T) -> Came) -> Outcome<Came> {
        Outcome { answer: wrap(outcome.answer), told: outcome.told }
    }
    Ok(match verb {
        Verb::Enter(request) => came(ledger::enter(rows, now, request)?, Came::Answer),
        Verb::Beat(request) => came(ledger::beat(rows, now, request)?, Came::Answer),
        Verb::Leave(request) => came(ledger::leave(rows, now, request)?, Came::Left),
        Verb::Evict(request) => came(ledger::evict(rows, now, request)?, Came::Met),
        Verb::Look => came(ledger::look(rows, now)?, |()| Came::Looked),
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Exclusive), 4 => Just(Mode::Shared), 2 => (1..4_u32).prop_map(Mode::Slot)]
}

fn terms() -> impl Strategy<Value = Terms> {
    let maybe = || proptest::option::weighted(0.3, 1..40_000_u64);
    (1..40_000_u64, maybe(), maybe(), maybe()).prop_map(|(ttl, max_hold, lock_delay, hold_at_least)| Terms {
        max_hold,
        lock_delay,
        hold_at_least,
        ..Terms::new(ttl)
    })
}

fn verb() -> impl Strategy<Value = Verb> {
    let token = || (0..24_u8).prop_map(token);
    let enter = (0..24_u8, 1..6_u64, -3..4_i32, mode(), terms(), prop::bool::weighted(0.85)).prop_map(
        |(number, seq, priority, mode, terms, may_queue)| Verb::Enter(Enter { seq, priority, mode, terms, may_queue, ..request(number) }),
    );
    let blocked = proptest::option::weighted(0.2, (0..9_u64).prop_map(|wait| BlockedOn { wait, lock: "other \"lock\" 🦀".to_owned() }));
    let beat = (token(), 1..9_u64, -3..4_i32, blocked)
        .prop_map(|(token, seq, priority, blocked)| Verb::Beat(Beat { token, seq, priority, blocked }));
    let leave = (token(), any::<bool>()).prop_map(|(token, settled)| Verb::Leave(Leave { token, settled }));
    let evict = (proptest::option::of(0..60_u64), any::<bool>()).prop_map(|(fence, force)| Verb::Evict(Evict { fence, force }));
    prop_oneof![12 => enter, 8 => beat, 6 => leave, 1 => evict, 2 => Just(Verb::Look)]
}

fn event() -> impl Strategy<Value = Event> {
    // Mostly so close that little expires, sometimes so far that all does.
    let wait = prop_oneof![8 => 0..300_u64, 3 => 0..8_000_u64, 1 => 0..100_000_u64];
    (0..3_usize, wait, 0..60_u64, verb()).prop_map(|(key, wait_ms, wall_us, verb)| Event { key, wait_ms, wall_us, verb })
}

fn sorted(mut told: Vec<Told>) -> Vec<Told> {
    told.sort();
    told
}

fn replay(events: &[Event]) {
    let hand = Hand::new();
    let keys = ["key", "key 2", "%_'\"ключ"].map(key);
    let mut books = [Book::default(), Book::default(), Book::default()];
    let mut mono_ms = 5_000;
    for (at, event) in events.iter().enumerate() {
        mono_ms += event.wait_ms;
        let now = Now::Clock { mono_ms, wall_us: event.wall_us };
        let Ok(expected) = apply(&mut books[event.key], now, &event.verb);
        hand.clock.set(mono_ms, event.wall_us);
        let (name, verb) = (hand.store.name(&keys[event.key]), event.verb.clone());
        let actual = hand.store.run(move |engine| engine.step(&name, &|| false, |rows, now| apply(rows, now, &verb))).unwrap();
        assert_eq!(actual.answer, expected.answer, "event {at}: {event:?}");
        assert_eq!(sorted(actual.told), sorted(expected.told), "event {at}: {event:?}");
        assert_eq!(hand.store.book(&keys[event.key]).unwrap(), books[event.key], "event {at}: {event:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_rows_do_what_the_ledger_does(events in proptest::collection::vec(event(), 1..160)) {
        replay(&events);
    }
}

/// Many wait: the head of the queue that is kept at hand is the queue's, however they come and go.
#[test]
fn a_long_queue_is_served_in_order() {
    let hand = Hand::new();
    let mut book = Book::default();
    let now = Now::Clock { mono_ms: 5_000, wall_us: 1 };
    for number in 0..60 {
        let request = Enter { priority: i32::from(number) * 7 % 5, ..request(number) };
        let Ok(expected) = ledger::enter(&mut book, now, &request);
        assert_eq!(hand.enter(now, &request), expected);
    }
    for number in 0..60 {
        let request = Beat { token: token(number), seq: 2, priority: i32::from(number) * 3 % 7, blocked: None };
        let Ok(expected) = ledger::beat(&mut book, now, &request);
        let actual = hand.beat(now, &request);
        assert_eq!((actual.answer, sorted(actual.told)), (expected.answer, sorted(expected.told)));
    }
    let request = Evict { fence: None, force: true };
    let Ok(expected) = ledger::evict(&mut book, now, &request);
    assert_eq!(hand.evict(now, &request), expected);
    let Ok(expected) = ledger::look(&mut book, now);
    assert_eq!(hand.look(now), expected);
    for number in (0..60).rev().step_by(2).chain(0..60) {
        let request = Leave { token: token(number), settled: number % 3 == 0 };
        let Ok(expected) = ledger::leave(&mut book, now, &request);
        let actual = hand.leave(now, &request);
        assert_eq!((actual.answer, sorted(actual.told)), (expected.answer, sorted(expected.told)));
        assert_eq!(hand.book(), book);
    }
}

#[test]
fn no_more_than_64_tombstones_are_kept() {
    let hand = Hand::new();
    for number in 0..100_u8 {
        let now = Now::Clock { mono_ms: 5_000 + u64::from(number), wall_us: 1 };
        hand.enter(now, &request(number));
        hand.leave(now, &Leave { token: token(number), settled: true });
    }
    let book = hand.book();
    assert_eq!((book.tombstones().count(), Book::header(&book).graves), (64, 64));
    let now = Now::Clock { mono_ms: 6_000, wall_us: 1 };
    assert_eq!(hand.leave(now, &Leave { token: token(99), settled: true }).answer.was, crate::lease::Was::Held);
}
