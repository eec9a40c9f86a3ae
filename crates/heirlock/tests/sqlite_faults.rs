//! What the SQLite store makes of a full disk, of time namespaces and of wall clocks that jump: with the real ones, so most of it needs root.
//!
//! A test that needs a place of its own (a small disk, another time) runs itself once more within it, as a process of its own.
#![cfg(all(feature = "sqlite", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used)]

mod common {
    pub(crate) mod elsewhere;
    pub(crate) mod wall_clock;
}

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::elsewhere::{again, assert_passes, can_unshare, fill, inside, not_run};
use common::wall_clock::WallClock;
use heirlock::{Lease, Locks, LostReason, Released};

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

async fn connect(file: &Path) -> Locks {
    Locks::connect(&format!("sqlite:{}", file.display())).await.unwrap()
}

/// A directory where the tests are built.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Waits until the store is in trouble that is told so.
async fn trouble(locks: &Locks, word: &str) {
    let by = Instant::now() + ms(10_000);
    loop {
        match locks.trouble() {
            Some(trouble) if trouble.contains(word) => return,
            trouble => assert!(Instant::now() < by, "no trouble with {word:?}, but {trouble:?}"),
        }
        tokio::time::sleep(ms(5)).await;
    }
}

/// Waits until all is said that could not be, and the lease renewed.
async fn mended(session: &Locks, held: &Lease, least: Duration) {
    let by = Instant::now() + ms(10_000);
    while held.remaining() < least || session.trouble().is_some() {
        assert!(Instant::now() < by, "{:?} left, {:?}", held.remaining(), session.trouble());
        tokio::time::sleep(ms(5)).await;
    }
}

/// In the process that this test starts of itself, its small disk, which is seen by that process alone and gone with it; else nothing is left to do.
fn small_disk(test: &str) -> Option<PathBuf> {
    let disk = inside();
    if disk.is_none() && can_unshare(test, "--mount") {
        let place = directory();
        let mount = format!("mount -t tmpfs -o size=512k tmpfs '{}' && exec \"$0\" \"$@\"", place.path().display());
        assert_passes(again(&["unshare", "--mount", "sh", "-c", &mount], test, place.path()));
    }
    disk
}

/// A small disk does for ever: the log is written back before it has filled it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_does_not_fill_a_small_disk() {
    let Some(disk) = small_disk("the_log_does_not_fill_a_small_disk") else { return };
    let locks = connect(&disk.join("leases.db")).await;
    for cycle in 0..500 {
        let lease = locks.lock(format!("key {}", cycle % 3)).await.unwrap_or_else(|error| panic!("cycle {cycle}: {}", error.chain()));
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s23_a_full_disk() {
    let Some(disk) = small_disk("case_s23_a_full_disk") else { return };
    let file = disk.join("leases.db");
    let ttl = ms(3_000);
    let locks = connect(&file).await;
    let lease = locks.lock("kept").ttl(ttl).renew_every(ms(200)).await.unwrap();
    let fence = lease.fence();
    // For a moment: renewals fail, and are tried again, until there is room.
    let filler = fill(&disk);
    trouble(&locks, "is full: free some space").await;
    assert!(lease.is_valid());
    // Who asks now is told as plainly.
    let error = locks.lock("other").timeout(ms(500)).await.unwrap_err();
    assert!(error.is_storage() && error.chain().contains("is full: free some space"), "{}", error.chain());
    fs::remove_file(&filler).unwrap();
    mended(&locks, &lease, ms(2_500)).await;
    assert_eq!((lease.fence(), lease.lost_reason()), (fence, None));
    // For good: it is lost when its validity ends, not before and not much after.
    let filler = fill(&disk);
    trouble(&locks, "is full: free some space").await;
    let (left, since) = (lease.remaining(), Instant::now());
    assert_eq!(lease.lost().await, LostReason::Expired);
    let lasted = since.elapsed();
    assert!(lasted + ms(250) >= left && lasted <= left + ms(500), "lost after {lasted:?}, {left:?} were left");
    fs::remove_file(&filler).unwrap();
    // Nothing is damaged, and the next has it with a larger fence.
    let next = connect(&file).await.lock("kept").ttl(ttl).await.unwrap();
    assert!(next.fence() > fence);
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost);
    assert_eq!(next.release().await.unwrap(), Released::InTime);
    let sql = rusqlite::Connection::open(&file).unwrap();
    assert_eq!(sql.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok");
}

/// A disk that is made read-only while a lease is held, and one that was so from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_cannot_be_written() {
    let test = "a_disk_that_cannot_be_written";
    let Some(disk) = inside() else {
        if can_unshare(test, "--mount") {
            let place = directory();
            let mount = format!("mount -t tmpfs tmpfs '{}' && exec \"$0\" \"$@\"", place.path().display());
            assert_passes(again(&["unshare", "--mount", "sh", "-c", &mount], test, place.path()));
        }
        return;
    };
    let remount = |how: &str| {
        let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&disk).status().unwrap();
        assert!(status.success());
    };
    let file = disk.join("leases.db");
    remount("ro");
    let error = Locks::connect(&format!("sqlite:{}", file.display())).await.unwrap_err();
    assert!(error.to_string().contains("leases.db") && !error.is_unreachable(), "{error:?}");
    remount("rw");
    // Writable again, it serves; and what is read is not kept from whoever only looks.
    let locks = connect(&file).await;
    let lease = locks.lock("kept").ttl(ms(3_000)).await.unwrap();
    assert_eq!(locks.inspect("kept").await.unwrap().holders.len(), 1);
    assert_eq!(lease.release().await.unwrap(), Released::InTime);
}

/// A process that stands still in the middle of a transaction: nobody else can write. Leases are lost in time, who waits is told why, and with the
/// process gone all goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_stands_still() {
    let test = "a_writer_that_stands_still";
    if let Some(file) = inside() {
        let writer = rusqlite::Connection::open(file).unwrap();
        writer.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET swept_ms = swept_ms").unwrap();
        println!("it holds the file");
        loop {
            std::thread::park();
        }
    }
    let place = directory();
    let file = place.path().join("leases.db");
    let locks = connect(&file).await;
    let lease = locks.lock("kept").ttl(TTL).await.unwrap();
    let mut writer = Holder::start(&[], test, &file, &[]);
    let (left, since) = (lease.remaining(), Instant::now());
    assert_eq!(lease.lost().await, LostReason::Expired);
    let lasted = since.elapsed();
    assert!(lasted <= left + ms(500), "lost after {lasted:?}, {left:?} were left");
    let error = locks.lock("other").timeout(ms(1_500)).await.unwrap_err();
    assert!(error.is_unreachable() || error.is_timeout(), "{error:?}");
    writer.kill();
    let next = locks.lock("kept").ttl(TTL).timeout(TTL * 2).await.unwrap();
    assert!(next.fence() > lease.fence());
    assert_eq!(next.release().await.unwrap(), Released::InTime);
}

/// A process that holds a lease in some other time, until it is killed.
struct Holder(Child);

impl Holder {
    fn start(wrapper: &[&str], test: &str, file: &Path, environment: &[(&str, &OsStr)]) -> Holder {
        let mut child = again(wrapper, test, file).envs(environment.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It says so when it holds.
        let holds = lines.by_ref().map_while(Result::ok).any(|line| {
            told += &line;
            line.contains("it holds")
        });
        assert!(holds, "{told}");
        Holder(child)
    }

    /// With all that it started: of unshare, too.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone: std::io::Result<()> = self.0.kill();
    }
}

const TTL: Duration = ms(2_000);

/// What a [`Holder`] does.
async fn hold(file: &Path) {
    let locks = connect(file).await;
    let lease = locks.lock("held").ttl(TTL).await.unwrap();
    println!("it holds");
    while lease.lost_reason().is_none() {
        fs::write(file.with_extension("clock"), wall_clock().to_string()).unwrap();
        tokio::time::sleep(ms(10)).await;
    }
}

fn wall_clock() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until the holder's wall clock is that far ahead of ours, in seconds, give or take a minute.
async fn holders_clock(file: &Path, ahead: i64) {
    let by = Instant::now() + ms(10_000);
    loop {
        // Half of it, perhaps, or nothing yet.
        let told = fs::read_to_string(file.with_extension("clock")).unwrap_or_default().parse::<u64>().unwrap_or(0);
        if told.cast_signed().abs_diff(wall_clock().cast_signed() + ahead) < 60 {
            return;
        }
        assert!(Instant::now() < by, "the holder's clock says {told}, and is not {ahead} s ahead of {}", wall_clock());
        tokio::time::sleep(ms(10)).await;
    }
}

/// How long the holder has yet, as this process sees it.
async fn left(locks: &Locks) -> u64 {
    locks.inspect("held").await.unwrap().holders.first().map_or(0, |holder| holder.expires_in_ms)
}

/// The store as it is seen here agrees for so long with who holds in another time: it is renewed, never seen over, never seen longer than it may be.
async fn assert_agree(locks: &Locks, span: Duration) {
    let until = Instant::now() + span;
    while Instant::now() < until {
        let left = Duration::from_millis(left(locks).await);
        assert!(left <= TTL && !left.is_zero(), "{left:?} of {TTL:?} left");
        assert!(locks.try_lock("held").await.unwrap_err().is_busy());
        tokio::time::sleep(ms(20)).await;
    }
}

#[tokio::test]
async fn case_s25_time_namespaces_agree() {
    let test = "case_s25_time_namespaces_agree";
    if let Some(file) = inside() {
        return hold(&file).await;
    }
    if !can_unshare(test, "--time") {
        return;
    }
    // Later, and as if the machine had just started.
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let earlier = format!("-{}", uptime.split('.').next().unwrap().parse::<u64>().unwrap() - 1);
    for shift in ["864000", &earlier] {
        let place = directory();
        let file = place.path().join("leases.db");
        let locks = connect(&file).await;
        // `unshare` waits for its child; that is killed with it.
        let wrapper = ["unshare", "--time", "--boottime", shift, "--fork", "--kill-child"];
        let mut holder = Holder::start(&wrapper, test, &file, &[]);
        assert_agree(&locks, TTL * 2).await;
        // It dies: the next has it when the ttl is over, by the time here as by the time there.
        let fence = locks.inspect("held").await.unwrap().last_fence;
        holder.kill();
        let killed = Instant::now();
        let next = locks.lock("held").ttl(TTL).timeout(TTL * 3).await.unwrap();
        let after = killed.elapsed();
        assert!(after <= TTL + ms(1_000), "shifted by {shift} s: held after {after:?}");
        assert!(next.fence() > fence);
    }
}

/// The wall clock of the holder's process jumps an hour, there and back.
#[tokio::test]
async fn case_s15_the_clients_wall_clock_jumps() {
    let test = "case_s15_the_clients_wall_clock_jumps";
    if let Some(file) = inside() {
        return hold(&file).await;
    }
    let Some(clock) = WallClock::new() else {
        return not_run(test, "libfaketime (Debian: faketime)");
    };
    let place = directory();
    let file = place.path().join("leases.db");
    let locks = connect(&file).await;
    let environment = clock.environment();
    let environment: Vec<(&str, &OsStr)> = environment.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let mut holder = Holder::start(&["env"], test, &file, &environment);
    for (offset, ahead) in [("+1h", 3_600), ("-1h", -3_600), ("+0", 0)] {
        clock.set(offset);
        holders_clock(&file, ahead).await;
        assert_agree(&locks, TTL * 3 / 2).await;
    }
    clock.set("+1h");
    holders_clock(&file, 3_600).await;
    holder.kill();
    let killed = Instant::now();
    let next = locks.lock("held").ttl(TTL).timeout(TTL * 3).await.unwrap();
    let after = killed.elapsed();
    // Nothing early: it was renewed a third of the ttl before, at most, and as much again for a slow machine.
    assert!(after + TTL * 2 / 3 >= TTL && after <= TTL + ms(1_000), "held after {after:?}");
    drop(next);
}
