//! The command: its own process group, and what becomes of it.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use heirlock::Lease;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process, kill_process_group, waitid};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::args::Job;
use crate::exit::{CANNOT_RUN, Exit, NOT_FOUND};
use crate::{group, terminal};

/// A command that runs, or has run. Its leader is not reaped before the guard goes, so that the group's number stays its own.
pub(crate) struct Child {
    group: Pid,
    /// Something has become of a child of ours.
    changes: Stream,
    /// We have been continued.
    continued: Stream,
}

/// What has become of the command.
#[derive(Debug)]
pub(crate) enum Change {
    /// It ended, with this code or by this signal.
    Ended(Result<i32, i32>),
    /// The terminal has stopped it.
    Stopped,
}

impl Child {
    /// Starts it.
    pub(crate) fn start(job: &Job, lease: &Lease, store: &str) -> Result<Child, Exit> {
        // Listened to before it starts, so that nothing is missed; and if whoever started us has its children's ends ignored, we do not.
        let listen = |kind| signal(kind).map_err(|error| Exit::own(format!("cannot listen for signals: {error}")));
        let (changes, continued) = (listen(SignalKind::child())?, listen(SignalKind::from_raw(Signal::CONT.as_raw()))?);
        let mut command = Command::new(&job.program);
        command.args(&job.args).process_group(0);
        let owner = lease.owner();
        command.env("HEIRLOCK_NAME", &job.name).env("HEIRLOCK_FENCE", lease.fence().to_string());
        command.env("HEIRLOCK_OWNER", format!("{}@{}:{}", owner.name, owner.host, owner.pid));
        command.env("HEIRLOCK_STORE", store).env("HEIRLOCK_TTL_MS", lease.ttl().as_millis().to_string());
        match lease.slot() {
            Some(slot) => command.env("HEIRLOCK_SLOT", slot.to_string()),
            None => command.env_remove("HEIRLOCK_SLOT"),
        };
        let child = command.spawn().map_err(|error| {
            let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            Exit::because(code, format!("cannot run {}: {error}", job.program.to_string_lossy()))
        })?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| Exit::own("the command has no process id"))?;
        terminal::offer(group);
        Ok(Child { group, changes, continued })
    }

    /// Sends a signal to the whole group. If it has just ended, there is nothing to send it to.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Waits until it ends, or until the terminal stops it. Asked again after its end, it tells the same.
    pub(crate) async fn changed(&mut self) -> Result<Change, Exit> {
        loop {
            match self.look(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT) {
                Ok(None) => {
                    self.changes.recv().await;
                }
                Ok(Some(status)) if status.stopped() => {
                    // Taken note of, so that it is not told again.
                    let _ = self.look(WaitIdOptions::STOPPED);
                    if self.asks_for_terminal(&status) {
                        continue;
                    }
                    if is_by_terminal(&status) {
                        return Ok(Change::Stopped);
                    }
                }
                Ok(Some(status)) => {
                    let end = status.exit_status().ok_or_else(|| status.terminating_signal().unwrap_or(0));
                    return Ok(Change::Ended(end));
                }
                Err(error) => return Err(Exit::own(format!("the system does not say what became of the command: {error}"))),
            }
        }
    }

    fn look(&self, what: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
        loop {
            match waitid(WaitId::Pid(self.group), what | WaitIdOptions::NOHANG) {
                Err(Errno::INTR) => {}
                seen => return seen,
            }
        }
    }

    /// Whether it was stopped because it is not in the foreground, and now is.
    fn asks_for_terminal(&self, status: &WaitIdStatus) -> bool {
        let asks = [Signal::TTIN, Signal::TTOU].iter().any(|signal| status.stopping_signal() == Some(signal.as_raw()));
        if !asks || !terminal::hand_over(self.group) {
            return false;
        }
        self.signal(Signal::CONT.as_raw());
        true
    }

    /// Stops us too, as a shell expects of a job, and returns when it has continued us. The command stays stopped until [`Child::go_on`].
    pub(crate) async fn stop_with_it(&mut self) {
        terminal::take_back(self.group);
        // What continued us earlier does not count.
        while let Poll::Ready(Some(())) = self.continued.poll_recv(&mut Context::from_waker(Waker::noop())) {}
        let _ = kill_process(getpid(), Signal::STOP);
        // The stop may come a little later; only being continued proves that it has.
        self.continued.recv().await;
    }

    /// Lets a stopped command run again.
    pub(crate) fn go_on(&self) {
        terminal::hand_over(self.group);
        self.signal(Signal::CONT.as_raw());
    }

    /// Whether anybody of the group still runs; yes where the system does not tell.
    pub(crate) fn has_members(&self) -> bool {
        group::members(self.group).is_none_or(|members| !members.is_empty())
    }
}

/// Whether a shell's job control is behind the stop. A supervisor that stops the command for a while does not stop us: we go on renewing.
fn is_by_terminal(status: &WaitIdStatus) -> bool {
    [Signal::TSTP, Signal::TTIN, Signal::TTOU].iter().any(|signal| status.stopping_signal() == Some(signal.as_raw()))
}

impl Drop for Child {
    fn drop(&mut self) {
        terminal::take_back(self.group);
        let _ = self.look(WaitIdOptions::EXITED);
    }
}
