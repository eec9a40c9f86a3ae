//! What was left behind: locks of processes that are gone, and files that nobody uses.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use heirlock::lease::{HolderView, KeyView};
use heirlock::observe::span;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Finding;
use super::files::beside;

const TOPIC: &str = "leftovers";
/// The log of a store that is in use is written back long before.
const MOST_LOG: u64 = 64 << 20;
/// So many pipes of dead sessions are removed in one go by whoever comes to it.
const MOST_DEAD: usize = 256;
/// How many locks are named one by one.
const MOST_NAMED: usize = 20;

/// Holders of this machine that are no more.
pub(super) fn holders(keys: &[KeyView]) -> Vec<Finding> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let holders = keys.iter().flat_map(|key| key.holders.iter().map(move |holder| (key, holder)));
    let dead: Vec<_> = holders.filter(|(_, holder)| holder.owner.host == host && is_gone(holder.owner.pid)).collect();
    let mut findings: Vec<Finding> = dead.iter().take(MOST_NAMED).map(|(key, holder)| dead_holder(key, holder)).collect();
    if dead.len() > MOST_NAMED {
        findings.push(Finding::warning(TOPIC, format!("and {} more like these: heirlock ls", dead.len() - MOST_NAMED)));
    }
    if findings.is_empty() {
        let held = keys.iter().map(|key| key.holders.len()).sum::<usize>();
        findings.push(Finding::ok(TOPIC, format!("{held} held, none by a process that is gone")));
    }
    findings
}

fn dead_holder(key: &KeyView, holder: &HolderView) -> Finding {
    let text = format!(
        "{0} is held by process {1}, which is not seen here: it is free in {2}; if you know that its work is over, heirlock evict --fence {3} --force {0}",
        key.key,
        holder.owner.pid,
        span(holder.expires_in_ms),
        holder.fence
    );
    Finding::warning(TOPIC, text)
}

/// Whether there is no such process in this namespace.
fn is_gone(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
}

/// What lies beside the store's file.
pub(super) fn files(path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let log = beside(&real, "-wal");
    if let Ok(metadata) = fs::metadata(&log)
        && metadata.len() > MOST_LOG
    {
        let text = format!(
            "{0} has {1} MB, for somebody keeps it from being written back: see with fuser {0} who has it open for long, a sqlite3 shell perhaps",
            log.display(),
            metadata.len() >> 20
        );
        findings.push(Finding::warning(TOPIC, text));
    }
    let directory = beside(&real, ".notify");
    let Ok(entries) = fs::read_dir(&directory) else { return findings };
    let (mut dead, mut foreign) = (0, Vec::new());
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_fifo()) {
            foreign.push(entry.file_name());
            continue;
        }
        // Opened for writing and not waited for, a pipe tells whether it is read; nothing is written.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if matches!(rustix::fs::open(entry.path(), flags, Mode::empty()), Err(Errno::NXIO)) {
            dead += 1;
        }
    }
    if dead > MOST_DEAD {
        let text = format!(
            "{dead} pipes of sessions that have died are in {}: whoever holds a lock for a minute removes them",
            directory.display()
        );
        findings.push(Finding::note(TOPIC, text));
    }
    if let Some(first) = foreign.first() {
        let text =
            format!("{} files in {} are none of heirlock's, as {}: remove them", foreign.len(), directory.display(), first.display());
        findings.push(Finding::warning(TOPIC, text));
    }
    findings
}
