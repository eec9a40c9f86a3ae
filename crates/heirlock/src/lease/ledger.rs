//! The ledger: who holds a key, who waits, and what every request does to that. Pure: rows, a request and the time in; rows, an answer and
//! notices out.
//!
//! # The states of a ticket
//! ```text
//!              enter                   its turn, noticed by       its turn, noticed in
//!           (must wait)                another's step             its own step
//!   (none) ────────────► Queued ──────────────► Granted ─┐            │
//!      │                   │ └───────────────────────────│────────────┤
//!      │ enter             │                      beat,  │            │
//!      │ (nobody before)   │                      enter  ▼            ▼
//!      ├───────────────────│─────────────────────────► Held ◄─────────┘
//!      │ enter (may not    │ leave, expiry               │ leave, expiry, max_hold, eviction
//!      │ queue), leave     ▼                             ▼
//!      └────────────────► Gone (a tombstone for 60 s) ◄──┘
//! ```
//! A grant does not extend a ticket's life: a waiter that died before its turn delays the key by what is left of `queue_life`. Only a claim
//! extends it to the ttl.
//!
//! # A step
//! Purge what is due, promote from the head of the queue, do the verb, promote again, then tell holders what they inherit. So nothing is
//! granted for a moment that has passed, and a newcomer never passes a waiter on a key that an expiry has just freed.
//!
//! # What always holds
//! 1. Holders of one key stand beside each other only as readers, or in slots of distinct indexes below n.
//! 2. Fences of a key strictly increase in the order of its grants; only readers of one generation share one.
//! 3. After a step, the head of the queue could not be granted.
//! 4. No ticket is live at or after its `due_ms`.
//! 5. A token that has ended stays ended for 60 s: a late or repeated `enter` or `beat` answers `Gone` (or `Busy` again).
//! 6. A request whose sequence number is not newer than the last applied renews, claims and changes nothing.
//! 7. The counts of the [`Header`](super::book::Header) are those of the rows.
//!
//! The model in `tests/ledger/model.rs` checks them over every interleaving of duplicated, reordered and delayed requests; the idea of fencing
//! is Chubby's sequencer (Burrows 2006), that of an idempotent token per attempt is etcd's lease key.

mod step;

use self::step::{Seen, Step};
use super::book::Rows;
use super::ticket::{Reason, State, Ticket, Token, Was};
use super::verb::{Answer, Beat, Enter, Evict, Leave, Left, News, Outcome};

/// How long a tombstone stays, in milliseconds.
pub const TOMBSTONE_MS: u64 = 60_000;
/// How many tombstones a key keeps.
pub const MAX_TOMBSTONES: u64 = 64;
/// How many of a queue's first look every [`NEAR_LOOK_MS`].
pub const NEAR_LOOKERS: usize = 4;
/// The longest that the first of a queue go without a look, in milliseconds.
pub const NEAR_LOOK_MS: u64 = 1_000;
/// Where there are no instants, a tombstone's `due_ms` is its number beyond this: an order, not a time.
const NEVER_DUE: u64 = 1 << 63;

/// What the store knows of the time.
#[derive(Clone, Copy, Debug)]
pub enum Now<'a> {
    /// An engine with a clock: tickets end when their instant has come.
    Clock {
        /// For expiries; never goes back.
        mono_ms: u64,
        /// For fences only; it may jump. Microseconds since 1970.
        wall_us: u64,
    },
    /// An engine with liveness (etcd): tickets end, and rests are over, when they are among the dead. There are no instants; a tombstone stays
    /// until there are too many.
    Liveness {
        /// Tickets, and tickets that left a rest, whose liveness key is gone. A `max_hold` is kept by not keeping that key alive beyond it.
        dead: &'a [Token],
        /// For fences only.
        wall_us: u64,
    },
}

impl Now<'_> {
    fn wall_us(&self) -> u64 {
        match *self {
            Now::Clock { wall_us, .. } | Now::Liveness { wall_us, .. } => wall_us,
        }
    }

    /// This instant; 0 where there are none.
    fn ms(&self) -> u64 {
        match *self {
            Now::Clock { mono_ms, .. } => mono_ms,
            Now::Liveness { .. } => 0,
        }
    }

    /// The instant so many milliseconds from now; the end of time where there are none.
    fn after(&self, ms: u64) -> u64 {
        match *self {
            Now::Clock { mono_ms, .. } => mono_ms.saturating_add(ms),
            Now::Liveness { .. } => u64::MAX,
        }
    }
}

/// Asks for the key with a new ticket, or beats a live one.
///
/// # Errors
/// What the rows' engine reports.
pub fn enter<R: Rows>(rows: &mut R, now: Now<'_>, request: &Enter) -> Result<Outcome<Answer>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    let beat = Beat { token: request.token, seq: request.seq, priority: request.priority, blocked: None };
    let answer = match step.seen(&request.token)? {
        Seen::Live(ticket) => {
            let blocked = ticket.blocked.clone();
            step.refresh(&ticket, &Beat { blocked, ..beat })?;
            None
        }
        Seen::Gone(grave) if grave.reason == Reason::Busy => Some(Answer::Busy),
        Seen::Gone(grave) => Some(Answer::Gone(grave.reason)),
        Seen::Never => step.admit(request)?,
    };
    step.end(|step| match answer {
        Some(answer) => Ok(answer),
        None => step.standing(&request.token),
    })
}

/// Renews, claims or keeps alive a ticket.
///
/// # Errors
/// What the rows' engine reports.
pub fn beat<R: Rows>(rows: &mut R, now: Now<'_>, request: &Beat) -> Result<Outcome<Answer>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    if let Seen::Live(ticket) = step.seen(&request.token)? {
        step.refresh(&ticket, request)?;
    }
    step.end(|step| step.standing(&request.token))
}

/// Ends a ticket, whatever its sequence, and hands the key on.
///
/// # Errors
/// What the rows' engine reports.
pub fn leave<R: Rows>(rows: &mut R, now: Now<'_>, request: &Leave) -> Result<Outcome<Left>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    let was = match step.seen(&request.token)? {
        Seen::Live(ticket) => {
            let (reason, was) = match ticket.state {
                State::Held => (Reason::Released, Was::Held),
                State::Granted => (Reason::Withdrawn, Was::Granted),
                State::Queued => (Reason::Withdrawn, Was::Queued),
            };
            step.finish(&ticket, reason, was, request.settled)?;
            if let (State::Held, Some(span)) = (ticket.state, ticket.terms.hold_at_least) {
                let until = match now {
                    Now::Clock { .. } => ticket.granted_ms.saturating_add(span),
                    Now::Liveness { .. } => u64::MAX,
                };
                step.rest(&ticket, until, span);
            }
            was
        }
        Seen::Gone(grave) if matches!(grave.reason, Reason::Released | Reason::Withdrawn) => grave.was,
        Seen::Gone(_) => Was::Gone,
        Seen::Never => {
            step.bury(request.token, Reason::Withdrawn, Was::Gone, request.settled)?;
            Was::Gone
        }
    };
    step.end(|_| Ok(Left { was }))
}

/// Takes the key away: marks holders as revoked, ends grants that nobody claimed, and with `force` ends all. The fence that no holder
/// has, 0, with `force` ends the rests. Answers how many it met.
///
/// # Errors
/// What the rows' engine reports.
pub fn evict<R: Rows>(rows: &mut R, now: Now<'_>, request: &Evict) -> Result<Outcome<u64>, R::Error> {
    let mut step = Step::begin(rows, now, None)?;
    let mut met = 0;
    if step.rows.header().holders > 0 {
        for ticket in step.rows.holders()? {
            if request.fence.is_some_and(|fence| fence != ticket.fence) {
                continue;
            }
            met += 1;
            if request.force || ticket.state == State::Granted {
                step.finish(&ticket, Reason::Evicted, Was::Gone, false)?;
                step.tell(&ticket, News::Revoked);
            } else if !ticket.revoked {
                step.put(&ticket, &Ticket { revoked: true, ..ticket.clone() })?;
                step.tell(&ticket, News::Revoked);
            }
        }
    }
    // Named by the fence that nobody holds with: whoever ends a rest that is just over does not meet the next holder.
    if request.force && request.fence == Some(0) {
        met += step.rows.header().rests.drain(..).count() as u64;
    }
    step.end(|_| Ok(met))
}

/// Does what every verb does first and last, and no more; whoever inspects a key looks first.
///
/// # Errors
/// What the rows' engine reports.
pub fn look<R: Rows>(rows: &mut R, now: Now<'_>) -> Result<Outcome<()>, R::Error> {
    Step::begin(rows, now, None)?.end(|_| Ok(()))
}
