//! The ledger of leases, as a pure function: rule by rule, at random against a reference, in every order, and the recorded histories.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    pub(crate) mod ledger_invariants;
    pub(crate) mod ledger_naive;
    pub(crate) mod ledger_requests;
    pub(crate) mod ledger_world;
}

mod model;
mod random;
mod rules;
mod vectors;
