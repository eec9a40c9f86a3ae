//! Leases: locks that leave the process. A lease is exclusive until its expiry unless it is renewed, and carries a fence that grows with every
//! grant, so that the thing that is guarded can refuse a holder who does not know that it has lost.

mod acquire;
mod all;
mod book;
mod entry;
pub mod fence_lua;
pub mod fence_sql;
mod fenced;
mod fences;
mod handle;
mod hold;
mod keeper;
mod key;
#[allow(clippy::module_inception)]
mod lease;
pub mod ledger;
mod locks;
mod sequencer;
mod session;
mod set;
mod store;
mod ticket;
mod verb;
mod vital;
mod watch;

pub use acquire::{Acquire, DEFAULT_TTL, MAX_SLOTS, One};
pub use all::Several;
pub use book::{Book, Header, Rest, Rows};
pub use fenced::{Fenced, FencedCell};
pub use fences::Fences;
pub use key::{Key, MAX_KEY_BYTES, check_part};
pub use lease::{Lease, Released};
pub use locks::Locks;
pub use sequencer::{HolderId, Sequencer};
pub use set::LeaseSet;
pub use store::{Capabilities, HolderView, KeyView, Notice, Pending, Sink, Spawner, Store, WaiterView, Work};
pub use ticket::{BlockedOn, MAX_QUEUE_LIFE, Mode, Owner, Reason, SessionId, State, Terms, Ticket, Token, Tombstone, Was};
pub use verb::{Answer, Beat, Enter, Evict, Holding, Leave, Left, News, Outcome, Told};
pub use vital::LostReason;
