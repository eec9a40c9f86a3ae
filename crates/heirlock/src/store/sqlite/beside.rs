//! The log and the shared memory beside a store's file, which SQLite finds by their names alone: where another file was put in the place of one that
//! is still in use, or was left by a crash, they are that one's, and would be read into the new one.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use crate::{Error, Kind, Result};

/// The byte of the shared memory's file that whoever uses it has a read lock on, and the bytes of the store's file that the same connection has one
/// on: as SQLite's file format fixes them.
const USERS_OF_LOG: (u64, u64) = (128, 1);
const USERS_OF_FILE: (u64, u64) = (0x4000_0002, 510);

/// Refuses a file while others use the log beside it and not the file itself, and, if another file was seen in its place before, removes a log that
/// nobody uses.
///
/// Requires: this process has no connection to any of these files, whose locks the look would drop.
///
/// # Errors
/// `Unreachable` while others still use the file that was there before.
pub(super) fn check(path: &Path, was_replaced: bool) -> Result<()> {
    // Without shared memory nobody uses a log. Nor does anybody whose locks cannot be looked at; SQLite then says what is wrong.
    let Ok(shared) = File::open(memory(path)) else { return Ok(()) };
    if !is_locked(&shared, USERS_OF_LOG) {
        if was_replaced {
            remove(path);
        }
        return Ok(());
    }
    // To write, only since a read lock does not conflict with others; nothing is written.
    let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return Ok(()) };
    if is_locked(&file, USERS_OF_FILE) {
        return Ok(());
    }
    // They may have come between the two looks, or gone.
    if !is_locked(&shared, USERS_OF_LOG) || is_locked(&file, USERS_OF_FILE) {
        return Ok(());
    }
    let what = format!("other processes still use the file that was at {} before this one was put there: end them first", path.display());
    Err(Error::new(Kind::Unreachable, what))
}

/// Removes what a file that is not there any more has left.
pub(super) fn remove(path: &Path) {
    for end in ["-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(name(path, end));
    }
}

/// The memory that the users of a file share.
pub(super) fn memory(path: &Path) -> PathBuf {
    name(path, "-shm")
}

fn name(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Whether another process has a lock on these bytes.
fn is_locked(file: &File, (start, length): (u64, u64)) -> bool {
    let mut wanted = Flock::from(FlockType::WriteLock);
    (wanted.offset_type, wanted.start, wanted.length) = (FlockOffsetType::Set, start, length);
    matches!(fcntl_getlk(file, &wanted), Ok(Some(_)))
}
