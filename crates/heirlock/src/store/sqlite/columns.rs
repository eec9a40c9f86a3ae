//! A ticket as columns, and the small packed lists of a key's row.

use rusqlite::types::{FromSqlError, Type};
use rusqlite::{Error, Result, Row, Statement, ToSql};

use super::owners::Owners;
use crate::lease::{Mode, Reason, Rest, SessionId, State, Terms, Ticket, Token, Tombstone, Was};

/// How many columns a ticket has.
pub(super) const TICKET_COLUMNS: usize = 20;

/// Binds a ticket's columns from the parameter `from` on; without a ticket they stay as they are cleared: NULL.
pub(super) fn bind_ticket(statement: &mut Statement<'_>, from: usize, ticket: &Ticket, owners: &Owners) -> Result<()> {
    let mut at = from;
    let mut bind = |value: &dyn ToSql| {
        let bound = statement.raw_bind_parameter(at, value);
        at += 1;
        bound
    };
    bind(ticket.token.as_bytes())?;
    bind(&bits(ticket.session.0))?;
    bind(&bits(ticket.seq))?;
    bind(&state_code(ticket.state))?;
    bind(&ticket.priority)?;
    bind(&bits(ticket.arrival))?;
    bind(&mode_code(ticket.mode))?;
    bind(&bits(ticket.terms.ttl))?;
    bind(&bits(ticket.terms.queue_life))?;
    bind(&ticket.terms.max_hold.map(bits))?;
    bind(&ticket.terms.lock_delay.map(bits))?;
    bind(&ticket.terms.hold_at_least.map(bits))?;
    bind(&instant(ticket.entered_ms))?;
    bind(&instant(ticket.granted_ms))?;
    bind(&instant(ticket.due_ms))?;
    bind(&bits(ticket.fence))?;
    bind(&ticket.slot)?;
    bind(&ticket.revoked)?;
    bind(&&*owners.text(&ticket.owner).map_err(unwritable)?)?;
    bind(&ticket.blocked.as_ref().map(json).transpose()?)
}

/// Clears a ticket's columns.
pub(super) fn bind_nobody(statement: &mut Statement<'_>, from: usize) -> Result<()> {
    (from..from + TICKET_COLUMNS).try_for_each(|at| statement.raw_bind_parameter(at, rusqlite::types::Null))
}

/// Reads the ticket whose columns start at `from`.
pub(super) fn read_ticket(row: &Row<'_>, from: usize, owners: &Owners) -> Result<Ticket> {
    let whole = |at: usize| row.get::<_, i64>(from + at).map(i64::cast_unsigned);
    let maybe = |at: usize| row.get::<_, Option<i64>>(from + at).map(|value| value.map(i64::cast_unsigned));
    let time = |at: usize| row.get::<_, i64>(from + at).map(from_instant);
    Ok(Ticket {
        token: Token::from_bytes(row.get(from)?),
        session: SessionId(whole(1)?),
        seq: whole(2)?,
        state: state_of(row.get(from + 3)?).ok_or_else(|| unknown(from + 3))?,
        priority: row.get(from + 4)?,
        arrival: whole(5)?,
        mode: mode_of(row.get(from + 6)?).ok_or_else(|| unknown(from + 6))?,
        terms: Terms { ttl: whole(7)?, queue_life: whole(8)?, max_hold: maybe(9)?, lock_delay: maybe(10)?, hold_at_least: maybe(11)? },
        entered_ms: time(12)?,
        granted_ms: time(13)?,
        due_ms: time(14)?,
        fence: whole(15)?,
        slot: row.get(from + 16)?,
        revoked: row.get(from + 17)?,
        owner: owners.read(text(row, from + 18)?).map_err(|cause| unreadable(from + 18, cause))?,
        blocked: if row.get_ref(from + 19)? == rusqlite::types::ValueRef::Null { None } else { Some(from_json(row, from + 19)?) },
    })
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(unwritable)
}

fn unwritable(cause: serde_json::Error) -> Error {
    Error::ToSqlConversionFailure(Box::new(cause))
}

fn text<'r>(row: &'r Row<'_>, at: usize) -> Result<&'r str> {
    row.get_ref(at)?.as_str().map_err(|cause| unreadable(at, cause))
}

fn from_json<T: serde::de::DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T> {
    serde_json::from_str(text(row, at)?).map_err(|cause| unreadable(at, cause))
}

fn unreadable(at: usize, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::FromSqlConversionFailure(at, Type::Text, Box::new(cause))
}

/// A number that SQLite only keeps: all 64 bits, whatever sign it shows.
pub(super) fn bits(value: u64) -> i64 {
    value.cast_signed()
}

/// A number that SQLite also compares: the end of time is its largest.
pub(super) fn instant(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The inverse of [`instant`].
pub(super) fn from_instant(value: i64) -> u64 {
    if value == i64::MAX { u64::MAX } else { value.cast_unsigned() }
}

/// A value that this version does not know.
pub(super) fn unknown(at: usize) -> Error {
    Error::FromSqlConversionFailure(at, Type::Integer, Box::new(FromSqlError::InvalidType))
}

pub(super) fn state_code(state: State) -> i64 {
    match state {
        State::Queued => 0,
        State::Granted => 1,
        State::Held => 2,
    }
}

fn state_of(code: i64) -> Option<State> {
    [State::Queued, State::Granted, State::Held].into_iter().find(|state| state_code(*state) == code)
}

/// 0 exclusive, 1 shared, n + 2 for one of n slots.
fn mode_code(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Slot(n) => i64::from(n) + 2,
    }
}

fn mode_of(code: i64) -> Option<Mode> {
    match code {
        0 => Some(Mode::Exclusive),
        1 => Some(Mode::Shared),
        _ => code.checked_sub(2).and_then(|n| u32::try_from(n).ok()).map(Mode::Slot),
    }
}

const REASONS: [Reason; 7] =
    [Reason::Released, Reason::Withdrawn, Reason::Expired, Reason::MaxHold, Reason::Evicted, Reason::Busy, Reason::Unknown];
const WAS: [Was; 4] = [Was::Held, Was::Granted, Was::Queued, Was::Gone];

/// Bytes of one packed tombstone: its token, what it says, and its end counted from the list's earliest.
const TOMBSTONE_BYTES: usize = 16 + 1 + 4;

/// Packs a key's tombstones, at most 64 of them: the earliest end, then each.
///
/// They are one value, because every release writes one and drops another: as rows they would cost a release more than all the rest of it.
pub(super) fn pack_tombstones(graves: &[Tombstone]) -> Vec<u8> {
    let Some(first) = graves.iter().map(|grave| grave.due_ms).min() else { return Vec::new() };
    let mut bytes = Vec::with_capacity(8 + graves.len() * TOMBSTONE_BYTES);
    bytes.extend_from_slice(&first.to_le_bytes());
    for grave in graves {
        let reason = REASONS.iter().position(|reason| *reason == grave.reason).unwrap_or_default();
        let was = WAS.iter().position(|was| *was == grave.was).unwrap_or_default();
        // Less than 8, 4 and 2: it fits.
        let says = reason | was << 3 | usize::from(grave.settled) << 5;
        bytes.extend_from_slice(grave.token.as_bytes());
        bytes.push(u8::try_from(says).unwrap_or_default());
        // All ends lie within the 60 s that a tombstone lasts.
        bytes.extend_from_slice(&u32::try_from(grave.due_ms - first).unwrap_or(u32::MAX).to_le_bytes());
    }
    bytes
}

/// The inverse of [`pack_tombstones`]; `None` for what it cannot have made.
pub(super) fn unpack_tombstones(bytes: &[u8]) -> Option<Vec<Tombstone>> {
    let Some((first, rest)) = bytes.split_first_chunk() else { return bytes.is_empty().then(Vec::new) };
    let first = u64::from_le_bytes(*first);
    let (graves, left) = rest.as_chunks::<TOMBSTONE_BYTES>();
    if !left.is_empty() {
        return None;
    }
    let unpack = |grave: &[u8; TOMBSTONE_BYTES]| {
        let (token, rest) = grave.split_first_chunk()?;
        let (says, after) = rest.split_first()?;
        let after = u32::from_le_bytes(*after.first_chunk()?);
        Some(Tombstone {
            token: Token::from_bytes(*token),
            reason: *REASONS.get(usize::from(says & 7))?,
            was: *WAS.get(usize::from(says >> 3 & 3))?,
            settled: says >> 5 & 1 == 1,
            due_ms: first.saturating_add(u64::from(after)),
        })
    };
    graves.iter().map(unpack).collect()
}

/// Bytes of one packed rest: its slot or -1, its end, its length, its token.
const REST_BYTES: usize = 8 + 8 + 8 + 16;

/// Packs a key's rests; there are hardly ever any.
pub(super) fn pack_rests(rests: &[Rest]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(rests.len() * REST_BYTES);
    for rest in rests {
        bytes.extend_from_slice(&rest.slot.map_or(-1, i64::from).to_le_bytes());
        bytes.extend_from_slice(&rest.until_ms.to_le_bytes());
        bytes.extend_from_slice(&rest.for_ms.to_le_bytes());
        bytes.extend_from_slice(rest.token.as_bytes());
    }
    bytes
}

/// The inverse of [`pack_rests`].
pub(super) fn unpack_rests(bytes: &[u8]) -> Option<Vec<Rest>> {
    let (rests, left) = bytes.as_chunks::<REST_BYTES>();
    if !left.is_empty() {
        return None;
    }
    let unpack = |rest: &[u8; REST_BYTES]| {
        let (slot, rest) = rest.split_first_chunk()?;
        let (until, rest) = rest.split_first_chunk()?;
        let (length, token) = rest.split_first_chunk()?;
        Some(Rest {
            slot: u32::try_from(i64::from_le_bytes(*slot)).ok(),
            until_ms: u64::from_le_bytes(*until),
            for_ms: u64::from_le_bytes(*length),
            token: Token::from_bytes(*token.first_chunk()?),
        })
    };
    rests.iter().map(unpack).collect()
}
