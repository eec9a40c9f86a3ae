//! Models of semaphores: what can happen between a few threads happens, in every order that loom finds.
//!
//! Who has all permits visits, and who has some looks at the visits: loom fails a model in which permits alone do not put these in order.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::loom_world::{Inside, STALL, assert_idle, explore, poll_once, worker};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{AcquireOwned, Domain, OwnedSemaphorePermit, Semaphore};
use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

struct World {
    domain: Domain,
    clock: ManualClock,
    pool: Arc<Semaphore>,
    inside: Arc<Inside>,
    permits: u32,
}

impl World {
    fn new(permits: u32, tracked: bool) -> World {
        let clock = ManualClock::new();
        let domain = Domain::builder().clock(clock.clone()).stall_time(STALL).build();
        let pool = Semaphore::new(permits).in_domain(&domain);
        let pool = Arc::new(if tracked { pool.tracked() } else { pool });
        World { domain, clock, pool, inside: Arc::default(), permits }
    }

    /// So many, which are free.
    fn take(&self, worker: &Worker, permits: u32) -> OwnedSemaphorePermit {
        let Poll::Ready(taken) = poll_once(&mut worker.run(self.pool.acquire_many_owned(permits))) else { panic!("they are free") };
        taken.unwrap()
    }

    /// An acquire that has been polled once and waits.
    fn queue(&self, worker: &Worker, permits: u32) -> AcquireOwned<Semaphore> {
        self.queued(worker, self.pool.acquire_many_owned(permits))
    }

    fn queued(&self, worker: &Worker, mut wait: AcquireOwned<Semaphore>) -> AcquireOwned<Semaphore> {
        assert!(worker.scope(|| poll_once(&mut wait)).is_pending());
        wait
    }

    /// In a thread of its own.
    fn visitor(&self, worker: &Worker, wait: AcquireOwned<Semaphore>) -> JoinHandle<()> {
        let (worker, inside, all) = (worker.clone(), Arc::clone(&self.inside), self.permits);
        spawn(move || visit(&inside, all, &block_on(worker.run(wait)).unwrap()))
    }

    fn assert_over(self, visits: u32, workers: &[&Worker]) {
        // As many as there were, also when somebody waits once more.
        for _ in 0..2 {
            assert_eq!(self.pool.free_permits(), self.permits);
            let all = self.pool.try_acquire_many(self.permits).unwrap();
            assert_eq!(self.inside.visits(), visits);
            drop(self.queue(workers[0], 1));
            drop(all);
        }
        assert_idle(&self.domain, workers);
    }
}

fn visit(inside: &Inside, all: u32, permits: &OwnedSemaphorePermit) {
    if permits.permits() == all {
        inside.visit();
    } else {
        inside.visits();
    }
}

/// Of a semaphore with so many permits that is not tracked, and one that is.
fn model(name: &str, permits: u32, preemptions: [usize; 2], play: impl Fn(World) + Send + Sync + Copy + 'static) {
    explore(name, preemptions[0], move || play(World::new(permits, false)));
    explore(&format!("{name}, tracked"), preemptions[1], move || play(World::new(permits, true)));
}

#[test]
fn release_against_enqueue() {
    model("release against enqueue", 1, [6, 6], |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let permit = world.take(&holder, 1);
        let waits = world.visitor(&waiter, world.pool.acquire_owned());
        visit(&world.inside, 1, &permit);
        drop(permit);
        waits.join().unwrap();
        world.assert_over(2, &[&holder, &waiter]);
    });
}

/// Permits that nobody had are added while somebody comes for them.
#[test]
fn permits_added_against_enqueue() {
    for tracked in [false, true] {
        explore("permits added against enqueue", 5, move || {
            let domain = Domain::builder().clock(ManualClock::new()).build();
            let jobs = Semaphore::unbounded(0).in_domain(&domain);
            let jobs = Arc::new(if tracked { jobs.tracked() } else { jobs });
            let (inside, waiter) = (Arc::new(Inside::default()), worker("waiter", 9));
            let waits = spawn({
                let (wait, inside, waiter) = (jobs.acquire_many_owned(2), Arc::clone(&inside), waiter.clone());
                move || {
                    let permits = block_on(waiter.run(wait)).unwrap();
                    // What was done before they were added is seen.
                    assert_eq!(inside.visits(), 1);
                    permits.forget();
                }
            });
            jobs.release(1).unwrap();
            inside.visit();
            jobs.release(1).unwrap();
            waits.join().unwrap();
            assert_eq!(jobs.free_permits(), 0);
            assert_idle(&domain, &[&waiter]);
        });
    }
}

#[test]
fn cancel_against_grant() {
    model("cancel against grant", 1, [6, 6], |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let permit = world.take(&holder, 1);
        let wait = world.queue(&waiter, 1);
        let cancels = spawn(move || drop(wait));
        visit(&world.inside, 1, &permit);
        drop(permit);
        cancels.join().unwrap();
        world.assert_over(1, &[&holder, &waiter]);
    });
}

/// The first in line goes while it is granted what it waits for: the next has it.
#[test]
fn hand_over_while_another_cancels() {
    model("hand over while another cancels", 2, [5, 5], |world| {
        let (holder, first, second) = (worker("holder", 0), worker("first", 9), worker("second", 5));
        let permits = world.take(&holder, 2);
        let wait = world.queue(&first, 2);
        let waits = world.visitor(&second, world.pool.acquire_owned());
        let cancels = spawn(move || drop(wait));
        drop(permits);
        cancels.join().unwrap();
        waits.join().unwrap();
        world.assert_over(0, &[&holder, &first, &second]);
    });
}

#[test]
fn two_acquirers_and_a_dropper() {
    model("two acquirers and a dropper", 1, [2, 2], |world| {
        let (first, second, dropper) = (worker("first", 1), worker("second", 2), worker("dropper", 9));
        let visitors = [&first, &second].map(|worker| world.visitor(worker, world.pool.acquire_owned()));
        let mut wait = dropper.run(world.pool.acquire_owned());
        let visits = match poll_once(&mut wait) {
            Poll::Ready(permit) => {
                visit(&world.inside, 1, &permit.unwrap());
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
fn acquire_many_against_two_releases() {
    model("acquire many against two releases", 2, [3, 4], |world| {
        let (one, two, many) = (worker("one", 1), worker("two", 2), worker("many", 9));
        let permits = [&one, &two].map(|worker| world.take(worker, 1));
        let inside = &world.inside;
        let releases = permits.map(|permit| {
            let inside = Arc::clone(inside);
            spawn(move || {
                visit(&inside, 2, &permit);
                drop(permit);
            })
        });
        visit(inside, 2, &block_on(many.run(world.pool.acquire_many_owned(2))).unwrap());
        for release in releases {
            release.join().unwrap();
        }
        world.assert_over(1, &[&one, &two, &many]);
    });
}

/// The graph counts the permits while somebody waits, and the word again once nobody does: none is lost on the way, and none found.
#[test]
fn the_count_changes_sides() {
    model("the count changes sides", 2, [3, 4], |world| {
        let (holder, other, waiter) = (worker("holder", 0), worker("other", 1), worker("waiter", 9));
        let permit = world.take(&holder, 1);
        let comes_and_goes = world.visitor(&other, world.pool.acquire_owned());
        let cancels = spawn({
            let (wait, waiter, inside) = (world.pool.acquire_many_owned(2), waiter.clone(), Arc::clone(&world.inside));
            move || {
                let mut wait = wait;
                let polled = waiter.scope(|| poll_once(&mut wait));
                let visits = polled.map(|permits| visit(&inside, 2, &permits.unwrap())).is_ready();
                drop(wait);
                u32::from(visits)
            }
        });
        visit(&world.inside, 2, &permit);
        drop(permit);
        comes_and_goes.join().unwrap();
        let visits = cancels.join().unwrap();
        world.assert_over(visits, &[&holder, &other, &waiter]);
    });
}

/// The graph gives the permit back to the word when who waits goes; who takes it there sees what was done before.
#[test]
fn cancel_against_try() {
    model("cancel against try", 1, [3, 4], |world| {
        let (holder, goes, tries) = (worker("holder", 0), worker("goes", 9), worker("tries", 1));
        let permit = world.take(&holder, 1);
        let wait = world.queue(&goes, 1);
        let cancels = spawn(move || drop(wait));
        let tries_it = spawn({
            let (pool, tries, inside) = (Arc::clone(&world.pool), tries.clone(), Arc::clone(&world.inside));
            move || {
                let visits = tries.scope(|| pool.try_acquire().map(|_permit| inside.visit())).map_or(0, |()| 1);
                drop(pool);
                visits
            }
        });
        visit(&world.inside, 1, &permit);
        drop(permit);
        cancels.join().unwrap();
        let visits = tries_it.join().unwrap();
        world.assert_over(1 + visits, &[&holder, &goes, &tries]);
    });
}

/// Nobody gives a permit back, so whoever came first is told, as is who comes later.
#[test]
fn close_against_a_wait() {
    model("close against a wait", 1, [5, 5], |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let permit = world.take(&holder, 1);
        let waits = spawn({
            let (wait, waiter) = (world.pool.acquire_owned(), waiter.clone());
            move || assert!(block_on(waiter.run(wait)).unwrap_err().is_closed())
        });
        world.pool.close();
        waits.join().unwrap();
        drop(permit);
        assert_eq!(world.pool.free_permits(), 1);
        assert_idle(&world.domain, &[&holder, &waiter]);
    });
}

#[test]
fn close_against_enqueue() {
    model("close against enqueue", 1, [4, 5], |world| {
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 9));
        let permit = world.take(&holder, 1);
        let waits = spawn({
            let (wait, waiter, inside) = (world.pool.acquire_owned(), waiter.clone(), Arc::clone(&world.inside));
            move || match block_on(waiter.run(wait)) {
                Ok(permit) => {
                    visit(&inside, 1, &permit);
                    1
                }
                Err(error) => {
                    assert!(error.is_closed(), "{error}");
                    0
                }
            }
        });
        let closes = spawn({
            let pool = Arc::clone(&world.pool);
            move || {
                pool.close();
                drop(pool);
            }
        });
        drop(permit);
        closes.join().unwrap();
        let visits = waits.join().unwrap();
        assert!(world.pool.is_closed() && world.pool.try_acquire().unwrap_err().is_closed());
        assert_eq!((world.pool.free_permits(), world.inside.visits()), (1, visits));
        assert_idle(&world.domain, &[&holder, &waiter]);
    });
}

#[test]
fn expiry_against_release() {
    model("expiry against release", 1, [4, 4], |world| {
        let (holder, hasty, patient) = (worker("holder", 0), worker("hasty", 9), worker("patient", 5));
        let permit = world.take(&holder, 1);
        let hastes = world.queued(&hasty, world.pool.acquire_owned().timeout(Duration::from_millis(100)));
        let waits = world.visitor(&patient, world.pool.acquire_owned());
        let releases = spawn(move || drop(permit));
        world.clock.advance(Duration::from_millis(100));
        world.domain.expire();
        let visits = match block_on(hasty.run(hastes)) {
            Ok(permit) => {
                visit(&world.inside, 1, &permit);
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

/// Nobody polls the first two in line any more; whoever is behind has what they were granted all the same.
#[test]
fn take_over_of_abandoned_grants() {
    model("take-over of abandoned grants", 2, [5, 5], |world| {
        let (holder, idle, next) = (worker("holder", 0), [worker("idle", 9), worker("idle", 8)], worker("next", 5));
        let permits = world.take(&holder, 2);
        let abandoned = idle.each_ref().map(|idle| world.queue(idle, 1));
        let waits = world.visitor(&next, world.pool.acquire_many_owned(2));
        drop(permits);
        for _ in 0..2 {
            world.clock.advance(STALL);
            world.domain.expire();
        }
        waits.join().unwrap();
        drop(abandoned);
        world.assert_over(1, &[&holder, &idle[0], &idle[1], &next]);
    });
}

/// One of two that no longer come for their grants goes at that moment.
#[test]
fn take_over_against_cancel() {
    model("take-over against cancel", 2, [5, 5], |world| {
        let (holder, idle, next) = (worker("holder", 0), [worker("idle", 9), worker("idle", 8)], worker("next", 5));
        let permits = world.take(&holder, 2);
        let [gone, stays] = idle.each_ref().map(|idle| world.queue(idle, 1));
        let wait = world.queue(&next, 2);
        drop(permits);
        world.domain.expire();
        world.clock.advance(STALL);
        world.domain.expire();
        let cancels = spawn(move || drop(gone));
        let waits = world.visitor(&next, wait);
        cancels.join().unwrap();
        waits.join().unwrap();
        drop(stays);
        world.assert_over(1, &[&holder, &idle[0], &idle[1], &next]);
    });
}

/// It may have some before others queue, and after; while one waits, never.
#[test]
fn try_acquire_between() {
    model("try_acquire between", 1, [3, 3], |world| {
        let (holder, waiter, tries) = (worker("holder", 0), worker("waiter", 9), worker("tries", 1));
        let permit = world.take(&holder, 1);
        let waits = world.visitor(&waiter, world.pool.acquire_owned());
        let tries_it = spawn({
            let (pool, tries, inside) = (Arc::clone(&world.pool), tries.clone(), Arc::clone(&world.inside));
            move || {
                let visits = tries.scope(|| pool.try_acquire().map(|_permit| inside.visit())).map_or(0, |()| 1);
                drop(pool);
                visits
            }
        });
        drop(permit);
        let visits = tries_it.join().unwrap();
        waits.join().unwrap();
        world.assert_over(1 + visits, &[&holder, &waiter, &tries]);
    });
}

/// Whether somebody comes before the permits change hands or after: it is the heir who inherits, if that is known at all.
#[test]
fn transfer_against_a_contender() {
    explore("transfer against a contender", 5, || {
        let world = World::new(2, true);
        let (holder, heir, waiter) = (worker("holder", 0), worker("heir", 1), worker("waiter", 9));
        let permits = world.take(&holder, 2);
        let queues = spawn({
            let (mut wait, waiter) = (world.pool.acquire_owned(), waiter.clone());
            move || {
                assert!(waiter.scope(|| poll_once(&mut wait)).is_pending());
                wait
            }
        });
        permits.transfer_to(&heir);
        let wait = queues.join().unwrap();
        assert_eq!((holder.effective_priority(), heir.effective_priority()), (0, 9));
        drop(permits);
        drop(block_on(waiter.run(wait)).unwrap());
        world.assert_over(0, &[&holder, &heir, &waiter]);
    });
}
