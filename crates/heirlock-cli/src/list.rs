//! `heirlock ls` and `heirlock show`: who holds, who waits.

use clap::Args;
use heirlock::lease::Key;
use heirlock::observe::{Holder, Lock, Snapshot, Waiter, align, span};

use crate::args::Data;
use crate::exit::Exit;
use crate::look::Look;
use crate::output::{self, Ink, Style};

/// The exit code where what was asked for is not held.
pub(crate) const NOT_HELD: u8 = 1;

#[derive(Args, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) data: Data,
    /// Only names that start so
    #[arg(value_name = "PREFIX", default_value = "")]
    prefix: String,
}

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 it is held; 1 it is not: it is free, or rests; 125 an error, as a store that does not answer.")]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) data: Data,
    /// The lock's name
    #[arg(value_name = "NAME")]
    name: String,
}

pub(crate) async fn list(ls: Ls) -> Result<Exit, Exit> {
    let look = Look::at(ls.data.store.clone()).await?;
    let keys = look.list(&ls.prefix).await?;
    let snapshot = Snapshot::of_leases(look.close().await, keys);
    if ls.data.json {
        return Ok(output::json(&snapshot, 0));
    }
    let rows: Vec<_> = snapshot.locks.iter().flat_map(rows).collect();
    Ok(output::text(&table(HEADING, rows, Style::of_stdout()), 0))
}

pub(crate) async fn show(show: Show) -> Result<Exit, Exit> {
    let key = key(&show.name)?;
    let store = Look::at(show.data.store.clone()).await?;
    let view = store.inspect(&key).await?;
    let snapshot = Snapshot::of_leases(store.close().await, vec![view]);
    let Some(lock) = snapshot.locks.first() else { return Err(Exit::own("the store told nothing of the lock")) };
    let code = if lock.holders.is_empty() { NOT_HELD } else { 0 };
    if show.data.json {
        return Ok(output::json(&snapshot, code));
    }
    Ok(output::text(&details(lock, snapshot.at, Style::of_stdout()), code))
}

/// A name that a lock can have.
pub(crate) fn key(name: &str) -> Result<Key, Exit> {
    Key::new(name).map_err(|error| Exit::own(error.chain()))
}

/// Where nobody holds it: whether somebody could.
pub(crate) fn freedom(lock: &Lock, at_ms: u64) -> String {
    match lock.resting_ms {
        Some(rest) => format!("nobody holds {}: it rests for {} more, until {}", lock.name, span(rest), utc(at_ms.saturating_add(rest))),
        None if lock.queue.is_empty() => format!("{} is free", lock.name),
        None => format!("nobody holds {} just now", lock.name),
    }
}

fn details(lock: &Lock, at_ms: u64, style: Style) -> String {
    let mut text = String::new();
    if lock.holders.is_empty() {
        text += &(printable(&freedom(lock, at_ms)) + "\n");
    }
    // Its name is what was asked for.
    let rows = rows(lock).filter(|row| row[1] != RESTS).map(|mut row| {
        row[0].clear();
        row
    });
    let mut heading = HEADING;
    heading[0] = "";
    text + &table(heading, rows.collect(), style)
}

type Row = [String; 11];

const HEADING: [&str; 11] = ["NAME", "", "WHO", "PID", "FOR", "LEFT", "MODE", "PRIO", "FENCE", "COMMAND", "WHY"];
const RESTS: &str = "rests";

/// One row a holder, one a waiter.
fn rows(lock: &Lock) -> impl Iterator<Item = Row> {
    let mut rows: Vec<Row> = lock.holders.iter().map(|holder| of_holder(lock, holder)).collect();
    rows.extend(lock.queue.iter().map(|waiter| of_waiter(lock, waiter)));
    if let (true, Some(rest)) = (lock.holders.is_empty(), lock.resting_ms) {
        let mut row = Row::default();
        row[0].clone_from(&lock.name);
        row[1] = RESTS.into();
        row[5] = span(rest);
        rows.push(row);
    }
    rows.into_iter()
}

fn of_holder(lock: &Lock, holder: &Holder) -> Row {
    let party = &holder.party;
    let mut left = holder.expires_in_ms.map_or(String::new(), span);
    if holder.revoked == Some(true) {
        left += ", revoked";
    }
    [
        lock.name.clone(),
        "held by".into(),
        format!("{}@{}", party.worker.name, party.worker.host),
        party.worker.pid.to_string(),
        span(holder.since_ms),
        left,
        holder.slot.map_or(party.mode.to_owned(), |slot| format!("slot {slot}")),
        priority(holder.priority, holder.effective),
        holder.fence.map_or(String::new(), |fence| fence.to_string()),
        party.command.clone().unwrap_or_default(),
        party.why.clone().unwrap_or_default(),
    ]
}

fn of_waiter(lock: &Lock, waiter: &Waiter) -> Row {
    let party = &waiter.party;
    [
        lock.name.clone(),
        format!("waits {}", waiter.position),
        format!("{}@{}", party.worker.name, party.worker.host),
        party.worker.pid.to_string(),
        span(waiter.waiting_ms),
        String::new(),
        party.mode.to_owned(),
        priority(waiter.priority, waiter.effective),
        String::new(),
        party.command.clone().unwrap_or_default(),
        party.why.clone().unwrap_or_default(),
    ]
}

/// Its own, and by what it is raised.
fn priority(own: i32, effective: i32) -> String {
    if own == effective { own.to_string() } else { format!("{own}, now {effective}") }
}

/// The rows under their heading; nothing without rows.
fn table(heading: [&str; 11], rows: Vec<Row>, style: Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let revoked: Vec<bool> = rows.iter().map(|row| row[5].ends_with("revoked")).collect();
    let rows: Vec<Row> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let mut text = String::new();
    for (at, line) in align(&rows).into_iter().enumerate() {
        text += &match at.checked_sub(1) {
            None => style.paint(Ink::Bold, &line),
            Some(row) if revoked[row] => style.paint(Ink::Yellow, &line),
            Some(_) => line,
        };
        text.push('\n');
    }
    text
}

/// On one line, whatever a name has in it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An instant of the wall clock, as `2026-11-30 06:12:04 UTC`.
fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (mut day, time) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar in eras of 400 years, each of which has as many days; years begin in March, so that a leap day is a year's last.
    day += 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{date:02} {:02}:{:02}:{:02} UTC", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_for_people() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_796_018_943, "2026-11-30 06:09:03 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1000 + 999), text);
        }
    }
}
