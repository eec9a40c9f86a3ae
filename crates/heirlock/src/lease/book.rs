//! Where a key's rows are kept: the trait that the ledger works on, and its plain form in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use super::ticket::{State, Ticket, Token, Tombstone};

/// What is known of a key as a whole. The counts let the ledger skip most look-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// The fence minted last.
    pub last_fence: u64,
    /// How many tickets have ever entered; where there are no instants, also how many have ended. It orders both.
    pub arrivals: u64,
    /// Tickets granted or held.
    pub holders: u64,
    /// Tickets queued.
    pub queued: u64,
    /// Tombstones.
    pub graves: u64,
    /// Whether the holders, if any, are readers.
    pub readers: bool,
    /// The number of slots while tickets of that mode are live; 0 for the other modes.
    pub slots: u32,
    /// No ticket and no tombstone is due before this instant (a bound, not always the exact one).
    pub next_due_ms: u64,
    /// Places that nobody may have yet.
    pub rests: Vec<Rest>,
}

impl Header {
    /// How many tickets are live.
    pub fn live(&self) -> u64 {
        self.holders + self.queued
    }

    /// Whether nothing but the fence need be remembered.
    pub fn is_idle(&self) -> bool {
        self.live() == 0 && self.graves == 0 && self.rests.is_empty()
    }
}

/// A place that nobody may have for a while: after `lock_delay` or `hold_at_least`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rest {
    /// One slot, or the whole key.
    pub slot: Option<u32>,
    /// Its end in store time.
    pub until_ms: u64,
    /// How long it lasts from the step that began it: what an engine without a clock gives to a liveness key.
    pub for_ms: u64,
    /// The ticket that left it: the name of that liveness key.
    pub token: Token,
}

/// The rows of one key, as the ledger reads and writes them. An engine that keeps rows implements it; a step runs within one transaction.
///
/// Requires: [`Rows::put`], [`Rows::remove`], [`Rows::bury`] and [`Rows::unbury`] are told exactly what stands there (`before`), and keep no
/// count: the ledger keeps those of the [`Header`].
pub trait Rows {
    /// What a row's access can fail with; the step is then rolled back by the engine.
    type Error;

    /// The key's header, read at the start of the step and kept if it has changed.
    fn header(&mut self) -> &mut Header;

    /// The live ticket with this token.
    ///
    /// # Errors
    /// What the engine reports.
    fn ticket(&mut self, token: &Token) -> Result<Option<Ticket>, Self::Error>;

    /// Keeps the ticket instead of what stood there.
    ///
    /// # Errors
    /// What the engine reports.
    fn put(&mut self, before: Option<&Ticket>, ticket: &Ticket) -> Result<(), Self::Error>;

    /// Takes the ticket away.
    ///
    /// # Errors
    /// What the engine reports.
    fn remove(&mut self, ticket: &Ticket) -> Result<(), Self::Error>;

    /// The first so many of the queue, in serving order.
    ///
    /// # Errors
    /// What the engine reports.
    fn queue(&mut self, most: usize) -> Result<Vec<Ticket>, Self::Error>;

    /// The tickets granted and held, in any order.
    ///
    /// # Errors
    /// What the engine reports.
    fn holders(&mut self) -> Result<Vec<Ticket>, Self::Error>;

    /// The earliest `due_ms` of the tickets granted and held.
    ///
    /// # Errors
    /// What the engine reports.
    fn holders_due(&mut self) -> Result<Option<u64>, Self::Error>;

    /// The live tickets whose `due_ms` is at or before `now_ms`, earliest first.
    ///
    /// # Errors
    /// What the engine reports.
    fn due(&mut self, now_ms: u64) -> Result<Vec<Ticket>, Self::Error>;

    /// The earliest `due_ms` of all tickets and tombstones; `u64::MAX` if there is none.
    ///
    /// # Errors
    /// What the engine reports.
    fn next_due(&mut self) -> Result<u64, Self::Error>;

    /// The tombstone with this token.
    ///
    /// # Errors
    /// What the engine reports.
    fn tombstone(&mut self, token: &Token) -> Result<Option<Tombstone>, Self::Error>;

    /// Keeps a tombstone that is not there yet.
    ///
    /// # Errors
    /// What the engine reports.
    fn bury(&mut self, tombstone: &Tombstone) -> Result<(), Self::Error>;

    /// Takes the tombstone away.
    ///
    /// # Errors
    /// What the engine reports.
    fn unbury(&mut self, tombstone: &Tombstone) -> Result<(), Self::Error>;

    /// The tombstones whose `due_ms` is at or before `now_ms`.
    ///
    /// # Errors
    /// What the engine reports.
    fn graves_due(&mut self, now_ms: u64) -> Result<Vec<Tombstone>, Self::Error>;

    /// The tombstone that may go first: of the settled ones that which is due first, else of all.
    ///
    /// # Errors
    /// What the engine reports.
    fn oldest_grave(&mut self) -> Result<Option<Tombstone>, Self::Error>;
}

/// One key's state as plain data: the ledger's own form, and the memory store's.
///
/// ```
/// use heirlock::lease::Book;
/// assert!(Book::default().header().is_idle());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Book {
    header: Header,
    tickets: BTreeMap<Token, Ticket>,
    holders: BTreeSet<Token>,
    queue: BTreeSet<(Reverse<i32>, u64, Token)>,
    due: BTreeSet<(u64, Token)>,
    graves: BTreeMap<Token, Tombstone>,
    /// By age, the settled ones first.
    ages: BTreeSet<(bool, u64, Token)>,
}

impl Book {
    /// A key that has not been used since fences reached `floor`.
    pub fn with_floor(floor: u64) -> Book {
        Book { header: Header { last_fence: floor, ..Header::default() }, ..Book::default() }
    }

    /// What is known of the key as a whole.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The live tickets.
    pub fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.values()
    }

    /// The queue in serving order.
    pub fn waiters(&self) -> impl Iterator<Item = &Ticket> {
        self.queue.iter().filter_map(|(_, _, token)| self.tickets.get(token))
    }

    /// What is left of ended tickets.
    pub fn tombstones(&self) -> impl Iterator<Item = &Tombstone> {
        self.graves.values()
    }

    fn index(&mut self, ticket: &Ticket) {
        let Reverse(priority) = ticket.rank().0;
        if ticket.state == State::Queued {
            self.queue.insert((Reverse(priority), ticket.arrival, ticket.token));
        } else {
            self.holders.insert(ticket.token);
        }
        self.due.insert((ticket.due_ms, ticket.token));
    }

    fn unindex(&mut self, ticket: &Ticket) {
        self.queue.remove(&(Reverse(ticket.priority), ticket.arrival, ticket.token));
        self.holders.remove(&ticket.token);
        self.due.remove(&(ticket.due_ms, ticket.token));
    }
}

impl Rows for Book {
    type Error = Infallible;

    fn header(&mut self) -> &mut Header {
        &mut self.header
    }

    fn ticket(&mut self, token: &Token) -> Result<Option<Ticket>, Infallible> {
        Ok(self.tickets.get(token).cloned())
    }

    fn put(&mut self, before: Option<&Ticket>, ticket: &Ticket) -> Result<(), Infallible> {
        if let Some(before) = before {
            self.unindex(before);
        }
        self.index(ticket);
        self.tickets.insert(ticket.token, ticket.clone());
        Ok(())
    }

    fn remove(&mut self, ticket: &Ticket) -> Result<(), Infallible> {
        self.unindex(ticket);
        self.tickets.remove(&ticket.token);
        Ok(())
    }

    fn queue(&mut self, most: usize) -> Result<Vec<Ticket>, Infallible> {
        Ok(self.waiters().take(most).cloned().collect())
    }

    fn holders(&mut self) -> Result<Vec<Ticket>, Infallible> {
        Ok(self.holders.iter().filter_map(|token| self.tickets.get(token)).cloned().collect())
    }

    fn holders_due(&mut self) -> Result<Option<u64>, Infallible> {
        Ok(self.holders.iter().filter_map(|token| self.tickets.get(token)).map(|ticket| ticket.due_ms).min())
    }

    fn due(&mut self, now_ms: u64) -> Result<Vec<Ticket>, Infallible> {
        let due = self.due.iter().take_while(|(due, _)| *due <= now_ms);
        Ok(due.filter_map(|(_, token)| self.tickets.get(token)).cloned().collect())
    }

    fn next_due(&mut self) -> Result<u64, Infallible> {
        let ticket = self.due.first().map_or(u64::MAX, |(due, _)| *due);
        let grave = self.graves.values().map(|grave| grave.due_ms).min().unwrap_or(u64::MAX);
        Ok(ticket.min(grave))
    }

    fn tombstone(&mut self, token: &Token) -> Result<Option<Tombstone>, Infallible> {
        Ok(self.graves.get(token).copied())
    }

    fn bury(&mut self, tombstone: &Tombstone) -> Result<(), Infallible> {
        self.ages.insert((!tombstone.settled, tombstone.due_ms, tombstone.token));
        self.graves.insert(tombstone.token, *tombstone);
        Ok(())
    }

    fn unbury(&mut self, tombstone: &Tombstone) -> Result<(), Infallible> {
        self.ages.remove(&(!tombstone.settled, tombstone.due_ms, tombstone.token));
        self.graves.remove(&tombstone.token);
        Ok(())
    }

    fn graves_due(&mut self, now_ms: u64) -> Result<Vec<Tombstone>, Infallible> {
        Ok(self.graves.values().filter(|grave| grave.due_ms <= now_ms).copied().collect())
    }

    fn oldest_grave(&mut self) -> Result<Option<Tombstone>, Infallible> {
        Ok(self.ages.first().and_then(|(_, _, token)| self.graves.get(token)).copied())
    }
}
