//! The statements for SQLite, on real files.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use heirlock::lease::fence_sql::SQLITE;
use heirlock::lease::{Fences, Key, Sequencer};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use crate::naive::{KEY, Shown, exclusive, refuses, shared, slot};
use crate::random::{Random, seed};

fn open(path: &std::path::Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.pragma_update(None, "journal_mode", "wal").unwrap();
    db.pragma_update(None, "synchronous", "off").unwrap();
    db.execute_batch(SQLITE.create).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS written (at INTEGER PRIMARY KEY, by TEXT NOT NULL)").unwrap();
    db
}

fn is_good(db: &Connection, statement: &str, by: &Sequencer) -> rusqlite::Result<bool> {
    let p = by.parameters();
    let row = db.query_row(statement, params![p.name, p.slots, p.fence, p.slot, p.holder], |_| Ok(()));
    Ok(row.optional()?.is_some())
}

fn advance(db: &mut Connection, by: &Sequencer) -> rusqlite::Result<bool> {
    let p = by.parameters();
    let step = db.transaction()?;
    step.query_row(SQLITE.open, params![p.name, p.slots, p.fence], |_| Ok(())).optional()?;
    let good = is_good(&step, SQLITE.advance, by)?;
    step.commit()?;
    Ok(good)
}

/// Writes that it was here if it is good.
fn write(db: &mut Connection, by: &Sequencer) -> rusqlite::Result<bool> {
    let step = db.transaction()?;
    if !is_good(&step, SQLITE.check_write, by)? {
        return Ok(false);
    }
    step.execute("INSERT INTO written (by) VALUES (?1)", [by.to_string()])?;
    step.commit()?;
    Ok(true)
}

fn written(db: &Connection) -> Vec<Sequencer> {
    let mut rows = db.prepare("SELECT by FROM written ORDER BY at").unwrap();
    rows.query_map([], |row| row.get::<_, String>(0)).unwrap().map(|by| by.unwrap().parse().unwrap()).collect()
}

#[test]
fn case_s27_late_transactions_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = open(&directory.path().join("resource.db"));
    let (old, new) = (exclusive(5, 1), exclusive(6, 2));
    assert!(!write(&mut db, &old).unwrap(), "it has not advanced");
    assert!(advance(&mut db, &old).unwrap() && write(&mut db, &old).unwrap());
    assert!(advance(&mut db, &new).unwrap());
    assert!(!write(&mut db, &old).unwrap() && !advance(&mut db, &old).unwrap());
    assert!(!advance(&mut db, &exclusive(6, 3)).unwrap(), "an equal fence of another holder");
    assert!(advance(&mut db, &new).unwrap() && write(&mut db, &new).unwrap());

    let (one, two) = (slot(7, 0, 2, 3), slot(8, 1, 2, 4));
    assert!(advance(&mut db, &one).unwrap() && advance(&mut db, &two).unwrap());
    assert!(write(&mut db, &two).unwrap() && write(&mut db, &one).unwrap(), "slots stand beside each other");
    assert_eq!(written(&db), [old, new, two, one]);

    assert!(advance(&mut db, &shared(9)).unwrap());
    assert!(is_good(&db, SQLITE.check_read, &shared(9)).unwrap() && !write(&mut db, &shared(9)).unwrap());
}

#[test]
fn an_advance_waits_for_a_transaction_that_was_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resource.db");
    let (mut db, mut other) = (open(&path), open(&path));
    // Refused at once where it would wait, so that the test need not.
    other.busy_timeout(Duration::ZERO).unwrap();
    let (old, new) = (exclusive(5, 1), exclusive(6, 2));
    advance(&mut db, &old).unwrap();

    let step = db.transaction().unwrap();
    assert!(is_good(&step, SQLITE.check_write, &old).unwrap());
    let error = advance(&mut other, &new).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    step.execute("INSERT INTO written (by) VALUES (?1)", [old.to_string()]).unwrap();
    step.commit().unwrap();

    assert!(advance(&mut other, &new).unwrap());
    assert_eq!(written(&other), [old], "what was checked before it, it sees");
}

#[test]
fn reads_of_one_transaction_are_of_the_moment_of_its_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resource.db");
    let (mut db, mut other) = (open(&path), open(&path));
    advance(&mut db, &shared(5)).unwrap();
    let step = db.transaction().unwrap();
    assert!(is_good(&step, SQLITE.check_read, &shared(5)).unwrap());
    let new = exclusive(6, 2);
    assert!(advance(&mut other, &new).unwrap() && write(&mut other, &new).unwrap());
    assert!(written(&step).is_empty());
    drop(step);
    assert!(!is_good(&db, SQLITE.check_read, &shared(5)).unwrap());
}

#[test]
fn random_holders_are_judged_as_by_the_rule() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut counts = [0; 2];
    for round in 0..40 {
        let mut db = Connection::open_in_memory().unwrap();
        db.execute_batch(SQLITE.create).unwrap();
        let (mut rule, mut shown) = (Fences::new(Key::new(KEY).unwrap()), Shown::new(seed ^ round));
        for step in 0..200 {
            let by = shown.next();
            let (is, must) = if shown.chance(50) {
                (advance(&mut db, &by).unwrap(), rule.advance(&by).is_ok())
            } else {
                let must = rule.check(&by).is_ok();
                assert_eq!(
                    is_good(&db, SQLITE.check_write, &by).unwrap(),
                    must && by.may_write(),
                    "seed {seed}, round {round}, step {step}"
                );
                (is_good(&db, SQLITE.check_read, &by).unwrap(), must)
            };
            assert_eq!(is, must, "seed {seed}, round {round}, step {step}: {by}, where {rule:?}");
            counts[usize::from(must)] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}: a test of little");
}

/// As `random_threads_never_write_late` of values in memory, by four connections.
#[test]
fn random_connections_never_write_late() {
    const CONNECTIONS: u64 = 4;
    const STEPS: u32 = 250;
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resource.db");
    open(&path);
    let granted = AtomicU64::new(1);
    let run = |connection| {
        let (mut random, mut db, mut told) = (Random::new(seed, connection), open(&path), 0);
        let mut mine = Vec::new();
        for _ in 0..STEPS {
            if mine.len() < 3 {
                let fence = granted.fetch_add(1, Ordering::Relaxed);
                mine.push(if (fence / 20).is_multiple_of(2) {
                    exclusive(fence, fence)
                } else {
                    slot(fence, u32::from(fence.is_multiple_of(3)), 2, fence)
                });
            }
            let by: Sequencer = mine.swap_remove(random.index(mine.len()));
            if !advance(&mut db, &by).unwrap() {
                continue;
            }
            let before = written(&db).len();
            // The lock to write first: what is read before a check is not of the same moment.
            let step = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            if is_good(&step, SQLITE.check_write, &by).unwrap() {
                let passed = written(&step)[before..].iter().find(|other| refuses(&by, other)).cloned();
                assert!(passed.is_none(), "seed {seed}: {passed:?} wrote after {by} had advanced");
                step.execute("INSERT INTO written (by) VALUES (?1)", [by.to_string()]).unwrap();
                step.commit().unwrap();
                told += 1;
            } else {
                drop(step);
            }
            if random.chance(50) {
                mine.push(by);
            }
        }
        told
    };
    let told: usize = thread::scope(|threads| {
        let run = &run;
        let all: Vec<_> = (0..CONNECTIONS).map(|connection| threads.spawn(move || run(connection))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let written = written(&open(&path));
    println!("{} written", written.len());
    assert_eq!(written.len(), told, "what was told to be written is there");
    assert!(told > 50 && told < 1_000, "{told} of 1000: a test of little");
    for (at, by) in written.iter().enumerate() {
        let passed = written[..at].iter().find(|before| refuses(before, by));
        assert!(passed.is_none(), "seed {seed}: {by} wrote behind {passed:?}");
    }
}
