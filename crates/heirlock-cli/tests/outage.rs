//! A store that disappears while `heirlock run` waits or holds: nobody hangs, nobody holds beside another, and one line says why.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "../../heirlock/tests/common/elsewhere.rs"]
mod elsewhere;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::tree::{lives, pid};
use common::{Place, Running, eventually, stderr};
use elsewhere::can_unshare;

/// What becomes of the store.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its file is removed.
    Removed,
    /// Its directory has another name.
    Moved,
    /// Its directory has another name, and there is an empty one in its place.
    Replaced,
}

const FAULTS: [Fault; 3] = [Fault::Removed, Fault::Moved, Fault::Replaced];

/// A store in a directory of its own.
struct Store {
    place: Place,
    directory: PathBuf,
}

impl Store {
    fn new() -> Store {
        let place = Place::new();
        let directory = place.path("store");
        fs::create_dir(&directory).unwrap();
        Store { place, directory }
    }

    fn url(&self) -> String {
        format!("sqlite:{}/l.db", self.directory.display())
    }

    fn run(&self, words: &[&str]) -> Command {
        let mut command = self.place.heirlock(&[&["run"], words].concat());
        command.env("HEIRLOCK_STORE", self.url()).current_dir(self.place.folder.path());
        command
    }

    fn holder(&self, ttl: &str) -> Running {
        let script = "trap '' TERM; echo $$ > leader; echo held; while :; do sleep 0.02; done";
        Running::start(&mut self.run(&["--ttl", ttl, "a", "--", "sh", "-c", script])).wait_for_line("held")
    }

    fn waits(&self) -> bool {
        let mut command = self.place.heirlock(&["ls"]);
        String::from_utf8_lossy(&command.env("HEIRLOCK_STORE", self.url()).output().unwrap().stdout).contains("waits 1")
    }

    fn suffer(&self, fault: Fault) {
        match fault {
            Fault::Removed => fs::remove_file(self.directory.join("l.db")).unwrap(),
            Fault::Moved | Fault::Replaced => {
                fs::rename(&self.directory, self.place.path("elsewhere")).unwrap();
                if matches!(fault, Fault::Replaced) {
                    fs::create_dir(&self.directory).unwrap();
                }
            }
        }
    }
}

fn leader(store: &Store) -> rustix::process::Pid {
    pid(&store.place.path("leader"))
}

/// The lines of heirlock's own.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("heirlock: ")).collect()
}

#[test]
fn who_holds_ends_in_time_and_says_why() {
    std::thread::scope(|threads| {
        for fault in FAULTS {
            threads.spawn(move || {
                let store = Store::new();
                let running = store.holder("3");
                let leader = leader(&store);
                store.suffer(fault);
                let since = Instant::now();
                eventually("the command has ended", || !lives(leader));
                assert!(since.elapsed() < Duration::from_secs(3), "{fault:?}: its ttl: {:?}", since.elapsed());
                let output = running.finish();
                assert_eq!(output.status.code(), Some(79), "{fault:?}");
                let text = stderr(&output);
                assert!(text.contains("ending the command, for the lock on a is lost: "), "{fault:?}: {text}");
            });
        }
    });
}

#[test]
fn who_waits_does_not_take_another_store_for_a_turn() {
    std::thread::scope(|threads| {
        for fault in FAULTS {
            for wait in [&["-w", "4"][..], &[]] {
                threads.spawn(move || {
                    let store = Store::new();
                    let holder = store.holder("3");
                    let leader = leader(&store);
                    // Whoever gets in looks whether the first one lives.
                    let look = format!(
                        "kill -0 {leader} 2>/dev/null && grep -q '^State:[[:space:]]*[^ZX]' /proc/{leader}/status && exit 99; exit 5"
                    );
                    let since = Instant::now();
                    let waiter = Running::start(&mut store.run(&[wait, &["--ttl", "3", "a", "--", "sh", "-c", &look]].concat()));
                    eventually("it waits", || store.waits());
                    store.suffer(fault);
                    let output = waiter.finish();
                    let took = since.elapsed();
                    let text = stderr(&output);
                    assert_eq!(output.status.code(), Some(125), "{fault:?} {wait:?}: {text}");
                    assert!(lines(&text).len() == 1 && text.contains("was removed or replaced while we waited"), "{text}");
                    assert!(took < Duration::from_secs(6), "{fault:?} {wait:?}: {took:?}");
                    assert_eq!(holder.finish().status.code(), Some(79));
                    // Who comes later finds a place that works.
                    let output = store.run(&["-n", "a", "true"]).output().unwrap();
                    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{fault:?}");
                });
            }
        }
    });
}

fn has_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// As another user than root, for whom modes mean something; as ourselves if that is who we are.
fn as_nobody(command: &Command) -> Command {
    if !has_root() {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        return same;
    }
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(command.get_program()).args(command.get_args());
    other
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// `heirlock run WORDS` as that user, in a store which that user may reach.
fn run_as_nobody(store: &Store) -> impl Fn(&[&str]) -> Command {
    set_mode(store.place.folder.path(), 0o777);
    set_mode(&store.directory, 0o777);
    // The binary lies where only its owner may enter, perhaps.
    let binary = store.place.path("heirlock");
    fs::copy(env!("CARGO_BIN_EXE_heirlock"), &binary).unwrap();
    let (url, folder) = (store.url(), store.place.folder.path().to_owned());
    move |words| {
        let mut plain = Command::new(&binary);
        plain.arg("run").args(words);
        let mut command = as_nobody(&plain);
        command.env("HEIRLOCK_STORE", &url).env("HOME", "/nonexistent").current_dir(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

#[test]
fn a_store_that_may_not_be_entered_any_more_is_lost_and_told() {
    let store = Store::new();
    let run = run_as_nobody(&store);
    let script = "echo $$ > leader; echo held; read line; exit 4";
    let mut running = Running::start(&mut run(&["--ttl", "3", "a", "--", "sh", "-c", script])).wait_for_line("held");
    set_mode(&store.directory, 0o000);
    let since = Instant::now();
    for wait in [&["-n"][..], &["-w", "1"], &[]] {
        let asked = Instant::now();
        let output = run(&[wait, &["a", "true"]].concat()).output().unwrap();
        assert_eq!((output.status.code(), lines(&stderr(&output)).len()), (Some(125), 1), "{wait:?}: {output:?}");
        assert!(stderr(&output).contains("check the modes of its directories"), "{output:?}");
        assert!(asked.elapsed() < Duration::from_secs(2), "{wait:?}: {:?}", asked.elapsed());
    }
    // Its command ends in time, though the lock cannot be given back.
    let leader = leader(&store);
    eventually("the command has ended", || !lives(leader));
    assert!(since.elapsed() < Duration::from_secs(3), "its ttl: {:?}", since.elapsed());
    assert_eq!(running.child.wait().unwrap().code(), Some(79));
    let took = since.elapsed();
    assert!(took < Duration::from_secs(10), "and heirlock, too: {took:?}");
    let text = stderr(&running.finish());
    assert!(
        text.contains("check the modes of its directories") && text.contains("the lock on a is lost: it could not be renewed"),
        "{text}"
    );
    set_mode(&store.directory, 0o777);
    assert_eq!(run(&["-w", "4", "a", "true"]).output().unwrap().status.code(), Some(0));
}

#[test]
fn a_short_outage_is_ridden_out_and_no_longer_than_one_may_wait() {
    let store = Store::new();
    let run = run_as_nobody(&store);
    let script = "echo held; read line; exit 4";
    let mut running = Running::start(&mut run(&["--ttl", "30", "a", "--", "sh", "-c", script])).wait_for_line("held");
    let patient = Running::start(&mut run(&["a", "--", "sh", "-c", "exit 5"]));
    eventually("it waits", || store.waits());
    let since = Instant::now();
    let hasty = Running::start(&mut run(&["-w", "3", "a", "true"]));
    let waits = || {
        let mut command = store.place.heirlock(&["ls"]);
        String::from_utf8_lossy(&command.env("HEIRLOCK_STORE", store.url()).output().unwrap().stdout).contains("waits 2")
    };
    eventually("it waits, too", waits);
    set_mode(&store.directory, 0o000);
    let output = hasty.finish();
    let took = since.elapsed();
    let text = stderr(&output);
    assert_eq!((output.status.code(), lines(&text).is_empty()), (Some(125), false), "{output:?}");
    assert!(took >= Duration::from_millis(2_900) && took < Duration::from_secs(6), "{took:?}: {text}");
    assert!(text.contains("check the modes of its directories"), "{text}");
    set_mode(&store.directory, 0o777);
    drop(running.child.stdin.take());
    assert_eq!(running.finish().status.code(), Some(4));
    let output = patient.finish();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(stderr(&output).contains("trying again"), "{output:?}");
}

/// A small disk that is filled.
#[test]
fn a_full_disk_ends_the_command_in_time_and_says_why() {
    if !can_unshare("a_full_disk_ends_the_command_in_time_and_says_why", "--mount") {
        return;
    }
    let store = Store::new();
    // All of it in one place, which nobody else sees.
    let script = "mount -t tmpfs -o size=256k none store || exit 99
        $HEIRLOCK run --ttl 3 a -- sh -c 'trap \"\" TERM; echo $$ > leader; while :; do sleep 0.02; done' & holder=$!
        while [ ! -s leader ]; do sleep 0.02; done
        $HEIRLOCK run -w 6 a -- sh -c 'grep -q \"^State:[[:space:]]*[^ZX]\" /proc/$(cat leader)/status 2>&- && exit 99; exit 5' 2> waiter & waiter=$!
        sleep 0.5; cat /dev/zero > store/filler 2>&-
        wait $holder; echo holder $?; wait $waiter; echo waiter $?
        rm store/filler; $HEIRLOCK run -w 20 a true; echo later $?";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).env("HEIRLOCK", env!("CARGO_BIN_EXE_heirlock")).env("HEIRLOCK_STORE", store.url());
    let since = Instant::now();
    let output = command.current_dir(store.place.folder.path()).output().unwrap();
    let (told, complaints) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    let waiter = fs::read_to_string(store.place.path("waiter")).unwrap();
    assert!(told.starts_with("holder 79\n") && told.ends_with("later 0\n"), "{told}{complaints}");
    assert!(["waiter 5", "waiter 75", "waiter 125"].contains(&told.lines().nth(1).unwrap()), "{told}{waiter}");
    assert!(complaints.contains("full") && complaints.contains("the lock on a is lost: it could not be renewed in time"), "{complaints}");
    // The waiter's place, which it could not give back, is kept for a queue's life.
    assert!(since.elapsed() < Duration::from_secs(35), "{:?}", since.elapsed());
}

/// Another program keeps the file for itself: who waits has heard nothing, which is not that the lock is held.
#[test]
fn a_store_that_does_not_answer_any_more_is_125_and_not_75() {
    let place = Place::new();
    let holder = place.holder("a");
    for options in [&["-w", "4"][..], &["-w", "4", "-E", "7"]] {
        let since = Instant::now();
        let waiter = Running::start(&mut place.heirlock(&[&["run"], options, &["a", "true"]].concat()));
        place.eventually_waits();
        let other = rusqlite::Connection::open(place.path("locks.db")).unwrap();
        other.busy_timeout(Duration::from_secs(5)).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        // Its stderr is closed then, too: the guardian does not try on.
        let output = waiter.finish();
        let took = since.elapsed();
        drop(other);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(stderr(&output).contains("answer") && took < Duration::from_secs(8), "{took:?}: {output:?}");
    }
    drop(holder);
}
