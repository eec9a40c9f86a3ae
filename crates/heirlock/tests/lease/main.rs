//! The holder's side over the memory store.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

#[path = "../common"]
mod common {
    // This program uses a part of what all share.
    #[allow(dead_code)]
    pub(crate) mod polls;
    #[allow(dead_code)]
    pub(crate) mod random;
}

mod again;
mod again_waits;
mod all;
mod holder;
mod many;

const MS: fn(u64) -> Duration = Duration::from_millis;
