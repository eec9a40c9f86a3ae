//! A cut of power: of the log, the last part is not on the disk, or is garbage, and the kernel that comes up is another.

use super::*;

#[test]
fn a_power_cut_takes_the_last_steps_and_no_fence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let clock = SetClock::new("one");
    clock.set(5_000_000, 5_000_000);
    let store = SqliteStore::options().clock(clock.clone()).open(&path).unwrap();
    let mut newest = 0;
    for round in 0..40 {
        let name = format!("key {}", round % 4);
        clock.set(5_000_000 + u64::from(round) * 10, 5_000_000 + u64::from(round) * 10_000);
        newest = newest.max(fence(enter(&store, &name, request(round))));
        if round < 36 {
            pollster::block_on(store.leave(&key(&name), Leave { token: token(round), settled: true })).unwrap();
        }
    }
    let log = std::fs::read(directory.path().join("leases.db-wal")).unwrap();
    assert!(log.len() > 20_000, "all is in the log yet: {}", log.len());
    let garbage: Vec<u8> = (0..log.len() / 2).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    let half = [&log[..log.len() / 2], &garbage].concat();
    for (what, log) in
        [("no log", None), ("half of it", Some(&log[..log.len() / 2])), ("and then garbage", Some(&half[..])), ("all", Some(&log[..]))]
    {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("leases.db");
        std::fs::copy(&path, &copy).unwrap();
        if let Some(log) = log {
            std::fs::write(place.path().join("leases.db-wal"), log).unwrap();
        }
        // Up again: the time counts anew, and the wall clock is not behind.
        let after = SetClock::new("two");
        after.set(300, 9_000_000);
        let again = SqliteStore::options().clock(after.clone()).open(&copy).unwrap();
        // Whoever is still there has its whole ttl, once.
        for view in pollster::block_on(again.list("")).unwrap() {
            assert!(view.holders.len() <= 1 && view.queue.is_empty(), "{what}: {view:?}");
            assert!(view.holders.iter().all(|holder| holder.expires_in_ms == 30_000 && holder.fence <= newest), "{what}: {view:?}");
        }
        if what == "all" {
            assert_eq!(pollster::block_on(again.list("")).unwrap().iter().filter(|view| view.holders.len() == 1).count(), 4);
        }
        // Fences are larger than all that were ever granted, also by what is not on the disk.
        after.set(31_000, 9_100_000);
        for number in 0..4 {
            let fence = fence(enter(&again, &format!("key {number}"), request(100 + number)));
            assert!(fence > newest, "{what}: {fence} after {newest}");
        }
        drop(again);
        let db = rusqlite::Connection::open(&copy).unwrap();
        let sound: String = db.query_one("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok", "{what}");
    }
    drop(store);
}
