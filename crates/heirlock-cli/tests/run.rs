//! `heirlock run`, by spawning the real binary.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{Place, Running, eventually, stderr};
use rustix::process::Signal;

#[test]
fn case_c01_exit_codes() {
    let place = Place::new();
    assert_eq!(place.code(&["run", "a", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(place.code(&["run", "a", "--", "sh", "-c", "kill -TERM $$"]), 143);
    let missing = place.output(&["run", "a", "--", "no-such-command"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("no-such-command"), "{missing:?}");
    let plain = place.path("plain");
    std::fs::write(&plain, "echo hi").unwrap();
    assert_eq!(place.code(&["run", "a", "--", plain.to_str().unwrap()]), 126);
    assert_eq!(place.code(&["run", "--no-such-option", "a", "true"]), 125);
    // None of them has left the lock behind.
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn case_c02_busy_at_once_and_after_a_wait() {
    let place = Place::new();
    let holder = place.holder("a");
    let start = Instant::now();
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    assert_eq!(place.code(&["run", "-n", "-E", "1", "a", "true"]), 1);
    assert_eq!(place.code(&["run", "-w", "0", "a", "true"]), 75);
    assert!(start.elapsed() < Duration::from_secs(2), "three refusals took {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(place.code(&["run", "-w", "0.3", "a", "true"]), 75);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(600), "{took:?}");
    assert_eq!(place.code(&["run", "-n", "b", "true"]), 0);
    drop(holder);
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn case_c02_of_two_at_once_one_is_busy() {
    let place = Place::new();
    let both: Vec<Running> = (0..2).map(|_| Running::start(&mut place.heirlock(&["run", "-n", "a", "--", "sleep", "1"]))).collect();
    let mut codes: Vec<_> = both.into_iter().map(|mut running| running.child.wait().unwrap().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(75)]);
}

#[test]
fn case_c08_fifty_runs_count_to_a_thousand() {
    let place = Place::new();
    let counter = place.path("counter");
    std::fs::write(&counter, "0").unwrap();
    let script = format!("n=$(cat {0}); echo $((n + 1)) > {0}", counter.display());
    std::thread::scope(|threads| {
        for _ in 0..50 {
            threads.spawn(|| {
                for _ in 0..20 {
                    let output = place.output(&["run", "counter", "--", "sh", "-c", &script]);
                    assert!(output.status.success(), "{output:?}");
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(&counter).unwrap().trim(), "1000");
}

#[test]
fn the_command_sees_its_lock() {
    let place = Place::new();
    let output = place.output(&["run", "--slots", "3", "--ttl", "9", "an a", "--", "env"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["HEIRLOCK_NAME=an a", "HEIRLOCK_SLOT=0", "HEIRLOCK_TTL_MS=9000"] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let fence = text.lines().find_map(|line| line.strip_prefix("HEIRLOCK_FENCE=")).unwrap();
    assert!(fence.parse::<u64>().unwrap() > 0);
    assert!(text.contains("HEIRLOCK_STORE=sqlite:/") && text.contains("HEIRLOCK_OWNER="));
}

#[test]
fn input_and_output_pass_through() {
    use std::io::Write;
    let place = Place::new();
    let mut run = place.heirlock(&["run", "a", "--", "cat"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"hi\n").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hi\n"[..], &b""[..]));
}

#[test]
fn signals_reach_the_whole_group() {
    let place = Place::new();
    let script = "trap 'echo got; exit 3' INT; echo held; sleep 600 & wait";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut running = Running::start(&mut place.heirlock(&["run", "a", "--", "sh", "-c", script])).wait_for_line("held");
        running.signal(signal);
        let code = running.child.wait().unwrap().code();
        assert_eq!(code, Some(if signal == Signal::INT { 3 } else { 128 + signal.as_raw() }));
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 0, "after {signal:?}");
    }
}

#[test]
fn a_signal_while_waiting_withdraws() {
    let place = Place::new();
    let holder = place.holder("a");
    let mut waiter = Running::start(&mut place.heirlock(&["run", "a", "true"]));
    let waiting = || String::from_utf8(place.output(&["ls"]).stdout).unwrap().contains("waits 1");
    eventually("it waits", waiting);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.child.wait().unwrap().code(), Some(143));
    assert!(!waiting(), "it left its place in the queue");
    drop(holder);
}

#[test]
fn a_waiter_gets_in_when_the_holder_ends() {
    let place = Place::new();
    let holder = place.holder("a");
    let mut waiter = Running::start(&mut place.heirlock(&["run", "a", "--", "sh", "-c", "exit 5"]));
    eventually("it waits", || String::from_utf8(place.output(&["ls"]).stdout).unwrap().contains("waits 1"));
    drop(holder);
    assert_eq!(waiter.child.wait().unwrap().code(), Some(5));
}

#[test]
fn shared_holders_and_slots_stand_beside_each_other() {
    let place = Place::new();
    let hold = |options: &[&str]| {
        let args: Vec<&str> = ["run"].iter().chain(options).copied().chain(["--", "sh", "-c", "echo held; exec sleep 600"]).collect();
        Running::start(&mut place.heirlock(&args)).wait_for_line("held")
    };
    let readers = [hold(&["-s", "read"]), hold(&["-s", "read"])];
    assert_eq!(place.code(&["run", "-n", "read", "true"]), 75);
    let slots = [hold(&["--slots", "2", "pool"]), hold(&["--slots", "2", "pool"])];
    assert_eq!(place.code(&["run", "-n", "--slots", "2", "pool", "true"]), 75);
    let mismatch = place.output(&["run", "-n", "--slots", "3", "pool", "true"]);
    assert_eq!(mismatch.status.code(), Some(125));
    assert!(stderr(&mismatch).contains("2 slots"), "{mismatch:?}");
    drop((readers, slots));
}

#[test]
fn a_lost_lock_ends_the_command() {
    let place = Place::new();
    let mut running = Running::start(&mut place.heirlock(&[
        "run",
        "--ttl",
        "3",
        "a",
        "--",
        "sh",
        "-c",
        "trap '' TERM; echo held; while :; do sleep 1; done",
    ]))
    .wait_for_line("held");
    std::fs::remove_file(place.path("locks.db")).unwrap();
    let start = Instant::now();
    assert_eq!(running.child.wait().unwrap().code(), Some(79));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}
