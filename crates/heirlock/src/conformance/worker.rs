//! The worker: the other process in the cases that need processes.

use std::fs::OpenOptions;
use std::future::poll_fn;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use super::chance::Chance;
use super::modes::SLOTS;
use super::protocol::{Order, Reply};
use super::tools::FOR_EVER;
use crate::lease::{Lease, Locks, Released};
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// The whole `main` of a worker: makes a session from its first argument by `connect`, and then does what it is told on standard input, until
/// that ends.
///
/// ```no_run
/// # use heirlock::Locks;
/// fn main() -> std::process::ExitCode {
///     heirlock::conformance::worker::main(|url| pollster::block_on(Locks::connect(url)))
/// }
/// ```
///
/// # Errors
/// Says on standard error what went wrong and answers a failure.
pub fn main(connect: impl FnOnce(&str) -> Result<Locks>) -> ExitCode {
    match work(connect) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever reads this may be gone too.
            let _ = writeln!(std::io::stderr(), "worker: {}", error.chain());
            ExitCode::FAILURE
        }
    }
}

fn work(connect: impl FnOnce(&str) -> Result<Locks>) -> Result<()> {
    let url = std::env::args().nth(1).ok_or_else(|| broken("give the store's address as first argument"))?;
    let worker = Arc::new(Worker { locks: connect(&url)?, lease: Mutex::default(), work: Arc::default() });
    say(&Reply::Ready)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|cause| broken("cannot read orders").because(cause))?;
        let order = serde_json::from_str(&line).map_err(|cause| broken("no order").because(cause))?;
        worker.obey(order)?;
    }
    Ok(())
}

struct Worker {
    locks: Locks,
    lease: Mutex<Option<Arc<Lease>>>,
    work: Arc<Work>,
}

impl Worker {
    fn obey(self: &Arc<Self>, order: Order) -> Result<()> {
        match order {
            Order::Lock { key, ttl_ms } => {
                let worker = Arc::clone(self);
                thread::spawn(move || {
                    let reply = match worker.locks.lock(key).ttl(Duration::from_millis(ttl_ms)).blocking() {
                        Ok(lease) => {
                            let fence = lease.fence();
                            *lock(&worker.lease) = Some(Arc::new(lease));
                            Reply::Held { fence }
                        }
                        Err(error) => refused(&error),
                    };
                    say_or_exit(&reply);
                });
                Ok(())
            }
            Order::IsValid => say(&Reply::Valid { valid: self.lease()?.is_valid() }),
            Order::Work => {
                let (lease, work) = (self.lease()?, Arc::clone(&self.work));
                thread::spawn(move || {
                    let ended = pollster::block_on(lease.run(poll_fn(|cx| work.poll(cx.waker()))));
                    drop(lease);
                    work.end(match ended {
                        Ok(()) => "done".to_owned(),
                        Err(error) => format!("{:?}", error.kind()),
                    });
                });
                say(&self.work.after(0))
            }
            Order::Wake => say(&self.work.wake()),
            Order::Release => {
                let lease = lock(&self.lease).take().ok_or_else(|| broken("no lease to release"))?;
                let lease = Arc::into_inner(lease).ok_or_else(|| broken("the work under the lease has not ended"))?;
                match lease.release_blocking() {
                    Ok(released) => say(&Reply::Released { in_time: released == Released::InTime }),
                    Err(error) => say(&refused(&error)),
                }
            }
            Order::Holds { key, ttl_ms, times, log } => {
                for _ in 0..times {
                    hold_once(&self.locks, &key, Duration::from_millis(ttl_ms), &log)?;
                }
                say(&Reply::Done)
            }
            Order::HoldAll { keys, ttl_ms, times, log } => {
                for _ in 0..times {
                    hold_all(&self.locks, &keys, Duration::from_millis(ttl_ms), &log)?;
                }
                say(&Reply::Done)
            }
            Order::HoldInModes { ttl_ms, times, seed, log } => {
                let mut chance = Chance::from_seed(seed);
                for _ in 0..times {
                    hold_in_some_mode(&self.locks, &mut chance, Duration::from_millis(ttl_ms), &log)?;
                }
                say(&Reply::Done)
            }
        }
    }

    fn lease(&self) -> Result<Arc<Lease>> {
        lock(&self.lease).clone().ok_or_else(|| broken("there is no lease"))
    }
}

/// Holds the key for a moment, in which it must be alone: what it writes at the end of `log` shows whether it was.
pub(super) fn hold_once(locks: &Locks, key: &str, ttl: Duration, log: &str) -> Result<()> {
    let lease = locks.lock(key).ttl(ttl).blocking()?;
    tell(log, &format!("begin {}", lease.fence()))?;
    let inside = format!("{log}.inside");
    enter(&inside)?;
    leave(&inside)?;
    tell(log, &format!("end {}", lease.fence()))?;
    in_time(lease.release_blocking()?)
}

/// Holds all the keys for a moment, in which it must be alone with each.
pub(super) fn hold_all(locks: &Locks, keys: &[String], ttl: Duration, log: &str) -> Result<()> {
    let leases = locks.lock_all(keys).ttl(ttl).timeout(FOR_EVER).blocking()?;
    let inside: Vec<String> = leases.iter().map(|lease| format!("{log}.{}", lease.key().as_str().replace('/', "."))).collect();
    inside.iter().try_for_each(|file| enter(file))?;
    inside.iter().try_for_each(|file| leave(file))?;
    if leases.iter().len() != keys.len() {
        return Err(broken("some of the keys are not held"));
    }
    in_time(leases.release_blocking()?)
}

/// Holds a key as a reader or a writer, or a slot of another, for a moment. Who was beside it is seen in the log.
pub(super) fn hold_in_some_mode(locks: &Locks, chance: &mut Chance, ttl: Duration, log: &str) -> Result<()> {
    let (call, how) = match chance.below(5) {
        0 => (locks.lock("s20/rw"), "writer"),
        1 | 2 => (locks.lock("s20/rw").shared(), "reader"),
        _ => (locks.lock("s20/slots").slots(SLOTS), "slot"),
    };
    let lease = call.ttl(ttl).timeout(FOR_EVER).blocking()?;
    let how = lease.slot().map_or_else(|| how.to_owned(), |slot| format!("slot{slot}"));
    tell(log, &format!("begin {how} {}", lease.fence()))?;
    thread::sleep(chance.span(Duration::from_millis(2)));
    tell(log, &format!("end {how} {}", lease.fence()))?;
    in_time(lease.release_blocking()?)
}

/// Appends a line. Appends of one write are whole and in the order of time, whoever writes.
fn tell(log: &str, what: &str) -> Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(log).map_err(|cause| broken("cannot open the log").because(cause))?;
    file.write_all(format!("{what}\n").as_bytes()).map_err(|cause| broken("cannot write the log").because(cause))
}

/// Makes a file that must not be there.
fn enter(inside: &str) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(inside);
    made.map(drop).map_err(|cause| broken("another is inside").because(cause))
}

/// Takes it away again.
fn leave(inside: &str) -> Result<()> {
    std::fs::remove_file(inside).map_err(|cause| broken("another was inside").because(cause))
}

fn in_time(released: Released) -> Result<()> {
    match released {
        Released::InTime => Ok(()),
        Released::StillHeld | Released::AlreadyLost => Err(broken("a short hold was lost")),
    }
}

/// Work that waits to be woken, and counts how often it is polled.
#[derive(Default)]
struct Work {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Default)]
struct State {
    polls: u32,
    waker: Option<Waker>,
    ended: Option<String>,
}

impl Work {
    fn poll(&self, waker: &Waker) -> Poll<()> {
        let mut state = lock(&self.state);
        state.polls += 1;
        state.waker = Some(waker.clone());
        self.bell.notify_all();
        Poll::Pending
    }

    fn end(&self, how: String) {
        lock(&self.state).ended = Some(how);
        self.bell.notify_all();
    }

    fn wake(&self) -> Reply {
        let (before, waker) = {
            let mut state = lock(&self.state);
            (state.polls, state.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        self.after(before)
    }

    /// Waits until it has been polled more often than that, or has ended.
    fn after(&self, polls: u32) -> Reply {
        let state = lock(&self.state);
        let state = self.bell.wait_while(state, |state| state.polls <= polls && state.ended.is_none());
        let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
        Reply::Polls { times: state.polls, ended: state.ended.clone() }
    }
}

fn refused(error: &Error) -> Reply {
    Reply::Refused { kind: format!("{:?}", error.kind()), what: error.chain() }
}

fn say(reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_string(reply).map_err(|cause| broken("cannot answer").because(cause))?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|cause| broken("nobody hears the answers").because(cause))
}

fn say_or_exit(reply: &Reply) {
    if say(reply).is_err() {
        std::process::exit(1);
    }
}

fn broken(what: &'static str) -> Error {
    Error::new(Kind::Invalid, what)
}
