//! Ours and a peer by turns.

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

/// A runtime whose tasks run on so many threads.
pub(crate) fn runtime(threads: usize) -> Runtime {
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.worker_threads(threads).enable_time().build().unwrap()
}
