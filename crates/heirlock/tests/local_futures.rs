//! Futures that expire, are abandoned, cancelled, forgotten: the cases that are the same for each lock, once for each.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod keyed_lock;
    pub(crate) mod local;
    pub(crate) mod one_permit;
    pub(crate) mod polls;
    pub(crate) mod random;
    pub(crate) mod written;
}

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::local::{assert_idle, domain, ms, worker};
use common::polls::{Hand, everywhere, once, pause};
use common::random::{Random, seed};
use heirlock::clock::{Clock, ManualClock};
use heirlock::local::Domain;
use heirlock::{Kind, Worker};

/// What is said of a lock that others have.
const LOCK_IS_HELD: &str = "lock \"db\" is held";

mod mutex {
    use super::*;
    use heirlock::local::Mutex as Lock;

    const TWICE: Option<Kind> = Some(Kind::Deadlock);
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

mod rlock {
    use super::*;
    use heirlock::local::RLock as Lock;

    const TWICE: Option<Kind> = None;
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

/// One key of many.
mod keyed {
    use super::*;
    use common::keyed_lock::Lock;

    const TWICE: Option<Kind> = Some(Kind::Deadlock);
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

/// A lock that is only written.
mod written {
    use super::*;
    use common::written::Lock;

    const TWICE: Option<Kind> = Some(Kind::Deadlock);
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

/// A semaphore of one permit. Anybody may add another, so nobody waits for itself for certain.
mod permit {
    use super::*;

    type Lock<T> = common::one_permit::Lock<T, true>;

    const TWICE: Option<Kind> = Some(Kind::Timeout);
    const IS_HELD: &str = "semaphore \"db\" has too few free permits";

    include!("common/lock_cases.rs");
    include!("common/lock_storm.rs");
}

/// The same where it is not known who has the permit, and nobody is boosted.
mod untracked {
    use super::*;

    type Lock<T> = common::one_permit::Lock<T, false>;

    include!("common/lock_storm.rs");
}
