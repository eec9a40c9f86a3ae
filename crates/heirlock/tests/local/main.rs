//! The local locks, as one program: each program more has to be linked. Those that count what is allocated are programs of their own.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    pub(crate) mod case_locks;
    pub(crate) mod case_text;
    pub(crate) mod inside;
    pub(crate) mod keyed_lock;
    pub(crate) mod local;
    pub(crate) mod one_permit;
    pub(crate) mod polls;
    pub(crate) mod random;
    pub(crate) mod three;
    pub(crate) mod traced;
    pub(crate) mod turns;
    pub(crate) mod written;
}

mod all;
mod all_waits;
mod arms;
mod awaited;
mod bad_input;
mod barrier;
mod cases;
mod condvar;
mod condvar_futures;
mod condvar_rules;
mod event;
mod foreign;
mod futures;
mod guards;
mod keyed;
mod keyed_keys;
mod leaks;
mod mutex;
mod mutex_rules;
mod once;
mod once_futures;
mod order;
mod promise;
mod promise_ends;
mod rlock;
mod rwlock;
mod rwlock_guards;
mod rwlock_rules;
mod rwlock_workers;
mod semaphore;
mod semaphore_futures;
mod semaphore_order;
mod semaphore_tracked;
mod semaphore_workers;
mod snapshot;
mod upgrade;
mod warnings;
