//! The real binary with a store of its own.
#![allow(missing_docs, dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod pty;
pub mod tree;

/// Where locks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In a file of the place's own.
    Sqlite,
    /// In a namespace of the place's own, on the server of `HEIRLOCK_TEST_REDIS`, which `ci/services` sets.
    Redis,
}

/// Each of these cases as a test over each store, with the store in its name: `over_redis::case_c01_exit_codes`.
#[allow(unused_macros)]
macro_rules! over_each_store {
    ($($case:ident),+ $(,)?) => {
        mod over_sqlite {
            $(#[test] fn $case() { super::$case($crate::common::Store::Sqlite); })+
        }
        mod over_redis {
            $(#[test] fn $case() { super::$case($crate::common::Store::Redis); })+
        }
    };
}
#[allow(unused_imports)]
pub(crate) use over_each_store;

/// The server of the tests.
pub fn redis_server() -> String {
    std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run the tests by ci/test, or by ci/services")
}

/// A folder, and a store; the binary under test sees no other.
pub struct Place {
    pub folder: TempDir,
    store: Store,
}

impl Place {
    /// With a file as its store.
    pub fn new() -> Place {
        Place::over(Store::Sqlite)
    }

    pub fn over(store: Store) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> String {
        match self.store {
            Store::Sqlite => format!("sqlite:{}", self.path("locks.db").display()),
            Store::Redis => format!("{}?prefix={}", redis_server(), self.namespace()),
        }
    }

    fn namespace(&self) -> String {
        format!("{}/", self.folder.path().display())
    }

    /// The store forgets all: nobody holds anything any more, and holders are told at their next renewal.
    pub fn forget_all(&self) {
        match self.store {
            Store::Sqlite => std::fs::remove_file(self.path("locks.db")).unwrap(),
            Store::Redis => {
                let mut server = redis::Client::open(redis_server()).unwrap().get_connection().unwrap();
                let ours = format!("heirlock:{{{}*", self.namespace());
                let names: Vec<String> = redis::cmd("KEYS").arg(ours).query(&mut server).unwrap();
                assert!(!names.is_empty(), "there was something to forget");
                redis::cmd("DEL").arg(names).exec(&mut server).unwrap();
            }
        }
    }

    /// `heirlock ARGS`, with pipes.
    pub fn heirlock(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heirlock"));
        command.args(args).env("HEIRLOCK_STORE", self.store()).env("HOME", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.heirlock(args).output().unwrap()
    }

    /// The exit code of `heirlock ARGS`.
    pub fn code(&self, args: &[&str]) -> i32 {
        self.output(args).status.code().unwrap()
    }

    /// A program of these few lines of C, in this folder.
    pub fn program(&self, name: &str, source: &str) -> PathBuf {
        let (text, program) = (self.path(&format!("{name}.c")), self.path(name));
        std::fs::write(&text, source).unwrap();
        let status = Command::new("cc").args(["-pthread", "-o"]).args([&program, &text]).status().unwrap();
        assert!(status.success());
        program
    }

    /// Waits until somebody waits.
    pub fn eventually_waits(&self) {
        eventually("it waits", || String::from_utf8_lossy(&self.output(&["ls"]).stdout).contains("waits 1"));
    }

    /// Holds the lock in another process until the guard is dropped. Returns when it is held.
    pub fn holder(&self, name: &str) -> Running {
        let running = Running::start(&mut self.heirlock(&["run", name, "--", "sh", "-c", "echo held; exec sleep 600"]));
        running.wait_for_line("held")
    }
}

/// A process that is killed when its guard goes.
pub struct Running {
    pub child: Child,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        Running { child: command.spawn().unwrap() }
    }

    /// Reads stdout until this line comes.
    pub fn wait_for_line(mut self, line: &str) -> Running {
        while self.read_line() != line {}
        self
    }

    /// The next line of stdout; read a byte at a time, so that nothing after it is lost.
    pub fn read_line(&mut self) -> String {
        use std::io::Read;
        let output = self.child.stdout.as_mut().unwrap();
        let mut seen = Vec::new();
        loop {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).unwrap(), 1, "the process ended after saying {:?}", String::from_utf8_lossy(&seen));
            if byte == *b"\n" {
                return String::from_utf8(seen).unwrap();
            }
            seen.push(byte[0]);
        }
    }

    /// Waits for its end; what it said is read meanwhile.
    pub fn finish(mut self) -> Output {
        use std::io::Read;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout));
        self.child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut stderr));
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(self.pid()).unwrap(), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // TERM, so that heirlock ends the command too; then, if that did not do it, KILL.
        if self.child.try_wait().unwrap().is_none() {
            self.signal(rustix::process::Signal::TERM);
            // One that a test has stopped hears of it, too.
            self.signal(rustix::process::Signal::CONT);
            eventually("the process ends", || self.child.try_wait().unwrap().is_some());
        }
    }
}

/// Waits for a condition; a test that waits for half a minute has failed.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Under whose name heirlock shows us.
pub fn user() -> String {
    String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap().trim().to_owned()
}

/// A stdout that nobody reads any more is no failure and no panic; a full one is told in one line.
pub fn assert_tells_a_stdout_that_fails(place: &Place, words: &[&str]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = place.heirlock(words).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{words:?}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.heirlock(words).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{words:?}");
    assert!(stderr(&output).contains("stdout") && stderr(&output).lines().count() == 1, "{output:?}");
}
