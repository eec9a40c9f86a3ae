//! A run within the command of another run, which asks for what that one holds: it would wait for itself.

use heirlock::lease::{KeyView, Mode};

use crate::default_store::anonymous;
use crate::exit::{DEADLOCK, Exit};

/// The variable that tells a command's own runs what is held above them: a line for each lock, its fence, its store, its name.
pub(crate) const HELD: &str = "HEIRLOCK_HELD";

/// The variable's value for a command: what is held above us, and this.
pub(crate) fn with(name: &str, fence: u64, store: &str) -> String {
    let mut held = above();
    // Neither URLs nor names have control characters.
    held += &format!("{fence}\t{}\t{name}\n", anonymous(store));
    held
}

fn above() -> String {
    std::env::var(HELD).unwrap_or_default()
}

/// The fences under which this lock is held above us.
fn fences(held: &str, name: &str, store: &str) -> Vec<u64> {
    let store = anonymous(store);
    let fence = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let (fence, url, held) = (fields.next()?, fields.next()?, fields.next()?);
        (url == store && held == name).then(|| fence.parse().ok())?
    };
    held.lines().filter_map(fence).collect()
}

/// Whether something may be held above us, so that it must be looked up.
pub(crate) fn is_possible(name: &str, store: &str) -> bool {
    !fences(&above(), name, store).is_empty()
}

/// Refuses a lock that somebody above us holds, and that we cannot hold beside it. `waits` says that we cannot have it at once.
pub(crate) fn refuse(view: &KeyView, mode: Mode, store: &str, waits: bool) -> Result<(), Exit> {
    let fences = fences(&above(), view.key.as_str(), store);
    let mut above = view.holders.iter().filter(|holder| fences.contains(&holder.fence));
    let Some(holder) = above.next() else { return Ok(()) };
    let is_possible = match (holder.mode, mode) {
        // A writer that waits between two readers would be waited for, and wait for the first of them.
        (Mode::Shared, Mode::Shared) => !waits,
        // Another's slot may become free, if any is another's. Who counts other slots is refused by the store.
        (Mode::Slot(_), Mode::Slot(slots)) => 1 + above.count() != slots as usize,
        _ => false,
    };
    if is_possible {
        return Ok(());
    }
    let (owner, fence) = (&holder.owner, holder.fence);
    Err(Exit::because(
        DEADLOCK,
        format!(
            "{} is held by a run that this one is part of (pid {}, {}@{}, fence {fence}), so it would wait for itself: take the lock once, outside, \
             or give this one another name",
            view.key, owner.pid, owner.name, owner.host
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_name_in_the_same_store_counts() {
        let held = "7\tsqlite:/a\tx y\n8\tsqlite:/b\tx y\n9\tsqlite:/a\tx y\nrubbish\n";
        assert_eq!(fences(held, "x y", "sqlite:/a"), [7, 9]);
        assert_eq!(fences(held, "x", "sqlite:/a"), [0; 0]);
        // Whoever asks.
        assert_eq!(fences("7\tredis://h/0?prefix=a/\tx\n", "x", "redis://***@h/0?prefix=a/"), [7]);
        assert_eq!(fences("7\tredis://h/0?prefix=a/\tx\n", "x", "redis://h/0"), [0; 0]);
    }
}
