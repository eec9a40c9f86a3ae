//! `Barrier`: so many wait for each other.

use std::fmt;
use std::panic::Location;

use super::awaiting::{Await, Sealed};
use super::domain::Domain;
use super::graph::Order;
use super::raw::Raw;
use super::sync::const_fn;
use super::wait::Held;
use crate::Result;

/// A point at which so many wait until all of them have come. Then all go on, and it is ready for the next round at once.
///
/// Each wait is one arrival, also of several arms of one task. Who is dropped, or out of time, before the round is complete has not arrived.
///
/// ```
/// use heirlock::local::Barrier;
/// static START: Barrier = Barrier::named("start", 3);
/// let arrive = || std::thread::spawn(|| START.wait_blocking().unwrap().is_leader());
/// let threads = [arrive(), arrive(), arrive()];
/// let leaders = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|leads| *leads);
/// assert_eq!(leaders.count(), 1);
/// ```
///
/// Who has yet to come is not known, so nobody is boosted by such a wait, and it is in no deadlock. Snapshots show who waits.
pub struct Barrier {
    raw: Raw,
    parties: usize,
}

/// How a wait at a [`Barrier`] ended: all have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    leads: bool,
}

impl Arrival {
    /// Whether this was the last to come, who completed the round: exactly one of each round.
    pub fn is_leader(self) -> bool {
        self.leads
    }
}

impl Barrier {
    const_fn! {
        /// A barrier in the global domain, at which so many wait for each other.
        ///
        /// # Panics
        /// If that is 0: a round of nobody would never be complete.
        pub const fn new(parties: usize) -> Barrier {
            Barrier { raw: Raw::barrier(at_least_one(parties), None), parties }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        ///
        /// # Panics
        /// As [`new`](Barrier::new).
        pub const fn named(name: &'static str, parties: usize) -> Barrier {
            Barrier { raw: Raw::barrier(at_least_one(parties), Some(name)), parties }
        }
    }

    /// The barrier in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Barrier {
        self.raw.set_domain(domain);
        self
    }

    /// Who of those that wait is woken first when a round is complete; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Barrier {
        self.raw.set_order(order);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// How many complete a round.
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// Arrives, and waits for the others: a future that also has a priority, a timeout and a deadline. It does nothing before it is first polled: then
    /// it arrives, and whose wait it is, is settled.
    ///
    /// # Errors
    /// `Timeout`, when the round was not complete in time. Then this wait has not arrived, and the round needs another.
    ///
    /// # Cancel safety
    /// Dropping the future before the round is complete takes its arrival back. After that the round is complete, also if the future was never polled
    /// again.
    ///
    /// ```
    /// use heirlock::local::Barrier;
    /// use std::time::Duration;
    /// # pollster::block_on(async {
    /// let alone = Barrier::new(2);
    /// assert!(alone.wait().timeout(Duration::from_millis(5)).await.unwrap_err().is_timeout());
    /// # });
    /// ```
    #[track_caller]
    pub fn wait(&self) -> Await<'_, Barrier> {
        Await::new(self, Location::caller())
    }

    /// Arrives and waits on this thread: [`wait`](Barrier::wait) for threads.
    ///
    /// # Errors
    /// `WouldBlock` within an async runtime, if the round is not complete by this: waiting would block one of the runtime's threads.
    #[track_caller]
    pub fn wait_blocking(&self) -> Result<Arrival> {
        Await::new(self, Location::caller()).blocking()
    }
}

/// A number of parties that is one.
const fn at_least_one(parties: usize) -> usize {
    assert!(parties > 0, "a barrier of 0 would never let anybody pass: give at least 1");
    parties
}

impl Sealed for Barrier {
    type Output<'a> = Arrival;

    const LASTS: bool = false;

    fn raw(&self) -> &Raw {
        &self.raw
    }

    /// Nobody passes without having arrived.
    #[inline]
    fn there(&self) -> Option<Result<Arrival>> {
        None
    }

    /// Who did not have to wait completed the round.
    fn ended(&self, ended: Result<Held>, at_once: bool) -> Result<Arrival> {
        ended.map(|_| Arrival { leads: at_once })
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("name", &self.raw.name()).field("parties", &self.parties).finish_non_exhaustive()
    }
}
