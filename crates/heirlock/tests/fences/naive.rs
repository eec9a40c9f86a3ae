//! The rule, without a thought for what it costs: all that was ever shown is kept and asked.

use heirlock::Kind;
use heirlock::lease::{HolderId, Key, Mode, Sequencer};

use crate::random::Random;

pub(crate) const KEY: &str = "k";

pub(crate) fn exclusive(fence: u64, holder: u64) -> Sequencer {
    Sequencer::exclusive(Key::new(KEY).unwrap(), fence, HolderId(holder)).unwrap()
}

pub(crate) fn shared(fence: u64) -> Sequencer {
    Sequencer::shared(Key::new(KEY).unwrap(), fence).unwrap()
}

pub(crate) fn slot(fence: u64, slot: u32, slots: u32, holder: u64) -> Sequencer {
    Sequencer::slot_of(Key::new(KEY).unwrap(), fence, slot, slots, HolderId(holder)).unwrap()
}

/// How many hold beside each other in this way, 1 for readers too: they are one.
fn way(by: &Sequencer) -> Option<u32> {
    match by.mode() {
        Mode::Slot(slots) => Some(slots),
        Mode::Exclusive | Mode::Shared => None,
    }
}

/// Whether one that was shown before is in the way of another.
pub(crate) fn refuses(before: &Sequencer, by: &Sequencer) -> bool {
    if way(before) != way(by) {
        return before.fence() >= by.fence();
    }
    before.slot() == by.slot() && (before.fence() > by.fence() || before.fence() == by.fence() && before.holder() != by.holder())
}

#[derive(Default)]
pub(crate) struct Naive(Vec<Sequencer>);

impl Naive {
    pub(crate) fn advance(&mut self, by: &Sequencer) -> Result<(), Kind> {
        if self.0.iter().any(|before| refuses(before, by)) {
            return Err(Kind::Lost);
        }
        self.0.push(by.clone());
        Ok(())
    }

    pub(crate) fn check(&self, by: &Sequencer) -> Result<(), Kind> {
        if self.0.iter().any(|before| refuses(before, by)) {
            return Err(Kind::Lost);
        }
        if self.0.contains(by) { Ok(()) } else { Err(Kind::Invalid) }
    }
}

/// What several holders show whose fences are near each other, and grow slowly; the way to hold changes now and then.
pub(crate) struct Shown {
    random: Random,
    base: u64,
    slots: u32,
}

impl Shown {
    pub(crate) fn new(seed: u64) -> Shown {
        Shown { random: Random::new(seed, 0), base: 0, slots: 0 }
    }

    pub(crate) fn next(&mut self) -> Sequencer {
        let random = &mut self.random;
        if random.chance(10) {
            self.base += 1;
        }
        if random.chance(5) {
            self.slots = random.pick(&[0, 0, 1, 2, 3]);
        }
        let slots = if random.chance(90) { self.slots } else { random.pick(&[0, 2, 3]) };
        let (fence, holder) = (self.base + random.within(1, 6), random.within(1, 4));
        match slots {
            0 if random.chance(30) => shared(fence),
            0 => exclusive(fence, holder),
            slots => slot(fence, u32::try_from(random.within(0, slots.into())).unwrap(), slots, holder),
        }
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.random.chance(percent)
    }
}
