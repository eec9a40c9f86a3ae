//! Many at once: on one key, and each on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use heirlock::Locks;
use tokio::runtime::Runtime;

use crate::common::{Figure, Report, median};
use crate::{key, python, runtime, server};

const CONTENDERS: usize = 32;
const TASKS: usize = 256;
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// Who can take a key and give it back.
#[derive(Clone)]
enum Library {
    Heirlock(Locks),
    Rslock(rslock::LockManager),
}

impl Library {
    async fn heirlock() -> Library {
        Library::Heirlock(Locks::connect(&server()).await.unwrap())
    }

    fn rslock() -> Library {
        Library::Rslock(rslock::LockManager::new(vec![server()]))
    }

    /// Once, with a look in between.
    async fn cycle(&self, name: &str, inside: impl FnOnce()) {
        match self {
            Library::Heirlock(locks) => {
                let lease = locks.lock(name).await.unwrap();
                inside();
                lease.release().await.unwrap();
            }
            Library::Rslock(manager) => {
                let guard = manager.acquire(name, Duration::from_secs(30)).await.unwrap();
                inside();
                guard.release().await;
            }
        }
    }
}

/// What is seen of a key by who holds it.
#[derive(Default)]
struct Seen {
    is_held: AtomicBool,
    /// Who held it last.
    last: AtomicUsize,
    locks: AtomicU64,
    /// Locks that somebody else had had before.
    passes: AtomicU64,
}

impl Seen {
    fn inside(&self, who: usize) {
        assert!(!self.is_held.swap(true, Ordering::SeqCst), "two at once");
        self.locks.fetch_add(1, Ordering::SeqCst);
        if self.last.swap(who, Ordering::SeqCst) != who {
            self.passes.fetch_add(1, Ordering::SeqCst);
        }
        self.is_held.store(false, Ordering::SeqCst);
    }
}

/// Locks and passes, a second.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    locks: f64,
    passes: f64,
}

/// Tasks that each take a key and give it back, time after time, for a while.
fn run(runtime: &Runtime, tasks: Vec<(Library, String, Arc<Seen>)>) -> Rate {
    let ended = Arc::new(AtomicBool::new(false));
    let all: Vec<Arc<Seen>> = tasks.iter().map(|(_, _, seen)| Arc::clone(seen)).collect();
    let start = Instant::now();
    runtime.block_on(async {
        let mut handles = Vec::new();
        for (who, (library, name, seen)) in tasks.into_iter().enumerate() {
            let ended = Arc::clone(&ended);
            handles.push(tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    library.cycle(&name, || seen.inside(who)).await;
                }
            }));
        }
        tokio::time::sleep(SPAN).await;
        // What is under way at the end, a wait of the peers' above all, counts for nobody.
        let rate = rate(&all, start);
        ended.store(true, Ordering::Relaxed);
        for handle in handles {
            handle.await.unwrap();
        }
        rate
    })
}

#[allow(clippy::cast_precision_loss)] // Not that many.
fn rate(all: &[Arc<Seen>], start: Instant) -> Rate {
    // Those of one key share one.
    let all: Vec<&Arc<Seen>> = if all.iter().all(|seen| Arc::ptr_eq(seen, &all[0])) { vec![&all[0]] } else { all.iter().collect() };
    let sum = |count: fn(&Seen) -> &AtomicU64| all.iter().map(|seen| count(seen).load(Ordering::SeqCst)).sum::<u64>() as f64;
    let seconds = start.elapsed().as_secs_f64();
    Rate { locks: sum(|seen| &seen.locks) / seconds, passes: sum(|seen| &seen.passes) / seconds }
}

/// As many contenders for one key, each of the next of these.
fn on_one_key(runtime: &Runtime, libraries: &[Library], name: &str) -> Rate {
    let seen = Arc::new(Seen::default());
    run(runtime, (0..CONTENDERS).map(|at| (libraries[at % libraries.len()].clone(), name.to_owned(), Arc::clone(&seen))).collect())
}

fn middle(rates: &[Rate]) -> Rate {
    let of = |part: fn(&Rate) -> f64| median(&mut rates.iter().map(part).collect::<Vec<f64>>());
    Rate { locks: of(|rate| rate.locks), passes: of(|rate| rate.passes) }
}

/// 32 contenders for one key, each with a connection of its own, as in processes of their own; and tasks that share one.
pub(crate) fn rows(report: &mut Report) {
    let runtime = runtime();
    let (apart, shared): (Vec<Library>, Library) = runtime.block_on(async {
        let mut apart = Vec::new();
        for _ in 0..CONTENDERS {
            apart.push(Library::heirlock().await);
        }
        (apart, Library::heirlock().await)
    });
    let ways: [(&str, Vec<Library>); 4] = [
        ("ours", apart),
        ("ours, shared", vec![shared]),
        ("rslock", (0..CONTENDERS).map(|_| Library::rslock()).collect()),
        ("rslock, shared", vec![Library::rslock()]),
    ];
    let names = ways.each_ref().map(|(way, _)| key(&format!("contended, {way}")));
    let mut rates = ways.each_ref().map(|_| Vec::new());
    let mut pythons = python::LIBRARIES.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (at, (_, libraries)) in ways.iter().enumerate() {
            let rate = on_one_key(&runtime, libraries, &names[at]);
            // The first round warms up.
            if round > 0 {
                rates[at].push(rate);
            }
        }
        for (library, rates) in python::LIBRARIES.iter().zip(&mut pythons).filter(|_| round > 0) {
            let told = python::run(&["contended", library, &CONTENDERS.to_string(), &SPAN.as_secs().to_string()]);
            rates.extend(told.map(|told| Rate { locks: told["locks"].as_f64().unwrap(), passes: told["passes"].as_f64().unwrap() }));
        }
    }
    let [ours, ours_shared, rslock, rslock_shared] = rates.map(|rates| middle(&rates));
    let mut peers = vec![("rslock", rslock)];
    for (library, rates) in python::LIBRARIES.iter().zip(&pythons) {
        if rates.is_empty() {
            report.add(python::not_run(&format!("{CONTENDERS} contenders for one key; {library}")));
        } else {
            peers.push((library, middle(rates)));
        }
    }
    let mut row = |what: &str, ours: f64, peers: &[(&str, Rate)], part: fn(&Rate) -> f64, aim: Option<f64>| {
        let best = peers.iter().map(|(_, rate)| part(rate)).fold(0.0, f64::max);
        report.add_at_least(Figure {
            what: format!("{CONTENDERS} contenders for one key, {what}"),
            ours: format!("{ours:.0}/s"),
            peer: peers.iter().map(|(name, rate)| format!("{name} {:.0}", part(rate))).collect::<Vec<_>>().join(", "),
            measured: ours / best,
            aim,
            unit: "x",
        });
    };
    row("a connection each: from one to another", ours.passes, &peers, |rate| rate.passes, Some(6.0));
    row("the same: locks, also those of who had it last", ours.locks, &peers, |rate| rate.locks, None);
    let shared = [("rslock", rslock_shared)];
    row("tasks over one connection: from one to another", ours_shared.passes, &shared, |rate| rate.passes, Some(6.0));
    row("the same: locks, also those of who had it last", ours_shared.locks, &shared, |rate| rate.locks, None);
}

/// 256 tasks, each with a key of its own.
pub(crate) fn distinct(report: &mut Report) {
    let runtime = runtime();
    let libraries = [runtime.block_on(Library::heirlock()), Library::rslock()];
    let mut rates = [Vec::new(), Vec::new()];
    let mut ratios = Vec::new();
    let names: Vec<String> = (0..TASKS).map(|at| key(&format!("distinct {at}"))).collect();
    for round in 0..=ROUNDS {
        let both = libraries.each_ref().map(|library| {
            let which = if matches!(library, Library::Heirlock(_)) { "" } else { ", rslock" };
            let tasks = names.iter().map(|name| (library.clone(), format!("{name}{which}"), Arc::default()));
            run(&runtime, tasks.collect()).locks
        });
        if round > 0 {
            rates[0].push(both[0]);
            rates[1].push(both[1]);
            ratios.push(both[0] / both[1]);
        }
    }
    report.add_at_least(Figure {
        what: format!("{TASKS} tasks, each with its own key: acquire + release; rslock"),
        ours: format!("{:.0}/s", median(&mut rates[0])),
        peer: format!("{:.0}/s", median(&mut rates[1])),
        measured: median(&mut ratios),
        aim: Some(0.8),
        unit: "x",
    });
}
