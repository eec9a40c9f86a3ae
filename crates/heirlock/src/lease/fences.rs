//! The rule by which a resource refuses those who are too late, as plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::key::Key;
use super::sequencer::{HolderId, Sequencer};
use super::ticket::Mode;
use crate::{Error, Kind, Result};

/// The newest fences that a resource has been shown: what it keeps beside its value, to tell a holder from one that is too late.
///
/// Keep it where the value is, and change both in one step: checked first and written afterwards, it protects nothing. [`FencedCell`] does
/// that for a value in memory, [`fence_sql`](super::fence_sql) is the same in tables, [`fence_lua`](super::fence_lua) in Redis; for a file or a record
/// of your own, keep this with it (it can be serialized).
///
/// # The rule
/// A fence is refused if a larger one has been shown, or the same by another holder. Slots stand beside each other, so each has a sequence of its
/// own; readers of one generation are one. When a key changes from slots to another number of them, or to none, it was free in between:
/// whoever held it in the old way must have a fence larger than all that were shown in the new one, which nobody has.
///
/// ```
/// use heirlock::lease::{Fences, HolderId, Key, Sequencer};
/// let key = Key::new("report")?;
/// let mut seen = Fences::new(key.clone());
/// let (old, new) = (Sequencer::exclusive(key.clone(), 5, HolderId(1))?, Sequencer::exclusive(key.clone(), 6, HolderId(2))?);
/// seen.advance(&old)?;
/// seen.check(&old)?;
/// assert!(seen.check(&new).unwrap_err().is_invalid(), "it has not advanced");
/// seen.advance(&new)?;
/// assert!(seen.check(&old).unwrap_err().is_lost());
/// assert!(seen.advance(&Sequencer::exclusive(key, 6, HolderId(3))?).unwrap_err().is_lost(), "the same fence, another holder");
/// # Ok::<(), heirlock::Error>(())
/// ```
///
/// [`FencedCell`]: super::FencedCell
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fences {
    key: Key,
    /// How the key is held: the number of slots, or 0.
    slots: u32,
    /// Fences up to this are from before the key was held in that way.
    floor: u64,
    /// The largest of all.
    newest: u64,
    /// For each slot (0 where there are none) the newest, and whose it is; of readers nobody's in particular.
    seen: BTreeMap<u32, (u64, Option<HolderId>)>,
}

impl Fences {
    /// Of a resource that has been shown none. All that is shown must be of leases on this key, from one store.
    pub fn new(key: Key) -> Fences {
        Fences { key, slots: 0, floor: 0, newest: 0, seen: BTreeMap::new() }
    }

    /// The key whose leases guard the resource.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The largest fence that it has been shown; 0 if none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// A holder comes: from here on all before it are refused. Showing the same again changes nothing.
    ///
    /// It must come before the holder's first read. Otherwise one before it may write what it has just read, and both would be right.
    ///
    /// # Errors
    /// `Lost` for a fence that is older than what was shown, or that another holder has shown; `Invalid` for a lease on another key. Nothing has
    /// changed then.
    pub fn advance(&mut self, by: &Sequencer) -> Result<()> {
        let (slots, slot) = self.judge(by)?;
        if slots != self.slots {
            // Larger than all, as was judged. None of those who held in the old way can come back.
            self.floor = self.newest;
            self.slots = slots;
            self.seen.clear();
        }
        self.newest = self.newest.max(by.fence());
        self.seen.insert(slot, (by.fence(), by.holder()));
        Ok(())
    }

    /// Whether the holder may go on: it has advanced, and nobody has since who would refuse it.
    ///
    /// # Errors
    /// As [`Fences::advance`]; and `Invalid` for a holder that has not advanced.
    pub fn check(&self, by: &Sequencer) -> Result<()> {
        let (slots, slot) = self.judge(by)?;
        if slots != self.slots || self.seen.get(&slot) != Some(&(by.fence(), by.holder())) {
            return Err(Error::new(
                Kind::Invalid,
                format!("fence {} of {} is new here: advance before the first read", by.fence(), self.key),
            ));
        }
        Ok(())
    }

    /// Refuses whoever is too late; else its place.
    fn judge(&self, by: &Sequencer) -> Result<(u32, u32)> {
        if *by.key() != self.key {
            return Err(Error::new(
                Kind::Invalid,
                format!("a lease on {} does not guard what leases on {} do: show one of those", by.key(), self.key),
            ));
        }
        let slots = match by.mode() {
            Mode::Exclusive | Mode::Shared => 0,
            Mode::Slot(slots) => slots,
        };
        let slot = by.slot().unwrap_or(0);
        let (fence, holder) = (by.fence(), by.holder());
        let (largest, whose) = match self.seen.get(&slot) {
            // It is from before the key was held as it is now, or it is the first of a new way: all that were shown count.
            _ if slots != self.slots || fence <= self.floor => (self.newest, None),
            Some(&(newest, whose)) => (newest, Some(whose)),
            None => (0, None),
        };
        if fence < largest || (fence == largest && whose != Some(holder)) {
            let text = if fence == largest {
                format!("fence {fence} of {} was shown by another holder: the lease is lost", self.key)
            } else {
                format!("fence {fence} of {} is older than {largest}, which was shown here: the lease is lost", self.key)
            };
            return Err(Error::new(Kind::Lost, text));
        }
        Ok((slots, slot))
    }
}
