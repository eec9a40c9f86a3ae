//! What is done beside the requests: forgetting keys that nobody uses, and counting anew after a reboot.

use std::time::{Duration, Instant};

use super::columns::instant;
use super::engine::{Engine, PAGE, TWO_KERNELS, ledger_now, two_kernels};
use super::rows::KeyRows;
use super::sql::Sql;
use crate::Result;
use crate::lease::ledger::{self, TOMBSTONE_MS};
use crate::lease::{Rows, State, Ticket};

/// How often unused keys are looked for, by whichever process comes to it first.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// A sweep that another process did so shortly before, in milliseconds, need not be done again.
const RECENTLY_MS: i64 = 30_000;
/// How long after one page of them the next.
const PAGE_PAUSE: Duration = Duration::from_millis(20);

impl Engine<'_> {
    /// Forgets a page of unused keys, now that no request waits, and sets the time of the next page.
    pub(super) fn sweep_when_idle(&mut self) {
        let more = self.sweep().unwrap_or_else(|error| {
            // The file is busy, say: there is no hurry.
            tracing::debug!(error = %error.chain(), "no sweep now");
            self.outside.swept_to.clear();
            false
        });
        self.outside.next_sweep = Instant::now() + if more { PAGE_PAUSE } else { EVERY };
    }

    /// Forgets a page of unused keys. Answers whether there may be more.
    ///
    /// All that must outlive a key is that its fences grow; so before it goes, the floor of all new keys is raised to its last fence.
    pub(super) fn sweep(&mut self) -> Result<bool> {
        let after = std::mem::take(&mut self.outside.swept_to);
        let now = instant(self.outside.clock.now().mono_ms);
        // Looked for outside of any transaction: many keys may have to be passed over, and nobody shall wait for that.
        let names: Option<Vec<String>> = self.read(&|| true, |sql| {
            let swept: i64 = sql.get(Sql::SweptAt)?.query_one((), |row| row.get(0))?;
            if after.is_empty() && swept > 0 && now < swept.saturating_add(RECENTLY_MS) {
                return Ok(None);
            }
            sql.get(Sql::Unused)?.query_map((&after, now, PAGE), |row| row.get(0))?.collect::<rusqlite::Result<_>>().map(Some)
        })?;
        // Another process has just done it.
        let Some(names) = names else { return Ok(false) };
        if after.is_empty()
            && let Some(notices) = &self.outside.notices
        {
            notices.bury_dead();
        }
        // Whoever finds the file busy leaves it to the others.
        let told = self.transaction(&|| true, |sql, time| {
            sql.get(Sql::NoteSweep)?.execute([instant(time.mono_ms)])?;
            let mut told = Vec::new();
            for name in &names {
                let mut rows = KeyRows::load(sql, name)?;
                let outcome = ledger::look(&mut rows, ledger_now(time))?;
                if rows.header().is_idle() {
                    rows.forget()?;
                } else {
                    rows.save()?;
                }
                told.push(outcome.told);
            }
            Ok(told)
        })?;
        for (name, told) in names.iter().zip(told) {
            self.tell(name, &told);
        }
        let full = names.len() == usize::try_from(PAGE).unwrap_or(usize::MAX);
        if full {
            self.outside.swept_to = names.last().cloned().unwrap_or_default();
        }
        Ok(full)
    }

    /// Where instants count from another boot, gives everything its full length from now on, once.
    ///
    /// A reboot frees nothing: what the holders guarded may still be under way elsewhere (a job on another machine, say), and how long the
    /// machine was off is not known.
    pub(super) fn rebase(&mut self) -> Result<()> {
        let boot = self.outside.boot.clone();
        if self.read(&|| false, |sql| sql.is_boot(&boot))? {
            return Ok(());
        }
        let is_ours = self.transaction_of_any_boot(&|| false, |sql, time| {
            if sql.is_boot(TWO_KERNELS)? {
                return Ok(false);
            }
            // Another process may have been faster.
            if sql.is_boot(&boot)? {
                return Ok(true);
            }
            let mut after = String::new();
            loop {
                let names = sql.names(Sql::NamesAfter, &after, PAGE)?;
                for name in &names {
                    let mut rows = KeyRows::load(sql, name)?;
                    for ticket in rows.tickets()? {
                        rows.put(Some(&ticket), &rebased(&ticket, time.mono_ms))?;
                    }
                    for rest in &mut rows.header().rests {
                        rest.until_ms = time.mono_ms.saturating_add(rest.for_ms);
                    }
                    rows.prolong_tombstones(time.mono_ms.saturating_add(TOMBSTONE_MS));
                    rows.header().next_due_ms = rows.next_due()?;
                    rows.save()?;
                }
                match names.into_iter().next_back() {
                    Some(last) => after = last,
                    None => break,
                }
            }
            sql.get(Sql::NoteBoot)?.execute([&boot])?;
            Ok(true)
        })?;
        if is_ours { Ok(()) } else { Err(two_kernels(&self.outside.path)) }
    }
}

/// The ticket as if it had been granted, and renewed, at this instant.
fn rebased(ticket: &Ticket, now_ms: u64) -> Ticket {
    let terms = ticket.terms;
    let lives = match ticket.state {
        State::Queued | State::Granted => terms.queue_life,
        State::Held => terms.ttl.min(terms.max_hold.unwrap_or(u64::MAX)),
    };
    Ticket {
        entered_ms: now_ms,
        granted_ms: if ticket.holds() { now_ms } else { 0 },
        due_ms: now_ms.saturating_add(lives),
        ..ticket.clone()
    }
}
