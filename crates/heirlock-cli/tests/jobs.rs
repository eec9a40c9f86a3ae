//! `heirlock run` as a job of an interactive shell: the numbered cases where a terminal makes a difference, and what its keys do.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::pty::Terminal;
use common::tree::{lives, next_finds_nobody, pid, script, tree};
use common::{Place, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// The state and the parent of a process.
fn stat(pid: Pid) -> (String, Pid) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat.rsplit(") ").next().unwrap().split(' ').map(str::to_owned);
    let state = fields.next().unwrap();
    (state, Pid::from_raw(fields.next().unwrap().parse().unwrap()).unwrap())
}

fn is_stopped(pid: Pid) -> bool {
    stat(pid).0 == "T"
}

/// A tree that runs in the foreground of a shell.
struct Job {
    place: Place,
    terminal: Terminal,
    tree: [Pid; 3],
    guardian: Pid,
    heirlock: Pid,
}

/// `own` is a trap of its leader.
fn start(options: &str, own: &str) -> Job {
    let place = Place::new();
    std::fs::write(place.path("tree.sh"), script(&place, own)).unwrap();
    let terminal = Terminal::shell(&place);
    terminal.types(&format!("$HEIRLOCK run {options} job -- sh tree.sh\n"));
    terminal.shows("held");
    let (tree, guardian) = (tree(&place), pid(&place.path("guardian")));
    eventually("the command has the terminal", || terminal.foreground() == Some(tree[2]));
    Job { heirlock: stat(guardian).1, place, terminal, tree, guardian }
}

impl Job {
    fn is_free(&self) -> bool {
        match self.place.code(&["run", "-n", "job", "true"]) {
            0 => true,
            75 => false,
            code => panic!("{code}"),
        }
    }
}

/// What is said of the wait is for whoever looks at it: a job in the background would write over the prompt.
#[test]
fn a_wait_is_shown_in_the_foreground_only() {
    let place = Place::new();
    let holder = place.holder("a");
    let mut terminal = Terminal::shell(&place);
    terminal.types("$HEIRLOCK run a -- echo got it &\n");
    let waits = || String::from_utf8_lossy(&place.output(&["show", "a"]).stdout).contains("waits 1");
    eventually("it waits", waits);
    // Its line would be renewed each second.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(2_500) {
        assert!(!terminal.screen().contains("waiting for"), "{}", terminal.screen());
        std::thread::sleep(Duration::from_millis(50));
    }
    // In the foreground it says so, and stops to say so when it is sent back.
    terminal.types("fg\n");
    terminal.shows("waiting for a, ");
    terminal.types("\x1a");
    terminal.code();
    terminal.types("bg\n");
    terminal.code();
    let shown = terminal.screen().matches("waiting for").count();
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(terminal.screen().matches("waiting for").count(), shown, "{}", terminal.screen());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(waits());
    drop(holder);
    terminal.shows("got it");
}

#[test]
fn case_c03_term_on_a_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    let file = place.path("lives");
    let script = format!(
        "(trap 'sleep 0.4; rm {0}; exit' TERM; touch {0}; echo held; while :; do sleep 0.02; done) & echo $PPID > guardian; wait",
        file.display()
    );
    std::fs::write(place.path("job.sh"), script).unwrap();
    terminal.types("$HEIRLOCK run job -- sh job.sh\n");
    terminal.shows("held");
    kill_process(stat(pid(&place.path("guardian"))).1, Signal::TERM).unwrap();
    eventually("the lock is free", || {
        let code = place.code(&["run", "-n", "job", "true"]);
        assert!(code == 75 || !file.exists(), "{code}, and a child of the command lives");
        code == 0
    });
    assert_eq!(terminal.code(), 143);
    terminal.is_usable();
}

#[test]
fn case_c04_heirlock_is_killed_on_a_terminal() {
    for own in [":", "trap '' TERM"] {
        let mut job = start("--ttl 60 --grace 1", own);
        let since = Instant::now();
        kill_process(job.heirlock, Signal::KILL).unwrap();
        // The shell has the terminal at once, whatever still runs behind it.
        assert_eq!(job.terminal.code(), 137);
        job.terminal.is_usable();
        next_finds_nobody(&job.place, job.tree);
        let took = since.elapsed();
        assert!(took < Duration::from_secs(3), "grace and 2 s: {took:?}");
        eventually("the guardian ends", || !lives(job.guardian));
        job.terminal.is_usable();
    }
}

#[test]
fn case_c05_heirlock_is_stopped_on_a_terminal() {
    let mut job = start("--ttl 3", "trap '' TERM");
    kill_process(job.heirlock, Signal::STOP).unwrap();
    assert_eq!(job.terminal.code(), 128 + Signal::STOP.as_raw());
    job.terminal.is_usable();
    next_finds_nobody(&job.place, job.tree);
    job.terminal.types("fg\n");
    assert_eq!(job.terminal.code(), 79);
    job.terminal.shows("the lock on job is lost");
    job.terminal.is_usable();
}

/// Before its time is over, all goes on; the command has the terminal again when it asks for it.
#[test]
fn a_heirlock_that_was_stopped_for_a_moment_goes_on_with_fg() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    // It does not read when heirlock is stopped: whoever is within a read then has the next byte, whoever's the terminal is.
    let script =
        "read a; echo \"first $a.\"; echo $PPID > guardian; while [ ! -e go ]; do sleep 0.02; done; read b; echo \"then $b.\"; exit 6";
    terminal.types(&format!("$HEIRLOCK run job -- sh -c '{script}'\none\n"));
    let heirlock = stat(pid(&place.path("guardian"))).1;
    terminal.shows("first one.");
    kill_process(heirlock, Signal::STOP).unwrap();
    assert_eq!(terminal.code(), 128 + Signal::STOP.as_raw());
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 75);
    terminal.is_usable();
    terminal.types("fg\n");
    eventually("it goes on", || !is_stopped(heirlock));
    std::fs::write(place.path("go"), "").unwrap();
    terminal.types("two\n");
    terminal.shows("then two.");
    assert_eq!(terminal.code(), 6);
    terminal.is_usable();
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
}

#[test]
fn case_c05_the_guardian_is_killed_on_a_terminal() {
    let mut job = start("--ttl 9 --grace 0.3", "trap '' TERM");
    kill_process(job.guardian, Signal::KILL).unwrap();
    assert_eq!(job.terminal.code(), 125);
    assert!(job.tree.iter().all(|pid| !lives(*pid)), "{:?}", job.tree);
    job.terminal.shows("its guardian was killed");
    job.terminal.is_usable();
    next_finds_nobody(&job.place, job.tree);
}

#[test]
fn case_c06_evicted_on_a_terminal() {
    let mut job = start("--ttl 9", "trap 'sleep 0.4; exit 3' TERM");
    assert_eq!(job.place.code(&["evict", "job"]), 0);
    next_finds_nobody(&job.place, job.tree);
    assert_eq!(job.terminal.code(), 81);
    job.terminal.shows("ending the command");
    job.terminal.is_usable();
}

#[test]
fn case_c01_and_c02_on_a_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    for (command, code) in
        [("sh -c 'exit 7'", 7), ("sh -c 'kill -TERM $$'", 143), ("no-such-command", 127), (place.folder.path().to_str().unwrap(), 126)]
    {
        terminal.types(&format!("$HEIRLOCK run a -- {command}\n"));
        assert_eq!(terminal.code(), code, "{command}");
        terminal.is_usable();
    }
    terminal.types("$HEIRLOCK run --no-such-option a true\n");
    assert_eq!(terminal.code(), 125);
    terminal.types("$HEIRLOCK run -v a true\n");
    assert_eq!(terminal.code(), 0);
    terminal.shows("DEBUG heirlock::run: the lock is held");
    let holder = place.holder("a");
    for (options, code) in [("-n", 75), ("-n -E 1", 1), ("-w 0.3", 75), ("-w 1.2", 75)] {
        terminal.types(&format!("$HEIRLOCK run {options} a true\n"));
        assert_eq!(terminal.code(), code, "{options}");
    }
    terminal.shows("waiting for a, 1st of 1");
    drop(holder);
    terminal.is_usable();
}

#[test]
fn the_keys_that_end_a_command_give_their_codes() {
    for (key, signal) in [("\x03", Signal::INT), ("\x1c", Signal::QUIT)] {
        let place = Place::new();
        let mut terminal = Terminal::shell(&place);
        terminal.types("ulimit -c 0; $HEIRLOCK run a -- sh -c 'echo held; exec sleep 600'\n");
        terminal.shows("held");
        terminal.types(key);
        assert_eq!(terminal.code(), 128 + signal.as_raw());
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
        // While it waits, too, and nobody is left in the queue.
        let holder = place.holder("a");
        terminal.types("$HEIRLOCK run a true\n");
        terminal.shows("waiting for a");
        terminal.types(key);
        assert_eq!(terminal.code(), 128 + signal.as_raw());
        assert!(!String::from_utf8_lossy(&place.output(&["ls"]).stdout).contains("waits"));
        drop(holder);
        terminal.is_usable();
    }
}

/// Nobody renews the lock of a job that was stopped from the keyboard: its command ends before another gets in.
#[test]
fn a_job_that_stays_stopped_past_its_ttl_is_ended_before_another_gets_in() {
    let mut job = start("--ttl 3", "trap '' TERM");
    job.terminal.types("\x1a");
    assert_eq!(job.terminal.code(), 128 + Signal::STOP.as_raw());
    assert!(is_stopped(job.heirlock) && !is_stopped(job.guardian));
    assert!(!job.is_free());
    next_finds_nobody(&job.place, job.tree);
    job.terminal.is_usable();
    job.terminal.types("fg\n");
    assert_eq!(job.terminal.code(), 79);
    job.terminal.is_usable();
}

#[test]
fn a_job_in_the_background_that_reads_the_terminal_is_stopped_until_fg() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$HEIRLOCK run a -- sh -c 'echo $PPID > guardian; read line; echo \"got $line.\"; exit 5' &\n");
    let heirlock = stat(pid(&place.path("guardian"))).1;
    eventually("it is stopped", || is_stopped(heirlock));
    terminal.is_usable();
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    terminal.types("fg\n");
    eventually("it goes on", || !is_stopped(heirlock));
    terminal.types("hello\n");
    terminal.shows("got hello.");
    assert_eq!(terminal.code(), 5);
    terminal.is_usable();
}

#[test]
fn a_job_in_a_pipeline_reads_the_terminal_and_stops_whole() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$HEIRLOCK run a -- sh -c 'echo $PPID > guardian; exec cat' | sh -c 'echo $$ > other; exec cat'\n");
    let (heirlock, other) = (stat(pid(&place.path("guardian"))).1, pid(&place.path("other")));
    for word in ["one", "two"] {
        terminal.types(&format!("{word}\n"));
        terminal.shows(word);
        terminal.types("\x1a");
        // Its own: the shell waits until all of a job is stopped.
        terminal.is_usable();
        assert!(is_stopped(heirlock) && is_stopped(other));
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
        terminal.types("fg\n");
        eventually("both go on", || !is_stopped(heirlock) && !is_stopped(other));
    }
    terminal.types("three\n");
    terminal.shows("three");
    terminal.types("\x04");
    assert_eq!(terminal.code(), 0);
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
    terminal.types("$HEIRLOCK run a cat | cat\nfour\n");
    terminal.shows("four");
    terminal.types("\x03");
    assert_eq!(terminal.code(), 128 + Signal::INT.as_raw(), "its last has it, too");
    terminal.is_usable();
}
