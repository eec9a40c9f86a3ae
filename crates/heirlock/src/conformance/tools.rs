//! What the cases share: sessions, waiting for a condition, and asserting a bound.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use crate::clock::BootClock;
use crate::lease::{Acquire, Enter, Key, KeyView, Lease, Locks, Mode, Owner, SessionId, Store, Terms, Token};
use crate::store::Faulty;
pub(super) use crate::sync::poll_for;

/// Longer than anything that goes well: a wait that lasts so long has failed.
pub(super) const FOR_EVER: Duration = Duration::from_secs(60);

/// A duration of whole milliseconds.
pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A new handle to the store.
pub(super) fn open(factory: &dyn Factory) -> Arc<dyn Store> {
    pollster::block_on(factory.open()).expect("the store opens")
}

/// A session of its own.
pub(super) fn session(factory: &dyn Factory) -> Locks {
    pollster::block_on(Locks::with(open(factory), Arc::new(BootClock))).expect("a session begins")
}

/// A session whose requests can be made to fail.
pub(super) fn faulty_session(factory: &dyn Factory) -> (Faulty<Arc<dyn Store>>, Locks) {
    let store = Faulty::new(open(factory));
    let locks = pollster::block_on(Locks::with(Arc::new(store.clone()), Arc::new(BootClock))).expect("a session begins");
    (store, locks)
}

/// The ttl, or the shortest that the store can keep if that is longer.
pub(super) fn ttl_of(store: &dyn Store, ttl: Duration) -> Duration {
    ttl.max(store.min_ttl())
}

/// The lease, which must come before the test has been waiting for ever.
pub(super) fn get(call: Acquire) -> Lease {
    call.timeout(FOR_EVER).blocking().expect("it is granted")
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("a good key")
}

/// The key as operators see it.
pub(super) fn view(store: &dyn Store, name: &str) -> KeyView {
    pollster::block_on(store.inspect(&key(name))).expect("the store answers")
}

/// Whether neither a ticket nor a rest is in the store.
pub(super) fn is_empty(store: &dyn Store) -> bool {
    pollster::block_on(store.list("")).expect("the store answers").is_empty()
}

/// The fence with which a key is held; `None` if it is not held by exactly one.
pub(super) fn fence_of(store: &dyn Store, name: &str) -> Option<u64> {
    match view(store, name).holders.as_slice() {
        [holder] => Some(holder.fence),
        _ => None,
    }
}

/// Waits until this many wait for the key.
pub(super) fn wait_for_queue(store: &dyn Store, name: &str, length: usize) {
    wait_for(&format!("a queue of {length} on {name}"), || view(store, name).queue.len() == length);
}

/// Waits until the condition holds; panics if it never does.
pub(super) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_within(what, FOR_EVER, condition);
}

/// Waits until the condition holds, for so long.
pub(super) fn wait_within(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < limit, "after {:?} still waiting for {what}", since.elapsed());
        thread::sleep(ms(2));
    }
}

/// Asserts that a case's bound was kept: `base` exactly, and `slack`, which the case grants, at most doubled for a busy machine.
pub(super) fn assert_within(what: &str, took: Duration, base: Duration, slack: Duration) {
    println!("{what}: {took:.3?} of {:?}", base + slack);
    assert!(took <= base + 2 * slack, "{what} took {took:.3?}: more than {base:?} + 2 x {slack:?}");
}

/// A first request for a key, for use at the raw store: exclusive, of priority 0, and it may wait.
pub(super) fn enter(token: Token, session: SessionId, ttl: Duration, name: &str) -> Enter {
    let ttl = u64::try_from(ttl.as_millis()).expect("a short ttl");
    let owner = Arc::new(Owner { name: name.to_owned(), host: "conformance".to_owned(), ..Owner::default() });
    Enter { token, session, seq: 1, priority: 0, mode: Mode::Exclusive, terms: Terms::new(ttl), may_queue: true, owner }
}

/// The place in which holders tell when they are inside: a file, and others whose names begin with its. Gone with this.
pub(super) struct Log(PathBuf);

impl Log {
    pub(super) fn new() -> Log {
        let unique = SessionId::random().expect("random bytes");
        let directory = std::env::temp_dir().join(format!("heirlock-conformance-{unique}"));
        fs::create_dir(&directory).expect("a directory for what holders tell");
        Log(directory)
    }

    pub(super) fn path(&self) -> String {
        self.0.join("log").to_str().expect("a printable path").to_owned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A worker that has failed may still write.
        let _ = fs::remove_dir_all(&self.0);
    }
}
