//! The plain data of a ticket: one attempt to hold one key.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, Kind, Result};

/// 128 random bits that name one ticket and prove that its owner speaks. A secret: it has no `Display`, and `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A new random token.
    ///
    /// # Errors
    /// `Storage` if the operating system gives no random bytes.
    pub fn random() -> Result<Token> {
        let mut bytes = [0; 16];
        fill(&mut bytes)?;
        Ok(Token(bytes))
    }

    /// The token of these bits.
    pub fn from_bytes(bytes: [u8; 16]) -> Token {
        Token(bytes)
    }

    /// Its bits, for the store that keeps it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|cause| Error::new(Kind::Storage, "the system gives no random bytes").because(cause.to_string()))
}

/// One process's session with a store; notices are addressed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u64);

impl SessionId {
    /// A new random id.
    ///
    /// # Errors
    /// `Storage` if the operating system gives no random bytes.
    pub fn random() -> Result<SessionId> {
        let mut bytes = [0; 8];
        fill(&mut bytes)?;
        Ok(SessionId(u64::from_le_bytes(bytes)))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How a ticket holds its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Beside nobody.
    Exclusive,
    /// Beside other readers.
    Shared,
    /// One of so many slots. The number is fixed while the key is in use, and no other mode stands beside it.
    Slot(u32),
}

impl Mode {
    /// The number of slots, for this mode alone.
    pub fn slots(self) -> Option<u32> {
        match self {
            Mode::Slot(n) => Some(n),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    /// The word that operators see.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Slot(_) => "slot",
        }
    }
}

/// The durations of a ticket, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// A held ticket lives so long beyond its last beat.
    pub ttl: u64,
    /// A queued or granted ticket lives so long beyond its last beat.
    pub queue_life: u64,
    /// Counted from the grant, however often it is renewed.
    pub max_hold: Option<u64>,
    /// After an expiry of the claimed ticket its place rests for so long.
    pub lock_delay: Option<u64>,
    /// After a release its place rests until so long after the grant.
    pub hold_at_least: Option<u64>,
}

/// The longest that a waiter which has died delays the others.
pub const MAX_QUEUE_LIFE: u64 = 15_000;

impl Terms {
    /// A ticket of this ttl: its place in a queue lasts as long, at most 15 s, beyond its last beat.
    ///
    /// ```
    /// use heirlock::lease::Terms;
    /// assert_eq!(Terms::new(30_000).queue_life, 15_000);
    /// assert_eq!(Terms::new(3_000).queue_life, 3_000);
    /// ```
    pub fn new(ttl: u64) -> Terms {
        Terms { ttl, queue_life: ttl.min(MAX_QUEUE_LIFE), max_hold: None, lock_delay: None, hold_at_least: None }
    }
}

/// Who a ticket belongs to, as operators see it. It decides nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The worker's id, unique within its process.
    pub worker: u64,
    /// The worker's name.
    pub name: String,
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program's name, never its arguments: they can carry secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Why the key is wanted, in the owner's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The source line that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// What a ticket's owner waits for outside this store, as it last said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockedOn {
    /// Grows with every wait of the owner, so that an old word is told from a new one.
    pub wait: u64,
    /// The lock that it waits for.
    pub lock: String,
}

/// Where a live ticket stands. See [`ledger`](super::ledger) for the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It waits.
    Queued,
    /// It is its owner's turn, who has not yet claimed it.
    Granted,
    /// Its owner knows that it holds.
    Held,
}

/// Why a ticket is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Left while held.
    Released,
    /// Left while queued or granted, or before its `enter` came.
    Withdrawn,
    /// Not renewed in time.
    Expired,
    /// Its longest hold was over.
    MaxHold,
    /// An operator took it away.
    Evicted,
    /// It could not be granted and might not queue.
    Busy,
    /// The store does not know it: never entered, or forgotten.
    Unknown,
}

impl Reason {
    /// The word that operators see.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Released => "released",
            Reason::Withdrawn => "withdrawn",
            Reason::Expired => "expired",
            Reason::MaxHold => "max_hold",
            Reason::Evicted => "evicted",
            Reason::Busy => "busy",
            Reason::Unknown => "unknown",
        }
    }
}

/// What a ticket was when it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Was {
    /// Its owner held it: a release in time.
    Held,
    /// It had been granted and not claimed.
    Granted,
    /// It waited.
    Queued,
    /// It had ended before, or was never known.
    Gone,
}

/// One live ticket: queued, granted or held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Its name and secret.
    pub token: Token,
    /// Whom notices go to.
    pub session: SessionId,
    /// The sequence number of the last request that was applied.
    pub seq: u64,
    /// Where it stands.
    pub state: State,
    /// What its owner last asked for.
    pub priority: i32,
    /// Its place among its equals; it never changes.
    pub arrival: u64,
    /// How it holds, or wants to.
    pub mode: Mode,
    /// Its durations.
    pub terms: Terms,
    /// When it entered, in store time.
    pub entered_ms: u64,
    /// When it was granted, in store time; 0 while queued.
    pub granted_ms: u64,
    /// When it ends unless renewed, in store time.
    pub due_ms: u64,
    /// Minted with its grant; 0 while queued.
    pub fence: u64,
    /// Which slot it has, if slots are its mode; 0 otherwise and while queued.
    pub slot: u32,
    /// Marked by an operator: never renewed, exclusive until it leaves or expires.
    pub revoked: bool,
    /// Who it belongs to.
    pub owner: Arc<Owner>,
    /// What its owner waits for outside this store.
    pub blocked: Option<BlockedOn>,
}

impl Ticket {
    /// Its place in a queue: the smallest is served first.
    pub fn rank(&self) -> (std::cmp::Reverse<i32>, u64) {
        (std::cmp::Reverse(self.priority), self.arrival)
    }

    /// Whether it has the key, claimed or not.
    pub fn holds(&self) -> bool {
        self.state != State::Queued
    }
}

/// What is left of a ticket that ended, so that a late or repeated request finds it gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tombstone {
    /// Whose it is.
    pub token: Token,
    /// Why it ended.
    pub reason: Reason,
    /// What the `leave` that made it was answered.
    pub was: Was,
    /// Whether it may go first where there are too many: made by a `leave` behind which no `enter` can still come.
    pub settled: bool,
    /// When it may go, in store time.
    pub due_ms: u64,
}
