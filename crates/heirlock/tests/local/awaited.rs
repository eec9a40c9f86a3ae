//! Waits for events, barriers and promises that expire, are abandoned, cancelled, forgotten: the cases that are the same for each, once for each.
//! `cases.rs` has the table; what is each one's own is in `event.rs`, `barrier.rs` and `promise.rs`.

use std::future::Future;
use std::mem::forget;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use crate::common::turns::Turns;
use heirlock::Worker;
use heirlock::clock::Clock;
use heirlock::local::{Await, Domain, Order};

mod event {
    use super::*;
    use heirlock::local::Event as Source;

    const KIND: &str = "event";
    const STAYS: bool = true;

    fn source(domain: &Domain, _: usize) -> Source {
        Source::named("it").in_domain(domain)
    }

    fn come(event: &Source) {
        event.set();
    }

    include!("../common/awaited_cases.rs");
    include!("../common/awaited_bad_input.rs");
}

/// An event that is cleared as soon as it is set.
mod pulse {
    use super::*;
    use heirlock::local::Event as Source;

    const KIND: &str = "event";
    const STAYS: bool = false;

    fn source(domain: &Domain, _: usize) -> Source {
        Source::named("it").in_domain(domain)
    }

    fn come(event: &Source) {
        event.set();
        assert!(event.clear());
    }

    include!("../common/awaited_cases.rs");
    include!("../common/awaited_bad_input.rs");
}

mod barrier {
    use super::*;
    use heirlock::local::Barrier as Source;

    const KIND: &str = "barrier";
    const STAYS: bool = false;

    fn source(domain: &Domain, waits: usize) -> Source {
        Source::named("it", waits + 1).in_domain(domain)
    }

    /// The last one comes.
    fn come(barrier: &Source) {
        assert!(Hand::new(barrier.wait()).ready().unwrap().is_leader());
    }

    include!("../common/awaited_cases.rs");
    include!("../common/awaited_bad_input.rs");
}

mod promise {
    use super::*;

    type Source = heirlock::local::Promise<u8>;

    const KIND: &str = "promise";
    const STAYS: bool = true;

    fn source(domain: &Domain, _: usize) -> Source {
        Source::named("it").in_domain(domain)
    }

    fn come(promise: &Source) {
        assert_eq!(promise.set(1), Ok(()));
    }

    include!("../common/awaited_cases.rs");
    include!("../common/awaited_bad_input.rs");
}
