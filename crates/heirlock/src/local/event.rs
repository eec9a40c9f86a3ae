//! `Event`: something that is so or not, and that is waited for until it is.

use std::fmt;
use std::panic::Location;

use super::awaiting::{Await, Sealed};
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::raw::Raw;
use super::sync::const_fn;
use super::wait::Held;
use crate::Result;

/// A flag that is waited for: who waits goes on when it is set, all at once and the most urgent first, and nobody waits while it is.
///
/// A wait that has begun is over with the next [`set`](Event::set), even if the event is [cleared](Event::clear) again before the wait is polled: it
/// *was* set. Whoever clears an event and then looks at what it is about misses nothing: what was done before a `set` is seen by who returns from a
/// wait, and by who clears it.
///
/// ```
/// use heirlock::local::Event;
/// static READY: Event = Event::named("ready");
/// # pollster::block_on(async {
/// let setter = std::thread::spawn(|| READY.set());
/// READY.wait().priority(3).await?;
/// assert!(READY.is_set());
/// # setter.join().unwrap();
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
///
/// Who will set it is not known, so nobody is boosted by such a wait, and it is in no deadlock. Where one worker is to do something that others wait
/// for, a [`Promise`](super::Promise) says who that is. Snapshots show who waits.
pub struct Event {
    raw: Raw,
}

impl Event {
    const_fn! {
        /// An event in the global domain that is not set.
        pub const fn new() -> Event {
            Event { raw: Raw::new(Kind::Event, None) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str) -> Event {
            Event { raw: Raw::new(Kind::Event, Some(name)) }
        }
    }

    /// The event in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> Event {
        self.raw.set_domain(domain);
        self
    }

    /// Who of those that wait is woken first; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> Event {
        self.raw.set_order(order);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// Whether it is set: one load. Who sees that it is sees what was done before it was set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.raw.is_set()
    }

    /// Sets it, and ends all waits for it; how many there were. If nobody waits that is one atomic operation. Nothing is changed where it is set.
    ///
    /// Whoever is out of time by now is not among them: its wait ends with `Timeout`.
    pub fn set(&self) -> usize {
        self.raw.set()
    }

    /// Makes it not set, and says whether it was: one atomic operation. Waits that begin from now on last until it is set again. Who calls this
    /// sees what was done before the event was set, as often as that was.
    ///
    /// ```
    /// let news = heirlock::local::Event::new();
    /// assert_eq!((news.set(), news.is_set()), (0, true));
    /// assert_eq!((news.clear(), news.clear(), news.is_set()), (true, false, false));
    /// ```
    pub fn clear(&self) -> bool {
        self.raw.clear()
    }

    /// Waits until it is set: a future that also has a priority, a timeout and a deadline. It does nothing before it is first polled; whose wait it is,
    /// is settled then. If the event is set then, that is one load.
    ///
    /// # Errors
    /// `Timeout`, when it was not set in time.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind, and takes nothing from others: a `set` ends all waits, not one.
    ///
    /// ```
    /// use heirlock::local::Event;
    /// use std::time::Duration;
    /// # pollster::block_on(async {
    /// let never = Event::named("never");
    /// let error = never.wait().timeout(Duration::from_millis(5)).await.unwrap_err();
    /// assert_eq!((error.is_timeout(), error.to_string().as_str()), (true, "event \"never\" was not set in time"));
    /// # });
    /// ```
    #[track_caller]
    pub fn wait(&self) -> Await<'_, Event> {
        Await::new(self, Location::caller())
    }

    /// Waits on this thread: [`wait`](Event::wait) for threads.
    ///
    /// # Errors
    /// `WouldBlock` within an async runtime, if it is not set: that would block one of the runtime's threads.
    #[track_caller]
    pub fn wait_blocking(&self) -> Result<()> {
        Await::new(self, Location::caller()).blocking()
    }
}

impl Sealed for Event {
    type Output<'a> = ();

    /// It may be cleared.
    const LASTS: bool = false;

    fn raw(&self) -> &Raw {
        &self.raw
    }

    #[inline]
    fn there(&self) -> Option<Result<()>> {
        self.is_set().then_some(Ok(()))
    }

    fn ended(&self, ended: Result<Held>, _: bool) -> Result<()> {
        ended.map(drop)
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("name", &self.raw.name()).field("set", &self.is_set()).finish_non_exhaustive()
    }
}
