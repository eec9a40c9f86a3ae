//! The store's time: what every process on this kernel agrees on.

use std::fmt;
use std::fs;

use crate::clock::{BootClock, Clock, wall_micros};

/// An instant of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreTime {
    /// Milliseconds since the kernel's boot, suspend included: expiries are counted in it.
    pub mono_ms: u64,
    /// Microseconds of the wall clock since 1970: only fences are minted from it.
    pub wall_us: u64,
}

/// Where a store takes its time from.
///
/// Requires: all processes that share a file see the same `mono_ms`, which never goes back while [`StoreClock::boot_id`] stays the same.
pub trait StoreClock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> StoreTime;

    /// Names the count that `mono_ms` belongs to: another boot, another count. Asked for when a file is opened.
    fn boot_id(&self) -> String;
}

/// The kernel's own time since boot.
///
/// `CLOCK_BOOTTIME` is shifted within a time namespace (`unshare --time`), so that a container restored elsewhere sees no jump; processes inside
/// and outside would then disagree about every expiry. The shift is taken out again.
#[derive(Clone, Debug)]
pub struct KernelClock {
    /// What the namespace adds to the kernel's count, in nanoseconds.
    shift: i128,
}

impl KernelClock {
    /// Reads the shift of this process's time namespace; a system without namespaces has none.
    pub fn new() -> Self {
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        KernelClock { shift: boottime_shift(&offsets) }
    }
}

impl Default for KernelClock {
    fn default() -> Self {
        KernelClock::new()
    }
}

impl StoreClock for KernelClock {
    fn now(&self) -> StoreTime {
        let nanos = i128::from(BootClock.now().as_nanos()) - self.shift;
        StoreTime { mono_ms: u64::try_from(nanos / 1_000_000).unwrap_or(0), wall_us: wall_micros() }
    }

    fn boot_id(&self) -> String {
        // Not on Linux: no id, and so no re-basing. A lease then outlives a reboot by what the new count is behind.
        fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
    }
}

impl fmt::Debug for dyn StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreClock({:?})", self.now())
    }
}

/// The line `boottime SECONDS NANOSECONDS` of `/proc/self/timens_offsets`.
fn boottime_shift(offsets: &str) -> i128 {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == "boottime").then_some(())?;
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanos: i64 = words.next()?.parse().ok()?;
        Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
    };
    offsets.lines().find_map(parse).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_read_or_none() {
        assert_eq!(boottime_shift("monotonic           7         1\nboottime      172800 500000000\n"), 172_800_500_000_000);
        assert_eq!(boottime_shift("monotonic 0 0\nboottime -3 0\n"), -3_000_000_000);
        assert_eq!(boottime_shift(""), 0);
        assert_eq!(boottime_shift("boottime x y"), 0);
    }

    #[test]
    fn the_kernel_clock_goes_forward() {
        let clock = KernelClock::new();
        let first = clock.now();
        let second = clock.now();
        assert!(first.mono_ms > 0 && second.mono_ms >= first.mono_ms && first.wall_us > 1_600_000_000_000_000);
    }
}
