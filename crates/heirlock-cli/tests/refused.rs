//! What a refused `heirlock run` says, by spawning the real binary.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Place, Running, Store, eventually, over_each_store, stderr};

over_each_store!(who_holds_it_is_named, several_holders_are_counted, a_rest_is_told_with_its_end_and_who_waits_for_it,);

/// The one line of a run that must not get in.
fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.output(args);
    assert_eq!(output.status.code(), Some(75), "{args:?}: {output:?}");
    let text = stderr(&output);
    assert!(text.starts_with("heirlock: ") && text.lines().count() == 1, "{args:?}: {text}");
    text.trim_end().to_owned()
}

fn who_holds_it_is_named(store: Store) {
    let place = Place::over(store);
    let holder = place.holder("a");
    let who = format!("a is held by {}@", common::user());
    let pid = format!(" pid {} (sh), for ", holder.pid());
    let text = refused(&place, &["run", "-n", "a", "true"]);
    assert!(text.contains(&who) && text.contains(&pid) && text.ends_with(": see heirlock show a"), "{text}");
    let text = refused(&place, &["run", "-w", "0.2", "a", "true"]);
    assert!(text.contains("a is still held by ") && text.contains(&pid) && text.ends_with(": see heirlock show a"), "{text}");
    // Whoever chose the code knows what it means.
    let output = place.output(&["run", "-n", "-E", "9", "a", "true"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(9), ""));
    drop(holder);
}

/// A store whose file another program keeps for itself.
#[test]
fn case_c10_a_store_that_does_not_answer_is_125_within_the_wait_or_ten_seconds() {
    let place = Place::new();
    assert_eq!(place.code(&["run", "a", "true"]), 0);
    let other = rusqlite::Connection::open(place.path("locks.db")).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let url = place.store();
    let refused = |options: &[&str], most: Duration| {
        let start = Instant::now();
        let output = place.output(&[&["run"], options, &["a", "true"]].concat());
        let took = start.elapsed();
        println!("{options:?}: {took:?}");
        // Never 75, also where nobody is waited for.
        assert_eq!(output.status.code(), Some(125), "{options:?}: {output:?}");
        assert!(took < 2 * most, "{options:?}: {took:?}");
        let text = stderr(&output);
        assert!(text.lines().count() == 1 && text.contains(&url["sqlite:".len()..]), "{options:?}: {text}");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| refused(&["-w", "1"], Duration::from_secs(1)));
        threads.spawn(|| refused(&["-n"], Duration::from_secs(10)));
        threads.spawn(|| refused(&[], Duration::from_secs(10)));
    });
}

fn several_holders_are_counted(store: Store) {
    let place = Place::over(store);
    let hold = || {
        Running::start(&mut place.heirlock(&["run", "--slots", "2", "pool", "--", "sh", "-c", "echo held; exec sleep 600"]))
            .wait_for_line("held")
    };
    let both = [hold(), hold()];
    let text = refused(&place, &["run", "-n", "--slots", "2", "pool", "true"]);
    assert!(text.contains(" and 1 more: see heirlock show pool"), "{text}");
    drop(both);
}

fn a_rest_is_told_with_its_end_and_who_waits_for_it(store: Store) {
    let place = Place::over(store);
    assert_eq!(place.code(&["run", "--hold-at-least", "600", "a", "true"]), 0);
    for wait in [&["-n"][..], &["-w", "0.2"]] {
        let text = refused(&place, &[&["run"], wait, &["a", "true"]].concat());
        assert!(text.contains("nobody holds a: it rests for 9 min more"), "{text}");
        assert!(text.contains(", until 2") && text.ends_with(" UTC: see heirlock show a"), "{text}");
    }
    let waiter = Running::start(&mut place.heirlock(&["run", "a", "true"]));
    eventually("it waits", || String::from_utf8_lossy(&place.output(&["show", "a"]).stdout).contains("waits 1"));
    assert!(refused(&place, &["run", "-n", "a", "true"]).contains("it rests for "));
    drop(waiter);
}
