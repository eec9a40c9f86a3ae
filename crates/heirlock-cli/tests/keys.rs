//! The keys of a terminal, where a command is more than one process, or less.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::pty::Terminal;
use common::tree::pid;
use common::{Place, eventually};
use rustix::process::Pid;

fn state(pid: Pid) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap()[..1].to_owned()
}

#[test]
fn an_interrupt_ends_the_loop_around_a_run() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    let rounds = "for i in 1 2 3; do $HEIRLOCK run a -- sh -c 'echo held $0; exec sleep 600' $i; echo round; done";
    terminal.types(&format!("{rounds}\n"));
    terminal.shows("held 1");
    terminal.types("\x03");
    assert_eq!(terminal.code(), 130);
    assert!(!terminal.screen().contains("round"), "{}", terminal.screen());
    // While it waits.
    let holder = place.holder("a");
    terminal.types(&format!("{rounds}\n"));
    terminal.shows("waiting for a");
    terminal.types("\x03");
    assert_eq!(terminal.code(), 130);
    assert!(!terminal.screen().contains("round") && !terminal.screen().contains("held 2"), "{}", terminal.screen());
    drop(holder);
    // A script of several, which is in our own group.
    std::fs::write(place.path("script"), rounds).unwrap();
    terminal.types("bash script\n");
    eventually("it runs", || terminal.screen().matches("held 1").count() == 2);
    terminal.types("\x03");
    assert_eq!(terminal.code(), 130);
    assert!(!terminal.screen().contains("round"), "{}", terminal.screen());
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn what_a_leader_has_left_behind_stops_and_goes_on() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$HEIRLOCK run a -- sh -c '{ exec sleep 600; } & echo $! > left; echo $PPID > guardian'\n");
    let left = pid(&place.path("left"));
    let guardian = pid(&place.path("guardian"));
    let stat = std::fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    let heirlock = Pid::from_raw(stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()).unwrap();
    eventually("heirlock has the terminal back", || terminal.foreground() == Some(heirlock) && state(left) == "S");
    for _ in 0..2 {
        terminal.types("\x1a");
        terminal.is_usable();
        eventually("both are stopped", || state(left) == "T" && state(heirlock) == "T");
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
        terminal.types("fg\n");
        eventually("both go on", || state(left) == "S" && state(heirlock) == "S");
    }
    // Background jobs of a script do not hear of the key: TERM.
    rustix::process::kill_process(heirlock, rustix::process::Signal::TERM).unwrap();
    assert_eq!(terminal.code(), 0);
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

#[test]
fn a_shell_that_suspends_itself_stops_the_job() {
    let place = Place::new();
    let mut terminal = Terminal::shell(&place);
    terminal.types("$HEIRLOCK run a -- bash --norc --noprofile --noediting -i\n");
    terminal.types("echo inner $$ > inner; echo $$ > number\n");
    let inner = pid(&place.path("number"));
    eventually("the inner shell has the terminal", || terminal.foreground() == Some(inner));
    terminal.types("suspend\n");
    terminal.is_usable();
    assert_eq!(state(inner), "T");
    terminal.types("fg\n");
    eventually("it has it again", || terminal.foreground() == Some(inner));
    terminal.types("exit 9\n");
    assert_eq!(terminal.code(), 9);
    terminal.is_usable();
}
