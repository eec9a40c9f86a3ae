//! The rows in the file replay the recorded histories of an independent oracle.

use super::Hand;
use crate::lease::ledger::Now;
use crate::lease::{Answer, Beat, Book, Enter, Evict, Leave, Left, Outcome};

use crate::store::ledger_vectors::{Replayed, Subject, replay_all};

impl Subject for Hand {
    fn enter(&mut self, now: Now<'_>, request: &Enter) -> Outcome<Answer> {
        Hand::enter(self, now, request)
    }

    fn beat(&mut self, now: Now<'_>, request: &Beat) -> Outcome<Answer> {
        Hand::beat(self, now, request)
    }

    fn leave(&mut self, now: Now<'_>, request: &Leave) -> Outcome<Left> {
        Hand::leave(self, now, request)
    }

    fn evict(&mut self, now: Now<'_>, request: &Evict) -> Outcome<u64> {
        Hand::evict(self, now, request)
    }

    fn look(&mut self, now: Now<'_>) -> Outcome<()> {
        Hand::look(self, now)
    }

    fn book(&mut self) -> Book {
        Hand::book(self)
    }
}

#[test]
fn the_file_replays_every_recorded_history() {
    let replayed = replay_all(Hand::new);
    println!("sqlite vectors: {} histories, {} events", replayed.histories, replayed.events);
    assert_eq!(replayed, Replayed { histories: 300, events: 15_000 });
}
