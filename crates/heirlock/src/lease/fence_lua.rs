//! Fences in Lua: scripts by which a Redis server refuses holders that are too late, in the same step in which it writes.
//!
//! The rule is that of [`Fences`](super::Fences). What the server has been shown is in one hash, which is the first key of every script; all
//! take the [`arguments`](Sequencer::arguments) of a [`Sequencer`] as their first six. In a program that is:
//!
//! 1. after each grant, *before the first read*: [`advance`](Scripts::advance). 0: the lease is lost;
//! 2. in each script that writes, before anything else: [`check_write`](Scripts::check_write), or [`check_read`](Scripts::check_read) in one that
//!    only reads. They are the beginnings of scripts of your own, which go no further, and answer nil, if the lease is lost.
//!
//! A server runs one script at a time, so nobody comes between the check and the write. A write outside of such a script is not checked: what leases
//! guard is read and written by scripts alone, or read at least.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use heirlock::lease::{Sequencer, fence_lua::REDIS};
//! use redis::{Connection, RedisResult, cmd};
//!
//! fn advance(server: &mut Connection, by: &Sequencer) -> RedisResult<bool> {
//!     cmd("EVAL").arg(REDIS.advance).arg(1).arg("{account 7}:fences").arg(&by.arguments(None)).query(server)
//! }
//!
//! /// What is left then; none if the lease is lost.
//! fn pay(server: &mut Connection, by: &Sequencer, sum: i64) -> RedisResult<Option<i64>> {
//!     let script = [REDIS.check_write, "return redis.call('DECRBY', KEYS[2], ARGV[7])"].concat();
//!     let keys = ["{account 7}:fences", "{account 7}:balance"];
//!     cmd("EVAL").arg(script).arg(2).arg(&keys).arg(&by.arguments(None)).arg(sum).query(server)
//! }
//!
//! let mut server = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let old: Sequencer = "5 exclusive 0123456789abcdef account 7".parse()?;
//! let new: Sequencer = "6 exclusive fedcba9876543210 account 7".parse()?;
//! assert!(advance(&mut server, &old)? && advance(&mut server, &new)?);
//! assert!(pay(&mut server, &old, 50)?.is_none() && pay(&mut server, &new, 30)?.is_some());
//! # Ok(()) }
//! ```
//!
//! # Keys
//! Name the hash as you like; in a cluster it is in the slot of what it guards, by the same `{hash tag}`. A server that evicts could drop it, and
//! then refuses the holder of the moment until that advances again. So does one that has lost its last writes: what it has lost of the fences it has
//! lost of the value, too. A user needs `eval` (or `evalsha`), `hmget`, `hset`, `del`, `persist` and `pexpire`.
//!
//! # What is kept
//! The hash has a field for each slot and four more, for as long as the server keeps it, or as [`Sequencer::arguments`] says.

use std::time::Duration;

use super::sequencer::Sequencer;
use super::ticket::Mode;

/// The scripts. Their first key is the hash of the fences; their first six arguments are those of [`Sequencer::arguments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scripts {
    /// A whole script. 1 if the holder is good; then all before it are refused. 0 if the lease is lost.
    pub advance: &'static str,
    /// The beginning of a script that reads: goes on if the holder has advanced and no newer one has, and else ends the script, which answers
    /// nil.
    pub check_read: &'static str,
    /// The beginning of a script that writes: the same, and never a reader.
    pub check_write: &'static str,
}

impl Sequencer {
    /// The same as arguments of [scripts](self): the key, the number of slots, the fence, the slot, the holder; and for how long the server keeps
    /// the fences.
    ///
    /// `keep` counts in whole milliseconds from the last advance or checked write, rounded up; `None` is for ever, and undoes an earlier one. Let it be
    /// longer than any process can be late, days rather than minutes: when the fences are gone, nobody may write before it has advanced, but who
    /// was granted the key long ago and has never shown its fence is taken for good.
    ///
    /// ```
    /// use heirlock::lease::{HolderId, Key, Sequencer};
    /// let by = Sequencer::exclusive(Key::new("report")?, 5, HolderId(7))?;
    /// assert_eq!(by.arguments(None), ["report", "0", "5", "0", "0000000000000007", ""]);
    /// assert_eq!(by.arguments(Some(std::time::Duration::from_secs(86_400)))[5], "86400000");
    /// # Ok::<(), heirlock::Error>(())
    /// ```
    pub fn arguments(&self, keep: Option<Duration>) -> [String; 6] {
        let slots = match self.mode() {
            Mode::Exclusive | Mode::Shared => 0,
            Mode::Slot(slots) => slots,
        };
        [
            self.key().as_str().to_owned(),
            slots.to_string(),
            self.fence().to_string(),
            self.slot().unwrap_or(0).to_string(),
            self.parameters().holder,
            keep.map_or_else(String::new, |keep| keep.as_nanos().div_ceil(1_000_000).clamp(1, MOST_MS).to_string()),
        ]
    }
}

/// The longest span that is given, in milliseconds: servers refuse what does not fit their clock.
const MOST_MS: u128 = 1 << 52;

/// What all begin with: is the holder refused by what was shown? Fences are compared as text, for Lua has no numbers beyond 2^53.
macro_rules! judge {
    () => {
        "\
local name, slots, fence, slot, holder, keep = unpack(ARGV, 1, 6)
if not (keep and fence:match('^[1-9]%d*$') and (keep == '' or keep:match('^[1-9]%d*$'))) then
    return redis.error_reply('ERR heirlock: the first six arguments are name, slots, fence, slot, holder, and for how many ms to keep fences')
end
local seen = redis.call('HMGET', KEYS[1], 'name', 'slots', 'floor', 'newest', 'slot ' .. slot)
if seen[1] and seen[1] ~= name then
    return redis.error_reply('ERR heirlock: a lease on ' .. name .. ' does not guard what leases on ' .. seen[1] .. ' do: show one of those')
end
local as_before, floor, newest, last = (seen[2] or '0') == slots, seen[3] or '0', seen[4] or '0', seen[5]
local function less(a, b)
    return #a < #b or #a == #b and a < b
end
-- From before the key was held as it is now, or the first of a new way: all that were shown count.
local largest, whose = newest, nil
if as_before and less(floor, fence) then
    largest, whose = (last or '0 '):match('^(%d+) (.*)$')
end
local is_late = less(fence, largest) or fence == largest and whose ~= holder
"
    };
}

/// What a check begins with. In a block of its own, so that the script behind it has all its names to itself.
macro_rules! check {
    ($and:literal) => {
        concat!("do\n", judge!(), "if is_late or not as_before or last ~= fence .. ' ' .. holder", $and, "end\n")
    };
}

/// For Redis 6.2 or later, and what speaks as it does (Valkey).
pub const REDIS: Scripts = Scripts {
    advance: concat!(
        judge!(),
        "\
if is_late then
    return 0
end
if not as_before then
    -- None of those who held in the old way can come back.
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'floor', newest)
end
redis.call('HSET', KEYS[1], 'name', name, 'slots', slots, 'newest', less(newest, fence) and fence or newest, 'slot ' .. slot, fence .. ' ' .. holder)
if keep == '' then
    redis.call('PERSIST', KEYS[1])
else
    redis.call('PEXPIRE', KEYS[1], keep)
end
return 1
"
    ),
    check_read: check!(" then\n    return false\nend\n"),
    check_write: check!(
        " or holder == 'shared' then\n    return false\nend\nif keep ~= '' then\n    redis.call('PEXPIRE', KEYS[1], keep)\nend\n"
    ),
};
