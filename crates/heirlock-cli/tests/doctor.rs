//! `heirlock doctor` and `heirlock where`, by spawning the real binary.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Place, stderr};
use rustix::process::Signal;
use serde_json::Value;

fn used() -> Place {
    let place = Place::new();
    assert_eq!(place.code(&["run", "a", "true"]), 0);
    place
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// The code, and the texts of this level.
fn findings(place: &Place, args: &[&str], level: &str) -> (Option<i32>, Vec<String>) {
    let args: Vec<&str> = ["doctor", "--json"].iter().chain(args).copied().collect();
    let output = place.output(&args);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let of_level = report["findings"].as_array().unwrap().iter().filter(|finding| finding["level"] == level);
    (output.status.code(), of_level.map(|finding| finding["text"].as_str().unwrap().to_owned()).collect())
}

/// The files in the folder, and who has ever used what.
fn traces(place: &Place) -> (Vec<std::path::PathBuf>, Vec<(String, i64, i64)>) {
    let files = fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    // SQLite's own come and go with whoever has the file open, this function too.
    let is_log = |path: &std::path::PathBuf| ["db-wal", "db-shm"].iter().any(|end| path.extension().is_some_and(|found| found == *end));
    let mut files: Vec<_> = files.filter(|path| !is_log(path)).collect();
    files.sort();
    let db = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    let mut query = db.prepare("SELECT name, last_fence, arrivals FROM key ORDER BY name").unwrap();
    let keys = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap().collect::<Result<_, _>>().unwrap();
    (files, keys)
}

#[test]
fn a_sound_store_is_0_and_stays_as_it_is() {
    let place = used();
    let before = traces(&place);
    let output = place.output(&["doctor"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{text}");
    assert_eq!(text.lines().next(), Some(place.store().as_str()));
    for topic in ["chosen", "permissions", "store", "latency", "clock", "leftovers"] {
        assert!(text.lines().any(|line| line.starts_with("ok ") && line.contains(topic)), "{topic}: {text}");
    }
    // Within a container it may be a note.
    assert!(text.lines().any(|line| line.contains(" filesystem ")), "{text}");
    let report: Value = serde_json::from_slice(&place.output(&["doctor", "--json"]).stdout).unwrap();
    let (median, worst) = (report["latency"]["median_ms"].as_f64().unwrap(), report["latency"]["worst_ms"].as_f64().unwrap());
    assert!(median > 0.0 && median <= worst && report["at"].is_u64() && report["store"] == place.store(), "{report}");
    assert_eq!(traces(&place), before);
    assert_eq!(place.output(&["ls"]).stdout, b"");
}

#[test]
fn where_nothing_is_yet_nothing_is_made() {
    let place = Place::new();
    let (code, notes) = findings(&place, &[], "note");
    assert!(code == Some(0) && notes.iter().any(|note| note.contains("nothing is there yet")), "{notes:?}");
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

#[test]
fn permissions_that_let_anybody_in_are_warned_of() {
    let place = used();
    let file = place.path("locks.db");
    mode(&file, 0o666);
    let (code, warnings) = findings(&place, &[], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains("chmod o-w"), "{warnings:?}");
    mode(&file, 0o600);
    mode(place.folder.path(), 0o777);
    let (code, warnings) = findings(&place, &[], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains("anybody may replace"), "{warnings:?}");
    mode(place.folder.path(), 0o1777);
    assert_eq!(findings(&place, &[], "warning"), (Some(0), Vec::new()));
    mode(&place.path("locks.db.notify"), 0o777);
    let (code, warnings) = findings(&place, &[], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains(".notify"), "{warnings:?}");
    mode(&place.path("locks.db.notify"), 0o700);
    let wanted = format!("{}?mode=0660", place.store());
    let (code, warnings) = findings(&place, &["--store", &wanted], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains("chmod 0660"), "{warnings:?}");
    assert_eq!(findings(&place, &[], "warning"), (Some(0), Vec::new()));
}

#[test]
fn fences_ahead_of_the_wall_clock_are_warned_of() {
    let place = used();
    let db = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    db.execute("UPDATE meta SET floor = floor + last + 7200000000 FROM (SELECT max(last_fence) AS last FROM key)", ()).unwrap();
    drop(db);
    let (code, warnings) = findings(&place, &[], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains("ahead of the wall clock"), "{warnings:?}");
}

#[test]
fn a_holder_that_is_gone_is_named_with_what_to_do() {
    let place = Place::new();
    // Both must go, or the guardian releases the lock.
    let mut command = place.heirlock(&["run", "nightly", "--", "sh", "-c", "echo held; exec sleep 600"]);
    let mut holder = common::Running::start(&mut command).wait_for_line("held");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.pid())).unwrap();
    let guardian: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    let children = fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children")).unwrap();
    let leader: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    let kill = |pid: i32, signal| rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    kill(guardian, Signal::STOP);
    kill(holder.pid(), Signal::KILL);
    holder.child.wait().unwrap();
    kill(guardian, Signal::KILL);
    kill(leader, Signal::KILL);
    let (code, warnings) = findings(&place, &[], "warning");
    let expected = [format!("process {}", holder.pid()), "heirlock evict --fence ".to_owned(), "nightly".to_owned()];
    assert!(code == Some(1) && warnings.len() == 1 && expected.iter().all(|words| warnings[0].contains(words)), "{warnings:?}");
    // What it says to do helps.
    let cure = warnings[0].split("heirlock evict ").nth(1).unwrap();
    let cure: Vec<&str> = ["evict"].into_iter().chain(cure.split(' ')).collect();
    assert_eq!(place.code(&cure), 0);
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 0);
}

#[test]
fn what_is_left_beside_the_store_is_told() {
    let place = used();
    fs::write(place.path("locks.db.notify").join("notes.txt"), "").unwrap();
    let (code, warnings) = findings(&place, &[], "warning");
    assert!(code == Some(1) && warnings.len() == 1 && warnings[0].contains("notes.txt"), "{warnings:?}");
}

#[test]
fn a_store_that_is_not_reached_is_125_with_one_line() {
    let place = Place::new();
    fs::write(place.path("locks.db"), "my diary\n").unwrap();
    let output = place.output(&["doctor"]);
    let text = stderr(&output);
    assert!(output.status.code() == Some(125) && text.lines().count() == 1 && text.contains("locks.db"), "{text}");
    assert!(String::from_utf8(output.stdout).unwrap().lines().any(|line| line.starts_with("error ")));
    assert_eq!(findings(&place, &[], "error").1.len(), 1);
    assert_eq!(fs::read(place.path("locks.db")).unwrap(), b"my diary\n");
}

#[test]
fn a_store_that_is_slow_for_the_ttl_is_warned_of() {
    let place = used();
    // Somebody writes all the time, for 150 ms each: half of what is waited for, at a median.
    let file = place.path("locks.db");
    let until = Instant::now() + Duration::from_secs(30);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let db = rusqlite::Connection::open(&file).unwrap();
            // Also where the test fails.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && Instant::now() < until {
                if db.execute_batch("BEGIN IMMEDIATE").is_ok() {
                    std::thread::sleep(Duration::from_millis(150));
                    db.execute_batch("COMMIT").unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        // All looks of one doctor may fall between two writes, or before the first.
        common::eventually("it is warned of", || {
            let (code, warnings) = findings(&place, &["--ttl", "3"], "warning");
            code == Some(1) && warnings.iter().any(|warning| warning.contains("give --ttl"))
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A store whose file another keeps for itself: refused with its address, in time, whatever is asked.
#[test]
fn case_c10_a_store_that_does_not_answer_is_125_in_time() {
    let place = used();
    let db = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    db.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; UPDATE meta SET swept_ms = swept_ms").unwrap();
    let limited = |args: &[&str], least: Duration, most: Duration| {
        let start = Instant::now();
        let output = place.output(args);
        let (took, text) = (start.elapsed(), stderr(&output));
        assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
        assert!(text.lines().count() == 1 && text.contains("locks.db"), "{args:?}: {text}");
        assert!(took >= least && took < most, "{args:?}: {took:?}");
    };
    limited(&["run", "-w", "0.5", "a", "true"], Duration::from_millis(450), Duration::from_secs(2));
    std::thread::scope(|threads| {
        for args in [&["ls"][..], &["show", "a"], &["evict", "a"], &["doctor"], &["run", "-n", "a", "true"]] {
            threads.spawn(move || limited(args, Duration::ZERO, Duration::from_secs(20)));
        }
    });
}

#[test]
fn where_says_which_store_and_why() {
    let place = Place::new();
    let text = |args: &[&str]| String::from_utf8(place.output(args).stdout).unwrap();
    let said = text(&["where"]);
    assert_eq!(said.lines().next(), Some(place.store().as_str()));
    assert!(said.contains("HEIRLOCK_STORE") && said.contains("nothing is there yet"), "{said}");
    assert_eq!(place.code(&["run", "a", "true"]), 0);
    assert_eq!(text(&["where"]).lines().count(), 2);
    let said = text(&["where", "--store", "sqlite:/srv/l.db?prefix=app/&mode=0660"]);
    assert!(said.starts_with("sqlite:/srv/l.db?prefix=app/&mode=0660\n--store"), "{said}");
    let json: Value = serde_json::from_str(&text(&["where", "--json"])).unwrap();
    assert_eq!(json, serde_json::json!({ "store": place.store(), "from": "environment", "exists": true }));
    let default = place.heirlock(&["where"]).env_remove("HEIRLOCK_STORE").env("XDG_STATE_HOME", place.folder.path()).output().unwrap();
    let said = String::from_utf8(default.stdout).unwrap();
    let expected = if rustix::process::geteuid().is_root() {
        "sqlite:/var/lib/heirlock/heirlock.db".into()
    } else {
        format!("sqlite:{}", place.path("heirlock/heirlock.db").display())
    };
    assert!(said.starts_with(&format!("{expected}\n")) && said.contains("default"), "{said}");
}
