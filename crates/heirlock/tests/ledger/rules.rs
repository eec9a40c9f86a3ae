//! The rules of the ledger, each by its name and in as few requests as show it.

use heirlock::lease::ledger::{self, MAX_TOMBSTONES, Now, TOMBSTONE_MS};
use heirlock::lease::{Answer, Beat, Book, Enter, Evict, Holding, Leave, Mode, News, Outcome, Reason, Terms, Was};

use crate::common::ledger_requests::{at, entering, number, sure, token};

/// One key and its time.
#[derive(Default)]
struct Key {
    book: Book,
    ms: u64,
    told: Vec<(u64, News)>,
}

impl Key {
    fn keep<T>(&mut self, outcome: Outcome<T>) -> T {
        self.told = outcome.told.iter().map(|told| (number(told.token), told.news)).collect();
        outcome.answer
    }

    fn enter(&mut self, request: &Enter) -> Answer {
        let outcome = sure(ledger::enter(&mut self.book, at(self.ms), request));
        self.keep(outcome)
    }

    fn beat(&mut self, ticket: u64, seq: u64) -> Answer {
        let request = Beat { token: token(ticket), seq, priority: 0, blocked: None };
        let outcome = sure(ledger::beat(&mut self.book, at(self.ms), &request));
        self.keep(outcome)
    }

    fn leave(&mut self, ticket: u64) -> Was {
        self.leave_settled(ticket, false)
    }

    fn leave_settled(&mut self, ticket: u64, settled: bool) -> Was {
        let outcome = sure(ledger::leave(&mut self.book, at(self.ms), &Leave { token: token(ticket), settled }));
        self.keep(outcome).was
    }

    fn evict(&mut self, force: bool) -> u64 {
        let outcome = sure(ledger::evict(&mut self.book, at(self.ms), &Evict { fence: None, force }));
        self.keep(outcome)
    }

    /// What the next newcomer who may not wait is answered; it leaves again.
    fn probe(&mut self, ticket: u64, mode: Mode) -> Answer {
        let answer = self.enter(&Enter { mode, may_queue: false, ..entering(ticket) });
        self.leave(ticket);
        answer
    }

    fn buried(&self) -> Vec<u64> {
        self.book.tombstones().map(|grave| number(grave.token)).collect()
    }
}

fn held(answer: Answer) -> Holding {
    match answer {
        Answer::Held(holding) => holding,
        other => panic!("not held: {other:?}"),
    }
}

fn queued(answer: Answer) -> u64 {
    match answer {
        Answer::Queued { next_look } => next_look,
        other => panic!("not queued: {other:?}"),
    }
}

fn terms(change: impl FnOnce(&mut Terms)) -> Terms {
    let mut terms = entering(0).terms;
    change(&mut terms);
    terms
}

#[test]
fn a_late_enter_after_a_leave_of_an_unknown_ticket_is_gone() {
    let mut key = Key::default();
    assert_eq!(key.leave(1), Was::Gone);
    assert_eq!(key.enter(&entering(1)), Answer::Gone(Reason::Withdrawn));
    key.ms = TOMBSTONE_MS - 1;
    assert_eq!(key.enter(&entering(1)), Answer::Gone(Reason::Withdrawn));
    key.ms = TOMBSTONE_MS;
    held(key.enter(&entering(1)));
}

#[test]
fn a_beat_of_an_unknown_ticket_leaves_no_trace() {
    let mut key = Key::default();
    assert_eq!(key.beat(1, 1), Answer::Gone(Reason::Unknown));
    assert!(key.book.header().is_idle());
}

#[test]
fn a_repeated_leave_repeats_its_answer() {
    let mut key = Key::default();
    for ticket in 1..=3 {
        key.enter(&entering(ticket));
    }
    for (ticket, was) in [(3, Was::Queued), (1, Was::Held), (2, Was::Granted), (4, Was::Gone)] {
        assert_eq!(key.leave(ticket), was);
        assert_eq!(key.leave(ticket), was);
    }
}

#[test]
fn a_leave_of_what_ended_otherwise_says_gone() {
    let mut key = Key::default();
    key.enter(&entering(1));
    key.ms = 10_000;
    assert_eq!(key.leave(1), Was::Gone);
    assert_eq!(key.beat(1, 2), Answer::Gone(Reason::Expired));
}

#[test]
fn busy_is_an_end() {
    let mut key = Key::default();
    key.enter(&entering(1));
    let refused = Enter { may_queue: false, ..entering(2) };
    assert_eq!(key.enter(&refused), Answer::Busy);
    key.leave(1);
    assert_eq!(key.enter(&Enter { seq: 2, ..refused }), Answer::Busy);
    assert_eq!(key.beat(2, 3), Answer::Gone(Reason::Busy));
}

#[test]
fn who_may_not_queue_is_busy_behind_any_queue() {
    let mut key = Key::default();
    let reader = |ticket| Enter { mode: Mode::Shared, ..entering(ticket) };
    held(key.enter(&reader(1)));
    queued(key.enter(&entering(2)));
    assert_eq!(key.enter(&Enter { may_queue: false, priority: 9, ..reader(3) }), Answer::Busy);
    // Who may queue and precedes the queue passes it.
    held(key.enter(&Enter { priority: 9, ..reader(4) }));
}

#[test]
fn a_mismatch_leaves_nothing() {
    let mut key = Key::default();
    key.enter(&Enter { mode: Mode::Slot(2), ..entering(1) });
    assert_eq!(key.enter(&Enter { mode: Mode::Slot(3), ..entering(2) }), Answer::Mismatch { slots: 2 });
    assert_eq!(key.enter(&entering(2)), Answer::Mismatch { slots: 2 });
    key.leave(1);
    held(key.enter(&entering(2)));
}

#[test]
fn an_older_request_neither_renews_nor_claims() {
    let mut key = Key::default();
    key.enter(&entering(1));
    queued(key.enter(&Enter { seq: 5, ..entering(2) }));
    key.ms = 4_000;
    assert_eq!(held(key.beat(1, 1)).expires_in, 6_000);
    key.leave(1);
    assert_eq!(key.told, [(2, News::Granted)]);
    assert_eq!(queued(key.beat(2, 5)), 1);
    assert_eq!(held(key.beat(2, 6)).expires_in, 10_000);
}

#[test]
fn a_newcomer_never_passes_a_waiter_on_a_key_that_has_just_expired() {
    let mut key = Key::default();
    key.enter(&Enter { terms: Terms::new(1_000), ..entering(1) });
    key.enter(&entering(2));
    key.ms = 1_000;
    queued(key.enter(&Enter { priority: 100, ..entering(3) }));
    assert_eq!(key.told, [(2, News::Granted)]);
}

#[test]
fn a_grant_keeps_its_expiry_until_it_is_claimed() {
    let mut key = Key::default();
    key.enter(&entering(1));
    key.enter(&Enter { terms: Terms { queue_life: 3_000, ..Terms::new(10_000) }, ..entering(2) });
    key.ms = 2_999;
    key.leave(1);
    key.ms = 3_000;
    held(key.enter(&entering(3)));
    assert_eq!(key.beat(2, 2), Answer::Gone(Reason::Expired));
}

#[test]
fn max_hold_counts_from_the_grant_and_caps_every_renewal() {
    let mut key = Key::default();
    let capped = terms(|terms| terms.max_hold = Some(15_000));
    assert_eq!(held(key.enter(&Enter { terms: capped, ..entering(1) })).expires_in, 10_000);
    key.ms = 9_000;
    assert_eq!(held(key.beat(1, 2)).expires_in, 6_000);
    key.ms = 15_000;
    assert_eq!(key.beat(1, 3), Answer::Gone(Reason::MaxHold));
}

#[test]
fn a_claim_after_the_longest_hold_is_gone_and_hands_on() {
    let mut key = Key::default();
    key.enter(&entering(1));
    let capped = terms(|terms| (terms.max_hold, terms.lock_delay) = (Some(100), Some(1_000)));
    queued(key.enter(&Enter { terms: capped, ..entering(2) }));
    queued(key.enter(&entering(3)));
    key.leave(1);
    key.ms = 100;
    assert_eq!(key.beat(2, 2), Answer::Gone(Reason::MaxHold));
    // It never was claimed: nothing rests.
    assert_eq!(key.told, [(3, News::Granted)]);
}

#[test]
fn lock_delay_rests_the_key_from_the_expiry_of_a_claimed_ticket() {
    let mut key = Key::default();
    let delayed = terms(|terms| terms.lock_delay = Some(5_000));
    key.enter(&Enter { terms: delayed, ..entering(1) });
    // Noticed late: it counts from the expiry all the same.
    key.ms = 12_000;
    assert_eq!(key.probe(2, Mode::Exclusive), Answer::Busy);
    assert_eq!(queued(key.enter(&entering(3))), 1_000);
    key.ms = 15_000;
    held(key.beat(3, 2));
}

#[test]
fn a_rest_of_one_slot_leaves_its_siblings_free() {
    let mut key = Key::default();
    let slots = |ticket| Enter { mode: Mode::Slot(2), terms: terms(|terms| terms.hold_at_least = Some(5_000)), ..entering(ticket) };
    assert_eq!(held(key.enter(&slots(1))).slot, Some(0));
    key.leave(1);
    assert_eq!(held(key.enter(&slots(2))).slot, Some(1));
    queued(key.enter(&slots(3)));
    key.ms = 5_000;
    assert_eq!(held(key.beat(3, 2)).slot, Some(0));
    // The whole key is at rest for who wants it whole.
    key.leave(2);
    key.leave(3);
    assert_eq!(key.probe(4, Mode::Exclusive), Answer::Busy);
}

#[test]
fn hold_at_least_counts_from_the_grant_and_only_after_a_release() {
    let mut key = Key::default();
    let lasting = |ticket| Enter { terms: terms(|terms| terms.hold_at_least = Some(5_000)), ..entering(ticket) };
    key.enter(&lasting(1));
    key.enter(&lasting(2));
    key.ms = 6_000;
    // Longer than that after the grant: no rest. A grant that is given back leaves none either.
    key.leave(1);
    assert_eq!(key.leave(2), Was::Granted);
    key.enter(&lasting(3));
    key.ms = 7_000;
    key.leave(3);
    key.ms = 10_999;
    assert_eq!(key.probe(4, Mode::Exclusive), Answer::Busy);
    key.ms = 11_000;
    held(key.probe(5, Mode::Exclusive));
}

#[test]
fn eviction_marks_a_holder_who_is_not_renewed_any_more() {
    let mut key = Key::default();
    key.enter(&entering(1));
    key.ms = 4_000;
    assert_eq!(key.evict(false), 1);
    assert_eq!(key.told, [(1, News::Revoked)]);
    let holding = held(key.beat(1, 2));
    assert!(holding.revoked);
    assert_eq!(holding.expires_in, 6_000);
    assert_eq!(key.probe(2, Mode::Exclusive), Answer::Busy);
    assert_eq!(key.evict(false), 1);
    assert_eq!(key.told, []);
}

#[test]
fn eviction_ends_an_unclaimed_grant_and_force_ends_all_without_a_rest() {
    let mut key = Key::default();
    let resting =
        |ticket| Enter { terms: terms(|terms| (terms.lock_delay, terms.hold_at_least) = (Some(9), Some(9_000))), ..entering(ticket) };
    for ticket in 1..=3 {
        key.enter(&resting(ticket));
    }
    assert_eq!(key.evict(true), 1);
    assert_eq!(key.told, [(1, News::Revoked), (2, News::Granted)]);
    assert_eq!(key.evict(false), 1);
    assert_eq!(key.told, [(2, News::Revoked), (3, News::Granted)]);
    assert_eq!(key.beat(2, 2), Answer::Gone(Reason::Evicted));
    held(key.beat(3, 2));
}

#[test]
fn force_ends_a_rest_and_nothing_else_does() {
    let mut key = Key::default();
    let resting = |ticket| Enter { terms: terms(|terms| terms.hold_at_least = Some(9_000)), ..entering(ticket) };
    let fence = held(key.enter(&resting(1))).fence;
    key.leave(1);
    queued(key.enter(&entering(2)));
    let mut evict = |fence, force| {
        let outcome = sure(ledger::evict(&mut key.book, at(0), &Evict { fence, force }));
        (outcome.answer, outcome.told.len())
    };
    // Not without force, nor by a fence, which is a holder's.
    for (named, force) in [(None, true), (Some(0), false), (Some(fence), true)] {
        assert_eq!(evict(named, force), (0, 0), "{named:?} {force}");
    }
    // Whoever waited is granted, and told.
    assert_eq!(evict(Some(0), true), (1, 1));
    assert!(held(key.beat(2, 2)).fence > fence);
    // Once it is over, that spares who holds now.
    let outcome = sure(ledger::evict(&mut key.book, at(0), &Evict { fence: Some(0), force: true }));
    assert_eq!(outcome.answer, 0);
    assert!(!held(key.beat(2, 3)).revoked);
    // A resting slot, with the one that is held.
    let mut key = Key::default();
    let slots = |ticket| Enter { mode: Mode::Slot(2), ..resting(ticket) };
    held(key.enter(&slots(1)));
    held(key.enter(&slots(2)));
    key.leave(1);
    let outcome = sure(ledger::evict(&mut key.book, at(0), &Evict { fence: Some(0), force: true }));
    assert_eq!(outcome.answer, 1);
    assert_eq!(held(key.enter(&slots(3))).slot, Some(0));
}

#[test]
fn readers_of_one_generation_share_a_fence() {
    let mut key = Key::default();
    let reader = |ticket| Enter { mode: Mode::Shared, ..entering(ticket) };
    let first = held(key.enter(&reader(1))).fence;
    assert_eq!(held(key.enter(&reader(2))).fence, first);
    key.leave(1);
    assert_eq!(held(key.enter(&reader(3))).fence, first);
    key.leave(2);
    key.leave(3);
    assert!(held(key.enter(&reader(4))).fence > first);
}

#[test]
fn fences_follow_the_wall_clock_forward_only() {
    let mut book = Book::default();
    let mut fences = Vec::new();
    for (ticket, wall_us) in [(1, 500), (2, 100), (3, 501), (4, 9_000)] {
        let now = Now::Clock { mono_ms: 0, wall_us };
        fences.push(held(sure(ledger::enter(&mut book, now, &entering(ticket))).answer).fence);
        let _ = sure(ledger::leave(&mut book, now, &Leave { token: token(ticket), settled: true }));
    }
    assert_eq!(fences, [500, 501, 502, 9_000]);
}

#[test]
fn only_the_first_four_of_a_queue_look_every_second() {
    let mut key = Key::default();
    key.enter(&Enter { terms: Terms::new(30_000), ..entering(1) });
    let looks: Vec<u64> = (2..8).map(|ticket| queued(key.enter(&Enter { terms: Terms::new(30_000), ..entering(ticket) }))).collect();
    assert_eq!(looks, [1_000, 1_000, 1_000, 1_000, 5_000, 5_000]);
}

#[test]
fn of_too_many_tombstones_settled_ones_go_first_and_then_the_oldest() {
    let mut key = Key::default();
    // The higher the token the older, so that their order does not help.
    for ticket in 0..MAX_TOMBSTONES {
        key.ms += 1;
        key.leave_settled(1_000 - ticket, ticket == 40);
    }
    assert_eq!(key.book.header().graves, MAX_TOMBSTONES);
    for (newest, first) in [(1, 960), (2, 1_000), (3, 999)] {
        key.ms += 1;
        assert!(key.buried().contains(&first));
        key.leave(newest);
        assert!(!key.buried().contains(&first), "{first} goes first");
        assert_eq!(key.book.header().graves, MAX_TOMBSTONES);
    }
}

#[test]
fn without_instants_too_the_oldest_tombstone_goes_first() {
    let mut book = Book::default();
    let now = Now::Liveness { dead: &[], wall_us: 0 };
    for ticket in 0..MAX_TOMBSTONES + 2 {
        let _ = sure(ledger::leave(&mut book, now, &Leave { token: token(1_000 - ticket), settled: false }));
    }
    let buried: Vec<u64> = book.tombstones().map(|grave| number(grave.token)).collect();
    assert_eq!(buried, (1_000 - MAX_TOMBSTONES - 1..=998).collect::<Vec<_>>());
}

#[test]
fn without_instants_a_ticket_ends_when_it_is_among_the_dead() {
    let mut book = Book::default();
    let now = |dead| Now::Liveness { dead, wall_us: 0 };
    let delayed = terms(|terms| terms.lock_delay = Some(5_000));
    held(sure(ledger::enter(&mut book, now(&[]), &Enter { terms: delayed, ..entering(1) })).answer);
    queued(sure(ledger::enter(&mut book, now(&[]), &entering(2))).answer);
    // Its death begins the rest, whose own key bears the same name: when that dies too, the rest is over.
    let died = [token(1)];
    assert_eq!(sure(ledger::look(&mut book, now(&died))).told, []);
    assert_eq!(book.header().rests.len(), 1);
    let told = sure(ledger::look(&mut book, now(&died))).told;
    assert_eq!(told.iter().map(|told| (number(told.token), told.news)).collect::<Vec<_>>(), [(2, News::Granted)]);
}
