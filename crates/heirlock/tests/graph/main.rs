//! The graph of waits, as plain data. `graph_allocations.rs` counts what is allocated, and is a program of its own.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    pub(crate) mod case_text;
    pub(crate) mod graph_naive;
    pub(crate) mod graph_pair;
    pub(crate) mod graph_permit_sentences;
    pub(crate) mod graph_sentences;
    pub(crate) mod graph_upgrade_sentences;
    pub(crate) mod graph_world;
    pub(crate) mod random;
}

mod cases;
mod edges;
mod grants;
mod permits;
mod permits_ends;
mod random;
mod siblings;
mod upgrade;
mod upgrade_cycles;
mod vectors;
