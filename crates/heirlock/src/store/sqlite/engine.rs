//! The store's thread: it owns the connection and does one step after another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures_channel::oneshot;
use rusqlite::Connection;

use super::file::{Claim, FileId};
use super::idle;
use super::log::Log;
use super::mailbox::{Job, Mail, Mailbox};
use super::notify::Notices;
use super::rows::KeyRows;
use super::schema;
use super::sql::{Sql, Statements};
use super::time::{StoreClock, StoreTime};
use super::trouble::{Patience, explain};
use crate::lease::ledger::{self, Now};
use crate::lease::{Answer, Beat, Key, KeyView, Outcome, Rows, SessionId, Sink, Told};
use crate::{Error, Kind, Result};

/// Whether nobody waits for an answer any more.
pub(super) type GaveUp<'g> = &'g dyn Fn() -> bool;

/// How many keys one transaction of a listing or a sweep reads at most.
pub(super) const PAGE: i64 = 64;

/// What outlives a connection.
pub(super) struct Outside {
    /// As it was given: what lies there may change.
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) prefix: Arc<str>,
    pub(super) clock: Arc<dyn StoreClock>,
    /// Which boot its instants count from.
    pub(super) boot: String,
    pub(super) notices: Option<Notices>,
    /// When the next sweep is, and the name behind which it goes on.
    pub(super) next_sweep: Instant,
    pub(super) swept_to: String,
    /// The file at the path was seen to be another one than before.
    pub(super) was_replaced: bool,
    /// A session has ended, and perhaps the process ends with it.
    pub(super) leaving: bool,
}

/// Opens the store and serves its requests until it is closed. The first opening is reported.
pub(super) fn run(mailbox: &Arc<Mailbox>, mut outside: Outside, opened: oneshot::Sender<Result<()>>) {
    // However this ends, nobody waits for an answer from it.
    let _end = End(mailbox);
    let mut opened = Some(opened);
    let mut at_hand = None;
    loop {
        if at_hand.as_ref().is_some_and(|job: &Job| !job.makes) && matches!(FileId::at(&outside.path), Ok(None)) {
            at_hand = at_hand.and_then(|job| {
                job.run(Err(removed(&outside.path)));
                next(mailbox)
            });
            if at_hand.is_none() {
                return;
            }
            continue;
        }
        match open(&mut outside) {
            Ok((db, mut log, claim)) => {
                if let Some(opened) = opened.take() {
                    let _ = opened.send(Ok(()));
                }
                let served = serve(&db, &mut log, &claim, &mut outside, mailbox, at_hand);
                // The claim outlives the connection.
                drop(db);
                drop(claim);
                at_hand = match served {
                    Served::Closed => None,
                    Served::Anew(job) => Some(job),
                    // Not before somebody wants something: others may need our connection to go.
                    Served::Replaced => next(mailbox),
                };
                if at_hand.is_none() {
                    return;
                }
            }
            Err(error) => {
                if let Some(opened) = opened.take() {
                    let _ = opened.send(Err(error));
                    return;
                }
                if let Some(job) = at_hand.take() {
                    job.run(Err(error));
                }
                at_hand = next(mailbox);
                if at_hand.is_none() {
                    return;
                }
            }
        }
    }
}

/// The next request, however long it takes; none when the store is closed.
fn next(mailbox: &Mailbox) -> Option<Job> {
    loop {
        match mailbox.take(Instant::now() + idle::EVERY) {
            Mail::Job(job) => return Some(job),
            Mail::Nothing => {}
            Mail::Closed => return None,
        }
    }
}

/// The file is gone, and with it every ticket.
fn removed(path: &Path) -> Error {
    Error::new(Kind::Lost, format!("{} was removed, and all locks in it are lost", path.display()))
}

/// What stands in the place of a boot's id in a file that two kernels have written to. No boot is called so.
pub(super) const TWO_KERNELS: &str = "two kernels";

/// The file is on a volume that two machines have mounted: each has a time of its own, and neither sees the other's locks on the file for certain.
pub(super) fn two_kernels(path: &Path) -> Error {
    let what = format!(
        "{} is shared by two kernels, whose times do not agree: give each machine a file of its own, and remove this one when nobody uses it",
        path.display()
    );
    Error::new(Kind::Incompatible, what)
}

struct End<'m>(&'m Mailbox);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn open(outside: &mut Outside) -> Result<(Connection, Log, Claim)> {
    outside.boot = outside.clock.boot_id();
    if outside.boot.is_empty() && cfg!(target_os = "linux") {
        // Beside processes that know it, this would look like another kernel.
        return Err(Error::new(Kind::Storage, "the kernel does not tell which boot this is: mount /proc here"));
    }
    let claim = Claim::of(&outside.path, outside.mode, outside.was_replaced)?;
    let mut db = schema::connect(&claim.path, &outside.boot, &mut Patience::new(&|| false))?;
    if !claim.stands(&outside.path)? {
        return Err(Error::new(Kind::Unreachable, format!("{} was replaced while it was opened", outside.path.display())));
    }
    // The same file's pipes, by whatever link it is reached; those of a file that was replaced go on.
    if outside.notices.is_none() {
        outside.notices = Some(Notices::beside(&claim.path, outside.mode, Arc::clone(&outside.prefix)));
    }
    Engine { sql: Statements::new(&db), outside, broken: false }.rebase()?;
    claim.connected();
    outside.was_replaced = false;
    let log = Log::of(&mut db, &outside.path).map_err(|cause| explain(&outside.path, cause))?;
    Ok((db, log, claim))
}

/// Why a connection's service ends.
enum Served {
    /// The store is closed.
    Closed,
    /// This request needs a new connection.
    Anew(Job),
    /// The file at the path is another one, or none.
    Replaced,
}

/// Does requests, until the store is closed or the file at its path is another one.
fn serve(db: &Connection, log: &mut Log, claim: &Claim, outside: &mut Outside, mailbox: &Mailbox, mut at_hand: Option<Job>) -> Served {
    let mut engine = Engine { sql: Statements::new(db), outside, broken: false };
    loop {
        let job = match at_hand.take() {
            Some(job) => job,
            None => match mailbox.take(engine.outside.next_sweep) {
                Mail::Job(job) => job,
                Mail::Nothing => {
                    match claim.stands(&engine.outside.path) {
                        Ok(true) => engine.sweep_when_idle(),
                        Ok(false) => {
                            engine.outside.was_replaced = true;
                            return Served::Replaced;
                        }
                        Err(_) => engine.outside.next_sweep = Instant::now() + idle::EVERY,
                    }
                    continue;
                }
                Mail::Closed => return Served::Closed,
            },
        };
        // A file that was removed or replaced has none of our tickets: the new one says so by itself.
        match claim.stands(&engine.outside.path) {
            Ok(stands) if engine.broken || !stands => {
                engine.outside.was_replaced |= !stands;
                return Served::Anew(job);
            }
            Ok(_) => {}
            // Nobody knows: the tickets are there, as far as anybody can tell.
            Err(error) => {
                job.run(Err(error));
                continue;
            }
        }
        job.run(Ok(&mut engine));
        if std::mem::take(&mut engine.outside.leaving) {
            // Processes that live shortly, those of the command line, are perhaps the only ones.
            engine.sweep_when_idle();
            log.leave_short(db);
        }
        log.write_back(db);
    }
}

/// One connection at work.
pub(super) struct Engine<'c> {
    sql: Statements<'c>,
    pub(super) outside: &'c mut Outside,
    /// A transaction could be neither kept nor undone: the connection is of no use any more.
    broken: bool,
}

impl<'c> Engine<'c> {
    /// Does something to the file, all or nothing, at the time that it is in when it is ours.
    pub(super) fn transaction<T>(
        &mut self,
        gave_up: GaveUp<'_>,
        work: impl FnOnce(&mut Statements<'c>, StoreTime) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let boot = std::mem::take(&mut self.outside.boot);
        let done = self.transaction_of_any_boot(gave_up, |sql, time| {
            // Whoever came with another boot has counted all anew, as after a restart; but there was none, as this process has lived on. Neither of
            // both may go on, so that is left for the other to find.
            if !sql.is_boot(&boot)? {
                sql.get(Sql::NoteBoot)?.execute([TWO_KERNELS])?;
                return Ok(None);
            }
            work(sql, time).map(Some)
        });
        self.outside.boot = boot;
        done?.ok_or_else(|| two_kernels(&self.outside.path))
    }

    /// The same whichever boot the file's instants count from.
    pub(super) fn transaction_of_any_boot<T>(
        &mut self,
        gave_up: GaveUp<'_>,
        work: impl FnOnce(&mut Statements<'c>, StoreTime) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let (sql, path) = (&mut self.sql, &self.outside.path);
        let begin = sql.get(Sql::Begin).map_err(|cause| explain(path, cause))?;
        Patience::new(gave_up).busy(path, || begin.raw_execute())?;
        // Not before: whoever waited for the file for a second would act on a time that others have left behind.
        let now = self.outside.clock.now();
        match work(sql, now).and_then(|done| sql.run(Sql::Commit).map(|()| done)) {
            Ok(done) => Ok(done),
            Err(cause) => {
                if !sql.db().is_autocommit() && sql.run(Sql::Rollback).is_err() {
                    self.broken = true;
                }
                Err(explain(path, cause))
            }
        }
    }

    /// Reads something outside of any transaction.
    pub(super) fn read<T>(&mut self, gave_up: GaveUp<'_>, mut query: impl FnMut(&mut Statements<'c>) -> rusqlite::Result<T>) -> Result<T> {
        Patience::new(gave_up).busy(&self.outside.path, || query(&mut self.sql))
    }

    /// One verb on one key, and what it tells others.
    pub(super) fn step<T>(
        &mut self,
        name: &str,
        gave_up: GaveUp<'_>,
        verb: impl FnOnce(&mut KeyRows<'_, 'c>, Now<'_>) -> rusqlite::Result<Outcome<T>>,
    ) -> Result<Outcome<T>> {
        let outcome = self.transaction(gave_up, |sql, time| {
            let mut rows = KeyRows::load(sql, name)?;
            let outcome = verb(&mut rows, ledger_now(time))?;
            rows.save()?;
            Ok(outcome)
        })?;
        self.tell(name, &outcome.told);
        Ok(outcome)
    }

    /// All of a keeper's beats in one transaction.
    pub(super) fn beat(&mut self, requests: &[(String, Beat)], gave_up: GaveUp<'_>) -> Result<Vec<Result<Answer>>> {
        let outcomes = self.transaction(gave_up, |sql, time| {
            let mut outcomes = Vec::with_capacity(requests.len());
            for (name, beat) in requests {
                let mut rows = KeyRows::load(sql, name)?;
                let outcome = ledger::beat(&mut rows, ledger_now(time), beat)?;
                rows.save()?;
                outcomes.push(outcome);
            }
            Ok(outcomes)
        })?;
        let answer = |((name, _), outcome): (&(String, Beat), Outcome<Answer>)| {
            self.tell(name, &outcome.told);
            Ok(outcome.answer)
        };
        Ok(requests.iter().zip(outcomes).map(answer).collect())
    }

    /// What operators see of a key.
    pub(super) fn inspect(&mut self, key: Key, name: &str, gave_up: GaveUp<'_>) -> Result<KeyView> {
        let (shown, told) = self.transaction(gave_up, |sql, time| Shown::look(sql, name, time))?;
        self.tell(name, &told);
        Ok(shown.view(key))
    }

    /// What operators see of all keys in use whose stored names start so. A page at a time, not to keep others from the file for long.
    pub(super) fn list(&mut self, prefix: &str, gave_up: GaveUp<'_>) -> Result<Vec<KeyView>> {
        let mut views = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.transaction(gave_up, |sql, time| {
                let names = match &after {
                    None => sql.names(Sql::NamesFrom, prefix, PAGE)?,
                    Some(after) => sql.names(Sql::NamesAfter, after, PAGE)?,
                };
                let shown = |name: String| Shown::look(sql, &name, time).map(|seen| (name, seen));
                names.into_iter().map(shown).collect::<rusqlite::Result<Vec<_>>>()
            })?;
            let full = page.len() == usize::try_from(PAGE).unwrap_or(usize::MAX);
            after = page.last().map(|(name, _)| name.clone());
            for (name, (shown, told)) in page {
                self.tell(&name, &told);
                if !name.starts_with(prefix) {
                    return Ok(views);
                }
                // A name that is no key under this store's prefix (one that is longer, say) belongs to others.
                let key = name.strip_prefix(&*self.outside.prefix).map(Key::new);
                if let (true, Some(Ok(key))) = (shown.in_use, key) {
                    views.push(shown.view(key));
                }
            }
            if !full {
                return Ok(views);
            }
        }
    }

    /// From now on the session's hints go to this sink; without pipes, it goes by looks alone.
    pub(super) fn listen(&mut self, session: SessionId, sink: Sink) {
        if let Some(notices) = &mut self.outside.notices
            && let Err(cause) = notices.listen(session, sink)
        {
            tracing::warn!(path = %self.outside.path.display(), %cause, "no hints from other processes: waiters only look from time to time");
        }
    }

    /// The session's hints end.
    pub(super) fn hush(&mut self, session: SessionId) {
        if let Some(notices) = &mut self.outside.notices {
            notices.hush(session);
            self.outside.leaving = true;
        }
    }

    pub(super) fn tell(&self, name: &str, told: &[Told]) {
        if let (Some(notices), false) = (&self.outside.notices, told.is_empty()) {
            notices.tell(name, told);
        }
    }
}

/// A key after a look, to be shown when the transaction is over.
struct Shown {
    in_use: bool,
    last_fence: u64,
    resting_until: Option<u64>,
    tickets: Vec<crate::lease::Ticket>,
    now_ms: u64,
}

impl Shown {
    fn look(sql: &mut Statements<'_>, name: &str, time: StoreTime) -> rusqlite::Result<(Shown, Vec<Told>)> {
        let mut rows = KeyRows::load(sql, name)?;
        let outcome = ledger::look(&mut rows, ledger_now(time))?;
        let tickets = rows.tickets()?;
        let header = rows.header();
        let shown = Shown {
            in_use: header.live() > 0 || !header.rests.is_empty(),
            last_fence: header.last_fence,
            resting_until: header.rests.iter().filter(|rest| rest.slot.is_none()).map(|rest| rest.until_ms).max(),
            tickets,
            now_ms: time.mono_ms,
        };
        rows.save()?;
        Ok((shown, outcome.told))
    }

    fn view(self, key: Key) -> KeyView {
        KeyView::of(key, self.last_fence, self.resting_until, self.tickets, self.now_ms)
    }
}

/// The instant as the ledger takes it.
pub(super) fn ledger_now(time: StoreTime) -> Now<'static> {
    Now::Clock { mono_ms: time.mono_ms, wall_us: time.wall_us }
}
