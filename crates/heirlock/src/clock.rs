//! Time as heirlock counts it: since boot, suspend included, and injectable.

use std::fmt;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::sync::lock;

/// A point in time of one [`Clock`], in nanoseconds since some start of that clock.
///
/// Moments of different clocks, or of different machines, must never be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The end of time.
    pub(crate) const END: Moment = Moment(u64::MAX);

    /// The moment so many nanoseconds after the clock's start.
    pub fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long it is from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment so long before this one, or the clock's start.
    #[must_use]
    pub fn before(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// Saturates at the end of time (584 years).
    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Where time comes from.
///
/// The holder's side judges a lease's validity by its clock alone, so it must go on while the machine is suspended.
pub trait Clock: Send + Sync + 'static {
    /// The time now. Never goes back.
    fn now(&self) -> Moment;

    /// About now, for what is only shown: perhaps some milliseconds old, and cheap. To be compared with what this returned before, and with nothing
    /// else: it may stand while the machine is suspended.
    fn coarse(&self) -> Moment {
        self.now()
    }

    /// For how long a thread may sleep if it must act at `until`: `None` means until [`Clock::on_jump`]'s callback tells it.
    fn sleep_for(&self, until: Moment) -> Option<Duration> {
        Some(until.since(self.now()))
    }

    /// Asks to be called whenever the time jumps. A clock that never jumps ignores this.
    fn on_jump(&self, callback: Box<dyn Fn() + Send + Sync>) {
        drop(callback);
    }
}

/// The machine's clock since boot; it goes on during suspend (`CLOCK_BOOTTIME` on Linux) and no wall clock step moves it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    const ID: rustix::time::ClockId = {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            rustix::time::ClockId::Boottime
        }
        // On macOS CLOCK_MONOTONIC counts suspend, as its manual page says.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            rustix::time::ClockId::Monotonic
        }
    };
}

impl BootClock {
    fn read(id: rustix::time::ClockId) -> Moment {
        let time = rustix::time::clock_gettime(id);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }
}

impl Clock for BootClock {
    fn now(&self) -> Moment {
        BootClock::read(Self::ID)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn coarse(&self) -> Moment {
        BootClock::read(rustix::time::ClockId::MonotonicCoarse)
    }
}

/// Microseconds of the wall clock since 1970, for fences only: they grow across power loss and wipes.
pub fn wall_micros() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// A clock that moves only when it is told to, for tests.
///
/// ```
/// use heirlock::clock::{Clock, ManualClock};
/// use std::time::Duration;
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Manual>);

#[derive(Default)]
struct Manual {
    now: AtomicU64,
    callbacks: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// A clock that stands one second after its start.
    pub fn new() -> Self {
        let clock = ManualClock::default();
        clock.0.now.store(1_000_000_000, Ordering::SeqCst);
        clock
    }

    /// Moves the time on, and tells everybody who asked to be told.
    pub fn advance(&self, span: Duration) {
        self.0.now.fetch_add(nanos(span), Ordering::SeqCst);
        for callback in lock(&self.0.callbacks).iter() {
            callback();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment(self.0.now.load(Ordering::SeqCst))
    }

    fn sleep_for(&self, _until: Moment) -> Option<Duration> {
        None
    }

    fn on_jump(&self, callback: Box<dyn Fn() + Send + Sync>) {
        lock(&self.0.callbacks).push(callback);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

/// A duration as whole milliseconds, rounded up, as every store counts it.
///
/// # Errors
/// `Invalid` for zero and for what overflows the stores' range (a hundred years); `what` names the option.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(heirlock::clock::millis("ttl", Duration::from_micros(1)).unwrap(), 1);
/// assert!(heirlock::clock::millis("ttl", Duration::ZERO).unwrap_err().is_invalid());
/// ```
pub fn millis(what: &str, span: Duration) -> crate::Result<u64> {
    if span.is_zero() {
        return Err(invalid(format!("{what} must not be zero: give at least a millisecond")));
    }
    let up = span.as_nanos().div_ceil(1_000_000);
    match u64::try_from(up) {
        Ok(ms) if ms <= MAX_MILLIS => Ok(ms),
        _ => Err(invalid(format!("{what} is too long: give at most {} days", MAX_MILLIS / 86_400_000))),
    }
}

/// The longest duration that a store takes: a hundred years, so that no sum of instants overflows.
const MAX_MILLIS: u64 = 100 * 365 * 86_400_000;

fn invalid(what: String) -> crate::Error {
    crate::Error::new(crate::Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_goes_forward() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(second >= first && first.as_nanos() > 0);
    }

    #[test]
    fn millis_round_up_and_refuse_the_ends() {
        assert_eq!(millis("x", Duration::from_nanos(1_000_001)).unwrap(), 2);
        assert_eq!(millis("x", Duration::from_millis(5)).unwrap(), 5);
        assert!(millis("x", Duration::MAX).unwrap_err().to_string().contains("x is too long"));
    }

    #[test]
    fn a_manual_clock_tells_of_its_jumps() {
        let clock = ManualClock::new();
        let told = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&told);
        clock.on_jump(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        clock.advance(Duration::from_millis(7));
        assert_eq!(told.load(Ordering::SeqCst), 1);
    }
}
