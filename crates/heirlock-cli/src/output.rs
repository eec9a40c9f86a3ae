//! What goes to stdout: whole, coloured only where a person sees it, and with a word where it cannot be written.

use std::io::{self, ErrorKind, IsTerminal, Write};

use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

use crate::exit::Exit;

/// Writes text to stdout, and ends with this code if that went well.
pub(crate) fn text(text: &str, code: u8) -> Exit {
    end(write_all(text.as_bytes()), code)
}

/// Writes one line of JSON to stdout, and ends with this code if that went well.
pub(crate) fn json(value: &impl Serialize, code: u8) -> Exit {
    let written = serde_json::to_vec(value).map_err(io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        write_all(&line)
    });
    end(written, code)
}

fn end(written: io::Result<()>, code: u8) -> Exit {
    match written {
        Ok(()) => Exit::code(code),
        Err(error) => cannot_write(&error),
    }
}

/// Whoever read our output has gone: that is no failure. A full disk is one.
pub(crate) fn cannot_write(error: &io::Error) -> Exit {
    if error.kind() == ErrorKind::BrokenPipe { Exit::code(0) } else { Exit::own(format!("cannot write to stdout: {error}")) }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            // Whoever started us may have left the pipe in a mode that does not wait; we do.
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room()?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        match out.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_room()?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            flushed => return flushed,
        }
    }
}

fn wait_for_room() -> io::Result<()> {
    let stdout = io::stdout();
    match poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How text for people looks on stdout.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    coloured: bool,
}

/// A colour, or what comes near it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Bold = 1,
    Red = 31,
    Green = 32,
    Yellow = 33,
}

impl Style {
    /// Coloured on a terminal, unless `NO_COLOR` is set (<https://no-color.org>) or the terminal can do nothing.
    pub(crate) fn of_stdout() -> Style {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let coloured = io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|term| term != "dumb");
        Style { coloured }
    }

    /// The text in this colour, if there are colours. What is aligned must be so before.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        if self.coloured { format!("\x1b[{}m{text}\x1b[0m", ink as u8) } else { text.to_owned() }
    }
}
