//! Redis servers of a test's own, to be stopped, started again and set up as no other test wants them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use heirlock::lease::SessionId;
use redis::{Client, Connection};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) mod cluster;
pub(crate) mod sentinel;

/// Longer than a server takes for anything.
const FOR_EVER: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    child: Child,
    port: u16,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
}

impl Server {
    /// With these options beside the usual ones; returns when it listens.
    pub(crate) fn start(options: &[&str]) -> Server {
        Server::launch(tempfile::tempdir().unwrap(), [&["--save", ""], options].concat())
    }

    /// One that watches others, as these lines of its file say.
    fn sentinel(lines: &[String]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        fs::write(&file, lines.join("\n")).unwrap();
        let file = file.to_str().unwrap().to_owned();
        Server::launch(folder, vec![&file, "--sentinel"])
    }

    fn launch(folder: tempfile::TempDir, arguments: Vec<&str>) -> Server {
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        for _ in 0..100 {
            // Below those that the system gives to connections, and where a cluster's second port, 10000 above, is still one.
            let port = u16::try_from(SessionId::random().unwrap().0 % 10_000 + 11_000).unwrap();
            // Somebody else may have it: then it ends.
            if let Some(child) = run(folder.path(), port, &arguments) {
                return Server { child, port, arguments, folder };
            }
        }
        panic!("it does not start: {}", log(folder.path()));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// With something before the host: a user and a password.
    pub(crate) fn url(&self, who: &str) -> String {
        format!("redis://{who}127.0.0.1:{}", self.port)
    }

    /// A connection of the test's own.
    pub(crate) fn connection(&self, who: &str) -> Connection {
        Client::open(self.url(who)).unwrap().get_connection().unwrap()
    }

    /// What it answers to a command, given as words.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut Client::open(self.url(""))?.get_connection_with_timeout(FOR_EVER)?)
    }

    /// A field of what it says of itself.
    pub(crate) fn info(&self, field: &str) -> Option<String> {
        let info: String = self.ask(&["INFO"]).ok()?;
        info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }

    /// What to stop and to continue it by.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stopped, it is silent, and keeps its connections.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// As a power cut does it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// At the same place, after a [`Server::kill`].
    pub(crate) fn again(&mut self) {
        let since = Instant::now();
        loop {
            if let Some(child) = run(self.folder.path(), self.port, &self.arguments) {
                self.child = child;
                return;
            }
            assert!(since.elapsed() < FOR_EVER, "it does not start again: {}", log(self.folder.path()));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// None if it ends instead of listening.
fn run(folder: &Path, port: u16, arguments: &[String]) -> Option<Child> {
    let log_file = fs::File::create(folder.join("log")).unwrap();
    let mut command = Command::new("redis-server");
    command.args(arguments).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]).arg("--dir").arg(folder);
    let mut child = command.stdin(Stdio::null()).stdout(log_file).spawn().expect("redis-server: ci/services installs it");
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let said = log(folder);
        if said.contains("Ready to accept connections") || said.contains("Sentinel ID is") {
            return Some(child);
        }
        assert!(since.elapsed() < FOR_EVER, "it does not listen: {said}");
        sleep(Duration::from_millis(5));
    }
    None
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Until it is so, which must not take for ever.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < FOR_EVER, "after {:?} still waiting until {what}", since.elapsed());
        sleep(Duration::from_millis(10));
    }
}
