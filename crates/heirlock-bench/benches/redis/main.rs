//! Leases in Redis beside raw commands on a connection of the same driver, and beside other lock libraries: in one run, alternately.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../heirlock/benches/common/mod.rs"]
mod common;
mod contended;
mod hand_over;
mod python;
mod raw;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::{Figure, Report, cpu_seconds, median};
use heirlock::lease::SessionId;
use heirlock::{Lease, Locks};
use raw::Raw;
use tokio::runtime::Runtime;

const ROUNDS: usize = 11;
const CYCLES: u32 = 1000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "peer") {
        return hand_over::peer(&args[2], &args[3]);
    }
    let report = Report::new("redis");
    let groups: [common::Group; 6] = [
        ("cycle", cycle),
        ("hand_over", hand_over::rows),
        ("contended", contended::rows),
        ("distinct", contended::distinct),
        ("held", held),
        ("idle", idle),
    ];
    common::run_groups(report, &groups, &args[1..]);
}

/// The server that `ci/services` has started.
fn server() -> String {
    std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run it by ci/bench, or by ci/services")
}

/// As users have it: with a thread for each core.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// A key that no earlier run has used.
fn key(name: &str) -> String {
    static RUN: OnceLock<u64> = OnceLock::new();
    format!("heirlock-bench {:x}: {name}", RUN.get_or_init(|| SessionId::random().unwrap().0))
}

/// What the server has counted of these commands so far, `calls` or `usec`.
fn commands(names: &[&str], what: &str) -> f64 {
    let mut connection = redis::Client::open(server()).unwrap().get_connection().unwrap();
    let told: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
    let count = |name: &&str| -> f64 {
        let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(name)?.strip_prefix(':'));
        let count = line.and_then(|line| line.split(',').find_map(|part| part.strip_prefix(what)?.strip_prefix('=')));
        count.map_or(0.0, |count| count.parse().unwrap())
    };
    names.iter().map(count).sum()
}

/// Acquire and release with nobody in the way, beside the two commands that no lease in Redis can do without.
fn cycle(report: &mut Report) {
    let threads = runtime();
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A task is where a server's requests are handled; `main` runs beside the threads of its runtime, which costs both a change of thread.
    let ways: [(&str, &Runtime, bool, Option<f64>); 3] = [
        ("a task of a runtime with many threads", &threads, true, Some(1.25)),
        ("`main` of a runtime with many threads", &threads, false, None),
        ("a runtime with one thread", &one, false, None),
    ];
    for (way, runtime, is_task, aim) in ways {
        let (locks, mut raw) = runtime.block_on(async { (Locks::connect(&server()).await.unwrap(), Raw::connect().await) });
        let name = key("cycle");
        let work = async move {
            let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            let (mut our_cost, mut their_cost) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            for round in 0..=ROUNDS {
                let meter = Meter::start();
                for _ in 0..CYCLES {
                    locks.lock(&name).await.unwrap().release().await.unwrap();
                }
                let a = meter.each(CYCLES);
                let meter = Meter::start();
                for _ in 0..CYCLES {
                    raw.cycle(&name).await;
                }
                let b = meter.each(CYCLES);
                // The first round warms up.
                if round > 0 {
                    ours.push(a.wall);
                    theirs.push(b.wall);
                    ratios.push(a.wall / b.wall);
                    our_cost[0].push(a.client);
                    our_cost[1].push(a.server);
                    their_cost[0].push(b.client);
                    their_cost[1].push(b.server);
                }
            }
            let middles = |mut cost: [Vec<f64>; 2]| cost.each_mut().map(|cost| median(cost));
            let costs = middles(our_cost).into_iter().zip(middles(their_cost)).collect::<Vec<_>>();
            (median(&mut ours), median(&mut theirs), median(&mut ratios), costs)
        };
        let (ours, theirs, ratio, costs) =
            if is_task { runtime.block_on(async { tokio::spawn(work).await.unwrap() }) } else { runtime.block_on(work) };
        let mut row = |what: String, ours: f64, theirs: f64, measured: f64, aim: Option<f64>| {
            let (ours, peer) = (format!("{ours:.1} us"), format!("{theirs:.1} us"));
            report.add(Figure { what, ours, peer, measured, aim, unit: "x" });
        };
        row(format!("acquire + release in {way}; SET NX PX + EVALSHA of compare and delete there"), ours, theirs, ratio, aim);
        // What depends less on what else the machine does.
        if is_task {
            for (of, (ours, theirs)) in ["the client's processor time, all threads", "the server's commands"].iter().zip(costs) {
                row(format!("of that: {of}"), ours, theirs, ours / theirs, None);
            }
        }
    }
}

/// What something takes.
struct Meter {
    since: Instant,
    cost: Cost,
}

/// In microseconds: by the clock, of the client's processor, of the server's commands.
struct Cost {
    wall: f64,
    client: f64,
    server: f64,
}

impl Cost {
    fn so_far() -> Cost {
        Cost { wall: 0.0, client: cpu_seconds(std::process::id()) * 1e6, server: commands(&["evalsha", "set"], "usec") }
    }
}

impl Meter {
    fn start() -> Meter {
        let cost = Cost::so_far();
        Meter { since: Instant::now(), cost }
    }

    fn each(self, times: u32) -> Cost {
        let (wall, now) = (micros(self.since.elapsed()), Cost::so_far());
        let each = |total: f64| total / f64::from(times);
        Cost { wall: each(wall), client: each(now.client - self.cost.client), server: each(now.server - self.cost.server) }
    }
}

/// One session that holds 10,000 keys at the default ttl: what keeping them costs the process.
fn held(report: &mut Report) {
    const KEYS: u32 = 10_000;
    const SPAN: Duration = Duration::from_secs(20);
    let runtime = runtime();
    let locks = runtime.block_on(Locks::connect(&server())).unwrap();
    let leases = runtime.block_on(async {
        let mut leases = Vec::new();
        for number in 0..KEYS {
            leases.push(locks.lock(key(&format!("held {number}"))).await.unwrap());
        }
        leases
    });
    let (cpu, begun) = (cpu_seconds(std::process::id()), Instant::now());
    let before = commands(&["evalsha"], "calls");
    std::thread::sleep(SPAN);
    let share = (cpu_seconds(std::process::id()) - cpu) / begun.elapsed().as_secs_f64() * 100.0;
    let each = (commands(&["evalsha"], "calls") - before) / begun.elapsed().as_secs_f64();
    assert!(leases.iter().all(Lease::is_valid), "none may be lost");
    assert!(each > f64::from(KEYS) / 10.0 * 0.8, "they are renewed each 10 s, and {each} a second were");
    report.add(Figure {
        what: format!("{KEYS} keys held, default ttl, {each:.0} renewals/s: of one core, all threads"),
        ours: format!("{share:.1}%"),
        peer: "-".into(),
        measured: share,
        aim: Some(10.0),
        unit: "%",
    });
    runtime.block_on(async { locks.close().await });
}

/// A hundred who wait for one key: how often the server hears of them.
fn idle(report: &mut Report) {
    const WAITERS: u32 = 100;
    const SPAN: Duration = Duration::from_secs(20);
    let runtime = runtime();
    let name = key("idle");
    let (holder, locks) = runtime.block_on(async { (Locks::connect(&server()).await.unwrap(), Locks::connect(&server()).await.unwrap()) });
    let lease = runtime.block_on(async { holder.lock(&name).await.unwrap() });
    for _ in 0..WAITERS {
        let (locks, name) = (locks.clone(), name.clone());
        runtime.spawn(async move { drop(locks.lock(&name).await) });
    }
    while runtime.block_on(locks.inspect(&name)).unwrap().queue.len() < WAITERS as usize {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let (before, begun) = (commands(&["evalsha"], "calls"), Instant::now());
    std::thread::sleep(SPAN);
    let (calls, seconds) = (commands(&["evalsha"], "calls") - before, begun.elapsed().as_secs_f64());
    // The first four look each second, the others each third of the 15 s that a place is kept; the holder renews each 10 s.
    let beats = (4.0 / 1.0 + f64::from(WAITERS - 4) / 5.0 + 1.0 / 10.0) * seconds;
    assert!(lease.is_valid(), "a hundred waiters must not keep a holder from renewing");
    report.add(Figure {
        what: format!("{WAITERS} idle waiters for one key: scripts in {seconds:.0} s, all clients; beats due then"),
        ours: format!("{calls}"),
        peer: format!("{beats:.0}"),
        measured: calls / beats,
        aim: Some(1.0),
        unit: "x",
    });
    runtime.block_on(async { locks.close().await });
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}
