//! The pipes beside a SQLite file: where there can be none, and what dead processes leave.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used)]

mod common {
    pub(crate) mod elsewhere;
}

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::elsewhere::{again, inside};
use heirlock::{Locks, Released};
use pollster::block_on;

fn connect(file: &Path) -> Locks {
    block_on(Locks::connect(&format!("sqlite:{}", file.display()))).unwrap()
}

/// Where no pipe can be made, waiters look from time to time: the first in line at least each second.
#[test]
fn case_s07_without_pipes_the_first_in_line_holds_in_time() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("leases.db");
    fs::write(place.path().join("leases.db.notify"), "in the way").unwrap();
    let (one, two) = (connect(&file), connect(&file));
    for _ in 0..3 {
        let lease = one.lock_blocking("k").unwrap();
        let waiter = std::thread::spawn({
            let two = two.clone();
            move || two.lock_blocking("k").map(|lease| (lease, Instant::now())).unwrap()
        });
        while block_on(one.inspect("k")).unwrap().queue.is_empty() {
            std::thread::yield_now();
        }
        let released = Instant::now();
        assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
        let (lease, held) = waiter.join().unwrap();
        let took = held.duration_since(released);
        assert!(took < Duration::from_millis(1_500), "{took:?}");
        lease.release_blocking().unwrap();
    }
    assert_eq!(fs::read_to_string(place.path().join("leases.db.notify")).unwrap(), "in the way");
}

#[test]
fn the_pipes_of_dead_processes_are_removed() {
    let test = "the_pipes_of_dead_processes_are_removed";
    if let Some(file) = inside() {
        let locks = connect(&file);
        println!("it listens");
        std::thread::sleep(Duration::from_secs(600));
        drop(locks);
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("leases.db");
    let pipes = || fs::read_dir(place.path().join("leases.db.notify")).map_or(0, Iterator::count);
    let mut children: Vec<_> = (0..3)
        .map(|_| {
            let mut child = again(&[], test, &file).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("it listens")));
            child
        })
        .collect();
    assert_eq!(pipes(), 3);
    for child in &mut children[..2] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Whoever says goodbye tidies up, and leaves the pipes of the living.
    block_on(connect(&file).close());
    assert_eq!(pipes(), 1);
    children[2].kill().unwrap();
    children[2].wait().unwrap();
}

/// After an expiry the key rests, so that a holder that was only slow has time to notice; after a release it does not.
#[test]
fn a_key_rests_for_its_lock_delay_after_an_expiry_only() {
    let test = "a_key_rests_for_its_lock_delay_after_an_expiry_only";
    let (ttl, delay) = (Duration::from_secs(1), Duration::from_secs(2));
    if let Some(file) = inside() {
        let lease = connect(&file).lock("k").ttl(ttl).lock_delay(delay).blocking().unwrap();
        println!("it holds {}", lease.fence());
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("leases.db");
    let locks = connect(&file);
    let lease = locks.lock("k").ttl(ttl).lock_delay(delay).blocking().unwrap();
    lease.release_blocking().unwrap();
    block_on(locks.try_lock("k")).unwrap().release_blocking().unwrap();
    let mut child = again(&[], test, &file).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("it holds")));
    child.kill().unwrap();
    let killed = Instant::now();
    child.wait().unwrap();
    let next = locks.lock("k").blocking().unwrap();
    let took = killed.elapsed();
    // Its last renewal was up to a third of the ttl before.
    assert!(took + Duration::from_millis(100) >= ttl * 2 / 3 + delay && took < ttl + delay + Duration::from_secs(1), "{took:?}");
    next.release_blocking().unwrap();
}
