//! Random histories: the store against the ledger, step by step, through nothing but the [`Store`] trait.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use super::Factory;
use super::chance::Chance;
use super::tools::open;
use crate::clock::wall_micros;
use crate::lease::ledger::{self, NEAR_LOOK_MS, Now};
use crate::lease::{
    Answer, Beat, BlockedOn, Book, Enter, Evict, Holding, Key, KeyView, Leave, MAX_QUEUE_LIFE, Mode, Outcome, Owner, SessionId, Store,
    Terms,
};

const HISTORIES: usize = 30;
const STEPS: usize = 60;
const KEYS: usize = 3;
/// Longer than any history lasts: nothing expires, so that the store's own time does not matter.
const AN_HOUR_MS: u64 = 3_600_000;

/// Random requests on a few keys, each sent to the store and to a [`Book`] beside it: the answers must be the same, and so must what operators see.
///
/// Nothing expires meanwhile (that would need a hand on the store's clock). Fences are compared by their order, and times by their bounds. A
/// history has fewer ends per key than tombstones are kept.
pub fn random_histories_agree_with_the_ledger(factory: &dyn Factory) {
    let mut chance = Chance::of("histories");
    let store = open(factory);
    for number in 0..HISTORIES {
        History::new(&*store, number, chance.fork()).play();
    }
}

/// One ticket, as whoever sends requests for it knows it.
struct Player {
    key: usize,
    enter: Enter,
    seq: u64,
}

struct History<'s> {
    store: &'s dyn Store,
    chance: Chance,
    since: Instant,
    keys: Vec<Key>,
    books: Vec<Book>,
    fences: Vec<Fences>,
    players: Vec<Player>,
    /// What was done, told when something is wrong.
    told: Vec<String>,
}

impl<'s> History<'s> {
    fn new(store: &'s dyn Store, number: usize, chance: Chance) -> Self {
        History {
            store,
            chance,
            since: Instant::now(),
            keys: (0..KEYS).map(|key| super::tools::key(&format!("history {number}/{key}"))).collect(),
            books: vec![Book::default(); KEYS],
            fences: vec![Fences::default(); KEYS],
            players: Vec::new(),
            told: Vec::new(),
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            let key = match self.chance.below(100) {
                0..40 => self.enter_anew(),
                40..50 => self.enter_again(),
                50..70 => self.beat(),
                70..92 => self.leave(),
                92..97 => self.evict(),
                _ => self.chance.below(KEYS),
            };
            self.compare_views(key);
        }
        // All that is left goes, so that the next history meets an empty store; a key may rest.
        while let Some(player) = self.players.pop() {
            self.leave_as(&player, true);
            self.compare_views(player.key);
        }
    }

    /// The instant for the books: it passes as it does for the store.
    fn now(&self) -> Now<'static> {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).expect("a short history");
        assert!(elapsed < MAX_QUEUE_LIFE, "this machine is too slow for a history of {STEPS} steps");
        Now::Clock { mono_ms: 1 + elapsed, wall_us: wall_micros() }
    }

    fn on_book<T>(&mut self, key: usize, verb: impl FnOnce(&mut Book, Now<'_>) -> Result<Outcome<T>, Infallible>) -> T {
        let now = self.now();
        let Ok(outcome) = verb(&mut self.books[key], now);
        outcome.answer
    }

    // What is done.

    fn enter_anew(&mut self) -> usize {
        let chance = &mut self.chance;
        let key = chance.below(KEYS);
        // The first key has slots, the others readers and writers; now and then somebody asks in the wrong way.
        let mode = match (key, chance.below(20)) {
            (0, 0) => Mode::Exclusive,
            (0, 1) => Mode::Slot(2),
            (0, _) | (_, 0) => Mode::Slot(3),
            (_, 1..8) => Mode::Exclusive,
            _ => Mode::Shared,
        };
        let hold_at_least = chance.percent(5).then_some(AN_HOUR_MS);
        let max_hold = chance.percent(10).then_some(AN_HOUR_MS * 2);
        let owner = Owner { name: format!("ticket {}", self.told.len()), host: "history".to_owned(), ..Owner::default() };
        let enter = Enter {
            token: chance.token(),
            session: SessionId(chance.next()),
            seq: 1 + chance.next() % 3,
            priority: *chance.pick(&[i32::MIN, -1, 0, 0, 1, i32::MAX]),
            mode,
            terms: Terms { max_hold, hold_at_least, ..Terms::new(AN_HOUR_MS) },
            may_queue: chance.percent(80),
            owner: Arc::new(owner),
        };
        self.players.push(Player { key, seq: enter.seq, enter: enter.clone() });
        self.enter(key, &enter);
        key
    }

    /// A copy of an old `enter`, or a new one for the same ticket.
    fn enter_again(&mut self) -> usize {
        let Some(at) = self.any_player() else { return 0 };
        let fresh = self.chance.percent(50);
        let player = &mut self.players[at];
        let mut enter = player.enter.clone();
        if fresh {
            player.seq += 1;
            enter.seq = player.seq;
        }
        let key = player.key;
        self.enter(key, &enter);
        key
    }

    fn enter(&mut self, key: usize, enter: &Enter) {
        self.told.push(format!("enter {key}: {enter:?}"));
        let right = self.on_book(key, |book, now| ledger::enter(book, now, enter));
        let answer = pollster::block_on(self.store.enter(&self.keys[key], enter.clone()));
        self.compare_answers(key, answer.as_ref(), right);
    }

    /// Beats of a few tickets at once, some of them old.
    fn beat(&mut self) -> usize {
        let mut beats = Vec::new();
        for _ in 0..=self.chance.below(4) {
            let Some(at) = self.any_player() else { return 0 };
            let (fresh, priority) = (self.chance.percent(80), *self.chance.pick(&[-1, 0, 1]));
            let blocked = self.chance.percent(20).then(|| BlockedOn { wait: self.chance.next() >> 1, lock: "a lock".to_owned() });
            let player = &mut self.players[at];
            player.seq += u64::from(fresh);
            beats.push((player.key, Beat { token: player.enter.token, seq: player.seq, priority, blocked }));
        }
        self.told.push(format!("beat {beats:?}"));
        let right: Vec<Answer> = beats.iter().map(|(key, beat)| self.on_book(*key, |book, now| ledger::beat(book, now, beat))).collect();
        let requests = beats.iter().map(|(key, beat)| (self.keys[*key].clone(), beat.clone())).collect();
        let answers = pollster::block_on(self.store.beat(requests)).unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        assert_eq!(answers.len(), beats.len());
        for (((key, _), answer), right) in beats.iter().zip(&answers).zip(right) {
            self.compare_answers(*key, answer.as_ref(), right);
        }
        for (key, _) in &beats {
            self.compare_views(*key);
        }
        beats[0].0
    }

    fn leave(&mut self) -> usize {
        let Some(at) = self.any_player() else { return 0 };
        let settled = self.chance.percent(50);
        // Some stay, to leave or to come once more.
        let (key, player) = if self.chance.percent(70) {
            (self.players[at].key, self.players.swap_remove(at))
        } else {
            (self.players[at].key, self.copy(at))
        };
        self.leave_as(&player, settled);
        key
    }

    fn copy(&self, at: usize) -> Player {
        let Player { key, ref enter, seq } = self.players[at];
        Player { key, enter: enter.clone(), seq }
    }

    fn leave_as(&mut self, player: &Player, settled: bool) {
        let leave = Leave { token: player.enter.token, settled };
        self.told.push(format!("leave {}: {leave:?} of {}", player.key, player.enter.owner.name));
        let right = self.on_book(player.key, |book, now| ledger::leave(book, now, &leave));
        let left = pollster::block_on(self.store.leave(&self.keys[player.key], leave));
        let left = left.unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        assert_eq!(left, right, "{}", self.story());
    }

    fn evict(&mut self) -> usize {
        let key = self.chance.below(KEYS);
        let force = self.chance.percent(50);
        let fences: Vec<u64> = self.books[key].tickets().filter(|ticket| ticket.holds()).map(|ticket| ticket.fence).collect();
        // All of them, one of them, or one that is not there.
        let (ours, theirs) = match self.chance.below(3) {
            0 => (None, None),
            1 if !fences.is_empty() => {
                let fence = *self.chance.pick(&fences);
                (Some(fence), Some(self.fences[key].theirs(fence).unwrap_or_else(|| panic!("an unseen fence\n{}", self.story()))))
            }
            _ => (Some(1), Some(1)),
        };
        self.told.push(format!("evict {key}: fence {ours:?}, force {force}"));
        let right = self.on_book(key, |book, now| ledger::evict(book, now, &Evict { fence: ours, force }));
        let met = pollster::block_on(self.store.evict(&self.keys[key], Evict { fence: theirs, force }));
        assert_eq!(met.ok(), Some(right), "{}", self.story());
        key
    }

    fn any_player(&mut self) -> Option<usize> {
        (!self.players.is_empty()).then(|| self.chance.below(self.players.len()))
    }

    // What is compared.

    fn compare_answers(&mut self, key: usize, answer: Result<&Answer, &crate::Error>, right: Answer) {
        match (answer, right) {
            (Ok(Answer::Held(theirs)), Answer::Held(ours)) => {
                let same = Holding { fence: ours.fence, expires_in: ours.expires_in, ..*theirs } == ours;
                let alive = theirs.expires_in <= AN_HOUR_MS && theirs.expires_in > 0;
                assert!(same && alive, "{theirs:?} should be {ours:?}\n{}", self.story());
                self.compare_fences(key, theirs.fence, ours.fence);
            }
            (Ok(&Answer::Queued { next_look }), Answer::Queued { next_look: ours }) => {
                let most = if ours <= NEAR_LOOK_MS { NEAR_LOOK_MS } else { MAX_QUEUE_LIFE / 3 };
                assert!((1..=most).contains(&next_look), "to look in {next_look} ms, not {ours}\n{}", self.story());
            }
            (Ok(answer), right) if *answer == right => {}
            (answer, right) => panic!("{answer:?} should be {right:?}\n{}", self.story()),
        }
    }

    /// What operators see must be what the book has.
    fn compare_views(&mut self, key: usize) {
        let view = pollster::block_on(self.store.inspect(&self.keys[key]));
        let view = view.unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        self.on_book(key, ledger::look);
        let Now::Clock { mono_ms, .. } = self.now() else { return };
        let book = &self.books[key];
        let rest = book.header().rests.iter().filter(|rest| rest.slot.is_none()).map(|rest| rest.until_ms).max();
        let right = KeyView::of(self.keys[key].clone(), book.header().last_fence, rest, book.tickets().cloned().collect(), mono_ms);
        for (theirs, ours) in sorted(&view).into_iter().zip(sorted(&right)) {
            self.compare_fences(key, theirs, ours);
        }
        if right.last_fence != 0 {
            self.compare_fences(key, view.last_fence, right.last_fence);
        }
        let (theirs, ours) = (timeless(&view), timeless(&right));
        assert_eq!(theirs, ours, "what is seen of {:?}\n{}", view.key, self.story());
    }

    fn compare_fences(&mut self, key: usize, theirs: u64, ours: u64) {
        let pairs = self.fences[key].pair(theirs, ours);
        assert!(pairs, "fence {theirs} should be one like {ours} among {:?}\n{}", self.fences[key], self.story());
    }

    fn story(&self) -> String {
        self.told.join("\n")
    }
}

/// The holders' fences, in the order of their owners' names.
fn sorted(view: &KeyView) -> Vec<u64> {
    let mut holders: Vec<_> = view.holders.iter().map(|holder| (&holder.owner.name, holder.fence)).collect();
    holders.sort_unstable();
    holders.into_iter().map(|(_, fence)| fence).collect()
}

/// A view without what time changes, and without the order of grants of the same millisecond.
fn timeless(view: &KeyView) -> KeyView {
    let mut view = view.clone();
    for holder in &mut view.holders {
        (holder.fence, holder.since_ms, holder.expires_in_ms) = (0, 0, 0);
    }
    view.holders.sort_unstable_by(|a, b| a.owner.name.cmp(&b.owner.name));
    for waiter in &mut view.queue {
        waiter.waiting_ms = 0;
    }
    view.last_fence = 0;
    view.resting_ms = view.resting_ms.map(|_| 1);
    view
}

/// The store's fences of a key by the book's: equal where those are equal, and growing as they grow.
#[derive(Clone, Debug, Default)]
struct Fences(BTreeMap<u64, u64>);

impl Fences {
    /// Whether the two can stand for each other.
    fn pair(&mut self, theirs: u64, ours: u64) -> bool {
        self.0.range(..ours).all(|(_, known)| *known < theirs)
            && self.0.range(ours + 1..).all(|(_, known)| *known > theirs)
            && *self.0.entry(ours).or_insert(theirs) == theirs
    }

    fn theirs(&self, ours: u64) -> Option<u64> {
        self.0.get(&ours).copied()
    }
}
