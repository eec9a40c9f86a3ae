//! `heirlock run`, by spawning the real binary.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Place, Running, Store, eventually, over_each_store, stderr};
use rustix::process::Signal;

over_each_store!(
    case_c01_exit_codes,
    case_c02_busy_at_once_and_after_a_wait,
    case_c02_of_two_at_once_one_is_busy,
    case_c08_fifty_runs_count_to_a_thousand,
    case_c07_input_and_output_pass_through,
    the_command_sees_its_lock,
    signals_reach_the_whole_group,
    a_signal_while_waiting_withdraws,
    a_waiter_gets_in_when_the_holder_ends,
    shared_holders_and_slots_stand_beside_each_other,
    a_lost_lock_ends_those_whom_the_leader_leaves_behind,
    a_command_that_a_supervisor_stops_keeps_its_lock,
    a_lost_lock_ends_the_command,
);

fn case_c01_exit_codes(store: Store) {
    let place = Place::over(store);
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

fn case_c02_busy_at_once_and_after_a_wait(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("a");
    for (options, code) in [(&["-n"][..], 75), (&["-n", "-E", "1"], 1), (&["-w", "0"], 75)] {
        let start = Instant::now();
        assert_eq!(place.code(&[&["run"], options, &["a", "true"]].concat()), code, "{options:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{options:?} took {:?}", start.elapsed());
    }
    let start = Instant::now();
    assert_eq!(place.code(&["run", "-w", "0.3", "a", "true"]), 75);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(600), "{took:?}");
    assert_eq!(place.code(&["run", "-n", "b", "true"]), 0);
    drop(holder);
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

fn case_c02_of_two_at_once_one_is_busy(store: Store) {
    let place = Place::over(store);
    let go = place.path("go");
    let script = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let mut both: Vec<Running> =
        (0..2).map(|_| Running::start(&mut place.heirlock(&["run", "-n", "a", "--", "sh", "-c", &script]))).collect();
    let mut refused = None;
    eventually("one is refused", || {
        refused = both.iter_mut().position(|running| running.child.try_wait().unwrap().is_some());
        refused.is_some()
    });
    let mut first = both.swap_remove(refused.unwrap());
    assert_eq!(first.child.wait().unwrap().code(), Some(75));
    std::fs::write(&go, "").unwrap();
    assert_eq!(both[0].child.wait().unwrap().code(), Some(0));
}

fn case_c08_fifty_runs_count_to_a_thousand(store: Store) {
    let place = Place::over(store);
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

fn the_command_sees_its_lock(store: Store) {
    let place = Place::over(store);
    let output = place.output(&["run", "--slots", "3", "--ttl", "9", "an a", "--", "env"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in ["HEIRLOCK_NAME=an a", "HEIRLOCK_SLOT=0", "HEIRLOCK_TTL_MS=9000"] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let fence = text.lines().find_map(|line| line.strip_prefix("HEIRLOCK_FENCE=")).unwrap();
    assert!(fence.parse::<u64>().unwrap() > 0);
    assert!(text.lines().any(|line| line == format!("HEIRLOCK_STORE={}", place.store())) && text.contains("HEIRLOCK_OWNER="), "{text}");
}

fn case_c07_input_and_output_pass_through(store: Store) {
    use std::io::Write;
    let place = Place::over(store);
    let mut run = place.heirlock(&["run", "a", "--", "cat"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"hi\n").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hi\n"[..], &b""[..]));
}

fn signals_reach_the_whole_group(store: Store) {
    let place = Place::over(store);
    // A shell's background command ignores INT and QUIT, and the lock is held as long as it runs.
    let script = "trap 'kill $!; echo got; exit 3' INT; trap 'kill $!; trap - QUIT; kill -QUIT $$' QUIT; sleep 600 & echo held; wait";
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let mut running = Running::start(&mut place.heirlock(&["run", "a", "--", "sh", "-c", script])).wait_for_line("held");
        running.signal(signal);
        let code = running.child.wait().unwrap().code();
        assert_eq!(code, Some(if signal == Signal::INT { 3 } else { 128 + signal.as_raw() }));
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 0, "after {signal:?}");
    }
}

#[test]
fn what_a_command_may_want_to_hear_of_is_forwarded() {
    let place = Place::new();
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::WINCH, "WINCH")] {
        let script = format!("trap 'exit 9' {name}; echo held; while :; do sleep 0.02; done");
        let mut running = Running::start(&mut place.heirlock(&["run", "a", "--", "bash", "-c", &script])).wait_for_line("held");
        running.signal(signal);
        assert_eq!(running.child.wait().unwrap().code(), Some(9), "{name}");
    }
}

fn a_signal_while_waiting_withdraws(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("a");
    let mut waiter = Running::start(&mut place.heirlock(&["run", "a", "true"]));
    let waiting = || String::from_utf8(place.output(&["ls"]).stdout).unwrap().contains("waits 1");
    eventually("it waits", waiting);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.child.wait().unwrap().code(), Some(143));
    assert!(!waiting(), "it left its place in the queue");
    drop(holder);
}

fn a_waiter_gets_in_when_the_holder_ends(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("a");
    let mut waiter = Running::start(&mut place.heirlock(&["run", "a", "--", "sh", "-c", "exit 5"]));
    place.eventually_waits();
    drop(holder);
    assert_eq!(waiter.child.wait().unwrap().code(), Some(5));
}

fn shared_holders_and_slots_stand_beside_each_other(store: Store) {
    let place = Place::over(store);
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

fn a_lost_lock_ends_those_whom_the_leader_leaves_behind(store: Store) {
    let place = Place::over(store);
    let pid = place.path("pid");
    let script = format!("(trap '' TERM; sh -c 'echo $PPID' > {}; echo held; while :; do sleep 0.1; done) & wait", pid.display());
    let mut running = Running::start(&mut place.heirlock(&["run", "--ttl", "3", "a", "--", "sh", "-c", &script])).wait_for_line("held");
    let member: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    place.forget_all();
    assert_eq!(running.child.wait().unwrap().code(), Some(79));
    let stat = std::fs::read_to_string(format!("/proc/{member}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "it runs on: {stat}");
}

fn a_command_that_a_supervisor_stops_keeps_its_lock(store: Store) {
    let place = Place::over(store);
    let mut command = place.heirlock(&["run", "--ttl", "3", "a", "--", "sh", "-c", "echo $$ >&2; read line; exit 6"]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    // The command has its own group, whose number is the leader's.
    let leader: i32 = {
        use std::io::{BufRead, BufReader};
        let mut line = String::new();
        BufReader::new(running.child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    };
    let leader = rustix::process::Pid::from_raw(leader).unwrap();
    rustix::process::kill_process(leader, Signal::STOP).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3_500) {
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    }
    rustix::process::kill_process(leader, Signal::CONT).unwrap();
    // Until now its stdin was open, so that it could not end by itself.
    drop(running.child.stdin.take());
    assert_eq!(running.child.wait().unwrap().code(), Some(6));
}

#[test]
fn the_command_starts_with_our_signals_and_its_end_is_seen() {
    let place = Place::new();
    let signals = ["-E", "SigBlk|SigIgn", "/proc/self/status"];
    let without = std::process::Command::new("grep").args(signals).output().unwrap();
    let within = place.heirlock(&["run", "a", "--", "grep"]).args(signals).output().unwrap();
    assert_eq!(String::from_utf8(within.stdout), String::from_utf8(without.stdout));
    // What the caller ignores, or does not, beyond what Rust and we do ourselves.
    for ignored in [&[][..], &["PIPE"], &["CHLD"], &["PIPE", "CHLD", "USR1"]] {
        let under = |words: &[&str]| {
            let mut command = std::process::Command::new("env");
            command.args(["--default-signal=PIPE,CHLD,USR1"]).args(ignored.iter().map(|name| format!("--ignore-signal={name}")));
            command.args(words).args(signals).env("HEIRLOCK_STORE", place.store());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let mask =
            |text: &str| u64::from_str_radix(text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim(), 16).unwrap();
        let (without, within) = (under(&["grep"]), under(&[env!("CARGO_BIN_EXE_heirlock"), "run", "a", "--", "grep"]));
        assert_eq!(within, without, "{ignored:?}");
        let expected = [("PIPE", Signal::PIPE), ("CHLD", Signal::CHILD), ("USR1", Signal::USR1)];
        for (name, signal) in expected {
            assert_eq!(mask(&within) >> (signal.as_raw() - 1) & 1 == 1, ignored.contains(&name), "{name} of {ignored:?}: {within}");
        }
    }
    let mut ignoring = std::process::Command::new("env");
    ignoring.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_heirlock"), "run", "a", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ignoring.env("HEIRLOCK_STORE", place.store()).status().unwrap().code(), Some(3));
}

#[test]
fn a_nested_run_finds_the_same_store() {
    let place = Place::new();
    let folder = place.path("a%20b?c");
    std::fs::create_dir(&folder).unwrap();
    let store = format!("sqlite:{}/l.db?prefix=app/%23", folder.display().to_string().replace('%', "%25").replace('?', "%3F"));
    let nested = format!("{} run -n a true; echo $?", env!("CARGO_BIN_EXE_heirlock"));
    let output = place.output(&["run", "--store", &store, "a", "--", "sh", "-c", &format!("cd /; {nested}")]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "75");
    assert_eq!(std::fs::read_dir(&place.folder).unwrap().count(), 1, "no other store was made");
}

#[test]
fn a_signal_ends_the_wait_for_a_busy_store() {
    let place = Place::new();
    assert_eq!(place.code(&["run", "a", "true"]), 0);
    let holder = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut waiting = Running::start(&mut place.heirlock(&["run", "a", "true"]));
    eventually("it has started its threads", || {
        std::fs::read_dir(format!("/proc/{}/task", waiting.pid())).is_ok_and(|tasks| tasks.count() > 1)
    });
    let start = Instant::now();
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.child.wait().unwrap().code(), Some(143));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

fn a_lost_lock_ends_the_command(store: Store) {
    let place = Place::over(store);
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
    place.forget_all();
    let start = Instant::now();
    assert_eq!(running.child.wait().unwrap().code(), Some(79));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}
