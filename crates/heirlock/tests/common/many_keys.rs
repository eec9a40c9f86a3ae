//! **S16**, for any store: one session that holds very many keys.

use std::time::{Duration, Instant};

use heirlock::{Lease, Locks};

const KEYS: usize = 10_000;

/// A span in seconds that the environment may set: `ci/faults` runs the case in its full length.
fn seconds(variable: &str, unless: u64) -> Duration {
    Duration::from_secs(std::env::var(variable).ok().map_or(unless, |text| text.parse().unwrap()))
}

/// 10,000 distinct keys held by one session with a ttl of 10 s: all still held after 60 s. And meanwhile any other client of the store is served.
///
/// In the span that CI has for it, of which `unless` is the ttl.
pub(crate) async fn ten_thousand_keys(url: &str, unless: u64) {
    let (ttl, span) = (seconds("HEIRLOCK_S16_TTL", unless), seconds("HEIRLOCK_S16_SPAN", 12));
    let (locks, other) = (Locks::connect(url).await.unwrap(), Locks::connect(url).await.unwrap());
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
    println!("S16 ({}): {KEYS} keys in {taken:?}; another client {served} times, at most {slowest:?}", locks.url());
    assert!(lost.is_empty(), "{} of {KEYS} were lost: {:?} ...", lost.len(), lost.first());
    assert!(served > 0);
    // Nobody else has got any of them, and what is given up is free at once.
    assert!(other.try_lock("key 0").await.unwrap_err().is_busy());
    drop(leases.swap_remove(0));
    drop(other.lock("key 0").timeout(ttl).await.unwrap());
    drop(leases);
    locks.close().await;
    // On a slow machine there is no time to give all of them back before the session ends; those end by themselves.
    let closed = Instant::now();
    loop {
        let left = other.list("key ").await.unwrap().iter().filter(|key| !key.holders.is_empty()).count();
        if left == 0 {
            break;
        }
        assert!(closed.elapsed() <= ttl + Duration::from_secs(1), "{left} are still held");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
