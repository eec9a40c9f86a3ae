//! What becomes of leases when the processes of a SQLite file end, are forked, or find another file in its place: with real processes.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used)]

mod common {
    pub(crate) mod elsewhere;
}

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::elsewhere::{again, inside};
use heirlock::{Locks, LostReason, Released};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::ForkResult;
use pollster::block_on;

const TTL: Duration = Duration::from_secs(2);

fn connect(file: &Path) -> heirlock::Result<Locks> {
    block_on(Locks::connect(&format!("sqlite:{}", file.display())))
}

/// Another process of this test, until it is killed. It has said its first word.
struct Other {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Other {
    fn start(test: &str, file: &Path) -> Other {
        let mut child = again(&[], test, file).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut other = Other { child, lines };
        other.wait_for("it holds");
        other
    }

    fn wait_for(&mut self, word: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line.contains(word));
        assert!(found, "it ended without saying {word:?}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _gone: std::io::Result<()> = self.child.kill();
        let _reaped: std::io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

/// What an [`Other`] does: holds, and says why it lost it.
fn hold(file: &Path) {
    let lease = connect(file).unwrap().lock("held").ttl(TTL).blocking().unwrap();
    println!("it holds {}", lease.fence());
    println!("lost: {:?}", block_on(lease.lost()));
}

#[test]
fn case_s13_the_store_restarts() {
    let test = "case_s13_the_store_restarts";
    if let Some(file) = inside() {
        return hold(&file);
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("leases.db");
    let holder = Other::start(test, &file);
    let of = |locks: &Locks| block_on(locks.inspect("held")).unwrap();
    let fence = of(&connect(&file).unwrap()).last_fence;
    // All others come and go, for longer than a ttl: it goes on, under the same fence.
    let since = Instant::now();
    while since.elapsed() < TTL * 3 / 2 {
        let locks = connect(&file).unwrap();
        assert!(block_on(locks.try_lock("held")).unwrap_err().is_busy());
        let holders = of(&locks).holders;
        assert!(holders.len() == 1 && holders[0].fence == fence && holders[0].expires_in_ms > 0, "{holders:?}");
        block_on(locks.close());
    }
    // Now nobody has it open. What was kept is kept: the key stays its until the ttl is over.
    drop(holder);
    let locks = connect(&file).unwrap();
    assert_eq!(of(&locks).holders[0].fence, fence);
    let since = Instant::now();
    let next = locks.lock("held").ttl(TTL).blocking().unwrap();
    assert!(since.elapsed() <= TTL + Duration::from_secs(1), "{:?}", since.elapsed());
    assert!(next.fence() > fence);
    // A wipe, by an operator who means it: what is lost is told, and fences are larger than before.
    for end in ["", "-wal", "-shm"] {
        fs::remove_file(place.path().join(format!("leases.db{end}"))).unwrap();
    }
    assert_eq!(block_on(next.lost()), LostReason::Forgotten);
    let after = locks.lock("held").ttl(TTL).blocking().unwrap();
    assert!(after.fence() > next.fence());
    assert_eq!(next.release_blocking().unwrap(), Released::AlreadyLost);
    assert_eq!(after.release_blocking().unwrap(), Released::InTime);
}

#[test]
fn case_s25_replaced_under_a_holder_in_another_process() {
    let test = "case_s25_replaced_under_a_holder_in_another_process";
    if let Some(file) = inside() {
        return hold(&file);
    }
    let place = tempfile::tempdir().unwrap();
    let (file, backup) = (place.path().join("leases.db"), place.path().join("backup"));
    block_on(connect(&file).unwrap().close());
    fs::copy(&file, &backup).unwrap();
    let mut holder = Other::start(test, &file);
    fs::rename(&backup, &file).unwrap();
    // Its log is still that of the old file, which the holder has not let go yet: who would read it into the new one is refused, not served.
    match connect(&file) {
        Err(error) => assert!(error.is_unreachable() && error.to_string().contains("end them first"), "{error}"),
        // It has been faster.
        Ok(locks) => assert!(block_on(locks.list("")).unwrap().is_empty()),
    }
    holder.wait_for("lost: Forgotten");
    let by = Instant::now() + TTL;
    let locks = loop {
        match connect(&file) {
            Ok(locks) => break locks,
            Err(error) => assert!(error.is_unreachable() && Instant::now() < by, "{error}"),
        }
    };
    assert!(block_on(locks.list("")).unwrap().is_empty(), "nothing of the old file is in the new one");
    assert_eq!(locks.lock("held").ttl(TTL).blocking().unwrap().release_blocking().unwrap(), Released::InTime);
    block_on(locks.close());
    let sql = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(sql.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok");
}

/// A child that has its parent's session, and whatever else was in its memory.
#[test]
fn a_forked_child_neither_beats_nor_releases() {
    let test = "a_forked_child_neither_beats_nor_releases";
    if let Some(file) = inside() {
        // A third process: it cannot have what the parent holds.
        let locks = connect(&file).unwrap();
        assert!(block_on(locks.try_lock("held")).unwrap_err().is_busy());
        println!("it holds nothing");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("leases.db");
    let locks = connect(&file).unwrap();
    let lease = locks.lock("held").ttl(TTL).blocking().unwrap();
    // SAFETY: the child calls what may not allocate or lock after a fork in a process of many threads only as users would: that this neither hangs
    // nor harms is what is tested. The allocator's locks are taken over by the C library.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let right = !lease.is_valid()
                && lease.lost_reason() == Some(LostReason::Forked)
                && block_on(lease.lost()) == LostReason::Forked
                && is_refused(locks.lock("other").blocking())
                && is_refused(block_on(locks.inspect("held")))
                && is_refused(block_on(locks.list("")))
                // It would have locks of SQLite's that only the parent has.
                && connect(&file).is_err_and(|error| error.is_invalid() && error.to_string().contains("forked"))
                && lease.release_blocking().is_ok_and(|released| released == Released::AlreadyLost);
            block_on(locks.clone().close());
            drop(locks);
            std::process::exit(if right { 0 } else { 3 });
        }
    };
    let by = Instant::now() + Duration::from_secs(30);
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive if Instant::now() < by => std::thread::sleep(Duration::from_millis(5)),
            WaitStatus::StillAlive => {
                nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
                panic!("the child hangs");
            }
            status => {
                assert_eq!(status, WaitStatus::Exited(child, 0), "3: something was not as a child finds it");
                break;
            }
        }
    }
    // Nothing has changed for the parent, and it goes on renewing.
    assert!(lease.is_valid());
    drop(Other::start(test, &file));
    let since = Instant::now();
    while since.elapsed() < TTL * 3 / 2 {
        assert!(lease.is_valid());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
}

fn is_refused<T>(answer: heirlock::Result<T>) -> bool {
    answer.is_err_and(|error| error.is_closed() && error.to_string().contains("forked"))
}
