//! The scripts for Redis, on the server of `HEIRLOCK_TEST_REDIS`, which `ci/services` sets.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heirlock::lease::fence_lua::REDIS;
use heirlock::lease::{Fences, HolderId, Key, Sequencer, SessionId};
use redis::{Client, Connection, RedisResult, cmd};

use crate::naive::{KEY, Shown, exclusive, refuses, shared, slot};
use crate::random::{Random, seed};

fn url() -> String {
    std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run the tests by ci/test, or by ci/services")
}

/// What is guarded: a list of who wrote, under names that no other test has.
struct Resource {
    server: Connection,
    fences: String,
    written: String,
}

impl Resource {
    fn new(test: &str) -> Resource {
        Resource::again(&format!("{{{test} {:016x}}}", SessionId::random().unwrap().0))
    }

    fn again(tag: &str) -> Resource {
        let server = Client::open(url()).unwrap().get_connection().unwrap();
        Resource { server, fences: format!("{tag}:fences"), written: format!("{tag}:written") }
    }

    fn run<T: redis::FromRedisValue>(&mut self, script: &str, by: &Sequencer, keep: Option<Duration>, more: &[String]) -> RedisResult<T> {
        let keys = [&self.fences, &self.written];
        cmd("EVAL").arg(script).arg(2).arg(&keys).arg(&by.arguments(keep)).arg(more).query(&mut self.server)
    }

    fn advance(&mut self, by: &Sequencer) -> bool {
        match self.run(REDIS.advance, by, None, &[]).unwrap() {
            0 => false,
            1 => true,
            other => panic!("{other}"),
        }
    }

    /// How many wrote before it; none for who is late.
    fn read(&mut self, by: &Sequencer) -> Option<usize> {
        let script = [REDIS.check_read, "return redis.call('LLEN', KEYS[2])"].concat();
        self.run(&script, by, None, &[]).unwrap()
    }

    /// Writes that it was here, if it is good. Its names are those of the check, too: they do not meet.
    fn write(&mut self, by: &Sequencer) -> bool {
        let script = [REDIS.check_write, "local name, seen = ARGV[7], redis.call('RPUSH', KEYS[2], ARGV[7])\nreturn name"].concat();
        let answer: Option<String> = self.run(&script, by, None, &[by.to_string()]).unwrap();
        assert!(answer.is_none() || answer == Some(by.to_string()), "{answer:?}");
        answer.is_some()
    }

    fn written(&mut self) -> Vec<Sequencer> {
        let all: Vec<String> = cmd("LRANGE").arg(&self.written).arg(0).arg(-1).query(&mut self.server).unwrap();
        all.iter().map(|by| by.parse().unwrap()).collect()
    }

    /// How long the fences stay: -1 for ever, -2 if there are none.
    fn stays_ms(&mut self) -> i64 {
        cmd("PTTL").arg(&self.fences).query(&mut self.server).unwrap()
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        if !thread::panicking() {
            cmd("DEL").arg(&self.fences).arg(&self.written).exec(&mut self.server).unwrap();
        }
    }
}

#[test]
fn case_s27_late_scripts_are_refused_by_redis() {
    let mut account = Resource::new("late");
    let (old, new) = (exclusive(5, 1), exclusive(6, 2));
    assert!(!account.write(&old) && account.read(&old).is_none(), "it has not advanced");
    assert!(account.advance(&old) && account.write(&old));
    assert!(!account.write(&new), "it must advance before it reads");
    assert!(account.advance(&new));
    assert!(!account.write(&old) && account.read(&old).is_none() && !account.advance(&old));
    assert!(!account.advance(&exclusive(6, 3)), "an equal fence of another holder");
    assert!(!account.write(&exclusive(6, 3)));
    assert!(account.advance(&new) && account.write(&new) && account.read(&new) == Some(2));
    assert_eq!(account.written(), [old, new]);
}

#[test]
fn case_s27_two_slots_both_write_in_redis() {
    let mut pool = Resource::new("slots");
    let (one, two) = (slot(5, 0, 2, 1), slot(6, 1, 2, 2));
    assert!(pool.advance(&one) && pool.advance(&two));
    assert!(pool.write(&two) && pool.write(&one), "slots stand beside each other");
    assert!(pool.advance(&slot(7, 0, 2, 3)) && !pool.write(&one) && pool.write(&two));
    // The key was free in between, and is held in another way: nobody of the old one comes back.
    assert!(pool.advance(&shared(9)) && pool.read(&shared(9)).is_some() && !pool.write(&shared(9)), "readers never write");
    assert!(!pool.advance(&two) && !pool.advance(&slot(8, 1, 2, 4)) && !pool.write(&two));
    assert!(pool.advance(&slot(10, 0, 3, 5)) && !pool.advance(&slot(9, 2, 3, 6)), "9 was shown, by another");
    let fields: u32 = cmd("HLEN").arg(&pool.fences).query(&mut pool.server).unwrap();
    assert_eq!(fields, 5, "and nothing is kept of it");
}

#[test]
fn fences_beyond_what_lua_can_count_are_told_apart() {
    let mut account = Resource::new("large");
    // 2^53 and its successor are one number to Lua; text of another length is compared by that.
    for (before, after) in [(9, 10), (1 << 53, (1 << 53) + 1), (u64::MAX - 1, u64::MAX)] {
        let (old, new) = (exclusive(before, 1), exclusive(after, 2));
        assert!(account.advance(&old) && account.write(&old), "{before}");
        assert!(account.advance(&new) && !account.write(&old) && !account.advance(&old), "{after} after {before}");
    }
}

#[test]
fn a_lease_on_another_key_and_nonsense_are_errors_and_change_nothing() {
    let mut account = Resource::new("nonsense");
    account.advance(&exclusive(5, 1));
    let other = Sequencer::exclusive(Key::new("K").unwrap(), 9, HolderId(1)).unwrap();
    let check = [REDIS.check_write, "return 1"].concat();
    for script in [REDIS.advance, &check] {
        let error = account.run::<u8>(script, &other, None, &[]).unwrap_err();
        assert!(error.to_string().contains("a lease on K does not guard what leases on k do"), "{error}");
        for bad in [
            &[][..],
            &["k", "0", "5", "0", "1"],
            &["k", "0", "005", "0", "1", ""],
            &["k", "0", "x", "0", "1", ""],
            &["k", "0", "6", "0", "1", "1 day"],
        ] {
            let told: RedisResult<u8> = cmd("EVAL").arg(script).arg(1).arg(&account.fences).arg(bad).query(&mut account.server);
            let error = told.unwrap_err();
            assert!(error.to_string().contains("the first six arguments are"), "{bad:?}: {error}");
        }
    }
    assert!(account.write(&exclusive(5, 1)));
}

#[test]
fn fences_stay_for_ever_or_as_long_as_they_are_told_to() {
    let mut account = Resource::new("keep");
    let (one, two) = (exclusive(5, 1), exclusive(6, 2));
    assert!(account.advance(&one));
    assert_eq!(account.stays_ms(), -1);
    let day = Duration::from_secs(86_400);
    assert_eq!(account.run::<u8>(REDIS.advance, &one, Some(day), &[]).unwrap(), 1);
    let stays = account.stays_ms();
    assert!(stays > 86_000_000 && stays <= 86_400_000, "{stays}");
    // A checked write counts anew, a read does not.
    let [read, write] = [REDIS.check_read, REDIS.check_write].map(|check| [check, "return 1"].concat());
    assert_eq!(account.run::<Option<u8>>(&write, &one, Some(2 * day), &[]).unwrap(), Some(1));
    assert!(account.stays_ms() > 172_000_000);
    assert_eq!(account.run::<Option<u8>>(&read, &one, Some(day), &[]).unwrap(), Some(1));
    assert!(account.stays_ms() > 172_000_000);
    assert!(account.advance(&one), "and for ever again");
    assert_eq!(account.stays_ms(), -1);
    assert_eq!(account.run::<u8>(REDIS.advance, &two, Some(Duration::from_nanos(1)), &[]).unwrap(), 1);
    let since = Instant::now();
    while account.stays_ms() != -2 {
        assert!(since.elapsed() < Duration::from_secs(10), "they stay");
    }
    // They are gone: nobody writes who does not advance first.
    assert!(!account.write(&two) && !account.write(&one));
    assert!(account.advance(&two) && account.write(&two) && !account.advance(&one));
}

/// What docs/fences.md shows is what happens.
#[test]
fn the_console_of_the_guide_shows_what_happens() {
    let page = include_str!("../../../../docs/fences.md");
    let section = page.split("## In Redis, by Lua").nth(1).unwrap().split("\n## ").next().unwrap();
    let pay = section.split("const PAY: &str = \"").nth(1).unwrap().split("\";").next().unwrap();
    let console = section.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("advance.lua"), REDIS.advance).unwrap();
    std::fs::write(folder.path().join("pay.lua"), [REDIS.check_write, pay].concat()).unwrap();
    let mut account = Resource::new("guide");
    let tag = account.fences.strip_suffix(":fences").unwrap().to_owned();
    cmd("SET").arg(format!("{tag}:balance")).arg(100).exec(&mut account.server).unwrap();
    let (mut typed, mut told) = (0, String::new());
    for line in console.lines().filter_map(|line| line.strip_prefix("$ redis-cli ")) {
        let script = format!("redis-cli --no-raw -u {} {}", url(), line.replace("{account 7}:", &format!("{tag}:")));
        let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        told += &format!("$ redis-cli {line}\n{}", String::from_utf8(output.stdout).unwrap());
        typed += 1;
    }
    assert_eq!((typed, told.as_str()), (4, console));
    cmd("DEL").arg(format!("{tag}:balance")).exec(&mut account.server).unwrap();
}

#[test]
fn random_holders_are_judged_as_by_the_rule_in_redis() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut counts = [0; 2];
    for round in 0..20 {
        let mut account = Resource::new("random");
        let (mut rule, mut shown) = (Fences::new(Key::new(KEY).unwrap()), Shown::new(seed ^ round));
        for step in 0..250 {
            let by = shown.next();
            let (is, must) = if shown.chance(50) {
                (account.advance(&by), rule.advance(&by).is_ok())
            } else {
                let must = rule.check(&by).is_ok();
                assert_eq!(account.write(&by), must && by.may_write(), "seed {seed}, round {round}, step {step}: {by}, where {rule:?}");
                (account.read(&by).is_some(), must)
            };
            assert_eq!(is, must, "seed {seed}, round {round}, step {step}: {by}, where {rule:?}");
            counts[usize::from(must)] += 1;
        }
    }
    println!("{counts:?} late and good");
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}: a test of little");
}

/// As `random_threads_never_write_late` of values in memory, by four connections.
#[test]
fn random_connections_never_write_late_in_redis() {
    const CONNECTIONS: u64 = 4;
    const STEPS: u32 = 500;
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut all = Resource::new("connections");
    let tag = all.fences.strip_suffix(":fences").unwrap().to_owned();
    let granted = AtomicU64::new(1);
    let run = |connection| {
        let (mut random, mut account, mut told) = (Random::new(seed, connection), Resource::again(&tag), 0);
        let mut mine = Vec::new();
        for _ in 0..STEPS {
            if mine.len() < 3 {
                let fence = granted.fetch_add(1, Ordering::Relaxed);
                mine.push(if (fence / 20).is_multiple_of(2) {
                    exclusive(fence, fence)
                } else {
                    slot(fence, u32::from(fence.is_multiple_of(3)), 2, fence)
                });
            }
            let by: Sequencer = mine.swap_remove(random.index(mine.len()));
            if !account.advance(&by) {
                continue;
            }
            let Some(before) = account.read(&by) else { continue };
            if account.write(&by) {
                told += 1;
                let written = account.written();
                let at = before + written[before..].iter().position(|other| *other == by).unwrap();
                let passed = written[before..at].iter().find(|other| refuses(&by, other));
                assert!(passed.is_none(), "seed {seed}: {passed:?} wrote after {by} had advanced");
            }
            if random.chance(50) {
                mine.push(by);
            }
        }
        // What is there is the others', too.
        std::mem::forget(account);
        told
    };
    let told: usize = thread::scope(|threads| {
        let run = &run;
        let all: Vec<_> = (0..CONNECTIONS).map(|connection| threads.spawn(move || run(connection))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let written = all.written();
    println!("{} written", written.len());
    assert_eq!(written.len(), told, "what was told to be written is there");
    assert!(told > 50 && told < 2_000, "{told} of 2000: a test of little");
    for (at, by) in written.iter().enumerate() {
        let passed = written[..at].iter().find(|before| refuses(before, by));
        assert!(passed.is_none(), "seed {seed}: {by} wrote behind {passed:?}");
    }
}
