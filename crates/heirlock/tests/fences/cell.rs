//! Values in memory.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use heirlock::lease::{Evict, FencedCell, Sequencer};
use heirlock::store::MemoryStore;
use heirlock::{Kind, Locks, Worker};

use crate::naive::{KEY, exclusive, refuses, shared, slot};
use crate::random::{Random, seed};

fn cell<T>(value: T) -> FencedCell<T> {
    FencedCell::new(KEY, value).unwrap()
}

#[tokio::test]
async fn case_s27_a_late_holder_neither_reads_nor_writes() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let balance = cell(100);
    let old = locks.lock(KEY).await.unwrap();
    let by_old = balance.advance(&old).unwrap();
    let read = by_old.read(|balance| *balance).unwrap();
    locks.evict(KEY, Evict { fence: None, force: true }).await.unwrap();

    let new = locks.lock(KEY).await.unwrap();
    let by_new = balance.advance(&new).unwrap();
    let mut called = false;
    let late = by_old.write(|balance| {
        called = true;
        *balance = read + 50;
    });
    assert!(late.unwrap_err().is_lost() && !called);
    assert!(by_old.read(|_| called = true).unwrap_err().is_lost() && !called);
    assert!(by_old.check().unwrap_err().is_lost());
    by_new.write(|balance| *balance -= 30).unwrap();
    assert_eq!(balance.into_inner(), 70);
}

/// All that a worker has of one lease is one holder.
#[tokio::test]
async fn a_shared_lease_is_one_holder() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let count = cell(0);
    Worker::new("twice")
        .run(async {
            let outer = locks.lock(KEY).await.unwrap();
            let by_outer = count.advance(&outer).unwrap();
            let inner = locks.lock(KEY).shared().await.unwrap();
            assert_eq!(inner.sequencer(), outer.sequencer());
            count.advance(&inner).unwrap().write(|count| *count += 1).unwrap();
            by_outer.write(|count| *count += 1).unwrap();
        })
        .await;
    assert_eq!(count.into_inner(), 2);
}

#[test]
fn a_holder_that_did_not_advance_gets_nothing() {
    let count = cell(0);
    assert!(count.check(exclusive(5, 1)).unwrap_err().is_invalid());
    count.advance(exclusive(5, 1)).unwrap();
    count.check(exclusive(5, 1)).unwrap().write(|count| *count += 1).unwrap();
    assert!(count.check(exclusive(5, 2)).unwrap_err().is_lost());
    assert!(count.check(exclusive(6, 2)).unwrap_err().is_invalid());
    assert_eq!(count.into_inner(), 1);
}

#[test]
fn a_cell_within_its_own_closure_is_an_error() {
    let count = cell(1);
    let by = count.advance(exclusive(5, 1)).unwrap();
    by.write(|value| {
        assert_eq!(by.read(|_| ()).unwrap_err().kind(), Kind::Deadlock);
        assert_eq!(by.write(|_| ()).unwrap_err().kind(), Kind::Deadlock);
        assert_eq!(by.check().unwrap_err().kind(), Kind::Deadlock);
        assert_eq!(count.advance(exclusive(6, 1)).unwrap_err().kind(), Kind::Deadlock);
        assert_eq!(count.fences().unwrap_err().kind(), Kind::Deadlock);
        assert_eq!(format!("{count:?}"), "FencedCell(in use)");
        *value = 2;
    })
    .unwrap();
    // Another cell is another matter.
    let other = cell(3);
    let of_other = other.advance(exclusive(1, 1)).unwrap();
    assert_eq!(by.read(|value| of_other.read(|other| value + other)).unwrap().unwrap(), 5);
    assert_eq!(format!("{count:?}"), "FencedCell(k, fence 5)");
}

#[test]
fn a_panic_leaves_the_cell_usable() {
    let count = cell(1);
    let by = count.advance(exclusive(5, 1)).unwrap();
    let panicked = thread::scope(|threads| {
        let late = threads.spawn(|| {
            by.write(|value| {
                *value = 2;
                panic!("half-way");
            })
        });
        late.join().is_err()
    });
    assert!(panicked);
    assert_eq!(by.read(|value| *value).unwrap(), 2);
    // Also on the thread that has panicked itself.
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| by.write(|_| panic!("again"))));
    assert!(again.is_err());
    assert_eq!(by.read(|value| *value).unwrap(), 2);
}

#[test]
fn a_value_of_unknown_size() {
    let count: Box<FencedCell<[u8]>> = Box::new(cell([1, 2, 3]));
    let by = count.advance(exclusive(5, 1)).unwrap();
    by.write(<[u8]>::reverse).unwrap();
    assert_eq!(by.read(<[u8]>::to_vec).unwrap(), [3, 2, 1]);
}

/// The check and the write are one step: what an old holder still writes, the new one finds when it has advanced, or it is refused.
#[test]
fn a_write_is_before_an_advance_or_refused() {
    for round in 0..200_u32 {
        let count = cell(0_u32);
        let old = count.advance(exclusive(5, 1)).unwrap();
        let barrier = Barrier::new(2);
        let told = thread::scope(|threads| {
            let writes = threads.spawn(|| {
                barrier.wait();
                let mut told = 0;
                while old.write(|count| *count += 1).is_ok() {
                    told += 1;
                }
                told
            });
            barrier.wait();
            // In some rounds after many writes, in others before the first.
            (0..round % 8).for_each(|_| thread::yield_now());
            let new = count.advance(exclusive(6, 2)).unwrap();
            let found = new.read(|count| *count).unwrap();
            let told = writes.join().unwrap();
            assert_eq!(new.read(|count| *count).unwrap(), found, "round {round}: it was written to behind the new holder's back");
            told
        });
        assert_eq!(count.into_inner(), told);
    }
}

/// Whose fences grow, some of which come late. Each epoch of fences is held in its own way.
fn holder(fence: u64) -> Sequencer {
    match fence / 40 % 3 {
        0 => exclusive(fence, fence),
        1 => slot(fence, u32::try_from(fence % 3).unwrap(), 3, fence),
        _ => shared(fence),
    }
}

/// Eight threads with holders of their own, most of them late, on one value: the list of all writes.
///
/// A write is right if nobody who refuses it has advanced before. Threads see that in two ways: between its advance and its write, a holder finds no
/// write that it would refuse; and no write is behind one that refuses it.
#[test]
fn random_threads_never_write_late() {
    const THREADS: u64 = 8;
    const STEPS: u32 = 1_000;
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (writes, granted) = (cell(Vec::<Sequencer>::new()), AtomicU64::new(1));
    let run = |thread| {
        let (mut random, mut written, mut late) = (Random::new(seed, thread), 0_usize, 0_usize);
        let mut mine = Vec::new();
        for _ in 0..STEPS {
            if mine.len() < 4 {
                mine.push(holder(granted.fetch_add(1, Ordering::Relaxed)));
            }
            let by = mine.swap_remove(random.index(mine.len()));
            let Ok(access) = writes.advance(&by) else {
                late += 1;
                continue;
            };
            let Ok(before) = access.read(Vec::len) else {
                late += 1;
                continue;
            };
            for _ in 0..random.within(0, 3) {
                thread::yield_now();
            }
            let wrote = access.write(|writes| {
                let passed = writes[before..].iter().find(|other| refuses(&by, other));
                assert!(passed.is_none(), "seed {seed}: {passed:?} wrote after {by} had advanced");
                writes.push(by.clone());
            });
            match wrote {
                Ok(()) => written += 1,
                Err(error) if by.may_write() => {
                    assert!(error.is_lost(), "{error}");
                    late += 1;
                }
                Err(error) => assert!(error.is_invalid(), "{error}"),
            }
            // Some stay on, and come late the next time.
            if random.chance(50) {
                mine.push(by);
            }
        }
        (written, late)
    };
    let counts = thread::scope(|threads| {
        let run = &run;
        let all: Vec<_> = (0..THREADS).map(|thread| threads.spawn(move || run(thread))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    });
    let writes = writes.into_inner();
    println!("{} written, {} late", counts.0, counts.1);
    assert_eq!(writes.len(), counts.0, "what was told to be written is there");
    assert!(counts.0 > 100 && counts.1 > 100, "{counts:?}: a test of little");
    for (at, by) in writes.iter().enumerate() {
        let passed = writes[..at].iter().find(|before| refuses(before, by));
        assert!(passed.is_none(), "seed {seed}: {by} wrote behind {passed:?}");
    }
}
