//! S27: a resource that checks fences refuses whoever is too late.

use super::Factory;
use super::tools::{get, is_empty, open, session};
use crate::Kind;
use crate::lease::{Evict, Fenced, FencedCell, HolderId, Lease, Locks, Sequencer};

/// What is guarded: who wrote, in order.
type Written = Vec<&'static str>;

/// **S27** A resource with the fence checker: the old holder writes after the new one advanced: refused; two slots with fences 5 and 6 both write; an
/// equal fence from another token: refused.
///
/// Holders become old by a forced eviction: the store gives the key to the next, and they go on as if they had not heard of it. What the store is
/// asked for is in its fences: they grow from one grant to the next, readers of one generation share one, and each slot has its own.
pub fn case_s27_late_holders_are_refused(factory: &dyn Factory) {
    let (first, second) = (session(factory), session(factory));
    exclusive(&first, &second);
    slots(&first, &second);
    readers(&first, &second);
    pollster::block_on(first.close());
    pollster::block_on(second.close());
    assert!(is_empty(&*open(factory)));
}

/// The store frees what so many leases with this fence have, and they do not know.
fn usurp(locks: &Locks, lease: &Lease, holders: u64) {
    let request = Evict { fence: Some(lease.fence()), force: true };
    assert_eq!(pollster::block_on(locks.evict(lease.key().as_str(), request)).expect("the store answers"), holders);
}

fn write(by: &Fenced<'_, Written>, word: &'static str) -> Result<(), Kind> {
    by.write(|written| written.push(word)).map_err(|error| error.kind())
}

fn exclusive(first: &Locks, second: &Locks) {
    let written = FencedCell::new("s27", Written::new()).expect("a good key");
    let old = get(first.lock("s27"));
    let by_old = written.advance(&old).expect("the first");
    assert_eq!(write(&by_old, "old"), Ok(()));

    usurp(second, &old, 1);
    let new = get(second.lock("s27"));
    assert!(new.fence() > old.fence(), "{} after {}", new.fence(), old.fence());
    // The new holder has not read anything yet: what the old one writes now, it will see.
    assert_eq!(write(&by_old, "old, before the new"), Ok(()));
    let by_new = written.advance(&new).expect("a larger fence");
    assert_eq!(write(&by_old, "late"), Err(Kind::Lost));
    assert!(by_old.read(Vec::len).expect_err("late").is_lost());
    assert!(written.advance(&old).expect_err("late").is_lost());

    // Somebody of whom the store knows nothing, as after it has lost its last grants.
    let equal = Sequencer::exclusive(new.key().clone(), new.fence(), HolderId(1)).expect("a good fence");
    assert!(written.advance(&equal).expect_err("an equal fence, another token").is_lost());
    assert_eq!(write(&by_new, "new"), Ok(()));
    assert_eq!(by_new.read(Vec::clone).expect("it holds"), ["old", "old, before the new", "new"]);
}

fn slots(first: &Locks, second: &Locks) {
    let written = FencedCell::new("s27 slots", Written::new()).expect("a good key");
    let (one, two) = (get(first.lock("s27 slots").slots(2)), get(second.lock("s27 slots").slots(2)));
    assert!(two.fence() > one.fence() && one.slot() != two.slot());
    let (by_one, by_two) = (written.advance(&one).expect("the first"), written.advance(&two).expect("its sibling"));
    for (by, word) in [(&by_one, "one"), (&by_two, "two"), (&by_one, "one again")] {
        assert_eq!(write(by, word), Ok(()), "slots stand beside each other, whatever their fences");
    }

    usurp(second, &one, 1);
    let heir = get(second.lock("s27 slots").slots(2));
    assert_eq!(heir.slot(), one.slot());
    let by_heir = written.advance(&heir).expect("a larger fence");
    assert_eq!(write(&by_one, "late"), Err(Kind::Lost));
    for (by, word) in [(&by_two, "two again"), (&by_heir, "heir")] {
        assert_eq!(write(by, word), Ok(()), "the sibling has nothing to do with it");
    }

    // All slots are lost, and the key is held in another way: slots of before are none of its siblings.
    usurp(first, &two, 1);
    usurp(first, &heir, 1);
    let alone = get(first.lock("s27 slots"));
    let by_alone = written.advance(&alone).expect("a larger fence");
    for by in [&by_one, &by_two, &by_heir] {
        assert_eq!(write(by, "late"), Err(Kind::Lost));
    }
    assert_eq!(by_alone.read(Vec::clone).expect("it holds"), ["one", "two", "one again", "two again", "heir"]);
}

fn readers(first: &Locks, second: &Locks) {
    let written = FencedCell::new("s27 readers", Written::new()).expect("a good key");
    let (one, two) = (get(first.lock("s27 readers").shared()), get(second.lock("s27 readers").shared()));
    assert_eq!(one.fence(), two.fence(), "readers of one generation");
    let (by_one, by_two) = (written.advance(&one).expect("the first"), written.advance(&two).expect("of the same generation"));
    for by in [&by_one, &by_two] {
        assert_eq!(by.read(Vec::len).expect("it reads"), 0);
        assert_eq!(write(by, "by a reader"), Err(Kind::Invalid));
    }
    usurp(first, &one, 2);
    let writer = get(second.lock("s27 readers"));
    let by_writer = written.advance(&writer).expect("a larger fence");
    assert_eq!(write(&by_writer, "writer"), Ok(()));
    for by in [&by_one, &by_two] {
        assert!(by.read(Vec::len).expect_err("late").is_lost());
    }
    assert_eq!(by_writer.read(Vec::clone).expect("it holds"), ["writer"]);
}
