//! Tests that need a place of their own, a small disk or another time: each runs itself once more within it, as a process of its own.
#![allow(dead_code)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a test that is run within another place is told.
const INSIDE: &str = "HEIRLOCK_TEST_INSIDE";

/// Where this process is inside, if it is.
pub(crate) fn inside() -> Option<PathBuf> {
    std::env::var_os(INSIDE).map(PathBuf::from)
}

/// Whether unshare(1) may do what the case needs. Where it may not, that is told.
pub(crate) fn can_unshare(case: &str, way: &str) -> bool {
    let can = Command::new("unshare").args([way, "--fork", "true"]).output().is_ok_and(|output| output.status.success());
    if !can {
        not_run(case, &format!("unshare {way}, that is to say root"));
    }
    can
}

/// Told where somebody sees it: who runs the tests may name a file for it.
pub(crate) fn not_run(case: &str, needs: &str) {
    let line = format!("NOT RUN: {case}: it needs {needs}\n");
    eprint!("{line}");
    if let Some(list) = std::env::var_os("HEIRLOCK_NOT_RUN") {
        let mut list = File::options().append(true).create(true).open(list).unwrap();
        list.write_all(line.as_bytes()).unwrap();
    }
}

/// This test program, to run this one test, by this command before it.
pub(crate) fn again(wrapper: &[&str], test: &str, place: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match wrapper {
        [] => Command::new(this),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(this);
            command
        }
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, place);
    command
}

/// Its end; what it said is shown.
#[track_caller]
pub(crate) fn assert_passes(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (told, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "{command:?}: {}\n{told}\n{complaints}", output.status);
    println!("{told}");
}

/// Writes until nothing more fits; what makes room again when it is removed.
pub(crate) fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("filler");
    let mut file = File::create(&path).unwrap();
    // The last blocks one by one.
    for size in [4096, 512, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    path
}
