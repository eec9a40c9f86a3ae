//! The pool, as one program.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    #[allow(dead_code)]
    pub(crate) mod polls;
    pub(crate) mod pools;
    pub(crate) mod traced;
}

mod bad_input;
mod cases;
mod shutdown;
mod tasks;
mod turns;
