//! The terminal's foreground: handed to the command if it is ours, and taken back.

use std::fs::File;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp, getpid, kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::processes;

/// Our terminal, whatever stdin is.
fn terminal() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// At the start: hands the foreground over if it is ours alone. With others in our group, a pager in the same pipeline say, the command gets it
/// only when it asks, by [`hand_over`].
pub(crate) fn offer(to: Pid) {
    if let Some(terminal) = terminal()
        && tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == getpgrp())
        && processes::members(getpgrp()).is_some_and(|members| members == [getpid()])
    {
        give(&terminal, to);
    }
}

/// Hands the foreground to the command's group, if it is ours or its own already; tells whether it has it then.
pub(crate) fn hand_over(to: Pid) -> bool {
    let Some(terminal) = terminal() else { return false };
    match tcgetpgrp(&terminal) {
        Ok(foreground) if foreground == to => true,
        Ok(foreground) if foreground == getpgrp() => give(&terminal, to),
        _ => false,
    }
}

/// Whether this group has the terminal.
pub(crate) fn has(group: Pid) -> bool {
    terminal().is_some_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == group))
}

fn give(terminal: &File, to: Pid) -> bool {
    let given = tcsetpgrp(terminal, to).is_ok();
    if given {
        // If it was quick to read, the terminal has stopped it meanwhile.
        let _ = kill_process_group(to, rustix::process::Signal::CONT);
    }
    given
}

/// Takes the foreground back from the command's group, if it has it; tells whether it had.
pub(crate) fn take_back(from: Pid) -> bool {
    let Some(terminal) = terminal() else { return false };
    let had = tcgetpgrp(&terminal).is_ok_and(|foreground| foreground == from);
    if had {
        // We are in the background now: the signal that this raises would stop us. Blocked here only, so that no command inherits that.
        let mut ttou = SigSet::empty();
        ttou.add(Signal::SIGTTOU);
        let _ = ttou.thread_block();
        let _ = tcsetpgrp(&terminal, getpgrp());
        let _ = ttou.thread_unblock();
    }
    had
}
