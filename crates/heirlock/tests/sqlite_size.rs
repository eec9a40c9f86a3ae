//! One session that holds very many keys of one file.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use heirlock::{Lease, Locks};

const KEYS: usize = 10_000;

/// A span in seconds that the environment may set: `ci/faults` runs the case in its full length.
fn seconds(variable: &str, unless: u64) -> Duration {
    Duration::from_secs(std::env::var(variable).ok().map_or(unless, |text| text.parse().unwrap()))
}

/// **S16** 10,000 distinct keys held by one session with a ttl of 10 s: all still held after 60 s. And meanwhile any other client of the file is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s16_ten_thousand_keys() {
    let (ttl, span) = (seconds("HEIRLOCK_S16_TTL", 2), seconds("HEIRLOCK_S16_SPAN", 12));
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("sqlite:{}", directory.path().join("leases.db").display());
    let (locks, other) = (Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap());
    let begun = Instant::now();
    let mut leases: Vec<Lease> = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        leases.push(locks.lock(format!("key {number}")).ttl(ttl).await.unwrap());
    }
    let taken = begun.elapsed();
    let (until, mut slowest, mut served) = (Instant::now() + span, Duration::ZERO, 0_u32);
    while Instant::now() < until {
        let asked = Instant::now();
        other.lock("other").await.unwrap().release().await.unwrap();
        slowest = slowest.max(asked.elapsed());
        served += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let lost: Vec<_> = leases.iter().filter_map(|lease| Some((lease.key().clone(), lease.lost_reason()?))).collect();
    println!("S16: {KEYS} keys in {taken:?}; another client {served} times, at most {slowest:?}");
    assert!(lost.is_empty(), "{} of {KEYS} were lost: {:?} ...", lost.len(), lost.first());
    assert!(served > 0);
    // Nobody else has got any of them, and what is given up is free at once.
    assert!(other.try_lock("key 0").await.unwrap_err().is_busy());
    drop(leases.swap_remove(0));
    drop(other.lock("key 0").timeout(ttl).await.unwrap());
    drop(leases);
    locks.close().await;
    let left = other.list("key ").await.unwrap();
    assert!(left.iter().all(|key| key.holders.is_empty()), "{} are still held", left.len());
}

/// A file that has seen very many keys: who asks now is served as ever, and what nobody uses is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_keys_in_one_file() {
    const MANY: usize = 100_000;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("sqlite:{}", directory.path().join("leases.db").display());
    let locks = Locks::connect(&url).await.unwrap();
    let asks: Vec<_> = (0..8)
        .map(|part| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for number in (part..MANY).step_by(8) {
                    // As a script would that does one thing and ends.
                    drop(locks.lock(format!("key {number}")).await.unwrap());
                }
            })
        })
        .collect();
    for ask in asks {
        ask.await.unwrap();
    }
    let held = locks.lock("key 99999").await.unwrap();
    assert!(locks.try_lock("key 99999").await.unwrap_err().is_busy());
    // Only what is in use is shown, however much there was.
    let until = Instant::now() + Duration::from_secs(60);
    while locks.list("").await.unwrap().len() > 1 {
        assert!(Instant::now() < until, "what was given up is still held");
    }
    held.release().await.unwrap();
    locks.close().await;
}
