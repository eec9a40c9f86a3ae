//! Who does what, wherever it is played.

use std::hint;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::yield_now;

/// Their names and priorities, the most urgent first.
pub(super) const ACTORS: [(&str, i32); 5] = [("bus", 10), ("comms", 5), ("camera", 5), ("radio", 5), ("meteo", 1)];
pub(super) const HIGH: usize = 0;
const LOW: usize = 4;

/// How long each computes until it yields.
pub(super) const STEP: Duration = Duration::from_millis(10);
/// How many steps Low holds the lock, and how many of them are left when High asks for it.
const HELD: usize = 5;
pub(super) const LEFT: usize = HELD - 1;
/// How much each of the others has to do.
const OTHERS: usize = 6;
const HIGHS: usize = 2;

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
pub(super) type Acquire = Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;

/// What somebody did, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happened {
    pub(super) who: usize,
    pub(super) what: What,
    pub(super) at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Comes,
    /// For one step.
    Runs {
        holds: bool,
    },
    Waits,
    Gets,
    Ends,
}

/// A place where it is played: its lock, and how tasks get there.
pub(super) struct Scene {
    lock: Box<dyn Fn() -> Acquire + Send + Sync>,
    spawn: Box<dyn Fn(usize, Task) + Send + Sync>,
    happened: Mutex<Vec<Happened>>,
}

impl Scene {
    pub(super) fn new(
        lock: impl Fn() -> Acquire + Send + Sync + 'static,
        spawn: impl Fn(usize, Task) + Send + Sync + 'static,
    ) -> Arc<Scene> {
        Arc::new(Scene { lock: Box::new(lock), spawn: Box::new(spawn), happened: Mutex::default() })
    }

    /// Until all have ended.
    pub(super) async fn play(self: Arc<Scene>) -> Vec<Happened> {
        // Nobody sends: each keeps a sender until it ends.
        let (plays, mut ended) = mpsc::channel::<()>(1);
        let low = Arc::clone(&self).low(plays);
        (self.spawn)(LOW, Box::pin(low));
        ended.recv().await;
        std::mem::take(&mut *self.happened.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn low(self: Arc<Scene>, plays: mpsc::Sender<()>) {
        self.note(LOW, What::Comes);
        let guard = (self.lock)().await;
        for step in 0..HELD {
            if step > 0 {
                yield_now().await;
            }
            self.step(LOW, true);
            if step == 0 {
                for who in HIGH + 1..LOW {
                    (self.spawn)(who, Box::pin(Arc::clone(&self).other(who, plays.clone())));
                }
                (self.spawn)(HIGH, Box::pin(Arc::clone(&self).high(plays.clone())));
            }
        }
        drop(guard);
        yield_now().await;
        self.step(LOW, false);
        self.note(LOW, What::Ends);
    }

    async fn other(self: Arc<Scene>, who: usize, _plays: mpsc::Sender<()>) {
        self.note(who, What::Comes);
        for _ in 0..OTHERS {
            self.step(who, false);
            yield_now().await;
        }
        self.note(who, What::Ends);
    }

    async fn high(self: Arc<Scene>, _plays: mpsc::Sender<()>) {
        self.note(HIGH, What::Comes);
        self.note(HIGH, What::Waits);
        let guard = (self.lock)().await;
        self.note(HIGH, What::Gets);
        for _ in 0..HIGHS {
            self.step(HIGH, true);
            yield_now().await;
        }
        drop(guard);
        self.note(HIGH, What::Ends);
    }

    /// Computes, and keeps the thread.
    fn step(&self, who: usize, holds: bool) {
        self.note(who, What::Runs { holds });
        let from = Instant::now();
        while from.elapsed() < STEP {
            hint::spin_loop();
        }
    }

    fn note(&self, who: usize, what: What) {
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).push(Happened { who, what, at: Instant::now() });
    }
}
