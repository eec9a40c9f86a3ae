//! Leases on the embedded store beside raw SQLite, and between processes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::peer::Peer;
use common::{Figure, Report, cpu_seconds, median, micros_each, quantile};
use heirlock::lease::{Enter, Key, Leave, Mode, Owner, SessionId, Store, Terms, Token};
use heirlock::store::SqliteStore;
use heirlock::{Lease, Locks};
use pollster::block_on;

const ROUNDS: usize = 11;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "peer") {
        return peer(&args[2]);
    }
    let report = Report::new("sqlite");
    let groups: [common::Group; 6] =
        [("cycle", cycle), ("several", several), ("crowd", crowd), ("hand_over", hand_over), ("waiting", waiting), ("held", held)];
    common::run_groups(report, &groups, &args[1..]);
}

/// Acquire and release, beside the two raw transactions that no lease on SQLite can do without.
fn cycle(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let raw = rusqlite::Connection::open(folder.path().join("raw.db")).unwrap();
    // As fast as a lease kept by hand could be: a clustered table, everything prepared, SQLite's own settings otherwise.
    raw.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
         CREATE TABLE lease(name TEXT PRIMARY KEY, token BLOB, fence INTEGER) WITHOUT ROWID",
    )
    .unwrap();
    let run = |sql: &str| raw.prepare_cached(sql).unwrap().execute([]).unwrap();
    let locks = block_on(Locks::connect(&format!("sqlite:{}", folder.path().join("ours.db").display()))).unwrap();
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let a = micros_each(1000, || {
            let lease = locks.lock_blocking("k").unwrap();
            lease.release_blocking().unwrap();
        });
        let b = micros_each(1000, || {
            run("BEGIN IMMEDIATE");
            run("INSERT INTO lease VALUES ('k', randomblob(16), 1)");
            run("COMMIT");
            run("BEGIN IMMEDIATE");
            run("DELETE FROM lease WHERE name = 'k'");
            run("COMMIT");
        });
        // The first round warms up.
        if round > 0 {
            ours.push(a);
            theirs.push(b);
            ratios.push(a / b);
        }
    }
    report.add(Figure {
        what: "acquire + release, one process; two raw WAL transactions".into(),
        ours: format!("{:.1} us", median(&mut ours)),
        peer: format!("{:.1} us", median(&mut theirs)),
        measured: median(&mut ratios),
        aim: Some(1.5),
        unit: "x",
    });
}

/// Ten keys at once, beside one.
fn several(report: &mut Report) {
    const KEYS: usize = 10;
    let folder = tempfile::tempdir().unwrap();
    let locks = block_on(Locks::connect(&format!("sqlite:{}", folder.path().join("several.db").display()))).unwrap();
    let keys: Vec<String> = (0..KEYS).map(|at| format!("k{at}")).collect();
    let (mut ten, mut one, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let a = micros_each(100, || {
            locks.lock_all(&keys).blocking().unwrap().release_blocking().unwrap();
        });
        let b = micros_each(1000, || {
            locks.lock_blocking("k").unwrap().release_blocking().unwrap();
        });
        // The first round warms up.
        if round > 0 {
            ten.push(a);
            one.push(b);
            ratios.push(a / b);
        }
    }
    report.add(Figure {
        what: format!("`lock_all` of {KEYS} keys + release; of one key"),
        ours: format!("{:.1} us", median(&mut ten)),
        peer: format!("{:.1} us", median(&mut one)),
        measured: median(&mut ratios),
        aim: Some(12.0),
        unit: "x",
    });
}

/// `enter` and `leave` of a waiter behind 10,000 others, and behind 10.
fn crowd(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("crowd.db")).unwrap();
    let key = |name: &str| Key::new(name).unwrap();
    let (few, many) = (key("few"), key("many"));
    let owner = Arc::new(Owner::default());
    let enter = |token: Token, priority: i32| Enter {
        token,
        session: SessionId(1),
        seq: 1,
        priority,
        mode: Mode::Exclusive,
        terms: Terms { queue_life: 3_600_000, ..Terms::new(3_600_000) },
        may_queue: true,
        owner: Arc::clone(&owner),
    };
    for (key, queued) in [(&few, 10), (&many, 10_000)] {
        for at in 0..=queued {
            block_on(store.enter(key, enter(Token::random().unwrap(), at % 5))).unwrap();
        }
    }
    let one = |key: &Key| {
        micros_each(300, || {
            let token = Token::random().unwrap();
            block_on(store.enter(key, enter(token, 2))).unwrap();
            block_on(store.leave(key, Leave { token, settled: true })).unwrap();
        })
    };
    let (mut of_few, mut of_many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, b) = (one(&many), one(&few));
        if round > 0 {
            of_many.push(a);
            of_few.push(b);
            ratios.push(a / b);
        }
    }
    report.add(Figure {
        what: "enter + leave of a waiter, 10,000 queued; 10 queued".into(),
        ours: format!("{:.1} us", median(&mut of_many)),
        peer: format!("{:.1} us", median(&mut of_few)),
        measured: median(&mut ratios),
        aim: Some(3.0),
        unit: "x",
    });
}

/// From the call of `release` in one process to the lease in another.
fn hand_over(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("hand.db").display());
    let mut peers = [Peer::start(&[&url]), Peer::start(&[&url])];
    let watch = block_on(Locks::connect(&url)).unwrap();
    let mut times = Vec::new();
    peers[0].ask("lock");
    peers[0].answer();
    for round in 0..400 {
        let (holder, waiter) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        peers[waiter].ask("lock");
        while block_on(watch.inspect("k")).unwrap().queue.is_empty() {
            std::thread::yield_now();
        }
        // The watcher is quiet from here on; the waiter has had time to fall asleep.
        std::thread::sleep(Duration::from_millis(2));
        peers[holder].ask("release");
        let (released, acquired) = (peers[holder].answer(), peers[waiter].answer());
        times.push(Duration::from_nanos(acquired.saturating_sub(released)).as_secs_f64() * 1e3);
    }
    let (middle, p99) = (median(&mut times), quantile(&mut times, 0.99));
    let show = |ms: f64| format!("{ms:.3} ms");
    report.add(Figure {
        what: "hand-over between processes, median".into(),
        ours: show(middle),
        peer: "-".into(),
        measured: middle,
        aim: Some(0.5),
        unit: " ms",
    });
    report.add(Figure {
        what: "hand-over between processes, p99".into(),
        ours: show(p99),
        peer: "-".into(),
        measured: p99,
        aim: Some(5.0),
        unit: " ms",
    });
}

/// What a hundred processes that wait for one key cost together.
fn waiting(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("wait.db").display());
    let locks = block_on(Locks::connect(&url)).unwrap();
    let lease = locks.lock_blocking("k").unwrap();
    let mut peers: Vec<Peer> = (0..100).map(|_| Peer::start(&[&url])).collect();
    for peer in &mut peers {
        peer.ask("lock");
    }
    while block_on(locks.inspect("k")).unwrap().queue.len() < 100 {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let cpu = |peers: &[Peer]| peers.iter().map(|peer| cpu_seconds(peer.child.id())).sum::<f64>();
    let (before, start) = (cpu(&peers), Instant::now());
    std::thread::sleep(Duration::from_secs(20));
    let share = (cpu(&peers) - before) / start.elapsed().as_secs_f64() * 100.0;
    assert!(lease.is_valid(), "a hundred waiters must not keep a holder from renewing");
    report.add(Figure {
        what: "100 waiting processes, of one core together".into(),
        ours: format!("{share:.2}%"),
        peer: "-".into(),
        measured: share,
        aim: Some(5.0),
        unit: "%",
    });
}

/// Does what it is told, and says when.
fn peer(url: &str) {
    use heirlock::clock::{BootClock, Clock};
    let locks = block_on(Locks::connect(url)).unwrap();
    println!("{}", BootClock.now().as_nanos());
    let mut lease: Option<Lease> = None;
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "lock" => {
                lease = Some(locks.lock_blocking("k").unwrap());
                println!("{}", BootClock.now().as_nanos());
            }
            "release" => {
                let at = BootClock.now().as_nanos();
                lease.take().unwrap().release_blocking().unwrap();
                println!("{at}");
            }
            other => panic!("{other}?"),
        }
    }
}

/// One session that holds 10,000 keys: what keeping them costs, and whom that keeps waiting.
fn held(report: &mut Report) {
    const KEYS: u32 = 10_000;
    const SPAN: Duration = Duration::from_secs(20);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("held.db").display());
    let (locks, other) = (block_on(Locks::connect(&url)).unwrap(), block_on(Locks::connect(&url)).unwrap());
    let cycle = || {
        let asked = Instant::now();
        other.lock_blocking("other").unwrap().release_blocking().unwrap();
        asked.elapsed()
    };
    // What the other client costs by itself, and how long it then takes.
    let pause = Duration::from_millis(20);
    let (cpu, begun) = (cpu_seconds(std::process::id()), Instant::now());
    let mut alone = Duration::ZERO;
    while begun.elapsed() < SPAN / 4 {
        alone = alone.max(cycle());
        std::thread::sleep(pause);
    }
    let idle = (cpu_seconds(std::process::id()) - cpu) / begun.elapsed().as_secs_f64();
    let before = resident_bytes();
    let leases: Vec<Lease> =
        (0..KEYS).map(|number| locks.lock(format!("key {number}")).ttl(Duration::from_secs(10)).blocking().unwrap()).collect();
    let bytes = (resident_bytes() - before).max(0.0) / f64::from(KEYS);
    let (cpu, begun) = (cpu_seconds(std::process::id()), Instant::now());
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < SPAN {
        slowest = slowest.max(cycle());
        std::thread::sleep(pause);
    }
    let share = (cpu_seconds(std::process::id()) - cpu) / begun.elapsed().as_secs_f64() - idle;
    assert!(leases.iter().all(Lease::is_valid), "none may be lost");
    let figure = |what: &str, ours: String, peer: &str, measured: f64, aim: f64, unit: &'static str| Figure {
        what: what.into(),
        ours,
        peer: peer.into(),
        measured,
        aim: Some(aim),
        unit,
    };
    report.add(figure("10,000 keys held, ttl 10 s: of one core", format!("{:.1}%", share * 100.0), "-", share * 100.0, 5.0, "%"));
    report.add(figure(
        "the longest acquire + release of another client meanwhile, and without",
        format!("{:.1} ms", slowest.as_secs_f64() * 1e3),
        &format!("{:.1} ms", alone.as_secs_f64() * 1e3),
        slowest.as_secs_f64() * 1e3,
        30.0,
        "ms",
    ));
    report.add(figure("memory of a held lease", format!("{bytes:.0} bytes"), "-", bytes, 1024.0, "bytes"));
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}
