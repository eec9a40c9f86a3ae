//! Which signals we were started with ignored, of those that Rust and we change for ourselves: noted before Rust's own start, so that the command
//! gets them back.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// Rust ignores PIPE in every program and lets children have the default; CHLD must not be ignored where ends are waited for.
static PIPE: AtomicBool = AtomicBool::new(false);
static CHLD: AtomicBool = AtomicBool::new(false);

/// Called by the C library before `main`, as are all whose addresses stand in this section; some libraries hand arguments over, which a function
/// without parameters may ignore.
#[used]
// SAFETY: the section holds addresses of functions of the C calling convention, and this is one. It needs nothing of Rust's start: it asks the system
// about two signals and stores two flags.
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    CHLD.store(is_ignored(libc::SIGCHLD), Ordering::Relaxed);
}

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, so nothing changes; there is room for the old one.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value of it, and the system has filled it in if the call went well.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores again what was ignored at our start: for a child, in the last moment before it becomes the command. Makes at most two system calls.
pub(crate) fn restore() {
    for (signal, was_ignored) in [(libc::SIGPIPE, &PIPE), (libc::SIGCHLD, &CHLD)] {
        if was_ignored.load(Ordering::Relaxed) {
            // SAFETY: no handler runs, and none is replaced: a child that is about to become another program has none. It cannot fail for these.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}
