//! `heirlock evict`: takes a lock away from the holder that is seen, and from no other.

use clap::Args;
use heirlock::observe::{Holder, Lock, span};
use serde::Serialize;

use crate::args::Data;
use crate::doctor::clocks;
use crate::exit::Exit;
use crate::list::{NOT_HELD, freedom, key, printable};
use crate::look::Look;
use crate::output;

#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 it was taken away, or its rest was ended; 1 it is not held, or not with this fence; 125 an error, or several hold it and none is named.

Without --fence it looks first, and takes the lock away from the holder that it saw and names: never from one that came a moment later.
Without --force the lock stays closed to others until the holder has left or its ttl is over; heirlock run ends its command and exits with 81.
With --force it is free at once. A lock that nobody holds and that rests, after --hold-at-least, is freed by --force only."
)]
pub(crate) struct Evict {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Only the holder with this fence, as heirlock show tells it
    #[arg(long, value_name = "N")]
    fence: Option<u64>,
    /// Frees the lock now, although the holder may still run; ends the rest of a lock that nobody holds
    #[arg(long)]
    force: bool,
    /// The lock's name
    #[arg(value_name = "NAME")]
    name: String,
}

/// What `heirlock evict --json` prints.
#[derive(Serialize)]
struct Evicted<'h> {
    store: String,
    name: &'h str,
    /// Whether it was freed at once.
    forced: bool,
    /// Whether nobody held it, and its rest was ended.
    ended_rest: bool,
    /// From whom it was taken, in the words of `ls --json`.
    holders: &'h [Holder],
}

pub(crate) async fn evict(words: Evict) -> Result<Exit, Exit> {
    let key = key(&words.name)?;
    let look = Look::at(words.data.store.clone()).await?;
    let view = look.inspect(&key).await?;
    let seen = Lock::from(view);
    let free = freedom(&seen, clocks::wall_ms());
    let rests = seen.holders.is_empty() && seen.resting_ms.is_some();
    let holders = seen.holders;
    let fence = match words.fence {
        Some(fence) => fence,
        None => match fences(&holders).as_slice() {
            [] => 0,
            [fence] => *fence,
            _ => return Err(Exit::own(format!("several hold {key}: name one of them with --fence: {}", all(&holders)))),
        },
    };
    let marked = |holder: &Holder| Holder { revoked: Some(true), ..holder.clone() };
    let met: Vec<Holder> = holders.iter().filter(|holder| holder.fence == Some(fence)).map(marked).collect();
    // Nobody's fence: rests are ended, those of single slots too, and whoever holds it by then is not met.
    let ends_rest = words.force && words.fence.map_or(holders.is_empty(), |fence| fence == 0);
    let found = if met.is_empty() && !ends_rest { 0 } else { look.evict(&key, fence, words.force).await? };
    tracing::debug!(%key, fence, force = words.force, found, "evict");
    let store = look.close().await;
    let ended_rest = ends_rest && found > 0;
    let (met, code) = if found == 0 { (&[][..], NOT_HELD) } else { (met.as_slice(), 0) };
    if words.data.json {
        return Ok(output::json(&Evicted { store, name: key.as_str(), forced: words.force, ended_rest, holders: met }, code));
    }
    let text = match (met, holders.as_slice(), words.fence) {
        _ if ended_rest => format!("{key} is free now: its rest was ended\n"),
        ([], [], None) if rests && !words.force => format!("{free}; heirlock evict --force {key} ends that\n"),
        ([], [], _) if rests && ends_rest => format!("the rest of {key} has just ended by itself: nothing was done\n"),
        ([], [], _) => format!("{free}: there is nobody to take it from\n"),
        // Whoever was named has gone before, or just now.
        ([], _, Some(fence)) => format!("{key} is not held with fence {fence}, but by {}: nothing was done\n", all(&holders)),
        ([], _, None) => format!("the holder of {key} with fence {fence} has just left by itself: nothing was done\n"),
        (met, ..) => met.iter().map(|holder| taken(key.as_str(), holder, words.force)).collect(),
    };
    Ok(output::text(&text, code))
}

/// The fences of these holders; readers of one generation share theirs.
fn fences(holders: &[Holder]) -> Vec<u64> {
    let mut fences: Vec<u64> = holders.iter().filter_map(|holder| holder.fence).collect();
    fences.sort_unstable();
    fences.dedup();
    fences
}

fn taken(name: &str, holder: &Holder, force: bool) -> String {
    let left = holder.expires_in_ms.map_or(String::new(), |ms| format!(", which is in {} at the latest", span(ms)));
    let line = if force {
        format!("{name} was freed: {} may still run, and is refused only where fences are checked", who(holder))
    } else {
        format!("{name} was taken from {}: it is free when that has left{left}", who(holder))
    };
    printable(&line) + "\n"
}

fn all(holders: &[Holder]) -> String {
    holders.iter().map(who).collect::<Vec<_>>().join("; ")
}

/// "root@vm pid 32517 (sleep), slot 1, fence 7".
fn who(holder: &Holder) -> String {
    let worker = &holder.party.worker;
    let command = holder.party.command.as_ref().map_or(String::new(), |command| format!(" ({command})"));
    let slot = holder.slot.map_or(String::new(), |slot| format!(", slot {slot}"));
    let fence = holder.fence.map_or(String::new(), |fence| format!(", fence {fence}"));
    format!("{}@{} pid {}{command}{slot}{fence}", worker.name, worker.host, worker.pid)
}
