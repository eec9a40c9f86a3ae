//! All that descends from us.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, set_child_subreaper, waitid};

use crate::processes;

/// From now on, what descends from us and outlives its parent is our child, and the end of a child is told.
pub(super) fn adopt() -> Result<(), Errno> {
    // Whoever started us may have them reaped by the system, and then nobody learns how they ended.
    // SAFETY: no handler of ours is installed, and none is replaced that anybody relies on: there is no other thread yet.
    unsafe { nix::sys::signal::signal(nix::sys::signal::Signal::SIGCHLD, nix::sys::signal::SigHandler::SigDfl) }
        .map_err(|error| Errno::from_raw_os_error(error as i32))?;
    // Whose number it is does not matter, only that it is one.
    set_child_subreaper(Some(getpid()))
}

/// Sends a signal to all that descends from us, and to this group, should the system not tell who does. Who has just ended is not there to get it.
pub(super) fn signal(group: Option<Pid>, signal: Signal) {
    match processes::descendants() {
        Some(descendants) => {
            for pid in descendants {
                let _ = kill_process(pid, signal);
            }
        }
        None => {
            if let Some(group) = group {
                let _ = kill_process_group(group, signal);
            }
        }
    }
}

/// Reaps those of our children that have ended; tells whether there is none any more, and so nothing that descends from us.
pub(super) fn is_gone() -> bool {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}
