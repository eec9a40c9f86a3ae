//! What becomes of a command and its lock when it, heirlock, or its guardian is killed or stopped.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use common::tree::{lives, next_finds_nobody, pid, run_tree};
use common::{Place, Running, Store, eventually, over_each_store, stderr};
use rustix::process::{Pid, Signal, kill_process};

over_each_store!(
    case_c03_term_reaches_all_and_the_lock_waits_for_them,
    case_c03_who_ignores_term_is_not_killed,
    case_c04_heirlock_is_killed,
    case_c05_heirlock_is_stopped,
    case_c05_the_guardian_is_killed,
    case_c06_an_evicted_command_is_asked_to_end_and_excludes_until_it_has,
    case_c07_a_daemon_does_not_keep_the_lock_and_a_group_does,
    case_c11_a_nested_run_does_not_wait_for_itself,
    case_c11_slots_that_are_all_held_above_are_not_waited_for,
    case_c12_the_lock_rests_until_it_was_held_long_enough,
    a_guardian_that_is_stopped_does_not_let_the_command_outlive_its_lock,
    a_guardian_that_was_stopped_for_too_long_starts_nothing,
    a_heirlock_that_is_killed_while_it_waits_leaves_the_queue,
    a_run_whose_guardian_is_killed_while_it_waits_leaves_the_queue,
    a_command_that_ended_in_time_has_its_own_code_however_late_heirlock_is,
    an_eviction_is_told_as_one_though_the_guardian_is_stopped,
    what_happens_on_a_loss_can_be_chosen,
    a_command_is_ended_when_it_has_held_for_long_enough,
);

/// How often the cases of killed and stopped processes are run: more often under `ci/faults`.
fn rounds() -> u32 {
    std::env::var("HEIRLOCK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

fn case_c03_term_reaches_all_and_the_lock_waits_for_them(store: Store) {
    for _ in 0..rounds() {
        let place = Place::over(store);
        let file = place.path("lives");
        // Who is told has its number written before anything is said.
        let script = format!(
            "echo $$ > {1}; (trap 'until [ -e {0}.end ]; do sleep 0.02; done; rm {0}; exit' TERM; touch {0}; echo held; \
             while :; do sleep 0.02; done) & wait",
            file.display(),
            place.path("leader").display()
        );
        let mut running = Running::start(&mut place.heirlock(&["run", "job", "--", "sh", "-c", &script])).wait_for_line("held");
        running.signal(Signal::TERM);
        // Its leader ends at once.
        let leader = pid(&place.path("leader"));
        eventually("its leader has ended", || !lives(leader));
        assert_eq!(place.code(&["run", "-n", "job", "true"]), 75, "a child of the command lives");
        std::fs::write(place.path("lives.end"), "").unwrap();
        eventually("the lock is free", || {
            let code = place.code(&["run", "-n", "job", "true"]);
            // Looked at after the answer: who is refused may be so for the last time.
            assert!(code == 75 || !file.exists(), "{code}, and a child of the command lives");
            code == 0
        });
        assert_eq!(running.child.wait().unwrap().code(), Some(143));
    }
}

fn case_c03_who_ignores_term_is_not_killed(store: Store) {
    let place = Place::over(store);
    let mut command = place.heirlock(&["run", "--ttl", "3", "job", "--", "sh", "-c", "trap '' TERM; echo held; read line; exit 5"]);
    let mut running = Running::start(command.stdin(Stdio::piped())).wait_for_line("held");
    running.signal(Signal::TERM);
    // Longer than any grace.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(place.code(&["run", "-n", "job", "true"]), 75);
    }
    drop(running.child.stdin.take());
    assert_eq!(running.child.wait().unwrap().code(), Some(5));
}

fn case_c04_heirlock_is_killed(store: Store) {
    for round in 0..rounds() {
        let place = Place::over(store);
        // Some of them do not listen to TERM, and are killed when the grace is over.
        let own = if round % 2 == 0 { ":" } else { "trap '' TERM" };
        let (mut running, tree, guardian) = run_tree(&place, &["--ttl", "60", "--grace", "1"], own);
        running.child.kill().unwrap();
        let since = Instant::now();
        running.child.wait().unwrap();
        next_finds_nobody(&place, tree);
        let took = since.elapsed();
        assert!(took < Duration::from_secs(3), "grace and 2 s: {took:?}");
        eventually("the guardian ends", || !lives(guardian));
    }
}

fn case_c05_heirlock_is_stopped(store: Store) {
    let one = || {
        let place = Place::over(store);
        let (mut running, tree, _) = run_tree(&place, &["--ttl", "3"], "trap '' TERM");
        running.signal(Signal::STOP);
        next_finds_nobody(&place, tree);
        running.signal(Signal::CONT);
        assert_eq!(running.child.wait().unwrap().code(), Some(79));
    };
    // Each waits for a ttl: side by side.
    std::thread::scope(|threads| (0..rounds()).for_each(|_| drop(threads.spawn(one))));
}

fn case_c05_the_guardian_is_killed(store: Store) {
    for _ in 0..rounds() {
        let place = Place::over(store);
        let (running, tree, guardian) = run_tree(&place, &["--ttl", "9", "--grace", "0.3"], "trap '' TERM");
        kill_process(guardian, Signal::KILL).unwrap();
        let output = running.finish();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("its guardian was killed"), "{}", stderr(&output));
        assert!(tree.iter().all(|pid| !lives(*pid)), "{tree:?}");
        next_finds_nobody(&place, tree);
    }
}

fn a_guardian_that_is_stopped_does_not_let_the_command_outlive_its_lock(store: Store) {
    let place = Place::over(store);
    let (running, tree, guardian) = run_tree(&place, &["--ttl", "3"], "trap '' TERM");
    kill_process(guardian, Signal::STOP).unwrap();
    place.forget_all();
    let output = running.finish();
    assert_eq!(output.status.code(), Some(79), "{}", stderr(&output));
    assert!(stderr(&output).contains("did not end it in time"), "{}", stderr(&output));
    assert!(tree.iter().all(|pid| !lives(*pid)), "{tree:?}");
}

/// One that waits for the lock, and its guardian.
fn waiting(place: &Place, options: &[&str], script: &str) -> (Running, Pid) {
    let args: Vec<&str> = ["run"].iter().chain(options).chain(&["job", "--", "sh", "-c", script]).copied().collect();
    let waiting = Running::start(&mut place.heirlock(&args));
    place.eventually_waits();
    let children = format!("/proc/{0}/task/{0}/children", waiting.pid());
    let guardian = Pid::from_raw(std::fs::read_to_string(children).unwrap().trim().parse().unwrap()).unwrap();
    (waiting, guardian)
}

/// Ends the holder, and returns when another holds.
fn hand_over(place: &Place, holder: Running) {
    let before = format!("\"pid\":{},", holder.pid());
    drop(holder);
    eventually("the next one holds", || {
        let output = place.output(&["show", "--json", "job"]);
        output.status.success() && !String::from_utf8_lossy(&output.stdout).contains(&before)
    });
}

fn a_guardian_that_was_stopped_for_too_long_starts_nothing(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("job");
    let file = place.path("ran");
    let (waiting, guardian) = waiting(&place, &["--ttl", "3"], &format!("touch {}", file.display()));
    kill_process(guardian, Signal::STOP).unwrap();
    hand_over(&place, holder);
    place.forget_all();
    let output = waiting.finish();
    assert_eq!(output.status.code(), Some(79), "{}", stderr(&output));
    assert!(!file.exists(), "it was continued when another could hold, and did not start the command");
}

#[test]
fn a_signal_ends_a_run_whose_guardian_does_not_start_the_command() {
    let place = Place::new();
    let holder = place.holder("job");
    let file = place.path("ran");
    let (waiting, guardian) = waiting(&place, &[], &format!("touch {}", file.display()));
    kill_process(guardian, Signal::STOP).unwrap();
    hand_over(&place, holder);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().status.code(), Some(143));
    assert!(!lives(guardian) && !file.exists());
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
}

fn a_heirlock_that_is_killed_while_it_waits_leaves_the_queue(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("job");
    let (mut waiting, guardian) = waiting(&place, &["--ttl", "600"], "sleep 600");
    waiting.child.kill().unwrap();
    waiting.child.wait().unwrap();
    eventually("nobody waits", || !String::from_utf8_lossy(&place.output(&["ls"]).stdout).contains("waits 1"));
    eventually("its guardian ends", || !lives(guardian));
    drop(holder);
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
}

fn a_run_whose_guardian_is_killed_while_it_waits_leaves_the_queue(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("job");
    let (waiting, guardian) = waiting(&place, &["--ttl", "600"], "sleep 600");
    kill_process(guardian, Signal::KILL).unwrap();
    let output = waiting.finish();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("its guardian was killed while it waited") && stderr(&output).lines().count() == 1, "{output:?}");
    assert!(!String::from_utf8_lossy(&place.output(&["ls"]).stdout).contains("waits 1"));
    drop(holder);
}

fn a_command_that_ended_in_time_has_its_own_code_however_late_heirlock_is(store: Store) {
    let place = Place::over(store);
    let mut command = place.heirlock(&["run", "--ttl", "3", "job", "--", "sh", "-c", "echo held; read line; exit 5"]);
    let mut running = Running::start(command.stdin(Stdio::piped())).wait_for_line("held");
    running.signal(Signal::STOP);
    drop(running.child.stdin.take());
    // The lock is kept for nobody any more, and free when its ttl is over.
    assert_eq!(place.code(&["run", "job", "true"]), 0);
    running.signal(Signal::CONT);
    let output = running.finish();
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("the command ended in time"), "{}", stderr(&output));
}

fn an_eviction_is_told_as_one_though_the_guardian_is_stopped(store: Store) {
    let place = Place::over(store);
    let (running, tree, guardian) = run_tree(&place, &["--ttl", "3"], "trap '' TERM");
    kill_process(guardian, Signal::STOP).unwrap();
    assert_eq!(place.code(&["evict", "job"]), 0);
    assert_eq!(running.finish().status.code(), Some(81));
    assert!(tree.iter().all(|pid| !lives(*pid)), "{tree:?}");
}

fn case_c06_an_evicted_command_is_asked_to_end_and_excludes_until_it_has(store: Store) {
    let place = Place::over(store);
    let file = place.path("lives");
    let script = format!("trap 'sleep 0.4; rm {0}; exit 3' TERM; touch {0}; echo held; while :; do sleep 0.02; done", file.display());
    let mut running = Running::start(&mut place.heirlock(&["run", "--ttl", "9", "job", "--", "sh", "-c", &script])).wait_for_line("held");
    assert_eq!(place.code(&["evict", "job"]), 0);
    eventually("the lock is free", || {
        let code = place.code(&["run", "-n", "job", "true"]);
        assert!(code == 75 || !file.exists(), "{code}, and the command lives");
        code == 0
    });
    assert_eq!(running.child.wait().unwrap().code(), Some(81));
}

fn case_c07_a_daemon_does_not_keep_the_lock_and_a_group_does(store: Store) {
    let place = Place::over(store);
    let file = place.path("daemon");
    let script = format!("setsid sh -c 'echo $$ > {0}; exec sleep 600' & while [ ! -s {0} ]; do sleep 0.01; done", file.display());
    // It has our pipes as its stdout and stderr: nobody reads them to their end, which would be the daemon's.
    let mut running = Running::start(&mut place.heirlock(&["run", "job", "--", "sh", "-c", &script]));
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
    let daemon = pid(&file);
    assert!(lives(daemon), "it is let alone");
    let ours = std::fs::read_link(format!("/proc/self/fd/{}", running.child.stdout.as_ref().unwrap().as_raw_fd())).unwrap();
    assert_eq!(std::fs::read_link(format!("/proc/{daemon}/fd/1")).unwrap(), ours, "and has the pipe that it inherited");
    kill_process(daemon, Signal::KILL).unwrap();
    let since = Instant::now();
    let script = "sleep 5 & echo held; exit 4";
    let mut running = Running::start(&mut place.heirlock(&["run", "job", "--", "sh", "-c", script])).wait_for_line("held");
    // Its leader ends at once; what is left of the group keeps the lock for all the time that it has, and keeps heirlock.
    while since.elapsed() < Duration::from_millis(4_800) {
        assert_eq!(place.code(&["run", "-n", "job", "true"]), 75, "after {:?}", since.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(running.child.wait().unwrap().code(), Some(4));
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
}

fn case_c11_a_nested_run_does_not_wait_for_itself(store: Store) {
    let place = Place::over(store);
    let this = env!("CARGO_BIN_EXE_heirlock");
    let since = Instant::now();
    let outer = Running::start(&mut place.heirlock(&["run", "a", "--", this, "run", "a", "--", "true"]));
    let ancestor = outer.pid();
    let output = outer.finish();
    assert_eq!(output.status.code(), Some(80));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let named = format!("a is held by a run that this one is part of (pid {ancestor}, ");
    assert!(stderr(&output).contains(&named), "{named}: {}", stderr(&output));
    // Through another lock as well, and with a time to wait.
    assert_eq!(place.code(&["run", "a", "--", this, "run", "b", "--", this, "run", "-w", "9", "a", "true"]), 80);
    // Who does not wait is merely busy; readers stand beside each other, and so do slots and other names.
    assert_eq!(place.code(&["run", "a", "--", this, "run", "-n", "a", "true"]), 75);
    assert_eq!(place.code(&["run", "-s", "a", "--", this, "run", "-s", "a", "true"]), 0);
    assert_eq!(place.code(&["run", "-s", "a", "--", this, "run", "a", "true"]), 80);
    assert_eq!(place.code(&["run", "--slots", "2", "s", "--", this, "run", "--slots", "2", "s", "true"]), 0);
    assert_eq!(place.code(&["run", "a", "--", this, "run", "b", "true"]), 0);
}

fn case_c11_slots_that_are_all_held_above_are_not_waited_for(store: Store) {
    let place = Place::over(store);
    let this = env!("CARGO_BIN_EXE_heirlock");
    for slots in [1, 2, 3] {
        let name = format!("pool {slots}");
        let n = slots.to_string();
        let deep = |levels: usize| -> Vec<&str> {
            let level = ["run", "--slots", &n, &name, "--", this];
            let mut words: Vec<&str> = (0..levels).flat_map(|_| level).collect();
            *words.last_mut().unwrap() = "true";
            words
        };
        assert_eq!(place.code(&deep(slots)), 0, "{slots} within each other have their slots");
        let since = Instant::now();
        let output = place.output(&deep(slots + 1));
        assert_eq!(output.status.code(), Some(80), "{}", stderr(&output));
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        assert!(stderr(&output).contains("is held by a run that this one is part of (pid "), "{}", stderr(&output));
    }
    // One of them is another's: that is waited for.
    let other = Running::start(&mut place.heirlock(&["run", "--slots", "2", "pool", "--", "sh", "-c", "echo held; exec sleep 600"]));
    let other = other.wait_for_line("held");
    let waiting = Running::start(&mut place.heirlock(&["run", "--slots", "2", "pool", "--", this, "run", "--slots", "2", "pool", "true"]));
    eventually("it waits", || String::from_utf8_lossy(&place.output(&["show", "pool"]).stdout).contains("waits 1"));
    drop(other);
    assert_eq!(waiting.finish().status.code(), Some(0));
}

fn case_c12_the_lock_rests_until_it_was_held_long_enough(store: Store) {
    let place = Place::over(store);
    let (since, started) = (Instant::now(), SystemTime::now());
    assert_eq!(place.code(&["run", "--hold-at-least", "3", "a", "true"]), 0);
    assert!(since.elapsed() < Duration::from_secs(2), "the command does not wait for it: {:?}", since.elapsed());
    let waiting = Running::start(&mut place.heirlock(&["run", "a", "--", "date", "+%s.%N"]));
    place.eventually_waits();
    while since.elapsed() < Duration::from_millis(2_800) {
        let (code, after) = (place.code(&["run", "-n", "a", "true"]), since.elapsed());
        assert!(code == 75 || (code == 0 && after >= Duration::from_secs(3)), "{code} after {after:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = waiting.finish();
    assert_eq!(output.status.code(), Some(0));
    // The instant at which it was in, as its command saw it: the grant is a little later than our start, and the rest counts from it.
    let at: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let after = at - started.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((3.0..6.0).contains(&after), "in after {after} s");
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

fn what_happens_on_a_loss_can_be_chosen(store: Store) {
    let script = "trap 'echo asked' TERM; echo held; while read line; do :; done; exit 4";
    let lose = |options: &[&str]| {
        let place = Place::over(store);
        let args: Vec<&str> = ["run", "--ttl", "9"].iter().chain(options).chain(&["a", "--", "bash", "-c", script]).copied().collect();
        let mut command = place.heirlock(&args);
        let mut running = Running::start(command.stdin(Stdio::piped())).wait_for_line("held");
        place.forget_all();
        let input = running.child.stdin.take();
        (place, running, input)
    };
    let (_place, running, _input) = lose(&["--on-lost", "kill"]);
    let output = running.finish();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).contains("asked")), (Some(79), false));
    let (_place, mut running, input) = lose(&["--on-lost", "notify"]);
    let mut complaints = std::io::BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut complaints, &mut line).unwrap();
    assert!(line.contains("the lock on a is lost, and the command goes on"), "{line}");
    assert!(running.child.try_wait().unwrap().is_none());
    drop(input);
    assert_eq!(running.child.wait().unwrap().code(), Some(79), "79 beats the command's own code");
}

fn a_command_is_ended_when_it_has_held_for_long_enough(store: Store) {
    let place = Place::over(store);
    let since = Instant::now();
    let output = place.output(&["run", "--max-hold", "3", "a", "--", "sh", "-c", "sleep 600"]);
    assert_eq!(output.status.code(), Some(79), "{}", stderr(&output));
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    let why = "ending the command, for the lock on a is lost: it was held for as long as --max-hold allows";
    assert!(stderr(&output).contains(why) && stderr(&output).lines().count() == 1, "{}", stderr(&output));
    assert_eq!(place.code(&["run", "-w", "3", "a", "true"]), 0);
    // A loss before that has another reason.
    let args = ["run", "--ttl", "3", "--max-hold", "60", "a", "--", "sh", "-c", "echo held; exec sleep 600"];
    let running = Running::start(&mut place.heirlock(&args)).wait_for_line("held");
    place.forget_all();
    let output = running.finish();
    assert_eq!(output.status.code(), Some(79), "{}", stderr(&output));
    assert!(!stderr(&output).contains("--max-hold"), "{}", stderr(&output));
}

#[test]
fn times_that_do_not_fit_are_refused() {
    let place = Place::new();
    for options in [["--grace", "11"], ["--max-hold", "2"], ["--grace", "-1"], ["--on-lost", "ignore"], ["--hold-at-least", "x"]] {
        let args: Vec<&str> = ["run", "--ttl", "30"].iter().chain(&options).chain(&["a", "true"]).copied().collect();
        let output = place.output(&args);
        assert_eq!(output.status.code(), Some(125), "{options:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{options:?}: {}", stderr(&output));
    }
    assert!(!place.path("locks.db").exists());
}
