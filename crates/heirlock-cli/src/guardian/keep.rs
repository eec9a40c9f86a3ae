//! The guardian's own process: it starts the command, waits for its end, and ends it in time if its lock cannot be kept, whatever has become of
//! heirlock. One thread, which was heirlock's only one when it was forked (and, once there is something to say, one that says it); nothing of the store
//! is open here.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use heirlock::clock::{BootClock, Clock, Moment};
use heirlock::lease::{Key, Leave, Token};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

use super::plan::{Cause, LAST_MOMENT, Plan, Seen, Step};
use super::tree::{self, Tree};
use super::words::{Lines, Order, Word, line};
use super::{Charge, Refusal};
use crate::args::Job;
use crate::at_start;
use crate::exit::tell;
use crate::processes;

/// How often a group is looked at whose members are not all our children; the first time, and later.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// How long the store may take to hear that an orphaned lock is free.
const ORPHAN_LEAVES: Duration = Duration::from_secs(10);

/// The error by which a child tells that its lock is lost before it has become the command: none that starting a program can give.
const TOO_LATE: i32 = Errno::TIME.raw_os_error();

/// The guardian's life, in a process that was just forked. Returns when it is to exit.
pub(super) fn keep(charge: &Charge, socket: UnixStream, valid_until: &'static AtomicU64) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("the guardian cannot {what}: {error}");
    // All of them: a signal for the terminal's group, or for heirlock's, is not for us.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(|error| failed("block signals", &error))?;
    let mut ends = SigSet::empty();
    ends.add(nix::sys::signal::Signal::SIGCHLD);
    let ends =
        SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(|error| failed("hear of ends", &error))?;
    let tree = Tree::adopt().map_err(|error| failed("adopt orphans", &error))?;
    // Not in heirlock's group: what a shell or a supervisor sends to that does not end or stop us. And by another name, for who kills by name.
    rustix::process::setpgid(None, None).map_err(|error| failed("have its own process group", &error))?;
    let _ = std::fs::write("/proc/self/comm", "lock-guardian");
    let mut guardian = Guardian {
        charge,
        socket,
        lines: Lines::default(),
        tree,
        unsent: Vec::new(),
        valid_until,
        mask,
        is_orphaned: false,
        lost: None,
        ticket: None,
        refusal: Refusal::default(),
        has_told: false,
        since: BootClock.now(),
    };
    let Some(leader) = guardian.start()? else { return Ok(()) };
    guardian.watch(leader, &ends)?;
    guardian.finish()
}

struct Guardian<'c> {
    charge: &'c Charge,
    socket: UnixStream,
    lines: Lines,
    tree: Tree,
    /// What heirlock has no room for: it may be stopped, and is not waited for.
    unsent: Vec<u8>,
    valid_until: &'static AtomicU64,
    /// The signals that heirlock was started with blocked.
    mask: SigSet,
    /// Heirlock has died.
    is_orphaned: bool,
    /// Why the lock is lost, if heirlock says so.
    lost: Option<String>,
    ticket: Option<Leave>,
    refusal: Refusal,
    /// Why the command is ended has been told.
    has_told: bool,
    /// When it was told that the lock is held.
    since: Moment,
}

impl Guardian<'_> {
    /// Waits until the lock is held, and starts the command. `None` if that never comes.
    fn start(&mut self) -> Result<Option<Pid>, String> {
        let environment = loop {
            match self.order()? {
                Some(Order::Start { environment }) => break environment,
                Some(Order::Ask { secret }) => {
                    // The request may still be on its way to the store, and must not be granted after we have left.
                    self.ticket = Some(Leave { token: Token::from_bytes(secret), settled: false });
                }
                Some(Order::Lose { .. }) => {}
                Some(Order::Done) => return Ok(None),
                // Killed while it waited, or just when it had got the lock.
                None => {
                    self.leave()?;
                    return Ok(None);
                }
            }
        };
        self.since = BootClock.now();
        if let Some(ticket) = &mut self.ticket {
            ticket.settled = true;
        }
        let mut command = command(&self.charge.job);
        command.process_group(0);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let (mask, valid_until) = (self.mask, self.valid_until);
        // One of us may have been stopped since the lock was granted: looked at where nothing lies between this and the command.
        let begin = move || {
            if left(valid_until) <= LAST_MOMENT {
                return Err(std::io::Error::from_raw_os_error(TOO_LATE));
            }
            at_start::restore();
            mask.thread_set_mask().map_err(std::io::Error::from)
        };
        // SAFETY: between fork and exec this only loads numbers, asks the clock, and changes the signal mask and what is ignored, all of which is safe in
        // a signal handler and so after a fork; it allocates nothing.
        unsafe { command.pre_exec(begin) };
        match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                self.say(&Word::Started { pid: pid.as_raw_nonzero().get() });
                Ok(Some(pid))
            }
            Err(error) if error.raw_os_error() == Some(TOO_LATE) => {
                tell(&format!("not starting the command, for the lock on {} is lost: {}", self.charge.job.name, self.why(Cause::Expiring)));
                self.say(&Word::Gone { cause: Some(Cause::Expiring) });
                self.finish()?;
                Ok(None)
            }
            Err(error) => {
                let is_missing = error.kind() == ErrorKind::NotFound;
                let program = self.charge.job.program.to_string_lossy();
                let has_words = is_missing && self.charge.job.args.is_empty() && program.contains(' ');
                let hint = if has_words { " (a command with its arguments in one word is for the shell: -c)" } else { "" };
                let why = format!("cannot run {program}: {error}{hint}");
                self.say(&Word::Failed { is_missing, why });
                self.finish()?;
                Ok(None)
            }
        }
    }

    /// Until nothing is left that the lock is held for.
    fn watch(&mut self, leader: Pid, ends: &SignalFd) -> Result<(), String> {
        let mut plan = Plan::new(self.charge.on_lost, self.charge.grace);
        let (mut has_ended, mut look) = (false, LOOKS.0);
        loop {
            self.reap(leader, &mut has_ended)?;
            while let Some(order) = self.next()? {
                if let Order::Lose { reason } = order {
                    self.lost = Some(reason);
                }
            }
            let step = plan.next(self.seen());
            if self.act(step, leader) {
                self.say(&Word::Refused);
            }
            // Whoever is to end ends with all that descends from the command; else only its group is waited for.
            if has_ended && (self.tree.is_gone() || (!plan.is_ending() && !tree::is_populated(leader))) {
                self.say(&Word::Gone { cause: plan.cause() });
                return Ok(());
            }
            let mut pause = Plan::pause(step).max(self.refusal.pause());
            if has_ended {
                pause = pause.min(look);
                look = (look * 2).min(LOOKS.1);
            }
            self.sleep(ends, pause)?;
        }
    }

    fn seen(&self) -> Seen {
        let valid_until = Moment::from_nanos(self.valid_until.load(Ordering::Acquire));
        Seen { now: BootClock.now(), valid_until, is_told: self.lost.is_some(), is_orphaned: self.is_orphaned }
    }

    /// Does it. Tells whether a process has refused our signals, the first time.
    fn act(&mut self, step: Step, leader: Pid) -> bool {
        let refused = match step {
            Step::Wait(_) => None,
            Step::Notify(cause) => {
                tell(&format!("the lock on {} is lost, and the command goes on: {}", self.charge.job.name, self.why(cause)));
                None
            }
            Step::Term(cause) => {
                let refused = self.tree.signal(Some(leader), Signal::TERM);
                // One that is stopped could not act on it.
                self.tree.signal(Some(leader), Signal::CONT);
                self.tell_end(cause);
                refused
            }
            Step::Kill(cause) => {
                let refused = self.tree.signal(Some(leader), Signal::KILL);
                self.tell_end(cause);
                refused
            }
        };
        self.refusal.note(refused)
    }

    /// Why the command is ended; once.
    fn tell_end(&mut self, cause: Cause) {
        if !std::mem::replace(&mut self.has_told, true) {
            tell(&format!("ending the command, for the lock on {} is lost: {}", self.charge.job.name, self.why(cause)));
        }
    }

    fn why(&self, cause: Cause) -> &str {
        match cause {
            Cause::Expiring if self.charge.is_longest(BootClock.now().since(self.since)) => "it was held for as long as --max-hold allows",
            Cause::Expiring => "it could not be renewed in time",
            Cause::Told => self.lost.as_deref().unwrap_or("another may hold it"),
            Cause::Orphaned => "the heirlock that renewed it has died",
        }
    }

    /// Takes note of what has become of our children: orphans that have ended are reaped, the leader never, so that its number and its group's
    /// stay its own.
    fn reap(&mut self, leader: Pid, has_ended: &mut bool) -> Result<(), String> {
        if !*has_ended {
            match wait(leader, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => {
                    *has_ended = true;
                    let end = status.exit_status().ok_or_else(|| status.terminating_signal().unwrap_or(0));
                    self.say(&Word::Ended { end });
                }
                Ok(None) => {}
                Err(error) => return Err(format!("the system does not say what became of the command: {error}")),
            }
            if let Ok(Some(status)) = wait(leader, WaitIdOptions::STOPPED)
                && let Some(signal) = status.stopping_signal()
                // A heirlock that is so far behind does not miss it.
                && self.unsent.is_empty()
            {
                self.say(&Word::Stopped { signal });
            }
        }
        for child in processes::children().unwrap_or_default() {
            if child != leader {
                // One that still runs stays.
                let _ = wait(child, WaitIdOptions::EXITED);
            }
        }
        Ok(())
    }

    /// Sleeps until something happens, or so long.
    fn sleep(&mut self, ends: &SignalFd, pause: Duration) -> Result<(), String> {
        let timeout = rustix::time::Timespec::try_from(pause).ok();
        let what = if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut both = [PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN), PollFd::from_borrowed_fd(self.socket.as_fd(), what)];
        // An orphan's socket is always ready.
        let which = if self.is_orphaned { &mut both[..1] } else { &mut both[..] };
        match poll(which, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the guardian cannot wait: {error}")),
        }
        let spoke = both[1].revents().intersects(!PollFlags::OUT);
        // What they tell is looked up.
        while let Ok(Some(_)) = ends.read_signal() {}
        if spoke && !self.is_orphaned {
            self.hear();
        }
        self.send(SendFlags::DONTWAIT);
        Ok(())
    }

    /// Waits until heirlock has released the lock. If it has died, that is ours to do.
    fn finish(&mut self) -> Result<(), String> {
        while let Some(order) = self.order()? {
            if matches!(order, Order::Done) {
                return Ok(());
            }
        }
        self.leave()
    }

    /// Gives back the lock, or the place in its queue.
    fn leave(&self) -> Result<(), String> {
        let Some(ticket) = self.ticket else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let leave = async {
            let store = heirlock::open_store(&self.charge.url).await?;
            store.leave(&Key::new(&self.charge.job.name)?, ticket).await
        };
        match runtime.block_on(async { tokio::time::timeout(ORPHAN_LEAVES, leave).await }) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("the lock on {} is free only when its ttl is over: {}", self.charge.job.name, error.chain())),
            Err(_) => Err(format!("the lock on {} is free only when its ttl is over: its store does not answer", self.charge.job.name)),
        }
    }

    /// The next order, however long it takes; `None` when heirlock has gone.
    fn order(&mut self) -> Result<Option<Order>, String> {
        loop {
            if let Some(order) = self.next()? {
                return Ok(Some(order));
            }
            if self.is_orphaned {
                return Ok(None);
            }
            // There is nothing to watch over meanwhile.
            self.send(SendFlags::empty());
            self.hear();
        }
    }

    /// The next order that has come already.
    fn next(&mut self) -> Result<Option<Order>, String> {
        self.lines.next().map_err(|error| format!("the guardian was told nonsense: {error}"))
    }

    /// Takes in what heirlock says; waits for it if it says nothing.
    fn hear(&mut self) {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(read @ 1..) => self.lines.add(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Its end, or a death with something unread.
            Ok(0) | Err(_) => self.is_orphaned = true,
        }
    }

    fn say(&mut self, word: &Word) {
        if let Ok(line) = line(word) {
            self.unsent.extend(line);
            self.send(SendFlags::DONTWAIT);
        }
    }

    /// Sends what is unsent, as far as there is room for it.
    fn send(&mut self, how: SendFlags) {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, how | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // If heirlock has died there is nobody to tell, and the next look at the socket says so.
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

/// How long nobody else can hold the lock.
fn left(valid_until: &AtomicU64) -> Duration {
    Moment::from_nanos(valid_until.load(Ordering::Acquire)).since(BootClock.now())
}

/// The command as it is started.
fn command(job: &Job) -> Command {
    let Some(pid) = std::env::var_os("LISTEN_PID").filter(|_| std::env::var_os("LISTEN_FDS").is_some()) else {
        let mut command = Command::new(&job.program);
        command.args(&job.args);
        return command;
    };
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let mut command = if pid.to_str() == Some(&parent.to_string()) {
        // Sockets that were opened for us are for the command, which looks whether they are addressed to its process.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]).arg(&job.program);
        shell
    } else {
        Command::new(&job.program)
    };
    command.args(&job.args);
    command
}

fn wait(whom: Pid, what: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    loop {
        match waitid(WaitId::Pid(whom), what | WaitIdOptions::NOHANG) {
            Err(Errno::INTR) => {}
            seen => return seen,
        }
    }
}
