//! Futures that expire, are abandoned, cancelled, forgotten: the cases that are the same for each lock, once for each.

use std::mem::forget;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, once, pause};
use crate::common::random::{Random, seed};
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

    include!("../common/lock_cases.rs");
    include!("../common/lock_storm.rs");
}

mod rlock {
    use super::*;
    use heirlock::local::RLock as Lock;

    const TWICE: Option<Kind> = None;
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("../common/lock_cases.rs");
    include!("../common/lock_storm.rs");
}

/// One key of many.
mod keyed {
    use super::*;
    use crate::common::keyed_lock::Lock;

    const TWICE: Option<Kind> = Some(Kind::Deadlock);
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("../common/lock_cases.rs");
    include!("../common/lock_storm.rs");
}

/// A lock that is only written.
mod written {
    use super::*;
    use crate::common::written::Lock;

    const TWICE: Option<Kind> = Some(Kind::Deadlock);
    const IS_HELD: &str = LOCK_IS_HELD;

    include!("../common/lock_cases.rs");
    include!("../common/lock_storm.rs");
}

/// A semaphore of one permit. Anybody may add another, so nobody waits for itself for certain.
mod permit {
    use super::*;

    type Lock<T> = crate::common::one_permit::Lock<T, true>;

    const TWICE: Option<Kind> = Some(Kind::Timeout);
    const IS_HELD: &str = "semaphore \"db\" has too few free permits";

    include!("../common/lock_cases.rs");
    include!("../common/lock_storm.rs");
}

/// The same where it is not known who has the permit, and nobody is boosted.
mod untracked {
    use super::*;

    type Lock<T> = crate::common::one_permit::Lock<T, false>;

    include!("../common/lock_storm.rs");
}
