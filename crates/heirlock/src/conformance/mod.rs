//! The suite that every store must pass, for the stores of this crate and for anybody else's.
//!
//! A [`Factory`] stands for one store, empty at first. Every case is a function over a factory that panics, with what it saw, if the store is not
//! right; [`conformance_tests!`](crate::conformance_tests) makes a test of each, with a new factory for every one:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use heirlock::lease::{Pending, Store};
//! # use heirlock::store::MemoryStore;
//! use heirlock::conformance::Factory;
//!
//! struct MyFactory { /* the address of a store that is empty */ }
//!
//! impl Factory for MyFactory {
//!     fn open(&self) -> Pending<'_, Arc<dyn Store>> {
//!         // A new connection to that store.
//! #       Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
//!     }
//!     // And `worker`, if processes can share it.
//! }
//!
//! # #[cfg(any())]
//! mod conformance {
//!     heirlock::conformance_tests!(in_process: MyFactory::new());
//!     heirlock::conformance_tests!(processes: MyFactory::new());
//! }
//! ```
//!
//! # Cases with processes
//! S01, S19 and S20 are about processes that compete, S02, S03 and S26 about such that are killed, stopped and continued. They start the command of [`Factory::worker`]: a small
//! program whose `main` is [`worker::main`]. A store within one process cannot run them; [`omitted`] lists them by number, and a test
//! of such a store should assert that list. Where the store's part of such a case can be tried within a process, with a session that is cut off in
//! place of a process that is stopped, there is a second form that runs for every store (`..._within_a_process`).
//!
//! # Time and chance
//! The cases run in real time, most of them for a few seconds, the longest for about 20 s, most of which is waiting. A bound that a case
//! states is asserted with at most as much again of slack, from recorded instants. Every random choice comes from a seed that is printed;
//! `HEIRLOCK_SEED` fixes it.
//!
//! What the suite does not cover: the time-dependent steps of the ledger (expiry, rests, caps) beyond what the cases do, for it has no hand on the
//! store's clock; and everything about one engine alone.

// This is test code that ships: a case tells by a panic what it saw.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

use std::process::Command;
use std::sync::Arc;

use crate::lease::{Pending, Store};
use crate::store::MemoryStore;

mod again;
mod cancel;
mod chance;
mod death;
mod exclusion;
mod fencing;
mod histories;
mod keys;
mod modes;
mod process;
mod protocol;
mod renewal;
mod replies;
mod several;
mod stop;
mod terms;
mod timing;
mod tools;
mod turns;
pub mod worker;

pub use again::case_s12_a_worker_asks_again;
pub use cancel::case_s08_dropped_acquires_leave_nothing;
pub use death::{case_s02_the_dead_delay_a_key_for_a_while, case_s02_within_a_process};
pub use exclusion::{case_s01_holds_never_overlap, case_s01_within_a_process};
pub use fencing::case_s27_late_holders_are_refused;
pub use histories::random_histories_agree_with_the_ledger;
pub use keys::case_s14_keys_are_kept_apart_or_refused;
pub use modes::{case_s20_modes_among_processes, case_s20_within_a_process};
pub use renewal::{
    case_s06_failed_renewals, case_s07_a_lost_notice_costs_time_only, case_s11_a_late_release_frees_nothing, case_s17_waiters_are_kept,
};
pub use replies::{case_s04_the_reply_of_enter_is_lost, case_s05_the_reply_of_leave_is_lost};
pub use several::{case_s19_opposite_orders, case_s19_within_a_process};
pub use stop::{case_s03_a_stopped_holder_knows, case_s26_a_stopped_grantee_says_so, case_s26_within_a_process};
pub use terms::case_s18_holds_have_ends_and_rests;
pub use timing::case_s09_durations_are_what_they_say;
pub use turns::case_s10_priority_then_arrival;

/// One store, empty at first, that any number of sessions can be opened to.
pub trait Factory: Send + Sync {
    /// A new handle to the store, as a process of its own would have it.
    ///
    /// # Errors
    /// What the store reports; the case then fails.
    fn open(&self) -> Pending<'_, Arc<dyn Store>>;

    /// A command that starts a worker (see [`worker::main`]) on the same store; `None` if other processes cannot reach it.
    fn worker(&self) -> Option<Command> {
        None
    }
}

/// The memory store is its own factory: all its handles are clones.
impl Factory for MemoryStore {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}

/// One case of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its function's name.
    pub name: &'static str,
    /// Runs it; panics if the store is not right.
    pub run: fn(&dyn Factory),
    /// Whether it starts processes.
    pub needs_processes: bool,
}

impl Case {
    /// Its number: 3 for S03. `None` for the histories, which have none.
    pub fn number(&self) -> Option<u32> {
        self.name.strip_prefix("case_s")?.get(..2)?.parse().ok()
    }
}

/// The numbers of the cases that cannot be run on this store as they are stated, because they need processes.
///
/// ```
/// use heirlock::conformance;
/// assert_eq!(conformance::omitted(&heirlock::store::MemoryStore::new()), [1, 2, 3, 19, 20, 26]);
/// ```
pub fn omitted(factory: &dyn Factory) -> Vec<u32> {
    if factory.worker().is_some() {
        return Vec::new();
    }
    CASES.iter().filter(|case| case.needs_processes).filter_map(Case::number).collect()
}

/// The one list of the cases, for the table and for the tests.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ($do:ident, in_process, $($more:tt)*) => {
        $crate::$do! { $($more)*
            case_s01_within_a_process
            case_s02_within_a_process
            case_s04_the_reply_of_enter_is_lost
            case_s05_the_reply_of_leave_is_lost
            case_s06_failed_renewals
            case_s07_a_lost_notice_costs_time_only
            case_s08_dropped_acquires_leave_nothing
            case_s09_durations_are_what_they_say
            case_s10_priority_then_arrival
            case_s11_a_late_release_frees_nothing
            case_s12_a_worker_asks_again
            case_s14_keys_are_kept_apart_or_refused
            case_s17_waiters_are_kept
            case_s18_holds_have_ends_and_rests
            case_s19_within_a_process
            case_s20_within_a_process
            case_s26_within_a_process
            case_s27_late_holders_are_refused
            random_histories_agree_with_the_ledger
        }
    };
    ($do:ident, processes, $($more:tt)*) => {
        $crate::$do! { $($more)*
            case_s01_holds_never_overlap
            case_s02_the_dead_delay_a_key_for_a_while
            case_s03_a_stopped_holder_knows
            case_s19_opposite_orders
            case_s20_modes_among_processes
            case_s26_a_stopped_grantee_says_so
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_table {
    ($processes:literal; $($case:ident)*) => {
        &[$($crate::conformance::Case { name: stringify!($case), run: $crate::conformance::$case, needs_processes: $processes }),*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($factory:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$case(&$factory);
            }
        )*
    };
}

/// Makes a `#[test]` of every case of one group, named after it; the expression makes the factory, anew for each.
///
/// The groups are `in_process`, which runs on every store, and `processes`, for stores that processes share.
///
/// ```
/// # #[cfg(any())]
/// mod memory {
///     heirlock::conformance_tests!(in_process: heirlock::store::MemoryStore::new());
/// }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($group:ident: $factory:expr) => {
        $crate::__conformance_cases!(__conformance_tests, $group, $factory;);
    };
}

const IN_PROCESS: &[Case] = crate::__conformance_cases!(__conformance_table, in_process, false;);
const PROCESSES: &[Case] = crate::__conformance_cases!(__conformance_table, processes, true;);

/// All cases: first those within a process, then those that need processes.
pub const CASES: &[Case] = &{
    let mut all = [IN_PROCESS[0]; IN_PROCESS.len() + PROCESSES.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < IN_PROCESS.len() { IN_PROCESS[at] } else { PROCESSES[at - IN_PROCESS.len()] };
        at += 1;
    }
    all
};
