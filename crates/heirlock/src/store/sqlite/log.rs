//! When the write-ahead log is written back into the file.
//!
//! SQLite does it within the commit that makes the log long enough, and that asker waits for two syncs of the disk. Here the thread does it after
//! it has answered. And where many processes write without a pause, the log never stands still for long enough to start anew; when it has grown
//! to several times its length, one of them makes the others wait for once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, Result};

use super::schema::PAGE_BYTES;

/// The log is written back from so many pages on: 4 MiB, SQLite's default in bytes. Earlier where it would then take more than an eighth of what the
/// disk has free: it must not be the log that fills the disk.
const LONG: u32 = 2000;
/// Whoever leaves writes it back from so many pages on: to read them takes a fraction of a millisecond.
const SHORT: u32 = 200;
/// Not before so many, however full the disk is: each time the disk is waited for.
const SHORTEST: u32 = 50;
/// Once it is so many times as long, others must wait for it.
const TOO_LONG: u32 = 4;
/// When it has grown by this part of it more, it is tried again.
const MORE: u32 = 4;

/// The log of one connection.
pub(super) struct Log {
    /// Its length in pages at this connection's last commit.
    pages: Arc<AtomicU32>,
    /// Its length when it was last tried to write it back.
    tried: u32,
    /// From how many pages on it is written back.
    long: u32,
}

/// From how many pages on a log at this path is written back.
fn long(path: &Path) -> u32 {
    let free = rustix::fs::statvfs(path).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    u32::try_from(free / 8 / u64::from(PAGE_BYTES)).unwrap_or(LONG).clamp(SHORTEST, LONG)
}

impl Log {
    /// Takes the matter out of SQLite's hands.
    pub(super) fn of(db: &mut Connection, path: &Path) -> Result<Log> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&pages);
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, length| {
            seen.store(u32::try_from(length).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Log { pages, tried: 0, long: long(path) })
    }

    /// Writes it back if the next process, which has to read it, would notice.
    pub(super) fn leave_short(&mut self, db: &Connection) {
        if self.pages.load(Ordering::Relaxed) >= SHORT {
            let done = db.wal_checkpoint_v2(Some("main"), CheckpointMode::PASSIVE);
            tracing::trace!(?done, "the log was written back");
        }
    }

    /// Writes it back if it has grown long. What fails now is tried again later: nothing is lost, the log is only longer.
    pub(super) fn write_back(&mut self, db: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.long {
            self.tried = 0;
        } else if pages >= self.tried + self.long / MORE {
            self.tried = pages;
            let mode = if pages < TOO_LONG * self.long { CheckpointMode::PASSIVE } else { CheckpointMode::RESTART };
            let done = db.wal_checkpoint_v2(Some("main"), mode);
            tracing::trace!(pages, ?done, "the log was written back");
        }
    }
}
