//! `heirlock run` where a terminal goes away, is held back, or is not ours to have.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::pty::Terminal;
use common::tree::{lives, pid};
use common::{Place, Running, eventually};
use rustix::process::{Pid, Signal, kill_process};

const HEIRLOCK: &str = env!("CARGO_BIN_EXE_heirlock");

fn queue(place: &Place) -> String {
    String::from_utf8(place.output(&["ls"]).stdout).unwrap()
}

fn stat(pid: Pid) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').map(str::to_owned).collect()
}

fn parent(pid: Pid) -> Pid {
    Pid::from_raw(stat(pid)[1].parse().unwrap()).unwrap()
}

/// What it has used of the processor.
fn ticks(pid: Pid) -> u64 {
    stat(pid)[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Started by a shell, and as the leader of its session: that one with a lock `other` and files `seen2`.
fn both_ways(place: &Place, words: &str) -> [Terminal; 2] {
    let terminal = Terminal::shell(place);
    terminal.types(&format!("$HEIRLOCK {words}\n"));
    let others = words.replace(" job ", " other ").replace("seen", "seen2");
    [terminal, Terminal::start(place, &["sh", "-c", &format!("exec $HEIRLOCK {others}")])]
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let place = Place::new();
    let words = "run job -- sh -c 'trap \"echo hup > seen.hup; exit 3\" HUP; echo $$ > seen; while :; do sleep 0.02; done'";
    let mut terminals = both_ways(&place, words);
    let leaders = ["seen", "seen2"].map(|name| pid(&place.path(name)));
    terminals.iter_mut().for_each(Terminal::vanish);
    eventually("both locks are free", || ["job", "other"].iter().all(|name| place.code(&["run", "-n", name, "true"]) == 0));
    assert!(!leaders.iter().any(|leader| lives(*leader)));
    // It was asked, and had the time to answer.
    assert!(["seen.hup", "seen2.hup"].iter().all(|name| std::fs::read_to_string(place.path(name)).is_ok_and(|text| text == "hup\n")));
    eventually("the leaders of the sessions end", || terminals.iter_mut().all(|terminal| terminal.end().is_some()));
    // Whoever leads a session has no shell above it; its code is the command's.
    assert_eq!(terminals[1].end().unwrap().code(), Some(3));
}

/// Its heirlock has lost its stdout and stderr, and has something to say: that it cannot is no reason to die, to lose the lock, or to try for ever.
#[test]
fn who_ignores_that_its_terminal_goes_away_keeps_its_lock() {
    let place = Place::new();
    let words = "run -vv --ttl 4 job -- sh -c 'trap \"\" HUP; echo $PPID > seen; while [ ! -e go ]; do sleep 0.02; done; echo end > seen.end; exit 4'";
    let mut terminals = both_ways(&place, words);
    let guardians = ["seen", "seen2"].map(|name| pid(&place.path(name)));
    let heirlocks = guardians.map(parent);
    terminals.iter_mut().for_each(Terminal::vanish);
    let (since, before) = (Instant::now(), heirlocks.map(ticks));
    while since.elapsed() < Duration::from_secs(5) {
        assert_eq!(place.code(&["run", "-n", "job", "true"]), 75);
        assert!(heirlocks.iter().chain(&guardians).all(|pid| lives(*pid)));
    }
    for (heirlock, before) in heirlocks.iter().zip(before) {
        let used = ticks(*heirlock) - before;
        assert!(used < 100, "it loops: {used} hundredths of a second in five");
    }
    // One has something to say, and does what it is to do.
    kill_process(guardians[1], Signal::KILL).unwrap();
    eventually("the leader ends", || terminals[1].end().is_some());
    assert_eq!(terminals[1].end().unwrap().code(), Some(125));
    assert_eq!(place.code(&["run", "-n", "other", "true"]), 0);
    std::fs::write(place.path("go"), "").unwrap();
    eventually("the lock is free", || place.code(&["run", "-n", "job", "true"]) == 0);
    assert!(place.path("seen.end").exists() && !place.path("seen2.end").exists());
}

#[test]
fn a_waiter_whose_terminal_goes_away_leaves_the_queue() {
    let place = Place::new();
    let holders = [place.holder("job"), place.holder("other")];
    let mut terminals = both_ways(&place, "run job -- sh -c 'echo > seen'");
    for terminal in &terminals {
        terminal.shows("waiting for");
    }
    assert!(queue(&place).contains("waits"));
    terminals.iter_mut().for_each(Terminal::vanish);
    let since = Instant::now();
    eventually("nobody is in the queue", || !queue(&place).contains("waits"));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    eventually("both have ended", || terminals.iter_mut().all(|terminal| terminal.end().is_some()));
    assert_eq!(terminals[1].end().unwrap().code(), Some(128 + Signal::HUP.as_raw()));
    drop(holders);
    assert!(["job", "other"].iter().all(|name| place.code(&["run", "-w", "2", name, "true"]) == 0));
    assert!(!place.path("seen").exists() && !place.path("seen2").exists());
}

/// Ctrl-S: whoever writes to the terminal waits for Ctrl-Q. Who watches over a lock does not.
#[test]
fn a_terminal_that_is_held_back_delays_nobody() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    let holder = place.holder("job");
    terminal.types("$HEIRLOCK run -vv --ttl 3 job -- sh -c 'echo $$ > held; trap \"\" TERM; while :; do sleep 0.02; done'\n");
    terminal.shows("waiting for job");
    terminal.types("\x13");
    // It writes its line each second.
    std::thread::sleep(Duration::from_millis(1_500));
    drop(holder);
    let leader = pid(&place.path("held"));
    std::fs::remove_file(place.path("locks.db")).unwrap();
    let since = Instant::now();
    eventually("the command has ended", || !lives(leader));
    assert!(since.elapsed() < Duration::from_secs(3), "its ttl: {:?}", since.elapsed());
    eventually("heirlock has ended", || terminal.foreground() == Some(terminal.pid()));
    terminal.types("\x11");
    assert_eq!(terminal.code(), 79);
    terminal.is_usable();
}

/// A terminal may stop whoever writes to it from the background (`stty tostop`), where heirlock is while the command has it: not heirlock, which has
/// a command to end.
#[test]
fn a_line_from_the_background_does_not_stop_heirlock() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    let script = "trap \"\" TERM; echo $PPID > guardian; echo $$ > leader; while :; do sleep 0.02; done";
    terminal.types(&format!("stty tostop; $HEIRLOCK run --ttl 30 --grace 0.3 job -- sh -c '{script}'\n"));
    let (guardian, leader) = (pid(&place.path("guardian")), pid(&place.path("leader")));
    eventually("the command has the terminal", || terminal.foreground() == Some(leader));
    kill_process(guardian, Signal::KILL).unwrap();
    assert_eq!(terminal.code(), 125);
    assert!(!lives(leader));
    terminal.shows("its guardian was killed");
    terminal.is_usable();
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
}

/// The first process of a container, say: nobody could continue it, and the system does not stop such from the keyboard.
#[test]
fn where_no_shell_could_continue_it_a_job_is_not_stopped() {
    let place = Place::new();
    let mut terminal = Terminal::start(
        &place,
        &["sh", "-c", "exec $HEIRLOCK run --ttl 3 job -- sh -c 'echo $$ > seen; while read line; do echo \"got $line.\"; done; exit 6'"],
    );
    let leader = pid(&place.path("seen"));
    for word in ["one", "two"] {
        terminal.types(&format!("{word}\n"));
        terminal.shows(&format!("got {word}."));
        terminal.types("\x1a");
    }
    // The key comes before the line.
    terminal.types("three\n");
    terminal.shows("got three.");
    assert!(stat(terminal.pid())[0] != "T" && stat(leader)[0] != "T");
    assert_eq!(place.code(&["run", "-n", "job", "true"]), 75);
    terminal.types("\x04");
    eventually("it ends", || terminal.end().is_some());
    assert_eq!(terminal.end().unwrap().code(), Some(6));
}

/// Its shell has gone, and it reads the terminal, from the background.
#[test]
fn a_command_that_wants_a_terminal_nobody_can_give_it_is_told_so() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    for (round, (own, code)) in [(":", 129), ("trap '' HUP", 143)].into_iter().enumerate() {
        for name in ["seen", "code"] {
            let _ = std::fs::remove_file(place.path(name));
        }
        let script = format!("{own}; echo $PPID > seen; read line < /dev/tty; exit 6");
        std::fs::write(place.path("job.sh"), script).unwrap();
        // The group is of a shell that has ended; another one waits in it, and could not continue anybody.
        terminal.types("(sh -c '$HEIRLOCK run job -- sh job.sh; echo $? > code' &)\n");
        eventually("it is said", || terminal.screen().matches("no shell is left").count() == round + 1);
        if code == 143 {
            assert_eq!(place.code(&["run", "-n", "job", "true"]), 75);
            kill_process(parent(pid(&place.path("seen"))), Signal::TERM).unwrap();
        }
        let written = || std::fs::read_to_string(place.path("code")).unwrap_or_default();
        eventually("it ends", || written().ends_with('\n'));
        assert_eq!(written().trim(), code.to_string());
        assert_eq!(place.code(&["run", "-n", "job", "true"]), 0);
        terminal.is_usable();
    }
}

#[test]
fn nohup_and_setsid_let_it_outlive_its_terminal() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    let script = "echo $PPID > seen.$1; while [ ! -e go ]; do sleep 0.02; done; echo $1 >> end";
    std::fs::write(place.path("job.sh"), script).unwrap();
    terminal.types("nohup $HEIRLOCK run a -- sh job.sh a >> out 2>&1 & disown\n");
    terminal.types("setsid $HEIRLOCK run b -- sh job.sh b &\n");
    terminal.types("setsid --fork nohup $HEIRLOCK run c -- sh job.sh c >> out 2>&1\n");
    let guardians = ["seen.a", "seen.b", "seen.c"].map(|name| pid(&place.path(name)));
    terminal.is_usable();
    terminal.vanish();
    eventually("the shell ends", || terminal.end().is_some());
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert!(guardians.iter().all(|guardian| lives(*guardian) && lives(parent(*guardian))));
        assert!(["a", "b", "c"].iter().all(|name| place.code(&["run", "-n", name, "true"]) == 75));
    }
    std::fs::write(place.path("go"), "").unwrap();
    eventually("all locks are free", || ["a", "b", "c"].iter().all(|name| place.code(&["run", "-n", name, "true"]) == 0));
    let mut ends: Vec<String> = std::fs::read_to_string(place.path("end")).unwrap().lines().map(str::to_owned).collect();
    ends.sort();
    assert_eq!(ends, ["a", "b", "c"]);
}

#[test]
fn without_a_terminal_stops_and_signals_work_as_well() {
    let place = Place::new();
    let mut command = Command::new("setsid");
    let script = "echo $PPID > seen; echo held; while read line; do echo $line; done; exit 5";
    command.args(["--wait", HEIRLOCK, "run", "a", "--", "bash", "-c", script]).env("HEIRLOCK_STORE", place.store());
    command.current_dir(place.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_for_line("held");
    let heirlock = parent(pid(&place.path("seen")));
    // Sent by hand, for there is no key that would.
    kill_process(heirlock, Signal::TSTP).unwrap();
    std::io::Write::write_all(running.child.stdin.as_mut().unwrap(), b"on\n").unwrap();
    let mut running = running.wait_for_line("on");
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    drop(running.child.stdin.take());
    assert_eq!(running.child.wait().unwrap().code(), Some(5));
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}
