//! What becomes of leases when the servers change: a primary is killed or replaced, a slot of a cluster moves, data are lost; while many contend.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    // This program uses a part of what all share.
    #[allow(dead_code)]
    pub(crate) mod random;
    #[allow(dead_code)]
    pub(crate) mod redis;
}

mod cluster;
mod contest;
mod sentinel;

use std::time::Duration;

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}
