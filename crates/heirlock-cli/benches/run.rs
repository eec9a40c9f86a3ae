//! `heirlock run` beside `flock`, and the size of the binary.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../heirlock/benches/common/mod.rs"]
mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Figure, Report, cpu_seconds, median};

const TIMES: usize = 50;
const WAITERS: usize = 10;

fn main() {
    let mut report = Report::new("run");
    let heirlock = env!("CARGO_BIN_EXE_heirlock");
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("bench.db").display());
    let file = folder.path().join("flock");
    let once = |command: &mut Command| {
        let start = Instant::now();
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        start.elapsed().as_secs_f64() * 1e3
    };
    let ours = || once(Command::new(heirlock).args(["run", "--store", &store, "x", "--", "true"]));
    let theirs = || once(Command::new("flock").arg(&file).arg("true"));
    // Warm.
    ours();
    theirs();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        a.push(ours());
        b.push(theirs());
    }
    let (a, b) = (median(&mut a), median(&mut b));
    report.add(Figure {
        what: "heirlock run x -- true; flock f true (medians of 50): over it".into(),
        ours: format!("{a:.2} ms"),
        peer: format!("{b:.2} ms"),
        measured: a - b,
        aim: Some(6.0),
        unit: " ms",
    });
    sizes_and_waits(&mut report, heirlock, &store);
    #[allow(clippy::cast_precision_loss)]
    let size = std::fs::metadata(heirlock).unwrap().len() as f64 / 1e6;
    report.add(Figure {
        what: "the stripped binary".into(),
        ours: format!("{size:.2} MB"),
        peer: "-".into(),
        measured: size,
        aim: Some(12.0),
        unit: " MB",
    });
    report.finish();
}

/// The memory of one that holds and of those that wait, each with its guardian, and what waiting costs.
fn sizes_and_waits(report: &mut Report, heirlock: &str, store: &str) {
    let start = || {
        let mut command = Command::new(heirlock);
        command.args(["run", "--store", store, "job", "--", "sleep", "600"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut runs = vec![start()];
    let is_so = |what: &str, times: usize| {
        let output = Command::new(heirlock).args(["ls", "--store", store]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        shown.lines().filter(|line| line.contains(what)).count() == times
    };
    let until = |what: &str, times: usize| {
        while !is_so(what, times) {
            sleep(Duration::from_millis(20));
        }
    };
    until("held by", 1);
    for waiting in 1..=WAITERS {
        runs.push(start());
        until("waits", waiting);
    }
    sleep(Duration::from_secs(1));
    for (who, run) in [("holds", &runs[0]), ("waits", &runs[1])] {
        let ours = [run.id(), guardian(run)].map(resident);
        report.add(Figure {
            what: format!("memory of a run that {who}: heirlock + guardian"),
            ours: format!("{:.1} + {:.1} MB", ours[0], ours[1]),
            peer: "-".into(),
            measured: ours[0] + ours[1],
            aim: Some(15.0),
            unit: " MB",
        });
    }
    let spent = |run: &Child| cpu_seconds(run.id()) + cpu_seconds(guardian(run));
    let before: Vec<f64> = runs.iter().map(spent).collect();
    let begun = Instant::now();
    sleep(Duration::from_secs(20));
    let span = begun.elapsed().as_secs_f64();
    let shares: Vec<f64> = runs.iter().map(spent).zip(before).map(|(after, before)| (after - before) / span * 100.0).collect();
    #[allow(clippy::cast_precision_loss)]
    let mean = shares[1..].iter().sum::<f64>() / WAITERS as f64;
    for (who, share) in [("the next of the queue", shares[1]), ("the last of ten", shares[WAITERS]), ("the mean of ten", mean)] {
        report.add(Figure {
            what: format!("a run that waits, of one core: {who}"),
            ours: format!("{share:.3}%"),
            peer: "-".into(),
            measured: share,
            aim: Some(0.1),
            unit: "%",
        });
    }
    // Waiters first, so that none of them gets in.
    for run in runs.iter_mut().rev() {
        assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
        run.wait().unwrap();
    }
}

fn guardian(run: &Child) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    children.trim().parse().unwrap()
}

/// The memory of a process that is in use, shared pages included, in MB.
fn resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1e3
}
