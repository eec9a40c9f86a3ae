//! S20: readers and writers, and slots.

use std::collections::HashMap;
use std::fs;
use std::thread;

use super::Factory;
use super::chance::Chance;
use super::process::Process;
use super::protocol::{Order, Reply};
use super::tools::{FOR_EVER, Log, get, is_empty, ms, open, session, view, wait_for, wait_for_queue};
use super::worker::hold_in_some_mode;
use crate::lease::{Mode, Store};

/// How many slots the key of slots has.
pub(super) const SLOTS: u32 = 3;
const TIMES: u32 = 300;
const TTL_MS: u64 = 10_000;

/// **S20** Readers and writers, and 3 slots: never a writer beside anyone, never more than 3, slot indexes distinct, per-slot fences increase. In four
/// processes, which tell in a common file when they begin and end to hold.
pub fn case_s20_modes_among_processes(factory: &dyn Factory) {
    let mut chance = Chance::of("S20");
    let log = Log::new();
    let mut workers: [Process; 4] = std::array::from_fn(|_| Process::start(factory));
    for worker in &mut workers {
        worker.order(&Order::HoldInModes { ttl_ms: TTL_MS, times: TIMES, seed: chance.next(), log: log.path() });
    }
    for worker in &workers {
        assert_eq!(worker.reply_within(3 * FOR_EVER), Reply::Done);
    }
    check(&log, 4 * TIMES);
    assert!(is_empty(&*open(factory)));
}

/// **S20** within one process: four sessions on four threads instead of four processes; and step by step, with n = 4 while n = 3 is in use.
pub fn case_s20_within_a_process(factory: &dyn Factory) {
    let mut chance = Chance::of("S20");
    let store = open(factory);
    readers_and_writers(factory, &*store);
    slots(factory, &*store);
    wait_for("the last lease to be given back", || is_empty(&*store));
    let log = Log::new();
    thread::scope(|threads| {
        for _ in 0..4 {
            let (locks, path, mut chance) = (session(factory), log.path(), chance.fork());
            threads.spawn(move || {
                for _ in 0..TIMES {
                    hold_in_some_mode(&locks, &mut chance, ms(TTL_MS), &path).expect("a short hold");
                }
            });
        }
    });
    check(&log, 4 * TIMES);
    assert!(is_empty(&*store));
}

fn readers_and_writers(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let readers = [get(locks.lock("rw").shared()), get(others.lock("rw").shared())];
    assert_eq!(readers[0].fence(), readers[1].fence(), "readers of one generation share a fence");
    assert!(others.try_lock("rw").blocking().expect_err("it is read").is_busy());
    thread::scope(|threads| {
        let writer = threads.spawn(|| get(others.lock("rw")));
        wait_for_queue(store, "rw", 1);
        assert!(locks.try_lock("rw").shared().blocking().expect_err("a writer waits").is_busy());
        let late = threads.spawn(|| get(locks.lock("rw").shared()));
        wait_for_queue(store, "rw", 2);
        let [first, second] = readers;
        let fence = first.fence();
        drop(first);
        wait_for("one reader to go", || view(store, "rw").holders.len() == 1);
        assert_eq!(view(store, "rw").queue.len(), 2, "the other still reads");
        drop(second);
        let writer = writer.join().expect("no panic");
        let now = view(store, "rw");
        assert_eq!((now.holders.len(), now.holders[0].mode, now.queue.len()), (1, Mode::Exclusive, 1));
        assert!(writer.fence() > fence && !late.is_finished());
        let fence = writer.fence();
        drop(writer);
        assert!(late.join().expect("no panic").fence() > fence);
    });
}

fn slots(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let mut held: Vec<_> = [&locks, &others, &locks].map(|locks| get(locks.lock("slots").slots(SLOTS))).into();
    let mut indexes: Vec<u32> = held.iter().filter_map(crate::Lease::slot).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2]);
    assert!(others.try_lock("slots").slots(SLOTS).blocking().expect_err("all are taken").is_busy());
    for (other, call) in
        [("4 slots", locks.lock("slots").slots(4)), ("alone", others.lock("slots")), ("shared", locks.lock("slots").shared())]
    {
        let error = call.timeout(FOR_EVER).blocking().expect_err("three slots are in use");
        assert!(error.is_invalid() && error.to_string().contains("3 slots"), "{other}: {error}");
    }
    assert_eq!(view(store, "slots").queue.len(), 0);
    thread::scope(|threads| {
        let next = threads.spawn(|| get(others.lock("slots").slots(SLOTS)));
        wait_for_queue(store, "slots", 1);
        let gone = held.swap_remove(1);
        let (slot, fence) = (gone.slot(), gone.fence());
        drop(gone);
        let next = next.join().expect("no panic");
        assert_eq!(next.slot(), slot, "the one that was free");
        assert!(next.fence() > fence);
    });
    drop(held);
    wait_for("the slots to be given back", || view(store, "slots").holders.is_empty());
    assert_eq!(get(others.lock("slots").slots(4)).slot(), Some(0), "a key that is not in use has any number of slots");
}

/// Reads the log of [`hold_in_some_mode`]. What overlaps there overlapped in truth: a beginning is written after the lease came, an end before it went.
fn check(log: &Log, holds: u32) {
    let text = fs::read_to_string(log.path()).expect("the log is there");
    let mut inside: Vec<(&str, u64)> = Vec::new();
    let mut last: HashMap<&str, u64> = HashMap::new();
    let (mut begun, mut most) = (0, HashMap::new());
    for line in text.lines() {
        let [what, how, fence] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("a line of the log: {line:?}") };
        let fence: u64 = fence.parse().expect("a fence");
        if what == "end" {
            let at = inside.iter().position(|held| *held == (how, fence)).expect("it had begun");
            inside.swap_remove(at);
            continue;
        }
        begun += 1;
        // Readers and writers have one sequence of fences, each slot has its own.
        let is_slot = how.starts_with("slot");
        let before = last.insert(if is_slot { how } else { "alone" }, fence).unwrap_or(0);
        let beside: Vec<_> = inside.iter().filter(|(other, _)| other.starts_with("slot") == is_slot).collect();
        let is_right = match how {
            "writer" => beside.is_empty() && fence > before,
            // Readers that hold at one time are of one generation.
            "reader" => beside.iter().all(|held| **held == (how, fence)) && fence >= before,
            "slot0" | "slot1" | "slot2" => beside.iter().all(|(other, _)| *other != how) && fence > before,
            _ => false,
        };
        assert!(is_right, "{line} beside {beside:?}, after {before}");
        let count: &mut usize = most.entry(how.trim_end_matches(char::is_numeric)).or_default();
        *count = (beside.len() + 1).max(*count);
        inside.push((how, fence));
    }
    println!("most at once: {most:?}");
    assert_eq!((begun, inside.len()), (holds, 0));
}
