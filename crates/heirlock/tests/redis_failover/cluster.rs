//! A cluster whose slots move, and whose primaries die.

use std::thread;
use std::time::{Duration, Instant};

use heirlock::lease::{LostReason, Released};
use heirlock::{Kind, Locks};
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

/// What was granted is known to the replica before it counts: no holder finds another. Where there is none any more, nobody is granted anything until
/// there is one again.
#[test]
fn no_grant_is_lost_that_waited_for_a_replica_while_twenty_contend() {
    let _alone = alone();
    let mut cluster = Cluster::start(1, ms(2_000), &[]);
    let url = format!("{}?wait=1", cluster.url());
    let report = contest("Cluster, grants that wait, a primary killed", &url, ms(3_000), || {
        let (primary, replica) = pair(&cluster);
        cluster.nodes[primary].kill();
        eventually("the replica is the primary", || cluster.owner(cluster.slot(KEYS[0])) == replica);
        cluster.nodes[primary].again();
        eventually("the old primary is a replica", || cluster.nodes[primary].info("master_link_status").as_deref() == Some("up"));
    });
    report.assert_progress();
    report.assert_hints();
    assert_eq!((report.overlaps, report.refused), (0, 0));
}

/// Another primary.
fn another(cluster: &Cluster, primary: usize) -> usize {
    (0..cluster.nodes.len()).find(|at| *at != primary && cluster.nodes[*at].info("role").as_deref() == Some("master")).unwrap()
}

/// Names of locks that one node has, and whose slots differ.
fn on_one_node(cluster: &Cluster, node: usize, count: usize) -> Vec<String> {
    (0..).map(|number| format!("key {number}")).filter(|key| cluster.owner(cluster.slot(key)) == node).take(count).collect()
}

/// Who cannot be sure that a replica has it does not hold, and does not keep others out for longer than it takes to say so. Other shards go on.
#[test]
fn a_shard_without_its_replica_grants_nothing_that_waits_for_it() {
    // Nobody is to be declared down meanwhile.
    let cluster = Cluster::start(1, ms(60_000), &[]);
    let [plain, sure, surer] =
        ["", "?wait=1", "?wait=2"].map(|wait| block_on(Locks::connect(&format!("{}{wait}", cluster.url()))).unwrap());
    let (primary, replica) = pair(&cluster);
    let (key, elsewhere) = (KEYS[0], &on_one_node(&cluster, another(&cluster, primary), 1)[0]);
    let refused = |locks: &Locks, words: &str| {
        let since = Instant::now();
        let error = locks.lock(key).ttl(TTL).timeout(ms(2_000)).blocking().unwrap_err();
        assert!(error.kind() == Kind::Unreachable && error.chain().contains(words), "{}", error.chain());
        assert!(since.elapsed() < ms(2_000) + ms(1_000), "{:?}", since.elapsed());
        // What was granted to it for the moment is withdrawn.
        assert_eq!(plain.lock(key).ttl(TTL).timeout(ms(3_000)).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
    };
    refused(&surer, "only 1 have the lock so far");
    assert_eq!(sure.lock(key).timeout(ms(2_000)).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
    cluster.nodes[replica].signal(Signal::STOP);
    refused(&sure, "only 0 have the lock so far");
    assert_eq!(sure.lock(elsewhere).timeout(ms(2_000)).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
    let lease = plain.lock(key).ttl(TTL).timeout(ms(3_000)).blocking().unwrap();
    thread::scope(|threads| {
        let waiting = threads.spawn(|| sure.lock(key).ttl(TTL).timeout(ms(20_000)).blocking().unwrap());
        eventually("it waits", || block_on(plain.inspect(key)).unwrap().queue.len() == 1);
        let fence = lease.fence();
        assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
        cluster.nodes[replica].signal(Signal::CONT);
        let next = waiting.join().unwrap();
        assert!(next.fence() > fence);
        assert_eq!(next.release_blocking().unwrap(), Released::InTime);
    });
}

/// What moved ahead of its slot is renewed where it is now, and what stays where it is: together, for one write carries both to their node.
#[test]
fn what_waits_for_replicas_is_renewed_while_its_slot_moves() {
    let cluster = Cluster::start(1, ms(60_000), &[]);
    let locks = block_on(Locks::connect(&format!("{}?wait=1", cluster.url()))).unwrap();
    let primary = pair(&cluster).0;
    // So many, and so often, that all are sent together while an answer is on its way.
    let keys = on_one_node(&cluster, primary, 30);
    let ttl = ms(3_000);
    let leases: Vec<_> = keys.iter().map(|key| locks.lock(key).ttl(ttl).renew_every(ms(20)).blocking().unwrap()).collect();
    let slot = cluster.slot(&keys[0]);
    let to = another(&cluster, primary);
    let from = cluster.migrate_keys(slot, to, 10);
    let since = Instant::now();
    while since.elapsed() < ttl + ms(1_000) {
        for lease in &leases {
            assert!(lease.is_valid(), "{} after {:?}: {:?}", lease.key(), since.elapsed(), lease.lost_reason());
        }
        thread::sleep(ms(20));
    }
    cluster.migrate_rest(slot, from, to);
    for lease in leases {
        assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    }
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
    let key = &on_one_node(&cluster, 2, 1)[0];
    cluster.nodes[0].kill();
    cluster.nodes[1].signal(Signal::STOP);
    let since = Instant::now();
    let locks = block_on(Locks::connect(&cluster.url())).unwrap();
    println!("connected past a dead and a silent node: {:?}", since.elapsed());
    assert!(since.elapsed() < ms(10_000), "{:?}", since.elapsed());
    assert_eq!(locks.lock(key).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
}
