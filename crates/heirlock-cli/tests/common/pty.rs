//! A terminal of our own, and an interactive shell on it, which has job control.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcgetpgrp, tcsetattr};

use super::{Place, eventually};

/// A terminal, and the leader of its session.
pub struct Terminal {
    keys: Option<Arc<File>>,
    leader: Child,
    screen: Arc<Mutex<String>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    asked: u32,
}

impl Terminal {
    /// With this command, by name and words, as the leader of its session. What is typed is not echoed.
    pub fn start(place: &Place, words: &[&str]) -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let ours: OwnedFd = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut modes = tcgetattr(&ours).unwrap();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&ours, OptionalActions::Now, &modes).unwrap();
        let other = || ours.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words).stdin(other()).stdout(other()).stderr(other());
        command
            .env("HEIRLOCK_STORE", place.store())
            .env("HOME", place.folder.path())
            .env("PS1", "$ ")
            .env("HEIRLOCK", env!("CARGO_BIN_EXE_heirlock"));
        let leader = command.current_dir(place.folder.path()).spawn().unwrap();
        let keys = Arc::new(File::from(keys));
        let (screen, is_over) = (Arc::default(), Arc::default());
        let reader = std::thread::spawn({
            let (keys, screen, is_over) = (Arc::clone(&keys), Arc::clone(&screen), Arc::clone(&is_over));
            move || watch(&keys, &screen, &is_over)
        });
        Terminal { keys: Some(keys), leader, screen, is_over, reader: Some(reader), asked: 0 }
    }

    /// With a shell that has job control, and for which `$HEIRLOCK` is the binary.
    pub fn shell(place: &Place) -> Terminal {
        let mut terminal = Terminal::start(place, &["bash", "--norc", "--noprofile", "--noediting", "-i"]);
        terminal.code();
        terminal
    }

    pub fn types(&self, text: &str) {
        self.keys.as_deref().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// What has been on the screen.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub fn shows(&self, text: &str) {
        eventually(&format!("{text:?} is on the screen"), || self.screen().contains(text));
    }

    /// The exit code of what was typed before, and has started: once the shell has the terminal and reads again, which this shows, too.
    pub fn code(&mut self) -> i32 {
        eventually("the shell has the terminal", || self.foreground() == Some(self.pid()));
        self.asked += 1;
        let asked = self.asked;
        self.types(&format!("echo \"code {asked} is $?.\"\n"));
        let expected = format!("code {asked} is ");
        let mut code = None;
        eventually(&format!("the shell answers: {:?}", self.screen()), || {
            let screen = self.screen();
            code = screen.split(&expected).nth(1).and_then(|rest| rest.split_once('.')).map(|(code, _)| code.parse().unwrap());
            code.is_some()
        });
        code.unwrap()
    }

    /// The shell reads what is typed, runs it in the foreground, and has the terminal back after that.
    pub fn is_usable(&mut self) {
        eventually("the shell has the terminal", || self.foreground() == Some(self.pid()));
        self.asked += 1;
        let word = format!("word{}", self.asked);
        self.types(&format!("bash -c 'read word; echo \"got $word.\"'\n{word}\n"));
        self.shows(&format!("got {word}."));
        self.code();
    }

    /// The group that has the terminal, once there is one.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.keys.as_deref().unwrap()).ok()
    }

    /// The leader's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.leader)
    }

    /// The terminal goes away, as when its window is closed or its connection is lost.
    pub fn vanish(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        drop(self.keys.take());
    }

    /// Whether its leader has ended.
    pub fn end(&mut self) -> Option<ExitStatus> {
        self.leader.try_wait().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on the screen: {}", self.screen());
        }
        self.is_over.store(true, Ordering::Release);
        self.reader.take().map(JoinHandle::join);
        drop(self.keys.take());
        // An interactive shell passes it on to its jobs; it may ignore TERM.
        if self.leader.try_wait().unwrap().is_none() {
            let _ = kill_process(self.pid(), Signal::HUP);
            let _ = kill_process(self.pid(), Signal::CONT);
            eventually("the terminal's leader ends", || self.leader.try_wait().unwrap().is_some());
        }
    }
}

fn watch(keys: &File, screen: &Mutex<String>, is_over: &AtomicBool) {
    let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !is_over.load(Ordering::Acquire) {
        if poll(&mut [PollFd::new(keys, PollFlags::IN)], Some(&pause)).unwrap() == 0 {
            continue;
        }
        let mut bytes = [0; 4096];
        let mut keys = keys;
        match keys.read(&mut bytes) {
            Ok(read @ 1..) => screen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read])),
            // Nobody has the other side open.
            _ => return,
        }
    }
}
