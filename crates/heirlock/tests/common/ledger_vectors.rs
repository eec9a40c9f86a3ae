//! Replays the recorded histories of one key (`vectors/ledger-vectors.jsonl.gz`) against anything that keeps such a key.
//!
//! The including module provides `lease`: this file serves integration tests and, by `#[path]`, unit tests of a store alike.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::lease::ledger::Now;
use super::lease::{
    Answer, Beat, Book, Enter, Evict, Leave, Left, MAX_QUEUE_LIFE, Mode, Outcome, Owner, SessionId, State, Terms, Ticket, Token, Told, Was,
};

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use serde::Deserialize;

/// The file of histories; its place does not depend on which file includes this one.
const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/ledger-vectors.jsonl.gz");

/// One key of whatever is tested. It starts with no ticket and fence 0.
pub(crate) trait Subject {
    fn enter(&mut self, now: Now<'_>, request: &Enter) -> Outcome<Answer>;
    fn beat(&mut self, now: Now<'_>, request: &Beat) -> Outcome<Answer>;
    fn leave(&mut self, now: Now<'_>, request: &Leave) -> Outcome<Left>;
    fn evict(&mut self, now: Now<'_>, request: &Evict) -> Outcome<u64>;
    fn look(&mut self, now: Now<'_>) -> Outcome<()>;
    /// The whole state as it is kept, without another step.
    fn book(&mut self) -> Book;
}

/// How much was replayed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) histories: usize,
    pub(crate) events: usize,
}

/// Replays every history, each on a new subject.
///
/// # Panics
/// At the first event whose answer, notices or state differ from what is recorded.
pub(crate) fn replay_all<S: Subject>(mut fresh: impl FnMut() -> S) -> Replayed {
    let mut replayed = Replayed::default();
    for history in histories() {
        let mut subject = fresh();
        let mut before = None;
        for (index, event) in history.events.iter().enumerate() {
            let actual = Seen::of(&mut subject, event);
            let expected = Seen { answer: event.answer.clone(), notices: event.notices.clone(), after: event.after.clone() }.sorted();
            assert!(
                actual == expected,
                "history {} differs at event {index}\nevent: {event:#?}\nbefore: {before:#?}\nexpected: {expected:#?}\nactual: {actual:#?}",
                history.seed
            );
            before = Some(&event.after);
        }
        replayed.histories += 1;
        replayed.events += history.events.len();
    }
    replayed
}

fn histories() -> impl Iterator<Item = History> {
    let file = std::fs::File::open(VECTORS).expect("the histories are beside the tests");
    BufReader::new(flate2::read::GzDecoder::new(file)).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

/// The histories call the token of these bits `t<n>`; the complement only keeps the bits from being mostly zero.
fn token(name: &str) -> Token {
    let number: u64 = name.strip_prefix('t').and_then(|digits| digits.parse().ok()).expect("a token's name is t and a number");
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&(!number).to_be_bytes());
    Token::from_bytes(bytes)
}

fn name(token: Token) -> String {
    let (number, _) = token.as_bytes().split_at(8);
    format!("t{}", u64::from_be_bytes(number.try_into().unwrap()))
}

#[derive(Deserialize)]
struct History {
    seed: String,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(flatten)]
    verb: Verb,
    mono_ms: u64,
    wall_us: u64,
    answer: Reply,
    notices: Vec<(String, String)>,
    after: After,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Verb {
    Enter(EnterFields),
    Beat {
        token: String,
        seq: u64,
        prio: i32,
    },
    Leave {
        token: String,
    },
    Evict {
        #[serde(default)]
        fence: Option<u64>,
        force: bool,
    },
    Inspect,
    Look,
}

#[derive(Debug, Deserialize)]
struct EnterFields {
    token: String,
    seq: u64,
    owner: String,
    prio: i32,
    mode: String,
    #[serde(default)]
    slots: Option<u32>,
    ttl: u64,
    queue_life: u64,
    may_queue: bool,
    #[serde(default)]
    max_hold: Option<u64>,
    #[serde(default)]
    lock_delay: Option<u64>,
    #[serde(default)]
    hold_at_least: Option<u64>,
}

impl EnterFields {
    fn request(&self) -> Enter {
        assert!(self.queue_life <= MAX_QUEUE_LIFE, "a history asks for what no caller can");
        Enter {
            token: token(&self.token),
            // One session a token, so that a notice to a wrong session shows.
            session: session(token(&self.token)),
            seq: self.seq,
            priority: self.prio,
            mode: match self.mode.as_str() {
                "x" => Mode::Exclusive,
                "s" => Mode::Shared,
                "slot" => Mode::Slot(self.slots.expect("slots have a number")),
                other => panic!("no such mode: {other}"),
            },
            terms: Terms {
                ttl: self.ttl,
                queue_life: self.queue_life,
                max_hold: self.max_hold,
                lock_delay: self.lock_delay,
                hold_at_least: self.hold_at_least,
            },
            may_queue: self.may_queue,
            owner: Arc::new(Owner { name: self.owner.clone(), ..Owner::default() }),
        }
    }
}

fn session(token: Token) -> SessionId {
    let (number, _) = token.as_bytes().split_at(8);
    SessionId(u64::from_be_bytes(number.try_into().unwrap()) + 1_000)
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "r", rename_all = "snake_case")]
enum Reply {
    Held {
        fence: u64,
        #[serde(default)]
        slot: Option<u32>,
        expires_in: u64,
        effective: i32,
        revoked: bool,
    },
    Queued {
        next_look: u64,
    },
    Busy,
    Gone {
        reason: String,
    },
    Mismatch,
    Left {
        was: String,
    },
    Evicted,
    None,
    Seen {
        positions: BTreeMap<String, usize>,
    },
    Looked,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        match answer {
            Answer::Held(holding) => Reply::Held {
                fence: holding.fence,
                slot: holding.slot,
                expires_in: holding.expires_in,
                effective: holding.effective,
                revoked: holding.revoked,
            },
            Answer::Queued { next_look } => Reply::Queued { next_look },
            Answer::Busy => Reply::Busy,
            Answer::Gone(reason) => Reply::Gone { reason: reason.word().to_owned() },
            Answer::Mismatch { .. } => Reply::Mismatch,
        }
    }
}

/// What can be seen of a step.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    answer: Reply,
    notices: Vec<(String, String)>,
    after: After,
}

impl Seen {
    fn of(subject: &mut impl Subject, event: &Event) -> Seen {
        let now = Now::Clock { mono_ms: event.mono_ms, wall_us: event.wall_us };
        let (answer, told) = match &event.verb {
            Verb::Enter(fields) => parts(subject.enter(now, &fields.request())),
            Verb::Beat { token: name, seq, prio } => {
                parts(subject.beat(now, &Beat { token: token(name), seq: *seq, priority: *prio, blocked: None }))
            }
            Verb::Leave { token: name } => {
                let outcome = subject.leave(now, &Leave { token: token(name), settled: false });
                let was = match outcome.answer.was {
                    Was::Held => "held",
                    Was::Granted => "granted",
                    Was::Queued => "queued",
                    Was::Gone => "gone",
                };
                (Reply::Left { was: was.to_owned() }, outcome.told)
            }
            Verb::Evict { fence, force } => {
                let outcome = subject.evict(now, &Evict { fence: *fence, force: *force });
                (if outcome.answer > 0 { Reply::Evicted } else { Reply::None }, outcome.told)
            }
            Verb::Look => (Reply::Looked, subject.look(now).told),
            Verb::Inspect => {
                let told = subject.look(now).told;
                let positions = subject.book().waiters().zip(1..).map(|(ticket, place)| (name(ticket.token), place)).collect();
                (Reply::Seen { positions }, told)
            }
        };
        for notice in &told {
            assert_eq!(notice.session, session(notice.token), "a notice goes to the session of its ticket");
        }
        let notices = told.iter().map(|notice: &Told| (notice.news.word().to_owned(), name(notice.token))).collect();
        Seen { answer, notices, after: After::of(&subject.book()) }.sorted()
    }

    /// The order of notices says nothing.
    fn sorted(mut self) -> Seen {
        self.notices.sort();
        self
    }
}

fn parts(outcome: Outcome<Answer>) -> (Reply, Vec<Told>) {
    (outcome.answer.into(), outcome.told)
}

/// The whole state, as the histories record it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct After {
    holders: BTreeMap<String, Holder>,
    queue: Vec<(String, u64)>,
    last_fence: u64,
    resting_until: Option<u64>,
    tombstones: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Holder {
    state: String,
    fence: u64,
    #[serde(default)]
    slot: Option<u32>,
    expires_ms: u64,
    effective: i32,
    revoked: bool,
}

impl After {
    fn of(book: &Book) -> After {
        let inherited = book.waiters().map(|ticket| ticket.priority).max().unwrap_or(i32::MIN);
        let holder = |ticket: &Ticket| Holder {
            state: if ticket.state == State::Held { "held" } else { "granted" }.to_owned(),
            fence: ticket.fence,
            slot: ticket.mode.slots().map(|_| ticket.slot),
            expires_ms: ticket.due_ms,
            effective: ticket.priority.max(inherited),
            revoked: ticket.revoked,
        };
        After {
            holders: book.tickets().filter(|ticket| ticket.holds()).map(|ticket| (name(ticket.token), holder(ticket))).collect(),
            queue: book.waiters().map(|ticket| (name(ticket.token), ticket.due_ms)).collect(),
            last_fence: book.header().last_fence,
            resting_until: book.header().rests.iter().map(|rest| rest.until_ms).max(),
            tombstones: book.tombstones().map(|grave| (name(grave.token), grave.reason.word().to_owned())).collect(),
        }
    }
}
