//! Random choices that can be repeated.

use std::time::Duration;

use crate::lease::{SessionId, Token};

/// A stream of random numbers (`SplitMix64`, Steele, Lea and Flood 2014) whose seed is printed.
pub(super) struct Chance(u64);

impl Chance {
    /// The seed of `HEIRLOCK_SEED`, or a new one; both are printed, and a failing test shows that.
    pub(super) fn of(case: &str) -> Chance {
        let seed = match std::env::var("HEIRLOCK_SEED") {
            Ok(text) => text.parse().expect("HEIRLOCK_SEED must be a number"),
            Err(_) => SessionId::random().expect("random bytes").0,
        };
        println!("{case}: repeat with HEIRLOCK_SEED={seed}");
        Chance(seed)
    }

    /// The stream of a seed that somebody else has printed.
    pub(super) fn from_seed(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Another stream, decided by this one, for a thread of its own.
    pub(super) fn fork(&mut self) -> Chance {
        Chance(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of 0 up to and without `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a small number");
        usize::try_from(self.next() % end).expect("below a small number")
    }

    /// True in so many of a hundred cases.
    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A span from nothing up to `most`.
    pub(super) fn span(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.next() % u64::try_from(most.as_nanos()).expect("a short span"))
    }

    pub(super) fn token(&mut self) -> Token {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        Token::from_bytes(bytes)
    }
}
