//! A stderr that nobody reads: whatever heirlock has to say, it never waits for a reader while it waits for a lock, or holds one.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::io::{PipeReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::tree::{lives, next_finds_nobody, run_tree_to};
use common::{Place, Running, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_process};

/// A pipe into which nothing more fits.
fn full() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let size = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'x'; size]).unwrap();
    assert_eq!(poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&Timespec::default())).unwrap(), 0, "it is full");
    (reader, writer.into())
}

/// Both: with nothing to say but the loss, and with much.
const VOICES: [&[&str]; 2] = [&[], &["-vv"]];

#[test]
fn a_loss_is_acted_on_beside_a_full_stderr() {
    let one = |voice: &[&str], lost: &[&str]| {
        let place = Place::new();
        let (_reader, stderr) = full();
        let options = [&["--ttl", "3"], voice, lost].concat();
        let (mut running, tree, guardian) = run_tree_to(&place, &options, "trap '' TERM", stderr);
        std::fs::remove_file(place.path("locks.db")).unwrap();
        let since = Instant::now();
        eventually("the tree is gone", || !tree.iter().any(|pid| lives(*pid)));
        let took = since.elapsed();
        assert!(took < Duration::from_secs(3), "its ttl: {took:?}");
        assert_eq!(running.child.wait().unwrap().code(), Some(79), "{options:?}");
        eventually("the guardian ends", || !lives(guardian));
    };
    std::thread::scope(|threads| {
        for voice in VOICES {
            for lost in [&["--on-lost", "term"], &["--on-lost", "kill"]] {
                threads.spawn(move || one(voice, lost));
            }
        }
    });
}

#[test]
fn who_is_only_told_of_a_loss_goes_on_and_ends_beside_a_full_stderr() {
    for voice in VOICES {
        let place = Place::new();
        let (mut reader, stderr) = full();
        let args =
            [&["run", "--ttl", "3", "--on-lost", "notify"], voice, &["a", "--", "sh", "-c", "echo held; read line; exit 4"]].concat();
        let mut running = Running::start(place.heirlock(&args).stdin(Stdio::piped()).stderr(stderr)).wait_for_line("held");
        std::fs::remove_file(place.path("locks.db")).unwrap();
        // Somebody comes to read when it has been lost, and is told.
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(3_500) {
            assert!(running.child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(20));
        }
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        drop(running.child.stdin.take());
        let since = Instant::now();
        assert_eq!(running.child.wait().unwrap().code(), Some(79));
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        drop(running);
        let text = reading.join().unwrap();
        assert!(text.contains("the lock on a is lost, and the command goes on"), "{text}");
    }
}

#[test]
fn beats_go_on_beside_a_full_stderr() {
    let place = Place::new();
    let (mut reader, stderr) = full();
    let args = ["run", "-vv", "--ttl", "4", "a", "--", "sh", "-c", "echo held; read line; exit 4"];
    let mut running = Running::start(place.heirlock(&args).stdin(Stdio::piped()).stderr(stderr)).wait_for_line("held");
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(5) {
        assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    }
    drop(running.child.stdin.take());
    let since = Instant::now();
    assert_eq!(running.child.wait().unwrap().code(), Some(4));
    assert!(since.elapsed() < Duration::from_secs(3), "it gives up saying more: {:?}", since.elapsed());
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.trim_end_matches('x').is_empty(), "what did not fit is not there: {text}");
}

#[test]
fn a_wait_ends_in_time_beside_a_full_stderr() {
    for voice in VOICES {
        let place = Place::new();
        let holder = place.holder("a");
        let run = |options: &[&str]| {
            let (reader, stderr) = full();
            let args = [&["run"], voice, options, &["a", "--", "sh", "-c", "exit 5"]].concat();
            (reader, Running::start(place.heirlock(&args).stderr(stderr)))
        };
        let since = Instant::now();
        let (_reader, mut waiting) = run(&["-w", "1"]);
        assert_eq!(waiting.child.wait().unwrap().code(), Some(75));
        let took = since.elapsed();
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
        let (_reader, mut waiting) = run(&[]);
        place.eventually_waits();
        drop(holder);
        assert_eq!(waiting.child.wait().unwrap().code(), Some(5));
    }
}

#[test]
fn case_c04_and_c05_beside_a_full_stderr() {
    for voice in VOICES {
        let place = Place::new();
        let (_reader, stderr) = full();
        let options = [&["--ttl", "60", "--grace", "1"], voice].concat();
        let (mut running, tree, _) = run_tree_to(&place, &options, "trap '' TERM", stderr);
        running.child.kill().unwrap();
        let since = Instant::now();
        running.child.wait().unwrap();
        next_finds_nobody(&place, tree);
        assert!(since.elapsed() < Duration::from_secs(3), "grace and 2 s: {:?}", since.elapsed());

        let (_reader, stderr) = full();
        let options = [&["--ttl", "9", "--grace", "0.3"], voice].concat();
        let (mut running, tree, guardian) = run_tree_to(&place, &options, "trap '' TERM", stderr);
        kill_process(guardian, Signal::KILL).unwrap();
        let since = Instant::now();
        assert_eq!(running.child.wait().unwrap().code(), Some(125));
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert!(tree.iter().all(|pid| !lives(*pid)), "{tree:?}");
        next_finds_nobody(&place, tree);
    }
}

/// It tells heirlock of every stop; one that is stopped itself reads nothing of that.
#[test]
fn a_guardian_does_not_wait_for_a_heirlock_that_is_stopped() {
    let place = Place::new();
    let (mut running, tree, _) = run_tree_to(&place, &["--ttl", "12", "--grace", "1"], "trap '' TERM", Stdio::null());
    running.signal(Signal::STOP);
    let leader = tree[2];
    let state = || std::fs::read_to_string(format!("/proc/{leader}/stat")).unwrap().rsplit(") ").next().unwrap()[..1].to_owned();
    let (mut stops, since) = (0, Instant::now());
    // A socket has room for a few hundred words.
    while stops < 600 {
        kill_process(leader, Signal::STOP).unwrap();
        while state() != "T" {
            assert!(since.elapsed() < Duration::from_secs(30));
        }
        // To be noticed.
        std::thread::sleep(Duration::from_millis(1));
        kill_process(leader, Signal::CONT).unwrap();
        stops += 1;
    }
    // TERM comes later.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    next_finds_nobody(&place, tree);
    running.signal(Signal::CONT);
    assert_eq!(running.child.wait().unwrap().code(), Some(79));
}
