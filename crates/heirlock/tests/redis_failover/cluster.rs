//! A cluster whose slots move, and whose primaries die.

use std::thread;
use std::time::{Duration, Instant};

use heirlock::Locks;
use heirlock::lease::{LostReason, Released};
use pollster::block_on;
use rustix::process::Signal;

use super::common::redis::cluster::Cluster;
use super::common::redis::eventually;
use super::contest::{KEYS, alone, contest};
use super::ms;

/// Long enough for a node to come back, and for the others to see it, between two renewals.
const TTL: Duration = ms(12_000);

/// Nothing is lost when a slot moves: no holder may find another.
#[test]
fn slots_move_while_twenty_contend() {
    let _alone = alone();
    let cluster = Cluster::start(0, ms(5_000), &[]);
    let slots = [KEYS[0], KEYS[1], KEYS[2], "idle"].map(|key| cluster.slot(key));
    let mut moves = 0;
    // Nobody waits for it, and it is renewed while its slot moves.
    let locks = block_on(Locks::connect(&cluster.url())).unwrap();
    let idle = locks.lock("idle").ttl(ms(3_000)).renew_every(ms(50)).blocking().unwrap();
    let report = contest("Cluster, slots that move", &cluster.url(), ms(3_000), || {
        // All keys of a lock at once, and one by one, as with a reshard's `--cluster-pipeline 1`.
        for batch in [10, 1, 10] {
            for slot in slots {
                cluster.migrate(slot, (cluster.owner(slot) + 1) % cluster.nodes.len(), batch);
                moves += 1;
            }
        }
    });
    let told = ["MOVED", "ASK", "TRYAGAIN"].map(|word| (word, cluster.told(word)));
    println!("Cluster, slots that move: {moves} times, {told:?}");
    assert!(idle.is_valid(), "{:?}", idle.lost_reason());
    assert!(told.iter().all(|(_, times)| *times > 0), "no request met a move: {told:?}");
    report.assert_progress();
    report.assert_hints();
    assert_eq!((report.overlaps, report.refused, report.lost), (0, 0, 0));
}

/// The primary that has the first key, and its replica. On a busy machine they may have changed places of themselves: asked for at the last moment.
fn pair(cluster: &Cluster) -> (usize, usize) {
    let primary = cluster.owner(cluster.slot(KEYS[0]));
    (primary, cluster.replica_of(primary))
}

#[test]
fn a_primary_is_killed_while_twenty_contend() {
    let _alone = alone();
    let mut cluster = Cluster::start(1, ms(2_000), &[]);
    let mut replica = None;
    let report = contest("Cluster, a primary killed", &cluster.url(), ms(3_000), || {
        let (primary, its) = pair(&cluster);
        cluster.nodes[primary].kill();
        replica = Some(its);
    });
    assert_eq!(Some(cluster.owner(cluster.slot(KEYS[0]))), replica);
    report.assert_progress();
    report.assert_hints();
}

/// A primary stands still until another has its place, then does what it was asked for meanwhile. The ttl is so long that its late answers would be
/// believed.
#[test]
fn a_primary_hangs_and_comes_back_while_twenty_contend() {
    let _alone = alone();
    let cluster = Cluster::start(1, ms(2_000), &[]);
    let report = contest("Cluster, a primary hangs", &cluster.url(), ms(12_000), || {
        let (primary, replica) = pair(&cluster);
        cluster.nodes[primary].signal(Signal::STOP);
        eventually("the replica is the primary", || cluster.nodes[replica].info("role").as_deref() == Some("master"));
        cluster.nodes[primary].signal(Signal::CONT);
    });
    report.assert_progress();
    report.assert_hints();
}

/// It stands still for good: nobody is told, each finds it out.
#[test]
fn a_primary_hangs_for_ever_while_twenty_contend() {
    let _alone = alone();
    let cluster = Cluster::start(1, ms(2_000), &[]);
    let report = contest("Cluster, a primary hangs for ever", &cluster.url(), ms(3_000), || {
        cluster.nodes[pair(&cluster).0].signal(Signal::STOP);
    });
    report.assert_progress();
    report.assert_hints();
}

/// A replica takes the place of its primary when it has all: nothing is lost.
#[test]
fn a_primary_is_replaced_while_twenty_contend() {
    let _alone = alone();
    let cluster = Cluster::start(1, ms(5_000), &[]);
    let report = contest("Cluster, a primary replaced", &cluster.url(), ms(3_000), || {
        let (_, replica) = pair(&cluster);
        cluster.nodes[replica].ask::<()>(&["CLUSTER", "FAILOVER"]).unwrap();
        eventually("the replica is the primary", || cluster.owner(cluster.slot(KEYS[0])) == replica);
    });
    report.assert_progress();
    report.assert_hints();
    assert_eq!((report.overlaps, report.refused, report.lost), (0, 0, 0));
}

/// A node that is there again with its data, and one without.
#[test]
fn case_s13_a_node_that_comes_back() {
    for (options, keeps) in [(&["--appendonly", "yes", "--appendfsync", "always"][..], true), (&["--appendonly", "no"], false)] {
        let mut cluster = Cluster::start(0, ms(2_000), options);
        let (locks, others) = (block_on(Locks::connect(&cluster.url())).unwrap(), block_on(Locks::connect(&cluster.url())).unwrap());
        let lease = locks.lock("a").ttl(TTL).blocking().unwrap();
        let fence = lease.fence();
        let owner = cluster.owner(cluster.slot("a"));
        cluster.nodes[owner].kill();
        cluster.nodes[owner].again();
        cluster.await_whole();
        if keeps {
            let since = Instant::now();
            while since.elapsed() < TTL + ms(1_000) {
                assert!(lease.is_valid(), "after {:?}: {:?}", since.elapsed(), lease.lost_reason());
                assert!(others.lock("a").no_wait().blocking().is_err(), "another holds after {:?}", since.elapsed());
                thread::sleep(ms(100));
            }
            assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
            assert!(others.lock("a").timeout(ms(10_000)).blocking().unwrap().fence() > fence);
        } else {
            assert!(others.lock("a").timeout(ms(10_000)).blocking().unwrap().fence() > fence);
            assert_eq!(block_on(lease.lost()), LostReason::Forgotten);
        }
    }
}

/// Nodes that are dead are passed by, and one that is silent costs a moment only, not the connection; what other nodes keep can be had meanwhile.
#[test]
fn nodes_that_are_dead_or_silent_are_passed_by() {
    // Nobody is to be declared down meanwhile.
    let mut cluster = Cluster::start(0, ms(60_000), &["--cluster-require-full-coverage", "no"]);
    let key = (0..1_000).map(|number| format!("key {number}")).find(|key| cluster.owner(cluster.slot(key)) == 2).unwrap();
    cluster.nodes[0].kill();
    cluster.nodes[1].signal(Signal::STOP);
    let since = Instant::now();
    let locks = block_on(Locks::connect(&cluster.url())).unwrap();
    println!("connected past a dead and a silent node: {:?}", since.elapsed());
    assert!(since.elapsed() < ms(10_000), "{:?}", since.elapsed());
    assert_eq!(locks.lock(&key).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
}
