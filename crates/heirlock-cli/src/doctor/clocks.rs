//! Time: what the kernel counts since boot, and the wall clock that fences are minted from.

use std::fs;

use heirlock::observe::span;
use heirlock::store::sqlite::{KernelClock, StoreClock};

use super::Finding;

const TOPIC: &str = "clock";
/// No heirlock is older, in microseconds since 1970: the first of January 2024.
const YOUNGEST_US: u64 = 1_704_067_200_000_000;
/// A wall clock that is corrected by so much is nothing special.
const SLACK_US: u64 = 1_000_000;

pub(super) fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    let clock = KernelClock::new();
    if clock.boot_id().is_empty() {
        findings.push(Finding::warning(
            TOPIC,
            "/proc/sys/kernel/random/boot_id cannot be read, so that a restart goes unnoticed and locks may outlive it by hours: mount /proc",
        ));
    }
    if is_shifted(&fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()) {
        findings.push(Finding::note(TOPIC, "this is a time namespace with a shifted boot clock, which is allowed for"));
    }
    let wall = clock.now().wall_us;
    if wall < YOUNGEST_US {
        findings.push(Finding::warning(TOPIC, format!("{}: set the clock, for fences are minted from it", behind(YOUNGEST_US - wall))));
    }
    findings
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    KernelClock::new().now().wall_us / 1000
}

fn behind(by_us: u64) -> String {
    format!("the wall clock is at least {} behind", span(by_us / 1000))
}

/// Whether the wall clock has reached the largest fence that is known. Those of a file are minted from this clock, others from a server's.
pub(super) fn judge_fences(last: u64, is_file: bool) -> Finding {
    let wall = KernelClock::new().now().wall_us;
    if last <= wall.saturating_add(SLACK_US) {
        return Finding::ok(TOPIC, "boot clock and wall clock are as they should be, and fences are not ahead");
    }
    let ahead = span((last - wall) / 1000);
    Finding::warning(
        TOPIC,
        if is_file {
            format!(
                "fences are {ahead} ahead of the wall clock, which is wrong now or was when they were minted: set it. They go on growing here, but \
                 those of a new file would start below: keep this one"
            )
        } else {
            format!(
                "fences are {ahead} ahead of this machine's wall clock: set the server's, which mints them, or this one, whichever is wrong. They go on \
                 growing for as long as the server keeps its data"
            )
        },
    )
}

/// Whether the kernel's count since boot is shifted here, in the words of `/proc/self/timens_offsets`.
fn is_shifted(offsets: &str) -> bool {
    let mut words =
        offsets.lines().map(str::split_whitespace).find(|line| line.clone().next() == Some("boottime")).into_iter().flatten().skip(1);
    words.any(|word| word != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_shift_is_seen() {
        assert!(is_shifted("monotonic 0 0\nboottime  86400 0\n") && is_shifted("boottime 0 5"));
        assert!(!is_shifted("monotonic 7 1\nboottime 0 0\n") && !is_shifted(""));
    }

    #[test]
    fn fences_ahead_of_the_clock_are_a_warning() {
        let wall = KernelClock::new().now().wall_us;
        assert_eq!(judge_fences(wall, true).level, Level::Ok);
        for (is_file, cure) in [(true, "keep this one"), (false, "set the server's")] {
            let ahead = judge_fences(wall + 3 * 3_600_000_000 + 60_000_000, is_file);
            assert_eq!(ahead.level, Level::Warning);
            assert!(ahead.text.contains("3 h ahead") || ahead.text.contains("180 min ahead"), "{}", ahead.text);
            assert!(ahead.text.contains(cure), "{}", ahead.text);
        }
    }
}
