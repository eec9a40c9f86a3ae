//! `heirlock run` on a terminal: `script` (util-linux) gives it one.
#![allow(missing_docs)]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Running, eventually};
use rustix::process::Signal;

/// `heirlock ARGS` on a terminal of its own, whose keyboard is stdin and whose screen is stdout. In the place of the shell that `script` starts:
/// one that waited beside it (dash does, bash does not) would end by the interrupt and hide our code.
fn on_terminal(place: &Place, args: &str) -> Command {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("exec {} {args}", env!("CARGO_BIN_EXE_heirlock")), "/dev/null"]).env("HEIRLOCK_STORE", place.store());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_wait_says_for_whom_on_a_terminal_only() {
    let place = Place::new();
    let holder = place.holder("nightly");
    let silent = Running::start(&mut place.heirlock(&["run", "nightly", "true"]));
    place.eventually_waits();
    let mut shown = on_terminal(&place, "run nightly -- echo my turn").spawn().unwrap();
    // The line comes after a moment, and is renewed each second; the holder goes when it has been seen.
    let mut screen = shown.stdout.take().unwrap();
    let (mut text, since) = (String::new(), Instant::now());
    let expected = format!("waiting for nightly, 2nd of 2, held by {}@", common::user());
    while !(text.contains(&expected) && text.contains(&format!(" pid {} for ", holder.pid()))) {
        assert!(since.elapsed() < Duration::from_secs(30), "{text}");
        let mut bytes = [0; 256];
        let read = screen.read(&mut bytes).unwrap();
        assert!(read > 0, "{text}");
        text += &String::from_utf8_lossy(&bytes[..read]);
    }
    drop(holder);
    screen.read_to_string(&mut text).unwrap();
    assert!(shown.wait().unwrap().success());
    assert!(text.contains("my turn"), "{text}");
    // Where stderr is no terminal, nothing is said.
    let output = silent.finish();
    assert!(output.status.success());
    assert_eq!(common::stderr(&output), "");
}

#[test]
fn the_command_reads_the_keyboard() {
    let place = Place::new();
    let mut shown = on_terminal(&place, "run a -- sh -c 'read line; echo got $line'").spawn().unwrap();
    shown.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
    let output = shown.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("got hello"), "{output:?}");
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_command() {
    let place = Place::new();
    let script = "run a -- sh -c 'trap \"kill \\$!; echo caught; exit 3\" INT; sleep 600 & echo held; wait'";
    let mut running = Running::start(&mut on_terminal(&place, script)).wait_for_line("held\r");
    running.child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(3));
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    let place = Place::new();
    let mut command = Command::new("sh");
    let line = format!("trap '' HUP; exec {} run a -- sh -c 'echo held; read line; exit 4'", env!("CARGO_BIN_EXE_heirlock"));
    command.args(["-c", &line]).env("HEIRLOCK_STORE", place.store()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command).wait_for_line("held");
    running.signal(Signal::HUP);
    running.child.stdin.as_mut().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(4));
}

/// Ctrl-Z stops the command and us, and `fg` lets both go on: what a shell expects of a job.
#[test]
fn a_stop_from_the_keyboard_stops_both_and_fg_continues_both() {
    let place = Place::new();
    let mut command = Command::new("script");
    command.args(["-qec", "bash --norc --noprofile -i", "/dev/null"]).env("HEIRLOCK_STORE", place.store()).env("PS1", "$ ");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = Running::start(&mut command);
    let (pid, ticks) = (place.path("pid"), place.path("ticks"));
    // It forks nothing: a shell that is stopped between vfork and exec is in the middle of a system call, and no signal stops it there.
    let pause = place.path("pause");
    let script = format!(
        "mkfifo {2}; exec 3<> {2}; echo $$ > {0}; while :; do echo >> {1}; read -t 0.02 <&3; done",
        pid.display(),
        ticks.display(),
        pause.display()
    );
    let mut keys = shell.child.stdin.take().unwrap();
    let mut typed = |text: &str| keys.write_all(text.as_bytes()).unwrap();
    typed(&format!("{} run a -- bash -c '{script}'\n", env!("CARGO_BIN_EXE_heirlock")));
    let length = || std::fs::metadata(&ticks).map_or(0, |metadata| metadata.len());
    for round in 0..3 {
        let before = length();
        eventually("it runs", || length() > before + 5);
        typed("\x1a");
        let leader = || std::fs::read_to_string(&pid).unwrap().trim().parse::<i32>().unwrap();
        let state = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().rsplit(") ").next().unwrap()[..1].to_owned();
        let parent = |pid: i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse::<i32>().unwrap()
        };
        // The guardian stands between them, and does not stop.
        eventually("both are stopped", || state(leader()) == "T" && state(parent(parent(leader()))) == "T");
        assert_eq!(state(parent(leader())), "S");
        // It does not run on behind our back: not even a little.
        let stopped = length();
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 75, "round {round}");
        assert_eq!((length(), state(leader()).as_str()), (stopped, "T"), "round {round}");
        typed("fg\n");
    }
    let before = length();
    eventually("it runs", || length() > before + 5);
    typed("\x03");
    eventually("the lock is free", || place.code(&["run", "-n", "a", "true"]) == 0);
    typed("exit\n");
    drop(keys);
    shell.child.wait().unwrap();
}
