//! What a holder shows to the thing that is guarded: its fence, and how and by whom the key is held.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::acquire::MAX_SLOTS;
use super::key::Key;
use super::lease::Lease;
use super::ticket::{Mode, Token};
use crate::{Error, Kind, Result};

/// Who shows a fence: a number that is new for every ticket, and no secret. Two who show the same fence are told apart by it.
///
/// As text it has 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HolderId(pub u64);

impl HolderId {
    /// The holder of the ticket with this token. The token cannot be found from it: SipHash with a secret key is a pseudo-random function, and
    /// here the token is the key.
    ///
    /// ```
    /// use heirlock::lease::{HolderId, Token};
    /// let (token, other) = (Token::from_bytes([7; 16]), Token::from_bytes([8; 16]));
    /// assert_eq!(HolderId::of(&token), HolderId::of(&token));
    /// assert_ne!(HolderId::of(&token), HolderId::of(&other));
    /// ```
    #[expect(deprecated, reason = "the hasher that replaced it takes no key; this one is SipHash-2-4 by its documentation")]
    pub fn of(token: &Token) -> HolderId {
        let bits = u128::from_le_bytes(*token.as_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let mut hasher = std::hash::SipHasher::new_with_keys(bits as u64, (bits >> 64) as u64);
        hasher.write(b"heirlock holder");
        HolderId(hasher.finish())
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({self})")
    }
}

impl FromStr for HolderId {
    type Err = Error;

    fn from_str(text: &str) -> Result<HolderId> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(number) if digits => Ok(HolderId(number)),
            _ => Err(Error::new(Kind::Invalid, format!("{text:?} is no holder: it has 16 hexadecimal digits"))),
        }
    }
}

/// A lease's fence with its key, and how and by whom that is held: all by which a resource tells a holder from one that is too late.
///
/// [`Lease::sequencer`] makes it; as text it goes over a wire or into a child's environment, and back. It stays what it is when its lease ends: that
/// is how the resource finds out. It proves nothing to a resource that must doubt who speaks: whoever has read it can show it.
///
/// The idea and the name are those of Chubby (Burrows 2006).
///
/// ```
/// use heirlock::lease::Sequencer;
/// # use heirlock::{Locks, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let lease = locks.lock("report").await?;
/// let text = lease.sequencer().to_string(); // "1764470000000000 exclusive 1f0a6c2e9b7d3358 report"
/// let shown: Sequencer = text.parse()?;
/// assert_eq!(shown, lease.sequencer());
/// assert_eq!((shown.fence(), shown.key().as_str()), (lease.fence(), "report"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sequencer {
    key: Key,
    fence: u64,
    place: Place,
}

/// Where a holder stands beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Exclusive(HolderId),
    /// Readers of one generation are one to the resource: none of them may write.
    Shared,
    Slot {
        slot: u32,
        slots: u32,
        holder: HolderId,
    },
}

impl Sequencer {
    /// That of an exclusive holder.
    ///
    /// # Errors
    /// `Invalid` for fence 0, which is nobody's.
    ///
    /// ```
    /// use heirlock::lease::{HolderId, Key, Sequencer};
    /// let shown = Sequencer::exclusive(Key::new("report")?, 5, HolderId(7))?;
    /// assert_eq!(shown.to_string(), "5 exclusive 0000000000000007 report");
    /// # Ok::<(), heirlock::Error>(())
    /// ```
    pub fn exclusive(key: Key, fence: u64, holder: HolderId) -> Result<Sequencer> {
        Sequencer::new(key, fence, Place::Exclusive(holder))
    }

    /// That of a reader. Readers of one generation show the same.
    ///
    /// # Errors
    /// `Invalid` for fence 0, which is nobody's.
    pub fn shared(key: Key, fence: u64) -> Result<Sequencer> {
        Sequencer::new(key, fence, Place::Shared)
    }

    /// That of a holder of one of so many slots, counted from 0.
    ///
    /// # Errors
    /// `Invalid` for fence 0, for no slots or more than [`MAX_SLOTS`], and for a slot beyond them.
    pub fn slot_of(key: Key, fence: u64, slot: u32, slots: u32, holder: HolderId) -> Result<Sequencer> {
        if slot >= slots || slots > MAX_SLOTS {
            return Err(Error::new(Kind::Invalid, format!("slot {slot} of {slots}: there are 1 to {MAX_SLOTS}, counted from 0")));
        }
        Sequencer::new(key, fence, Place::Slot { slot, slots, holder })
    }

    fn new(key: Key, fence: u64, place: Place) -> Result<Sequencer> {
        if fence == 0 {
            return Err(Error::new(Kind::Invalid, format!("fence 0 of {key}: no grant has it; show the fence of a lease")));
        }
        Ok(Sequencer { key, fence, place })
    }

    pub(super) fn of(key: &Key, mode: Mode, fence: u64, slot: Option<u32>, token: &Token) -> Sequencer {
        let holder = HolderId::of(token);
        let place = match mode {
            Mode::Exclusive => Place::Exclusive(holder),
            Mode::Shared => Place::Shared,
            Mode::Slot(slots) => Place::Slot { slot: slot.unwrap_or(0), slots, holder },
        };
        Sequencer { key: key.clone(), fence, place }
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its fence.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// How the key is held.
    pub fn mode(&self) -> Mode {
        match self.place {
            Place::Exclusive(_) => Mode::Exclusive,
            Place::Shared => Mode::Shared,
            Place::Slot { slots, .. } => Mode::Slot(slots),
        }
    }

    /// Which slot, if slots are the mode.
    pub fn slot(&self) -> Option<u32> {
        match self.place {
            Place::Slot { slot, .. } => Some(slot),
            Place::Exclusive(_) | Place::Shared => None,
        }
    }

    /// Who holds; none of readers, who are all the same to a resource.
    pub fn holder(&self) -> Option<HolderId> {
        match self.place {
            Place::Exclusive(holder) | Place::Slot { holder, .. } => Some(holder),
            Place::Shared => None,
        }
    }

    /// Whether it may write: a reader may not.
    pub fn may_write(&self) -> bool {
        self.place != Place::Shared
    }
}

impl From<&Lease> for Sequencer {
    fn from(lease: &Lease) -> Sequencer {
        lease.sequencer()
    }
}

impl From<&Sequencer> for Sequencer {
    fn from(sequencer: &Sequencer) -> Sequencer {
        sequencer.clone()
    }
}

/// `FENCE exclusive HOLDER KEY`, `FENCE shared - KEY` or `FENCE slot:SLOT/SLOTS HOLDER KEY`: the key comes last, since it may have spaces.
impl fmt::Display for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.fence)?;
        match self.place {
            Place::Exclusive(holder) => write!(f, "exclusive {holder}")?,
            Place::Shared => f.write_str("shared -")?,
            Place::Slot { slot, slots, holder } => write!(f, "slot:{slot}/{slots} {holder}")?,
        }
        write!(f, " {}", self.key)
    }
}

impl FromStr for Sequencer {
    type Err = Error;

    /// # Errors
    /// `Invalid` for anything that [`Sequencer`] does not print.
    fn from_str(text: &str) -> Result<Sequencer> {
        let bad = || Error::new(Kind::Invalid, format!("{text:?} is no sequencer: it is as `5 exclusive 0123456789abcdef KEY`"));
        let mut words = text.splitn(4, ' ');
        let (Some(fence), Some(place), Some(holder), Some(key)) = (words.next(), words.next(), words.next(), words.next()) else {
            return Err(bad());
        };
        let fence = number(fence).ok_or_else(bad)?;
        let key = Key::new(key)?;
        match (place, holder) {
            ("exclusive", holder) => Sequencer::exclusive(key, fence, holder.parse()?),
            ("shared", "-") => Sequencer::shared(key, fence),
            (place, holder) => {
                let (slot, slots) = place.strip_prefix("slot:").and_then(|slot| slot.split_once('/')).ok_or_else(bad)?;
                let [slot, slots] = [slot, slots].map(|text| number(text).and_then(|number| u32::try_from(number).ok()));
                Sequencer::slot_of(key, fence, slot.ok_or_else(bad)?, slots.ok_or_else(bad)?, holder.parse()?)
            }
        }
    }
}

/// Digits alone: neither a sign nor spaces.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn a_holder_says_nothing_of_its_token() {
        // Neither of its halves, nor both together.
        let token = Token::from_bytes([0; 16]);
        assert_ne!(HolderId::of(&token).0, 0);
        let near = Token::from_bytes({
            let mut bytes = [0; 16];
            bytes[15] = 1;
            bytes
        });
        let differing = (HolderId::of(&token).0 ^ HolderId::of(&near).0).count_ones();
        assert!((12..=52).contains(&differing), "one bit of the token changes {differing} of 64");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Sequencer::exclusive(key("k"), 0, HolderId(1)).unwrap_err().is_invalid());
        for (slot, slots) in [(0, 0), (3, 3), (0, MAX_SLOTS + 1)] {
            assert!(Sequencer::slot_of(key("k"), 1, slot, slots, HolderId(1)).unwrap_err().is_invalid(), "{slot} of {slots}");
        }
        let bad = [
            "",
            "5",
            "5 exclusive 0123456789abcdef",
            "5 exclusive 0123456789abcdef ",
            "0 exclusive 0123456789abcdef k",
            "-5 exclusive 0123456789abcdef k",
            "+5 exclusive 0123456789abcdef k",
            " 5 exclusive 0123456789abcdef k",
            "5  exclusive 0123456789abcdef k",
            "18446744073709551616 exclusive 0123456789abcdef k",
            "5 exclusive - k",
            "5 exclusive +123456789abcdef k",
            "5 exclusive 123 k",
            "5 shared 0123456789abcdef k",
            "5 slot:1 0123456789abcdef k",
            "5 slot:3/3 0123456789abcdef k",
            "5 slot:+1/3 0123456789abcdef k",
            "5 slot:1/4294967296 0123456789abcdef k",
            "5 slot:/ 0123456789abcdef k",
            "5 exclusive 0123456789abcdef two\nlines",
        ];
        for text in bad {
            let error = text.parse::<Sequencer>().expect_err(text);
            assert!(error.is_invalid() && !error.to_string().contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn text_gives_it_back(
            name in "[ a-z{}%/🦀-]{1,40}",
            fence in 1u64..,
            holder in any::<u64>(),
            slots in 1u32..=MAX_SLOTS,
            at in any::<u32>(),
        ) {
            let all = [
                Sequencer::exclusive(key(&name), fence, HolderId(holder)),
                Sequencer::shared(key(&name), fence),
                Sequencer::slot_of(key(&name), fence, at % slots, slots, HolderId(holder)),
            ];
            for shown in all {
                let shown = shown.unwrap();
                prop_assert_eq!(&shown.to_string().parse::<Sequencer>().unwrap(), &shown);
                prop_assert_eq!(shown.holder().is_some(), shown.may_write());
            }
        }

        #[test]
        fn any_text_is_a_sequencer_or_refused(text in any::<String>()) {
            if let Ok(shown) = text.parse::<Sequencer>() {
                prop_assert_eq!(shown.fence() != 0, true);
            }
        }
    }
}
