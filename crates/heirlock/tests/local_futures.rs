//! Futures that expire, are abandoned, cancelled, forgotten: the cases that are the same for each lock, once for each.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod polls;
    pub(crate) mod random;
}

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::polls::{Hand, everywhere, once, pause};
use common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::{Clock, ManualClock};
use heirlock::local::Domain;

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

fn domain() -> (Domain, ManualClock) {
    let clock = ManualClock::new();
    (Domain::builder().clock(clock.clone()).build(), clock)
}

fn worker(name: &str, priority: i32) -> Worker {
    Worker::new(name).priority(priority)
}

/// Nobody holds or waits, and the domain remembers nobody.
#[track_caller]
fn assert_idle(domain: &Domain) {
    assert_eq!(domain.records(), [0; 7]);
}

mod mutex {
    use super::*;
    use heirlock::local::Mutex as Lock;

    const REENTERS: bool = false;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

mod rlock {
    use super::*;
    use heirlock::local::RLock as Lock;

    const REENTERS: bool = true;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}
