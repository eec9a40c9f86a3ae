//! Another process of the same bench, which does what it is told and says when.
#![allow(dead_code, unreachable_pub)] // Each bench uses its part.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that runs this program with `peer` and further words; it ends with this.
pub struct Peer {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Returns when it has answered for the first time: it is connected.
    pub fn start(words: &[&str]) -> Peer {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new(exe);
        let mut child = command.arg("peer").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut peer = Peer { child, input, output };
        peer.answer();
        peer
    }

    pub fn ask(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    /// The instant that it tells, in nanoseconds of the clock that all processes share.
    pub fn answer(&mut self) -> u64 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
