//! `heirlock run`: waits for the lock, runs the command, ends it before the lock could be another's.

use std::future::IntoFuture;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use heirlock::{Kind, Lease, Locks, LostReason, Released, Worker};
use tokio::time::{sleep, timeout};

use crate::args::{Job, Run};
use crate::child::Child;
use crate::exit::{BUSY, EVICTED, Exit, LOST, tell};
use crate::signals::Signals;
use crate::{default_store, progress};

/// How long the first connect may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest from TERM to KILL.
const GRACE: Duration = Duration::from_secs(5);
/// TERM comes this much earlier than the grace would need.
const EARLY: Duration = Duration::from_millis(500);
/// KILL comes this much before another could hold.
const LAST_MOMENT: Duration = Duration::from_millis(250);
/// How often a valid lease is looked at, at least: a timed wait does not count suspend.
const GLANCE: Duration = Duration::from_secs(1);

pub(crate) async fn run(run: Run) -> Exit {
    match try_run(run).await {
        Ok(exit) | Err(exit) => exit,
    }
}

async fn try_run(run: Run) -> Result<Exit, Exit> {
    let job = run.job()?;
    heirlock::lease::Key::new(&job.name).map_err(|error| Exit::own(error.chain()))?;
    let mut signals = Signals::listen()?;
    let started = Instant::now();
    let place = default_store::url(run.store.clone())?;
    place.note_first_use();
    let locks = connect(&place.url, run.patience()).await?;
    let worker = Worker::new(user()).priority(run.priority);
    let lease = tokio::select! {
        lease = wait(&locks, &run, &job, started, &worker) => lease,
        never = progress::show(&locks, &job.name) => never,
        signal = signals.next() => Err(Exit::signal(signal)),
    };
    let exit = match lease {
        Ok(lease) => hold(&locks, &job, lease, &mut signals, &worker).await,
        Err(exit) => exit,
    };
    // A withdrawn place in the queue, or a release, is told before we go.
    locks.close().await;
    Ok(exit)
}

/// A session, within the time that there is for it.
pub(crate) async fn connect(url: &str, patience: Option<Duration>) -> Result<Locks, Exit> {
    // Not waiting for a lock does not mean not waiting for the store.
    let most = patience.filter(|wait| !wait.is_zero()).unwrap_or(CONNECT).min(CONNECT);
    match timeout(most, Locks::connect(url)).await {
        // It would exclude nobody.
        Ok(Ok(locks)) if !locks.capabilities().shared => {
            Err(Exit::own(format!("{} is seen by one process only: use something like sqlite:/path/to/file", locks.url())))
        }
        Ok(Ok(locks)) => Ok(locks),
        Ok(Err(error)) => Err(Exit::own(error.chain())),
        Err(_) => Err(Exit::own(format!("{} did not answer within {most:?}", heirlock::redact(url)))),
    }
}

async fn wait(locks: &Locks, run: &Run, job: &Job, started: Instant, worker: &Worker) -> Result<Lease, Exit> {
    loop {
        let mut call = locks.lock(&job.name).ttl(run.ttl);
        call = call.command(Path::new(&job.program).file_name().unwrap_or(&job.program).to_string_lossy());
        if let Some(why) = &run.why {
            call = call.why(why);
        }
        if run.shared {
            call = call.shared();
        }
        if let Some(slots) = run.slots {
            call = call.slots(slots);
        }
        match run.patience() {
            Some(Duration::ZERO) => call = call.no_wait(),
            // The wait counts from the start, the connect included; what is over takes a free lock and no more.
            Some(wait) => call = call.timeout(wait.saturating_sub(started.elapsed())),
            None => {}
        }
        match worker.run(call.into_future()).await {
            Ok(lease) => return Ok(lease),
            // We were stopped for longer than a place in the queue is kept: queue again.
            Err(error) if error.kind() == Kind::Lost => {}
            Err(error) if error.kind() == Kind::Busy || error.kind() == Kind::Timeout => {
                return Err(if run.busy_code == BUSY { Exit::because(BUSY, error.chain()) } else { Exit::code(run.busy_code) });
            }
            Err(error) => return Err(Exit::of(&error, run.busy_code)),
        }
    }
}

/// Runs the command under the lease.
async fn hold(locks: &Locks, job: &Job, lease: Lease, signals: &mut Signals, worker: &Worker) -> Exit {
    let owner = format!("{}@{}:{}", worker.name(), hostname(), std::process::id());
    let mut child = match Child::start(job, &lease, &owner, &locks.url()) {
        Ok(child) => child,
        Err(exit) => {
            // The command is the failure to tell of; a release that fails too ends with the ttl.
            let _ = lease.release().await;
            return exit;
        }
    };
    let mut watch = Watch { grace: GRACE.min(lease.ttl() / 3), term_at: None, killed: false, loss: None };
    let ended = loop {
        tokio::select! {
            biased;
            ended = child.ended() => break ended,
            signal = signals.next() => child.signal(signal),
            () = watch.next(&lease) => watch.act(&lease, &child),
        }
    };
    match ended {
        Ok(status) => finish(lease, status, watch.loss).await,
        Err(exit) => exit,
    }
}

/// Ends the command in time if the lease cannot be kept.
struct Watch {
    grace: Duration,
    term_at: Option<Instant>,
    killed: bool,
    loss: Option<LostReason>,
}

impl Watch {
    /// Returns when there may be something to do.
    async fn next(&self, lease: &Lease) {
        if self.killed {
            return std::future::pending().await;
        }
        let nap = match self.term_at {
            None => lease.remaining().saturating_sub(self.grace + EARLY),
            Some(term_at) => {
                (term_at + self.grace).saturating_duration_since(Instant::now()).min(lease.remaining().saturating_sub(LAST_MOMENT))
            }
        };
        tokio::select! {
            () = sleep(nap.min(GLANCE)) => {}
            _ = lease.lost(), if self.term_at.is_none() => {}
        }
    }

    fn act(&mut self, lease: &Lease, child: &Child) {
        let left = lease.remaining();
        let Some(term_at) = self.term_at else {
            let loss = lease.lost_reason().or_else(|| (left <= self.grace + EARLY).then_some(LostReason::Expired));
            if let Some(reason) = loss {
                tell(&format!("ending the command, for the lock on {} is lost: {reason}", lease.key()));
                self.loss = Some(reason);
                self.term_at = Some(Instant::now());
                child.signal(rustix::process::Signal::TERM.as_raw());
                // One that is stopped could not act on it.
                child.signal(rustix::process::Signal::CONT.as_raw());
            }
            return;
        };
        if left <= LAST_MOMENT || term_at.elapsed() >= self.grace {
            child.signal(rustix::process::Signal::KILL.as_raw());
            self.killed = true;
        }
    }
}

async fn finish(lease: Lease, status: ExitStatus, loss: Option<LostReason>) -> Exit {
    let was_valid = lease.is_valid();
    let loss = loss.or_else(|| lease.lost_reason());
    let name = lease.key().clone();
    let released = lease.release().await;
    match (loss, released) {
        (Some(LostReason::Evicted), _) => Exit::code(EVICTED),
        (Some(_), _) => Exit::code(LOST),
        (None, Ok(Released::AlreadyLost)) => Exit::because(LOST, format!("the lock on {name} was lost before the command ended")),
        (None, Ok(Released::InTime)) => own_code(status),
        (None, Err(error)) if was_valid => {
            tell(&format!("the command ended while the lock on {name} was held, but it could not be released: {}", error.chain()));
            own_code(status)
        }
        (None, Err(error)) => Exit::of(&error, LOST),
    }
}

fn own_code(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, signal) => Exit::signal(signal.unwrap_or(0)),
    }
}

/// Under whose name operators see us.
fn user() -> String {
    let id = nix::unistd::geteuid();
    nix::unistd::User::from_uid(id).ok().flatten().map_or_else(|| format!("uid{id}"), |user| user.name)
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
