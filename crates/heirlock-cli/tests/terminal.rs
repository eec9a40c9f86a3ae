//! `heirlock run` on a terminal: `script` (util-linux) gives it one.
#![allow(missing_docs)]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Place, Running, eventually};
use rustix::process::Signal;

/// `heirlock ARGS` on a terminal of its own, whose keyboard is stdin and whose screen is stdout.
fn on_terminal(place: &Place, args: &str) -> Command {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} {args}", env!("CARGO_BIN_EXE_heirlock")), "/dev/null"]).env("HEIRLOCK_STORE", place.store());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_wait_says_for_whom_on_a_terminal_only() {
    let place = Place::new();
    let holder = place.holder("nightly");
    let silent = Running::start(&mut place.heirlock(&["run", "nightly", "true"]));
    eventually("it waits", || String::from_utf8_lossy(&place.output(&["ls"]).stdout).contains("waits 1"));
    let mut shown = on_terminal(&place, "run nightly -- echo my turn").spawn().unwrap();
    // The line comes after a moment, and is renewed each second; the holder goes when it has been seen.
    let mut screen = shown.stdout.take().unwrap();
    let mut text = String::new();
    let expected = format!("waiting for nightly, 2nd of 2, held by {}@", common::user());
    while !(text.contains(&expected) && text.contains(&format!(" pid {} for ", holder.pid()))) {
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
    let script = "run a -- sh -c 'trap \"echo caught; exit 3\" INT; echo held; sleep 600 & wait'";
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
