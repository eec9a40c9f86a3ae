//! What the guides say that heirlock says is what it says.

use std::sync::Arc;
use std::time::Duration;

use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, Mutex, Promise, RwLock};

use crate::common::traced::{hears_leveled, listen};
use crate::{in_time, once};

const DEADLOCKS: &str = include_str!("../../../../docs/deadlocks.md");
const CONTENTION: &str = include_str!("../../../../docs/contention.md");

/// The text without what differs from run to run: how its lines are broken, places in files, numbers of tasks, spans of time.
fn plain(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let number = word.trim_end_matches([',', ';', ':']);
        let word = match word.split_once(".rs:") {
            Some((path, line)) => {
                let before = path.rfind(['(', '=']).map_or("", |at| &path[..=at]);
                format!("{before}FILE{}", line.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
            None if words.last().is_some_and(|word| word.ends_with("task")) && number.parse::<u64>().is_ok() => word.replace(number, "N"),
            None if is_span(word) => "SPAN".to_owned(),
            None => word.to_owned(),
        };
        words.push(word);
    }
    words.join(" ")
}

/// Seconds, as in `0.7`.
fn is_span(word: &str) -> bool {
    word.split_once('.').is_some_and(|(whole, rest)| [whole, rest].iter().all(|part| part.parse::<u64>().is_ok()))
}

#[track_caller]
fn assert_shown(guide: &str, text: &str) {
    assert!(plain(guide).contains(&plain(text)), "the guide does not have this:\n{text}\n{}", plain(text));
}

fn stage() -> (Domain, ManualClock) {
    let clock = ManualClock::new();
    (Domain::builder().clock(clock.clone()).build(), clock)
}

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

#[tokio::test]
async fn a_certain_deadlock() {
    let (domain, clock) = stage();
    let (alice, bob) = (Mutex::named("alice", ()).in_domain(&domain), Mutex::named("bob", ()).in_domain(&domain));
    let (rent, refund) = (Worker::new("rent"), Worker::new("refund"));
    let held = (rent.run(alice.lock()).await.unwrap(), refund.run(bob.lock()).await.unwrap());
    let mut waits = Box::pin(rent.run(bob.lock()));
    assert!(once(&mut waits).await.is_pending());
    clock.advance(ms(200));
    let error = in_time(refund.run(alice.lock())).await.unwrap_err();
    assert_shown(DEADLOCKS, &error.to_string());
    drop((waits, held));
}

#[tokio::test]
async fn circles_of_one() {
    let (domain, _) = stage();
    let (config, routes) = (Mutex::named("config", ()).in_domain(&domain), RwLock::named("routes", ()).in_domain(&domain));
    let [import, web] = ["import", "router"].map(Worker::new);
    let held = import.run(config.lock()).await.unwrap();
    assert_shown(DEADLOCKS, &in_time(import.run(config.lock())).await.unwrap_err().to_string());
    let read = web.run(routes.read()).await.unwrap();
    assert_shown(DEADLOCKS, &in_time(web.run(routes.write())).await.unwrap_err().to_string());
    drop((held, read));
}

#[tokio::test]
async fn an_inversion() {
    let domain = Domain::builder().check_order(true).build();
    let (db, cache) = (Mutex::named("db", ()).in_domain(&domain), Mutex::named("cache", ()).in_domain(&domain));
    let both = async |outer: &Mutex<()>, inner: &Mutex<()>| {
        let _outer = outer.lock().await.unwrap();
        drop(inner.lock().await.unwrap());
    };
    Worker::new("import").run(both(&db, &cache)).await;
    Worker::new("sweep").run(both(&cache, &db)).await;
    assert_shown(DEADLOCKS, &domain.snapshot().inversions[0]);
}

#[tokio::test]
async fn a_suspected_deadlock() {
    listen();
    let (domain, clock) = stage();
    let locks = Arc::new([Mutex::named("alice", ()).in_domain(&domain), Mutex::named("bob", ()).in_domain(&domain)]);
    let tasks = [0, 1].map(|first| {
        let locks = Arc::clone(&locks);
        tokio::spawn(async move {
            let _first = locks[first].lock().await?;
            tokio::task::yield_now().await;
            locks[1 - first].lock().await.map(drop)
        })
    });
    while domain.snapshot().edges.len() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(ms(700));
    assert_shown(DEADLOCKS, &domain.snapshot().to_string());
    assert_shown(DEADLOCKS, &hears("which may be a deadlock", &clock));
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn a_holder_that_waits_for_no_lock() {
    let (domain, clock) = stage();
    let totals = Mutex::named("totals", ()).in_domain(&domain);
    let (summary, report) = (Worker::new("summary"), Worker::new("report"));
    let held = summary.run(totals.lock()).await.unwrap();
    let mut waits = Box::pin(report.run(totals.lock()));
    assert!(once(&mut waits).await.is_pending());
    clock.advance(ms(2500));
    assert_shown(DEADLOCKS, &domain.snapshot().to_string());
    drop((waits, held));
}

#[tokio::test]
async fn a_child_that_waits_for_its_parent() {
    let (domain, _) = stage();
    let (lock, result) = (Mutex::named("config", 1).in_domain(&domain), Promise::named("result").in_domain(&domain));
    let (parent, child) = (Worker::new("parent"), Worker::new("child"));
    let held = parent.run(lock.lock()).await.unwrap();
    let producer = result.producer(&child).unwrap();
    let mut works = Box::pin(child.run(async { producer.set(*lock.lock().await.unwrap()) }));
    assert!(once(&mut works).await.is_pending());
    assert_shown(DEADLOCKS, &in_time(parent.run(result.wait())).await.unwrap_err().to_string());
    drop((works, held));
}

#[tokio::test]
async fn a_lock_that_is_contended() {
    let (domain, clock) = stage();
    let cache = Mutex::named("cache", ()).in_domain(&domain);
    let (report, page, alarm) = (Worker::new("report"), Worker::new("page"), Worker::new("alarm").priority(10));
    let held = report.run(cache.lock()).await.unwrap();
    let mut page_waits = Box::pin(page.run(cache.lock()));
    assert!(once(&mut page_waits).await.is_pending());
    clock.advance(ms(300));
    let mut alarm_waits = Box::pin(alarm.run(cache.lock()));
    assert!(once(&mut alarm_waits).await.is_pending());
    clock.advance(ms(200));
    assert_shown(CONTENTION, &domain.snapshot().to_string());
    drop((page_waits, alarm_waits, held));
}

#[tokio::test]
async fn a_long_hold() {
    listen();
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).warn_after(ms(100)).build();
    let cache = Mutex::named("cache of pages", ()).in_domain(&domain);
    let held = Worker::new("report").run(cache.lock()).await.unwrap();
    clock.advance(ms(250));
    drop(held);
    assert_shown(CONTENTION, &hears("cache of pages", &clock));
}

/// Waits until a line with this was traced, while the clock goes on; with its level.
#[track_caller]
fn hears(part: &str, clock: &ManualClock) -> String {
    let (level, line) = hears_leveled(part, || clock.advance(ms(100)));
    format!("{level} {line}")
}
