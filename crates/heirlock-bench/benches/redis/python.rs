//! The peers in Python: `ci/peers/redis_locks.py`, run by the interpreter that `ci/bench` names, which has them.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::Figure;
use crate::server;

pub(crate) const LIBRARIES: [&str; 2] = ["redis-py", "python-redis-lock"];
const PYTHON: &str = "HEIRLOCK_BENCH_PYTHON";

/// What it tells; none if there is no such interpreter.
pub(crate) fn run(words: &[&str]) -> Option<Value> {
    let python = std::env::var_os(PYTHON)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/peers/redis_locks.py");
    let output = Command::new(python).arg(script).arg(server()).args(words).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "ci/peers/redis_locks.py {words:?}: {}", output.status);
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The row of what was not run.
pub(crate) fn not_run(what: &str) -> Figure {
    let peer = format!("not run: no {PYTHON}");
    Figure { what: what.into(), ours: "-".into(), peer, measured: f64::NAN, aim: None, unit: "" }
}
