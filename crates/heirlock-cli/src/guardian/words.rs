//! What heirlock and its guardian say to each other: one JSON object a line.

use std::collections::VecDeque;
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::Cause;

/// From heirlock to its guardian.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// The lock will be asked for with this secret.
    Ask { secret: [u8; 16] },
    /// It is held: start the command, in this environment.
    Start { environment: Vec<(String, Option<String>)> },
    /// The lock is lost, for this reason.
    Lose { reason: String },
    /// The store knows that the lock is released: there is nothing left to guard.
    Done,
}

/// From the guardian.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// The command runs; the number is its leader's and its group's.
    Started { pid: i32 },
    /// It cannot be run.
    Failed { is_missing: bool, why: String },
    /// Its leader was stopped by this signal.
    Stopped { signal: i32 },
    /// Its leader has ended, with a code or by a signal.
    Ended { end: Result<i32, i32> },
    /// The command is to end, and a process of its tree runs as another user, so that it cannot be ended.
    Refused,
    /// Nothing is left that the lock is held for. If the lock was lost before, why the command was ended, or told of.
    Gone { cause: Option<Cause> },
}

/// One message as it is sent.
pub(super) fn line(word: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    Ok(line)
}

/// The messages of a stream that comes in pieces.
#[derive(Default)]
pub(super) struct Lines(VecDeque<u8>);

impl Lines {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// The next one that has come whole.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(end) = self.0.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line: Vec<u8> = self.0.drain(..=end).collect();
        serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_in_whatever_pieces() {
        let sent = [line(&Word::Started { pid: 7 }).unwrap(), line(&Word::Ended { end: Err(9) }).unwrap()].concat();
        for size in 1..sent.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for piece in sent.chunks(size) {
                lines.add(piece);
                while let Some(word) = lines.next::<Word>().unwrap() {
                    seen.push(format!("{word:?}"));
                }
            }
            assert_eq!(seen, ["Started { pid: 7 }", "Ended { end: Err(9) }"]);
        }
        let mut lines = Lines::default();
        lines.add(b"no\n");
        assert!(lines.next::<Word>().is_err());
    }
}
