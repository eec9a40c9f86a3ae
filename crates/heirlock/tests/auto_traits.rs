//! What may cross threads, checked when this compiles.
#![allow(missing_docs)]

use std::future::{IntoFuture, Ready};

use heirlock::lease::{
    Acquire, Fenced, FencedCell, Fences, Key, KeyView, Lease, LeaseSet, Locks, Notice, Sequencer, Several, Store, Ticket, Token,
};
use heirlock::local::{
    self, AcquireKeyed, AcquireKeyedOwned, AcquireOwned, Arrival, Await, Barrier, Condvar, Domain, Event, Initialise, KeyedGuard,
    KeyedLock, LockAll, MappedMutexGuard, MappedRLockGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, MutexGuard, OnceCell,
    OwnedKeyedGuard, OwnedMappedRwLockReadGuard, OwnedMappedRwLockWriteGuard, OwnedMutexGuard, OwnedRLockGuard, OwnedRwLockReadGuard,
    OwnedRwLockUpgradableGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, Producer, Promise, RLock, RLockGuard, Read, RwLock,
    RwLockReadGuard, RwLockUpgradableGuard, RwLockWriteGuard, Semaphore, SemaphorePermit, TimedWaiting, Waiting, lock_all,
};
use heirlock::store::{Faulty, MemoryStore};
use heirlock::{Error, LostReason, Run, WeakWorker, Worker};

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn unpin<T: Unpin>() {}
fn send_value<T: Send>(_: T) {}

#[test]
fn types() {
    send::<(Error, Key, KeyView, Notice, Ticket, Token, LostReason, Worker)>();
    sync::<(Error, Key, KeyView, Notice, Ticket, Token, LostReason, Worker)>();
    send::<(Locks, Lease, LeaseSet, Acquire, Acquire<Several>, MemoryStore, Faulty<MemoryStore>, Box<dyn Store>)>();
    sync::<(Locks, Lease, LeaseSet, Acquire, Acquire<Several>, MemoryStore, Faulty<MemoryStore>, Box<dyn Store>)>();
    unpin::<(Locks, Lease, LeaseSet, Acquire, Acquire<Several>, Worker)>();
    send::<Run<Ready<()>>>();
    unpin::<Run<Ready<()>>>();
    unpin::<<Acquire as IntoFuture>::IntoFuture>();
    unpin::<<Acquire<Several> as IntoFuture>::IntoFuture>();
}

/// A value that may be sent may be shared in a cell: accesses exclude each other.
#[test]
fn fences() {
    type Sent = std::cell::Cell<u8>;
    send::<(Sequencer, Fences, FencedCell<Sent>, Fenced<'static, Sent>)>();
    sync::<(Sequencer, Fences, FencedCell<Sent>, Fenced<'static, Sent>)>();
    unpin::<(Sequencer, Fences, FencedCell<u8>, Fenced<'static, Sent>)>();
}

/// What of these must *not* cross threads is checked by the compiler in `local/mutex.rs`, `owned.rs`, `rlock.rs` and `rwlock/`.
#[test]
fn local_locks() {
    // A `Cell` may be sent, but not shared.
    type Sent = std::cell::Cell<u8>;
    send::<(Domain, Mutex<Sent>, MutexGuard<'static, Sent>, OwnedMutexGuard<Sent>)>();
    send::<(local::Acquire<'static, Mutex<Sent>>, AcquireOwned<Mutex<Sent>>)>();
    sync::<(Domain, Mutex<Sent>, MutexGuard<'static, u8>, OwnedMutexGuard<u8>)>();
    sync::<(local::Acquire<'static, Mutex<u8>>, AcquireOwned<Mutex<u8>>)>();
    unpin::<(Domain, MutexGuard<'static, u8>, OwnedMutexGuard<u8>, local::Acquire<'static, Mutex<u8>>, AcquireOwned<Mutex<u8>>)>();
    // Of a lock that is entered again, several guards of one value live at once.
    send::<(
        RLock<Sent>,
        RLock<u8>,
        RLockGuard<'static, u8>,
        OwnedRLockGuard<u8>,
        local::Acquire<'static, RLock<u8>>,
        AcquireOwned<RLock<u8>>,
    )>();
    sync::<(RLock<u8>, RLockGuard<'static, u8>, OwnedRLockGuard<u8>)>();
    unpin::<(RLockGuard<'static, u8>, OwnedRLockGuard<u8>, AcquireOwned<RLock<u8>>, WeakWorker)>();
}

/// Readers have a `&T`, several of them at once; a writer has a `&mut T`.
#[test]
fn read_write_locks() {
    type Sent = std::cell::Cell<u8>;
    /// It may be shared, but not sent.
    type Shared = std::sync::MutexGuard<'static, u8>;
    send::<(RwLock<Sent>, RwLock<u8>)>();
    sync::<RwLock<u8>>();
    send::<(
        RwLockReadGuard<'static, u8>,
        RwLockReadGuard<'static, Shared>,
        MappedRwLockReadGuard<'static, Shared>,
        OwnedRwLockReadGuard<u8>,
    )>();
    sync::<(RwLockReadGuard<'static, Shared>, MappedRwLockReadGuard<'static, Shared>, OwnedRwLockReadGuard<u8>)>();
    send::<(RwLockWriteGuard<'static, u8>, MappedRwLockWriteGuard<'static, u8>, OwnedRwLockWriteGuard<u8>)>();
    sync::<(RwLockWriteGuard<'static, Shared>, MappedRwLockWriteGuard<'static, Shared>, OwnedRwLockWriteGuard<u8>)>();
    send::<(local::Acquire<'static, RwLock<u8>, Read>, local::Acquire<'static, RwLock<u8>>)>();
    send::<(AcquireOwned<RwLock<u8>, Read>, AcquireOwned<RwLock<u8>>)>();
    sync::<(local::Acquire<'static, RwLock<u8>, Read>, AcquireOwned<RwLock<u8>>)>();
    unpin::<(RwLockReadGuard<'static, u8>, RwLockWriteGuard<'static, u8>, OwnedRwLockReadGuard<u8>, OwnedRwLockWriteGuard<u8>)>();
    unpin::<(local::Acquire<'static, RwLock<u8>, Read>, AcquireOwned<RwLock<u8>, Read>)>();
    // Of a part, what is said of that and of the whole.
    send::<(OwnedMappedRwLockReadGuard<[u8], u8>, OwnedMappedRwLockReadGuard<u8, Shared>, OwnedMappedRwLockWriteGuard<u8, Sent>)>();
    sync::<(OwnedMappedRwLockReadGuard<u8, Shared>, OwnedMappedRwLockWriteGuard<[u8], Shared>)>();
    unpin::<(OwnedMappedRwLockReadGuard<u8, u8>, OwnedMappedRwLockWriteGuard<u8, u8>)>();
    send::<(RwLockUpgradableGuard<'static, u8>, OwnedRwLockUpgradableGuard<u8>)>();
    sync::<(RwLockUpgradableGuard<'static, Shared>, OwnedRwLockUpgradableGuard<u8>)>();
    unpin::<(RwLockUpgradableGuard<'static, u8>, OwnedRwLockUpgradableGuard<u8>)>();
}

#[test]
fn semaphores() {
    send::<(Semaphore, SemaphorePermit<'static>, OwnedSemaphorePermit)>();
    sync::<(Semaphore, SemaphorePermit<'static>, OwnedSemaphorePermit)>();
    unpin::<(Semaphore, SemaphorePermit<'static>, OwnedSemaphorePermit)>();
    send::<(local::Acquire<'static, Semaphore>, AcquireOwned<Semaphore>)>();
    sync::<(local::Acquire<'static, Semaphore>, AcquireOwned<Semaphore>)>();
    unpin::<(local::Acquire<'static, Semaphore>, AcquireOwned<Semaphore>)>();
}

/// As what they guard.
#[test]
fn conditions_and_cells() {
    type Sent = std::cell::Cell<u8>;
    send::<(Condvar, Waiting<'static, MutexGuard<'static, Sent>>, TimedWaiting<'static, RLockGuard<'static, u8>>)>();
    sync::<(Condvar, Waiting<'static, MutexGuard<'static, u8>>)>();
    unpin::<(Condvar, Waiting<'static, MutexGuard<'static, u8>>, TimedWaiting<'static, RLockGuard<'static, u8>>)>();
    send::<(MappedMutexGuard<'static, Sent>, MappedRLockGuard<'static, u8>)>();
    send::<(OnceCell<Sent>, OnceCell<u8>, Initialise<'static, u8, fn() -> Ready<u8>, Ready<u8>, ()>)>();
    sync::<OnceCell<u8>>();
}

/// As their keys. That a guard of keys which may not be sent may not be either, the compiler checks in `local/keyed/guard.rs`.
#[test]
fn keys_and_several_locks() {
    type Pair = (AcquireKeyed<'static, String>, local::Acquire<'static, Mutex<u8>>);
    send::<(KeyedLock<String>, KeyedGuard<'static, String>, OwnedKeyedGuard<String>, AcquireKeyed<'static, String>)>();
    sync::<(KeyedLock<String>, KeyedGuard<'static, String>, OwnedKeyedGuard<String>, AcquireKeyedOwned<String>)>();
    send::<(LockAll<Pair>, LockAll<Vec<AcquireKeyedOwned<String>>>, LockAll<[AcquireOwned<Mutex<u8>>; 3]>)>();
    sync::<LockAll<Pair>>();
    // A key is never pinned.
    unpin::<(KeyedGuard<'static, std::marker::PhantomPinned>, AcquireKeyed<'static, std::marker::PhantomPinned>, LockAll<Pair>)>();
}

/// Futures that wait with what they borrow can be spawned, also where keys borrow.
#[test]
fn futures_of_keys_and_several_locks() {
    fn of_keys<'k>(keyed: &KeyedLock<&'k str>, lock: &Mutex<&'k str>, key: &'k str, owned: &std::sync::Arc<KeyedLock<&'static str>>) {
        send_value(async move { keyed.lock(key).priority(3).await.map(drop) });
        send_value(async { owned.lock_owned("a").await.map(drop) });
        send_value(async move {
            let guards = lock_all((keyed.lock(key), lock.lock(), owned.lock_owned("b"))).await.unwrap();
            std::future::ready(()).await;
            drop(guards);
        });
        send_value(async move { lock_all(["a", "b"].map(|key| owned.lock_owned(key))).await.map(drop) });
    }
    // Compiled, not run.
    let _ = of_keys;
}

/// A promise as its value; whoever is to give it may be anywhere.
#[test]
fn what_is_awaited() {
    type Sent = std::cell::Cell<u8>;
    send::<(Event, Barrier, Arrival, Promise<Sent>, Promise<u8>, Producer<'static, u8>)>();
    sync::<(Event, Barrier, Arrival, Promise<u8>, Producer<'static, u8>)>();
    unpin::<(Event, Barrier, Arrival, Promise<u8>, Producer<'static, u8>)>();
    send::<(Await<'static, Event>, Await<'static, Barrier>, Await<'static, Promise<u8>>)>();
    sync::<(Await<'static, Event>, Await<'static, Barrier>, Await<'static, Promise<u8>>)>();
    unpin::<(Await<'static, Event>, Await<'static, Barrier>, Await<'static, Promise<u8>>)>();
}

/// Futures that wait with what they borrow can be spawned.
#[test]
fn futures_of_conditions_and_cells() {
    fn of_a_lock(lock: &Mutex<u32>, changed: &Condvar, cell: &OnceCell<String>, limit: &str) {
        send_value(async { changed.wait(lock.lock().await.unwrap()).await.map(drop) });
        send_value(async {
            changed.wait_while(lock.lock().await.unwrap(), |state| limit.len() > state.count_ones() as usize).await.map(drop)
        });
        send_value(async { cell.get_or_init(async || limit.to_owned()).await.map(drop) });
        send_value(async { cell.get_or_try_init(|| async { Ok::<_, Error>(limit.to_owned()) }).priority(3).await.map(drop) });
    }
    // Compiled, not run.
    let _ = of_a_lock;
}

#[cfg(feature = "sqlite")]
#[test]
fn the_embedded_store() {
    send::<heirlock::store::SqliteStore>();
    sync::<heirlock::store::SqliteStore>();
}

#[test]
fn futures() {
    fn of_a_lease(lease: Lease) {
        send_value(lease.lost());
        send_value(lease.run(std::future::ready(())));
        send_value(lease.release());
    }
    fn of_several(leases: LeaseSet) {
        send_value(leases.lost());
        send_value(leases.run(std::future::ready(())));
        send_value(leases.release());
    }
    fn of_a_session(locks: Locks) {
        send_value(locks.lock("k").into_future());
        send_value(locks.lock_all(["k", "l"]).into_future());
        send_value(locks.inspect("k"));
        send_value(locks.list(""));
        send_value(locks.close());
    }
    // Compiled, not run.
    let _ = (of_a_lease, of_several, of_a_session);
    send_value(Locks::connect("memory:"));
}
