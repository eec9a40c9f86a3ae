//! What can be read off a key, in one form for the naive ledger and the real one.

use std::collections::{BTreeMap, BTreeSet};

use heirlock::lease::{BlockedOn, Book, Mode, Reason, State, Ticket, Token, Was};

use super::super::ledger_requests::number;
use super::{NEVER, Naive};

impl Naive {
    /// Everything that can be told apart from outside.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let timed = |instant: u64| (instant != NEVER).then_some(instant);
        let untimed = self.rests.iter().filter(|rest| rest.until == NEVER).map(|rest| (rest.slot, number(rest.token)));
        Snapshot {
            last_fence: self.last_fence,
            holders: self
                .holders()
                .map(|(ticket, hold)| {
                    let state = if hold.claimed { State::Held } else { State::Granted };
                    (
                        number(ticket.token),
                        (state, ticket.mode, hold.fence, hold.slot, hold.revoked, ticket.priority, ticket.seq, timed(ticket.due)),
                    )
                })
                .collect(),
            queue: self
                .queue()
                .into_iter()
                .map(|ticket| (number(ticket.token), ticket.mode, ticket.priority, ticket.seq, timed(ticket.due)))
                .collect(),
            blocked: self.tickets.iter().filter_map(|ticket| Some((number(ticket.token), ticket.blocked.clone()?))).collect(),
            tombstones: self
                .graves
                .iter()
                .map(|grave| (number(grave.token), (grave.reason, grave.was, grave.settled, timed(grave.due))))
                .collect(),
            rests: self.rested(),
            untimed_rests: untimed.collect(),
        }
    }

    /// The instants at which something is over, earliest first.
    pub(crate) fn instants(&self) -> Vec<u64> {
        let tickets = self.tickets.iter().map(|ticket| ticket.due);
        let all = tickets.chain(self.graves.iter().map(|grave| grave.due)).chain(self.rests.iter().map(|rest| rest.until));
        all.collect::<BTreeSet<u64>>().into_iter().collect()
    }

    /// Those that a liveness key may die for: live tickets, and places at rest.
    pub(crate) fn mortal(&self) -> Vec<Token> {
        let tickets = self.tickets.iter().map(|ticket| ticket.token);
        tickets.chain(self.rests.iter().map(|rest| rest.token)).collect::<BTreeSet<Token>>().into_iter().collect()
    }
}

type HolderRow = (State, Mode, u64, u32, bool, i32, u64, Option<u64>);

/// The state of a key in a form that both can be brought to; instants are left out where there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    last_fence: u64,
    /// State, mode, fence, slot, revoked, priority, sequence, end.
    holders: BTreeMap<u64, HolderRow>,
    queue: Vec<(u64, Mode, i32, u64, Option<u64>)>,
    blocked: BTreeMap<u64, BlockedOn>,
    tombstones: BTreeMap<u64, (Reason, Was, bool, Option<u64>)>,
    rests: BTreeMap<Option<u32>, u64>,
    untimed_rests: BTreeSet<(Option<u32>, u64)>,
}

impl Snapshot {
    /// The same of the ledger's rows, written with or without instants.
    pub(crate) fn of(book: &Book, clock: bool) -> Snapshot {
        let timed = |instant: u64| clock.then_some(instant);
        let row = |ticket: &Ticket| {
            (ticket.state, ticket.mode, ticket.fence, ticket.slot, ticket.revoked, ticket.priority, ticket.seq, timed(ticket.due_ms))
        };
        let rests = &book.header().rests;
        Snapshot {
            last_fence: book.header().last_fence,
            holders: book.tickets().filter(|ticket| ticket.holds()).map(|ticket| (number(ticket.token), row(ticket))).collect(),
            queue: book
                .waiters()
                .map(|ticket| (number(ticket.token), ticket.mode, ticket.priority, ticket.seq, timed(ticket.due_ms)))
                .collect(),
            blocked: book.tickets().filter_map(|ticket| Some((number(ticket.token), ticket.blocked.clone()?))).collect(),
            tombstones: book
                .tombstones()
                .map(|grave| (number(grave.token), (grave.reason, grave.was, grave.settled, timed(grave.due_ms))))
                .collect(),
            rests: rests.iter().filter(|_| clock).map(|rest| (rest.slot, rest.until_ms)).collect(),
            untimed_rests: rests.iter().filter(|_| !clock).map(|rest| (rest.slot, number(rest.token))).collect(),
        }
    }
}
