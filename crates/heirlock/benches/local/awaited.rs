//! Events, promises, barriers and cells beside what tokio has for each.

use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;

use heirlock::local::{Barrier, Event, OnceCell, Promise};
use tokio::sync::{Notify, oneshot, watch};

use crate::by::By;
use crate::common::Report;
use crate::compare::{Peer, compare, runtime};
use crate::contended::tasks;
use crate::locks::poll;

const TIMES: u64 = 200_000;

/// So many times the same, on this thread.
fn time(mut once: impl FnMut()) -> f64 {
    By::Thread.time(TIMES, || (0..TIMES).for_each(|_| once()))
}

fn ready_now<F: Future>(future: F) -> F::Output {
    poll(pin!(future)).expect("it is there")
}

/// One waits, it comes, and the one goes on: polled by hand.
fn hand_over<F: Future>(wait: F, come: impl FnOnce()) -> F::Output {
    let mut wait = pin!(wait);
    assert!(poll(wait.as_mut()).is_none(), "it has to wait");
    come();
    poll(wait).expect("it has come")
}

pub(crate) fn event(report: &mut Report) {
    let (event, notify) = (Event::new(), Notify::new());
    let ours = || {
        time(|| {
            event.set();
            ready_now(event.wait()).unwrap();
            event.clear();
        })
    };
    let theirs = || {
        time(|| {
            notify.notify_one();
            ready_now(notify.notified());
        })
    };
    compare(report, "Event: set, wait for one that is set, clear", ours, vec![Peer::new("tokio Notify", 1.0, theirs)]);
    let (event, notify) = (Event::new(), Notify::new());
    let ours = || {
        time(|| {
            hand_over(event.wait(), || assert_eq!(event.set(), 1)).unwrap();
            event.clear();
        })
    };
    let theirs = || time(|| hand_over(notify.notified(), || notify.notify_waiters()));
    compare(report, "Event: one waits, and is told", ours, vec![Peer::new("tokio Notify", 1.0, theirs)]);
}

pub(crate) fn promise(report: &mut Report) {
    let ours = || {
        time(|| {
            let promise = Promise::new();
            promise.produce().unwrap().set(7_u64).unwrap();
            assert_eq!(ready_now(promise.wait()).unwrap(), black_box(&7));
        })
    };
    let shared = || {
        time(|| {
            let promise = Arc::new(Promise::new());
            let producer = promise.produce_owned().unwrap();
            producer.set(7_u64).unwrap();
            assert_eq!(ready_now(promise.wait()).unwrap(), black_box(&7));
        })
    };
    let theirs = || {
        time(|| {
            let (sender, receiver) = oneshot::channel();
            sender.send(7_u64).unwrap();
            assert_eq!(ready_now(receiver).unwrap(), black_box(7));
        })
    };
    compare(report, "Promise: make, set, await", ours, vec![Peer::new("tokio oneshot", 1.0, theirs)]);
    compare(report, "Promise in an Arc: make, set, await", shared, vec![Peer::new("tokio oneshot", 1.0, theirs)]);
    let ours = || {
        time(|| {
            let promise = Promise::new();
            let producer = promise.produce().unwrap();
            assert_eq!(hand_over(promise.wait(), || producer.set(7_u64).unwrap()).unwrap(), black_box(&7));
        })
    };
    let theirs = || {
        time(|| {
            let (sender, receiver) = oneshot::channel();
            assert_eq!(hand_over(receiver, || sender.send(7_u64).unwrap()).unwrap(), black_box(7));
        })
    };
    compare(report, "Promise: one waits, and is told", ours, vec![Peer::new("tokio oneshot", 1.0, theirs)]);
    let ours = || {
        by_many(|| {
            let promise = Promise::new();
            let waits = all_wait(|| promise.wait());
            promise.produce().unwrap().set(7_u64).unwrap();
            all_go_on(waits, |value| assert_eq!(value.unwrap(), &7));
        })
    };
    let theirs = || {
        by_many(|| {
            let (sender, receiver) = watch::channel(0_u64);
            let waits = all_wait(|| {
                let mut receiver = receiver.clone();
                async move { *receiver.wait_for(|value| *value != 0).await.unwrap() }
            });
            sender.send(7).unwrap();
            all_go_on(waits, |value| assert_eq!(value, 7));
        })
    };
    compare(report, "Promise: 64 wait, and are told; for each", ours, vec![Peer::new("tokio watch", 1.0, theirs)]);
    let notify = Notify::new();
    let (event, theirs) = (Event::new(), || {
        by_many(|| {
            let waits = all_wait(|| notify.notified());
            notify.notify_waiters();
            all_go_on(waits, drop);
        })
    });
    let ours = || {
        by_many(|| {
            let waits = all_wait(|| event.wait());
            assert_eq!(event.set(), usize::try_from(MANY).unwrap());
            event.clear();
            all_go_on(waits, |result| result.unwrap());
        })
    };
    compare(report, "Event: 64 wait, and are told; for each", ours, vec![Peer::new("tokio Notify", 1.0, theirs)]);
}

const MANY: u64 = 64;

/// What many do together, for each of them.
fn by_many(mut round: impl FnMut()) -> f64 {
    By::Thread.time(TIMES, || (0..TIMES / MANY).for_each(|_| round()))
}

fn all_wait<F: Future>(wait: impl Fn() -> F) -> Vec<Pin<Box<F>>> {
    let mut waits: Vec<_> = (0..MANY).map(|_| Box::pin(wait())).collect();
    for wait in &mut waits {
        assert!(poll(wait.as_mut()).is_none(), "it has to wait");
    }
    waits
}

fn all_go_on<F: Future>(waits: Vec<Pin<Box<F>>>, each: impl Fn(F::Output)) {
    for mut wait in waits {
        each(poll(wait.as_mut()).expect("it has come"));
    }
}

pub(crate) fn barrier(report: &mut Report) {
    const ROUNDS: u64 = 4_000;
    const PARTIES: u64 = 8;
    for threads in [1, 2] {
        let (place, by) = (runtime(threads), if threads == 1 { By::Thread } else { By::Wall });
        let ours = || {
            let barrier = Arc::new(Barrier::new(usize::try_from(PARTIES).unwrap()));
            tasks(&place, by, ROUNDS * PARTIES, PARTIES, move |_| {
                let barrier = Arc::clone(&barrier);
                async move {
                    for _ in 0..ROUNDS {
                        barrier.wait().await.unwrap();
                    }
                }
            })
        };
        let theirs = || {
            let barrier = Arc::new(tokio::sync::Barrier::new(usize::try_from(PARTIES).unwrap()));
            tasks(&place, by, ROUNDS * PARTIES, PARTIES, move |_| {
                let barrier = Arc::clone(&barrier);
                async move {
                    for _ in 0..ROUNDS {
                        barrier.wait().await;
                    }
                }
            })
        };
        let what = format!("Barrier: 8 tasks, {threads} thread{}, for each arrival", if threads == 1 { "" } else { "s" });
        compare(report, &what, ours, vec![Peer::new("tokio Barrier", 1.0, theirs)]);
    }
}

pub(crate) fn once(report: &mut Report) {
    let (ours, theirs) = (OnceCell::from(7_u64), tokio::sync::OnceCell::from(7_u64));
    compare(
        report,
        "OnceCell: get_or_init of one that is set",
        || time(|| assert_eq!(ready_now(ours.get_or_init(|| ready(1))).unwrap(), black_box(&7))),
        vec![Peer::new("tokio OnceCell", 1.0, || time(|| assert_eq!(ready_now(theirs.get_or_init(|| ready(1))), black_box(&7))))],
    );
    let ours = || time(|| assert_eq!(ready_now(OnceCell::new().get_or_init(|| ready(7_u64))).unwrap(), black_box(&7)));
    let theirs = || time(|| assert_eq!(ready_now(tokio::sync::OnceCell::new().get_or_init(|| ready(7_u64))), black_box(&7)));
    compare(report, "OnceCell: make, first get_or_init", ours, vec![Peer::new("tokio OnceCell", 1.0, theirs)]);
}
