//! Requests to one key as one type, so that histories and models can carry them.

use std::convert::Infallible;
use std::sync::Arc;

use heirlock::lease::ledger::{self, Now};
use heirlock::lease::{Answer, Beat, Book, Enter, Evict, Holding, Leave, Mode, Owner, SessionId, Terms, Token, Told, Was};

/// Anything that may come for a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Enter(Enter),
    Beat(Beat),
    Leave(Leave),
    Evict(Evict),
    Look,
}

/// Any answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Stands(Answer),
    Left(Was),
    Evicted(u64),
    Looked,
}

impl Reply {
    /// What the ticket was told of its hold, if it has one.
    pub(crate) fn holding(&self) -> Option<Holding> {
        match self {
            Reply::Stands(Answer::Held(holding)) => Some(*holding),
            _ => None,
        }
    }
}

impl Request {
    /// Whose request it is.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Request::Enter(enter) => Some(enter.token),
            Request::Beat(beat) => Some(beat.token),
            Request::Leave(leave) => Some(leave.token),
            Request::Evict(_) | Request::Look => None,
        }
    }

    /// Its sequence number, where it has one.
    pub(crate) fn seq(&self) -> Option<u64> {
        match self {
            Request::Enter(enter) => Some(enter.seq),
            Request::Beat(beat) => Some(beat.seq),
            Request::Leave(_) | Request::Evict(_) | Request::Look => None,
        }
    }
}

/// Has the ledger do what is asked.
pub(crate) fn ask(book: &mut Book, now: Now<'_>, request: &Request) -> (Reply, Vec<Told>) {
    match request {
        Request::Enter(enter) => {
            let outcome = sure(ledger::enter(book, now, enter));
            (Reply::Stands(outcome.answer), outcome.told)
        }
        Request::Beat(beat) => {
            let outcome = sure(ledger::beat(book, now, beat));
            (Reply::Stands(outcome.answer), outcome.told)
        }
        Request::Leave(leave) => {
            let outcome = sure(ledger::leave(book, now, leave));
            (Reply::Left(outcome.answer.was), outcome.told)
        }
        Request::Evict(evict) => {
            let outcome = sure(ledger::evict(book, now, evict));
            (Reply::Evicted(outcome.answer), outcome.told)
        }
        Request::Look => (Reply::Looked, sure(ledger::look(book, now)).told),
    }
}

/// Rows in memory cannot fail.
pub(crate) fn sure<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

/// The ticket of this number.
pub(crate) fn token(number: u64) -> Token {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Token::from_bytes(bytes)
}

/// The number of this ticket: tokens hide their bits from `Debug`.
pub(crate) fn number(token: Token) -> u64 {
    token.as_bytes()[8..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A session for each ticket, so that a notice to a wrong one shows.
pub(crate) fn session(token: Token) -> SessionId {
    SessionId(number(token) + 1_000)
}

/// The instant; fences come from the sequence alone.
pub(crate) fn at(mono_ms: u64) -> Now<'static> {
    Now::Clock { mono_ms, wall_us: 0 }
}

/// An exclusive `enter` of a ticket that may queue; tests change what matters to them.
pub(crate) fn entering(number: u64) -> Enter {
    let token = token(number);
    Enter {
        token,
        session: session(token),
        seq: 1,
        priority: 0,
        mode: Mode::Exclusive,
        terms: Terms::new(10_000),
        may_queue: true,
        owner: Arc::new(Owner::default()),
    }
}
