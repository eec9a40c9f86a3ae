//! Grants that wait for replicas of a Redis server: `?wait=N`.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "common/redis/mod.rs"]
#[allow(dead_code)]
mod server;

use std::time::{Duration, Instant};

use heirlock::lease::LostReason;
use heirlock::{Kind, Locks};
use pollster::block_on;
use rustix::process::Signal;
use server::{Server, eventually};

const TTL: Duration = Duration::from_secs(3);

/// A server and its replica, which has all that it has.
fn pair() -> (Server, Server) {
    let primary = Server::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    eventually("the replica has all", || replica.info("master_link_status").as_deref() == Some("up"));
    (primary, replica)
}

fn connect(server: &Server, parameters: &str) -> Locks {
    block_on(Locks::connect(&format!("{}{parameters}", server.url("")))).unwrap()
}

/// Whether a server has anything of this key.
fn knows(server: &Server, key: &str) -> bool {
    server.ask::<u64>(&["EXISTS", &format!("heirlock:{{{key}}}")]).unwrap() == 1
}

#[test]
fn what_is_granted_is_known_to_the_replica() {
    let (primary, replica) = pair();
    let (first, second) = (connect(&primary, "?wait=1"), connect(&primary, "?wait=1"));
    for round in 0..50 {
        let key = format!("k{round}");
        let lease = first.lock(&key).ttl(TTL).blocking().unwrap();
        // At this moment, and without looking twice.
        assert!(knows(&replica, &key), "round {round}");
        lease.release_blocking().unwrap();
    }
    // Handed on as well as taken.
    let lease = first.lock("a").ttl(TTL).blocking().unwrap();
    let (fence, waits) = (lease.fence(), std::thread::spawn(move || second.lock("a").ttl(TTL).blocking()));
    eventually("it waits", || block_on(first.inspect("a")).unwrap().queue.len() == 1);
    lease.release_blocking().unwrap();
    let next = waits.join().unwrap().unwrap();
    // The header begins with the last fence.
    let kept: Vec<u8> = replica.ask(&["HGET", "heirlock:{a}", "h"]).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "the script's numbers: exact below 2^53")]
    let written = (next.fence() as f64).to_le_bytes();
    assert!(next.fence() > fence && kept.starts_with(&written), "{written:?} is not in {kept:?}");
}

#[test]
fn without_enough_replicas_nothing_is_granted_or_renewed() {
    let (primary, replica) = pair();
    let (careful, careless) = (connect(&primary, "?wait=1"), connect(&primary, ""));
    let kept = careful.lock("kept").ttl(TTL).blocking().unwrap();
    replica.signal(Signal::STOP);
    let since = Instant::now();
    let error = careful.lock("new").timeout(Duration::from_secs(2)).blocking().unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{}", error.chain());
    assert!(error.chain().contains("only 0 have the lock so far"), "{}", error.chain());
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    // Withdrawn: whoever does not ask for replicas gets it.
    drop(careless.lock("new").timeout(TTL).blocking().unwrap());
    // What was held before is not renewed, and whoever holds it is told before anybody else has it.
    assert_eq!(block_on(kept.lost()), LostReason::Expired);
    drop(careless.lock("kept").timeout(TTL * 3).blocking().unwrap());
    replica.signal(Signal::CONT);
    drop(careful.lock("new").timeout(TTL * 3).blocking().unwrap());
    drop(kept);
}

#[test]
fn what_the_replicas_mean_for_locks_is_said() {
    let (primary, _replica) = pair();
    let warnings = |parameters: &str| {
        let store = block_on(heirlock::open_store(&format!("{}{parameters}", primary.url("")))).unwrap();
        block_on(store.warnings()).unwrap().join("; ")
    };
    assert!(warnings("").contains("?wait=1"), "{}", warnings(""));
    assert!(!warnings("?wait=1").contains("wait="), "{}", warnings("?wait=1"));
    assert!(warnings("?wait=2").contains("wait=2 needs more"), "{}", warnings("?wait=2"));
    for bad in ["?wait=", "?wait=many", "?wait=-1", "?wait=1&wait=2", "?waits=1"] {
        let error = block_on(heirlock::open_store(&format!("{}{bad}", primary.url("")))).map(|store| store.url()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{bad}: {}", error.chain());
    }
}
