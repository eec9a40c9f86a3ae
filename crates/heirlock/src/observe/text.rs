//! A snapshot for people: a terminal or a log, at three in the morning.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::snapshot::{Holder, Lock, Party, Snapshot, Waiter, WorkerView};

impl fmt::Display for Snapshot {
    /// Each lock with who holds it and who waits, in serving order; then who waits for whom, and what looks wrong. The same snapshot always gives
    /// the same text. Whatever a name contains, it stays on its line.
    ///
    /// ```
    /// let nothing = heirlock::observe::Snapshot::default();
    /// assert_eq!(nothing.to_string(), "nothing is held or waited for\n");
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Names::of(self);
        if self.locks.is_empty() {
            f.write_str("nothing is held or waited for\n")?;
        }
        let rows: Vec<[String; CELLS]> = self.locks.iter().flat_map(|lock| rows(lock, &names)).collect();
        let mut lines = align(&rows).into_iter();
        for lock in &self.locks {
            writeln!(f, "{}", heading(lock))?;
            for line in lines.by_ref().take(lock.holders.len() + lock.queue.len()) {
                writeln!(f, "  {line}")?;
            }
        }
        let waits = self.edges.iter().map(|edge| {
            let (from, to) = (names.name(&edge.from), names.name(&edge.to));
            match &edge.lock {
                Some(lock) => format!("{from} waits for {to}: {lock}"),
                None => format!("{from} waits for {to}, its fork"),
            }
        });
        section(f, "who waits for whom", waits.map(|wait| vec![wait]))?;
        section(f, "suspected cycles", self.suspected.iter().cloned())?;
        section(f, "deadlocks found lately", self.deadlocks.iter().cloned())?;
        section(f, "leases lost lately", self.losses.iter().map(|loss| vec![loss.clone()]))?;
        section(f, "locks taken in both orders", self.inversions.iter().map(|inversion| vec![inversion.clone()]))
    }
}

/// A title, and below it what is there; nothing if nothing is. Of an entry of several lines the first stands out.
fn section(f: &mut fmt::Formatter<'_>, title: &str, entries: impl Iterator<Item = Vec<String>>) -> fmt::Result {
    let mut title = Some(title);
    for entry in entries {
        if let Some(title) = title.take() {
            writeln!(f, "{title}")?;
        }
        for (at, line) in entry.iter().enumerate() {
            let indent = if at == 0 { "  " } else { "    " };
            writeln!(f, "{indent}{}", printable(line))?;
        }
    }
    Ok(())
}

fn heading(lock: &Lock) -> String {
    let mut text = format!("{} ({})", printable(&lock.name), lock.kind);
    match (lock.holders.len(), lock.queue.len()) {
        (0, 0) => text += ": free",
        (0, waiting) => text += &format!(": not held, {waiting} waiting"),
        (_, 0) => {}
        (_, waiting) => text += &format!(": {waiting} waiting"),
    }
    if let Some(rest) = lock.resting_ms {
        text += &format!(", rests for {}", span(rest));
    }
    if lock.unknown_releaser {
        text += ", others than its holders may release it";
    }
    text
}

const CELLS: usize = 10;

/// One row a holder, one a waiter.
fn rows(lock: &Lock, names: &Names<'_>) -> Vec<[String; CELLS]> {
    let parties = lock.holders.iter().map(|holder| &holder.party).chain(lock.queue.iter().map(|waiter| &waiter.party));
    let modes = parties.into_iter().any(|party| party.mode != "exclusive");
    let holders = lock.holders.iter().map(|holder| of_holder(holder, modes, names));
    holders.chain(lock.queue.iter().map(|waiter| of_waiter(waiter, modes, names))).collect()
}

fn of_holder(holder: &Holder, modes: bool, names: &Names<'_>) -> [String; CELLS] {
    let mode = match holder.slot {
        Some(slot) => format!("slot {slot}"),
        None if modes => holder.party.mode.into(),
        None => String::new(),
    };
    let fence = holder.fence.map_or(String::new(), |fence| format!("fence {fence}"));
    let mut left = holder.expires_in_ms.map_or(String::new(), |ms| format!("{} left", span(ms)));
    if holder.revoked == Some(true) {
        left += ", revoked";
    }
    let priority = priority(holder.priority, holder.effective);
    row("held by".into(), &holder.party, mode, [priority, span(holder.since_ms), left, fence], holder.site.as_ref(), names)
}

fn of_waiter(waiter: &Waiter, modes: bool, names: &Names<'_>) -> [String; CELLS] {
    let mode = if modes { waiter.party.mode.into() } else { String::new() };
    let left = waiter.deadline_in_ms.map_or(String::new(), |ms| format!("{} left", span(ms)));
    let priority = priority(waiter.priority, waiter.effective);
    let position = format!("{}.", waiter.position);
    row(position, &waiter.party, mode, [priority, span(waiter.waiting_ms), left, String::new()], waiter.site.as_ref(), names)
}

fn row(place: String, party: &Party, mode: String, middle: [String; 4], site: Option<&String>, names: &Names<'_>) -> [String; CELLS] {
    let [priority, time, left, fence] = middle;
    let site = site.map_or(String::new(), |site| format!("at {site}"));
    let why = party.why.as_ref().map_or(String::new(), |why| format!("({why})"));
    let command = party.command.clone().unwrap_or_default();
    [place, names.name(&party.worker), mode, priority, format!("for {time}"), left, fence, site, command, why]
}

fn priority(own: i32, effective: i32) -> String {
    if own == effective { format!("priority {own}") } else { format!("priority {own}, raised to {effective}") }
}

/// How workers are called in one snapshot: by name, and by as much more as is needed to tell them apart.
pub(super) struct Names<'a> {
    /// The names that several workers of one process have.
    shared: HashSet<(&'a str, u32, &'a str)>,
    several_processes: bool,
}

impl<'a> Names<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Names<'a> {
        let mut ids: HashMap<(&str, u32, &str), u64> = HashMap::new();
        let (mut shared, mut processes) = (HashSet::new(), HashSet::new());
        for worker in workers(snapshot) {
            let name = (&*worker.host, worker.pid, &*worker.name);
            if *ids.entry(name).or_insert(worker.id) != worker.id {
                shared.insert(name);
            }
            processes.insert((&*worker.host, worker.pid));
        }
        Names { shared, several_processes: processes.len() > 1 }
    }

    pub(super) fn name(&self, worker: &WorkerView) -> String {
        let mut name = printable(&worker.name);
        if self.shared.contains(&(&*worker.host, worker.pid, &*worker.name)) {
            name += &format!(" #{}", worker.id);
        }
        if self.several_processes {
            name += &format!(" @{}:{}", printable(&worker.host), worker.pid);
        }
        name
    }
}

/// All workers that a snapshot mentions; most of them several times.
pub(super) fn workers(snapshot: &Snapshot) -> impl Iterator<Item = &WorkerView> {
    let parties = snapshot.locks.iter().flat_map(|lock| {
        let holders = lock.holders.iter().map(|holder| &holder.party.worker);
        holders.chain(lock.queue.iter().map(|waiter| &waiter.party.worker))
    });
    parties.chain(snapshot.edges.iter().flat_map(|edge| [&edge.from, &edge.to]))
}

/// The text without what would end its line or move a terminal's cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Rows as lines, their cells aligned. What is empty in all rows takes no room.
pub fn align<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            line += &printable(cell);
            // By hand: a formatter's width has a limit.
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        line.truncate(line.trim_end().len());
        line
    };
    rows.iter().map(line).collect()
}

/// A duration for people: "0.4 s", "12 s", "3 min", "5 h", "2 d".
pub fn span(ms: u64) -> String {
    match ms / 1000 {
        0..=9 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        s @ 10..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people() {
        assert_eq!(
            [0, 450, 9_999, 12_000, 180_000, 7_200_000, 200_000_000].map(span).join(", "),
            "0.0 s, 0.4 s, 9.9 s, 12 s, 3 min, 2 h, 2 d"
        );
    }

    #[test]
    fn cells_are_aligned_and_stay_on_their_line() {
        let rows = [["a\nb", "", "ü"], ["c", "", "\u{1b}[2J"]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&rows), ["a b  ü", "c     [2J"]);
    }
}
