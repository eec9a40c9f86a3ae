//! Several stores on one file.

use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::lease::{News, Notice, Was};

fn two() -> (tempfile::TempDir, SqliteStore, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let (one, other) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    (directory, one, other)
}

fn leave(store: &SqliteStore, name: &str, number: u8) -> Was {
    pollster::block_on(store.leave(&key(name), Leave { token: token(number), settled: true })).unwrap().was
}

#[test]
fn two_stores_exclude_each_other() {
    let (_directory, one, other) = two();
    let first = fence(enter(&one, "nightly", request(1)));
    assert!(matches!(enter(&other, "nightly", request(2)), Answer::Queued { .. }));
    let view = pollster::block_on(other.inspect(&key("nightly"))).unwrap();
    assert_eq!((view.holders.len(), view.queue.len(), view.last_fence), (1, 1, first));
    assert_eq!(view.holders[0].owner.name, "worker 1");
    assert_eq!(leave(&one, "nightly", 1), Was::Held);
    assert_eq!(leave(&one, "nightly", 1), Was::Held);
    let beat = |number| (key("nightly"), Beat { token: token(number), seq: 2, priority: 0, blocked: None });
    let answers = pollster::block_on(other.beat(vec![beat(2), beat(1)])).unwrap();
    assert!(fence(*answers[0].as_ref().unwrap()) > first);
    assert_eq!(*answers[1].as_ref().unwrap(), Answer::Gone(crate::lease::Reason::Released));
}

#[test]
fn a_waiter_is_told_through_its_pipe() {
    let (directory, one, other) = two();
    let (sender, heard) = mpsc::channel::<Notice>();
    let sink: crate::lease::Sink = Arc::new(move |notice| sender.send(notice).unwrap());
    pollster::block_on(other.notices(SessionId(2), sink)).unwrap();
    let pipes = directory.path().join("leases.db.notify");
    assert!(pipes.join(SessionId(2).to_string()).exists());
    enter(&one, "nightly report", request(1));
    enter(&other, "nightly report", request(2));
    leave(&one, "nightly report", 1);
    let notice = heard.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(notice, Notice { key: key("nightly report"), news: News::Granted });
    // Whoever has said goodbye, or died, leaves no pipe.
    pollster::block_on(other.goodbye(SessionId(2))).unwrap();
    assert!(heard.recv_timeout(Duration::from_secs(20)).is_err(), "its sink is dropped");
    assert_eq!(std::fs::read_dir(&pipes).unwrap().count(), 0);
}

#[test]
fn a_dead_readers_pipe_is_removed() {
    let (directory, one, _other) = two();
    let pipes = directory.path().join("leases.db.notify");
    std::fs::create_dir(&pipes).unwrap();
    let dead = pipes.join(SessionId(2).to_string());
    rustix::fs::mkfifoat(rustix::fs::CWD, &dead, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    enter(&one, "nightly", request(1));
    enter(&one, "nightly", request(2));
    leave(&one, "nightly", 1);
    assert!(!dead.exists());
}

#[test]
fn a_prefix_is_a_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let plain = SqliteStore::open(&path).unwrap();
    let app = SqliteStore::options().prefix("app%").open(&path).unwrap();
    enter(&plain, "nightly", request(1));
    assert!(matches!(enter(&app, "nightly", request(2)), Answer::Held(_)));
    enter(&app, "a_b", request(3));
    enter(&plain, "app", request(4));
    // As long as a key can be.
    enter(&app, &"x".repeat(512), request(5));
    let names = |store: &SqliteStore, prefix: &str| -> Vec<String> {
        pollster::block_on(store.list(prefix)).unwrap().into_iter().map(|view| view.key.to_string()).collect()
    };
    assert_eq!(names(&app, ""), ["a_b", "nightly", &"x".repeat(512)]);
    assert_eq!(names(&app, "a_"), ["a_b"]);
    assert_eq!(names(&app, "a%"), [""; 0]);
    assert_eq!(names(&plain, "app"), ["app", "app%a_b", "app%nightly"]);
    assert_eq!(names(&plain, ""), ["app", "app%a_b", "app%nightly", "nightly"]);
    leave(&plain, "app", 4);
    assert_eq!(names(&plain, "n"), ["nightly"]);
    assert_eq!(names(&plain, "app"), ["app%a_b", "app%nightly"]);
}

#[test]
fn a_listing_goes_on_over_its_pages() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("leases.db")).unwrap();
    let names: Vec<String> = (0..200).map(|number| format!("k{number:03}")).collect();
    for (number, name) in (0..200).zip(&names) {
        enter(&store, name, request(number));
    }
    let listed = pollster::block_on(store.list("k")).unwrap();
    assert_eq!(listed.iter().map(|view| view.key.as_str()).collect::<Vec<_>>(), names);
}

#[test]
fn eight_at_once_make_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/leases.db");
    let fences: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u8)
            .map(|number| {
                let path = &path;
                scope.spawn(move || {
                    let store = SqliteStore::open(path).unwrap();
                    (0..20_u8)
                        .map(|round| {
                            let number = 100 + number * 16 + round % 16;
                            let request = Enter { token: Token::random().unwrap(), mode: Mode::Shared, ..request(number) };
                            fence(enter(&store, &format!("k{number}"), request))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(fences.len(), 160);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(pollster::block_on(store.list("")).unwrap().iter().map(|view| view.holders.len()).sum::<usize>(), 160);
}

#[test]
fn a_busy_file_is_waited_for_unless_the_asker_gives_up() {
    let (_directory, one, other) = two();
    let writer = rusqlite::Connection::open(one.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (nightly, waker) = (key("nightly"), std::task::Waker::noop());
    let mut given_up = one.enter(&nightly, request(1));
    let _ = given_up.as_mut().poll(&mut std::task::Context::from_waker(waker));
    drop(given_up);
    let waiting = std::thread::spawn(move || enter(&other, "nightly", request(2)));
    // This needs no transaction: it comes to its turn only if the first asker's does not wait for the writer.
    pollster::block_on(one.goodbye(SessionId(1))).unwrap();
    assert!(!waiting.is_finished());
    writer.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(waiting.join().unwrap(), Answer::Held(_)));
}

#[test]
fn what_was_asked_before_the_drop_is_done() {
    let (_directory, one, other) = two();
    enter(&one, "nightly", request(1));
    let nightly = key("nightly");
    let mut asked = one.leave(&nightly, Leave { token: token(1), settled: true });
    // One poll sends it; nobody waits for the answer.
    let waker = std::task::Waker::noop();
    let _ = asked.as_mut().poll(&mut std::task::Context::from_waker(waker));
    drop(asked);
    drop(one);
    assert!(matches!(enter(&other, "nightly", request(2)), Answer::Held(_)));
}
