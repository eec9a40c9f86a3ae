//! What goes to stderr: through a thread of its own, so that nobody who watches over a lock ever waits for a reader. A pipe may be full, and a
//! terminal be held by Ctrl-S; the lock may be lost meanwhile.
//!
//! Others share the open file, so it is not for us to say that it should not block.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem::take;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// So many bytes wait for a reader; what comes then is dropped.
const MOST: usize = 64 << 10;
/// What is said all the time leaves the rest to what is said once.
const MOST_CHATTER: usize = MOST / 2;

static LINES: Lines = Lines { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Lines {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: usize,
    may_start: bool,
    has_writer: bool,
    /// The writer has taken one out, and has not written all of it.
    is_writing: bool,
}

impl State {
    const fn new() -> State {
        State { waiting: VecDeque::new(), bytes: 0, dropped: 0, may_start: false, has_writer: false, is_writing: false }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && !self.is_writing
    }

    /// Keeps a line, as long as there are not so many bytes.
    fn add(&mut self, line: Vec<u8>, most: usize) {
        if self.bytes + line.len() > most {
            self.dropped += 1;
        } else {
            self.bytes += line.len();
            self.waiting.push_back(line);
        }
    }

    /// What is to be written next.
    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(line) = self.waiting.pop_front() {
            self.bytes -= line.len();
            return Some(line);
        }
        match take(&mut self.dropped) {
            0 => None,
            dropped => Some(format!("heirlock: {dropped} lines are left out here, for nobody read\n").into_bytes()),
        }
    }
}

/// Something that is said once.
pub(crate) fn say(line: Vec<u8>) {
    LINES.add(line, MOST);
}

/// From now on threads may be started: the process has forked for the last time.
pub(crate) fn open() {
    let mut state = LINES.lock();
    state.may_start = true;
    if !state.is_done() {
        LINES.start(state);
    }
}

/// In a forked child: what was said before is the parent's to write.
pub(crate) fn forked() {
    *LINES.lock() = State { may_start: true, ..State::new() };
}

/// Waits until all is written, so long at most.
pub(crate) fn flush(patience: Duration) {
    let state = LINES.lock();
    if state.is_done() {
        return;
    }
    LINES.start(state);
    // What is not written then stays unwritten.
    drop(LINES.changed.wait_timeout_while(LINES.lock(), patience, |state| !state.is_done()));
}

/// For what is said all the time: it is the first to be dropped.
pub(crate) struct Chatter;

impl Write for Chatter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.add(bytes.to_vec(), MOST_CHATTER);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, line: Vec<u8>, most: usize) {
        let mut state = self.lock();
        state.add(line, most);
        if state.may_start {
            self.start(state);
        }
    }

    /// Sees to it that somebody writes what waits.
    fn start(&'static self, mut state: MutexGuard<'_, State>) {
        if !state.has_writer {
            state.has_writer = std::thread::Builder::new().name("stderr".into()).stack_size(64 << 10).spawn(|| self.write()).is_ok();
        }
        // No thread is to be had: as much as there is room for at once, as far as one can know.
        while !state.has_writer && has_room(Some(&Timespec::default())) {
            let Some(line) = state.next() else { break };
            write_all(&line);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The writer's life.
    fn write(&self) {
        // A signal is for those who can act on it. And where a terminal stops whoever writes from its background, it does not stop us: the lock
        // would be lost by that.
        let _ = SigSet::all().thread_block();
        let mut state = self.lock();
        loop {
            let Some(line) = state.next() else {
                state.is_writing = false;
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            write_all(&line);
            state = self.lock();
        }
    }
}

/// If nobody can read it any more, there is nobody to tell.
fn write_all(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), bytes) {
            Ok(written @ 1..) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Somebody has said for us all that it should not block.
            Err(Errno::AGAIN) if has_room(None) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Whether something can be written; waits for that so long, or for ever.
fn has_room(patience: Option<&Timespec>) -> bool {
    let stderr = rustix::stdio::stderr();
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)], patience) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let mut state = State::new();
        assert!(state.next().is_none() && state.is_done());
        let chatter = vec![b'c'; MOST_CHATTER / 2];
        for _ in 0..5 {
            state.add(chatter.clone(), MOST_CHATTER);
        }
        // What is said once has its place all the same.
        state.add(b"once\n".to_vec(), MOST);
        let mut said = Vec::new();
        while let Some(line) = state.next() {
            said.push(line);
        }
        assert_eq!(said[..3], [chatter.clone(), chatter, b"once\n".to_vec()]);
        assert_eq!(said[3], b"heirlock: 3 lines are left out here, for nobody read\n");
        assert!(said.len() == 4 && state.bytes == 0 && state.is_done());
        state.add(vec![b'x'; MOST + 1], MOST);
        assert!(state.waiting.is_empty() && !state.is_done());
    }
}
