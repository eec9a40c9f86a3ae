//! Passwords: read from where they are kept, and shown nowhere (C09), whether the store lets in, refuses, or is not there.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;
#[allow(dead_code)]
#[path = "../../heirlock/tests/common/redis/mod.rs"]
mod server;

use std::process::{Command, Output};

use common::{Place, Running, stderr};
use server::Server;

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

/// A password that is right is nowhere to be seen either: in what is printed and logged, in the command's environment, in titles of processes.
#[test]
fn case_c09_a_password_that_lets_in_is_shown_nowhere_over_redis() {
    let (place, server) = (Place::new(), Server::start(&["--requirepass", SECRET]));
    let rules = ["SETUSER", "app", "on", ">hunter2", "~heirlock:*", "&heirlock:*", "+@all"];
    redis::cmd("ACL").arg(&rules).exec(&mut server.connection(&format!(":{SECRET}@"))).unwrap();
    let file = place.path("password");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.to_str().unwrap();
    // Of the user that has no name, of one that has, and in the URL itself.
    for (at, (who, file)) in [("", Some(file)), ("app@", Some(file)), (&format!("app:{SECRET}@"), None)].into_iter().enumerate() {
        let store = format!("{}/0?prefix=c09/{at}/", server.url(who));
        let mut command = place.heirlock(&["-vv", "run", "a", "--", "sh", "-c", "env; echo .; cat >/dev/null"]);
        command.env("HEIRLOCK_STORE", &store).stdin(std::process::Stdio::piped());
        if let Some(file) = file {
            command.env("HEIRLOCK_PASSWORD_FILE", file);
        }
        let mut running = Running::start(&mut command);
        let environment: Vec<String> = std::iter::from_fn(|| Some(running.read_line()).filter(|line| line != ".")).collect();
        assert!(!environment.concat().contains(SECRET), "{environment:?}");
        // A run within finds the store, as its user, if it finds the password.
        let user = if file.is_some() { who } else { "" };
        let expected = format!("HEIRLOCK_STORE={}/0?prefix=c09/{at}/", server.url(user));
        assert!(environment.contains(&expected), "{expected}: {environment:?}");
        for pid in [running.pid(), child_of(running.pid()), child_of(child_of(running.pid()))] {
            let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            assert!(!title.is_empty() && !title.contains(SECRET), "{title:?}");
        }
        for (words, codes) in [
            (&["run", "-n", "a", "true"][..], &[75][..]),
            (&["-vv", "run", "-n", "a", "true"], &[75]),
            (&["run", "-n", "b", "env"], &[0]),
            (&["ls"], &[0]),
            (&["ls", "--json"], &[0]),
            (&["show", "a"], &[0]),
            (&["show", "a", "--json"], &[0]),
            (&["where"], &[0]),
            (&["where", "--json"], &[0]),
            // It may warn.
            (&["doctor"], &[0, 1]),
            (&["doctor", "--json"], &[0, 1]),
            (&["evict", "a", "--json"], &[0]),
        ] {
            let output = asked(&place, words, &store, file);
            let text = all(&output);
            assert!(codes.contains(&output.status.code().unwrap()) && !text.is_empty() && !text.contains(SECRET), "{words:?}: {text}");
        }
        let output = running.finish();
        let text = all(&output);
        assert_eq!(output.status.code(), Some(81), "{text}");
        assert!(text.contains("the store is reached") && !text.contains(SECRET), "{text}");
    }
}

fn child_of(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_run_within_a_run_reads_the_same_password_over_redis() {
    let (place, server) = (Place::new(), Server::start(&["--requirepass", SECRET]));
    let file = place.path("password");
    std::fs::write(&file, SECRET).unwrap();
    let this = env!("CARGO_BIN_EXE_heirlock");
    for (who, file, codes) in [("default@", Some(&file), [0, 80]), (&format!("default:{SECRET}@"), None, [125, 125])] {
        for (name, code) in ["b", "a"].into_iter().zip(codes) {
            let file = file.map(|file| file.to_str().unwrap());
            let output = asked(&place, &["run", "a", "--", this, "run", "-w", "9", name, "true"], &server.url(who), file);
            assert_eq!(output.status.code(), Some(code), "{who} {name}: {output:?}");
            // Without it, it is said what is missing.
            assert!(code != 125 || stderr(&output).contains("refuses the user or the password"), "{output:?}");
        }
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
