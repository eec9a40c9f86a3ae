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
use std::time::Duration;

use super::schema;
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
    pub(super) fn at(path: &Path) -> Option<FileId> {
        let stat = rustix::fs::stat(path).ok()?;
        // The width of these differs between systems.
        #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, trivial_numeric_casts)]
        Some(FileId { dev: stat.st_dev as u64, ino: stat.st_ino as u64 })
    }

    fn of(file: &File) -> std::io::Result<FileId> {
        let metadata = file.metadata()?;
        Ok(FileId { dev: metadata.dev(), ino: metadata.ino() })
    }
}

/// How many connections of this process each file has.
static OPEN: Mutex<BTreeMap<FileId, usize>> = Mutex::new(BTreeMap::new());

/// The right to open a connection to a file, which has been found fit. Keep it until after the connection is closed.
#[derive(Debug)]
pub(super) struct Claim {
    id: FileId,
    /// The file's own path, without links.
    pub(super) path: PathBuf,
}

impl Claim {
    /// Makes the file if there is none, else checks that it is a store of ours; nothing is written to one that is not.
    ///
    /// # Errors
    /// `Incompatible` for a file of anybody else, of another major version, or on a network's filesystem; `Invalid` where the path cannot be
    /// used; `Storage` where the system fails.
    pub(super) fn of(path: &Path, mode: u32) -> Result<Claim> {
        // Held throughout, so that no thread of this process connects between the look and the claim.
        let mut open = lock(&OPEN);
        // A file that comes or goes between two calls is looked at again; a few rounds are enough unless somebody plays.
        for _ in 0..16 {
            let id = match FileId::at(path) {
                Some(id) if open.contains_key(&id) => id,
                Some(id) => {
                    refuse_network(path, path)?;
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
            *open.entry(id).or_default() += 1;
            return Ok(Claim { id, path: real });
        }
        Err(Error::new(Kind::Unreachable, format!("{} is replaced again and again by another program", path.display())))
    }

    /// Whether the path still leads to this file.
    pub(super) fn stands(&self, path: &Path) -> bool {
        FileId::at(path) == Some(self.id)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        if let Some(count) = open.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.id);
            }
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
    let alone = lock_directory(path);
    if alone.is_some() && fs::symlink_metadata(path).is_err() {
        // Left by a file that was removed. Whoever still has that open shares memory with everybody who opens these, so they must not live on.
        for end in ["-wal", "-shm", "-journal"] {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            let _ = fs::remove_file(name);
        }
    }
    match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => {
            // The mode was asked for: the process's umask has no say.
            file.set_permissions(Permissions::from_mode(mode)).map_err(trouble)?;
            FileId::of(&file).map(Some).map_err(trouble)
        }
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {
            // A link to nothing, else the next round finds it.
            if FileId::at(path).is_none() { Err(trouble(cause)) } else { Ok(None) }
        }
        Err(cause) => Err(trouble(cause)),
    }
}

/// Locks the file's directory against others who make a file there, until it is dropped. `None` if somebody keeps it locked.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = File::open(path.parent()?).ok()?;
    for _ in 0..100 {
        match rustix::fs::flock(&directory, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// The mode of a directory whose files have this mode: who may read may enter.
pub(super) fn directory_mode(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

/// SQLite's log works through memory that all its users share, which no network's filesystem has.
#[cfg(target_os = "linux")]
fn refuse_network(there: &Path, path: &Path) -> Result<()> {
    /// Their numbers, as `statfs(2)` lists them.
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
    let Ok(stat) = rustix::fs::statfs(there) else { return Ok(()) };
    // The numbers have 32 bits, whatever the width and sign of the field.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = stat.f_type as u32;
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
