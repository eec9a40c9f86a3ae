//! The ledger on its rows in memory replays the recorded histories.

use std::convert::Infallible;

use heirlock::lease;
use heirlock::lease::ledger::{self, Now};
use heirlock::lease::{Answer, Beat, Book, Enter, Evict, Leave, Left, Outcome};

#[path = "../common/ledger_vectors.rs"]
mod ledger_vectors;

use ledger_vectors::{Replayed, Subject, replay_all};

fn sure<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

impl Subject for Book {
    fn enter(&mut self, now: Now<'_>, request: &Enter) -> Outcome<Answer> {
        sure(ledger::enter(self, now, request))
    }

    fn beat(&mut self, now: Now<'_>, request: &Beat) -> Outcome<Answer> {
        sure(ledger::beat(self, now, request))
    }

    fn leave(&mut self, now: Now<'_>, request: &Leave) -> Outcome<Left> {
        sure(ledger::leave(self, now, request))
    }

    fn evict(&mut self, now: Now<'_>, request: &Evict) -> Outcome<u64> {
        sure(ledger::evict(self, now, request))
    }

    fn look(&mut self, now: Now<'_>) -> Outcome<()> {
        sure(ledger::look(self, now))
    }

    fn book(&mut self) -> Book {
        self.clone()
    }
}

#[test]
fn the_ledger_replays_every_recorded_history() {
    let replayed = replay_all(Book::default);
    println!("ledger vectors: {} histories, {} events", replayed.histories, replayed.events);
    assert_eq!(replayed, Replayed { histories: 300, events: 15_000 });
}
