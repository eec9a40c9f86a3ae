//! The terminal's foreground: handed to the command if it is ours, and taken back.

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp, kill_process_group};
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// Lets this process set the foreground group while it is in the background.
pub(crate) fn block_ttou() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTTOU);
    // It cannot fail for a signal that exists; and without a terminal nothing depends on it.
    let _ = set.thread_block();
}

/// Hands the foreground to the command's group, if it is ours.
pub(crate) fn hand_over(group: Pid) {
    if isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == getpgrp()) && tcsetpgrp(stdin(), group).is_ok() {
        // If it was quick to read, the terminal has stopped it meanwhile.
        let _ = kill_process_group(group, rustix::process::Signal::CONT);
    }
}

/// Takes the foreground back from the command's group, if it has it.
pub(crate) fn take_back(group: Pid) {
    if isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group) {
        let _ = tcsetpgrp(stdin(), getpgrp());
    }
}
