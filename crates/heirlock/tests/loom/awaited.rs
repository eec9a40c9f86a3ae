//! Models of what is waited for without being acquired: events and barriers. Those of promises are in `promises.rs`.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::loom_world::{Inside, World, assert_idle, model, poll_once, worker};
use heirlock::Worker;
use heirlock::local::{Arrival, Barrier, Event};
use loom::future::block_on;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::spawn;

type Waiting<T> = std::pin::Pin<Box<dyn Future<Output = heirlock::Result<T>> + Send>>;

fn event(world: &World) -> Arc<Event> {
    Arc::new(Event::new().in_domain(&world.domain))
}

/// A wait that has begun, and is not over.
fn waiting(event: &Arc<Event>, worker: &Worker, timeout: Option<Duration>) -> Waiting<()> {
    let (event, worker) = (Arc::clone(event), worker.clone());
    let mut wait: Waiting<()> = Box::pin(async move {
        let wait = event.wait();
        worker.run(if let Some(span) = timeout { wait.timeout(span) } else { wait }).await
    });
    assert!(poll_once(&mut wait).is_pending());
    wait
}

/// Of a set and a wait that begins, one sees the other; and whoever waited sees what was done before.
#[test]
fn set_against_wait() {
    model("set against wait", 4, |world| {
        let (event, made, waits) = (event(world), Arc::new(Inside::default()), worker("waits", 9));
        let waiting = spawn({
            let (event, made, waits) = (Arc::clone(&event), Arc::clone(&made), waits.clone());
            move || {
                block_on(waits.run(event.wait())).unwrap();
                drop(event);
                made.visits()
            }
        });
        made.visit();
        event.set();
        assert_eq!(waiting.join().unwrap(), 1);
        assert!(event.is_set());
        assert_idle(&world.domain, &[&waits]);
    });
}

#[test]
fn set_against_two_waits() {
    model("set against two waits", 3, |world| {
        let (event, first, second) = (event(world), worker("first", 9), worker("second", 1));
        let waiting = [&first, &second].map(|worker| {
            let (event, worker) = (Arc::clone(&event), worker.clone());
            spawn(move || {
                block_on(worker.run(event.wait())).unwrap();
                drop(event);
            })
        });
        event.set();
        for thread in waiting {
            thread.join().unwrap();
        }
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// A wait that has begun ends with the set, though that is cleared at once; one that begins after it was cleared does not, though the set may not
/// have returned by then.
#[test]
fn set_and_clear_against_waits() {
    model("set and clear against waits", 4, |world| {
        let (event, first, second) = (event(world), worker("first", 9), worker("second", 1));
        let early = waiting(&event, &first, None);
        let clears = spawn({
            let (event, second) = (Arc::clone(&event), second.clone());
            move || event.clear().then(|| waiting(&event, &second, None))
        });
        assert_eq!(event.set(), 1);
        block_on(early).unwrap();
        if let Some(mut late) = clears.join().unwrap() {
            assert!(poll_once(&mut late).is_pending());
            assert_eq!((event.is_set(), event.set()), (false, 1));
            block_on(late).unwrap();
        }
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// Whoever clears an event and then looks misses no change that was made before it was set, also if it was set already.
#[test]
fn set_against_clear_and_look() {
    model("set against clear and look", 4, |world| {
        let (event, state) = (event(world), Arc::new(AtomicU32::new(0)));
        event.set();
        let changes = spawn({
            let (event, state) = (Arc::clone(&event), Arc::clone(&state));
            move || {
                state.store(1, Ordering::Relaxed);
                event.set();
                drop(event);
            }
        });
        assert!(event.clear());
        let seen = state.load(Ordering::Relaxed);
        changes.join().unwrap();
        assert!(seen == 1 || event.is_set());
        assert_idle(&world.domain, &[]);
    });
}

#[test]
fn set_against_cancel() {
    model("set against cancel", 4, |world| {
        let (event, first, second) = (event(world), worker("first", 9), worker("second", 1));
        let (cancelled, waits) = (waiting(&event, &first, None), waiting(&event, &second, None));
        let cancels = spawn(move || drop(cancelled));
        assert!((1..=2).contains(&event.set()));
        cancels.join().unwrap();
        block_on(waits).unwrap();
        assert_eq!(event.set(), 0);
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// The last who waits goes while another begins to: that one is not missed by who sets the event after.
#[test]
fn cancel_against_wait() {
    model("cancel against wait", 4, |world| {
        let (event, first, second) = (event(world), worker("first", 9), worker("second", 1));
        let cancelled = waiting(&event, &first, None);
        let begins = spawn({
            let (event, second) = (Arc::clone(&event), second.clone());
            move || waiting(&event, &second, None)
        });
        drop(cancelled);
        let wait = begins.join().unwrap();
        assert_eq!(event.set(), 1);
        block_on(wait).unwrap();
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// A wait is over by its time or by the set, and the set knows which.
#[test]
fn set_against_expiry() {
    model("set against expiry", 4, |world| {
        let (event, waits) = (event(world), worker("waits", 9));
        let wait = waiting(&event, &waits, Some(Duration::from_millis(5)));
        let sets = spawn({
            let event = Arc::clone(&event);
            move || {
                let ended = event.set();
                drop(event);
                ended
            }
        });
        world.clock.advance(Duration::from_millis(5));
        world.domain.expire();
        let ended = block_on(wait);
        assert_eq!(ended.is_ok(), sets.join().unwrap() == 1);
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_timeout()));
        assert_idle(&world.domain, &[&waits]);
    });
}

fn arriving(barrier: &Arc<Barrier>, worker: &Worker, timeout: Duration) -> Waiting<Arrival> {
    let (barrier, worker) = (Arc::clone(barrier), worker.clone());
    Box::pin(async move { worker.run(barrier.wait().timeout(timeout)).await })
}

const LONG: Duration = Duration::from_secs(60);

/// Each sees what the other did before it came, one of both leads, and the next round begins at once.
#[test]
fn two_arrive() {
    model("two arrive", 3, |world| {
        let (first, second) = (worker("first", 9), worker("second", 1));
        let barrier = Arc::new(Barrier::new(2).in_domain(&world.domain));
        let made = Arc::new([Inside::default(), Inside::default()]);
        let rounds = |worker: &Worker, mine: usize| {
            let (barrier, made, worker) = (Arc::clone(&barrier), Arc::clone(&made), worker.clone());
            move || {
                made[mine].visit();
                let led = block_on(arriving(&barrier, &worker, LONG)).unwrap().is_leader();
                assert_eq!(made[1 - mine].visits(), 1);
                let leads = block_on(arriving(&barrier, &worker, LONG)).unwrap().is_leader();
                drop(barrier);
                [led, leads]
            }
        };
        let other = spawn(rounds(&second, 1));
        let [led, leads] = rounds(&first, 0)();
        assert_eq!(other.join().unwrap(), [!led, !leads]);
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// Either the round was complete before who waited was dropped, or it has not arrived and another must come.
#[test]
fn arrival_against_cancel() {
    model("arrival against cancel", 4, |world| {
        let (first, second, third) = (worker("first", 9), worker("second", 1), worker("third", 1));
        let barrier = Arc::new(Barrier::new(2).in_domain(&world.domain));
        let mut cancelled = arriving(&barrier, &first, LONG);
        assert!(poll_once(&mut cancelled).is_pending());
        let cancels = spawn(move || drop(cancelled));
        let mut comes = arriving(&barrier, &second, LONG);
        let polled = poll_once(&mut comes);
        cancels.join().unwrap();
        match polled {
            Poll::Ready(arrival) => assert!(arrival.unwrap().is_leader()),
            Poll::Pending => {
                assert!(block_on(arriving(&barrier, &third, LONG)).unwrap().is_leader());
                assert!(!block_on(comes).unwrap().is_leader());
            }
        }
        assert_idle(&world.domain, &[&first, &second, &third]);
    });
}

#[test]
fn arrival_against_expiry() {
    model("arrival against expiry", 4, |world| {
        let (first, second) = (worker("first", 9), worker("second", 1));
        let barrier = Arc::new(Barrier::new(2).in_domain(&world.domain));
        let mut hasty = arriving(&barrier, &first, Duration::from_millis(5));
        assert!(poll_once(&mut hasty).is_pending());
        let comes = spawn({
            let mut comes = arriving(&barrier, &second, LONG);
            move || poll_once(&mut comes).map(|arrival| arrival.unwrap().is_leader())
        });
        world.clock.advance(Duration::from_millis(5));
        world.domain.expire();
        let ended = block_on(hasty);
        assert_eq!(
            ended.map_err(|error| error.is_timeout()).map(Arrival::is_leader),
            if comes.join().unwrap().is_ready() { Ok(false) } else { Err(true) }
        );
        assert_idle(&world.domain, &[&first, &second]);
    });
}
