//! Entries, and that they stay as long as somebody uses them.

use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;

use super::shard::Shard;
use super::{HASHER, KeyedLock};
use crate::local::raw::Raw;
use crate::local::sync::lock;

/// A way to the `KeyedLock`.
pub(super) enum Handle<'a, K> {
    Borrowed(&'a KeyedLock<K>),
    Owned(Arc<KeyedLock<K>>),
}

impl<K> Deref for Handle<'_, K> {
    type Target = KeyedLock<K>;

    fn deref(&self) -> &KeyedLock<K> {
        match self {
            Handle::Borrowed(keyed) => keyed,
            Handle::Owned(keyed) => keyed,
        }
    }
}

impl<K> Clone for Handle<'_, K> {
    fn clone(&self) -> Self {
        match self {
            Handle::Borrowed(keyed) => Handle::Borrowed(keyed),
            Handle::Owned(keyed) => Handle::Owned(Arc::clone(keyed)),
        }
    }
}

/// A key's lock.
pub(super) struct Entry<K> {
    raw: Raw,
    key: K,
    pub(super) hash: u64,
}

/// The right to an entry: as long as it lives, this is the entry of its key.
///
/// The race that this closes is that of the last user's end with a newcomer. Pins are counted under the shard's mutex. Either a newcomer pinned the
/// entry first, and it stays; or the last user went first, and the newcomer makes another entry. Of the old one nobody holds the lock by then: who
/// held it released it before its pin went, and whoever waited was pinned. So one at most of a key's entries can be held, and what was done under the
/// old one's lock is seen under the new one's, by way of the shard's mutex.
pub(super) struct Pinned<'a, K> {
    keyed: Handle<'a, K>,
    entry: Arc<Entry<K>>,
}

impl<'a, K> Pinned<'a, K> {
    /// For an entry that the shard has just pinned.
    pub(super) fn new(keyed: Handle<'a, K>, entry: Arc<Entry<K>>) -> Pinned<'a, K> {
        Pinned { keyed, entry }
    }

    pub(super) fn raw(&self) -> &Raw {
        &self.entry.raw
    }

    pub(super) fn key(&self) -> &K {
        &self.entry.key
    }

    /// Says which key it is, if that has not been said.
    fn place(&self) {
        if let Some(label) = self.keyed.label
            && self.entry.raw.lacks_place()
        {
            self.entry.raw.set_place(label(&self.entry.key).into());
        }
    }
}

impl<'a, K: Eq + Hash> Pinned<'a, K> {
    /// The key's entry, made if there is none.
    pub(super) fn of(keyed: Handle<'a, K>, key: K) -> Pinned<'a, K> {
        let hash = HASHER.hash_one(&key);
        let mut shard = lock(keyed.shard(hash));
        let Some(entry) = shard.pin_first(hash) else {
            let entry = keyed.make(&mut shard, key, hash);
            drop(shard);
            let pinned = Pinned { keyed, entry };
            if pinned.raw().domain().tracks() {
                pinned.place();
            }
            return pinned;
        };
        drop(shard);
        let first = Pinned { keyed, entry };
        let pinned = if *first.key() == key { first } else { first.among(key) };
        // Before this one asks for the lock: so nobody is ever heard to wait for it who does not say for which.
        pinned.place();
        pinned
    }

    /// The same where the oldest entry of the hash, this one, is another key's. All of the hash are compared while they are pinned, and after that
    /// those that have come meanwhile, until there are none.
    #[cold]
    fn among(self, key: K) -> Pinned<'a, K> {
        let (keyed, hash) = (self.keyed.clone(), self.entry.hash);
        let mut known = vec![self];
        loop {
            let mut shard = lock(keyed.shard(hash));
            let new = shard.pin_others(hash, known.iter().map(|pinned| &pinned.entry));
            if new.is_empty() {
                let entry = keyed.make(&mut shard, key, hash);
                // First this mutex: the others' pins need it.
                drop(shard);
                return Pinned { keyed, entry };
            }
            drop(shard);
            let compared = known.len();
            known.extend(new.into_iter().map(|entry| Pinned::new(keyed.clone(), entry)));
            if let Some(at) = known[compared..].iter().position(|pinned| *pinned.key() == key) {
                return known.swap_remove(compared + at);
            }
        }
    }
}

impl<K> Drop for Pinned<'_, K> {
    fn drop(&mut self) {
        let gone = lock(self.keyed.shard(self.entry.hash)).unpin(&self.entry);
        // Not under the mutex: the key's destructor is its user's, and the lock's may take its domain's mutex.
        drop(gone);
    }
}

impl<K> KeyedLock<K> {
    /// A new entry, pinned once.
    fn make(&self, shard: &mut Shard<K>, key: K, hash: u64) -> Arc<Entry<K>> {
        let entry = Arc::new(Entry { raw: self.pattern.sibling(self.label.is_some()), key, hash });
        shard.insert(Arc::clone(&entry));
        entry
    }

    /// Of the entries that leaked futures and guards have pinned for ever the graph is to forget the locks, as it does when any lock is dropped.
    pub(super) fn abandon(&mut self) {
        for shard in &self.shards {
            // One mutex after the other.
            let left: Vec<_> = lock(&shard.0).entries().cloned().collect();
            for entry in left {
                entry.raw.abandon();
            }
        }
    }
}
