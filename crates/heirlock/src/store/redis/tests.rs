//! The script replays the recorded histories of an independent oracle, at their times.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use ::redis::{Script, Value};

use super::RedisStore;
use super::address::{Address, SentinelUser, Tls};
use super::link::Link;
use super::wire::{self, Names, Parts, Step};
use crate::lease;

use crate::lease::ledger::Now;
use crate::lease::{
    Answer, Beat, Book, Enter, Evict, Key, Leave, Left, News, Outcome, Rest, Rows, SessionId, State, Token, Told, Tombstone, Was,
};

use crate::store::ledger_vectors::{Replayed, Subject, replay_all};

/// The server that `ci/services` has started.
fn server() -> String {
    std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run the tests by ci/test, or by ci/services")
}

/// One key, step by step: each verb at a given time, with all that it tells, and what is kept.
struct Hand<'c> {
    link: &'c Link,
    connection: ::redis::Connection,
    names: Names,
    key: Key,
    /// How many steps went the script's short way.
    short: &'c Cell<usize>,
    /// All three keys exist if one does.
    in_cluster: bool,
}

impl<'c> Hand<'c> {
    fn new(link: &'c Link, client: &::redis::Client, short: &'c Cell<usize>, in_cluster: bool) -> Hand<'c> {
        let names = Names::new(&format!("{:016x}/", SessionId::random().unwrap().0), in_cluster);
        Hand { link, connection: client.get_connection().unwrap(), names, key: Key::new("key").unwrap(), short, in_cluster }
    }

    fn step<T>(&self, now: Now<'_>, mut step: Step, answer: impl FnOnce(&Value) -> crate::Result<T>) -> Outcome<T> {
        let Now::Clock { mono_ms, wall_us } = now else { panic!("this engine has a clock") };
        step.args[2].splice(..0, format!("{mono_ms} {wall_us} ").into_bytes());
        let value = pollster::block_on(self.link.steps(vec![step])).unwrap().pop().unwrap().unwrap();
        let mut parts = Parts::of(&value).unwrap();
        let answer = answer(parts.next().unwrap()).unwrap();
        let told = Parts::of(parts.next().unwrap()).unwrap().rest().map(told).collect();
        self.short.set(self.short.get() + parts.int::<usize>().unwrap());
        Outcome { answer, told }
    }
}

fn told(value: &Value) -> Told {
    let mut parts = Parts::of(value).unwrap();
    let session = u64::from_str_radix(std::str::from_utf8(parts.bytes().unwrap()).unwrap(), 16).unwrap();
    let news = News::from_word(std::str::from_utf8(parts.bytes().unwrap()).unwrap()).unwrap();
    Told { session: SessionId(session), token: token(parts.bytes().unwrap()), news }
}

fn token(bytes: &[u8]) -> Token {
    Token::from_bytes(bytes.try_into().unwrap())
}

/// The script's number for never.
fn instant(number: u64) -> u64 {
    if number == (1 << 53) - 1 { u64::MAX } else { number }
}

impl Subject for Hand<'_> {
    fn enter(&mut self, now: Now<'_>, request: &Enter) -> Outcome<Answer> {
        self.step(now, self.names.enter(&self.key, request), wire::answer)
    }

    fn beat(&mut self, now: Now<'_>, request: &Beat) -> Outcome<Answer> {
        self.step(now, self.names.beat(&self.key, request), wire::answer)
    }

    fn leave(&mut self, now: Now<'_>, request: &Leave) -> Outcome<Left> {
        self.step(now, self.names.leave(&self.key, *request), wire::left)
    }

    fn evict(&mut self, now: Now<'_>, request: &Evict) -> Outcome<u64> {
        self.step(now, self.names.evict(&self.key, *request), wire::met)
    }

    fn look(&mut self, now: Now<'_>) -> Outcome<()> {
        self.step(now, self.names.look(&self.key), |_| Ok(()))
    }

    fn book(&mut self) -> Book {
        let names = self.names.look(&self.key).keys;
        let value: Value = Script::new(include_str!("book.lua")).key(&names[..]).invoke(&mut self.connection).unwrap();
        let mut all = Parts::of(&value).unwrap();
        let mut header = Parts::of(all.next().unwrap()).unwrap();
        let rests = Parts::of(all.next().unwrap()).unwrap();
        let mut book = Book::default();
        for row in Parts::of(all.next().unwrap()).unwrap().rest() {
            let mut row = Parts::of(row).unwrap();
            let token = token(row.bytes().unwrap());
            let ticket = lease::Ticket { token, ..wire::ticket(row.next().unwrap()).unwrap() };
            let Ok(()) = book.put(None, &ticket);
        }
        let mut graves = 0;
        for row in Parts::of(all.next().unwrap()).unwrap().rest() {
            let mut grave = Parts::of(row).unwrap();
            let token = token(grave.bytes().unwrap());
            let reason = wire::reason(grave.int().unwrap()).unwrap();
            let was = [Was::Held, Was::Granted, Was::Queued, Was::Gone][grave.int::<usize>().unwrap()];
            let settled = grave.int::<u8>().unwrap() == 1;
            let Ok(()) = book.bury(&Tombstone { token, reason, was, settled, due_ms: grave.int().unwrap() });
            graves += 1;
        }
        if let Ok(last_fence) = header.int() {
            let kept = Rows::header(&mut book);
            kept.last_fence = last_fence;
            kept.arrivals = header.int().unwrap();
            kept.holders = header.int().unwrap();
            kept.queued = header.int().unwrap();
            kept.graves = graves;
            kept.readers = header.int::<u8>().unwrap() == 1;
            kept.slots = header.int().unwrap();
            kept.next_due_ms = instant(header.int().unwrap());
            let alone_due: u64 = header.int().unwrap();
            for rest in rests.rest() {
                let mut rest = Parts::of(rest).unwrap();
                let slot = rest.maybe().unwrap();
                let (until_ms, for_ms) = (rest.int().unwrap(), rest.int().unwrap());
                kept.rests.push(Rest { slot, until_ms, for_ms, token: token(rest.bytes().unwrap()) });
            }
            let (holders, queued) = (kept.holders, kept.queued);
            // Who holds alone is there, and due when the header says.
            let alone = Some(token(header.bytes().unwrap())).filter(|token| *token.as_bytes() != [0; 16]);
            let due = alone.map(|alone| book.tickets().find(|ticket| ticket.token == alone && ticket.holds()).unwrap().due_ms);
            assert_eq!(due, alone.map(|_| alone_due));
            // The sorted sets have all that they should, and no more; nothing stays for ever.
            let members = holders - u64::from(alone.is_some()) + queued + u64::from(self.in_cluster);
            assert_eq!([all.int::<u64>().unwrap(), all.int::<u64>().unwrap()], [members; 2]);
            assert!(all.int::<i64>().unwrap() > 0);
            assert_eq!(all.int::<u64>().unwrap(), 0);
        }
        assert_eq!(book.tickets().filter(|ticket| ticket.state == State::Queued).count() as u64, book.header().queued);
        book
    }
}

/// A link to the server, and a way around it.
fn link() -> (Link, ::redis::Client) {
    let address = Address::parse(&server(), &Tls::default(), &SentinelUser::default()).unwrap();
    let (link, _) = pollster::block_on(Link::connect(address, 0)).unwrap();
    (link, ::redis::Client::open(server()).unwrap())
}

fn replays(in_cluster: bool) {
    let ((link, client), short) = (link(), Cell::new(0));
    let replayed = replay_all(|| Hand::new(&link, &client, &short, in_cluster));
    let short = short.get();
    println!("redis vectors: {} histories, {} events, {short} steps the short way", replayed.histories, replayed.events);
    assert_eq!(replayed, Replayed { histories: 300, events: 15_000 });
    assert!(short > 0, "the short way is one of those that are compared");
}

#[test]
fn the_script_replays_every_recorded_history() {
    replays(false);
}

#[test]
fn the_script_replays_every_recorded_history_as_in_a_cluster() {
    replays(true);
}

/// The server's clock is set back: nobody holds for longer than from then on.
#[test]
fn a_clock_that_goes_back_keeps_what_was_left() {
    let ((link, client), short) = (link(), Cell::new(0));
    let mut hand = Hand::new(&link, &client, &short, false);
    let at = |ms: u64| Now::Clock { mono_ms: ms, wall_us: ms * 1_000 };
    let request = |number: u8, mode| Enter {
        token: Token::from_bytes([number; 16]),
        session: SessionId(u64::from(number)),
        seq: 1,
        priority: 0,
        mode,
        terms: lease::Terms::new(30_000),
        may_queue: true,
        owner: std::sync::Arc::default(),
    };
    for mode in [lease::Mode::Exclusive, lease::Mode::Slot(2)] {
        let held = hand.enter(at(1_000_000), &request(1, mode)).answer;
        assert!(matches!(held, Answer::Held(holding) if holding.expires_in == 30_000), "{held:?}");
        hand.enter(at(1_010_000), &request(2, mode));
        hand.enter(at(1_010_000), &request(3, mode));
        let fence = hand.book().header().last_fence;
        // An hour and more.
        hand.look(at(10_000));
        let left: Vec<u64> = hand.book().tickets().map(|ticket| ticket.due_ms - 10_000).collect();
        assert!(left.iter().all(|left| *left <= 30_000) && left.contains(&20_000), "{left:?}");
        assert_eq!(hand.book().header().last_fence, fence);
        // All end when that is over, and fences go on.
        hand.look(at(40_000));
        assert_eq!(hand.book().header().live(), 0);
        let held = hand.enter(at(40_001), &request(4, mode)).answer;
        assert!(matches!(held, Answer::Held(holding) if holding.fence > fence), "{held:?}");
        hand.leave(at(40_002), &Leave { token: request(4, mode).token, settled: true });
        hand.look(at(200_000));
    }
}

#[test]
fn what_is_no_redis_url_is_told_without_its_password() {
    for url in ["redis://:hunter2@", "redis://app:hunter2@host:port/0", "redis://app:hunter2@host/database"] {
        let error = pollster::block_on(RedisStore::connect(url)).unwrap_err();
        assert!(error.kind() == crate::Kind::Invalid && !error.chain().contains("hunter2"), "{}", error.chain());
    }
    for url in ["redis://app:x?hunter2@host/0", "redis://app:x?hunter2=1@host", "redis://h?prefix=a@b"] {
        let error = pollster::block_on(crate::open_store(url)).map(|store| store.url()).unwrap_err();
        assert!(error.kind() == crate::Kind::Invalid && !error.chain().contains("hunter2"), "{}", error.chain());
    }
}
