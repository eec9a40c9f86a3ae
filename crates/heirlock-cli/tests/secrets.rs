//! Passwords: read from where they are kept, and shown nowhere (C09). No store that has one is there yet, so each is refused; without showing it.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{Place, stderr};

const SECRET: &str = "hunter2";

/// All that has a store, in words that reach it.
const VERBS: [&[&str]; 9] = [
    &["run", "a", "env"],
    &["ls"],
    &["ls", "--json"],
    &["show", "a"],
    &["show", "a", "--json"],
    &["evict", "a"],
    &["doctor"],
    &["doctor", "--json"],
    &["-vv", "run", "a", "env"],
];

fn all(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(output))
}

/// With this store and this password file.
fn asked(place: &Place, words: &[&str], store: &str, file: Option<&str>) -> Output {
    let mut command: Command = place.heirlock(words);
    command.env("HEIRLOCK_STORE", store);
    if let Some(file) = file {
        command.env("HEIRLOCK_PASSWORD_FILE", file);
    }
    command.output().unwrap()
}

#[test]
fn case_c09_a_password_is_shown_nowhere() {
    let place = Place::new();
    let file = place.path("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.to_str().unwrap();
    for words in VERBS {
        let urls = ["redis://app@127.0.0.1:1/0", "postgres://127.0.0.1:1/db?sslmode=disable", "etcd://h:1"];
        let in_urls = [format!("redis://app:{SECRET}@127.0.0.1:1/0"), format!("postgres://127.0.0.1:1/db?password={SECRET}")];
        let with_file = urls.map(|url| asked(&place, words, url, Some(file)));
        for output in with_file.into_iter().chain(in_urls.iter().map(|url| asked(&place, words, url, None))) {
            let text = all(&output);
            assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
            assert!(!text.contains(SECRET), "{words:?}: {text}");
            let own = stderr(&output).lines().filter(|line| line.starts_with("heirlock: ")).count();
            assert_eq!(own, 1, "{words:?}: {text}");
        }
    }
    for json in [&["where"][..], &["where", "--json"]] {
        for (url, file) in [(format!("redis://app:{SECRET}@h:1/0"), None), ("redis://app@h:1/0".to_owned(), Some(file))] {
            let output = asked(&place, json, &url, file);
            let text = all(&output);
            assert!(output.status.success() && !text.contains(SECRET) && text.contains("redis://***@h:1/0"), "{text}");
        }
    }
}

#[test]
fn case_c10_an_unsupported_store_is_125_at_once_with_its_address() {
    let place = Place::new();
    for words in VERBS.iter().chain([&["run", "-w", "0.5", "a", "true"][..]].iter()) {
        let start = Instant::now();
        let output = asked(&place, words, &format!("redis://app:{SECRET}@192.0.2.1:6379/0"), None);
        assert!(output.status.code() == Some(125) && start.elapsed() < Duration::from_secs(2), "{words:?}: {output:?}");
        assert!(stderr(&output).contains("redis://***@192.0.2.1:6379/0"), "{output:?}");
    }
}

#[test]
fn a_store_without_users_asks_for_no_password() {
    let place = Place::new();
    let environment = asked(&place, &["run", "a", "env"], &place.store(), Some("/no/such/file"));
    assert!(environment.status.success(), "{environment:?}");
    assert_eq!(stderr(&environment), "");
}

#[test]
fn a_password_file_that_is_none_is_told_without_its_content() {
    let place = Place::new();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(place.path(name), bytes).unwrap();
        place.path(name).to_str().unwrap().to_owned()
    };
    let long = SECRET.repeat(1000);
    let bad = [
        "/no/such/file".to_owned(),
        place.folder.path().to_str().unwrap().to_owned(),
        write("empty", b"\n"),
        write("lines", format!("{SECRET}\nmore\n").as_bytes()),
        write("bytes", b"hunter2\xff"),
        write("long", long.as_bytes()),
        "/dev/zero".to_owned(),
    ];
    for file in &bad {
        let output = asked(&place, &["run", "a", "true"], "redis://app@h:1/0", Some(file));
        let text = stderr(&output);
        assert!(output.status.code() == Some(125) && text.lines().count() == 1 && !text.contains(SECRET), "{file}: {text}");
        assert!(text.contains("HEIRLOCK_PASSWORD_FILE") && text.contains(file.as_str()), "{text}");
    }
    // Two passwords are one too many.
    let file = write("good", SECRET.as_bytes());
    let output = asked(&place, &["ls"], "redis://app:other@h:1/0", Some(&file));
    let text = stderr(&output);
    assert!(text.contains("take one away") && !text.contains(SECRET) && !text.contains("other"), "{text}");
}
