//! What the tests of local locks begin with, and what must be so at their end.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heirlock::Worker;
use heirlock::clock::{Clock, ManualClock, Moment};
use heirlock::local::{Condvar, Domain, Mutex, OnceCell, RwLock, Semaphore};

pub(crate) const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

pub(crate) fn worker(name: impl Into<std::borrow::Cow<'static, str>>, priority: i32) -> Worker {
    Worker::new(name).priority(priority)
}

/// A domain whose time stands until it is moved.
pub(crate) fn domain() -> (Domain, ManualClock) {
    let clock = ManualClock::new();
    (Domain::builder().clock(clock.clone()).build(), clock)
}

/// Time passes until who was granted something and is in doubt need not be waited for any more.
pub(crate) fn end_doubt(domain: &Domain, clock: &ManualClock) {
    domain.expire();
    clock.advance(domain.stall_time() / 50);
    domain.expire();
}

/// A clock by which no timer comes, so that what is over is found by whoever looks. How often such clocks are read is counted for each thread apart:
/// the workers of another test look into every domain of the process.
#[derive(Clone, Default)]
pub(crate) struct Still(Arc<AtomicU64>);

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

impl Still {
    pub(crate) fn set(&self, span: Duration) {
        self.0.store(u64::try_from(span.as_nanos()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn reads() -> u64 {
        READS.get()
    }
}

impl Clock for Still {
    fn now(&self) -> Moment {
        READS.set(READS.get() + 1);
        Moment::from_nanos(1_000_000_000 + self.0.load(Ordering::SeqCst))
    }

    fn sleep_for(&self, _: Moment) -> Option<Duration> {
        None
    }
}

/// The same with a lock and a condition.
pub(crate) fn pair() -> (Domain, ManualClock, Mutex<u32>, Condvar) {
    let (domain, clock) = domain();
    let (lock, changed) = (Mutex::named("state", 0).in_domain(&domain), Condvar::named("changed").in_domain(&domain));
    (domain, clock, lock, changed)
}

/// The same with a cell.
pub(crate) fn cell() -> (Domain, ManualClock, OnceCell<u32>) {
    let (domain, clock) = domain();
    let cell = OnceCell::named("cell").in_domain(&domain);
    (domain, clock, cell)
}

/// The same with a lock that is read and written.
pub(crate) fn shared() -> (Domain, ManualClock, RwLock<u32>) {
    let (domain, clock) = domain();
    let lock = RwLock::named("table", 0).in_domain(&domain);
    (domain, clock, lock)
}

/// The same with a semaphore.
pub(crate) fn permits(permits: u32, tracked: bool) -> (Domain, ManualClock, Semaphore) {
    let (domain, clock) = domain();
    let semaphore = Semaphore::named("pool", permits).in_domain(&domain);
    (domain, clock, if tracked { semaphore.tracked() } else { semaphore })
}

/// Nobody holds or waits, and the domain remembers nobody.
#[track_caller]
pub(crate) fn assert_idle(domain: &Domain) {
    assert_eq!(domain.records(), [0; 7]);
}

/// Who holds the one lock that the domain knows, by name, in order.
#[track_caller]
pub(crate) fn holders(domain: &Domain) -> Vec<String> {
    let locks = domain.snapshot().locks;
    assert_eq!(locks.len(), 1);
    let mut names: Vec<_> = locks[0].holders.iter().map(|holder| holder.party.worker.name.clone()).collect();
    names.sort();
    names
}
