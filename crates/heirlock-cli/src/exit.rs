//! How a run of heirlock ends: one code, and at most one line.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use heirlock::{Error, Kind};
use nix::sys::signal::{self, SigHandler, Signal};

use crate::{signals, stderr};

/// Busy, or timed out.
pub(crate) const BUSY: u8 = 75;
/// The lease was lost.
pub(crate) const LOST: u8 = 79;
/// It would wait for itself.
pub(crate) const DEADLOCK: u8 = 80;
/// The lease was taken away.
pub(crate) const EVICTED: u8 = 81;
/// An error of heirlock's own.
pub(crate) const OWN: u8 = 125;
/// The command is there and cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// Plus the number of a signal.
pub(crate) const SIGNAL: u8 = 128;

/// How long the last lines on stderr may take: whoever waits for our end waits for no reader.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(1);

/// A code and, perhaps, a line for stderr.
#[derive(Debug)]
pub(crate) struct Exit {
    code: u8,
    line: Option<String>,
    /// By the key that interrupts.
    is_interrupted: bool,
}

impl Exit {
    /// Nothing to say.
    pub(crate) fn code(code: u8) -> Exit {
        Exit { code, line: None, is_interrupted: false }
    }

    /// With a line that says why.
    pub(crate) fn because(code: u8, why: impl Display) -> Exit {
        Exit { code, line: Some(why.to_string()), is_interrupted: false }
    }

    /// Heirlock's own failure.
    pub(crate) fn own(why: impl Display) -> Exit {
        Exit::because(OWN, why)
    }

    /// By a signal, as a shell tells it.
    pub(crate) fn signal(signal: i32) -> Exit {
        Exit::ended(Err(signal))
    }

    /// As the command: its code, or 128 and the signal that ended it.
    pub(crate) fn ended(end: Result<i32, i32>) -> Exit {
        let code = match end {
            Ok(code) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
            Err(signal) => SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(0)),
        };
        Exit { is_interrupted: end == Err(Signal::SIGINT as i32), ..Exit::code(code) }
    }

    /// The same, with a line.
    pub(crate) fn saying(self, line: impl Display) -> Exit {
        Exit { line: Some(line.to_string()), ..self }
    }

    /// What an error of the library means here; `busy` is the code for what is held by another.
    pub(crate) fn of(error: &Error, busy: u8) -> Exit {
        let code = match error.kind() {
            Kind::Busy | Kind::Timeout => busy,
            Kind::Lost => LOST,
            Kind::Deadlock => DEADLOCK,
            Kind::Evicted => EVICTED,
            _ => OWN,
        };
        Exit::because(code, error.chain())
    }

    /// The line, if any.
    pub(crate) fn why(&self) -> &str {
        self.line.as_deref().unwrap_or_default()
    }

    /// Says the line and gives the code to the system; the last that is done.
    pub(crate) fn say(self) -> ExitCode {
        if let Some(line) = self.line {
            tell(&line);
        }
        stderr::flush(LAST_LINES);
        if self.is_interrupted && !signals::is_ignored(Signal::SIGINT as i32) {
            // A shell ends a loop around us only if we die of it. What it then shows as our code is the same.
            // SAFETY: the default action replaces the runtime's handler, and nothing waits for signals any more.
            let _ = unsafe { signal::signal(Signal::SIGINT, SigHandler::SigDfl) };
            let _ = signal::raise(Signal::SIGINT);
        }
        ExitCode::from(self.code)
    }
}

/// A line on stderr, for which nobody here waits.
pub(crate) fn tell(line: &str) {
    let one: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    stderr::say(format!("heirlock: {one}\n").into_bytes());
}
