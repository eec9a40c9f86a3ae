//! Models of the read-write lock: what can happen between a few threads happens, in every order that loom finds.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::loom_world::{Inside, STALL, assert_idle, explore, poll_once, worker};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

struct World {
    domain: Domain,
    clock: ManualClock,
    lock: Arc<RwLock<Inside>>,
}

impl World {
    fn new() -> World {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).stall_time(STALL).build();
        let lock = Arc::new(RwLock::new(Inside::default()).in_domain(&domain));
        World { domain, clock, lock }
    }

    fn read(&self, worker: &Worker) -> OwnedRwLockReadGuard<Inside> {
        let Poll::Ready(guard) = poll_once(&mut worker.run(self.lock.read_owned())) else { panic!("nobody writes") };
        guard.unwrap()
    }

    fn write(&self, worker: &Worker) -> OwnedRwLockWriteGuard<Inside> {
        let Poll::Ready(guard) = poll_once(&mut worker.run(self.lock.write_owned())) else { panic!("the lock is free") };
        guard.unwrap()
    }

    /// Writes in a thread of its own.
    fn writer(&self, worker: &Worker) -> JoinHandle<()> {
        let (worker, wait) = (worker.clone(), self.lock.write_owned());
        spawn(move || block_on(worker.run(wait)).unwrap().visit())
    }

    /// Reads in a thread of its own.
    fn reader(&self, worker: &Worker) -> JoinHandle<u32> {
        let (worker, wait) = (worker.clone(), self.lock.read_owned());
        spawn(move || block_on(worker.run(wait)).unwrap().visits())
    }

    fn assert_over(self, visits: u32, workers: &[&Worker]) {
        assert!(!self.lock.is_locked());
        assert_eq!(self.lock.try_read().unwrap().visits(), visits);
        assert_idle(&self.domain, workers);
    }
}

fn model(name: &'static str, preemptions: usize, play: impl Fn(World) + Send + Sync + 'static) {
    explore(name, preemptions, move || play(World::new()));
}

/// Both by the short way, or one of them by the long.
#[test]
fn reader_against_writer() {
    model("reader against writer", 5, |world| {
        let (reader, writer) = (worker("reader", 1), worker("writer", 2));
        let writes = world.writer(&writer);
        let guard = block_on(reader.run(world.lock.read_owned())).unwrap();
        assert!(guard.visits() <= 1);
        drop(guard);
        writes.join().unwrap();
        world.assert_over(1, &[&reader, &writer]);
    });
}

#[test]
fn two_writers_and_a_reader() {
    model("two writers and a reader", 2, |world| {
        let (first, second, reader) = (worker("first", 1), worker("second", 2), worker("reader", 9));
        let writes = [world.writer(&first), world.writer(&second)];
        let guard = block_on(reader.run(world.lock.read_owned())).unwrap();
        assert!(guard.visits() <= 2);
        drop(guard);
        for writer in writes {
            writer.join().unwrap();
        }
        world.assert_over(2, &[&first, &second, &reader]);
    });
}

#[test]
fn two_readers_and_a_writer() {
    model("two readers and a writer", 2, |world| {
        let (first, second, writer) = (worker("first", 1), worker("second", 2), worker("writer", 9));
        let reads = [world.reader(&first), world.reader(&second)];
        block_on(writer.run(world.lock.write_owned())).unwrap().visit();
        for reader in reads {
            assert!(reader.join().unwrap() <= 1);
        }
        world.assert_over(1, &[&first, &second, &writer]);
    });
}

/// The graph is told of a reader who leaves at that moment.
#[test]
fn a_reader_leaves_while_a_writer_comes() {
    model("a reader leaves while a writer comes", 6, |world| {
        let (reader, writer) = (worker("reader", 0), worker("writer", 9));
        let guard = world.read(&reader);
        let writes = world.writer(&writer);
        assert!(guard.visits() == 0);
        drop(guard);
        writes.join().unwrap();
        world.assert_over(1, &[&reader, &writer]);
    });
}

/// A writer that only tries has the graph told of the readers, who are forgotten again while they leave and come.
#[test]
fn a_try_while_readers_come_and_go() {
    model("a try while readers come and go", 3, |world| {
        let (first, second, writer) = (worker("first", 0), worker("second", 1), worker("writer", 9));
        let guard = world.read(&first);
        let reads = world.reader(&second);
        let tries = spawn({
            let (lock, writer) = (Arc::clone(&world.lock), writer.clone());
            move || {
                writer.scope(|| lock.try_write()).is_ok_and(|guard| {
                    guard.visit();
                    true
                })
            }
        });
        assert!(guard.visits() == 0);
        drop(guard);
        assert!(reads.join().unwrap() <= 1);
        let visits = u32::from(tries.join().unwrap());
        world.assert_over(visits, &[&first, &second, &writer]);
    });
}

/// Who waits to write goes away: the reader who was behind it comes in.
#[test]
fn a_writer_cancels_against_the_last_reader() {
    model("a writer cancels against the last reader", 3, |world| {
        let (first, second, writer) = (worker("first", 0), worker("second", 1), worker("writer", 9));
        let guard = world.read(&first);
        let mut wait = world.lock.write_owned();
        assert!(writer.scope(|| poll_once(&mut wait)).is_pending());
        let reads = world.reader(&second);
        let cancels = spawn(move || drop(wait));
        drop(guard);
        cancels.join().unwrap();
        assert_eq!(reads.join().unwrap(), 0);
        world.assert_over(0, &[&first, &second, &writer]);
    });
}

/// A reader's time is over when the writer gives up.
#[test]
fn expiry_against_the_writers_release() {
    model("a reader's expiry against the writer's release", 4, |world| {
        let (reader, writer) = (worker("reader", 0), worker("writer", 9));
        let guard = world.write(&writer);
        let mut wait = world.lock.read_owned().timeout(Duration::from_millis(100));
        assert!(reader.scope(|| poll_once(&mut wait)).is_pending());
        let releases = spawn(move || drop(guard));
        world.clock.advance(Duration::from_millis(100));
        world.domain.expire();
        match block_on(reader.run(wait)) {
            Ok(guard) => assert_eq!(guard.visits(), 0),
            Err(error) => assert!(error.is_timeout(), "{error}"),
        }
        releases.join().unwrap();
        world.assert_over(0, &[&reader, &writer]);
    });
}

/// A reader's hold becomes another's while a writer comes and the graph learns of it.
#[test]
fn a_transfer_while_a_writer_comes() {
    model("a transfer while a writer comes", 4, |world| {
        let (reader, heir, writer) = (worker("reader", 0), worker("heir", 0), worker("writer", 9));
        let guard = world.read(&reader);
        let writes = world.writer(&writer);
        guard.transfer_to(&heir);
        assert_eq!((guard.visits(), reader.effective_priority()), (0, 0));
        drop(guard);
        writes.join().unwrap();
        world.assert_over(1, &[&reader, &heir, &writer]);
    });
}

/// The last reader leaves while another becomes the writer.
#[test]
fn an_upgrade_against_the_last_reader() {
    model("an upgrade against the last reader", 4, |world| {
        let (reader, upgrader) = (worker("reader", 0), worker("upgrader", 9));
        let guard = world.read(&reader);
        let upgrades = spawn({
            let (lock, upgrader) = (Arc::clone(&world.lock), upgrader.clone());
            move || {
                let mut guard = block_on(upgrader.run(lock.upgradable_owned())).unwrap();
                block_on(upgrader.run(guard.upgrade())).unwrap().visit();
            }
        });
        assert_eq!(guard.visits(), 0);
        drop(guard);
        upgrades.join().unwrap();
        world.assert_over(1, &[&reader, &upgrader]);
    });
}

/// The writer becomes a reader while another writer comes.
#[test]
fn a_downgrade_while_a_writer_comes() {
    model("a downgrade while a writer comes", 4, |world| {
        let (first, second) = (worker("first", 0), worker("second", 9));
        let guard = block_on(first.run(world.lock.write())).unwrap();
        guard.visit();
        let writes = world.writer(&second);
        let guard = heirlock::local::RwLockWriteGuard::downgrade(guard);
        assert_eq!(guard.visits(), 1);
        drop(guard);
        writes.join().unwrap();
        world.assert_over(2, &[&first, &second]);
    });
}
