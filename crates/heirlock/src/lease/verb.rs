//! What is asked of a key, and what is answered.

use std::sync::Arc;

use super::ticket::{BlockedOn, Mode, Owner, Reason, SessionId, Terms, Token, Was};

/// Asks for a key. On a live ticket it is a [`Beat`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Enter {
    /// Names the ticket; new for every attempt.
    pub token: Token,
    /// Whom notices go to.
    pub session: SessionId,
    /// Larger than that of every request sent before for this ticket, retries included; at least 1.
    pub seq: u64,
    /// What the waiter asks with.
    pub priority: i32,
    /// How it wants to hold.
    pub mode: Mode,
    /// Its durations.
    pub terms: Terms,
    /// Whether it waits if it must; else the answer is `Busy`.
    pub may_queue: bool,
    /// Who it belongs to.
    pub owner: Arc<Owner>,
}

/// Renews what is held, claims what is granted, keeps alive what is queued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Beat {
    /// The ticket.
    pub token: Token,
    /// Larger than that of every request sent before for this ticket.
    pub seq: u64,
    /// The owner's priority now.
    pub priority: i32,
    /// What the owner waits for outside this store.
    pub blocked: Option<BlockedOn>,
}

/// Releases, withdraws, or gives back a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leave {
    /// The ticket.
    pub token: Token,
    /// Whether every `enter` sent for it has been answered, so that none can still come.
    pub settled: bool,
}

/// An operator's request to take a key away from whoever holds it, or to end its rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evict {
    /// Only the holders with this fence; else all. No holder has 0: with `force` that ends rests, and nothing else.
    pub fence: Option<u64>,
    /// Free the key now, although the holder may still run.
    pub force: bool,
}

/// What an [`Enter`] or a [`Beat`] is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The ticket holds the key.
    Held(Holding),
    /// It waits; look again after so many milliseconds, at least one.
    Queued {
        /// The time until the next look, in milliseconds.
        next_look: u64,
    },
    /// It could not be granted and might not queue. The end of the ticket.
    Busy,
    /// The ticket has ended.
    Gone(Reason),
    /// Nothing was done: the key is in use with another number of slots (0: in another mode than slots).
    Mismatch {
        /// The number of slots in use.
        slots: u32,
    },
}

/// What a holder is told of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holding {
    /// Larger than every fence granted before on this key.
    pub fence: u64,
    /// Which slot, if slots are the mode.
    pub slot: Option<u32>,
    /// Milliseconds until it expires unless renewed.
    pub expires_in: u64,
    /// The larger of its own priority and of all that wait.
    pub effective: i32,
    /// An operator has asked for it back; it is not renewed any more.
    pub revoked: bool,
}

/// What a [`Leave`] is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// What the ticket was.
    pub was: Was,
}

/// What somebody else's ticket is told because of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum News {
    /// It is its turn: claim by a beat.
    Granted,
    /// Its effective priority rose.
    Boosted,
    /// Its effective priority fell.
    Lowered,
    /// An operator wants it back, or has taken it.
    Revoked,
}

impl News {
    /// The word that stands for it on a wire.
    pub fn word(self) -> &'static str {
        match self {
            News::Granted => "granted",
            News::Boosted => "boosted",
            News::Lowered => "lowered",
            News::Revoked => "revoked",
        }
    }

    /// The news that this word stands for.
    ///
    /// ```
    /// use heirlock::lease::News;
    /// assert_eq!(News::from_word("granted"), Some(News::Granted));
    /// assert_eq!(News::from_word(""), None);
    /// ```
    pub fn from_word(word: &str) -> Option<News> {
        [News::Granted, News::Boosted, News::Lowered, News::Revoked].into_iter().find(|news| news.word() == word)
    }
}

/// A hint to the owner of a ticket, for the store to deliver without the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Told {
    /// Whom to tell.
    pub session: SessionId,
    /// Of which ticket.
    pub token: Token,
    /// What.
    pub news: News,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<T> {
    /// What the request is answered.
    pub answer: T,
    /// What others are to be told, once the step is kept.
    pub told: Vec<Told>,
}
