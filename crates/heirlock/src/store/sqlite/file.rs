//! What lies at a store's path, looked at before SQLite touches it.
//!
//! POSIX drops *all* of a process's locks on a file as soon as the process closes *any* descriptor of it. So the raw look at a file's header
//! must not happen once this process has a connection to it: another process could then take the locks of the live one and delete its log. A
//! process-wide list of the files that are open keeps to that rule.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;

use super::{beside, schema};
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// A file by its device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    dev: u64,
    ino: u64,
}

impl FileId {
    /// What lies at this path now, if anything does.
    ///
    /// # Errors
    /// `Storage` where the system does not tell: that is no sign that it has gone. `Invalid` for links that lead nowhere but to each other.
    pub(super) fn at(path: &Path) -> Result<Option<FileId>> {
        let stat = match rustix::fs::stat(path) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => {
                let what = format!("{} is a link that leads back to itself: give the path of a file, or of none yet", path.display());
                return Err(Error::new(Kind::Invalid, what));
            }
            Err(cause) => {
                let what = format!("cannot look at {}: check the modes of its directories", path.display());
                return Err(Error::new(Kind::Storage, what).because(std::io::Error::from(cause)));
            }
        };
        // The width of these differs between systems.
        #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, trivial_numeric_casts)]
        Ok(Some(FileId { dev: stat.st_dev as u64, ino: stat.st_ino as u64 }))
    }

    fn of(file: &File) -> std::io::Result<FileId> {
        let metadata = file.metadata()?;
        Ok(FileId { dev: metadata.dev(), ino: metadata.ino() })
    }
}

/// The files that this process has connections to.
static OPEN: Mutex<BTreeMap<FileId, InUse>> = Mutex::new(BTreeMap::new());
/// A file in use.
struct InUse {
    connections: usize,
    /// The memory that its users share.
    memory: Option<FileId>,
}

/// Which process has them; 0 if there are none.
static OPENER: AtomicU32 = AtomicU32::new(0);

/// Refuses a process that was forked from one with a connection. SQLite counts the locks of its process, and in the child it would believe to have
/// those that only the parent has. Asked before any mutex, which a thread that is not there may have had at the fork.
fn refuse_forked(path: &Path) -> Result<()> {
    match OPENER.load(Ordering::Acquire) {
        0 => Ok(()),
        opener if opener == std::process::id() => Ok(()),
        opener => Err(Error::new(
            Kind::Invalid,
            format!(
                "{} cannot be opened here, for this process was forked from one that has a store open (pid {opener}): fork before connecting, or \
                 have the child run a program of its own",
                path.display()
            ),
        )),
    }
}

/// The right to open a connection to a file, which has been found fit. Keep it until after the connection is closed.
#[derive(Debug)]
pub(super) struct Claim {
    id: FileId,
    /// The file's own path, without links.
    pub(super) path: PathBuf,
}

impl Claim {
    /// Makes the file if there is none, else checks that it is a store of ours; nothing is written to one that is not. `was_replaced` says that
    /// another file was seen there before: what lies beside it is that one's.
    ///
    /// # Errors
    /// `Incompatible` for a file of anybody else, of another major version, or on a network's filesystem; `Invalid` where the path cannot be
    /// used; `Storage` where the system fails.
    pub(super) fn of(path: &Path, mode: u32, was_replaced: bool) -> Result<Claim> {
        refuse_forked(path)?;
        // Held throughout, so that no thread of this process connects between the look and the claim.
        let mut open = lock(&OPEN);
        // A file that comes or goes between two calls is looked at again; a few rounds are enough unless somebody plays.
        for _ in 0..16 {
            let id = match FileId::at(path)? {
                Some(id) if open.contains_key(&id) => id,
                Some(id) => {
                    refuse_network(path, path)?;
                    let Ok(real) = fs::canonicalize(path) else { continue };
                    let memory = FileId::at(&beside::memory(&real))?;
                    if memory.is_some() && open.values().any(|other| other.memory == memory) {
                        // Its log must not be looked at by this process, nor read into the new file.
                        let what = format!("this process still uses the file that was at {} before this one was put there", path.display());
                        return Err(Error::new(Kind::Unreachable, what));
                    }
                    beside::check(&real, was_replaced)?;
                    match look(path)? {
                        Some(seen) if seen == id => id,
                        _ => continue,
                    }
                }
                None => match create(path, mode)? {
                    Some(id) => id,
                    None => continue,
                },
            };
            let Ok(real) = fs::canonicalize(path) else { continue };
            open.entry(id).or_insert(InUse { connections: 0, memory: None }).connections += 1;
            OPENER.store(std::process::id(), Ordering::Release);
            return Ok(Claim { id, path: real });
        }
        Err(Error::new(Kind::Unreachable, format!("{} is replaced again and again by another program", path.display())))
    }

    /// There is a connection now: takes note of the memory that it shares with others.
    pub(super) fn connected(&self) {
        if let (Some(file), Ok(memory)) = (lock(&OPEN).get_mut(&self.id), FileId::at(&beside::memory(&self.path))) {
            file.memory = memory.or(file.memory);
        }
    }

    /// Whether the path still leads to this file.
    ///
    /// # Errors
    /// `Storage` where the system does not tell.
    pub(super) fn stands(&self, path: &Path) -> Result<bool> {
        Ok(FileId::at(path)? == Some(self.id))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        if let Some(file) = open.get_mut(&self.id) {
            file.connections -= 1;
            if file.connections == 0 {
                open.remove(&self.id);
            }
        }
        if open.is_empty() {
            OPENER.store(0, Ordering::Release);
        }
    }
}

/// Reads the header of a file that this process has no connection to. `None` if it has just gone.
fn look(path: &Path) -> Result<Option<FileId>> {
    let trouble = |what: &str, cause: std::io::Error| {
        let kind = if cause.kind() == ErrorKind::PermissionDenied { Kind::Invalid } else { Kind::Storage };
        Error::new(kind, format!("cannot {what} {}", path.display())).because(cause)
    };
    // Not to wait for the other end of a pipe.
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking()).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(trouble("read", cause)),
    };
    let metadata = file.metadata().map_err(|cause| trouble("read", cause))?;
    if !metadata.is_file() {
        return Err(Error::new(Kind::Invalid, format!("{} is not a file: give the path of one, or of none yet", path.display())));
    }
    let mut header = Vec::with_capacity(schema::HEADER_BYTES);
    let most = u64::try_from(schema::HEADER_BYTES).unwrap_or(u64::MAX);
    file.by_ref().take(most).read_to_end(&mut header).map_err(|cause| trouble("read", cause))?;
    schema::check_header(path, &header)?;
    FileId::of(&file).map(Some).map_err(|cause| trouble("read", cause))
}

fn nonblocking() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// Makes an empty file, and the directories above it. `None` if somebody else just did.
fn create(path: &Path, mode: u32) -> Result<Option<FileId>> {
    let trouble = |cause: std::io::Error| {
        let kind = match cause.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::Interrupted => Kind::Storage,
            _ => Kind::Invalid,
        };
        Error::new(kind, format!("cannot create {}: make its directory writable, or give another path", path.display())).because(cause)
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        // Before anything is made there.
        if let Some(there) = parent.ancestors().find(|directory| directory.exists()) {
            refuse_network(there, path)?;
        }
        DirBuilder::new().recursive(true).mode(directory_mode(mode)).create(parent).map_err(trouble)?;
    }
    // Without it another process could make the file meanwhile, and what is removed here would be its log.
    let Some(alone) = lock_directory(path)? else {
        let what =
            format!("another program keeps the directory of {} locked: look who uses flock on it, or give another path", path.display());
        return Err(Error::new(Kind::Unreachable, what));
    };
    if fs::symlink_metadata(path).is_err() {
        // Left by a file that was removed. Whoever still has that open shares memory with everybody who opens these, so they must not live on.
        beside::remove(path);
    }
    let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path);
    drop(alone);
    match opened {
        Ok(file) => {
            // The mode was asked for: the process's umask has no say.
            file.set_permissions(Permissions::from_mode(mode)).map_err(trouble)?;
            FileId::of(&file).map(Some).map_err(trouble)
        }
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {
            // A link to nothing, else the next round finds it.
            if FileId::at(path)?.is_some() {
                return Ok(None);
            }
            let what = format!("{} is a link that leads nowhere: give the path of a file, or of none yet", path.display());
            Err(Error::new(Kind::Invalid, what).because(cause))
        }
        Err(cause) => Err(trouble(cause)),
    }
}

/// Locks the file's directory against others who make a file there, until it is dropped. `None` if somebody keeps it locked.
fn lock_directory(path: &Path) -> Result<Option<File>> {
    let trouble = |cause: std::io::Error| {
        let what = format!("cannot lock the directory of {}: make it readable, or give another path", path.display());
        Error::new(Kind::Invalid, what).because(cause)
    };
    let directory = File::open(path.parent().unwrap_or(Path::new("/"))).map_err(trouble)?;
    for _ in 0..1000 {
        match rustix::fs::flock(&directory, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(directory)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(Duration::from_millis(1)),
            Err(cause) => return Err(trouble(cause.into())),
        }
    }
    Ok(None)
}

/// The mode of a directory whose files have this mode: who may read may enter.
pub(super) fn directory_mode(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

/// The filesystems of a network by their numbers, as `statfs(2)` lists them.
#[cfg(target_os = "linux")]
const NETWORK: [(u32, &str); 18] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x564c, "NCP"),
    (0x786f_4256, "a shared folder of VirtualBox"),
    (0xbacb_acbc, "a shared folder of VMware"),
    (0x7c7c_6673, "a shared folder of Parallels"),
];

/// SQLite's log works through memory that all its users share, which no network's filesystem has.
#[cfg(target_os = "linux")]
fn refuse_network(there: &Path, path: &Path) -> Result<()> {
    let Ok(stat) = rustix::fs::statfs(there) else { return Ok(()) };
    // The numbers have 32 bits, whatever the width and sign of the field.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    refuse_number(stat.f_type as u32, path)
}

#[cfg(target_os = "linux")]
fn refuse_number(magic: u32, path: &Path) -> Result<()> {
    match NETWORK.iter().find(|(number, _)| *number == magic) {
        Some((_, name)) => Err(Error::new(
            Kind::Incompatible,
            format!("{} lies on {name}, where SQLite cannot lock: give a path on a local disk, or a server's URL", path.display()),
        )),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_there: &Path, _path: &Path) -> Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_networks_filesystem_is_refused_and_a_local_one_is_not() {
        let path = Path::new("/srv/leases.db");
        for (number, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x6573_5546, "FUSE"), (0x0102_1997, "9p")] {
            let error = refuse_number(number, path).unwrap_err();
            assert!(error.is_incompatible(), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("/srv/leases.db") && text.contains("give a path on a local disk"), "{text}");
        }
        // ext, xfs, btrfs, zfs, tmpfs, overlay.
        for number in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630] {
            refuse_number(number, path).unwrap();
        }
    }
}
