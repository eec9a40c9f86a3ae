//! The command line over Redis: the numbered cases that a server makes different. `ci/services` starts it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Running, eventually, stderr};
use rustix::process::Signal;

/// A namespace of this test's own on the server.
fn url(place: &Place) -> String {
    let server = std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run the tests by ci/test, or by ci/services");
    format!("{server}?prefix={}/", place.folder.path().display())
}

fn heirlock(place: &Place, args: &[&str]) -> Command {
    let mut command = place.heirlock(args);
    command.env("HEIRLOCK_STORE", url(place));
    command
}

fn code(place: &Place, args: &[&str]) -> i32 {
    heirlock(place, args).output().unwrap().status.code().unwrap()
}

fn holder(place: &Place, options: &[&str]) -> Running {
    let args = [&["run"], options, &["job", "--", "sh", "-c", "echo $$ > leader; echo held; exec sleep 600"]].concat();
    Running::start(heirlock(place, &args).current_dir(place.folder.path())).wait_for_line("held")
}

fn leader_lives(place: &Place) -> bool {
    let leader = std::fs::read_to_string(place.path("leader")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", leader.trim())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn case_c01_and_c02_over_redis() {
    let place = Place::new();
    assert_eq!(code(&place, &["run", "job", "--", "sh", "-c", "exit 7"]), 7);
    let holder = holder(&place, &[]);
    let since = Instant::now();
    assert_eq!(code(&place, &["run", "-n", "job", "true"]), 75);
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let since = Instant::now();
    assert_eq!(code(&place, &["run", "-w", "0.3", "-E", "1", "job", "true"]), 1);
    assert!(since.elapsed() >= Duration::from_millis(300) && since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let waiting = Running::start(&mut heirlock(&place, &["run", "job", "true"]));
    eventually("it waits", || String::from_utf8_lossy(&heirlock(&place, &["show", "job"]).output().unwrap().stdout).contains("waits 1"));
    drop(holder);
    assert_eq!(waiting.finish().status.code(), Some(0));
}

#[test]
fn case_c04_c05_and_c06_over_redis() {
    let place = Place::new();
    let mut killed = holder(&place, &["--ttl", "60", "--grace", "1"]);
    killed.child.kill().unwrap();
    let since = Instant::now();
    killed.child.wait().unwrap();
    assert_eq!(code(&place, &["run", "job", "true"]), 0);
    assert!(!leader_lives(&place) && since.elapsed() < Duration::from_secs(6), "grace and 2 s, doubled: {:?}", since.elapsed());
    let mut stopped = holder(&place, &["--ttl", "3"]);
    stopped.signal(Signal::STOP);
    assert_eq!(code(&place, &["run", "job", "true"]), 0);
    assert!(!leader_lives(&place));
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.child.wait().unwrap().code(), Some(79));
    let mut evicted = holder(&place, &["--ttl", "9"]);
    assert_eq!(code(&place, &["evict", "job"]), 0);
    assert_eq!(evicted.child.wait().unwrap().code(), Some(81));
    assert_eq!(code(&place, &["run", "-n", "job", "true"]), 0);
}

#[test]
fn case_c08_over_redis() {
    let place = Place::new();
    let file = place.path("counter");
    std::fs::write(&file, "0").unwrap();
    let script = format!("n=$(cat {0}); echo $((n + 1)) > {0}", file.display());
    std::thread::scope(|threads| {
        for _ in 0..50 {
            threads.spawn(|| {
                for _ in 0..20 {
                    let output = heirlock(&place, &["run", "counter", "--", "sh", "-c", &script]).stdout(Stdio::null()).output().unwrap();
                    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
                }
            });
        }
    });
    assert_eq!(std::fs::read_to_string(file).unwrap().trim(), "1000");
}

/// Neither in errors nor in what is listed, nor in the environment and the title of whoever runs.
#[test]
fn case_c09_the_password_is_nowhere() {
    let place = Place::new();
    let file = place.path("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let open = url(&place);
    // The server takes any password of a user that needs none.
    let named = open.replace("redis://", "redis://default@");
    let said = open.replace("redis://", "redis://default:hunter2@");
    for (store, is_file) in [(&named, true), (&said, false)] {
        let run = |args: &[&str]| {
            let mut command = place.heirlock(args);
            command.env("HEIRLOCK_STORE", store);
            if is_file {
                command.env("HEIRLOCK_PASSWORD_FILE", &file);
            }
            command
        };
        let script = "env; cat /proc/$PPID/environ /proc/$PPID/cmdline; echo held; exec sleep 600";
        let mut running = Running::start(&mut run(&["run", "-vv", "job", "--", "sh", "-c", script]));
        let mut seen = String::new();
        while !seen.ends_with("held\n") {
            seen += &(running.read_line() + "\n");
        }
        // What the guardian itself was started with is the caller's own doing.
        let (environment, _) = seen.split_once('\0').unwrap_or((&seen, ""));
        let own = environment.lines().filter(|line| line.starts_with("HEIRLOCK_STORE="));
        assert!(own.clone().count() == 1 && own.clone().all(|line| !line.contains("hunter2")), "{environment}");
        for args in [&["ls", "--json"][..], &["show", "job"], &["where", "--json"], &["doctor"], &["run", "-n", "job", "true"]] {
            let output = run(args).output().unwrap();
            let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
            assert!(!text.contains("hunter2") && !text.is_empty(), "{args:?}: {text}");
        }
        running.signal(Signal::TERM);
        let output = running.finish();
        assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
    }
}

#[test]
fn case_c10_a_server_that_is_not_there() {
    let place = Place::new();
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let since = Instant::now();
    let mut command = place.heirlock(&["run", "-w", "1", "job", "true"]);
    let output = command.env("HEIRLOCK_STORE", format!("redis://app:hunter2@{closed}/")).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    let text = stderr(&output);
    assert!(text.contains(&closed.to_string()) && !text.contains("hunter2") && text.lines().count() == 1, "{text}");
}
