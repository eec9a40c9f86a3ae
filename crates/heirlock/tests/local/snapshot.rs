//! What is seen of local locks: snapshots, and the text of a deadlock.

use std::panic::Location;
use std::time::{Duration, Instant};

use crate::common::local::{domain, ms, shared, worker};
use crate::common::polls::{Hand, everywhere, once, pause};
use crate::common::written::Lock as Written;
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Condvar, Domain, Mutex, RLock};
use heirlock::observe::{Lock, Snapshot};

type Permit<T> = crate::common::one_permit::Lock<T, true>;

/// The line of the call, as errors and snapshots write it.
#[track_caller]
fn line() -> String {
    let here = Location::caller();
    format!("{}:{}", here.file(), here.line())
}

fn lock<'a>(snapshot: &'a Snapshot, name: &str) -> &'a Lock {
    snapshot.locks.iter().find(|lock| lock.name == name).unwrap_or_else(|| panic!("no lock {name} in {snapshot}"))
}

/// Who waits for whom, where, by name.
fn edges(snapshot: &Snapshot) -> Vec<(&str, &str, Option<&str>)> {
    snapshot.edges.iter().map(|edge| (&*edge.from.name, &*edge.to.name, edge.lock.as_deref())).collect()
}

#[test]
fn a_snapshot_shows_who_holds_and_who_waits() {
    let (domain, clock) = domain();
    let lock = Mutex::named("db", ()).in_domain(&domain);
    let (low, high) = (worker("low", 1), worker("high", 9));
    assert!(domain.snapshot().locks.is_empty());
    let (guard, acquired) = (low.scope(|| lock.try_lock().unwrap()), line());
    assert!(domain.snapshot().locks.is_empty(), "nobody has waited for it");
    let (acquire, waited) = (lock.lock().timeout(ms(500)), line());
    let waits = Hand::by(&high, acquire).waiting();
    clock.advance(ms(200));
    let also = Hand::by(&low.fork("arm"), lock.lock().priority(3)).waiting();
    let snapshot = domain.snapshot();
    let db = self::lock(&snapshot, "db");
    assert_eq!((db.kind, db.unknown_releaser, db.holders.len(), db.queue.len()), ("mutex", false, 1, 2));
    let holder = &db.holders[0];
    assert_eq!((&*holder.party.worker.name, holder.party.worker.id, holder.party.mode), ("low", low.id().get(), "exclusive"));
    assert_eq!((holder.priority, holder.effective, holder.since_ms), (1, 9, 200));
    assert_eq!(holder.site, Some(acquired));
    assert_eq!((holder.party.worker.pid, holder.party.worker.host.is_empty()), (std::process::id(), false));
    let first = &db.queue[0];
    assert_eq!((first.position, &*first.party.worker.name, first.priority, first.effective), (1, "high", 9, 9));
    assert_eq!((first.waiting_ms, first.deadline_in_ms, first.site.as_ref()), (200, Some(300), Some(&waited)));
    let second = &db.queue[1];
    assert_eq!((&*second.party.worker.name, second.priority, second.effective, second.deadline_in_ms), ("arm", 3, 9, None));
    assert_eq!(edges(&snapshot), [("high", "low", Some("db")), ("arm", "low", Some("db")), ("low", "arm", None)]);
    // The parent waits, in a way, for its fork.
    assert_eq!(snapshot.suspected.len(), 1, "{snapshot}");
    drop((waits, also));
    drop(guard);
    let snapshot = domain.snapshot();
    assert_eq!(snapshot.to_string(), "nothing is held or waited for\n");
}

#[test]
fn a_snapshot_has_the_shape_that_all_faces_share() {
    let (domain, _) = domain();
    let lock = RLock::named("tree", ()).in_domain(&domain);
    let guard = worker("low", 1).scope(|| lock.try_lock().unwrap());
    let waits = Hand::by(&worker("high", 9), lock.lock()).waiting();
    let json = serde_json::to_value(domain.snapshot()).unwrap();
    let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(fields(&json), "at deadlocks edges locks losses suspected", "no store, no inversions");
    let lock = &json["locks"][0];
    assert_eq!((fields(lock).as_str(), lock["kind"].as_str()), ("holders kind name queue", Some("rlock")));
    assert_eq!(fields(&lock["holders"][0]), "effective mode priority since_ms site worker");
    assert_eq!(fields(&lock["holders"][0]["worker"]), "host id name pid");
    assert_eq!(fields(&lock["queue"][0]), "effective mode position priority site waiting_ms worker");
    assert_eq!(fields(&json["edges"][0]), "from lock to");
    drop(waits);
    drop(guard);
}

#[test]
fn a_snapshot_tells_anonymous_acquires_apart() {
    let (domain, _) = domain();
    let (named, nameless) = (Mutex::named("a", ()).in_domain(&domain), Mutex::new(()).in_domain(&domain));
    let guards = (named.try_lock().unwrap(), nameless.try_lock().unwrap());
    let waits = (Hand::new(named.lock()).waiting(), Hand::new(named.lock()).waiting(), Hand::new(nameless.lock()).waiting());
    let snapshot = domain.snapshot();
    assert!(snapshot.locks.iter().any(|lock| lock.name.starts_with('#')), "{snapshot}");
    let workers = snapshot.locks.iter().flat_map(|lock| {
        let holders = lock.holders.iter().map(|holder| &holder.party.worker);
        holders.chain(lock.queue.iter().map(|waiter| &waiter.party.worker))
    });
    let ids: std::collections::BTreeSet<u64> =
        workers.inspect(|worker| assert_eq!(worker.name, "anonymous")).map(|worker| worker.id).collect();
    assert_eq!(ids.len(), 5, "{snapshot}");
    drop(waits);
    drop(guards);
}

/// An explicit worker that holds the lock spawns a child that wants it, and awaits it: who looks sees why nothing moves.
macro_rules! child_of_the_holder {
    ($test:ident, $lock:ident) => {
        #[test]
        fn $test() {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for runtime in [runtime, one] {
                let (domain, _) = domain();
                let lock = std::sync::Arc::new($lock::named("shared", ()).in_domain(&domain));
                let seen = domain.clone();
                runtime.block_on(async move {
                    let (parent, child) = (worker("parent", 0), worker("child", 0));
                    let task = tokio::spawn(parent.run(async move {
                        let _guard = lock.lock().await.unwrap();
                        let inner = lock.clone();
                        let child = tokio::spawn(child.run(async move { inner.lock().await.map(drop) }));
                        child.await.unwrap()
                    }));
                    while seen.snapshot().edges.is_empty() {
                        pause().await;
                    }
                    let snapshot = seen.snapshot();
                    assert_eq!(edges(&snapshot), [("child", "parent", Some("shared"))]);
                    assert!(snapshot.to_string().contains("child waits for parent: shared"), "{snapshot}");
                    assert!(snapshot.suspected.is_empty(), "of the await, nothing is known");
                    task.abort();
                    assert!(task.await.is_err());
                });
            }
        }
    };
}

child_of_the_holder!(case_f07_the_snapshot_shows_the_child_waiting_on_its_parent, Mutex);
child_of_the_holder!(case_f07_the_same_of_a_re_entrant_lock, RLock);
child_of_the_holder!(case_f07_the_same_of_a_lock_that_is_written, Written);
child_of_the_holder!(case_f07_the_same_of_a_permit, Permit);

#[test]
fn case_f15_behind_a_forgotten_guard_the_snapshot_names_the_line() {
    let (domain, clock) = domain();
    let lock = Mutex::named("leaky", ()).in_domain(&domain);
    let (guard, acquired) = (worker("careless", 0).scope(|| lock.try_lock().unwrap()), line());
    std::mem::forget(guard);
    let mut waits = Hand::by(&worker("next", 0), lock.lock().timeout(ms(100))).waiting();
    let snapshot = domain.snapshot();
    assert_eq!(self::lock(&snapshot, "leaky").holders[0].site, Some(acquired));
    clock.advance(ms(100));
    while waits.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(waits.ready().unwrap_err().is_timeout());
}

/// Two bare tasks hold a lock each and wait for each other's; as they may have other arms, that is suspected only.
#[test]
fn case_p22_phantom_boost_of_a_suspected_cycle() {
    if !cfg!(feature = "tokio") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (first, second) in [(10, 10), (10, 20)] {
        let (domain, _) = domain();
        let [a, b] = ["a", "b"].map(|name| std::sync::Arc::new(Mutex::named(name, ()).in_domain(&domain)));
        let seen = domain.clone();
        runtime.block_on(async move {
            let ready = std::sync::Arc::new(tokio::sync::Barrier::new(2));
            let task = |mine: &std::sync::Arc<Mutex<()>>, other: &std::sync::Arc<Mutex<()>>, priority: i32| {
                let (mine, other, ready) = (mine.clone(), other.clone(), ready.clone());
                tokio::spawn(async move {
                    let _guard = mine.lock().await.unwrap();
                    ready.wait().await;
                    drop(other.lock().priority(priority).await);
                })
            };
            // A bare task has no base: its wait's priority is what it gives.
            let tasks = [task(&a, &b, first), task(&b, &a, second)];
            while seen.snapshot().suspected.is_empty() {
                pause().await;
            }
            let effective = |name: &str| lock(&seen.snapshot(), name).holders[0].effective;
            let before = (effective("a"), effective("b"));
            let urgent = worker("urgent", 50);
            let mut joins = Box::pin(urgent.run(a.lock()));
            assert!(once(&mut joins).await.is_pending());
            assert_eq!((effective("a"), effective("b")), (50, 50));
            drop(joins);
            assert_eq!((effective("a"), effective("b")), before, "the cycle stands, and nothing of the boost");
            assert_eq!(before, (first.max(second), first.max(second)));
            let snapshot = seen.snapshot();
            let [cycle] = snapshot.suspected.as_slice() else { panic!("{snapshot}") };
            assert_eq!(cycle.len(), 2);
            assert!(cycle[0].contains("waits for lock") && cycle[0].contains("held by task"), "{cycle:?}");
            assert!(snapshot.to_dot().contains("color=red"), "{}", snapshot.to_dot());
            // One gives up what it holds, and the other gets it.
            let [one, other] = tasks;
            one.abort();
            assert!(one.await.unwrap_err().is_cancelled());
            other.await.unwrap();
            assert!(seen.snapshot().suspected.is_empty());
        });
    }
}

#[test]
fn a_deadlock_tells_the_whole_cycle_and_what_to_do() {
    let (domain, clock) = domain();
    let (a, b) = (Mutex::named("a", ()).in_domain(&domain), Mutex::named("b", ()).in_domain(&domain));
    let (t1, t2) = (worker("t1", 20), worker("t2", 10));
    let (_held_a, a_taken) = (t1.scope(|| a.try_lock().unwrap()), line());
    let (held_b, b_taken) = (t2.scope(|| b.try_lock().unwrap()), line());
    let (acquire, b_wanted) = (b.lock(), line());
    let waits = Hand::by(&t1, acquire).waiting();
    clock.advance(ms(1500));
    let (acquire, a_wanted) = (a.lock(), line());
    let error = Hand::by(&t2, acquire).ready().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "deadlock: worker \"t2\" waits for lock \"a\" (at {a_wanted}), held by worker \"t1\" (from {a_taken}), which waits for lock \"b\" (at \
             {b_wanted}, for 1.5 s), held by worker \"t2\" (from {b_taken}, for at least 1.5 s); give up what is held and try again, or take these \
             locks in the same order everywhere"
        )
    );
    let steps = [
        format!("worker \"t2\" waits for lock \"a\" (at {a_wanted}), held by worker \"t1\" (from {a_taken})"),
        format!(
            "worker \"t1\" waits for lock \"b\" (at {b_wanted}, for 1.5 s), held by worker \"t2\" (from {b_taken}, for at least 1.5 s)"
        ),
    ];
    assert_eq!(domain.snapshot().deadlocks, [steps]);
    drop(waits);
    drop(held_b);
    // The last sixteen are kept.
    let _held_b = t2.scope(|| b.try_lock().unwrap());
    for _ in 0..20 {
        assert!(Hand::by(&t2, b.lock()).ready().unwrap_err().is_deadlock());
    }
    let deadlocks = domain.snapshot().deadlocks;
    assert_eq!((deadlocks.len(), deadlocks[0].len()), (16, 1));
}

/// With tracked holds it is known since when each stands; a verdict that falls on who waits already knows where that was.
#[test]
fn a_deadlock_of_tracked_holds_is_exact() {
    let clock = ManualClock::new();
    let policy = heirlock::local::DeadlockPolicy::LowestPriority;
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(3_600_000)).deadlock_policy(policy).build();
    let (a, b) = (Mutex::named("a", ()).in_domain(&domain), Mutex::named("b", ()).in_domain(&domain));
    let (low, high) = (worker("low", 1), worker("high", 2));
    let (_held_a, a_taken) = (low.scope(|| a.try_lock().unwrap()), line());
    clock.advance(ms(1000));
    let (held_b, b_taken) = (high.scope(|| b.try_lock().unwrap()), line());
    let (acquire, b_wanted) = (b.lock(), line());
    let mut victim = Hand::by(&low, acquire).waiting();
    clock.advance(ms(2500));
    let (acquire, a_wanted) = (a.lock(), line());
    let waits = Hand::by(&high, acquire).waiting();
    let text = victim.ready().unwrap_err().to_string();
    for part in [
        format!("worker \"low\" waits for lock \"b\" (at {b_wanted}, for 2.5 s), held by worker \"high\" (from {b_taken}, for 2.5 s)"),
        format!("waits for lock \"a\" (at {a_wanted}), held by worker \"low\" (from {a_taken}, for 3.5 s)"),
    ] {
        assert!(text.contains(part.trim_start_matches("worker \"low\" ")), "{text}\n{part}");
    }
    drop(waits);
    drop(held_b);
}

#[test]
fn a_domain_that_tracks_shows_every_hold_since_it_began() {
    everywhere(|| async {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).warn_after(ms(3_600_000)).build();
        let (db, tree) = (Mutex::named("db", ()).in_domain(&domain), RLock::named("tree", ()).in_domain(&domain));
        assert!(!db.is_locked() && !tree.is_locked());
        let guard = db.lock().await.unwrap();
        clock.advance(ms(700));
        let inner = worker("walk", 0).scope(|| (tree.try_lock().unwrap(), tree.try_lock().unwrap()));
        let snapshot = domain.snapshot();
        assert_eq!((lock(&snapshot, "db").holders[0].since_ms, lock(&snapshot, "tree").holders[0].since_ms), (700, 0));
        assert!(db.is_locked() && db.try_lock().unwrap_err().is_would_block());
        // A hold that is handed over begins then, and not when its wait did.
        let mut waits = Box::pin(Worker::new("next").run(db.lock()));
        assert!(once(&mut waits).await.is_pending());
        clock.advance(ms(300));
        drop(guard);
        clock.advance(ms(50));
        let snapshot = domain.snapshot();
        assert_eq!(lock(&snapshot, "db").holders[0].since_ms, 50);
        assert_eq!(lock(&snapshot, "db").holders[0].party.worker.name, "next");
        drop(waits.await.unwrap());
        drop(inner.0);
        assert!(tree.is_locked() && !db.is_locked());
        drop(inner.1);
        assert!(!tree.is_locked() && domain.snapshot().locks.is_empty());
        assert_eq!(domain.records(), [0; 7]);
    });
}

/// The fast path of a tracked lock is the long one; everything else is as ever.
#[test]
fn tracked_locks_are_locks() {
    everywhere(|| async {
        let domain = Domain::builder().check_order(true).warn_after(ms(3_600_000)).build();
        let lock = std::sync::Arc::new(Mutex::new(0_u64).in_domain(&domain));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    let worker = Worker::new(format!("w{number}"));
                    for _ in 0..200 {
                        *pollster::block_on(worker.run(lock.lock())).unwrap() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.lock().timeout(Duration::ZERO).await.unwrap(), 800);
        let guard = lock.lock().deadline(Instant::now()).await.unwrap();
        guard.transfer_to(&Worker::new("other"));
        drop(guard);
        assert!(!lock.is_locked());
        assert_eq!(domain.records(), [0; 7]);
        assert!(domain.snapshot().inversions.is_empty());
    });
}

/// Who will notify a condition is unknown: nobody is in the way of who waits, and the snapshot says so.
#[test]
fn a_condition_has_an_unknown_releaser() {
    let (domain, clock) = domain();
    let (changed, state) = (Condvar::named("changed").in_domain(&domain), Mutex::named("state", ()).in_domain(&domain));
    let waiter = worker("waiter", 3);
    let waits = Hand::by(&waiter, async { changed.wait(state.lock().await?).await.map(drop) }).waiting();
    clock.advance(ms(1200));
    let snapshot = domain.snapshot();
    let condition = lock(&snapshot, "changed");
    assert_eq!((condition.kind, condition.unknown_releaser, condition.holders.len()), ("condition", true, 0));
    assert_eq!((&*condition.queue[0].party.worker.name, condition.queue[0].waiting_ms), ("waiter", 1200));
    assert!(snapshot.edges.is_empty() && snapshot.locks.len() == 1, "{snapshot}");
    assert!(
        snapshot.to_string().starts_with("changed (condition): not held, 1 waiting, others than its holders may release it"),
        "{snapshot}"
    );
    drop(waits);
    assert!(domain.snapshot().locks.is_empty());
}

/// Who would be upgradable can hold beside the readers: it waits for who is upgradable, and is shown to wait for that one only.
#[test]
fn who_would_be_upgradable_is_not_shown_to_wait_for_readers() {
    let (domain, _, table) = shared();
    let [reader, first, second, writer] = ["reader", "first", "second", "writer"].map(|name| worker(name, 0));
    let read = reader.scope(|| table.try_read()).unwrap();
    let guard = first.scope(|| table.try_upgradable()).unwrap();
    let mut waits = Hand::by(&second, table.upgradable()).waiting();
    assert_eq!(edges(&domain.snapshot()), [("second", "first", Some("table"))]);
    drop(guard);
    let guard = waits.ready().unwrap();
    // A writer waits for all of them; and who waits behind the writer, where nobody is upgradable, waits for the readers as the writer does.
    let queued = Hand::by(&writer, table.write()).waiting();
    let count = |from: &str| domain.snapshot().edges.iter().filter(|edge| edge.from.name == from).count();
    assert_eq!(count("writer"), 2);
    drop(guard);
    drop(waits);
    let waits = Hand::by(&second, table.upgradable()).waiting();
    let mut seen = domain.snapshot();
    seen.edges.sort_by(|one, other| one.from.name.cmp(&other.from.name));
    assert_eq!(edges(&seen), [("second", "reader", Some("table")), ("writer", "reader", Some("table"))]);
    drop((waits, queued, read));
    assert!(domain.snapshot().locks.is_empty());
}
