//! S01: holds never overlap.

use std::fs;
use std::thread;

use super::Factory;
use super::process::Process;
use super::protocol::{Order, Reply};
use super::tools::{Log, is_empty, ms, open, session};
use super::worker::hold_once;

const HOLDS: u32 = 1_000;
const TTL_MS: u64 = 10_000;

/// **S01** Two processes, one key, 1,000 short holds each: the holds never overlap, and fences strictly increase in the order of the grants.
///
/// What proves it does not come from the store: within every hold a line is appended to a common file at its beginning and at its end, and a
/// file is made that must not be there.
pub fn case_s01_holds_never_overlap(factory: &dyn Factory) {
    let log = Log::new();
    let mut workers = [Process::start(factory), Process::start(factory)];
    for worker in &mut workers {
        worker.order(&Order::Holds { key: "s01".to_owned(), ttl_ms: TTL_MS, times: HOLDS, log: log.path() });
    }
    for worker in &workers {
        assert_eq!(worker.reply(), Reply::Done);
    }
    check(&log, 2 * HOLDS);
    assert!(is_empty(&*open(factory)));
}

/// **S01** within one process: two sessions on two threads instead of two processes, 500 short holds each.
pub fn case_s01_within_a_process(factory: &dyn Factory) {
    let log = Log::new();
    let holds = HOLDS / 2;
    thread::scope(|threads| {
        for _ in 0..2 {
            let (locks, path) = (session(factory), log.path());
            threads.spawn(move || {
                for _ in 0..holds {
                    hold_once(&locks, "s01", ms(TTL_MS), &path).expect("a short hold");
                }
            });
        }
    });
    check(&log, 2 * holds);
    assert!(is_empty(&*open(factory)));
}

/// So many holds, each ended before the next began, with growing fences.
fn check(log: &Log, holds: u32) {
    let text = fs::read_to_string(log.path()).expect("the log is there");
    let mut last = 0;
    let mut count = 0;
    let lines: Vec<&str> = text.lines().collect();
    for hold in lines.chunks(2) {
        let [Some(fence), Some(end)] = [hold[0].strip_prefix("begin "), hold.get(1).and_then(|line| line.strip_prefix("end "))] else {
            panic!("hold {count} overlaps another: {hold:?}");
        };
        assert_eq!(fence, end, "hold {count} overlaps another");
        let fence: u64 = fence.parse().expect("a fence");
        assert!(fence > last, "hold {count} has fence {fence}, and the one before had {last}");
        last = fence;
        count += 1;
    }
    assert_eq!(count, holds);
}
