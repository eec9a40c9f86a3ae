//! What is sent to the script, and what it answers.

use std::sync::Arc;

use ::redis::Value;

use crate::lease::{
    Answer, Beat, BlockedOn, Enter, Evict, Holding, Key, KeyView, Leave, Left, Mode, Owner, Reason, SessionId, State, Terms, Ticket, Token,
    Was,
};
use crate::{Error, Kind, Result};

/// Before every name of ours, keys and channels.
const OURS: &str = "heirlock:";
/// As long as anybody means, and exact in the script's numbers.
const LONGEST_MS: u64 = 1 << 52;

/// One run of the script.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) keys: [String; 3],
    pub(super) args: Vec<Vec<u8>>,
    /// Whether it can make its ticket one that holds.
    pub(super) grants: bool,
}

/// The channel of a session's hints.
pub(super) fn channel(session: SessionId) -> String {
    format!("{OURS}{:016x}", session.0)
}

/// How keys are called on the server.
pub(super) struct Names {
    prefix: String,
    in_cluster: bool,
}

impl Names {
    pub(super) fn new(prefix: &str, in_cluster: bool) -> Names {
        Names { prefix: prefix.to_owned(), in_cluster }
    }

    fn step(&self, verb: &str, key: &Key) -> Step {
        let name = format!("{OURS}{{{}{}}}", encode(&self.prefix), encode(key.as_str()));
        let keys = [name.clone(), format!("{name}:q"), format!("{name}:d")];
        // The time is the server's. In a cluster all three keys exist if one does.
        let how = if self.in_cluster { "all" } else { "" };
        Step { keys, args: vec![verb.into(), key.as_str().into(), how.into()], grants: matches!(verb, "enter" | "beat") }
    }

    pub(super) fn enter(&self, key: &Key, request: &Enter) -> Step {
        let mut step = self.step("enter", key);
        step.args.push(request.token.as_bytes().to_vec());
        step.args.extend([text(&request.seq), text(&request.priority), flag(request.may_queue), lasting(request)]);
        step
    }

    pub(super) fn beat(&self, key: &Key, request: &Beat) -> Step {
        let mut step = self.step("beat", key);
        let blocked = request.blocked.as_ref().map_or(Vec::new(), |blocked| serde_json::to_vec(blocked).unwrap_or_default());
        step.args.push(request.token.as_bytes().to_vec());
        step.args.extend([text(&request.seq), text(&request.priority), blocked]);
        step
    }

    pub(super) fn leave(&self, key: &Key, request: Leave) -> Step {
        let mut step = self.step("leave", key);
        step.args.extend([request.token.as_bytes().to_vec(), flag(request.settled)]);
        step
    }

    pub(super) fn evict(&self, key: &Key, request: Evict) -> Step {
        let mut step = self.step("evict", key);
        step.args.extend([request.fence.map_or(Vec::new(), |fence| text(&fence)), flag(request.force)]);
        step
    }

    pub(super) fn look(&self, key: &Key) -> Step {
        self.step("look", key)
    }

    /// What the names of all keys look like that begin so; no character of the prefix has a meaning.
    pub(super) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = format!("{OURS}{{");
        for c in (encode(&self.prefix) + &encode(prefix)).chars() {
            if "*?[]^\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*}"
    }

    /// The keys with these names on the server, in order; whatever is none of ours is left out.
    pub(super) fn keys(&self, names: &[String]) -> Vec<Key> {
        let one = |name: &String| {
            let name = decode(name.strip_prefix(OURS)?.strip_prefix('{')?.strip_suffix('}')?)?;
            Key::new(name.strip_prefix(&self.prefix)?).ok()
        };
        let mut keys: Vec<Key> = names.iter().filter_map(one).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

fn text(value: &impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn flag(value: bool) -> Vec<u8> {
    text(&u8::from(value))
}

/// How the script's numbers are packed.
const NUMBER: usize = 8;
/// A session's id in a ticket.
const SESSION: usize = 16;

/// The part of a ticket that stays as its owner gave it: and the owner.
fn lasting(request: &Enter) -> Vec<u8> {
    let Enter { mode, terms, session, owner, .. } = request;
    let mode_number = match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Slot(_) => 2,
    };
    let owner = serde_json::to_vec(&**owner).unwrap_or_default();
    let mut packed = Vec::with_capacity(7 * NUMBER + SESSION + 4 + owner.len());
    let spans = [Some(terms.ttl), Some(terms.queue_life), terms.max_hold, terms.lock_delay, terms.hold_at_least];
    for number in [f64::from(mode_number), f64::from(mode.slots().unwrap_or(0))].into_iter().chain(spans.map(span)) {
        packed.extend_from_slice(&number.to_le_bytes());
    }
    packed.extend_from_slice(format!("{:016x}", session.0).as_bytes());
    packed.extend_from_slice(&u32::try_from(owner.len()).unwrap_or(0).to_le_bytes());
    packed.extend_from_slice(&owner);
    packed
}

/// A span that may not be there, in milliseconds.
#[allow(clippy::cast_precision_loss)] // The longest is exact.
fn span(ms: Option<u64>) -> f64 {
    ms.map_or(-1.0, |ms| ms.min(LONGEST_MS) as f64)
}

/// Braces would end the hash tag.
fn encode(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn decode(name: &str) -> Option<String> {
    let plain = name.replace("%7B", "{").replace("%7D", "}").replace("%25", "%");
    (encode(&plain) == name).then_some(plain)
}

/// An answer that is none.
pub(super) fn nonsense(value: &Value) -> Error {
    let shown: String = format!("{value:?}").chars().take(200).collect();
    Error::new(Kind::Incompatible, format!("the server's answer is none of our script's: {shown}"))
}

pub(super) struct Parts<'v>(&'v Value, std::slice::Iter<'v, Value>);

impl<'v> Parts<'v> {
    pub(super) fn of(value: &'v Value) -> Result<Parts<'v>> {
        match value {
            Value::Array(parts) => Ok(Parts(value, parts.iter())),
            _ => Err(nonsense(value)),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'v [u8]> {
        match self.1.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(nonsense(self.0)),
        }
    }

    pub(super) fn int<T: TryFrom<i64>>(&mut self) -> Result<T> {
        match self.1.next() {
            Some(Value::Int(number)) => T::try_from(*number).map_err(|_| nonsense(self.0)),
            _ => Err(nonsense(self.0)),
        }
    }

    #[cfg(test)]
    pub(super) fn next(&mut self) -> Option<&'v Value> {
        self.1.next()
    }

    #[cfg(test)]
    pub(super) fn rest(self) -> impl Iterator<Item = &'v Value> {
        self.1
    }

    /// A span or place that may not be there.
    pub(super) fn maybe<T: TryFrom<i64>>(&mut self) -> Result<Option<T>> {
        let number: i64 = self.int()?;
        if number < 0 { Ok(None) } else { T::try_from(number).map(Some).map_err(|_| nonsense(self.0)) }
    }
}

pub(super) fn answer(value: &Value) -> Result<Answer> {
    let mut parts = Parts::of(value)?;
    Ok(match parts.bytes()? {
        b"H" => Answer::Held(Holding {
            fence: parts.int()?,
            slot: parts.maybe()?,
            expires_in: parts.int()?,
            effective: parts.int()?,
            revoked: parts.int::<u8>()? != 0,
        }),
        b"Q" => Answer::Queued { next_look: parts.int()? },
        b"B" => Answer::Busy,
        b"G" => Answer::Gone(reason(parts.int()?).ok_or_else(|| nonsense(value))?),
        b"M" => Answer::Mismatch { slots: parts.int()? },
        _ => return Err(nonsense(value)),
    })
}

/// Whether it says that the ticket holds.
pub(super) fn is_grant(value: &Value) -> bool {
    matches!(answer(value), Ok(Answer::Held(_)))
}

pub(super) fn reason(number: i64) -> Option<Reason> {
    use Reason::{Busy, Evicted, Expired, MaxHold, Released, Unknown, Withdrawn};
    [Released, Withdrawn, Expired, MaxHold, Evicted, Busy, Unknown].get(usize::try_from(number).ok()?).copied()
}

pub(super) fn left(value: &Value) -> Result<Left> {
    let was = match Parts::of(value)?.int()? {
        0_i64 => Was::Held,
        1 => Was::Granted,
        2 => Was::Queued,
        3 => Was::Gone,
        _ => return Err(nonsense(value)),
    };
    Ok(Left { was })
}

pub(super) fn met(value: &Value) -> Result<u64> {
    Parts::of(value)?.int()
}

/// The key as operators see it, and whether it is in use.
pub(super) fn view(key: Key, value: &Value) -> Result<(KeyView, bool)> {
    let mut parts = Parts::of(value)?;
    let (now, last_fence, resting, rests): (u64, u64, Option<u64>, u64) = (parts.int()?, parts.int()?, parts.maybe()?, parts.int()?);
    let tickets = parts.1.map(ticket).collect::<Result<Vec<Ticket>>>()?;
    let is_used = rests > 0 || !tickets.is_empty();
    Ok((KeyView::of(key, last_fence, resting, tickets, now), is_used))
}

/// What is packed in a ticket, from its beginning on.
struct Packed<'v> {
    whole: &'v Value,
    left: &'v [u8],
}

impl<'v> Packed<'v> {
    fn of(whole: &'v Value) -> Result<Packed<'v>> {
        match whole {
            Value::BulkString(left) => Ok(Packed { whole, left }),
            _ => Err(nonsense(whole)),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'v [u8]> {
        let (bytes, left) = self.left.split_at_checked(length).ok_or_else(|| nonsense(self.whole))?;
        self.left = left;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| nonsense(self.whole))
    }

    fn int<T: TryFrom<i64>>(&mut self) -> Result<T> {
        let number = f64::from_le_bytes(self.array()?);
        #[allow(clippy::cast_possible_truncation)] // What it cuts off, or caps, is not the same number any more.
        let whole = number as i64;
        #[allow(clippy::cast_precision_loss, clippy::float_cmp)]
        let is_exact = whole as f64 == number;
        T::try_from(whole).ok().filter(|_| is_exact).ok_or_else(|| nonsense(self.whole))
    }

    /// A span that may not be there.
    fn maybe(&mut self) -> Result<Option<u64>> {
        let number: i64 = self.int()?;
        Ok(u64::try_from(number).ok())
    }
}

/// A ticket as the script keeps it, but for its token, which is nobody's to see.
pub(super) fn ticket(value: &Value) -> Result<Ticket> {
    let mut parts = Packed::of(value)?;
    let bad = || nonsense(value);
    let seq = parts.int()?;
    let state = match parts.int()? {
        0_i64 => State::Queued,
        1 => State::Granted,
        2 => State::Held,
        _ => return Err(bad()),
    };
    let (priority, arrival) = (parts.int()?, parts.int()?);
    let (entered_ms, granted_ms, due_ms, fence, slot) = (parts.int()?, parts.int()?, parts.int()?, parts.int()?, parts.int()?);
    let revoked = parts.int::<u8>()? != 0;
    let (mode, slots): (i64, u32) = (parts.int()?, parts.int()?);
    let mode = match mode {
        0 => Mode::Exclusive,
        1 => Mode::Shared,
        2 => Mode::Slot(slots),
        _ => return Err(bad()),
    };
    let terms = Terms {
        ttl: parts.int()?,
        queue_life: parts.int()?,
        max_hold: parts.maybe()?,
        lock_delay: parts.maybe()?,
        hold_at_least: parts.maybe()?,
    };
    let session = std::str::from_utf8(parts.bytes(SESSION)?).ok().and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(bad)?;
    let length = usize::try_from(u32::from_le_bytes(parts.array()?)).map_err(|_| bad())?;
    let owner: Owner = serde_json::from_slice(parts.bytes(length)?).map_err(|_| bad())?;
    let blocked: Option<BlockedOn> = match parts.left {
        b"" => None,
        blocked => Some(serde_json::from_slice(blocked).map_err(|_| bad())?),
    };
    Ok(Ticket {
        token: Token::from_bytes([0; 16]),
        session: SessionId(session),
        seq,
        state,
        priority,
        arrival,
        mode,
        terms,
        entered_ms,
        granted_ms,
        due_ms,
        fence,
        slot,
        revoked,
        owner: Arc::new(owner),
        blocked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_of_any_letters_is_an_error() {
        for before in 0..4 {
            let value = Value::SimpleString("x".repeat(before) + &"é€".repeat(100));
            assert!(answer(&value).unwrap_err().is_incompatible());
        }
    }
}
