//! The command, as heirlock itself deals with it: signals, and the terminal's stops. Its parent is the guardian.

use std::task::{Context, Poll, Waker};

use heirlock::Lease;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Exit;
use crate::terminal;

/// A command that runs, or has run. The guardian keeps its leader unreaped, so that the group's number stays its own.
pub(crate) struct Child {
    pub(crate) group: Pid,
    /// We have been continued.
    continued: Stream,
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
        Child { group, continued }
    }

    /// Sends a signal to the whole group. If it has just ended, there is nothing to send it to.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// It was stopped by this signal. Tells whether that was a shell's job control, which expects us to stop, too: a supervisor that stops the command
    /// for a while does not stop us, and we go on renewing.
    pub(crate) fn is_stopped_by_terminal(&self, stopped_by: i32) -> bool {
        let is = |signals: &[Signal]| signals.iter().any(|signal| stopped_by == signal.as_raw());
        // Because it is not in the foreground, and now is.
        if is(&[Signal::TTIN, Signal::TTOU]) && terminal::hand_over(self.group) {
            self.signal(Signal::CONT.as_raw());
            return false;
        }
        is(&[Signal::TSTP, Signal::TTIN, Signal::TTOU])
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

    /// Its leader has ended: what is left of it reads no keyboard.
    pub(crate) fn ended(&self) {
        terminal::take_back(self.group);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        terminal::take_back(self.group);
    }
}
