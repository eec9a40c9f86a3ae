//! From the call of `release` in one process to the lease in another that waits, asleep.

use std::thread::sleep;
use std::time::{Duration, Instant};

use heirlock::clock::{BootClock, Clock};
use heirlock::{Lease, Locks};
use redis::Commands;

use crate::common::peer::Peer;
use crate::common::{Figure, Report, median, quantile};
use crate::raw::Raw;
use crate::{key, micros, python, runtime, server};

const TIMES: usize = 200;
/// The peers poll, some of them rarely.
const TIMES_OF_PEERS: usize = 30;
/// For a waiter to fall asleep.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) fn rows(report: &mut Report) {
    let (mut ours, mut hot, mut cold) = (Vec::new(), Vec::new(), Vec::new());
    let runtime = runtime();
    let watch = runtime.block_on(Locks::connect(&server())).unwrap();
    let mut raw = runtime.block_on(Raw::connect());
    let name = key("hand over");
    let mut peers = [Peer::start(&["heirlock", &name]), Peer::start(&["heirlock", &name])];
    peers[0].ask("lock");
    peers[0].answer();
    for round in 0..TIMES {
        let (holder, waiter) = turns(round);
        peers[waiter].ask("lock");
        while runtime.block_on(watch.inspect(&name)).unwrap().queue.is_empty() {
            std::thread::yield_now();
        }
        sleep(PAUSE);
        ours.push(hand_over(&mut peers, holder, waiter));
        // Of that run, too: a round trip in a task that has slept as the waiter has, and one of many.
        (raw, _) = runtime.block_on(async { tokio::spawn(round_trips(raw, 5)).await.unwrap() });
        sleep(PAUSE);
        let both;
        (raw, both) = runtime.block_on(async { tokio::spawn(round_trips(raw, 20)).await.unwrap() });
        cold.push(both[0]);
        hot.extend_from_slice(&both[10..]);
    }
    drop(peers);
    let (hot, cold) = (median(&mut hot), median(&mut cold));
    let (middle, most) = (median(&mut ours), quantile(&mut ours, 1.0));
    let row = |what: &str, ours: f64, peer: String, measured: f64, aim: Option<f64>| Figure {
        what: what.into(),
        ours: format!("{ours:.0} us"),
        peer,
        measured,
        aim,
        unit: "x",
    };
    report.add(row(
        "wake-up of a waiter after a release, median; a raw round trip",
        middle,
        format!("{hot:.0} us"),
        middle / hot,
        Some(4.0),
    ));
    report.add(row(
        "the same; a raw round trip after a pause as long as the waiter's",
        middle,
        format!("{cold:.0} us"),
        middle / cold,
        None,
    ));
    report.add(row("the longest of those wake-ups; a raw round trip", most, format!("{hot:.0} us"), most / hot, None));
    let peers = std::iter::once(("rslock", Some(rslock()))).chain(python::LIBRARIES.map(|library| (library, of_python(library))));
    for (peer, times) in peers {
        let what = "wake-up of a waiter after a release, median";
        let Some(mut times) = times else {
            report.add(python::not_run(&format!("{what}; {peer}")));
            continue;
        };
        let (median, most) = (median(&mut times), quantile(&mut times, 1.0));
        report.add(row(what, middle, format!("{peer} {:.1}, most {:.1} ms", median / 1e3, most / 1e3), middle / median, None));
    }
}

fn of_python(library: &str) -> Option<Vec<f64>> {
    let told = python::run(&["hand_over", library, &TIMES_OF_PEERS.to_string()])?;
    Some(told.as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect())
}

async fn round_trips(mut raw: Raw, times: usize) -> (Raw, Vec<f64>) {
    let mut spans = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        raw.round_trip("heirlock-bench:raw").await;
        spans.push(micros(start.elapsed()));
    }
    (raw, spans)
}

fn turns(round: usize) -> (usize, usize) {
    if round.is_multiple_of(2) { (0, 1) } else { (1, 0) }
}

/// In microseconds.
fn hand_over(peers: &mut [Peer; 2], holder: usize, waiter: usize) -> f64 {
    peers[holder].ask("release");
    let (released, acquired) = (peers[holder].answer(), peers[waiter].answer());
    micros(Duration::from_nanos(acquired.saturating_sub(released)))
}

fn rslock() -> Vec<f64> {
    let name = key("hand over, rslock");
    let mut peers = [Peer::start(&["rslock", &name]), Peer::start(&["rslock", &name])];
    let mut connection = redis::Client::open(server()).unwrap().get_connection().unwrap();
    peers[0].ask("lock");
    peers[0].answer();
    let mut times = Vec::new();
    for round in 0..TIMES_OF_PEERS {
        let (holder, waiter) = turns(round);
        peers[waiter].ask("lock");
        // Nobody sees who waits; it has tried once by then.
        sleep(PAUSE * 10);
        let held: bool = connection.exists(&name).unwrap();
        assert!(held);
        times.push(hand_over(&mut peers, holder, waiter));
    }
    times
}

fn tell(at: u64) {
    println!("{at}");
}

fn now() -> u64 {
    BootClock.now().as_nanos()
}

/// Does what it is told, in a task, and says when.
pub(crate) fn peer(kind: &str, name: &str) {
    let runtime = runtime();
    let name = name.to_owned();
    let (words, mut heard) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            words.send(line.unwrap()).unwrap();
        }
    });
    let rslock = kind == "rslock";
    let work = async move {
        if rslock {
            let manager = rslock::LockManager::new(vec![server()]);
            let mut guard = None;
            tell(now());
            while let Some(word) = heard.recv().await {
                if word == "lock" {
                    guard = Some(manager.acquire(name.as_str(), Duration::from_secs(30)).await.unwrap());
                    tell(now());
                } else {
                    let at = now();
                    guard.take().unwrap().release().await;
                    tell(at);
                }
            }
        } else {
            let locks = Locks::connect(&server()).await.unwrap();
            let mut lease: Option<Lease> = None;
            tell(now());
            while let Some(word) = heard.recv().await {
                if word == "lock" {
                    lease = Some(locks.lock(&name).await.unwrap());
                    tell(now());
                } else {
                    let at = now();
                    lease.take().unwrap().release().await.unwrap();
                    tell(at);
                }
            }
        }
    };
    runtime.block_on(async { tokio::spawn(work).await.unwrap() });
}
