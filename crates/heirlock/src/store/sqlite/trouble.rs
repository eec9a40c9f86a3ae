//! What SQLite can fail with: when to try again, and what to say.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Error as SqlError, ErrorCode};

use crate::{Error, Kind, Result};

/// How long a request waits for the file while others write to it.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(10);
/// The first pause between two tries, about as long as a transaction takes.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// The longest.
const LAST_PAUSE: Duration = Duration::from_millis(2);

/// Tries again while the file is busy.
///
/// SQLite's own waiting sleeps by the table 1, 2, 5, 10 ... 100 ms, and a transaction here takes some ten microseconds: whoever slept would find
/// that many others had come and gone.
pub(super) struct Patience<'g> {
    until: Instant,
    pause: Duration,
    noise: u64,
    /// Whether nobody waits for the answer any more.
    gave_up: &'g dyn Fn() -> bool,
}

impl<'g> Patience<'g> {
    pub(super) fn new(gave_up: &'g dyn Fn() -> bool) -> Self {
        Patience { until: Instant::now() + BUSY_LIMIT, pause: FIRST_PAUSE, noise: 0, gave_up }
    }

    /// Tries until it is not busy, for [`BUSY_LIMIT`] or until the asker gives up.
    pub(super) fn busy<T>(&mut self, path: &Path, mut attempt: impl FnMut() -> rusqlite::Result<T>) -> Result<T> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(cause) if is_busy(&cause) && Instant::now() < self.until && !(self.gave_up)() => std::thread::sleep(self.next_pause()),
                Err(cause) => return Err(explain(path, cause)),
            }
        }
    }

    /// Between a half and the whole of a pause that grows, so that those who collided once do not go on in step.
    fn next_pause(&mut self) -> Duration {
        if self.noise == 0 {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.subsec_nanos());
            self.noise = u64::from(now) << 20 ^ u64::from(std::process::id()) | 1;
        }
        // Marsaglia's xorshift: any noise will do.
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        let half = self.pause / 2;
        let share = u32::try_from(self.noise % 1024).unwrap_or(0);
        self.pause = (self.pause * 3 / 2).min(LAST_PAUSE);
        half + half * share / 1024
    }
}

/// Whether the same may succeed a moment later because another connection is then done.
pub(super) fn is_busy(cause: &SqlError) -> bool {
    matches!(cause.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed))
}

/// An error in the store's words.
pub(super) fn explain(path: &Path, cause: SqlError) -> Error {
    let path = path.display();
    let (kind, what) = match cause.sqlite_error_code() {
        _ if is_busy(&cause) => (Kind::Unreachable, format!("other processes keep {path} busy: try again")),
        Some(ErrorCode::DiskFull) => (Kind::Storage, format!("the disk of {path} is full: free some space")),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            (Kind::Incompatible, format!("{path} is damaged or not a store of leases: move it away, or give another path"))
        }
        // Not `Invalid`: a disk that is made read-only by a fault may be mended while a holder still beats.
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (Kind::Storage, format!("{path} cannot be written: check the modes of the file and of its directory"))
        }
        Some(ErrorCode::CannotOpen) => (Kind::Storage, format!("SQLite cannot open {path} and its log: check the modes of its directory")),
        Some(ErrorCode::SystemIoFailure) => (Kind::Storage, format!("the disk of {path} fails")),
        Some(_) => (Kind::Storage, format!("SQLite cannot do its work on {path}")),
        None => (Kind::Incompatible, format!("{path} has a value that this version does not know: use the version that wrote it")),
    };
    Error::new(kind, what).because(cause)
}
