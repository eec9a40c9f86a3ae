//! A client's wall clock that is set while it holds a lease of a Redis server: nobody looks at it. The server's own, by which leases are judged, is given to
//! the script by the tests in `src/store/redis/tests.rs`.
#![cfg(all(feature = "redis", target_os = "linux"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "common"]
mod common {
    pub(crate) mod elsewhere;
    #[allow(dead_code)]
    pub(crate) mod redis;
    pub(crate) mod wall_clock;
}

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::elsewhere::{again, inside, not_run};
use common::redis::Server;
use common::wall_clock::WallClock;
use heirlock::Locks;
use pollster::block_on;

const TTL: Duration = Duration::from_secs(2);

fn connect(url: &str) -> Locks {
    block_on(Locks::connect(url)).unwrap()
}

/// For so long nobody else gets the key.
fn assert_kept(locks: &Locks, span: Duration) {
    let since = Instant::now();
    while since.elapsed() < span {
        assert!(locks.lock("held").no_wait().blocking().is_err_and(|error| error.is_busy()), "after {:?}", since.elapsed());
        sleep(Duration::from_millis(50));
    }
}

/// How long it takes until somebody else has the key.
fn next(locks: &Locks) -> Duration {
    let since = Instant::now();
    drop(locks.lock("held").ttl(TTL).timeout(TTL * 5).blocking().unwrap());
    since.elapsed()
}

#[test]
fn case_s15_a_clients_wall_clock_jumps() {
    let test = "case_s15_a_clients_wall_clock_jumps";
    if let Some(url) = inside() {
        let _lease = connect(url.to_str().unwrap()).lock("held").ttl(TTL).blocking().unwrap();
        println!("held");
        loop {
            std::thread::park();
        }
    }
    let Some(clock) = WallClock::new() else {
        return not_run(test, "libfaketime (Debian: faketime)");
    };
    let server = Server::start(&[]);
    let locks = connect(&server.url(""));
    let mut command = again(&[], test, server.url("").as_ref());
    let mut holder = command.envs(clock.environment()).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("held")));
    for offset in ["+1h", "-1h", "+0"] {
        clock.set(offset);
        assert_kept(&locks, TTL * 3 / 2);
    }
    clock.set("+1h");
    holder.kill().unwrap();
    holder.wait().unwrap();
    let took = next(&locks);
    // Nothing early: it was renewed a third of the ttl before, at most, and as much again for a slow machine.
    assert!(took + TTL * 2 / 3 >= TTL && took <= TTL + Duration::from_secs(1), "held after {took:?}");
}
