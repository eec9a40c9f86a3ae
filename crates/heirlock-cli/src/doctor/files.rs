//! The store's file, its directory, and what they lie on: who else may change them, and whether we may.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs, statvfs};

use super::Finding;

const TOPIC: &str = "permissions";
/// The log and its index, and room to write them back.
const ROOM: u64 = 16 << 20;
/// Local file systems on which SQLite locks, by their numbers as `statfs(2)` lists them. The library refuses those of a network.
const LOCAL: [(u32, &str); 9] = [
    (0xef53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x8584_58f6, "ramfs"),
];

/// Looks at the file at this path, or at where it would be made; `mode` is what its URL wants of a new one.
pub(super) fn examine(path: &Path, mode: Option<u32>) -> Vec<Finding> {
    // What counts is where links lead.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = real.parent().unwrap_or(Path::new("/"));
    let Some(there) = directory.ancestors().find(|ancestor| ancestor.exists()) else { return Vec::new() };
    let mut findings = vec![file_system(there)];
    findings.extend(room(there));
    let before = findings.len();
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        findings.push(Finding::warning(
            TOPIC,
            format!(
                "{0} cannot be written by this user, who then cannot make the store or its log there: chmod or chown {0}",
                there.display()
            ),
        ));
    }
    findings.extend(there.ancestors().filter_map(open_to_all));
    if let Ok(metadata) = fs::metadata(&real) {
        findings.extend(file(&real, &metadata, mode));
        findings.extend(notify(&beside(&real, ".notify"), &metadata));
        for end in ["-wal", "-shm"] {
            let file = beside(&real, end);
            if file.exists() && access(&file, Access::READ_OK | Access::WRITE_OK).is_err() {
                let why = "cannot be written by this user, so no lock can be had";
                findings
                    .push(Finding::warning(TOPIC, format!("{} {why}: give it the owner and mode of {}", file.display(), real.display())));
            }
        }
        if findings.len() == before {
            let text = format!(
                "{} (mode {:04o}, uid {}) is changed only by those it is meant for",
                real.display(),
                bits(&metadata),
                metadata.uid()
            );
            findings.push(Finding::ok(TOPIC, text));
        }
    }
    findings
}

/// The path with something after its name.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn bits(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

fn file_system(there: &Path) -> Finding {
    const TOPIC: &str = "filesystem";
    let Ok(stat) = statfs(there) else {
        return Finding::warning(
            TOPIC,
            format!("the file system of {} does not tell what it is: give a path on a local disk", there.display()),
        );
    };
    // The numbers have 32 bits, whatever the width and sign of the field.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = stat.f_type as u32;
    match LOCAL.iter().find(|(number, _)| *number == magic) {
        Some((_, "overlay")) => Finding::note(
            TOPIC,
            format!(
                "{} is a container's own layer (overlay): other containers have other locks unless they mount one volume",
                there.display()
            ),
        ),
        Some((_, name)) => Finding::ok(TOPIC, format!("{} is on {name}, a local one", there.display())),
        None => Finding::warning(
            TOPIC,
            format!(
                "{} is on one that heirlock does not know ({magic:#x}): if it is a network's, give a path on a local disk",
                there.display()
            ),
        ),
    }
}

fn room(there: &Path) -> Option<Finding> {
    let stat = statvfs(there).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Some that are made of memory know no limit, and tell of no blocks at all.
    (stat.f_blocks > 0 && free < ROOM).then(|| {
        let text =
            format!("{} MB are free on the disk of {}: make room, for locks that cannot be renewed are lost", free >> 20, there.display());
        Finding::warning("filesystem", text)
    })
}

/// A directory in which anybody may put another file in the place of ours.
fn open_to_all(directory: &Path) -> Option<Finding> {
    let mode = bits(&fs::metadata(directory).ok()?);
    (mode & 0o002 != 0 && mode & 0o1000 == 0).then(|| {
        let text = format!(
            "anybody may replace what is in {0} (mode {mode:04o}), the locks too: chmod o-w {0}, or chmod +t {0}",
            directory.display()
        );
        Finding::warning(TOPIC, text)
    })
}

fn file(path: &Path, metadata: &Metadata, wanted: Option<u32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = bits(metadata);
    if mode & 0o002 != 0 {
        findings
            .push(Finding::warning(TOPIC, format!("anybody may change the locks in {0} (mode {mode:04o}): chmod o-w {0}", path.display())));
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted != mode & 0o777) {
        let text =
            format!("{0} has mode {mode:04o}, and the URL's mode={wanted:04o} is for new files: chmod {wanted:04o} {0}", path.display());
        findings.push(Finding::warning(TOPIC, text));
    }
    if access(path, Access::READ_OK | Access::WRITE_OK).is_err() {
        let text =
            format!("{0} cannot be read and written by this user: chmod it, or run as its owner (uid {1})", path.display(), metadata.uid());
        findings.push(Finding::warning(TOPIC, text));
    }
    findings
}

/// The directory of the named pipes, through which waiters are woken.
fn notify(directory: &Path, file: &Metadata) -> Option<Finding> {
    let warn = |what: &str, cure: &str| {
        let text = format!("{} {what}, so waiters are not woken but look from time to time: {cure}", directory.display());
        Some(Finding::warning("notify", text))
    };
    let Ok(metadata) = fs::metadata(directory) else { return None };
    if !metadata.is_dir() {
        return warn("is not a directory", "remove it");
    }
    if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return warn("cannot be written by this user", "give it the owner of the store, and the mode of its directory");
    }
    // Who may change the file may also wake its waiters, and nobody else.
    let excess = bits(&metadata) & !bits(file) & 0o022;
    (excess != 0).then(|| {
        let text = format!(
            "{0} may be written by more users (mode {1:04o}) than the store, who can then take away its waiters' hints: chmod {2} {0}",
            directory.display(),
            bits(&metadata),
            if excess & 0o002 != 0 { "go-w" } else { "g-w" }
        );
        Finding::warning("notify", text)
    })
}
