//! `heirlock run`: waits for the lock, has the command run, and releases the lock when nothing is left that it is held for.

use std::future::IntoFuture;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use heirlock::lease::{Key, Mode, Token};
use heirlock::{Kind, Lease, Locks, LostReason, Released, Worker};
use rustix::process::Pid;
use tokio::time::{sleep, timeout};

use crate::args::{Job, Run};
use crate::child::{self, Child};
use crate::default_store::Place;
use crate::doctor::clocks;
use crate::exit::{BUSY, CANNOT_RUN, EVICTED, Exit, LAST_LINES, LOST, NOT_FOUND, OWN, tell};
use crate::guardian::{self, Charge, Guardian, LAST_MOMENT, OnLost, Recruit, Word};
use crate::pinned::Pinned;
use crate::signals::Signals;
use crate::{busy, default_store, nested, progress, stderr};

/// How long the first connect may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the store may take to hear that we are gone.
const STORE_HEARS: Duration = Duration::from_secs(1);
/// How long a refused run may look who holds the lock.
const REFUSED_LOOK: Duration = Duration::from_millis(500);
/// How often a valid lease is looked at, at least.
const VALIDITY_LOOK: Duration = Duration::from_secs(1);
/// How long the guardian may take to start the command before a signal is taken to mean us.
const START: Duration = Duration::from_secs(1);
/// How often a nested run looks whether the one above it has ended.
const ANCESTOR_LOOK: Duration = Duration::from_millis(50);

/// What is known before anything has started a thread.
pub(crate) struct Prepared {
    place: Place,
    charge: Charge,
    recruit: Recruit,
}

pub(crate) fn prepare(run: &Run) -> Result<Prepared, Exit> {
    let job = run.job()?;
    Key::new(&job.name).map_err(|error| Exit::own(error.chain()))?;
    let grace = run.grace()?;
    let place = default_store::url(run.store.clone())?;
    let charge = Charge { job, url: place.url.clone(), on_lost: run.on_lost, grace, ttl: run.ttl, max_hold: run.max_hold };
    let recruit = guardian::recruit(&charge)?;
    Ok(Prepared { place, charge, recruit })
}

pub(crate) async fn run(run: Run, prepared: Prepared) -> Exit {
    match try_run(run, prepared).await {
        Ok(exit) | Err(exit) => exit,
    }
}

async fn try_run(run: Run, Prepared { place, charge, recruit }: Prepared) -> Result<Exit, Exit> {
    let job = charge.job;
    let guardian = recruit.enlist()?;
    let mut signals = Signals::listen()?;
    let started = Instant::now();
    place.check_directory()?;
    let is_first_use = place.is_unused();
    let locks = tokio::select! {
        locks = connect(&place.url, run.patience()) => locks?,
        signal = signals.end() => return Err(Exit::signal(signal)),
    };
    let pinned = place.path().and_then(Pinned::at);
    if is_first_use {
        place.note_first_use();
    }
    let complaints = tokio::spawn(progress::complain(locks.clone()));
    let worker = Worker::new(user()).priority(run.priority);
    let witness = guardian.witness()?;
    let mut guardian = guardian;
    let lease = tokio::select! {
        _ = guardian.word() => Err(Exit::own("its guardian was killed while it waited, so nothing was run: try again")),
        lease = wait(&locks, &run, &job, started, &worker, pinned.as_ref(), witness) => lease,
        never = progress::show(&locks, &job.name) => never,
        signal = signals.end() => Err(Exit::signal(signal)),
    };
    let (exit, unused) = match lease {
        Ok(lease) => (Holder { place: &place, locks: &locks, run: &run, job: &job, guardian, signals }.hold(lease).await, None),
        Err(exit) => (exit, Some(guardian)),
    };
    complaints.abort();
    // A withdrawn place in the queue, or a release, is told before we go; a store that does not listen frees it by itself in time.
    let _ = timeout(STORE_HEARS, locks.close()).await;
    if let Some(guardian) = unused {
        // It need not give back what we have.
        guardian.dismiss().await;
    }
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
        Ok(Ok(locks)) => {
            tracing::debug!(store = locks.url(), session = %locks.session(), "the store is reached");
            Ok(locks)
        }
        Ok(Err(error)) => Err(Exit::own(error.chain())),
        Err(_) => Err(Exit::own(format!("{} did not answer within {most:?}", heirlock::redact(url)))),
    }
}

async fn wait(
    locks: &Locks,
    run: &Run,
    job: &Job,
    started: Instant,
    worker: &Worker,
    pinned: Option<&Pinned>,
    witness: impl Fn(Token) + Clone + Send + Sync + 'static,
) -> Result<Lease, Exit> {
    let (mode, url) = (run.mode(), locks.url());
    // Who does not wait does not wait for itself.
    let is_nested = run.patience() != Some(Duration::ZERO) && nested::is_possible(&job.name, &url);
    loop {
        if is_nested {
            let view = locks.inspect(&job.name).await.map_err(|error| Exit::own(error.chain()))?;
            nested::refuse(&view, mode, &url, false)?;
        }
        let mut call = locks.lock(&job.name).ttl(run.ttl).on_ticket(witness.clone());
        call = call.command(Path::new(&job.program).file_name().unwrap_or(&job.program).to_string_lossy());
        if let Some(why) = &run.why {
            call = call.why(why);
        }
        if let Some(most) = run.max_hold {
            call = call.max_hold(most);
        }
        if let Some(least) = run.hold_at_least.filter(|least| !least.is_zero()) {
            call = call.hold_at_least(least);
        }
        match mode {
            Mode::Exclusive => {}
            Mode::Shared => call = call.shared(),
            Mode::Slot(slots) => call = call.slots(slots),
        }
        match run.patience() {
            Some(Duration::ZERO) => call = call.no_wait(),
            // The wait counts from the start, the connect included; what is over takes a free lock and no more.
            Some(wait) => call = call.timeout(wait.saturating_sub(started.elapsed())),
            None => {}
        }
        // Beside a reader above us, what is not to be had at once is waited for by what we would wait for.
        let asks_beside = is_nested && mode == Mode::Shared;
        if asks_beside {
            call = call.no_wait();
        }
        match worker.run(call.into_future()).await {
            Ok(lease) => {
                if let Err(exit) = pinned.map_or(Ok(()), Pinned::check) {
                    let _ = timeout(STORE_HEARS, lease.release()).await;
                    return Err(exit);
                }
                tracing::debug!(key = %lease.key(), fence = lease.fence(), waited = ?started.elapsed(), "the lock is held");
                return Ok(lease);
            }
            // We were stopped for longer than a place in the queue is kept: queue again. Or the store is another one.
            Err(error) if error.kind() == Kind::Lost => pinned.map_or(Ok(()), Pinned::check)?,
            Err(error) if asks_beside && error.kind() == Kind::Busy => {
                let view = locks.inspect(&job.name).await.map_err(|error| Exit::own(error.chain()))?;
                nested::refuse(&view, mode, &url, true)?;
                // The one above us has ended meanwhile.
                sleep(ANCESTOR_LOOK).await;
            }
            Err(error) if error.kind() == Kind::Busy || error.kind() == Kind::Timeout => {
                return Err(refusal(locks, run, job, &error).await);
            }
            Err(error) => return Err(Exit::of(&error, run.busy_code)),
        }
    }
}

/// Who may not wait, or no longer: by one look after it, who is in the way; or that nobody knows.
async fn refusal(locks: &Locks, run: &Run, job: &Job, error: &heirlock::Error) -> Exit {
    let has_waited = error.kind() == Kind::Timeout;
    let look = match timeout(REFUSED_LOOK, locks.inspect(&job.name)).await {
        Ok(Ok(view)) => busy::line(&view, clocks::wall_ms(), has_waited),
        // A store that says nothing has not said that it is held.
        Ok(Err(_)) | Err(_) if has_waited => {
            let url = locks.url();
            return Exit::own(format!(
                "{url} does not answer any more, so nobody knows whether {} is free: try again when it does",
                job.name
            ));
        }
        _ => None,
    };
    // Whoever chose a code is a script, which knows what it means.
    if run.busy_code == BUSY { Exit::because(BUSY, look.unwrap_or_else(|| error.chain())) } else { Exit::code(run.busy_code) }
}

/// Who holds the lock while the command runs.
struct Holder<'r> {
    place: &'r Place,
    locks: &'r Locks,
    run: &'r Run,
    job: &'r Job,
    guardian: Guardian,
    signals: Signals,
}

/// How the command came to its end.
enum End {
    /// It ran, and its lock was valid to its end.
    Of(Result<i32, i32>),
    /// It could not be started.
    Unstarted(Exit),
    /// The guardian could not do its work, and heirlock has ended the command itself.
    Unguarded(u8, String),
    /// A signal came while the guardian did not start the command.
    Withdrawn(i32),
    /// It was ended because its lock is lost, or never started.
    Lost,
}

impl Holder<'_> {
    /// Runs the command under the lease, and releases it when nothing is left that it is held for.
    async fn hold(mut self, lease: Lease) -> Exit {
        let end = match self.signals.and_stops().and_then(|()| Child::listen()) {
            Ok(continued) => {
                let (url, name) = (self.locks.url(), &self.job.name);
                let held = nested::with(name, lease.fence(), &url);
                // What we have said comes before what the command says.
                stderr::flush(LAST_LINES / 10);
                self.guardian.start(&lease, child::environment(name, &lease, &self.place.for_commands(&url), held));
                self.watch(&lease, continued).await
            }
            Err(exit) => End::Unstarted(exit),
        };
        let exit = match end {
            // The command is the failure to tell of; a release that fails too ends with the ttl.
            End::Unstarted(exit) => {
                let _ = timeout(STORE_HEARS, lease.release()).await;
                exit
            }
            End::Unguarded(code, why) => {
                let _ = timeout(STORE_HEARS, lease.release()).await;
                Exit::because(code, why)
            }
            End::Withdrawn(signal) => {
                let _ = timeout(STORE_HEARS, lease.release()).await;
                Exit::signal(signal)
            }
            // Why was told by who noticed it.
            End::Lost => {
                let code = lost_code(&lease);
                let _ = timeout(STORE_HEARS, lease.release()).await;
                Exit::code(code)
            }
            End::Of(end) => {
                // What came before was for the command.
                self.signals.forget();
                tokio::select! {
                    biased;
                    exit = finish(lease, end) => exit,
                    signal = self.signals.end() => {
                        Exit::ended(end).saying(format!("signal {signal} while releasing the lock: it is free when its ttl is over"))
                    }
                }
            }
        };
        self.guardian.dismiss().await;
        exit
    }

    /// Until nothing is left of the command that the lock is held for.
    async fn watch(&mut self, lease: &Lease, continued: tokio::signal::unix::Signal) -> End {
        let mut continued = Some(continued);
        let mut child: Option<Child> = None;
        let (mut ended, mut is_told, mut is_refused) = (None, false, false);
        let start = Instant::now() + START;
        let mut too_late = pin!(near_the_end(lease));
        loop {
            tokio::select! {
                biased;
                word = self.guardian.word() => match (word, &mut child) {
                    (Some(Word::Started { pid }), _) => match (Pid::from_raw(pid), continued.take()) {
                        (Some(group), Some(continued)) => child = Some(Child::started(group, continued)),
                        _ => return self.unguarded(lease, child.as_ref(), "its guardian speaks nonsense").await,
                    },
                    (Some(Word::Failed { is_missing, why }), _) => {
                        return End::Unstarted(Exit::because(if is_missing { NOT_FOUND } else { CANNOT_RUN }, why));
                    }
                    // One of us was stopped since the lock was granted, for so long that it is lost.
                    (Some(Word::Gone { cause: Some(_) }), None) => return End::Lost,
                    (Some(Word::Stopped { signal }), Some(child)) => child.stopped(signal).await,
                    (Some(Word::Ended { end }), Some(child)) => {
                        child.ended(end);
                        ended = Some(end);
                    }
                    (Some(Word::Refused), Some(_)) => is_refused = true,
                    (Some(Word::Gone { cause }), Some(_)) if ended.is_some() => {
                        return if cause.is_some() { End::Lost } else { End::Of(ended.unwrap_or(Ok(0))) };
                    }
                    (Some(_), _) => return self.unguarded(lease, child.as_ref(), "its guardian speaks nonsense").await,
                    (None, _) => return self.unguarded(lease, child.as_ref(), "its guardian was killed").await,
                },
                signal = next_signal(&mut self.signals, child.is_none().then_some(start)) => {
                    let Some(child) = &mut child else {
                        self.guardian.end_tree(None, Duration::ZERO, || lease.remaining(), &mut self.signals).await;
                        return End::Withdrawn(signal);
                    };
                    child.take(signal).await;
                }
                reason = lease.lost(), if !is_told => {
                    is_told = true;
                    self.guardian.lose(reason.to_string());
                }
                // Who is not allowed to is not slow.
                () = &mut too_late, if self.run.on_lost != OnLost::Notify && !is_refused => {
                    let end = self.unguarded(lease, child.as_ref(), "its guardian did not end it in time").await;
                    // The lock is lost, whoever is slow.
                    return if let End::Unguarded(_, why) = end { End::Unguarded(lost_code(lease), why) } else { end };
                }
            }
        }
    }

    /// Ends the command ourselves.
    async fn unguarded(&mut self, lease: &Lease, child: Option<&Child>, why: &str) -> End {
        tell(&format!("ending the command: {why}"));
        let grace = if self.run.on_lost == OnLost::Kill { Duration::ZERO } else { self.run.grace().unwrap_or_default() };
        self.guardian.end_tree(child.map(|child| child.group), grace, || lease.remaining(), &mut self.signals).await;
        End::Unguarded(OWN, format!("the command was ended, for {why}"))
    }
}

/// The next signal for the command; if it has not been started by then, the next one that ends us.
async fn next_signal(signals: &mut Signals, start: Option<Instant>) -> i32 {
    let Some(start) = start else { return signals.next().await };
    // Kept until there is somebody to send it to: the command may run before we hear of it.
    sleep(start.saturating_duration_since(Instant::now())).await;
    signals.end().await
}

/// Until the guardian should long have ended the command, and another can soon hold the lock.
async fn near_the_end(lease: &Lease) {
    loop {
        let left = lease.remaining().saturating_sub(LAST_MOMENT / 2);
        if left.is_zero() {
            if lease.remaining().is_zero() {
                // Lost out of turn: the guardian was told of it a moment ago.
                sleep(LAST_MOMENT).await;
            }
            return;
        }
        // A timed wait does not count suspend.
        sleep(left.min(VALIDITY_LOOK)).await;
    }
}

/// The code of a command that was ended because its lock is lost.
fn lost_code(lease: &Lease) -> u8 {
    if lease.lost_reason() == Some(LostReason::Evicted) { EVICTED } else { LOST }
}

async fn finish(lease: Lease, end: Result<i32, i32>) -> Exit {
    let (key, was_valid) = (lease.key().clone(), lease.is_valid());
    let before = lease.lost_reason();
    match (before, lease.release().await) {
        (Some(LostReason::Evicted), _) => Exit::because(EVICTED, format!("an operator took the lock on {key} away")),
        // The guardian saw the command end while the lock was valid: only we were late.
        (Some(LostReason::Expired | LostReason::MaxHold), _) | (None, Ok(Released::AlreadyLost)) if !was_valid => Exit::ended(end).saying(
            format!("the command ended in time, but heirlock was held up, and the lock on {key} has expired before it was released"),
        ),
        (Some(reason), _) => Exit::because(LOST, format!("the lock on {key} was lost before the command ended: {reason}")),
        (None, Ok(Released::AlreadyLost)) => Exit::because(LOST, format!("the lock on {key} was lost before the command ended")),
        (None, Ok(Released::InTime | Released::StillHeld)) => Exit::ended(end),
        (None, Err(error)) if was_valid => Exit::ended(end)
            .saying(format!("the command ended while the lock on {key} was held, but it could not be released: {}", error.chain())),
        (None, Err(error)) => Exit::of(&error, LOST),
    }
}

/// Under whose name operators see us.
fn user() -> String {
    let id = nix::unistd::geteuid();
    nix::unistd::User::from_uid(id).ok().flatten().map_or_else(|| format!("uid{id}"), |user| user.name)
}
