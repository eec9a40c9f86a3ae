//! `heirlock show` and `heirlock evict`, by spawning the real binary.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Place, Running, Store, eventually, over_each_store, stderr};
use serde_json::Value;

over_each_store!(
    case_c06_show_names_holder_and_waiters_in_order,
    show_prints_the_lock_as_ls_does,
    what_is_free_is_1_and_a_line,
    case_c12_a_rest_is_shown_until_its_end_and_kept,
    case_c06_an_evicted_lock_stays_exclusive_until_its_holder_has_left,
    a_fence_that_is_named_is_the_only_one_taken,
    readers_of_one_generation_go_together,
    force_frees_at_once_and_says_what_that_means,
    force_ends_a_rest_and_fences_grow,
    what_is_not_held_cannot_be_taken,
);

fn shown(place: &Place, args: &[&str]) -> String {
    String::from_utf8(place.output(args).stdout).unwrap()
}

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_slice(&place.output(args).stdout).unwrap()
}

/// Holds a lock with these options of `run` until the guard goes.
fn hold(place: &Place, options: &[&str]) -> Running {
    let args: Vec<&str> = ["run"].iter().chain(options).copied().chain(["--", "sh", "-c", "echo held; exec sleep 600"]).collect();
    Running::start(&mut place.heirlock(&args)).wait_for_line("held")
}

/// The fence with which the process holds the lock.
fn fence(place: &Place, name: &str, holder: &Running) -> u64 {
    let seen = json(place, &["show", name, "--json"]);
    let holders = seen["locks"][0]["holders"].as_array().unwrap();
    let ours = holders.iter().find(|one| one["worker"]["pid"].as_i64() == Some(holder.pid().into()));
    ours.unwrap_or_else(|| panic!("{seen}"))["fence"].as_u64().unwrap()
}

fn case_c06_show_names_holder_and_waiters_in_order(store: Store) {
    let place = Place::over(store);
    let holder = hold(&place, &["--why", "the dump", "nightly"]);
    let waits = |n: usize| eventually("it waits", || shown(&place, &["ls"]).contains(&format!("waits {n}")));
    let late = Running::start(&mut place.heirlock(&["run", "nightly", "true"]));
    waits(1);
    let urgent = Running::start(&mut place.heirlock(&["run", "-p", "7", "--why", "me first", "nightly", "cat"]));
    waits(2);

    let output = place.output(&["show", "nightly"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let [heading, held, first, second] = lines.as_slice() else { panic!("{text}") };
    let fence = fence(&place, "nightly", &holder).to_string();
    for words in ["WHO", "PID", "FOR", "LEFT", "MODE", "PRIO", "FENCE", "COMMAND", "WHY"] {
        assert!(heading.contains(words), "{text}");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let who = format!("{}@{}", common::user(), host.trim());
    for words in ["held by", &who, &holder.pid().to_string(), " s ", "exclusive", "0, now 7", &fence, "sh", "the dump"] {
        assert!(held.contains(words), "{words:?} is not in {text}");
    }
    assert!(first.starts_with("waits 1") && first.contains(&urgent.pid().to_string()) && first.contains("me first"), "{text}");
    assert!(second.starts_with("waits 2") && second.contains(&late.pid().to_string()), "{text}");
    // Aligned: what stands below a word begins where it does.
    for (word, cell) in [("WHO", who.as_str()), ("MODE", "exclusive"), ("FENCE", &fence), ("WHY", "the dump")] {
        assert_eq!(heading.find(word), held.find(cell), "{text}");
    }
    // Not for a terminal: no colours.
    assert!(!text.contains('\x1b'));
    drop((late, urgent, holder));
}

fn show_prints_the_lock_as_ls_does(store: Store) {
    let place = Place::over(store);
    let (one, other) = (hold(&place, &["--slots", "3", "pool"]), hold(&place, &["pool2"]));
    let mut listed = json(&place, &["ls", "--json"]);
    let mut seen = json(&place, &["show", "--json", "pool"]);
    assert_eq!(seen["locks"].as_array().unwrap().len(), 1);
    // Time has passed between the two.
    for value in [&mut listed, &mut seen] {
        assert!(value["at"].take().is_u64());
        let holder = &mut value["locks"][0]["holders"][0];
        assert!(holder["since_ms"].take().is_u64() && holder["expires_in_ms"].take().as_u64().unwrap() <= 30_000);
        assert_eq!((holder["slot"].as_u64(), holder["mode"].as_str()), (Some(0), Some("slot")));
        value["locks"].as_array_mut().unwrap().truncate(1);
    }
    assert_eq!(seen, listed);
    assert!(shown(&place, &["show", "pool"]).contains("slot 0"));
    drop((one, other));
}

fn what_is_free_is_1_and_a_line(store: Store) {
    let place = Place::over(store);
    assert_eq!(place.code(&["run", "other", "true"]), 0);
    let free = place.output(&["show", "nightly"]);
    assert_eq!((free.status.code(), free.stdout.as_slice(), stderr(&free).as_str()), (Some(1), &b"nightly is free\n"[..], ""));
    let free = place.output(&["show", "--json", "nightly"]);
    assert_eq!(free.status.code(), Some(1));
    let value: Value = serde_json::from_slice(&free.stdout).unwrap();
    assert_eq!((value["locks"][0]["name"].as_str(), value["locks"][0]["holders"].as_array().unwrap().len()), (Some("nightly"), 0));
}

fn case_c12_a_rest_is_shown_until_its_end_and_kept(store: Store) {
    let place = Place::over(store);
    let start = Instant::now();
    assert_eq!(place.code(&["run", "--hold-at-least", "3", "nightly", "true"]), 0);
    let rests = place.output(&["show", "nightly"]);
    let text = String::from_utf8(rests.stdout).unwrap();
    assert!(rests.status.code() == Some(1) && text.starts_with("nobody holds nightly: it rests for 2."), "{text}");
    assert!(text.ends_with(" UTC\n") && text.lines().count() == 1, "{text}");
    let rest = json(&place, &["show", "nightly", "--json"])["locks"][0]["resting_ms"].as_u64().unwrap();
    assert!(rest > 0 && rest <= 3_000, "{rest}");
    let nobody = place.output(&["evict", "nightly"]);
    let text = String::from_utf8(nobody.stdout).unwrap();
    assert_eq!(nobody.status.code(), Some(1), "{text}");
    assert!(
        text.contains("it rests for 2.") && text.contains("UTC") && text.contains("heirlock evict --force nightly ends that"),
        "{text}"
    );
    // A waiter gets in at its end, and nobody before.
    let waiter = Running::start(&mut place.heirlock(&["run", "nightly", "true"]));
    while start.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 75);
    }
    assert!(waiter.finish().status.success());
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(2_900) && took < Duration::from_secs(6), "{took:?}");
}

fn case_c06_an_evicted_lock_stays_exclusive_until_its_holder_has_left(store: Store) {
    let place = Place::over(store);
    let go = place.path("go");
    // It takes its time to leave.
    let script = format!(
        "trap 'echo told; while [ ! -e {} ]; do sleep 0.02; done; exit 3' TERM; echo held; while :; do sleep 0.02; done",
        go.display()
    );
    let holder = Running::start(&mut place.heirlock(&["run", "nightly", "--", "sh", "-c", &script])).wait_for_line("held");
    let number = fence(&place, "nightly", &holder).to_string();
    let output = place.output(&["evict", "nightly"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text.lines().count() == 1 && text.contains(&format!("fence {number}")) && text.contains(&format!("pid {}", holder.pid())),
        "{text}"
    );
    let holder = holder.wait_for_line("told");
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 75);
    assert!(shown(&place, &["show", "nightly"]).contains(", revoked"));
    assert_eq!(json(&place, &["show", "nightly", "--json"])["locks"][0]["holders"][0]["revoked"], true);
    std::fs::write(&go, "").unwrap();
    assert_eq!(holder.finish().status.code(), Some(81));
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 0);
}

fn a_fence_that_is_named_is_the_only_one_taken(store: Store) {
    let place = Place::over(store);
    let (first, second) = (hold(&place, &["--slots", "2", "pool"]), hold(&place, &["--slots", "2", "pool"]));
    let fences = [fence(&place, "pool", &first), fence(&place, "pool", &second)].map(|fence| fence.to_string());
    // Several hold it: nobody is taken at a guess, and all are named.
    let several = place.output(&["evict", "pool"]);
    let text = stderr(&several);
    assert!(several.status.code() == Some(125) && text.lines().count() == 1 && fences.iter().all(|fence| text.contains(fence)), "{text}");
    let wrong = place.output(&["evict", "pool", "--fence", "7"]);
    let text = String::from_utf8(wrong.stdout).unwrap();
    assert!(wrong.status.code() == Some(1) && text.contains("fence 7") && fences.iter().all(|fence| text.contains(fence)), "{text}");
    let revoked = || -> Vec<bool> {
        let seen = json(&place, &["show", "pool", "--json"]);
        let holders = seen["locks"][0]["holders"].as_array().unwrap();
        holders.iter().map(|holder| holder["revoked"].as_bool().unwrap()).collect()
    };
    assert_eq!(revoked(), [false, false]);
    let one = place.output(&["evict", "--json", "pool", "--fence", &fences[1]]);
    let value: Value = serde_json::from_slice(&one.stdout).unwrap();
    let taken = value["holders"].as_array().unwrap();
    assert_eq!((one.status.code(), value["name"].as_str(), value["forced"].as_bool()), (Some(0), Some("pool"), Some(false)));
    assert_eq!((taken.len(), taken[0]["fence"].to_string()), (1, fences[1].clone()));
    assert_eq!(second.finish().status.code(), Some(81));
    assert_eq!(fence(&place, "pool", &first).to_string(), fences[0]);
    drop(first);
}

fn readers_of_one_generation_go_together(store: Store) {
    let place = Place::over(store);
    let readers = [hold(&place, &["-s", "book"]), hold(&place, &["-s", "book"])];
    let output = place.output(&["evict", "book"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(0) && text.lines().count() == 2, "{text}");
    assert_eq!(readers.map(|reader| reader.finish().status.code()), [Some(81), Some(81)]);
}

fn force_frees_at_once_and_says_what_that_means(store: Store) {
    let place = Place::over(store);
    let script = "trap '' TERM; echo held; while :; do sleep 0.05; done";
    let holder = Running::start(&mut place.heirlock(&["run", "--grace", "3", "nightly", "--", "sh", "-c", script])).wait_for_line("held");
    let output = place.output(&["evict", "--force", "nightly"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.code() == Some(0) && text.contains("may still run"), "{text}");
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 0);
    let (code, told) = {
        let output = holder.finish();
        (output.status.code(), stderr(&output))
    };
    assert_eq!(code, Some(81), "{told}");
}

fn force_ends_a_rest_and_fences_grow(store: Store) {
    let place = Place::over(store);
    let fence = |args: &[&str]| -> u64 {
        let output = place.output(&[args, &["sh", "-c", "echo $HEIRLOCK_FENCE"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let before = fence(&["run", "--hold-at-least", "1e9", "nightly"]);
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 75);
    assert_eq!(place.code(&["evict", "nightly"]), 1);
    assert_eq!(place.code(&["evict", "--force", "--fence", &before.to_string(), "nightly"]), 1, "that one is gone, and was not this one's");
    assert_eq!(place.code(&["run", "-n", "nightly", "true"]), 75);
    let output = place.output(&["evict", "--force", "nightly"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!((output.status.code(), text.as_str()), (Some(0), "nightly is free now: its rest was ended\n"), "{output:?}");
    assert!(fence(&["run", "-n", "nightly"]) > before);
    assert_eq!(place.code(&["evict", "--force", "nightly"]), 1, "nothing is left to end");
    // With --json, and for slots.
    fence(&["run", "--slots", "1", "--hold-at-least", "1e9", "pool"]);
    assert_eq!(place.code(&["run", "-n", "--slots", "1", "pool", "true"]), 75);
    let output = place.output(&["evict", "--force", "--json", "pool"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), value["ended_rest"].as_bool(), value["holders"].as_array().unwrap().len()), (Some(0), Some(true), 0));
    assert_eq!(place.code(&["run", "-n", "--slots", "1", "pool", "true"]), 0);
    // Who waits gets in at once.
    fence(&["run", "--hold-at-least", "1e9", "nightly"]);
    let waiter = Running::start(&mut place.heirlock(&["run", "nightly", "true"]));
    eventually("it waits", || shown(&place, &["show", "nightly"]).contains("waits 1"));
    let since = Instant::now();
    assert_eq!(place.code(&["evict", "--force", "nightly"]), 0);
    assert!(waiter.finish().status.success());
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
}

fn what_is_not_held_cannot_be_taken(store: Store) {
    let place = Place::over(store);
    assert_eq!(place.code(&["run", "other", "true"]), 0);
    for args in [&["evict", "nightly"][..], &["evict", "nightly", "--fence", "3"], &["evict", "nightly", "--force"]] {
        let output = place.output(args);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(
            (output.status.code(), text.as_str(), stderr(&output).as_str()),
            (Some(1), "nightly is free: there is nobody to take it from\n", "")
        );
    }
    let output = place.output(&["evict", "nightly", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["holders"], Value::Array(Vec::new()));
}
