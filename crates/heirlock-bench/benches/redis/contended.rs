//! Many at once: on one key, and each on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

    /// Once, with a look in between whether it is alone.
    async fn cycle(&self, name: &str, alone: &AtomicBool) {
        let inside = || assert!(!alone.swap(true, Ordering::SeqCst), "two at once");
        match self {
            Library::Heirlock(locks) => {
                let lease = locks.lock(name).await.unwrap();
                inside();
                alone.store(false, Ordering::SeqCst);
                lease.release().await.unwrap();
            }
            Library::Rslock(manager) => {
                let guard = manager.acquire(name, Duration::from_secs(30)).await.unwrap();
                inside();
                alone.store(false, Ordering::SeqCst);
                guard.release().await;
            }
        }
    }
}

/// Cycles a second of tasks that each do nothing else, for a while.
fn run(runtime: &Runtime, tasks: Vec<(Library, String, Arc<AtomicBool>)>) -> f64 {
    let (done, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
    runtime.block_on(async {
        let mut handles = Vec::new();
        for (library, name, alone) in tasks {
            let (done, ended) = (Arc::clone(&done), Arc::clone(&ended));
            handles.push(tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    library.cycle(&name, &alone).await;
                    // What is under way at the end, a wait of the peers' above all, counts for nobody.
                    if !ended.load(Ordering::Relaxed) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        tokio::time::sleep(SPAN).await;
        ended.store(true, Ordering::Relaxed);
        let rate = rate(&done, start);
        for handle in handles {
            handle.await.unwrap();
        }
        rate
    })
}

#[allow(clippy::cast_precision_loss)] // Not that many.
fn rate(done: &AtomicU64, start: Instant) -> f64 {
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

fn on_one_key(runtime: &Runtime, libraries: &[Library], name: &str) -> f64 {
    let alone = Arc::new(AtomicBool::new(false));
    run(runtime, (0..CONTENDERS).map(|at| (libraries[at % libraries.len()].clone(), name.to_owned(), Arc::clone(&alone))).collect())
}

/// 32 contenders for one key.
pub(crate) fn rows(report: &mut Report) {
    let runtime = runtime();
    let (one, many) = runtime.block_on(async {
        let mut many = Vec::new();
        for _ in 0..CONTENDERS {
            many.push(Library::heirlock().await);
        }
        (vec![Library::heirlock().await], many)
    });
    let rslock = vec![Library::rslock()];
    let (mut ours, mut apart, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let mut pythons: Vec<(&str, Vec<f64>)> = python::LIBRARIES.map(|library| (library, Vec::new())).to_vec();
    let (name, other) = (key("contended"), key("contended, rslock"));
    for round in 0..=ROUNDS {
        let a = on_one_key(&runtime, &one, &name);
        let b = on_one_key(&runtime, &many, &name);
        let c = on_one_key(&runtime, &rslock, &other);
        // The first round warms up.
        if round == 0 {
            continue;
        }
        ours.push(a);
        apart.push(b);
        theirs.push(c);
        for (library, rates) in &mut pythons {
            let told = python::run(&["contended", library, &CONTENDERS.to_string(), &SPAN.as_secs().to_string()]);
            rates.extend(told.map(|rate| rate.as_f64().unwrap()));
        }
    }
    let (ours, apart) = (median(&mut ours), median(&mut apart));
    let mut peers = vec![("rslock", median(&mut theirs))];
    for (library, mut rates) in pythons {
        if rates.is_empty() {
            report.add(python::not_run(&format!("{CONTENDERS} contenders for one key, {library}")));
        } else {
            peers.push((library, median(&mut rates)));
        }
    }
    let show = |peers: &[(&str, f64)]| peers.iter().map(|(name, rate)| format!("{name} {rate:.0}/s")).collect::<Vec<_>>().join(", ");
    let best = peers.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    report.add_at_least(Figure {
        what: format!("{CONTENDERS} contenders for one key, one session; the best of"),
        ours: format!("{ours:.0}/s"),
        peer: show(&peers),
        measured: ours / best,
        aim: Some(6.0),
        unit: "x",
    });
    report.add_at_least(Figure {
        what: format!("{CONTENDERS} contenders for one key, each with a session and a connection of its own"),
        ours: format!("{apart:.0}/s"),
        peer: show(&peers),
        measured: apart / best,
        aim: None,
        unit: "x",
    });
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
            let tasks = names.iter().map(|name| (library.clone(), format!("{name}{which}"), Arc::new(AtomicBool::new(false))));
            run(&runtime, tasks.collect())
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
