//! A primary that Sentinels replace.

use std::time::{Duration, Instant};

use heirlock::Locks;
use heirlock::lease::{LostReason, Released};
use pollster::block_on;
use rustix::process::Signal;

use super::common::redis::eventually;
use super::common::redis::sentinel::Watched;
use super::contest::{alone, contest};
use super::ms;

/// Long enough for a failover between two renewals.
const TTL: Duration = ms(12_000);

#[test]
fn the_primary_is_killed_while_twenty_contend() {
    let _alone = alone();
    let mut watched = Watched::start(ms(1_000), &[]);
    let report = contest("Sentinel, the primary killed", &watched.url(), || {
        // With it the Sentinel that is asked first: the two others are enough.
        watched.sentinels[0].kill();
        watched.servers[0].kill();
    });
    assert_eq!(watched.primary(), 1);
    report.assert_progress();
}

#[test]
fn the_primary_is_replaced_while_twenty_contend() {
    let _alone = alone();
    let watched = Watched::start(ms(2_000), &[]);
    let report = contest("Sentinel, the primary replaced", &watched.url(), || {
        watched.fail_over();
        eventually("the replica is the primary", || watched.primary() == 1);
        // Until it is told, the old one takes what comes; all of that is lost.
        eventually("the old primary is a replica", || watched.servers[0].info("master_link_status").as_deref() == Some("up"));
    });
    report.assert_progress();
}

/// The replica has the lease: it goes on with the same fence, and nobody else had it.
#[test]
fn case_s13_a_lease_that_the_replica_has_goes_on() {
    let mut watched = Watched::start(ms(1_000), &[]);
    let (locks, others) = (block_on(Locks::connect(&watched.url())).unwrap(), block_on(Locks::connect(&watched.url())).unwrap());
    let lease = locks.lock("kept").ttl(TTL).blocking().unwrap();
    let offset = |at: usize| watched.servers[at].info(["master_repl_offset", "slave_repl_offset"][at]);
    eventually("the replica has the lease", || offset(1).is_some() && offset(0) <= offset(1));
    watched.servers[0].kill();
    let since = Instant::now();
    eventually("the replica is the primary", || watched.primary() == 1);
    // Past what it would live without renewal.
    while since.elapsed() < TTL + ms(1_000) {
        assert!(lease.is_valid(), "after {:?}: {:?}", since.elapsed(), lease.lost_reason());
        if let Ok(lease) = others.lock("kept").no_wait().blocking() {
            panic!("another holds after {:?}, with {}", since.elapsed(), lease.fence());
        }
        std::thread::sleep(ms(100));
    }
    let fence = lease.fence();
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    assert!(others.lock("kept").timeout(ms(10_000)).blocking().unwrap().fence() > fence);
}

/// The replica has never heard of the lease: the next holder has a larger fence all the same, and the first is told that it is forgotten.
#[test]
fn case_s13_a_lease_that_the_replica_does_not_have_is_lost() {
    let mut watched = Watched::start(ms(2_000), &[]);
    let locks = block_on(Locks::connect(&watched.url())).unwrap();
    // Nothing reaches it any more, nor is on its way.
    watched.servers[1].signal(Signal::STOP);
    watched.servers[0].ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    let lease = locks.lock("gone").ttl(TTL).blocking().unwrap();
    watched.servers[0].kill();
    watched.servers[1].signal(Signal::CONT);
    // Sentinels may differ for a moment, and who comes then is told that there is no primary.
    let mut others = None;
    eventually("who comes finds the replica as the primary", || {
        others = block_on(Locks::connect(&watched.url())).ok();
        others.is_some()
    });
    let other = others.unwrap().lock("gone").timeout(ms(10_000)).blocking().unwrap();
    assert!(other.fence() > lease.fence());
    assert_eq!(block_on(lease.lost()), LostReason::Forgotten);
    assert_eq!(other.release_blocking().unwrap(), Released::InTime);
}

/// Sentinels that are dead are passed by, and one that is silent costs a moment only, not the connection.
#[test]
fn sentinels_that_are_dead_or_silent_are_passed_by() {
    let mut watched = Watched::start(ms(5_000), &[]);
    watched.sentinels[0].kill();
    watched.sentinels[1].signal(Signal::STOP);
    let since = Instant::now();
    let locks = block_on(Locks::connect(&watched.url())).unwrap();
    println!("connected past a dead and a silent Sentinel: {:?}", since.elapsed());
    assert!(since.elapsed() < ms(10_000), "{:?}", since.elapsed());
    assert_eq!(locks.lock("a").blocking().unwrap().release_blocking().unwrap(), Released::InTime);
}
