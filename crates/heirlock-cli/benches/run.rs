//! `heirlock run` beside `flock`, and the size of the binary.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../heirlock/benches/common/mod.rs"]
mod common;

use std::process::{Command, Stdio};
use std::time::Instant;

use common::{Figure, Report, median};

const TIMES: usize = 50;

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
