//! What lies at the path, what time it is, and what may be forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::lease::{Reason, State, Was};

fn open(path: &Path) -> Result<SqliteStore> {
    SqliteStore::open(path)
}

#[test]
fn a_new_file_is_its_owners_alone_unless_said_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let (own, shared) = (directory.path().join("a/b/own.db"), directory.path().join("c/shared.db"));
    let _stores = (open(&own).unwrap(), SqliteStore::options().mode(0o660).open(&shared).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&own), mode(own.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&shared), 0o660);
    assert!(SqliteStore::options().mode(0o200).open(directory.path().join("d.db")).unwrap_err().is_invalid());
    assert!(SqliteStore::options().prefix("a\nb").open(directory.path().join("d.db")).unwrap_err().is_invalid());
}

#[test]
fn case_s24_a_foreign_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("text"), "not a database, and long enough to have what might be a header of one; ".repeat(9)).unwrap();
    fs::write(path("short"), "x").unwrap();
    let foreign = rusqlite::Connection::open(path("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 7").unwrap();
    drop(foreign);
    let nameless = rusqlite::Connection::open(path("nameless.db")).unwrap();
    nameless.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE key (x)").unwrap();
    drop(nameless);
    let before = everything(directory.path());
    for name in ["text", "short", "foreign.db", "nameless.db"] {
        let error = open(&path(name)).unwrap_err();
        assert!(error.is_incompatible() && !error.chain().contains('\n'), "{name}: {error:?}");
    }
    assert_eq!(everything(directory.path()), before);
    assert!(open(directory.path()).unwrap_err().is_invalid());
}

#[test]
fn case_s24_another_major_version_is_refused_and_another_minor_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let store = open(&path).unwrap();
    enter(&store, "nightly", request(1));
    drop(store);
    let set = |version: u32, more: &str| {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute_batch(&format!("PRAGMA user_version = {version}; {more}")).unwrap();
    };
    set((super::super::schema::MAJOR + 1) << 16 | 3, "");
    let before = everything(directory.path());
    let error = open(&path).unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("2.3"), "{error}");
    assert_eq!(everything(directory.path()), before);
    // Of a later minor, with more columns.
    set(
        super::super::schema::MAJOR << 16 | 9,
        "ALTER TABLE key ADD COLUMN colour TEXT DEFAULT 'red'; ALTER TABLE ticket ADD COLUMN taste INTEGER NOT NULL DEFAULT 3;",
    );
    let store = open(&path).unwrap();
    assert!(matches!(enter(&store, "nightly", request(2)), Answer::Queued { .. }));
    assert!(matches!(enter(&store, "hourly", request(3)), Answer::Held(_)));
}

#[test]
fn what_cannot_be_written_is_said_plainly() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    // Nobody, not even root, can make a file in these.
    for path in [directory.path().join("file/leases.db"), PathBuf::from("/proc/heirlock/leases.db")] {
        let error = open(&path).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains("leases.db"), "{error:?}");
    }
}

#[test]
fn a_path_that_leads_to_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (place, link, back) = (directory.path().join("place"), directory.path().join("link"), directory.path().join("back"));
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&back, &link).unwrap();
    std::os::unix::fs::symlink(&link, &back).unwrap();
    let before = everything(directory.path());
    for (path, says) in [(&place, "is not a file"), (&link, "link")] {
        let error = open(path).unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(says), "{}: {error:?}", path.display());
    }
    assert_eq!(everything(directory.path()), before);
}

#[test]
fn a_damaged_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    drop(open(&path).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.is_incompatible(), "{error:?}");
}

#[test]
fn another_boot_gives_everything_its_full_length_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let with = |clock: &Arc<SetClock>| SqliteStore::options().clock(clock.clone()).open(&path).unwrap();
    let before = SetClock::new("one");
    before.set(9_000_000, 1_000);
    let store = with(&before);
    let terms = Terms { hold_at_least: Some(50_000), ..Terms::new(30_000) };
    let first = fence(enter(&store, "nightly", Enter { terms, ..request(1) }));
    enter(&store, "nightly", request(2));
    enter(&store, "nightly", request(4));
    enter(&store, "rested", Enter { terms, ..request(3) });
    pollster::block_on(store.leave(&key("rested"), Leave { token: token(3), settled: false })).unwrap();
    drop(store);

    let after = SetClock::new("two");
    after.set(700, 500);
    let store = with(&after);
    let book = store.book(&key("nightly")).unwrap();
    let dues: Vec<_> = book.tickets().map(|ticket| (ticket.token, ticket.state, ticket.entered_ms, ticket.due_ms)).collect();
    assert_eq!(
        dues,
        [(token(1), State::Held, 700, 30_700), (token(2), State::Queued, 700, 15_700), (token(4), State::Queued, 700, 15_700)]
    );
    assert_eq!(Book::header(&book).next_due_ms, 15_700);
    let rested = store.book(&key("rested")).unwrap();
    assert_eq!(Book::header(&rested).rests[0].until_ms, 50_700);
    assert_eq!(rested.tombstones().map(|grave| grave.due_ms).collect::<Vec<_>>(), [60_700]);
    drop(store);

    // Once: the same boot again changes nothing, and then all goes its way.
    after.set(20_000, 500);
    let store = with(&after);
    assert_eq!(store.book(&key("nightly")).unwrap(), book);
    after.set(30_700, 400);
    assert!(fence(enter(&store, "nightly", request(5))) > first);
    assert_eq!(pollster::block_on(store.leave(&key("nightly"), Leave { token: token(1), settled: true })).unwrap().was, Was::Gone);
}

/// As after a restart, but whoever was there before it is still there.
#[test]
fn two_kernels_on_one_volume_are_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let with = |boot| SqliteStore::options().clock(SetClock::new(boot)).open(&path);
    let told = |error: crate::Error| assert!(error.is_incompatible() && error.to_string().contains("two kernels"), "{error:?}");
    let one = with("one").unwrap();
    let first = fence(enter(&one, "nightly", request(1)));
    let two = with("two").unwrap();
    assert!(matches!(enter(&two, "nightly", request(2)), Answer::Queued { .. }));
    // The first that finds it out, and from then on everybody, whoever he is.
    told(pollster::block_on(one.enter(&key("hourly"), request(3))).unwrap_err());
    told(pollster::block_on(two.enter(&key("hourly"), request(4))).unwrap_err());
    for boot in ["one", "two", "three"] {
        told(with(boot).unwrap_err());
    }
    told(pollster::block_on(two.inspect(&key("nightly"))).unwrap_err());
    // With a new file all begins anew.
    drop((one, two));
    fs::remove_file(&path).unwrap();
    assert!(fence(enter(&with("two").unwrap(), "nightly", request(5))) >= first);
}

#[test]
fn fences_grow_beyond_a_key_that_was_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SetClock::new("boot");
    let store = SqliteStore::options().clock(clock.clone()).open(directory.path().join("leases.db")).unwrap();
    let count = |store: &SqliteStore| {
        let sql = |engine: &mut Engine<'_>| engine.transaction(&|| false, |sql, _| sql.names(super::super::sql::Sql::NamesFrom, "", 999));
        store.run(sql).unwrap().len()
    };
    clock.set(1_000, 5_000_000);
    let first = fence(enter(&store, "nightly", request(1)));
    for number in 0..200 {
        enter(&store, &format!("other {number}"), Enter { terms: Terms::new(100), ..request(number) });
    }
    assert_eq!(first, 5_000_000);
    pollster::block_on(store.leave(&key("nightly"), Leave { token: token(1), settled: true })).unwrap();
    let mut sweeps = 0;
    let mut sweep = |mono_ms| {
        clock.set(mono_ms, 7);
        // The method by its name is of one lifetime only.
        #[allow(clippy::redundant_closure_for_method_calls)]
        while store.run(|engine| engine.sweep()).unwrap() {
            sweeps += 1;
        }
    };
    // Not yet: its tombstone tells a late request that it has ended.
    sweep(1_000);
    assert_eq!(count(&store), 201);
    // The tombstone of the release is over; the others have expired only now, unnoticed until then.
    sweep(61_000);
    assert_eq!(count(&store), 200);
    sweep(200_000);
    assert_eq!(count(&store), 0);
    assert!(sweeps > 3, "a page at a time: {sweeps}");
    // The wall clock is far behind meanwhile.
    clock.set(200_000, 9);
    let second = fence(enter(&store, "nightly", request(2)));
    assert!(second > first);
    assert!(fence(enter(&store, "quite another", request(3))) > first);
}

#[test]
fn case_s25_a_file_that_was_removed_has_lost_its_tickets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let store = open(&path).unwrap();
    let other = open(&path).unwrap();
    enter(&store, "nightly", request(1));
    // Its log stays behind, and `other` still has it open.
    fs::remove_file(&path).unwrap();
    let beat = Beat { token: token(1), seq: 2, priority: 0, blocked: None };
    let answers = pollster::block_on(store.beat(vec![(key("nightly"), beat)])).unwrap();
    assert_eq!(*answers[0].as_ref().unwrap(), Answer::Gone(Reason::Unknown));
    let left = pollster::block_on(store.leave(&key("nightly"), Leave { token: token(1), settled: true })).unwrap();
    assert_eq!(left.was, Was::Gone);
    assert!(pollster::block_on(store.list("")).unwrap().is_empty());
    assert!(!path.exists(), "only who wants to hold brings it back");
    assert!(matches!(enter(&other, "nightly", request(2)), Answer::Held(_)));
    assert!(matches!(enter(&store, "nightly", request(3)), Answer::Queued { .. }));
    drop(store);
    drop(other);
    assert_eq!(pollster::block_on(open(&path).unwrap().list("")).unwrap().len(), 1);
}

#[test]
fn a_link_leads_to_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("leases.db"), directory.path().join("link"));
    let store = open(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let other = open(&link).unwrap();
    enter(&store, "nightly", request(1));
    assert!(matches!(enter(&other, "nightly", request(2)), Answer::Queued { .. }));
    // A link to nothing is not followed to make a file elsewhere.
    std::os::unix::fs::symlink(directory.path().join("nothing"), directory.path().join("dangling")).unwrap();
    assert!(open(&directory.path().join("dangling")).unwrap_err().is_invalid());
}

/// A backup that is put back while a process that was killed, or one that still runs, had the file open.
#[test]
fn case_s25_a_file_that_was_replaced_has_lost_its_tickets() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("leases.db"), directory.path().join("backup"));
    drop(open(&path).unwrap());
    fs::copy(&path, &backup).unwrap();
    let store = open(&path).unwrap();
    let other = open(&path).unwrap();
    for number in 1..50 {
        enter(&store, &format!("nightly {number}"), request(number));
    }
    fs::rename(&backup, &path).unwrap();
    assert!(beside(&path, "-wal").exists(), "the old file's log lies beside the new one");
    // The first that looks must not read it into the new file, while the other has it open.
    let refused = pollster::block_on(store.enter(&key("nightly 1"), request(60))).unwrap_err();
    assert!(refused.is_unreachable() && refused.to_string().contains("before this one"), "{refused}");
    let beat = Beat { token: token(1), seq: 2, priority: 0, blocked: None };
    let answers = pollster::block_on(other.beat(vec![(key("nightly 1"), beat)])).unwrap();
    assert_eq!(*answers[0].as_ref().unwrap(), Answer::Gone(Reason::Unknown));
    let first = fence(enter(&store, "nightly 1", request(60)));
    assert!(matches!(enter(&other, "nightly 1", request(61)), Answer::Queued { .. }));
    assert_eq!(pollster::block_on(other.list("")).unwrap().len(), 1, "nothing of the old file is in the new one");
    drop((store, other));
    let db = rusqlite::Connection::open(&path).unwrap();
    let sound: String = db.query_one("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    assert!(first > 0);
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

#[test]
fn looking_at_a_key_that_nobody_used_leaves_no_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let store = open(&path).unwrap();
    let keys = || -> i64 {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_one("SELECT count(*) FROM key", (), |row| row.get(0)).unwrap()
    };
    let nightly = Key::new("nightly").unwrap();
    let seen = pollster::block_on(store.inspect(&nightly)).unwrap();
    assert_eq!((seen.holders.len(), pollster::block_on(store.evict(&nightly, Evict { fence: None, force: true })).unwrap()), (0, 0));
    assert_eq!(keys(), 0);
    // Whoever asks for it makes one.
    assert!(matches!(enter(&store, "nightly", request(1)), Answer::Held(_)));
    assert_eq!(keys(), 1);
}
