//! Bad input, and `ls`: one clear line, the right code, nothing left behind.
#![allow(missing_docs)]

mod common;

use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Stdio};

use common::{Place, stderr};
use proptest::prelude::*;

/// One line on stderr, code 125.
fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.output(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    assert!(text.starts_with("heirlock: "), "{args:?}: {text}");
    text
}

#[test]
fn bad_words_are_refused_with_one_line() {
    let place = Place::new();
    let (long, long_reason) = ("x".repeat(513), "y".repeat(1025));
    let bad: &[&[&str]] = &[
        &[],
        &["run"],
        &["demo"],
        &["demo", "sleep"],
        &["run", "a"],
        &["run", "", "true"],
        &["run", "two\nlines", "true"],
        &["run", &long, "true"],
        &["run", "--wait", "NaN", "a", "true"],
        &["run", "--wait", "-1", "a", "true"],
        &["run", "--wait", "1e300", "a", "true"],
        &["run", "--ttl", "0", "a", "true"],
        &["run", "--ttl", "2.9", "a", "true"],
        &["run", "--ttl", "inf", "a", "true"],
        &["run", "--slots", "0", "a", "true"],
        &["run", "--slots", "10001", "a", "true"],
        &["run", "-s", "--slots", "2", "a", "true"],
        &["run", "-n", "-w", "1", "a", "true"],
        &["run", "-E", "256", "a", "true"],
        &["run", "-p", "3000000000", "a", "true"],
        &["run", "-c", "x", "a", "true"],
        &["run", "--why", &long_reason, "a", "true"],
        &["run", "a", "-c"],
        &["frobnicate"],
        &["ls", "--yaml"],
        &["show"],
        &["show", ""],
        &["show", "two\nlines"],
        &["show", &long],
        &["show", "a", "b"],
        &["evict"],
        &["evict", &long],
        &["evict", "a", "--fence", "x"],
        &["evict", "a", "--fence", "-1"],
        &["doctor", "--ttl", "1"],
        &["doctor", "a"],
        &["where", "a"],
        &["completions"],
        &["completions", "cmd"],
        &["-v"],
    ];
    for args in bad {
        refused(&place, args);
    }
    // All but the reason, which is the library's to judge.
    let made = std::fs::read_dir(place.folder.path()).unwrap().count();
    assert!(made == 0 || place.path("locks.db").exists());
}

#[test]
fn a_refusal_names_the_help_of_its_verb_and_what_may_have_been_meant() {
    let place = Place::new();
    for (args, ends) in [
        (&["run", "--ttl", "2", "a", "true"][..], "see heirlock run --help"),
        (&["-v", "--store", "ls", "run", "--slots", "0", "a", "true"], "see heirlock run --help"),
        (&["ls", "--yaml"], "see heirlock ls --help"),
        (&["evict"], "see heirlock evict --help"),
        (&["completions"], "see heirlock completions --help"),
        (&["frobnicate"], "see heirlock --help"),
        (&["--frobnicate"], "see heirlock --help"),
    ] {
        let text = refused(&place, args);
        assert!(text.trim_end().ends_with(&format!("; {ends}")), "{args:?}: {text}");
    }
    assert!(refused(&place, &["run", "--tll", "9", "a", "true"]).contains("; tip: a similar argument exists: '--ttl'; see"));
    // Followed, that tip would lock another name.
    assert!(!refused(&place, &["run", "-ttl", "9", "a", "true"]).contains("use '-- "));
    assert!(refused(&place, &["run", "a", "-n", "true"]).contains("options stand before the name"));
    assert!(refused(&place, &["run", "-E", "job", "a", "true"]).contains("give a number from 0 to 255"));
    assert!(refused(&place, &["ls", "--store", "/tmp/x.db"]).contains("give sqlite:/tmp/x.db"));
    assert!(refused(&place, &["run", "--store", "sqlite:/no/such/x.db", "a", "true"]).contains("there is no directory /no/such"));
}

#[test]
fn the_words_of_flock_are_understood_or_told_what_there_is_instead() {
    let place = Place::new();
    for words in [&["-x"][..], &["-e"], &["--exclusive"], &["--nonblock"], &["--nb"], &["--timeout", "1"], &["-xn"]] {
        assert_eq!(place.code(&[&["run"], words, &["a", "true"]].concat()), 0, "{words:?}");
    }
    for (word, instead) in [("-o", "leave it out"), ("--close", "leave it out"), ("-u", "heirlock evict NAME"), ("-F", "leave it out")] {
        assert!(refused(&place, &["run", word, "a", "true"]).contains(instead), "{word}");
    }
    let text = stderr(&place.output(&["run", "a", "echo hi"]));
    assert!(text.contains("is for the shell: -c"), "{text}");
}

#[test]
fn other_slips_are_told_what_was_meant() {
    let place = Place::new();
    assert!(refused(&place, &["run", "--on-lost", "tell", "a", "true"]).contains("[possible values: term, kill, notify]"));
    assert!(refused(&place, &["sho", "a"]).contains("tip: a similar subcommand exists: 'show'"));
}

#[test]
fn the_help_of_run_names_what_it_takes_and_gives() {
    let place = Place::new();
    let text = String::from_utf8(place.output(&["run", "--help"]).stdout).unwrap();
    for word in ["HEIRLOCK_HELD", "HEIRLOCK_PASSWORD_FILE", "128 + n", "nothing is said then", "TERM comes the grace and half a second"] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(word), "{word}: {text}");
    }
}

#[test]
fn the_store_may_be_said_before_the_verb() {
    let place = Place::new();
    let [one, other] = ["one.db", "other.db"].map(|name| format!("sqlite:{}", place.path(name).display()));
    let store = |args: &[&str]| {
        let output = place.output(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let told = ["sh", "-c", "echo $HEIRLOCK_STORE"];
    assert_eq!(store(&[&["--store", &one, "run", "a"], &told[..]].concat()), one);
    // What stands after the verb is nearer, and what stands after the name is the command's.
    assert_eq!(store(&[&["--store", &one, "run", "--store", &other, "a"], &told[..]].concat()), other);
    assert_eq!(store(&["--store", &one, "run", "a", "echo", "--store", &other]), format!("--store {other}"));
    for verb in [&["ls"][..], &["where"], &["doctor"]] {
        let text = store(&[&["--store", &other], verb, &["--json"]].concat());
        assert!(text.contains(&other), "{verb:?}: {text}");
    }
    assert!(!place.path("locks.db").exists());
}

#[test]
fn a_bad_store_is_refused_without_its_password() {
    let place = Place::new();
    for url in [
        "redis://app:hunter2@127.0.0.1:1/0",
        "hunter2",
        "postgres://u:hunter2@h/db?password=hunter2",
        "memory:",
        "sqlite:",
        "sqlite:/x?mode=9",
        "redis://u:hunter2?x@h/0",
        "hunter2@h:1/x",
        "sqlite::memory:",
        "sqlite:/x?mode=0600&mode=0660",
    ] {
        let text = refused(&place, &["run", "--store", url, "a", "true"]);
        assert!(!text.contains("hunter2"), "{text}");
        refused(&place, &["ls", "--store", url]);
    }
}

#[test]
fn a_foreign_file_is_refused_and_kept() {
    let place = Place::new();
    let file = place.path("locks.db");
    std::fs::write(&file, b"my diary\n").unwrap();
    let text = refused(&place, &["run", "a", "true"]);
    assert!(text.contains("locks.db"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"my diary\n");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    let url = format!("sqlite:{}/below/locks.db", place.path("file").display());
    refused(&place, &["run", "--store", &url, "a", "true"]);
    refused(&place, &["run", "--store", &format!("sqlite:{}", place.folder.path().display()), "a", "true"]);
    refused(&place, &["run", "--store", "sqlite:/proc/heirlock.db", "a", "true"]);
}

#[test]
fn the_default_store_is_told_once_and_needs_a_home() {
    let place = Place::new();
    let state = place.path("state");
    // Root keeps its locks elsewhere, so this runs as somebody else where it can.
    let as_user = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heirlock"));
        command.args(words).env_remove("HEIRLOCK_STORE").env("XDG_STATE_HOME", &state).stdin(Stdio::null());
        command
    };
    if rustix::process::geteuid().is_root() {
        let text = stderr(&as_user(&["ls"]).output().unwrap());
        assert_eq!(text, "");
        return;
    }
    let first = as_user(&["run", "a", "true"]).output().unwrap();
    assert!(stderr(&first).contains("first use"), "{first:?}");
    assert_eq!(stderr(&as_user(&["run", "a", "true"]).output().unwrap()), "");
    let homeless = as_user(&["run", "a", "true"]).env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(125));
    assert!(stderr(&homeless).contains("HEIRLOCK_STORE"), "{homeless:?}");
}

#[test]
fn ls_shows_who_holds_and_who_waits() {
    let place = Place::new();
    assert_eq!(String::from_utf8(place.output(&["ls"]).stdout).unwrap(), "");
    let holder = place.holder("nightly");
    let waiter = common::Running::start(&mut place.heirlock(&["run", "-p", "7", "--why", "to see", "nightly", "--", "true"]));
    let text = || String::from_utf8(place.output(&["ls"]).stdout).unwrap();
    common::eventually("it waits", || text().contains("waits 1"));
    let shown = text();
    assert!(shown.contains("NAME") && shown.contains("held by") && shown.contains(&holder.pid().to_string()), "{shown}");
    assert!(shown.contains("to see") && shown.contains(&waiter.pid().to_string()), "{shown}");

    let json: serde_json::Value = serde_json::from_slice(&place.output(&["ls", "--json"]).stdout).unwrap();
    let lock = &json["locks"][0];
    assert_eq!((lock["name"].as_str(), lock["kind"].as_str()), (Some("nightly"), Some("lease")));
    let (held, waits) = (&lock["holders"][0], &lock["queue"][0]);
    assert_eq!(held["worker"]["pid"].as_i64(), Some(holder.pid().into()));
    assert_eq!((held["command"].as_str(), held["mode"].as_str(), held["revoked"].as_bool()), (Some("sh"), Some("exclusive"), Some(false)));
    assert_eq!((held["priority"].as_i64(), held["effective"].as_i64()), (Some(0), Some(7)));
    assert!(held["fence"].as_u64().unwrap() > 0 && held["expires_in_ms"].as_u64().unwrap() <= 30_000 && held["since_ms"].is_u64());
    assert!(held.get("slot").is_none() && held.get("why").is_none(), "what does not apply is absent");
    assert_eq!((waits["position"].as_i64(), waits["priority"].as_i64(), waits["why"].as_str()), (Some(1), Some(7), Some("to see")));
    assert_eq!(json["edges"].as_array().unwrap().len(), 1);
    for field in ["suspected", "deadlocks", "losses"] {
        assert!(json[field].is_array(), "{field}");
    }
    assert!(json["at"].is_u64() && json["store"].as_str().unwrap().starts_with("sqlite:/"));
    assert_eq!(String::from_utf8(place.output(&["ls", "other"]).stdout).unwrap(), "");
    drop((waiter, holder));
}

#[test]
fn a_closed_stdout_is_no_panic_and_a_full_one_is_told() {
    let place = Place::new();
    let holder = place.holder("a");
    for words in [&["ls"][..], &["ls", "--json"], &["--help"], &["--version"]] {
        common::assert_tells_a_stdout_that_fails(&place, words);
    }
    drop(holder);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any bytes for names, URLs and arguments: a known code, one line at most, no panic.
    #[test]
    fn random_bytes_are_refused_or_run(
        name in proptest::collection::vec(1u8.., 0..20),
        url in proptest::collection::vec(1u8.., 0..20),
        option in proptest::collection::vec(1u8.., 0..8),
        with_url in any::<bool>(),
    ) {
        let place = Place::new();
        let os = std::ffi::OsString::from_vec;
        let mut command = place.heirlock(&["run"]);
        command.current_dir(place.folder.path());
        if with_url {
            command.arg("--store").arg(os(url));
        }
        if !option.is_empty() {
            command.arg("--why").arg(os(option));
        }
        let output = command.arg("--").arg(os(name)).arg("true").output().unwrap();
        let code = output.status.code();
        prop_assert!(code == Some(0) || code == Some(125), "{:?}", output);
        let text = stderr(&output);
        prop_assert!(text.lines().count() <= 1 && !text.contains("panicked"), "{}", text);
        prop_assert_eq!(code == Some(0), text.is_empty(), "{}", text);
    }
}
