//! The command, as heirlock itself deals with it: signals, and the terminal's stops. Its parent is the guardian.

use std::task::{Context, Poll, Waker};

use heirlock::Lease;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::{Exit, tell};
use crate::{processes, terminal};

/// A command that runs, or has run. The guardian keeps its leader unreaped, so that the group's number stays its own.
pub(crate) struct Child {
    pub(crate) group: Pid,
    /// We have been continued.
    continued: Stream,
    /// It was stopped because it wants a terminal that it cannot have, and nobody will continue it.
    is_stuck: bool,
    /// Its leader has.
    has_ended: bool,
}

/// What the command sees of its lock.
pub(crate) fn environment(name: &str, lease: &Lease, store: &str, held: String) -> Vec<(String, Option<String>)> {
    let owner = lease.owner();
    [
        ("HEIRLOCK_NAME", Some(name.to_owned())),
        ("HEIRLOCK_FENCE", Some(lease.fence().to_string())),
        ("HEIRLOCK_OWNER", Some(format!("{}@{}:{}", owner.name, owner.host, owner.pid))),
        ("HEIRLOCK_STORE", Some(store.to_owned())),
        ("HEIRLOCK_TTL_MS", Some(lease.ttl().as_millis().to_string())),
        ("HEIRLOCK_SLOT", lease.slot().map(|slot| slot.to_string())),
        (crate::nested::HELD, Some(held)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

impl Child {
    /// Listens for what will concern a command; before it starts, so that nothing is missed.
    pub(crate) fn listen() -> Result<Stream, Exit> {
        signal(SignalKind::from_raw(Signal::CONT.as_raw())).map_err(|error| Exit::own(format!("cannot listen for signals: {error}")))
    }

    /// One that has just started.
    pub(crate) fn started(group: Pid, continued: Stream) -> Child {
        terminal::offer(group);
        Child { group, continued, is_stuck: false, has_ended: false }
    }

    /// A signal for us has come, and is for the command.
    pub(crate) async fn take(&mut self, signal: i32) {
        self.signal(signal);
        // What is left behind a leader that has ended is stopped by us, and its stop is not told.
        if self.has_ended && signal == Signal::TSTP.as_raw() {
            if !processes::are_orphans() {
                self.stop_with_it(signal, false).await;
            }
            self.go_on();
        }
    }

    /// Sends a signal to the whole group. If it has just ended, there is nothing to send it to.
    fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.group, signal);
            if self.is_stuck {
                let _ = kill_process_group(self.group, Signal::CONT);
            }
        }
    }

    /// It was stopped by this signal. If that was a shell's job control, which expects us to stop, too, we do, and return when we are continued. A
    /// supervisor that stops the command for a while does not stop us, and we go on renewing.
    pub(crate) async fn stopped(&mut self, by: i32) {
        let is = |signals: &[Signal]| signals.iter().any(|signal| by == signal.as_raw());
        let wants_terminal = is(&[Signal::TTIN, Signal::TTOU]);
        // One that stops itself where the keyboard could: a shell's `suspend`.
        let is_from_terminal = is(&[Signal::TSTP]) || terminal::has(self.group);
        if wants_terminal && terminal::hand_over(self.group) {
            // It was not in the foreground, and now is.
            self.is_stuck = false;
            self.signal(Signal::CONT.as_raw());
        } else if !wants_terminal && !is_from_terminal {
            // A supervisor.
        } else if !processes::are_orphans() {
            self.stop_with_it(by, wants_terminal).await;
            self.go_on();
        } else if !wants_terminal {
            // Where there is no shell, the system does not stop us by the keyboard; nor does it the command. Somebody's SIGSTOP does.
            if is(&[Signal::TSTP]) {
                self.go_on();
            }
        } else if !self.is_stuck {
            // As the system does with stopped processes whose shell goes. If it goes on nevertheless, it waits for a signal.
            tell("the command wants the terminal, which it cannot have, and no shell is left that could give it: HUP for it");
            self.is_stuck = true;
            self.signal(Signal::HUP.as_raw());
        }
    }

    /// Stops us too, as a shell expects of a job, and returns when it has continued us. The command stays stopped until [`Child::go_on`].
    async fn stop_with_it(&mut self, by: i32, wants_terminal: bool) {
        if terminal::take_back(self.group) || wants_terminal {
            signal_others(by);
        }
        // What continued us earlier does not count.
        while let Poll::Ready(Some(())) = self.continued.poll_recv(&mut Context::from_waker(Waker::noop())) {}
        let _ = kill_process(getpid(), Signal::STOP);
        // The stop may come a little later; only being continued proves that it has.
        self.continued.recv().await;
    }

    /// Lets a stopped command run again.
    fn go_on(&self) {
        if !self.has_ended {
            terminal::hand_over(self.group);
        }
        self.signal(Signal::CONT.as_raw());
    }

    /// Its leader has ended so: what is left of it reads no keyboard.
    pub(crate) fn ended(&mut self, end: Result<i32, i32>) {
        self.has_ended = true;
        let had_terminal = terminal::take_back(self.group);
        if let Err(signal) = end
            && had_terminal
            && [Signal::INT, Signal::QUIT].iter().any(|key| signal == key.as_raw())
        {
            signal_others(signal);
        }
    }
}

/// Sends a signal that the terminal has sent to the command's group to the others of ours, of the same pipeline or script: without us it would have
/// sent it to them.
fn signal_others(signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    for pid in processes::members(getpgrp()).unwrap_or_default() {
        if pid != getpid() {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        terminal::take_back(self.group);
    }
}
