//! Read-write locks: what no case with a number says.

use crate::common::local::{assert_idle, holders, ms, shared, worker};
use crate::common::polls::{Hand, everywhere};
use heirlock::Worker;
use heirlock::local::{Domain, Mutex, Order, RwLock};

const MANY: usize = if cfg!(miri) { 100 } else { 1_000_000 };

/// There are places for eight.
#[test]
fn more_readers_than_places() {
    everywhere(|| async {
        let (domain, clock, lock) = shared();
        let workers: Vec<Worker> = (0..20).map(|at| worker(format!("r{at:02}"), at)).collect();
        let mut guards: Vec<_> = workers.iter().map(|worker| Some(Hand::by(worker, lock.read()).ready().unwrap())).collect();
        let mut writes = Hand::by(&worker("writes", 50), lock.write()).waiting();
        assert!(workers.iter().all(|worker| worker.effective_priority() == 50));
        clock.advance(ms(30));
        let snapshot = domain.snapshot();
        assert_eq!(holders(&domain), workers.iter().map(Worker::name).collect::<Vec<_>>());
        let table = &snapshot.locks[0];
        assert_eq!((&*table.name, table.kind, table.queue.len(), table.queue[0].party.mode), ("table", "rwlock", 1, "exclusive"));
        for holder in &table.holders {
            assert_eq!((holder.party.mode, holder.effective, holder.since_ms), ("shared", 50, 30));
        }
        // Some with a place and some without, in no order.
        for at in [12, 3, 0, 19, 7].into_iter().chain(0..20) {
            if let Some(guard) = guards[at].take() {
                assert_eq!(writes.wakes(), 0);
                drop(guard);
                assert_eq!(workers[at].effective_priority(), workers[at].base_priority());
            }
        }
        *writes.ready().unwrap() += 1;
        drop(writes);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// They come and go without the graph again as soon as nobody waits and all have places.
#[test]
fn the_graph_forgets_readers() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let workers = [1, 2, 3].map(|at| worker("reads", at));
        let mut guards = workers.each_ref().map(|worker| Some(Hand::by(worker, lock.read()).ready().unwrap()));
        let writer = worker("writes", 9);
        for _ in 0..3 {
            // Who only tries.
            assert!(writer.scope(|| lock.try_write()).unwrap_err().is_would_block());
            assert_idle(&domain);
            // Who waited, and then did not.
            let waits = Hand::by(&writer, lock.write()).waiting();
            assert_eq!(domain.records()[6], 3);
            drop(waits);
            assert_idle(&domain);
        }
        // One more than there are places for stays with the graph, and the others with it, until it goes.
        let more: Vec<_> = (0..6).map(|_| Hand::by(&worker("more", 0), lock.read()).ready().unwrap()).collect();
        assert_eq!(domain.records()[6], 9);
        drop(more);
        assert_idle(&domain);
        // Known or not, each is boosted when somebody waits.
        let waits = Hand::by(&writer, lock.write()).waiting();
        assert!(workers.iter().all(|worker| worker.effective_priority() == 9));
        guards[1] = None;
        assert_eq!(workers.each_ref().map(Worker::effective_priority), [9, 2, 9]);
        drop(guards);
        assert_eq!(waits.wakes(), 1);
        drop(waits);
        assert_idle(&domain);
    });
}

#[test]
fn a_million_readers() {
    let (domain, _, lock) = shared();
    // Whether they only try or would wait.
    let reads = |at| if at % 2 == 0 { lock.try_read() } else { pollster::block_on(lock.read()) };
    let guards: Vec<_> = (0..MANY).map(|at| reads(at).unwrap()).collect();
    let mut writes = Hand::by(&worker("writes", 3), lock.write()).waiting();
    assert_eq!(domain.records()[6], MANY);
    drop(guards);
    *writes.ready().unwrap() += 1;
    drop(writes);
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

/// One worker that enters a million times.
#[test]
fn a_million_levels() {
    let (domain, _, lock) = shared();
    let reader = worker("reads", 0);
    let guards: Vec<_> = (0..MANY).map(|_| reader.scope(|| lock.try_read()).unwrap()).collect();
    let mut writes = Hand::by(&worker("writes", 3), lock.write()).waiting();
    assert_eq!((reader.effective_priority(), domain.records()[6]), (3, 1));
    drop(guards);
    *writes.ready().unwrap() += 1;
    drop(writes);
    assert_idle(&domain);
}

/// One release lets in several, but not who was too late for it.
#[test]
fn who_has_expired_is_not_let_in_with_the_others() {
    let (domain, clock, lock) = shared();
    for late in 0..3 {
        let guard = Hand::by(&worker("writes", 0), lock.write()).ready().unwrap();
        let mut reads: Vec<_> =
            (0..3).map(|at| Hand::by(&worker("reads", 0), lock.read().timeout(ms(if at == late { 100 } else { 200 }))).waiting()).collect();
        // The timer may be late: the release itself looks at the clock.
        clock.advance(ms(100));
        drop(guard);
        for (at, reads) in reads.iter_mut().enumerate() {
            assert_eq!(reads.ready().is_err_and(|error| error.is_timeout()), at == late);
        }
        drop(reads);
        assert_idle(&domain);
    }
}

/// Who is more urgent than all writers in line reads first, and whoever came before them; the others once they have written.
#[test]
fn readers_and_writers_in_their_order() {
    let (domain, _, lock) = shared();
    let guard = Hand::by(&worker("first", 0), lock.write()).ready().unwrap();
    let reads = |priority| Hand::by(&worker("reads", priority), lock.read()).waiting();
    let before = reads(5);
    let mut writes = Hand::by(&worker("writes", 5), lock.write()).waiting();
    let mut waits = [before, reads(5), reads(7), reads(1)];
    drop(guard);
    assert_eq!((writes.wakes(), waits.each_ref().map(Hand::wakes)), (0, [1, 0, 1, 0]));
    let guards = (waits[0].ready().unwrap(), waits[2].ready().unwrap());
    drop(guards.1);
    assert_eq!(writes.wakes(), 0);
    drop(guards.0);
    assert_eq!((writes.wakes(), waits.each_ref().map(Hand::wakes)), (1, [1, 0, 1, 0]));
    drop(writes.ready().unwrap());
    assert_eq!(waits.each_ref().map(Hand::wakes), [1, 1, 1, 1]);
    drop((writes, waits));
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn the_limit_of_a_writer_that_is_passed_by() {
    let (domain, _, _) = shared();
    let lock = RwLock::new(()).in_domain(&domain).bypass_limit(3);
    let guard = Hand::by(&worker("reads", 0), lock.read()).ready().unwrap();
    let mut writes = Hand::by(&worker("writes", 0), lock.write()).waiting();
    // Readers that join at once count.
    let joins: Vec<_> = (0..3).map(|_| Hand::by(&worker("joins", 9), lock.read()).ready().unwrap()).collect();
    let mut waits = Hand::by(&worker("joins", 9), lock.read()).waiting();
    drop((guard, joins));
    assert_eq!((writes.wakes(), waits.wakes()), (1, 0));
    drop(writes.ready().unwrap());
    drop(waits.ready().unwrap());
    drop((writes, waits));
    assert_idle(&domain);
}

/// What it is locked with decides, not who comes: here the first to come.
#[test]
fn a_line_of_readers_and_writers() {
    static LOCK: RwLock<u32> = RwLock::named("line", 0).order(Order::Fifo);
    let guard = Hand::by(&worker("first", 0), LOCK.read()).ready().unwrap();
    let mut writes = Hand::by(&worker("writes", 0), LOCK.write()).waiting();
    let mut reads = Hand::by(&worker("urgent", 99), LOCK.read()).waiting();
    drop(guard);
    *writes.ready().unwrap() += 1;
    assert_eq!(*reads.ready().unwrap(), 1);
    drop((writes, reads));
    assert!(!LOCK.is_locked());
}

/// A chain of inheritance goes through readers, all of them.
#[test]
fn readers_pass_on_what_they_inherit() {
    let (domain, _, table) = shared();
    let row = Mutex::new(()).in_domain(&domain);
    let (holder, reads, beside, writes) = (worker("holder", 1), worker("reads", 2), worker("beside", 3), worker("writes", 9));
    let held = Hand::by(&holder, row.lock()).ready().unwrap();
    let read = [&reads, &beside].map(|worker| Hand::by(worker, table.read()).ready().unwrap());
    let mut waits = Hand::by(&reads, row.lock()).waiting();
    assert_eq!(holder.effective_priority(), 2);
    let mut writing = Hand::by(&writes, table.write()).waiting();
    assert_eq!([&holder, &reads, &beside].map(Worker::effective_priority), [9, 9, 9]);
    drop(read);
    assert_eq!([&holder, &reads, &beside].map(Worker::effective_priority), [2, 2, 3]);
    drop(writing.ready().unwrap());
    drop(held);
    drop(waits.ready().unwrap());
    drop((waits, writing));
    assert_idle(&domain);
}

/// In a domain that tracks its holds readers are known from the first on.
#[test]
fn tracked_readers() {
    let clock = heirlock::clock::ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(3_600_000)).build();
    let lock = RwLock::named("table", 7).in_domain(&domain);
    assert!(!lock.is_locked());
    let workers: Vec<Worker> = (0..10).map(|at| worker(format!("r{at}"), 0)).collect();
    let guards: Vec<_> = workers
        .iter()
        .map(|worker| {
            clock.advance(ms(1));
            worker.scope(|| lock.try_read()).unwrap()
        })
        .collect();
    let line = line!() - 3;
    let snapshot = domain.snapshot();
    let since: Vec<u64> = snapshot.locks[0].holders.iter().map(|holder| holder.since_ms).collect();
    assert_eq!(since, (0..10).rev().collect::<Vec<_>>());
    let site = Some(format!("{}:{line}", file!()));
    assert!(snapshot.locks[0].holders.iter().all(|holder| holder.site == site && holder.party.mode == "shared"), "{snapshot}");
    guards[0].transfer_to(&workers[1]);
    assert_eq!(holders(&domain).len(), 9);
    drop(guards);
    assert!(!lock.is_locked());
    assert_eq!(*lock.try_write().unwrap(), 7);
    assert_idle(&domain);
}

#[test]
fn values_come_and_go() {
    let mut lock: RwLock<Vec<u8>> = RwLock::default();
    lock.get_mut().push(1);
    pollster::block_on(lock.write()).unwrap().push(2);
    let reads = lock.try_read().unwrap();
    assert_eq!(format!("{lock:?} {reads:?}"), "RwLock { name: None, value: [1, 2] } [1, 2]");
    drop(reads);
    let writes = lock.try_write().unwrap();
    assert_eq!(format!("{lock:?} {writes:?}"), "RwLock { name: None, value: <locked> } [1, 2]");
    drop(writes);
    let unsized_lock: &RwLock<[u8]> = &RwLock::from([1, 2, 3]);
    assert_eq!(unsized_lock.try_read().unwrap().len(), 3);
    assert_eq!(lock.into_inner(), [1, 2]);
}

/// It needs no domain but the global one, and nothing that runs before `main`.
#[test]
fn a_static_lock() {
    static ROUTES: RwLock<Vec<u32>> = RwLock::named("routes", Vec::new());
    let threads: Vec<_> = (0..4)
        .map(|at| {
            std::thread::spawn(move || {
                for _ in 0..100 {
                    ROUTES.write_blocking().unwrap().push(at);
                    assert!(ROUTES.read_blocking().unwrap().contains(&at));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((ROUTES.read_blocking().unwrap().len(), ROUTES.name()), (400, Some("routes")));
    assert!(!ROUTES.is_locked());
}
