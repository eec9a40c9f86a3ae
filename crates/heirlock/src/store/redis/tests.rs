//! The script replays the recorded histories of an independent oracle, at their times.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use ::redis::{Script, Value};

use super::RedisStore;
use super::address::{Address, SentinelUser, Tls};
use super::link::Link;
use super::wire::{self, Names, Parts, Step};
use crate::lease;

use self::random::Random;
use crate::lease::ledger::{self, Now};
use crate::lease::{
    Answer, Beat, Book, Enter, Evict, Key, Leave, Left, News, Outcome, Rest, Rows, SessionId, State, Token, Told, Tombstone, Was,
};

use crate::random;
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
    way: &'c Way,
}

/// How the script goes.
#[derive(Default)]
struct Way {
    /// All three keys exist if one does.
    in_cluster: bool,
    /// How many steps went its short way, by verb: enter, beat, leave.
    short: Cell<[usize; 3]>,
}

impl Way {
    fn tell(&self, steps: usize) {
        let [enter, beat, leave] = self.short.get();
        println!("redis: of {steps} steps {} the short way: {enter} enter, {beat} beat, {leave} leave", enter + beat + leave);
    }
}

impl<'c> Hand<'c> {
    fn new(link: &'c Link, client: &::redis::Client, way: &'c Way) -> Hand<'c> {
        let names = Names::new(&format!("{:016x}/", SessionId::random().unwrap().0), way.in_cluster);
        Hand { link, connection: client.get_connection().unwrap(), names, key: Key::new("key").unwrap(), way }
    }

    fn step<T>(&self, now: Now<'_>, mut step: Step, answer: impl FnOnce(&Value) -> crate::Result<T>) -> Outcome<T> {
        let Now::Clock { mono_ms, wall_us } = now else { panic!("this engine has a clock") };
        let verb = String::from_utf8(step.args[0].clone()).unwrap();
        step.args[2].splice(..0, format!("{mono_ms} {wall_us} ").into_bytes());
        let value = pollster::block_on(self.link.steps(vec![step])).unwrap().pop().unwrap().unwrap();
        let mut parts = Parts::of(&value).unwrap();
        let answer = answer(parts.next().unwrap()).unwrap();
        let told = Parts::of(parts.next().unwrap()).unwrap().rest().map(told).collect();
        let mut short = self.way.short.get();
        if let Some(at) = ["enter", "beat", "leave"].iter().position(|name| *name == verb) {
            short[at] += parts.int::<usize>().unwrap();
        }
        self.way.short.set(short);
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
            let members = u64::from(self.way.in_cluster) + holders - u64::from(alone.is_some()) + queued;
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
    let (link, client) = link();
    let way = Way { in_cluster, ..Way::default() };
    let replayed = replay_all(|| Hand::new(&link, &client, &way));
    println!("redis vectors: {} histories, {} events", replayed.histories, replayed.events);
    way.tell(replayed.events);
    assert_eq!(replayed, Replayed { histories: 300, events: 15_000 });
}

#[test]
fn the_script_replays_every_recorded_history() {
    replays(false);
}

#[test]
fn the_script_replays_every_recorded_history_as_in_a_cluster() {
    replays(true);
}

/// The script beside the ledger, one key after the other: the same answers and words, and the same is kept.
struct Beside<'c> {
    hand: Hand<'c>,
    book: Book,
    /// Even multiples of 4, the spans below leave other remainders: no two tickets are due at one instant.
    ms: u64,
}

impl Beside<'_> {
    fn new<'c>(link: &'c Link, client: &::redis::Client, way: &'c Way) -> Beside<'c> {
        Beside { hand: Hand::new(link, client, way), book: Book::default(), ms: 4_000_000 }
    }

    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        script: impl FnOnce(&mut Hand<'_>, Now<'_>) -> Outcome<T>,
        ledger: impl FnOnce(&mut Book, Now<'_>) -> Result<Outcome<T>, std::convert::Infallible>,
    ) {
        let now = Now::Clock { mono_ms: self.ms, wall_us: self.ms * 1_000 };
        let (ours, Ok(theirs)) = (script(&mut self.hand, now), ledger(&mut self.book, now));
        assert_eq!(ours, theirs, "{what} at {}", self.ms);
        assert_eq!(used(self.hand.book()), used(self.book.clone()), "after {what} at {}", self.ms);
    }

    fn enter(&mut self, request: &Enter) {
        self.both(&format!("{request:?}"), |hand, now| hand.enter(now, request), |book, now| ledger::enter(book, now, request));
    }

    fn beat(&mut self, request: &Beat) {
        self.both(&format!("{request:?}"), |hand, now| hand.beat(now, request), |book, now| ledger::beat(book, now, request));
    }

    fn leave(&mut self, request: &Leave) {
        self.both(&format!("{request:?}"), |hand, now| hand.leave(now, request), |book, now| ledger::leave(book, now, request));
    }
}

/// Of a key that nobody uses nothing is due, whatever the bound says.
fn used(mut book: Book) -> Book {
    if book.header().is_idle() {
        Rows::header(&mut book).next_due_ms = u64::MAX;
    }
    book
}

fn number(number: u64) -> Token {
    Token::from_bytes((u128::from(number) + 1).to_be_bytes())
}

/// With the rarest in the way: the histories, which are of crowds, seldom come to what a key without any comes to.
#[test]
fn few_who_seldom_meet_find_what_the_ledger_says() {
    let (link, client) = link();
    let (seed, way) = (random::seed(), Way::default());
    println!("HEIRLOCK_SEED={seed}");
    let (histories, steps) = (60, 60);
    for history in 0..histories {
        let mut random = Random::new(seed, history);
        let mut beside = Beside::new(&link, &client, &way);
        // The last numbers sent.
        let mut sent: Vec<u64> = Vec::new();
        for _ in 0..steps {
            beside.ms += 4 * if random.chance(12) { random.within(1, 6_000) } else { random.within(1, 200) };
            // Mostly of who came last.
            let at = if random.chance(80) { sent.len().saturating_sub(1) } else { random.index(sent.len().max(1)) };
            let is_known = at < sent.len();
            let token = number(at as u64);
            let is_newer = random.chance(90);
            match random.within(0, 100) {
                0..40 if is_known => {
                    sent[at] += u64::from(is_newer);
                    beside.beat(&Beat { token, seq: sent[at], priority: random.pick(&[0, 0, 0, 5, -5]), blocked: None });
                }
                40..70 if is_known => beside.leave(&Leave { token, settled: random.chance(80) }),
                70..72 => beside.both("look", |hand, now| hand.look(now), ledger::look),
                72..75 => {
                    let request = Evict { fence: None, force: random.chance(50) };
                    beside.both("evict", |hand, now| hand.evict(now, &request), |book, now| ledger::evict(book, now, &request));
                }
                _ => {
                    let at = if is_known && random.chance(20) { at } else { sent.len() };
                    if at == sent.len() {
                        sent.push(0);
                    }
                    sent[at] += 1;
                    let mut terms = lease::Terms { queue_life: 9_001, ..lease::Terms::new(12_000) };
                    if random.chance(15) {
                        terms.max_hold = Some(8_002);
                    }
                    if random.chance(10) {
                        terms.lock_delay = Some(1_003);
                        terms.hold_at_least = Some(903);
                    }
                    beside.enter(&Enter {
                        token: number(at as u64),
                        session: SessionId(random.within(1, 4)),
                        seq: sent[at],
                        priority: random.pick(&[0, 0, 0, 5, -5]),
                        mode: if random.chance(90) { lease::Mode::Exclusive } else { lease::Mode::Shared },
                        terms,
                        may_queue: random.chance(80),
                        owner: std::sync::Arc::default(),
                    });
                }
            }
        }
    }
    way.tell(usize::try_from(histories).unwrap() * steps);
    let [enter, beat, leave] = way.short.get();
    assert!(enter > 100 && beat > 100 && leave > 100, "the short way is what is looked at");
}

/// One after the other, until there are more tombstones than are kept, of both kinds.
#[test]
fn of_many_tombstones_those_stay_that_the_ledger_keeps() {
    let (link, client) = link();
    let way = Way::default();
    for unsettled_every in [u64::MAX, 7, 2] {
        let mut beside = Beside::new(&link, &client, &way);
        for round in 0..150 {
            let (token, owner) = (number(round), std::sync::Arc::default());
            let (session, terms) = (SessionId(1), lease::Terms::new(30_000));
            let mode = lease::Mode::Exclusive;
            beside.ms += 4;
            beside.enter(&Enter { token, session, seq: 1, priority: 0, mode, terms, may_queue: true, owner });
            beside.ms += 4;
            beside.leave(&Leave { token, settled: round % unsettled_every != 1 });
        }
        assert_eq!(beside.book.header().graves, ledger::MAX_TOMBSTONES);
    }
    way.tell(900);
    let [enter, _, leave] = way.short.get();
    assert!(enter > 400 && leave > 300, "the short way is what is looked at");
}

/// The server's clock is set back: nobody holds for longer than from then on.
#[test]
fn case_s15_the_servers_clock_goes_back() {
    let (link, client) = link();
    let way = Way::default();
    let mut hand = Hand::new(&link, &client, &way);
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
