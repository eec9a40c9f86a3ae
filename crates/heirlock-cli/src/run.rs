//! `heirlock run`: waits for the lock, runs the command, ends it before the lock could be another's.

use std::future::IntoFuture;
use std::path::Path;
use std::time::{Duration, Instant};

use heirlock::{Kind, Lease, Locks, LostReason, Released, Worker};
use tokio::time::timeout;

use crate::args::{Job, Run};
use crate::child::{Change, Child};
use crate::exit::{BUSY, EVICTED, Exit, LOST, SIGNAL};
use crate::signals::Signals;
use crate::watch::Watch;
use crate::{default_store, progress};

/// How long the first connect may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the store may take to hear that we are gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
    let is_first_use = place.is_unused();
    let locks = tokio::select! {
        locks = connect(&place.url, run.patience()) => locks?,
        signal = signals.end() => return Err(Exit::signal(signal)),
    };
    if is_first_use {
        place.note_first_use();
    }
    let complaints = tokio::spawn(progress::complain(locks.clone()));
    let worker = Worker::new(user()).priority(run.priority);
    let lease = tokio::select! {
        lease = wait(&locks, &run, &job, started, &worker) => lease,
        never = progress::show(&locks, &job.name) => never,
        signal = signals.end() => Err(Exit::signal(signal)),
    };
    let exit = match lease {
        Ok(lease) => hold(&locks, &job, lease, &mut signals).await,
        Err(exit) => exit,
    };
    complaints.abort();
    // A withdrawn place in the queue, or a release, is told before we go; a store that does not listen frees it by itself in time.
    let _ = timeout(LAST_WORDS, locks.close()).await;
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
async fn hold(locks: &Locks, job: &Job, lease: Lease, signals: &mut Signals) -> Exit {
    let mut child = match signals.and_stops().and_then(|()| Child::start(job, &lease, &locks.url())) {
        Ok(child) => child,
        Err(exit) => {
            // The command is the failure to tell of; a release that fails too ends with the ttl.
            let _ = timeout(LAST_WORDS, lease.release()).await;
            return exit;
        }
    };
    let mut watch = Watch::over(&lease);
    let ended = loop {
        tokio::select! {
            biased;
            change = child.changed() => match change {
                Ok(Change::Ended(end)) => break Ok(end),
                Ok(Change::Stopped) => {
                    child.stop_with_it().await;
                    // We were stopped for long, perhaps: a command that has lost its lock does not run on.
                    watch.act(&lease, &child);
                    if watch.loss.is_none() {
                        child.go_on();
                    }
                }
                Err(exit) => break Err(exit),
            },
            signal = signals.next() => child.signal(signal),
            () = watch.next(&lease) => watch.act(&lease, &child),
        }
    };
    watch.sweep(&lease, &child).await;
    drop(child);
    match ended {
        Ok(end) => tokio::select! {
            exit = finish(lease, end, watch.loss) => exit,
            signal = signals.end() => Exit::because(own_code(end), format!("signal {signal} while releasing the lock: it is free when its ttl is over")),
        },
        Err(exit) => exit,
    }
}

async fn finish(lease: Lease, end: Result<i32, i32>, loss: Option<LostReason>) -> Exit {
    let (key, was_valid) = (lease.key().clone(), lease.is_valid());
    if let Some(reason) = loss {
        // It has been told already. The release cannot fail in a way that matters.
        let _ = lease.release().await;
        return Exit::code(if reason == LostReason::Evicted { EVICTED } else { LOST });
    }
    let before = lease.lost_reason();
    match (before, lease.release().await) {
        (Some(LostReason::Evicted), _) => Exit::because(EVICTED, format!("an operator took the lock on {key} away")),
        (Some(reason), _) => Exit::because(LOST, format!("the lock on {key} was lost before the command ended: {reason}")),
        (None, Ok(Released::AlreadyLost)) => Exit::because(LOST, format!("the lock on {key} was lost before the command ended")),
        (None, Ok(Released::InTime | Released::StillHeld)) => Exit::code(own_code(end)),
        (None, Err(error)) if was_valid => Exit::because(
            own_code(end),
            format!("the command ended while the lock on {key} was held, but it could not be released: {}", error.chain()),
        ),
        (None, Err(error)) => Exit::of(&error, LOST),
    }
}

/// The command's code, or 128 and the signal that ended it.
fn own_code(end: Result<i32, i32>) -> u8 {
    match end {
        Ok(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        Err(signal) => SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0)),
    }
}

/// Under whose name operators see us.
fn user() -> String {
    let id = nix::unistd::geteuid();
    nix::unistd::User::from_uid(id).ok().flatten().map_or_else(|| format!("uid{id}"), |user| user.name)
}
