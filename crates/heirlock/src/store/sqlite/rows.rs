//! One key's rows within a transaction.
//!
//! The key's own row holds its header, its tombstones and its *first holder*; whoever else holds, and whoever waits, is a row of `ticket`. So a
//! cycle that nobody contends reads one row and writes one row, which is one page, whatever the indexes of `ticket` cost.

use rusqlite::{Error, Result};

use super::columns::{
    bind_nobody, bind_ticket, bits, from_instant, instant, pack_rests, pack_tombstones, read_ticket, state_code, unknown, unpack_rests,
    unpack_tombstones,
};
use super::sql::{Sql, Statements};
use crate::lease::{Header, Rows, State, Ticket, Token, Tombstone};

/// How many of a queue's first are kept at hand: as many as the ledger ever asks for.
const NEAR: usize = 4;
/// How many tickets are remembered by their token within a step.
const SEEN: usize = 8;

/// The rows of one key, for one step.
pub(super) struct KeyRows<'s, 'c> {
    sql: &'s mut Statements<'c>,
    name: &'s str,
    /// Its row, once there is one.
    id: Option<i64>,
    header: Header,
    /// As it was loaded, to save only what has changed.
    loaded: Header,
    first: Option<Ticket>,
    first_changed: bool,
    graves: Vec<Tombstone>,
    graves_changed: bool,
    /// Rows of `ticket` that wait.
    waiting: u64,
    /// Rows of `ticket` that hold.
    holding: u64,
    near: Near,
    /// What is known of some tokens: the speaker's is asked for twice or three times a step.
    seen: Vec<(Token, Option<Ticket>)>,
}

/// The first of the queue, as far as they are known.
#[derive(Default)]
struct Near {
    /// In serving order, without a gap.
    tickets: Vec<Ticket>,
    /// Whether that is the whole queue.
    whole: bool,
}

impl<'s, 'c> KeyRows<'s, 'c> {
    /// Loads what stands in the key's own row.
    pub(super) fn load(sql: &'s mut Statements<'c>, name: &'s str) -> Result<Self> {
        let mut header = Header::default();
        let (mut id, mut first, mut graves) = (None, None, Vec::new());
        let owners = sql.owners();
        {
            let statement = sql.get(Sql::LoadKey)?;
            statement.raw_bind_parameter(1, name)?;
            let mut rows = statement.raw_query();
            if let Some(row) = rows.next()? {
                let count = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
                id = Some(row.get(0)?);
                graves = unpack_tombstones(row.get_ref(9)?.as_blob()?).ok_or_else(|| unknown(9))?;
                header = Header {
                    last_fence: count(1)?,
                    arrivals: count(2)?,
                    holders: count(3)?,
                    queued: count(4)?,
                    graves: u64::try_from(graves.len()).unwrap_or(u64::MAX),
                    readers: row.get(5)?,
                    slots: row.get(6)?,
                    next_due_ms: from_instant(row.get(7)?),
                    rests: unpack_rests(row.get_ref(8)?.as_blob()?).ok_or_else(|| unknown(8))?,
                };
                if header.holders > 0 && row.get_ref(10)? != rusqlite::types::ValueRef::Null {
                    first = Some(read_ticket(row, 10, &owners)?);
                }
            }
        }
        if id.is_none() {
            // Nothing of it is ever due, so that whoever only looks at it changes nothing and leaves no row.
            header.next_due_ms = u64::MAX;
            // Fences grow beyond those of all keys that were forgotten.
            header.last_fence = sql.get(Sql::Floor)?.query_one((), |row| row.get::<_, i64>(0))?.cast_unsigned();
        }
        let waiting = header.queued;
        let holding = header.holders - u64::from(first.is_some());
        let near = Near { tickets: Vec::new(), whole: waiting == 0 };
        Ok(KeyRows {
            sql,
            name,
            id,
            loaded: header.clone(),
            header,
            first,
            first_changed: false,
            graves,
            graves_changed: false,
            waiting,
            holding,
            near,
            seen: Vec::new(),
        })
    }

    /// Writes the key's own row, if it has changed.
    pub(super) fn save(mut self) -> Result<()> {
        if self.header == self.loaded && !self.first_changed && !self.graves_changed {
            return Ok(());
        }
        let id = self.row()?;
        let owners = self.sql.owners();
        let statement = self.sql.get(if self.first_changed { Sql::SaveKey } else { Sql::SaveHeader })?;
        statement.raw_bind_parameter(1, id)?;
        if self.first_changed {
            match &self.first {
                Some(ticket) => bind_ticket(statement, 2, ticket, &owners)?,
                None => bind_nobody(statement, 2)?,
            }
        }
        let header = &self.header;
        statement.raw_bind_parameter(22, bits(header.last_fence))?;
        statement.raw_bind_parameter(23, bits(header.arrivals))?;
        statement.raw_bind_parameter(24, bits(header.holders))?;
        statement.raw_bind_parameter(25, bits(header.queued))?;
        statement.raw_bind_parameter(26, header.readers)?;
        statement.raw_bind_parameter(27, header.slots)?;
        statement.raw_bind_parameter(28, instant(header.next_due_ms))?;
        statement.raw_bind_parameter(29, pack_rests(&header.rests))?;
        statement.raw_bind_parameter(30, pack_tombstones(&self.graves))?;
        statement.raw_execute()?;
        Ok(())
    }

    /// Takes the key's row away; only its fence must still be known, as the floor of all new keys.
    pub(super) fn forget(self) -> Result<()> {
        if let Some(id) = self.id {
            self.sql.get(Sql::RaiseFloor)?.execute([bits(self.header.last_fence)])?;
            self.sql.get(Sql::DropKey)?.execute([id])?;
        }
        Ok(())
    }

    /// All live tickets, in any order.
    pub(super) fn tickets(&mut self) -> Result<Vec<Ticket>> {
        let mut tickets: Vec<Ticket> = self.first.iter().cloned().collect();
        if let (Some(id), 1..) = (self.id, self.waiting + self.holding) {
            tickets.extend(self.read(Sql::AllTickets, id, None)?);
        }
        Ok(tickets)
    }

    /// The tombstones.
    #[cfg(test)]
    pub(super) fn tombstones(&self) -> &[Tombstone] {
        &self.graves
    }

    /// Gives every tombstone this end.
    pub(super) fn prolong_tombstones(&mut self, due_ms: u64) {
        for grave in &mut self.graves {
            grave.due_ms = due_ms;
            self.graves_changed = true;
        }
    }

    /// The id of the key's row, which is made if there is none.
    fn row(&mut self) -> Result<i64> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        self.sql.get(Sql::MakeKey)?.execute([self.name])?;
        let id = self.sql.db().last_insert_rowid();
        self.id = Some(id);
        Ok(id)
    }

    /// The tickets that a query with one or two numbers finds.
    fn read(&mut self, query: Sql, id: i64, number: Option<i64>) -> Result<Vec<Ticket>> {
        let owners = self.sql.owners();
        let statement = self.sql.get(query)?;
        statement.raw_bind_parameter(1, id)?;
        if let Some(number) = number {
            statement.raw_bind_parameter(2, number)?;
        }
        let mut rows = statement.raw_query();
        let mut tickets = Vec::new();
        while let Some(row) = rows.next()? {
            tickets.push(read_ticket(row, 0, &owners)?);
        }
        Ok(tickets)
    }

    /// The earliest end among the rows of `ticket` in this state.
    fn first_due(&mut self, state: State) -> Result<Option<u64>> {
        let Some(id) = self.id else { return Ok(None) };
        let due: Option<i64> = self.sql.get(Sql::FirstDue)?.query_one([id, state_code(state)], |row| row.get(0))?;
        Ok(due.map(from_instant))
    }

    fn remember(&mut self, token: Token, ticket: Option<&Ticket>) {
        if let Some((_, seen)) = self.seen.iter_mut().find(|(seen, _)| *seen == token) {
            *seen = ticket.cloned();
        } else if self.seen.len() < SEEN {
            self.seen.push((token, ticket.cloned()));
        }
    }

    fn is_first(&self, token: &Token) -> bool {
        self.first.as_ref().is_some_and(|first| first.token == *token)
    }

    /// A row of `ticket` with it comes (or changes into it).
    fn write(&mut self, before: Option<&Ticket>, ticket: &Ticket) -> Result<()> {
        let query = match before {
            None => Sql::AddTicket,
            Some(before) if before.state == ticket.state && before.priority == ticket.priority => Sql::BeatTicket,
            Some(_) => Sql::KeepTicket,
        };
        let id = self.row()?;
        let owners = self.sql.owners();
        let statement = self.sql.get(query)?;
        statement.raw_bind_parameter(1, id)?;
        bind_ticket(statement, 2, ticket, &owners)?;
        statement.raw_execute()?;
        if let Some(before) = before {
            self.uncount(before);
        }
        if ticket.holds() {
            self.holding += 1;
        } else {
            self.waiting += 1;
            self.near.insert(ticket);
        }
        Ok(())
    }

    /// Its row of `ticket` goes.
    fn erase(&mut self, ticket: &Ticket) -> Result<()> {
        let id = self.row()?;
        let statement = self.sql.get(Sql::DropTicket)?;
        statement.raw_bind_parameter(1, id)?;
        statement.raw_bind_parameter(2, ticket.token.as_bytes())?;
        statement.raw_execute()?;
        self.uncount(ticket);
        Ok(())
    }

    fn uncount(&mut self, ticket: &Ticket) {
        if ticket.holds() {
            self.holding = self.holding.saturating_sub(1);
        } else {
            self.waiting = self.waiting.saturating_sub(1);
            self.near.remove(&ticket.token);
        }
        self.near.whole |= self.waiting == 0;
    }
}

impl Near {
    /// A ticket has joined the queue: it is at hand if its place is.
    fn insert(&mut self, ticket: &Ticket) {
        let place = self.tickets.partition_point(|near| near.rank() < ticket.rank());
        if place < self.tickets.len() || self.whole {
            self.tickets.insert(place, ticket.clone());
            if self.tickets.len() > NEAR {
                self.tickets.truncate(NEAR);
                self.whole = false;
            }
        }
    }

    fn remove(&mut self, token: &Token) {
        self.tickets.retain(|near| near.token != *token);
    }
}

impl Rows for KeyRows<'_, '_> {
    type Error = Error;

    fn header(&mut self) -> &mut Header {
        &mut self.header
    }

    fn ticket(&mut self, token: &Token) -> Result<Option<Ticket>> {
        if self.is_first(token) {
            return Ok(self.first.clone());
        }
        if let Some((_, seen)) = self.seen.iter().find(|(seen, _)| seen == token) {
            return Ok(seen.clone());
        }
        let (Some(id), 1..) = (self.id, self.waiting + self.holding) else { return Ok(None) };
        let found = {
            let owners = self.sql.owners();
            let statement = self.sql.get(Sql::FindTicket)?;
            statement.raw_bind_parameter(1, id)?;
            statement.raw_bind_parameter(2, token.as_bytes())?;
            let mut rows = statement.raw_query();
            rows.next()?.map(|row| read_ticket(row, 0, &owners)).transpose()?
        };
        self.remember(*token, found.as_ref());
        Ok(found)
    }

    fn put(&mut self, before: Option<&Ticket>, ticket: &Ticket) -> Result<()> {
        self.remember(ticket.token, Some(ticket));
        let was_first = self.is_first(&ticket.token);
        if ticket.holds() && (was_first || self.first.is_none()) {
            if let (Some(before), false) = (before, was_first) {
                self.erase(before)?;
            }
            self.first = Some(ticket.clone());
            self.first_changed = true;
            return Ok(());
        }
        if was_first {
            // Holders do not queue again; were it so, its row is a new one.
            self.first = None;
            self.first_changed = true;
            return self.write(None, ticket);
        }
        self.write(before, ticket)
    }

    fn remove(&mut self, ticket: &Ticket) -> Result<()> {
        self.remember(ticket.token, None);
        if self.is_first(&ticket.token) {
            self.first = None;
            self.first_changed = true;
            return Ok(());
        }
        self.erase(ticket)
    }

    fn queue(&mut self, most: usize) -> Result<Vec<Ticket>> {
        if self.near.tickets.len() < most && !self.near.whole {
            let Some(id) = self.id else { return Ok(Vec::new()) };
            let limit = most.max(NEAR);
            let tickets = self.read(Sql::Queue, id, Some(i64::try_from(limit).unwrap_or(i64::MAX)))?;
            self.near = Near { whole: tickets.len() < limit, tickets };
        }
        Ok(self.near.tickets.iter().take(most).cloned().collect())
    }

    fn holders(&mut self) -> Result<Vec<Ticket>> {
        let mut tickets: Vec<Ticket> = self.first.iter().cloned().collect();
        if let (Some(id), 1..) = (self.id, self.holding) {
            tickets.extend(self.read(Sql::Holders, id, None)?);
            tickets.sort_by_key(|ticket| ticket.token);
        }
        Ok(tickets)
    }

    fn holders_due(&mut self) -> Result<Option<u64>> {
        let mut due = self.first.as_ref().map(|first| first.due_ms);
        if self.holding > 0 {
            for state in [State::Granted, State::Held] {
                due = due.into_iter().chain(self.first_due(state)?).min();
            }
        }
        Ok(due)
    }

    fn due(&mut self, now_ms: u64) -> Result<Vec<Ticket>> {
        let mut tickets: Vec<Ticket> = self.first.iter().filter(|first| first.due_ms <= now_ms).cloned().collect();
        if let (Some(id), 1..) = (self.id, self.waiting + self.holding) {
            tickets.extend(self.read(Sql::DueTickets, id, Some(instant(now_ms)))?);
            tickets.sort_by_key(|ticket| (ticket.due_ms, ticket.token));
        }
        Ok(tickets)
    }

    fn next_due(&mut self) -> Result<u64> {
        let mut next = self.graves.iter().map(|grave| grave.due_ms).min().unwrap_or(u64::MAX);
        next = next.min(self.holders_due()?.unwrap_or(u64::MAX));
        if self.waiting > 0 {
            next = next.min(self.first_due(State::Queued)?.unwrap_or(u64::MAX));
        }
        Ok(next)
    }

    fn tombstone(&mut self, token: &Token) -> Result<Option<Tombstone>> {
        Ok(self.graves.iter().find(|grave| grave.token == *token).copied())
    }

    fn bury(&mut self, tombstone: &Tombstone) -> Result<()> {
        self.graves.push(*tombstone);
        self.graves_changed = true;
        Ok(())
    }

    fn unbury(&mut self, tombstone: &Tombstone) -> Result<()> {
        self.graves.retain(|grave| grave.token != tombstone.token);
        self.graves_changed = true;
        Ok(())
    }

    fn graves_due(&mut self, now_ms: u64) -> Result<Vec<Tombstone>> {
        Ok(self.graves.iter().filter(|grave| grave.due_ms <= now_ms).copied().collect())
    }

    fn oldest_grave(&mut self) -> Result<Option<Tombstone>> {
        Ok(self.graves.iter().min_by_key(|grave| (!grave.settled, grave.due_ms, grave.token)).copied())
    }
}
