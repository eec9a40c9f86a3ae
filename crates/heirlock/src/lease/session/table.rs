//! The table of a session's tickets: by token, by key, by worker, and by when the keeper must look at them.

use std::collections::{BTreeSet, HashMap};
use std::task::Waker;

use crate::clock::Moment;
use crate::lease::entry::{Again, Ask, Effect, Entry, Said};
use crate::lease::key::Key;
use crate::lease::ticket::Token;
use crate::lease::vital::Refusal;
use crate::{Result, WorkerId};

#[derive(Default)]
// Four independent facts, not one state.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Table {
    /// Each by itself in memory: a map keeps up to half of its room empty.
    pub(super) entries: HashMap<Token, Box<Entry>>,
    pub(super) by_key: BTreeSet<(Key, Token)>,
    /// The ticket that an explicit worker began last for a key: what it asks for again is the same lease.
    pub(super) by_worker: HashMap<(WorkerId, Key), Token>,
    /// Every entry by the moment at which the keeper must look at it.
    pub(super) agenda: BTreeSet<(Moment, Token)>,
    /// The keeper has something to do before its nap ends.
    pub(super) rung: bool,
    /// Until when the keeper sleeps; `None` while it is awake and will look at the agenda before it sleeps.
    pub(super) nap: Option<Moment>,
    pub(super) closed: bool,
    /// The last handle is gone: the keeper ends when nothing is left to do.
    pub(super) ending: bool,
    pub(super) ended: bool,
    pub(super) enders: Vec<Waker>,
}

impl Table {
    /// Puts an entry where its next moment belongs; tells whether that is before the keeper's nap ends.
    pub(super) fn schedule(&mut self, token: Token) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else { return false };
        let due = entry.due();
        if entry.scheduled != Some(due) {
            if let Some(old) = entry.scheduled.replace(due) {
                self.agenda.remove(&(old, token));
            }
            self.agenda.insert((due, token));
        }
        self.nap.is_some_and(|nap| due < nap)
    }

    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        let token = entry.token;
        self.by_key.insert((entry.ask.key.clone(), token));
        self.entries.insert(token, Box::new(entry));
        self.schedule(token)
    }

    /// The tickets of a key.
    pub(super) fn of_key(&self, key: &Key) -> impl Iterator<Item = Token> {
        let first = (key.clone(), Token::from_bytes([0; 16]));
        self.by_key.range(first..).take_while(move |(of, _)| of == key).map(|(_, token)| *token)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Entry> {
        let entry = *self.entries.remove(&token)?;
        if let Some(scheduled) = entry.scheduled {
            self.agenda.remove(&(scheduled, token));
        }
        self.by_key.remove(&(entry.ask.key.clone(), token));
        // Its worker may have begun another since.
        if let Some(owned) = owned(&entry.ask)
            && self.by_worker.get(&owned) == Some(&token)
        {
            self.by_worker.remove(&owned);
        }
        Some(entry)
    }

    /// What this call comes to if its worker holds the key already, or asks for it.
    pub(super) fn again(&self, ask: &Ask, now: Moment) -> Result<Again> {
        let first = owned(ask).and_then(|owned| self.by_worker.get(&owned)).and_then(|token| self.entries.get(token));
        first.map_or(Ok(Again::Anew), |first| first.again(ask, now))
    }

    /// Lets a call wait for how the first one of its worker comes out; tells whether the keeper must look before its nap ends.
    pub(super) fn wait_behind(&mut self, first: Token, mut entry: Entry, now: Moment) -> bool {
        entry.wait_behind();
        let token = entry.token;
        let ring = self.insert(entry);
        let Some(first) = self.entries.get_mut(&first) else { return ring };
        let mut behind = first.awaited_by();
        let first = first.token;
        behind.retain(|known| self.entries.contains_key(known));
        behind.push(token);
        if let Some(first) = self.entries.get_mut(&first) {
            first.is_awaited_by(behind, now);
        }
        self.schedule(first) || ring
    }

    /// Lets a change of an entry take effect.
    pub(super) fn settle(&mut self, token: Token, effect: Effect) -> After {
        let mut after = After { wakers: effect.wakers, said: effect.said.into_iter().collect(), ..After::default() };
        let decided = self.entries.get_mut(&token).filter(|entry| effect.over || !entry.is_asking());
        for behind in decided.map(|entry| entry.awaited_by()).unwrap_or_default() {
            if let Some(entry) = self.remove(behind) {
                after.wakers.extend(entry.vital.refuse(Refusal::Again));
                after.removed.push(entry);
            }
        }
        if effect.over {
            after.removed.extend(self.remove(token));
            // Whoever waits for the end must look again.
            after.ring = self.closed || self.ending;
        } else {
            after.ring = self.schedule(token);
        }
        after
    }
}

/// What an explicit worker's ticket is found by when it asks again.
pub(super) fn owned(ask: &Ask) -> Option<(WorkerId, Key)> {
    ask.worker.as_ref().map(|worker| (worker.id(), ask.key.clone()))
}

/// What is left to do once the table's mutex is let go. Wakers are foreign code, and so is what goes with the last handle to a worker.
#[must_use]
#[derive(Default)]
pub(super) struct After {
    wakers: Vec<Waker>,
    removed: Vec<Entry>,
    said: Vec<Said>,
    /// The keeper sleeps for too long now.
    pub(super) ring: bool,
}

impl After {
    pub(super) fn add(&mut self, other: After) {
        self.wakers.extend(other.wakers);
        self.removed.extend(other.removed);
        self.said.extend(other.said);
        self.ring |= other.ring;
    }

    pub(super) fn wake(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        self.said.into_iter().for_each(Said::trace);
    }
}
