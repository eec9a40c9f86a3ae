//! A primary that Sentinels replace.

use std::time::{Duration, Instant};

use heirlock::lease::{LostReason, Released};
use heirlock::{Kind, Locks};
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
    let report = contest("Sentinel, the primary killed", &watched.url(), ms(3_000), || {
        // With it the Sentinel that is asked first: the two others are enough.
        watched.sentinels[0].kill();
        watched.kill_primary();
    });
    report.assert_progress();
    report.assert_hints();
}

#[test]
fn the_primary_is_replaced_while_twenty_contend() {
    let _alone = alone();
    let watched = Watched::start(ms(2_000), &[]);
    let report = contest("Sentinel, the primary replaced", &watched.url(), ms(3_000), || {
        let old = watched.primary();
        watched.fail_over();
        watched.await_primary_but(old);
        // Until it is told, the old one takes what comes; all of that is lost.
        watched.await_replica(old);
    });
    report.assert_progress();
    report.assert_hints();
}

/// What was granted is known to the replica before it counts: no holder finds another.
#[test]
fn no_grant_is_lost_that_waited_for_the_replica_while_twenty_contend() {
    let _alone = alone();
    let mut watched = Watched::start(ms(1_000), &[]);
    let url = format!("{}?wait=1", watched.url());
    let report = contest("Sentinel, grants that wait, the primary killed", &url, ms(3_000), || {
        let old = watched.kill_primary();
        watched.await_primary_but(old);
        // It needs a replica for the next grant. Sentinels let who comes back be for some seconds, before they tell it whose replica it is.
        watched.servers[old].again();
        watched.await_replica(old);
    });
    report.assert_progress();
    report.assert_hints();
    assert_eq!((report.overlaps, report.refused), (0, 0));
}

/// Who cannot be sure that a replica has it does not hold, and does not keep others out for longer than it takes to say so.
#[test]
fn without_the_replica_nobody_holds_who_waits_for_it() {
    let watched = Watched::start(ms(30_000), &[]);
    let (plain, sure) = (watched.url(), format!("{}?wait=1", watched.url()));
    let [plain, sure] = [plain, sure].map(|url| block_on(Locks::connect(&url)).unwrap());
    watched.servers[1].signal(Signal::STOP);
    let since = Instant::now();
    let error = sure.lock("a").ttl(TTL).timeout(ms(3_000)).blocking().unwrap_err();
    println!("without the replica: after {:?}: {}", since.elapsed(), error.chain());
    assert!(error.kind() == Kind::Unreachable && error.chain().contains("replica"), "{}", error.chain());
    assert!(since.elapsed() < ms(3_000) + ms(1_000), "{:?}", since.elapsed());
    // What was granted to it for the moment is withdrawn.
    let lease = plain.lock("a").ttl(TTL).timeout(ms(3_000)).blocking().unwrap();
    let waiting = std::thread::spawn({
        let sure = sure.clone();
        move || sure.lock("a").ttl(TTL).timeout(ms(20_000)).blocking().map(|lease| (lease.fence(), lease.release_blocking()))
    });
    let fence = lease.fence();
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    watched.servers[1].signal(Signal::CONT);
    let (next, released) = waiting.join().unwrap().unwrap();
    assert!(next > fence);
    assert_eq!(released.unwrap(), Released::InTime);
}

/// The primary stands still until another has its place, then does what it was asked for meanwhile, and is the primary to itself until it is told. The
/// ttl is so long that its late answers are believed.
#[test]
fn the_primary_hangs_and_comes_back_while_twenty_contend() {
    let _alone = alone();
    let watched = Watched::start(ms(1_000), &[]);
    let report = contest("Sentinel, the primary hangs", &watched.url(), ms(12_000), || {
        let old = watched.primary();
        watched.servers[old].signal(Signal::STOP);
        watched.await_primary_but(old);
        watched.servers[old].signal(Signal::CONT);
    });
    report.assert_progress();
    report.assert_hints();
}

/// It stands still for good: nobody is told, each finds it out.
#[test]
fn the_primary_hangs_for_ever_while_twenty_contend() {
    let _alone = alone();
    let watched = Watched::start(ms(1_000), &[]);
    let report = contest("Sentinel, the primary hangs for ever", &watched.url(), ms(3_000), || {
        watched.servers[watched.primary()].signal(Signal::STOP);
    });
    report.assert_progress();
    report.assert_hints();
}

/// The replica has the lease: it goes on with the same fence, and nobody else had it.
#[test]
fn case_s13_a_lease_that_the_replica_has_goes_on() {
    let mut watched = Watched::start(ms(1_000), &[]);
    let (locks, others) = (block_on(Locks::connect(&watched.url())).unwrap(), block_on(Locks::connect(&watched.url())).unwrap());
    let lease = locks.lock("kept").ttl(TTL).blocking().unwrap();
    watched.await_offset();
    let old = watched.kill_primary();
    let since = Instant::now();
    watched.await_primary_but(old);
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
    let replica = 1 - watched.primary();
    watched.servers[replica].signal(Signal::STOP);
    watched.servers[1 - replica].ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    let lease = locks.lock("gone").ttl(TTL).blocking().unwrap();
    watched.servers[1 - replica].kill();
    watched.servers[replica].signal(Signal::CONT);
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
