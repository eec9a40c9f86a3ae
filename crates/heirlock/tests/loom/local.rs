//! Models of the local locks: what can happen between a few threads happens, in every order that loom finds.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::loom_world::{Inside, STALL, World, assert_idle, model, poll_once, visit, worker};
use heirlock::Worker;
use heirlock::local::{Mutex, RLock};
use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

#[test]
fn enqueue_against_unlock() {
    model("enqueue against unlock", 6, |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let guard = world.hold(&holder);
        let waits = world.visitor(&waiter);
        guard.visit();
        drop(guard);
        waits.join().unwrap();
        world.assert_over(2, &[&holder, &waiter]);
    });
}

#[test]
fn two_lockers_and_a_dropper() {
    model("two lockers and a dropper", 2, |world| {
        let (first, second, dropper) = (worker("first", 1), worker("second", 2), worker("dropper", 9));
        let visitors = [world.visitor(&first), world.visitor(&second)];
        let mut wait = dropper.run(world.lock.lock_owned());
        let visits = match poll_once(&mut wait) {
            Poll::Ready(guard) => {
                guard.unwrap().visit();
                3
            }
            Poll::Pending => 2,
        };
        drop(wait);
        for visitor in visitors {
            visitor.join().unwrap();
        }
        world.assert_over(visits, &[&first, &second, &dropper]);
    });
}

#[test]
fn cancel_against_grant() {
    model("cancel against grant", 6, |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let guard = world.hold(&holder);
        let wait = world.queue(&waiter, |wait| wait);
        let cancels = spawn(move || drop(wait));
        guard.visit();
        drop(guard);
        cancels.join().unwrap();
        world.assert_over(1, &[&holder, &waiter]);
    });
}

#[test]
fn hand_over_while_another_cancels() {
    model("hand over while another cancels", 4, |world| {
        let (holder, first, second) = (worker("holder", 0), worker("first", 9), worker("second", 5));
        let guard = world.hold(&holder);
        let wait = world.queue(&first, |wait| wait);
        let waits = world.visitor(&second);
        let cancels = spawn(move || drop(wait));
        drop(guard);
        cancels.join().unwrap();
        waits.join().unwrap();
        world.assert_over(1, &[&holder, &first, &second]);
    });
}

#[test]
fn expiry_against_grant() {
    model("expiry against grant", 4, |world| {
        let (holder, hasty, patient) = (worker("holder", 0), worker("hasty", 9), worker("patient", 5));
        let guard = world.hold(&holder);
        let hastes = world.queue(&hasty, |wait| wait.timeout(Duration::from_millis(100)));
        let waits = world.visitor(&patient);
        let releases = spawn(move || drop(guard));
        world.clock.advance(Duration::from_millis(100));
        world.domain.expire();
        let visits = match block_on(hasty.run(hastes)) {
            Ok(guard) => {
                guard.visit();
                2
            }
            Err(error) => {
                assert!(error.is_timeout(), "{error}");
                1
            }
        };
        releases.join().unwrap();
        waits.join().unwrap();
        world.assert_over(visits, &[&holder, &hasty, &patient]);
    });
}

/// Nobody polls the first in line any more; whoever is behind has the lock all the same.
#[test]
fn take_over_of_an_abandoned_grant() {
    model("take-over of an abandoned grant", 6, |world| {
        let (holder, idle, next) = (worker("holder", 0), worker("idle", 9), worker("next", 5));
        let guard = world.hold(&holder);
        let abandoned = world.queue(&idle, |wait| wait);
        let waits = world.visitor(&next);
        drop(guard);
        world.let_grants_stall();
        waits.join().unwrap();
        drop(abandoned);
        world.assert_over(1, &[&holder, &idle, &next]);
    });
}

/// The first in line comes back at the moment when its grant is taken over: it has the lock, or waits once more.
#[test]
fn take_over_against_the_grantee() {
    model("take-over against the grantee", 3, |world| {
        let (holder, slow, next) = (worker("holder", 0), worker("slow", 9), worker("next", 5));
        let guard = world.hold(&holder);
        let wait = world.queue(&slow, |wait| wait);
        drop(guard);
        world.clock.advance(STALL);
        world.domain.expire();
        let comes_back = spawn({
            let slow = slow.clone();
            move || visit(&slow, wait)
        });
        let waits = world.visitor(&next);
        world.let_grants_stall();
        comes_back.join().unwrap();
        waits.join().unwrap();
        world.assert_over(2, &[&holder, &slow, &next]);
    });
}

/// A grant belongs to the worker: whichever of its futures is polled has it, and the other leaves no trace.
#[test]
fn a_second_future_of_one_worker() {
    model("a second future of one worker", 6, |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let guard = world.hold(&holder);
        let waits = spawn({
            let (mut kept, second, waiter) = (world.lock.lock_owned(), world.lock.lock_owned(), waiter.clone());
            move || {
                let both = async {
                    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut kept).poll(cx))).await;
                    let guard = if let Poll::Ready(first) = first { first } else { second.await };
                    guard.unwrap().visit();
                };
                block_on(waiter.run(both));
            }
        });
        drop(guard);
        waits.join().unwrap();
        world.assert_over(1, &[&holder, &waiter]);
    });
}

#[test]
fn blocking_against_async() {
    model("blocking against async", 2, |world| {
        let holder = worker("holder", 0);
        let waiter = worker("waiter", 9);
        let guard = world.hold(&holder);
        let blocks = spawn({
            let lock = Arc::clone(&world.lock);
            move || lock.lock_blocking().unwrap().visit()
        });
        let waits = world.visitor(&waiter);
        guard.visit();
        drop(guard);
        blocks.join().unwrap();
        waits.join().unwrap();
        world.assert_over(3, &[&holder, &waiter]);
    });
}

/// It may take the lock before it is queued for, and after; while a waiter is there, never.
#[test]
fn try_lock_between() {
    model("try_lock between", 3, |world| {
        let (holder, waiter, tries) = (worker("holder", 0), worker("waiter", 9), worker("tries", 1));
        let guard = world.hold(&holder);
        let waits = world.visitor(&waiter);
        let tries_it = spawn({
            let (lock, tries) = (Arc::clone(&world.lock), tries.clone());
            move || {
                let visits = tries.scope(|| lock.try_lock().map(|guard| guard.visit())).map_or(0, |()| 1);
                drop(lock);
                visits
            }
        });
        drop(guard);
        let visits = tries_it.join().unwrap();
        waits.join().unwrap();
        world.assert_over(1 + visits, &[&holder, &waiter, &tries]);
    });
}

/// Each holds one lock and asks for the other's: whoever comes second is told, and the first then has both.
#[test]
fn a_cycle_closed_from_two_sides() {
    model("a cycle closed from two sides", 4, |world| {
        let workers = [worker("w0", 1), worker("w1", 2)];
        let locks = [(), ()].map(|()| Arc::new(Mutex::new(()).in_domain(&world.domain)));
        let crossing = |mine: usize| {
            let (own, other) = (Arc::clone(&locks[mine]), Arc::clone(&locks[1 - mine]));
            let both = async move {
                let _held = own.lock().await.unwrap();
                match other.lock().await {
                    Ok(_) => 0,
                    Err(error) => {
                        assert!(error.is_deadlock(), "{error}");
                        1
                    }
                }
            };
            both
        };
        let [first, second] = [0, 1].map(|mine| workers[mine].run(crossing(mine)));
        let second = spawn(move || block_on(second));
        let refused = block_on(first) + second.join().unwrap();
        assert!(refused <= 1);
        assert!(locks.iter().all(|lock| !lock.is_locked()));
        assert_idle(&world.domain, &[&workers[0], &workers[1]]);
    });
}

/// Whether it queues before its priority is changed or after: the holder has the new one.
#[test]
fn base_change_against_enqueue() {
    model("base change against enqueue", 6, |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 1));
        let guard = world.hold(&holder);
        let changes = spawn({
            let waiter = waiter.clone();
            move || waiter.set_priority(7)
        });
        let wait = world.queue(&waiter, |wait| wait);
        changes.join().unwrap();
        assert_eq!(holder.effective_priority(), 7);
        drop(wait);
        assert_eq!(holder.effective_priority(), 0);
        drop(guard);
        world.assert_over(0, &[&holder, &waiter]);
    });
}

fn reentrant(world: &World) -> Arc<RLock<Inside>> {
    Arc::new(RLock::new(Inside::default()).in_domain(&world.domain))
}

async fn visit_again(lock: Arc<RLock<Inside>>) {
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    inner.visit();
    drop(outer);
    inner.visit();
}

fn contender(worker: &Worker, lock: &Arc<RLock<Inside>>) -> JoinHandle<()> {
    let (worker, lock) = (worker.clone(), Arc::clone(lock));
    spawn(move || {
        let guard = block_on(worker.run(lock.lock())).unwrap();
        guard.visit();
        drop(guard);
        drop(lock);
    })
}

#[test]
fn reentry_against_a_contender() {
    model("re-entry against a contender", 4, |world| {
        let (enters, waits) = (worker("enters", 0), worker("waits", 9));
        let lock = reentrant(world);
        let contender = contender(&waits, &lock);
        block_on(enters.run(visit_again(Arc::clone(&lock))));
        contender.join().unwrap();
        assert!(!lock.is_locked());
        assert_eq!(lock.try_lock().unwrap().visits(), 3);
        assert_idle(&world.domain, &[&enters, &waits]);
    });
}

/// Two levels of one hold, given up by two threads at once, and somebody waits.
#[test]
fn levels_given_up_by_two_threads() {
    model("levels given up by two threads", 3, |world| {
        let (enters, waits) = (worker("enters", 0), worker("waits", 9));
        let lock = reentrant(world);
        let [outer, inner] = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            let mut level = Box::pin(async move {
                let guard = lock.lock().await.unwrap();
                guard.visit();
                std::future::pending::<()>().await;
            });
            assert!(enters.scope(|| poll_once(&mut level)).is_pending());
            level
        });
        let contender = contender(&waits, &lock);
        let drops = spawn(move || drop(inner));
        drop(outer);
        drops.join().unwrap();
        contender.join().unwrap();
        assert!(!lock.is_locked());
        assert_eq!(lock.try_lock().unwrap().visits(), 3);
        assert_idle(&world.domain, &[&enters, &waits]);
    });
}

/// Whether the contender comes before the hold changes hands or after: it is the heir who inherits.
#[test]
fn transfer_against_a_contender() {
    model("transfer against a contender", 6, |world| {
        let (holder, heir, waiter) = (worker("holder", 0), worker("heir", 1), worker("waiter", 9));
        let guard = world.hold(&holder);
        let queues = spawn({
            let (mut wait, waiter) = (world.lock.lock_owned(), waiter.clone());
            move || {
                assert!(waiter.scope(|| poll_once(&mut wait)).is_pending());
                wait
            }
        });
        guard.transfer_to(&heir);
        let wait = queues.join().unwrap();
        assert_eq!((holder.effective_priority(), heir.effective_priority()), (0, 9));
        drop(guard);
        visit(&waiter, wait);
        world.assert_over(1, &[&holder, &heir, &waiter]);
    });
}

/// Whoever comes after a holder that left its work unfinished is told.
#[test]
fn poison_against_the_next_holder() {
    model("poison against the next holder", 6, |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let lock = Arc::new(Mutex::new(()).in_domain(&world.domain).poisoning());
        let mut unfinished = Box::pin({
            let lock = Arc::clone(&lock);
            holder.run(async move { lock.with(async |()| std::future::pending::<()>().await).await })
        });
        assert!(poll_once(&mut unfinished).is_pending());
        let next = spawn({
            let (lock, waiter) = (Arc::clone(&lock), waiter.clone());
            move || block_on(waiter.run(async { lock.lock().await.map(drop) }))
        });
        drop(unfinished);
        assert!(next.join().unwrap().unwrap_err().is_poisoned());
        assert!(!lock.is_locked());
        assert_idle(&world.domain, &[&holder, &waiter]);
    });
}
