//! The one shape in which all faces show who holds and who waits. A field that does not apply is absent; durations are in milliseconds.

use serde::Serialize;

/// Who holds and who waits, at one moment.
///
/// It serialises to the JSON that all faces share, is printed as text (`to_string()`) for a terminal or a log, and drawn as a graph by
/// [`to_dot`](Snapshot::to_dot).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// The store's address without any password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// When it was taken: milliseconds since 1970 by this machine's wall clock.
    pub at: u64,
    /// The locks in use, by name.
    pub locks: Vec<Lock>,
    /// Which worker waits for which, and where.
    pub edges: Vec<Edge>,
    /// Cycles that may be deadlocks.
    pub suspected: Vec<Vec<String>>,
    /// Deadlocks found lately.
    pub deadlocks: Vec<Vec<String>>,
    /// Leases lost lately.
    pub losses: Vec<String>,
    /// Where locks were taken in both orders, which may deadlock one day; of domains that check it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inversions: Vec<String>,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// What kind of lock it is: `mutex`, `rlock`, ...; a lease is a `lease`.
    pub kind: &'static str,
    /// Whether others than its holders may release it, so that no wait for it is ever known to be a deadlock. Absent when not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown_releaser: bool,
    /// Who holds it, the earliest grant first.
    pub holders: Vec<Holder>,
    /// Who waits, in serving order.
    pub queue: Vec<Waiter>,
    /// How long nobody may have it yet, after `lock_delay` or `hold_at_least`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resting_ms: Option<u64>,
}

/// A worker, as far as it is known where the snapshot was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerView {
    /// Unique within its process.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
}

/// Who takes part in a lock, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Party {
    /// The worker.
    pub worker: WorkerView,
    /// The program's name only: arguments can carry secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Why it is held or wanted, in the worker's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `exclusive`, `shared` or `slot`.
    pub mode: &'static str,
}

/// Who holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Holder {
    /// Who, and how.
    #[serde(flatten)]
    pub party: Party,
    /// Which slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// The fence of the grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Since the grant.
    pub since_ms: u64,
    /// Until it expires unless renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// Its own priority.
    pub priority: i32,
    /// With what it inherits.
    pub effective: i32,
    /// Whether an operator wants it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<bool>,
    /// The source line that acquired it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// Who waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiter {
    /// From 1.
    pub position: usize,
    /// Who, and how.
    #[serde(flatten)]
    pub party: Party,
    /// Its own priority.
    pub priority: i32,
    /// With what it inherits.
    pub effective: i32,
    /// Since it entered.
    pub waiting_ms: u64,
    /// Until its deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_in_ms: Option<u64>,
    /// The source line that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
}

/// One worker waits for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edge {
    /// The worker that waits.
    pub from: WorkerView,
    /// The worker in its way.
    pub to: WorkerView,
    /// The lock; absent for a worker that waits for its fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
}
