//! Futures that expire, are abandoned, cancelled, forgotten: the cases that are the same for each lock, once for each.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod keyed_lock;
    pub(crate) mod local;
    pub(crate) mod polls;
    pub(crate) mod random;
}

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::local::{assert_idle, domain, ms, worker};
use common::polls::{Hand, everywhere, once, pause};
use common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::{Clock, ManualClock};
use heirlock::local::Domain;

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

/// One key of many.
mod keyed {
    use super::*;
    use common::keyed_lock::Lock;

    const REENTERS: bool = false;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}
