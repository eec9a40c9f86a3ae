//! The guardian: a small process between heirlock and the command, forked before heirlock has a second thread, and as the command's parent the one
//! who ends it in time when its lock cannot be kept: also while heirlock is stopped, and after heirlock was killed. If the guardian is killed,
//! heirlock ends the command; if both are, nobody does.
//!
//! ```text
//! heirlock ──socket──> guardian ──parent of──> command (leader of its group) ──> ...
//!    └── validity ──> shared page ──^
//! ```
//!
//! Both adopt whatever descends from them and outlives its parent, so nothing escapes but what leaves by a service of the system's.

mod keep;
mod page;
mod plan;
mod tree;
mod words;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as Socket;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use heirlock::Lease;
use heirlock::lease::Token;
use nix::unistd::ForkResult;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, waitid};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub(crate) use self::plan::{LAST_MOMENT, OnLost};
use self::tree::Tree;
pub(crate) use self::words::Word;
use self::words::{Lines, Order, line};
use crate::args::Job;
use crate::exit::{Exit, LAST_LINES, tell};
use crate::signals::Signals;
use crate::{processes, stderr};

/// How long an unharmed guardian may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long after the grant the guardian has heard of it, at the latest, unless the machine is very busy.
const HEARD: Duration = Duration::from_millis(500);
/// How often the rest of a tree is looked at.
const TREE_LOOK: Duration = Duration::from_millis(10);
/// And if there is somebody in it who cannot be ended.
const RETRY: Duration = Duration::from_millis(200);

/// What a guardian is told at its birth.
pub(crate) struct Charge {
    pub(crate) job: Job,
    pub(crate) url: String,
    pub(crate) on_lost: OnLost,
    pub(crate) grace: Duration,
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
}

impl Charge {
    /// Whether a lock that is to be given up so long after its grant has been held for as long as it may.
    fn is_longest(&self, held: Duration) -> bool {
        let Some(most) = self.max_hold else { return false };
        // The command is ended before; validity ends by the margin of clocks before; and the guardian has heard of the grant a little later.
        let before = self.grace + plan::EARLY + self.ttl.min(most) / 100 + HEARD;
        held + before >= most
    }
}

/// A guardian that waits for the lock to be held. Made before anything has started a thread.
pub(crate) struct Recruit {
    pid: Pid,
    socket: Socket,
    tree: Tree,
    valid_until: &'static AtomicU64,
}

/// Forks a guardian.
pub(crate) fn recruit(charge: &Charge) -> Result<Recruit, Exit> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Exit::own(format!("cannot {what}: {error}"));
    if !processes::are_shown() {
        return Err(Exit::own(
            "/proc does not show this process, so what the command starts could not be ended if the lock is lost: mount the /proc of this pid \
             namespace (mount -t proc proc /proc, or unshare --mount-proc)",
        ));
    }
    let valid_until = page::shared().map_err(|error| failed("share memory with a guardian", &error))?;
    let (ours, theirs) = Socket::pair().map_err(|error| failed("make a socket for a guardian", &error))?;
    let tree = Tree::adopt().map_err(|error| failed("adopt orphans", &error))?;
    // SAFETY: this process has one thread, so the child is a whole process and may do whatever this one may: no other thread can have held a lock.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Parent { child }) => {
            let pid = Pid::from_raw(child.as_raw()).ok_or_else(|| Exit::own("the guardian has no process id"))?;
            Ok(Recruit { pid, socket: ours, tree, valid_until })
        }
        Ok(ForkResult::Child) => {
            // Its end would be told only when we close it, too.
            drop(ours);
            stderr::forked();
            let code = match keep::keep(charge, theirs, valid_until) {
                Ok(()) => 0,
                Err(why) => {
                    tell(&why);
                    i32::from(crate::exit::OWN)
                }
            };
            stderr::flush(LAST_LINES);
            std::process::exit(code);
        }
        Err(error) => Err(failed("fork a guardian", &error)),
    }
}

/// Heirlock's side of a guardian.
pub(crate) struct Guardian {
    pid: Pid,
    socket: UnixStream,
    tree: Tree,
    lines: Lines,
    valid_until: &'static AtomicU64,
    reaper: Option<JoinHandle<()>>,
}

impl Recruit {
    /// Once there is a runtime.
    pub(crate) fn enlist(self) -> Result<Guardian, Exit> {
        let failed = |error: std::io::Error| Exit::own(format!("cannot talk to the guardian: {error}"));
        self.socket.set_nonblocking(true).map_err(failed)?;
        let socket = UnixStream::from_std(self.socket).map_err(failed)?;
        // The first process of a namespace is the parent of all who lose theirs. Others have no children but the guardian while that lives.
        let reaper = getpid().is_init().then(|| tokio::spawn(tree::reap(self.pid)));
        Ok(Guardian { pid: self.pid, socket, tree: self.tree, lines: Lines::default(), valid_until: self.valid_until, reaper })
    }
}

impl Guardian {
    /// Has the command started under the lease: the next word tells how that went.
    pub(crate) fn start(&self, lease: &Lease, environment: Vec<(String, Option<String>)>) {
        // The guardian looks at it from its first moment on.
        lease.publish_validity(self.valid_until);
        self.order(&Order::Start { environment });
    }

    /// What tells it of each ticket for the lock before the store hears of it: should heirlock die, it gives back the last of them, waiting or held.
    pub(crate) fn witness(&self) -> Result<impl Fn(Token) + Clone + Send + Sync + 'static, Exit> {
        let failed = |error: std::io::Error| Exit::own(format!("cannot talk to the guardian: {error}"));
        let socket = Arc::new(self.socket.as_fd().try_clone_to_owned().map_err(failed)?);
        Ok(move |token: Token| send(socket.as_fd(), &Order::Ask { secret: *token.as_bytes() }))
    }

    /// The lock is lost.
    pub(crate) fn lose(&self, reason: String) {
        self.order(&Order::Lose { reason });
    }

    /// The store knows that the lock is free, or was told as far as it could be: the guardian ends.
    pub(crate) async fn dismiss(mut self) {
        self.order(&Order::Done);
        let gone = async { while self.word().await.is_some() {} };
        let _ = timeout(FAREWELL, gone).await;
        // Its socket is closed in its last moment.
        let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }

    /// What the guardian says next; `None` when it has died.
    ///
    /// Cancel safe: what has come is kept.
    pub(crate) async fn word(&mut self) -> Option<Word> {
        loop {
            match self.lines.next() {
                Ok(Some(word)) => return Some(word),
                Ok(None) => {}
                // Who speaks so is none of ours.
                Err(_) => return None,
            }
            let mut bytes = [0; 1024];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.lines.add(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.socket.readable().await.ok()?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    fn order(&self, order: &Order) {
        send(self.socket.as_fd(), order);
    }

    /// Ends all that descends from us, when the guardian cannot: TERM, then KILL at the end of the grace, or of the time that `left` still gives;
    /// KILL alone without a grace. The guardian, should it be stopped, goes with the rest. If somebody is left whom we cannot end, a signal that
    /// ends us ends the wait for it.
    pub(crate) async fn end_tree(&self, group: Option<Pid>, grace: Duration, left: impl Fn() -> Duration, signals: &mut Signals) {
        if let Some(reaper) = &self.reaper {
            // The leader is to keep its number.
            reaper.abort();
        }
        let (since, mut refusal) = (Instant::now(), Refusal::default());
        // A guardian that is stopped must not go on and start the command after all.
        if !grace.is_zero() {
            refusal.note(self.tree.signal(group, Signal::TERM));
            self.tree.signal(group, Signal::CONT);
        }
        while !self.tree.is_gone() {
            if since.elapsed() >= grace || left() <= LAST_MOMENT {
                refusal.note(self.tree.signal(group, Signal::KILL));
            }
            tokio::select! {
                () = sleep(TREE_LOOK.max(refusal.pause())) => {}
                _ = signals.end(), if refusal.0.is_some() => return,
            }
        }
    }
}

fn send(socket: BorrowedFd<'_>, order: &Order) {
    // A guardian that has died is noticed where its words are waited for, and there is room for the few that there are.
    if let Ok(line) = line(order) {
        let _ = rustix::io::write(socket, &line);
    }
}

/// A process that should end, and may not be sent signals by us.
#[derive(Default)]
struct Refusal(Option<Pid>);

impl Refusal {
    /// Says so once: then this answers true.
    fn note(&mut self, refused: Option<Pid>) -> bool {
        let Some(pid) = refused.filter(|_| self.0.is_none()) else { return false };
        self.0 = refused;
        let user = std::fs::metadata(format!("/proc/{pid}")).map(|status| format!("uid {}", status.uid()));
        tell(&format!(
            "process {pid} runs as another user ({}), and cannot be ended: it may go on beside the next holder. Run heirlock itself as that user: \
             sudo heirlock run ..., not heirlock run ... sudo",
            user.unwrap_or_else(|_| "which is gone".to_owned())
        ));
        true
    }

    /// Who cannot be ended is not tried all the time.
    fn pause(&self) -> Duration {
        if self.0.is_some() { RETRY } else { Duration::ZERO }
    }
}
