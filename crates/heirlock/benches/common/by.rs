//! What a figure's time is told by.
#![allow(dead_code, unreachable_pub)] // Each bench uses its part.

use rustix::time::{ClockId, clock_gettime};

/// A clock. Where one thread does all the work it is that thread's own, which stands while the machine gives its processor to
/// something else; where several work together, the wall's.
#[derive(Clone, Copy)]
pub enum By {
    Wall,
    Thread,
    /// All threads together.
    Process,
}

impl By {
    fn nanos(self) -> u64 {
        let clock = match self {
            By::Wall => ClockId::Monotonic,
            By::Thread => ClockId::ThreadCPUTime,
            By::Process => ClockId::ProcessCPUTime,
        };
        let time = clock_gettime(clock);
        u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
    }

    pub fn start(self) -> Stopwatch {
        Stopwatch { by: self, from: self.nanos() }
    }

    /// Nanoseconds for one of so many.
    pub fn time(self, times: u64, work: impl FnOnce()) -> f64 {
        let watch = self.start();
        work();
        watch.each(times)
    }
}

pub struct Stopwatch {
    by: By,
    from: u64,
}

impl Stopwatch {
    /// Nanoseconds so far for one of so many.
    #[allow(clippy::cast_precision_loss)] // Not that many.
    pub fn each(&self, times: u64) -> f64 {
        (self.by.nanos() - self.from) as f64 / times as f64
    }
}
