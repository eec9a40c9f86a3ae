//! What becomes of leases when a Redis server is restarted, forgets, refuses, or is not the one that it should be.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common {
    // This program uses a part of what all share.
    #[allow(dead_code)]
    pub(crate) mod redis;
}

use std::time::{Duration, Instant};

use common::redis::Server;
use heirlock::lease::LostReason;
use heirlock::{Error, Kind, Locks};
use pollster::block_on;

const TTL: Duration = Duration::from_secs(2);

fn connect(url: &str) -> Locks {
    block_on(Locks::connect(url)).unwrap()
}

/// The error of a connection that must fail, within its time.
fn refused(url: &str) -> Error {
    let since = Instant::now();
    let error = block_on(Locks::connect(url)).map(|locks| locks.url()).unwrap_err();
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}: {}", since.elapsed(), error.chain());
    let text = format!("{} {error:?}", error.chain());
    assert!(!text.contains("hunter2") && text.contains("127.0.0.1"), "{text}");
    error
}

#[test]
fn who_is_not_let_in_is_told_why_and_where_and_no_password() {
    let server = Server::start(&["--requirepass", "hunter2", "--databases", "4"]);
    assert_eq!(refused(&server.url("")).kind(), Kind::Invalid);
    assert_eq!(refused(&server.url("app:hunter2@")).kind(), Kind::Invalid);
    assert_eq!(refused(&server.url(":no-hunter2@")).kind(), Kind::Invalid);
    for user in ["", ":no-hunter2@"] {
        let error = refused(&server.url(user).replacen("redis:", "redis+cluster:", 1));
        assert_eq!(error.kind(), Kind::Invalid, "{}", error.chain());
    }
    let error = refused(&format!("{}/9", server.url(":hunter2@")));
    assert_eq!(error.kind(), Kind::Invalid, "{}", error.chain());
    let locks = connect(&format!("{}/3", server.url(":hunter2@")));
    assert!(!locks.url().contains("hunter2") && locks.url().contains("127.0.0.1"), "{}", locks.url());
    assert!(locks.lock("a").blocking().unwrap().is_valid());
}

/// Nobody is to believe that grants wait for a replica, or that names have their prefix, when they do not.
#[test]
fn parameters_in_the_place_of_options_are_refused() {
    let server = Server::start(&[]);
    for parameters in ["wait=1", "prefix=app/"] {
        let error = block_on(heirlock::store::RedisStore::connect(&format!("{}/?{parameters}", server.url("")))).unwrap_err();
        assert!(error.is_invalid() && error.chain().contains("options"), "{}", error.chain());
    }
}

/// The server's error repeats what the command was called with.
#[test]
fn a_server_that_does_not_know_hello_shows_no_password() {
    let server = Server::start(&["--requirepass", "hunter2", "--rename-command", "HELLO", ""]);
    for url in [server.url(":hunter2@"), server.url(":hunter2@").replacen("redis:", "redis+cluster:", 1)] {
        let error = refused(&url);
        assert!(error.chain().to_lowercase().contains("hello"), "{}", error.chain());
    }
}

/// The rules that the guide names are enough, and without one of them it is said what is not permitted.
#[test]
fn a_user_with_few_rights() {
    let server = Server::start(&["--requirepass", "hunter2"]);
    let mut admin = server.connection(":hunter2@");
    let mut set = |rules: &[&str]| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("app").arg("reset").arg("on").arg(">hunter2").arg(rules);
        command.exec(&mut admin).unwrap();
    };
    let commands: Vec<String> = heirlock::store::redis::COMMANDS.iter().map(|command| format!("+{command}")).collect();
    let mut rules: Vec<&str> = commands.iter().map(String::as_str).collect();
    rules.extend(["~heirlock:*", "&heirlock:*"]);
    set(&rules);
    let locks = connect(&server.url("app:hunter2@"));
    let lease = locks.lock("a").ttl(TTL).blocking().unwrap();
    assert_eq!(block_on(locks.list("")).unwrap().len(), 1);
    assert!(locks.lock("a").timeout(Duration::from_millis(300)).blocking().unwrap_err().is_timeout());
    lease.release_blocking().unwrap();
    // Without one of them.
    let less: Vec<&str> = rules.iter().copied().filter(|rule| *rule != "+zadd" && *rule != "+evalsha").collect();
    set(&less);
    let error = locks.lock("a").timeout(Duration::from_secs(1)).blocking().unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("does not permit"), "{}", error.chain());
}

#[test]
fn nobody_is_there() {
    let mut server = Server::start(&[]);
    server.kill();
    assert_eq!(refused(&server.url("app:hunter2@")).kind(), Kind::Unreachable);
}

#[test]
fn something_else_under_the_name_of_a_lock_is_no_lock() {
    let server = Server::start(&[]);
    redis::cmd("SET").arg("heirlock:{a}").arg("mine").exec(&mut server.connection("")).unwrap();
    let locks = connect(&server.url(""));
    let error = locks.lock("a").timeout(Duration::from_secs(2)).blocking().unwrap_err();
    assert_eq!(error.kind(), Kind::Incompatible, "{}", error.chain());
    assert!(locks.lock("b").ttl(TTL).blocking().unwrap().is_valid());
}

#[test]
fn a_server_without_memory_refuses_who_comes_and_keeps_who_is_there() {
    let server = Server::start(&[]);
    let mut admin = server.connection("");
    let mut set = |most: &str| redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(most).exec(&mut admin).unwrap();
    let locks = connect(&server.url(""));
    let lease = locks.lock("a").ttl(TTL).blocking().unwrap();
    set("100kb");
    for key in ["a", "b"] {
        let error = locks.lock(key).timeout(TTL * 2).blocking().unwrap_err();
        assert_eq!(error.kind(), Kind::Storage, "{}", error.chain());
        assert!(error.chain().contains("no memory left"), "{}", error.chain());
    }
    assert!(lease.is_valid(), "it is renewed all the same");
    lease.release_blocking().unwrap();
    set("0");
    assert!(locks.lock("a").no_wait().blocking().unwrap().is_valid());
}

/// A server that evicts takes single keys: the sorted sets are made anew from the hash, so that who holds goes on and who waits is not forgotten.
#[test]
fn a_lost_queue_is_found_again_in_the_hash() {
    let server = Server::start(&[]);
    let mut admin = server.connection("");
    let (locks, others) = (connect(&server.url("")), connect(&server.url("")));
    for (name, shared, lost) in [("a", false, "q"), ("b", false, "d"), ("c", true, "q"), ("d", true, "d")] {
        let hold = locks.lock(name).ttl(TTL);
        let lease = if shared { hold.shared() } else { hold }.blocking().unwrap();
        let waiting = std::thread::spawn({
            let others = others.clone();
            move || others.lock(name).ttl(TTL).blocking().map(|lease| lease.fence())
        });
        let view = || block_on(locks.inspect(name)).unwrap();
        let until = Instant::now() + TTL * 5;
        while view().queue.is_empty() {
            assert!(Instant::now() < until, "{name}: nobody waits");
        }
        let sets = format!("heirlock:{{{name}}}:{lost}");
        assert_eq!(redis::cmd("DEL").arg(&sets).query::<u32>(&mut admin).unwrap(), 1);
        // Longer than it holds without being renewed.
        let since = Instant::now();
        while since.elapsed() < TTL * 2 {
            assert!(lease.is_valid(), "{name} after {:?}", since.elapsed());
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!((view().holders.len(), view().queue.len()), (1, 1), "{name}");
        assert!(redis::cmd("PTTL").arg(&sets).query::<i64>(&mut admin).unwrap() > 0, "{name}: what is made anew does not stay for ever");
        let fence = lease.fence();
        lease.release_blocking().unwrap();
        assert!(waiting.join().unwrap().unwrap() > fence);
    }
}

/// Scripts that are forgotten, and connections that are cut: nobody notices.
#[test]
fn a_held_lease_outlives_flushed_scripts_and_cut_connections() {
    let server = Server::start(&[]);
    let mut admin = server.connection("");
    let (locks, others) = (connect(&server.url("")), connect(&server.url("")));
    let lease = locks.lock("a").ttl(TTL).blocking().unwrap();
    let waiting = std::thread::spawn({
        let others = others.clone();
        move || others.lock("a").ttl(TTL).blocking().map(|lease| lease.fence())
    });
    let since = Instant::now();
    while since.elapsed() < TTL * 2 {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).unwrap();
        for kind in ["normal", "pubsub"] {
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes").exec(&mut admin).unwrap();
        }
        std::thread::sleep(Duration::from_millis(250));
        assert!(lease.is_valid(), "after {:?}", since.elapsed());
    }
    // Hints come over the new connection, too; at the latest it looks within a second.
    let fence = lease.fence();
    lease.release_blocking().unwrap();
    assert!(waiting.join().unwrap().unwrap() > fence);
}

#[test]
fn case_s13_a_server_that_comes_back_with_its_data_and_one_without() {
    for (options, keeps) in [(&["--appendonly", "yes", "--appendfsync", "always"][..], true), (&["--appendonly", "no"], false)] {
        let mut server = Server::start(options);
        let locks = connect(&server.url(""));
        assert_eq!(locks.capabilities().durable, keeps);
        let lease = locks.lock("a").ttl(Duration::from_secs(6)).blocking().unwrap();
        let fence = lease.fence();
        server.kill();
        server.again();
        let others = connect(&server.url(""));
        if keeps {
            // It is renewed when the connection is there again, and nobody else had it.
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(7) {
                assert!(others.lock("a").no_wait().blocking().is_err_and(|error| error.is_busy()));
                assert!(lease.is_valid());
                std::thread::sleep(Duration::from_millis(100));
            }
            lease.release_blocking().unwrap();
            assert!(others.lock("a").blocking().unwrap().fence() > fence);
        } else {
            // Nobody knows of it any more: the holder is told at its next renewal, and fences have gone on all the same.
            assert!(others.lock("a").blocking().unwrap().fence() > fence);
            let reason = block_on(lease.lost());
            assert_eq!(reason, LostReason::Forgotten);
            drop(lease);
        }
    }
}
