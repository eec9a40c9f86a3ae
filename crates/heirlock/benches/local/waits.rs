//! What a waiting future is made of.

use std::time::Duration;

use crate::common::{Figure, Report};
use crate::counting::allocations;
use crate::locks::{AsyncLock, Lock, Ours, Tokio, pass_on};

pub(crate) fn waits(report: &mut Report) {
    sizes(report);
    let ours = of_lock::<Ours>();
    for (name, theirs) in [(Tokio::NAME, of_lock::<Tokio>()), (AsyncLock::NAME, of_lock::<AsyncLock>())] {
        allocated(report, "allocations a wait", ours, format!("{name} {theirs}"));
    }
    let lock = Ours::new();
    let timed = a_wait(|| {
        let [first, second] = [(); 2].map(|()| lock.0.lock().timeout(Duration::from_secs(5)));
        pass_on(first, second);
    });
    allocated(report, "allocations a wait with a timeout", timed, "-".into());
}

fn sizes(report: &mut Report) {
    let (ours, tokio, other) = (Ours::new(), Tokio::new(), AsyncLock::new());
    let size = size_of_val(&ours.0.lock());
    for (name, theirs) in [(Tokio::NAME, size_of_val(&tokio.0.lock())), (AsyncLock::NAME, size_of_val(&other.0.lock()))] {
        report.add(Figure {
            what: "size of the waiting future".into(),
            ours: format!("{size} bytes"),
            peer: format!("{name} {theirs} bytes"),
            measured: f64::from(u32::try_from(size).unwrap()),
            aim: Some(128.0),
            unit: " bytes",
        });
    }
}

fn allocated(report: &mut Report, what: &str, ours: f64, peer: String) {
    report.add(Figure { what: what.into(), ours: format!("{ours}"), peer, measured: ours, aim: Some(0.0), unit: "" });
}

fn of_lock<L: Lock>() -> f64 {
    let lock = L::new();
    a_wait(|| lock.pass_on())
}

/// Allocations of a wait when all is warm.
fn a_wait(mut wait: impl FnMut()) -> f64 {
    const TIMES: u32 = 10_000;
    (0..TIMES).for_each(|_| wait());
    let counted = allocations(|| (0..TIMES).for_each(|_| wait()));
    f64::from(u32::try_from(counted).unwrap()) / f64::from(TIMES)
}
