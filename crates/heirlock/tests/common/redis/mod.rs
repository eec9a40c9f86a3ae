//! A Redis server of a test's own, to be stopped, started again and set up as no other test wants it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Connection};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Server {
    child: Child,
    port: u16,
    options: Vec<String>,
    folder: tempfile::TempDir,
}

impl Server {
    /// With these options beside the usual ones; returns when it listens.
    pub(crate) fn start(options: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        loop {
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            // Somebody else may have taken the port meanwhile: then it ends.
            if let Some(child) = run(folder.path(), port, &options) {
                return Server { child, port, options, folder };
            }
        }
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

    /// What to stop and to continue it by.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As a power cut does it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stopped, it is silent, and keeps its connections.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// At the same place, after a [`Server::kill`].
    pub(crate) fn again(&mut self) {
        let since = Instant::now();
        loop {
            if let Some(child) = run(self.folder.path(), self.port, &self.options) {
                self.child = child;
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "somebody else has its port");
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
fn run(folder: &Path, port: u16, options: &[String]) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).arg("--dir").arg(folder).args(options);
    let mut child = command.stdout(Stdio::null()).spawn().expect("redis-server: ci/services installs it");
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(child);
        }
        assert!(since.elapsed() < Duration::from_secs(20), "it does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
