//! `Semaphore`: as many at once as there are permits.

mod permit;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

pub use self::permit::{OwnedSemaphorePermit, SemaphorePermit};
use super::acquire::{Acquire, Sealed};
use super::domain::Domain;
use super::graph::Order;
use super::owned::AcquireOwned;
use super::raw::{Permits, Want};
use super::sync::const_fn;
use super::wait::{Held, attempt};
use crate::Result;

/// So many permits, of which each acquire takes one or more until they are given back.
///
/// The most urgent waiter is served first, however many permits it wants: nobody who wants fewer overtakes it. Permits come and go with one
/// compare-and-swap each, as long as nobody waits.
///
/// Anybody may give permits back, or [add](Semaphore::release) some, so it is not known who will let a waiter in: a wait for permits is in no
/// deadlock that is certain. Who holds them is not even recorded, unless the semaphore is [tracked](Semaphore::tracked): then holders inherit the
/// priority of whoever waits.
///
/// ```
/// use heirlock::local::Semaphore;
/// # pollster::block_on(async {
/// static CALLS: Semaphore = Semaphore::named("calls of the API", 10);
/// let permit = CALLS.acquire().priority(5).await?;
/// assert_eq!(CALLS.free_permits(), 9);
/// drop(permit);
/// let many = CALLS.acquire_many(10).await?;
/// assert!(CALLS.try_acquire().unwrap_err().is_would_block());
/// # drop(many);
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    const_fn! {
        /// A semaphore of so many permits, in the global domain. It never has more: what is given back was there before.
        ///
        /// # Panics
        /// If there are 0: nobody could ever acquire any.
        pub const fn new(permits: u32) -> Semaphore {
            Semaphore { permits: Permits::new(some(permits), permits, None) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        ///
        /// # Panics
        /// As [`new`](Semaphore::new).
        pub const fn named(name: &'static str, permits: u32) -> Semaphore {
            Semaphore { permits: Permits::new(some(permits), permits, Some(name)) }
        }
    }

    const_fn! {
        /// A semaphore that begins with so many permits, perhaps none, to which any number may be added by [`release`](Semaphore::release).
        ///
        /// ```
        /// use heirlock::local::Semaphore;
        /// # pollster::block_on(async {
        /// let jobs = Semaphore::unbounded(0);
        /// assert!(jobs.try_acquire().is_err());
        /// jobs.release(2)?;
        /// jobs.acquire_many(2).await?.forget();
        /// assert_eq!(jobs.free_permits(), 0);
        /// # Ok::<(), heirlock::Error>(()) }).unwrap();
        /// ```
        pub const fn unbounded(permits: u32) -> Semaphore {
            Semaphore { permits: Permits::new(permits, u32::MAX, None) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn unbounded_named(name: &'static str, permits: u32) -> Semaphore {
            Semaphore { permits: Permits::new(permits, u32::MAX, Some(name)) }
        }
    }

    /// The semaphore in another domain. One that tracks its holds tracks permits, too.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Semaphore {
        self.permits.set_domain(domain);
        self
    }

    const_fn! {
        /// Records who has permits, so that holders inherit the priority of whoever waits, and snapshots show them. Each acquire and each permit that
        /// is given back then takes the domain's mutex, waited for or not.
        ///
        /// ```
        /// use heirlock::{Worker, local::Semaphore};
        /// # use std::{future::Future, pin::pin, task::{Context, Waker}};
        /// # pollster::block_on(async {
        /// static CONNECTIONS: Semaphore = Semaphore::named("connections", 1).tracked();
        /// let (low, high) = (Worker::new("low"), Worker::new("high").priority(9));
        /// let permit = low.run(CONNECTIONS.acquire()).await?;
        /// let mut wait = pin!(high.run(CONNECTIONS.acquire()));
        /// # let mut cx = Context::from_waker(Waker::noop());
        /// assert!(wait.as_mut().poll(&mut cx).is_pending());
        /// assert_eq!(low.effective_priority(), 9);
        /// # drop(permit);
        /// # Ok::<(), heirlock::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub const fn tracked(mut self) -> Semaphore {
            self.permits.track();
            self
        }
    }

    /// Who is served first; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Semaphore {
        self.permits.raw.set_order(order);
        self
    }

    /// After how many grants to others since it became the oldest the oldest waiter is next, so that it does not starve. Without a limit if
    /// nothing is said here or of the domain.
    ///
    /// # Panics
    /// If the limit is 0.
    #[must_use]
    pub const fn bypass_limit(mut self, limit: u32) -> Semaphore {
        self.permits.raw.set_bypass_limit(limit);
        self
    }

    /// Acquires a permit: a future that also has a priority, a deadline and a timeout. It does nothing before it is first polled; whose acquire it
    /// is, is settled then.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Closed` if the semaphore is [closed](Semaphore::close), before or meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: a permit that it was just granted goes on to the next. A place in the queue is
    /// lost.
    #[inline]
    #[track_caller]
    pub fn acquire(&self) -> Acquire<'_, Semaphore> {
        Acquire::new(self, Location::caller())
    }

    /// Acquires so many permits at once, as [`acquire`](Semaphore::acquire) does one: all of them or none.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire); `Invalid` at once for 0 permits, and for more than the semaphore can have.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// ```
    /// let semaphore = heirlock::local::Semaphore::new(3);
    /// # pollster::block_on(async {
    /// assert!(semaphore.acquire_many(0).await.unwrap_err().is_invalid());
    /// assert!(semaphore.acquire_many(4).await.unwrap_err().is_invalid());
    /// assert_eq!(semaphore.acquire_many(3).await.unwrap().permits(), 3);
    /// # });
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire_many(&self, permits: u32) -> Acquire<'_, Semaphore> {
        Acquire::of(self, Want::levels(permits), Location::caller())
    }

    /// As [`acquire`](Semaphore::acquire), with a permit that keeps the semaphore alive and may go anywhere.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// ```
    /// use heirlock::local::Semaphore;
    /// use std::sync::Arc;
    /// let semaphore = Arc::new(Semaphore::new(1));
    /// let permit = pollster::block_on(semaphore.acquire_owned()).unwrap();
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.free_permits(), 1);
    /// ```
    #[track_caller]
    pub fn acquire_owned(self: &Arc<Self>) -> AcquireOwned<Semaphore> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// As [`acquire_many`](Semaphore::acquire_many), with permits that keep the semaphore alive and may go anywhere.
    ///
    /// # Errors
    /// As [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    #[track_caller]
    pub fn acquire_many_owned(self: &Arc<Self>, permits: u32) -> AcquireOwned<Semaphore> {
        AcquireOwned::of(Arc::clone(self), Want::levels(permits), Location::caller())
    }

    /// Acquires a permit if one is free and nobody waits.
    ///
    /// # Errors
    /// `WouldBlock` otherwise; `Closed` if the semaphore is closed.
    #[inline]
    #[track_caller]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Acquires so many permits if they are free and nobody waits.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire), and `Invalid` as [`acquire_many`](Semaphore::acquire_many).
    #[inline]
    #[track_caller]
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>> {
        attempt(&self.permits, Want::levels(permits), Location::caller()).map(|held| self.guard(held))
    }

    /// As [`try_acquire`](Semaphore::try_acquire), with a permit that keeps the semaphore alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    ///
    /// ```
    /// let semaphore = std::sync::Arc::new(heirlock::local::Semaphore::new(3));
    /// let (one, rest) = (semaphore.try_acquire_owned().unwrap(), semaphore.try_acquire_many_owned(2).unwrap());
    /// assert!(semaphore.try_acquire_owned().unwrap_err().is_would_block());
    /// std::thread::spawn(move || drop((one, rest))).join().unwrap();
    /// assert_eq!(semaphore.free_permits(), 3);
    /// ```
    #[track_caller]
    pub fn try_acquire_owned(self: &Arc<Self>) -> Result<OwnedSemaphorePermit> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Semaphore::try_acquire_many), with permits that keep the semaphore alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_acquire_many`](Semaphore::try_acquire_many).
    #[track_caller]
    pub fn try_acquire_many_owned(self: &Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit> {
        attempt(&self.permits, Want::levels(permits), Location::caller()).map(|held| Arc::clone(self).owned_guard(held))
    }

    /// Acquires a permit on this thread, for code that is not async: [`acquire`](Semaphore::acquire) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    #[track_caller]
    pub fn acquire_blocking(&self) -> Result<SemaphorePermit<'_>> {
        self.acquire().blocking()
    }

    /// Adds permits that nobody had, such as forgotten ones; who waits may get them.
    ///
    /// # Errors
    /// `Overflow`, and nothing is added, if there would be more than the semaphore was made with, or of an unbounded one more than `u32::MAX`.
    ///
    /// ```
    /// let semaphore = heirlock::local::Semaphore::new(2);
    /// assert!(semaphore.release(1).unwrap_err().is_overflow());
    /// semaphore.try_acquire().unwrap().forget();
    /// semaphore.release(1).unwrap();
    /// assert_eq!(semaphore.free_permits(), 2);
    /// ```
    pub fn release(&self, permits: u32) -> Result<()> {
        self.permits.release(permits)
    }

    /// Ends all waits with `Closed`, and from now on nobody acquires any more. Whoever has permits goes on having them. It stays closed.
    ///
    /// A wait that was granted permits and has not been polled since has not got them: they are free again, and it ends with `Closed`, too.
    ///
    /// ```
    /// let semaphore = heirlock::local::Semaphore::named("calls", 1);
    /// semaphore.close();
    /// assert_eq!(semaphore.try_acquire().unwrap_err().to_string(), "semaphore \"calls\" is closed");
    /// ```
    pub fn close(&self) {
        self.permits.close();
    }

    /// Whether it was closed. It may be otherwise a moment later.
    pub fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    /// How many permits are free. It may be otherwise a moment later.
    pub fn free_permits(&self) -> u32 {
        self.permits.free()
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.permits.raw.name()
    }
}

/// # Panics
/// If there are none.
const fn some(permits: u32) -> u32 {
    assert!(
        permits > 0,
        "a semaphore that never has a permit lets nobody in: give it at least 1, or make it unbounded and add permits later"
    );
    permits
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Semaphore");
        out.field("name", &self.name()).field("free", &self.free_permits());
        if self.permits.most() < u32::MAX {
            out.field("of", &self.permits.most());
        }
        out.field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Sealed for Semaphore {
    type Guard<'a> = SemaphorePermit<'a>;

    type Word = Permits;

    #[inline]
    fn word(&self) -> &Permits {
        &self.permits
    }

    #[inline]
    fn guard(&self, held: Held) -> SemaphorePermit<'_> {
        SemaphorePermit::new(&self.permits, held)
    }

    type OwnedGuard = OwnedSemaphorePermit;

    fn owned_guard(self: Arc<Self>, held: Held) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit::new(self, held)
    }
}
