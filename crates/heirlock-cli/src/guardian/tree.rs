//! All that descends from us.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, set_child_subreaper, test_kill_process, waitid,
};

use tokio::signal::unix::{SignalKind, signal};

use crate::processes;

/// All that descends from us, but for those who did before, as the jobs of a shell that became us by `exec`.
pub(super) struct Tree {
    strangers: Vec<Pid>,
}

impl Tree {
    /// From now on, what descends from us and outlives its parent is our child, and the end of a child is told.
    pub(super) fn adopt() -> Result<Tree, Errno> {
        // Whoever started us may have them reaped by the system, and then nobody learns how they ended.
        // SAFETY: no handler of ours is installed, and none is replaced that anybody relies on: there is no other thread yet.
        unsafe { nix::sys::signal::signal(nix::sys::signal::Signal::SIGCHLD, nix::sys::signal::SigHandler::SigDfl) }
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        // Whose number it is does not matter, only that it is one.
        set_child_subreaper(Some(getpid()))?;
        Ok(Tree { strangers: processes::children().unwrap_or_default() })
    }

    /// Sends a signal to this group and to all others that descend from us; the group's leader must be ours, and unreaped. Answers one that we may
    /// not send signals to, if there is any: it runs as another user.
    pub(super) fn signal(&self, group: Option<Pid>, signal: Signal) -> Option<Pid> {
        if let Some(group) = group {
            // At once for all of it, so nobody escapes by a fork. If all have just ended, nobody is there to get it.
            let _ = kill_process_group(group, signal);
        }
        let mut refused = None;
        for descendant in processes::descendants(&self.strangers).unwrap_or_default() {
            let pid = descendant.pid;
            let sent = if group.is_some_and(|group| descendant.group == group.as_raw_nonzero().get()) {
                test_kill_process(pid)
            } else {
                kill_process(pid, signal)
            };
            if sent == Err(Errno::PERM) && !descendant.has_ended {
                refused = Some(pid);
            }
        }
        refused
    }

    /// Whether nothing that descends from us lives.
    pub(super) fn is_gone(&self) -> bool {
        // Who outlives its parent is our child.
        let strangers = &self.strangers;
        !lives(WaitId::All)
            || (!strangers.is_empty() && processes::descendants(strangers).is_some_and(|rest| rest.iter().all(|process| process.has_ended)))
    }
}

/// Whether anybody of this group lives who descends from us.
pub(super) fn is_populated(group: Pid) -> bool {
    // Those whose parent has ended are our children, and of the others one is an ancestor; but for whoever's parent has left the group, which a look at
    // all processes finds. That look alone could miss one that forks and ends meanwhile.
    // The look takes time, and whoever it found alone may have left one behind meanwhile; if it fails, nobody knows.
    let lives = || lives(WaitId::Pgid(Some(group)));
    lives() || processes::members(group).is_none_or(|members| !members.is_empty()) || lives()
}

/// Reaps children as they end, but for this one.
pub(super) async fn reap(but: Pid) {
    // Without it they stay until we end.
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    while ends.recv().await.is_some() {
        for child in processes::children().unwrap_or_default() {
            if child != but {
                // One that still runs stays.
                let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
        }
    }
}

/// Whether any of these children of ours lives: the system looks at them all in one moment.
fn lives(which: WaitId<'_>) -> bool {
    // Who asks for the stopped ones only is told that there is no child if none could ever stop again. Nobody is reaped by this.
    match waitid(which, WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG) {
        Ok(_) => true,
        Err(error) => error != Errno::CHILD,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_group_lives_until_all_of_it_have_ended() {
        use std::os::unix::process::CommandExt;
        set_child_subreaper(Some(getpid())).unwrap();
        // Its leader ends at once, and each of the others when it has made another: nobody is there for long.
        let hop = "hop() { [ $1 = 0 ] || { hop $(($1 - 1)) & }; }; hop 200";
        let mut child = Command::new("sh").args(["-c", hop]).process_group(0).spawn().unwrap();
        let group = Pid::from_child(&child);
        let mut seen = 0;
        while is_populated(group) {
            seen += 1;
        }
        // Nobody is there who could still make another.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_populated(group) && seen > 0);
        child.wait().unwrap();
    }
}
