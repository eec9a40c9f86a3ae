//! Ours and a peer by turns.

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};

use crate::common::{Figure, Report, median};

pub(crate) const ROUNDS: usize = 11;

/// One that ours is compared with: its name, what ratio is aimed at, and one run of it in ns for one of what is counted.
pub(crate) struct Peer<'a> {
    pub(crate) name: &'static str,
    pub(crate) aim: Option<f64>,
    pub(crate) run: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(name: &'static str, aim: impl Into<Option<f64>>, run: impl FnMut() -> f64 + 'a) -> Peer<'a> {
        Peer { name, aim: aim.into(), run: Box::new(run) }
    }
}

/// A row for each peer: medians of alternating rounds, ours before each run of the peer, and the median of their ratios.
pub(crate) fn compare(report: &mut Report, what: &str, mut ours: impl FnMut() -> f64, peers: Vec<Peer<'_>>) {
    for Peer { name, aim, mut run } in peers {
        let (mut of_ours, mut of_peer, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=ROUNDS {
            let (a, b) = (ours(), run());
            if round > 0 {
                of_ours.push(a);
                of_peer.push(b);
                ratios.push(a / b);
            }
        }
        report.add(Figure {
            what: what.into(),
            ours: nanos(median(&mut of_ours)),
            peer: format!("{name} {}", nanos(median(&mut of_peer))),
            measured: median(&mut ratios),
            aim,
            unit: "x",
        });
    }
}

/// A figure of ours that is compared with nothing, the median of several.
pub(crate) fn alone(report: &mut Report, what: String, unit: &'static str, mut run: impl FnMut() -> f64) {
    run();
    let mut runs: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    let measured = median(&mut runs);
    report.add(Figure { what, ours: format!("{measured:.0}{unit}"), peer: "-".into(), measured, aim: None, unit });
}

fn nanos(nanos: f64) -> String {
    if nanos < 100.0 { format!("{nanos:.1} ns") } else { format!("{nanos:.0} ns") }
}

/// What time is told by. Where one thread does all the work it is that thread's own, which stands while the machine gives its processor to
/// something else; where several work together, the wall's.
#[derive(Clone, Copy)]
pub(crate) enum By {
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

    pub(crate) fn start(self) -> Stopwatch {
        Stopwatch { by: self, from: self.nanos() }
    }

    /// Nanoseconds for one of so many.
    pub(crate) fn time(self, times: u64, work: impl FnOnce()) -> f64 {
        let watch = self.start();
        work();
        watch.each(times)
    }
}

pub(crate) struct Stopwatch {
    by: By,
    from: u64,
}

impl Stopwatch {
    /// Nanoseconds so far for one of so many.
    #[allow(clippy::cast_precision_loss)] // Not that many.
    pub(crate) fn each(&self, times: u64) -> f64 {
        (self.by.nanos() - self.from) as f64 / times as f64
    }
}

/// A runtime whose tasks run on so many threads.
pub(crate) fn runtime(threads: usize) -> Runtime {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_time().build().unwrap()
}
