//! The command: its own process group, waited for by a thread of its own.

use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use heirlock::Lease;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, waitpid};
use tokio::sync::mpsc;

use crate::args::Job;
use crate::exit::{CANNOT_RUN, Exit, NOT_FOUND};
use crate::terminal;

/// A command that runs, or has run.
pub(crate) struct Child {
    group: Pid,
    ends: mpsc::Receiver<ExitStatus>,
}

impl Child {
    /// Starts it.
    pub(crate) fn start(job: &Job, lease: &Lease, owner: &str, store: &str) -> Result<Child, Exit> {
        let mut command = Command::new(&job.program);
        command.args(&job.args).process_group(0);
        command.env("HEIRLOCK_NAME", &job.name).env("HEIRLOCK_FENCE", lease.fence().to_string()).env("HEIRLOCK_OWNER", owner);
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
        terminal::hand_over(group);
        let (end, ends) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("heirlock-wait".to_owned())
            .spawn(move || wait(group, &end))
            .map_err(|error| Exit::own(format!("cannot wait for the command: {error}")))?;
        Ok(Child { group, ends })
    }

    /// Sends a signal to the whole group. If it has just ended, there is nothing to send it to.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// How it ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, Exit> {
        self.ends.recv().await.ok_or_else(|| Exit::own("the command ended and the system does not say how"))
    }
}

/// Waits for the end. When the terminal stops the command, we stop too, as a shell expects of a job, and both go on together.
fn wait(group: Pid, end: &mpsc::Sender<ExitStatus>) {
    loop {
        let status = match waitpid(Some(group), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => status,
            Ok(None) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        };
        if status.stopped() {
            terminal::take_back(group);
            let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            // Here we are again: a shell has continued us.
            terminal::hand_over(group);
            let _ = kill_process_group(group, Signal::CONT);
            continue;
        }
        terminal::take_back(group);
        // If nobody waits any more, nobody needs to know.
        let _ = end.blocking_send(ExitStatus::from_raw(status.as_raw()));
        return;
    }
}
