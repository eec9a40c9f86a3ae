//! What a test says to a worker process and what that answers: one JSON object a line.

use serde::{Deserialize, Serialize};

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Ask for the key; answered by `Held` or `Refused` when it is decided, and other orders are taken meanwhile.
    Lock { key: String, ttl_ms: u64 },
    /// Whether the lease is valid: `Valid`.
    IsValid,
    /// Begin work under the lease, within `Lease::run`, that waits to be woken for ever: `Polls`.
    Work,
    /// Wake the work: `Polls`, once it has been polled or has ended.
    Wake,
    /// Give the lease back: `Released`.
    Release,
    /// Hold the key so often, each time telling so in the file `log`: `Done`.
    Holds { key: String, ttl_ms: u64, times: u32, log: String },
    /// Hold all of the keys at once so often, each time with a file for each that must not be there: `Done`.
    HoldAll { keys: Vec<String>, ttl_ms: u64, times: u32, log: String },
    /// Hold a key as a reader or a writer, or a slot of another, so often, each time telling so in `log`: `Done`.
    HoldInModes { ttl_ms: u64, times: u32, seed: u64, log: String },
}

/// What a worker answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It has a session with the store.
    Ready,
    Held {
        fence: u64,
    },
    Refused {
        kind: String,
        what: String,
    },
    Valid {
        valid: bool,
    },
    /// How often the work was polled; and, if `run` has returned, what.
    Polls {
        times: u32,
        ended: Option<String>,
    },
    Released {
        in_time: bool,
    },
    Done,
}
