//! `heirlock doctor` over Redis: each setting that can lose locks is told with what to do, and doing that helps.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;
#[allow(dead_code)]
#[path = "../../heirlock/tests/common/redis/mod.rs"]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use common::{Place, Running, eventually, stderr};
use redis::Connection;
use serde_json::Value;
use server::Server;

/// What no setting of can lose locks, and then these.
fn start(options: &[&str]) -> Server {
    Server::start(&[&["--appendonly", "yes", "--appendfsync", "always"], options].concat())
}

/// The code, and the texts of warnings.
fn warnings(place: &Place, store: &str) -> (Option<i32>, Vec<String>) {
    let output = place.heirlock(&["doctor", "--json"]).env("HEIRLOCK_STORE", store).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let warnings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["level"] == "warning");
    (output.status.code(), warnings.map(|finding| finding["text"].as_str().unwrap().to_owned()).collect())
}

/// One warning, with these words, that is gone after its cure.
fn assert_warns(store: &str, words: &[&str], cure: impl FnOnce() -> String) {
    let place = Place::new();
    let (code, said) = warnings(&place, store);
    assert!(code == Some(1) && said.len() == 1 && words.iter().all(|word| said[0].contains(word)), "{words:?}: {said:?}");
    assert!(!said[0].contains('\n'), "{said:?}");
    let store = cure();
    assert_eq!(warnings(&place, &store), (Some(0), Vec::new()), "{words:?}, cured");
}

fn set(server: &Server, name: &str, value: &str) -> String {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut server.connection("")).unwrap();
    server.url("")
}

fn info(connection: &mut Connection, field: &str) -> String {
    let info: String = redis::cmd("INFO").query(connection).unwrap();
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap_or_default().to_owned()
}

#[test]
fn a_sound_server_is_0_and_stays_as_it_is() {
    let (place, server) = (Place::new(), start(&[]));
    let output = place.heirlock(&["doctor"]).env("HEIRLOCK_STORE", server.url("")).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{text}");
    assert_eq!(text.lines().next(), Some(server.url("").as_str()));
    for topic in ["chosen", "store", "latency", "settings", "clock", "leftovers"] {
        assert!(text.lines().any(|line| line.starts_with("ok ") && line.contains(topic)), "{topic}: {text}");
    }
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut server.connection("")).unwrap(), 0, "it leaves nothing behind");
}

#[test]
fn an_eviction_policy_that_can_drop_locks() {
    let server = start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let words = ["allkeys-lru can drop locks", "set maxmemory-policy to noeviction"];
    assert_warns(&server.url(""), &words, || set(&server, "maxmemory-policy", "noeviction"));
}

#[test]
fn a_server_that_keeps_nothing() {
    let server = Server::start(&[]);
    let words = ["a restart forgets all leases", "set appendonly yes and appendfsync always"];
    assert_warns(&server.url(""), &words, || {
        set(&server, "appendonly", "yes");
        set(&server, "appendfsync", "always")
    });
}

#[test]
fn a_server_that_keeps_most() {
    for sync in ["everysec", "no"] {
        let server = start(&["--appendfsync", sync]);
        let words = ["a crash can forget the last leases", &format!("appendfsync is {sync}"), "set it to always"];
        assert_warns(&server.url(""), &words, || set(&server, "appendfsync", "always"));
    }
}

#[test]
fn replicas_that_no_grant_waits_for_and_too_few_of_them() {
    let server = start(&[]);
    let port = server.port().to_string();
    let _replica = start(&["--replicaof", "127.0.0.1", &port]);
    let mut admin = server.connection("");
    eventually("the replica is there", || info(&mut admin, "slave0").contains("state=online"));
    assert_warns(&server.url(""), &["a replica that takes over may not know the last leases", "add ?wait=1"], || {
        server.url("") + "?wait=1"
    });
    let (code, said) = warnings(&Place::new(), &(server.url("") + "?wait=2"));
    assert!(code == Some(1) && said.len() == 1 && said[0].contains("wait=2 needs more"), "{said:?}");
}

/// Who may not ask for a setting is told nothing of it.
#[test]
fn a_user_that_may_not_read_the_settings() {
    let (place, server) = (Place::new(), start(&["--appendfsync", "everysec"]));
    let commands: Vec<String> = heirlock::store::redis::COMMANDS.iter().map(|command| format!("+{command}")).collect();
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("app").arg("on").arg(">hunter2").arg("~heirlock:*").arg("&heirlock:*").arg(&commands);
    command.exec(&mut server.connection("")).unwrap();
    assert_eq!(warnings(&place, &server.url("app:hunter2@")), (Some(0), Vec::new()));
    set(&server, "maxmemory-policy", "volatile-ttl");
    let (code, said) = warnings(&place, &server.url("app:hunter2@"));
    assert!(code == Some(1) && said.len() == 1 && said[0].contains("volatile-ttl"), "{said:?}");
}

#[test]
fn fences_ahead_of_this_machine_s_clock() {
    let (place, server) = (Place::new(), start(&[]));
    let run = ["run", "a", "--", "sh", "-c", "echo held; exec sleep 600"];
    let held = Running::start(place.heirlock(&run).env("HEIRLOCK_STORE", server.url(""))).wait_for_line("held");
    // An hour ago, for whoever looks.
    let mut command = std::process::Command::new("faketime");
    command.args(["-f", "-3600s", env!("CARGO_BIN_EXE_heirlock"), "doctor"]).env("HEIRLOCK_STORE", server.url(""));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("warning ")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains(" ahead of this machine's wall clock: set the server's"), "{text}");
    drop(held);
}

/// One of version 6.0 cannot be had from a package any more: this is what it answers. (An older one knows no HELLO.)
#[test]
fn a_server_that_is_too_old_is_refused_as_it_is_by_all() {
    for (answers_hello, version) in [(true, "6.0.16"), (false, "5.0.14")] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let store = format!("redis://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || old(stream, answers_hello, version));
            }
        });
        for words in [&["doctor"][..], &["run", "a", "true"], &["ls"]] {
            let output = Place::new().heirlock(words).env("HEIRLOCK_STORE", &store).output().unwrap();
            let text = stderr(&output);
            assert!(output.status.code() == Some(125) && text.lines().count() == 1, "{words:?}: {output:?}");
            assert!(text.contains(&store) && text.contains("6.2 or a later"), "{version}, {words:?}: {text}");
        }
    }
}

/// Reads commands, and answers as such a server does.
fn old(stream: std::net::TcpStream, answers_hello: bool, version: &str) {
    let mut writer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')?.parse::<usize>().ok()) {
        // Of each word its length, and itself.
        let words: Vec<String> = (0..count).filter_map(|_| lines.next().and(lines.next())).collect();
        let info = format!("# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n");
        let answer = match words.first().map(|word| word.to_uppercase()).as_deref() {
            Some("HELLO") if answers_hello => format!("%2\r\n$7\r\nversion\r\n${}\r\n{version}\r\n$5\r\nproto\r\n:3\r\n", version.len()),
            Some("INFO") => format!("${}\r\n{info}\r\n", info.len()),
            Some(other) => format!("-ERR unknown command `{other}`, with args beginning with: \r\n"),
            None => return,
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
