//! What a command inherits besides its words: its descriptors, also where there are none, and the sockets of whoever supervises it.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Output, Stdio};

use common::{Place, eventually, stderr};

const HEIRLOCK: &str = env!("CARGO_BIN_EXE_heirlock");

/// `heirlock WORDS` with some of 0 to 2 closed, or sent elsewhere.
fn without(place: &Place, streams: &str, words: &str) -> Output {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec {HEIRLOCK} {words} {streams}")])
        .env("HEIRLOCK_STORE", place.store())
        .current_dir(place.folder.path());
    command.stdin(Stdio::null()).output().unwrap()
}

/// All ways to close some of the three.
fn closed() -> impl Iterator<Item = String> {
    (0..8).map(|which| ["<&- ", ">&- ", "2>&- "].iter().enumerate().filter(|(bit, _)| which >> bit & 1 == 1).map(|(_, way)| *way).collect())
}

/// The descriptors in what `ls -l /proc/PID/fd` says.
fn listed(list: &str) -> Vec<(u32, String)> {
    let lines = list.lines().filter_map(|line| line.split_once(" -> "));
    lines.map(|(number, file)| (number.rsplit(' ').next().unwrap().parse().unwrap(), file.to_owned())).collect()
}

/// Those of `ls` above 2, but for the directory that it reads.
fn further(list: &str) -> Vec<u32> {
    listed(list).into_iter().filter(|(number, file)| *number > 2 && !file.starts_with("/proc/")).map(|(number, _)| number).collect()
}

/// A file that is opened where stderr should be would be written to by whoever complains: the store's, say.
#[test]
fn closed_streams_never_become_the_store() {
    // What whoever runs these tests has left open is inherited, too.
    let usual = further(
        &String::from_utf8(Command::new("ls").args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).output().unwrap().stdout).unwrap(),
    );
    for streams in closed() {
        let place = Place::new();
        // What there is of descriptors in the command, of all that we have open ourselves, and a line for each stream that there is not.
        let script = "ls -l /proc/self/fd > command; ls -l /proc/$PPID/fd > guardian; ls -l /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/fd > heirlock; \
                      echo out; echo err >&2; cat";
        std::fs::write(place.path("job.sh"), script).unwrap();
        let output = without(&place, &streams, "run -vv a -- sh job.sh");
        assert!(output.status.success(), "{streams:?}: {output:?}");
        let read = |name| std::fs::read_to_string(place.path(name)).unwrap();
        for who in ["command", "guardian", "heirlock"] {
            let open = read(who);
            for (number, file) in listed(&open) {
                assert!(number > 2 || !file.contains("locks.db"), "{streams:?}: {who} has the store as {number}: {open}");
                assert!(who == "heirlock" || !file.contains("locks.db"), "{streams:?}: {who} has the store: {open}");
            }
            assert!(listed(&open).len() >= 3, "{who}: {open}");
        }
        assert_eq!(further(&read("command")), usual, "{streams:?}: it has some of ours");
        let said = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
        assert_eq!(said.0, if streams.replace("2>&-", "").contains(">&-") { "" } else { "out\n" }, "{streams:?}");
        assert_eq!(said.1.contains("err\n") && said.1.contains("the lock is held"), !streams.contains("2>&-"), "{streams:?}: {}", said.1);
        // A complaint, and then the file is whole.
        assert_eq!(without(&place, &streams, "run -vv a -- no-such-command").status.code(), Some(127), "{streams:?}");
        let store = rusqlite::Connection::open(place.path("locks.db")).unwrap();
        assert_eq!(store.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok", "{streams:?}");
        for file in ["locks.db", "locks.db-wal"] {
            let bytes = std::fs::read(place.path(file)).unwrap_or_default();
            assert!(!bytes.windows(9).any(|bytes| bytes == b"heirlock:"), "{streams:?}: a complaint is in {file}");
        }
    }
}

/// The other verbs with each stream closed: nothing is written to where it does not belong, and there is no panic.
#[test]
fn verbs_that_print_bear_closed_streams() {
    let place = Place::new();
    let holder = place.holder("a");
    for words in ["ls", "ls --json", "show a", "show a --json", "where", "doctor", "completions bash", "man", "evict b"] {
        let usual = without(&place, "", words);
        for streams in closed() {
            let output = without(&place, &streams, words);
            assert_eq!(output.status.code(), usual.status.code(), "{words} {streams}: {}", stderr(&output));
            assert!(!stderr(&output).contains("panicked"), "{words} {streams}: {}", stderr(&output));
        }
    }
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 75);
    drop(holder);
}

#[test]
fn a_stdout_that_fails_is_told_by_all_verbs_that_print() {
    let place = Place::new();
    let holder = place.holder("a");
    for words in [&["show", "a"][..], &["show", "a", "--json"], &["where"], &["where", "--json"], &["completions", "zsh"], &["man"]] {
        common::assert_tells_a_stdout_that_fails(&place, words);
    }
    drop(holder);
}

/// Where stderr is full as a disk is, nobody is told, and all else is as it was.
#[test]
fn a_full_disk_as_stderr_changes_nothing() {
    let place = Place::new();
    assert_eq!(without(&place, "2>/dev/full", "run -vv a -- sh -c 'exit 7'").status.code(), Some(7));
    assert_eq!(without(&place, "2>/dev/full", "run -vv a -- no-such-command").status.code(), Some(127));
    assert_eq!(without(&place, "2>/dev/full", "run --no-such-option a true").status.code(), Some(125));
    assert_eq!(place.code(&["run", "-n", "a", "true"]), 0);
}

/// As systemd opens sockets: from descriptor 3 on, for the process whose number is in `LISTEN_PID`.
#[test]
fn sockets_that_were_opened_for_us_are_the_commands() {
    let place = Place::new();
    let socket = place.path("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let inode = |link: &str| link.trim().trim_start_matches("socket:[").trim_end_matches(']').to_owned();
    let ours = {
        use std::os::fd::AsRawFd;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        inode(link.to_str().unwrap())
    };
    // The shell's 3 is our 0, and its number is heirlock's.
    let line = format!(
        "exec 3<&0 < /dev/null; export LISTEN_FDS=1 LISTEN_FDNAMES=web LISTEN_PID=$$; exec {HEIRLOCK} run a -- \
         sh -c 'test $LISTEN_PID = $$ && test $LISTEN_FDS = 1 && test $LISTEN_FDNAMES = web && readlink /proc/$$/fd/3 && exec ls -l /proc/self/fd'"
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &line])
        .env("HEIRLOCK_STORE", place.store())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (first, list) = text.split_once('\n').unwrap();
    assert_eq!(inode(first), ours);
    let usual = Command::new("ls").args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).output().unwrap();
    let mut expected = further(&String::from_utf8(usual.stdout).unwrap());
    expected.push(3);
    expected.sort_unstable();
    let mut seen = further(list);
    seen.sort_unstable();
    assert_eq!(seen, expected, "the socket and nothing of ours: {list}");
    // What is addressed to another process is not changed.
    let output =
        place.heirlock(&["run", "a", "--", "sh", "-c", "echo $LISTEN_PID"]).env("LISTEN_FDS", "1").env("LISTEN_PID", "1").output().unwrap();
    assert_eq!(output.stdout, b"1\n");
}

#[test]
fn the_command_can_tell_a_supervisor_that_it_is_ready() {
    const INSIDE: &str = "HEIRLOCK_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        // The command.
        let supervisor = std::env::var_os("NOTIFY_SOCKET").unwrap();
        assert_eq!(UnixDatagram::unbound().unwrap().send_to(b"READY=1", supervisor).unwrap(), 7);
        return;
    }
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let this = std::env::current_exe().unwrap();
    let words = ["run", "a", "--", this.to_str().unwrap(), "--exact", "the_command_can_tell_a_supervisor_that_it_is_ready"];
    let output = place.heirlock(&words).env("NOTIFY_SOCKET", &path).env(INSIDE, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut bytes = [0; 64];
    let mut read = 0;
    eventually("it has come", || {
        read = socket.recv(&mut bytes).unwrap_or(0);
        read > 0
    });
    assert_eq!(&bytes[..read], b"READY=1");
}

/// What a command has open is what it has without heirlock: the same files by the same numbers. In the place of one that is closed stands `/dev/null`.
#[test]
fn a_command_has_the_descriptors_that_it_has_without_heirlock() {
    let place = Place::new();
    for streams in closed() {
        // One more, which is inherited as all are.
        let list = |before: &str| {
            let output = place.path("list");
            let line = format!("exec {before} sh -c 'exec ls -l /proc/self/fd > list' {streams} 7</dev/zero");
            let mut command = Command::new("sh");
            command.args(["-c", &line]).current_dir(place.folder.path()).env("HEIRLOCK_STORE", place.store()).stdin(Stdio::null());
            let ran = command.output().unwrap();
            assert!(ran.status.success(), "{streams:?}: {ran:?}");
            let mut open = listed(&std::fs::read_to_string(output).unwrap());
            // But for the directory that it reads. The pipes are those of this one call.
            open.retain(|(_, file)| !file.starts_with("/proc/"));
            for (_, file) in &mut open {
                file.truncate(file.find(":[").unwrap_or(file.len()));
            }
            open
        };
        let mut without = list("");
        for number in 0..3 {
            if without.iter().all(|(open, _)| *open != number) {
                without.push((number, "/dev/null".into()));
            }
        }
        without.sort();
        assert!(without.contains(&(7, "/dev/zero".into())), "{without:?}");
        let mut within = list(&format!("{HEIRLOCK} run a --"));
        within.sort();
        assert_eq!(within, without, "{streams:?}");
    }
}
