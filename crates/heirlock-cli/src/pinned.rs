//! The store's file as it was when we came. In one that is put in its place nobody holds anything, though whoever held a lock in the first may need a
//! moment to hear of that, and to end: who has waited beside them does not take that for his turn.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;

use crate::exit::Exit;

/// A file, kept from being another one by the same number.
pub(crate) struct Pinned {
    file: OwnedFd,
    path: PathBuf,
}

impl Pinned {
    /// What is at this path now, if anything is.
    pub(crate) fn at(path: PathBuf) -> Option<Pinned> {
        // The path alone: closing a file that is open gives up the locks that SQLite has on it.
        let file = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Pinned { file, path })
    }

    /// Whether it is still there; an error otherwise. What the system does not tell is no reason to think so.
    pub(crate) fn check(&self) -> Result<(), Exit> {
        let is_there = match (stat(&self.path), fstat(&self.file)) {
            (Ok(now), Ok(then)) => (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino),
            (Err(error), _) => !matches!(error, Errno::NOENT | Errno::NOTDIR),
            (_, Err(_)) => true,
        };
        if is_there {
            return Ok(());
        }
        Err(Exit::own(format!(
            "{} was removed or replaced while we waited, and whoever held the lock may not have ended yet: try again when it has",
            self.path.display()
        )))
    }
}
