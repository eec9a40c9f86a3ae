//! Commands that are hard to hold: groups that fork without end, processes whose first thread has ended, other users' processes, other views of the
//! processes, and children that heirlock had before it was heirlock.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "../../heirlock/tests/common/elsewhere.rs"]
mod elsewhere;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::tree::lives;
use common::{Place, Running, eventually, stderr};
use elsewhere::{can_unshare, not_run};
use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};

#[test]
fn a_group_whose_members_are_never_there_for_long_keeps_the_lock() {
    let place = Place::new();
    let file = place.path("done");
    // Each member makes the next and ends, and so does the leader.
    let script = format!("hop() {{ if [ $1 = 0 ]; then touch {}; else hop $(($1 - 1)) & fi; }}; hop 500", file.display());
    for _ in 0..5 {
        assert_eq!(place.code(&["run", "a", "--", "sh", "-c", &script]), 0);
        assert!(file.exists(), "it was released while a member was there");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_keeps_the_lock_and_is_killed() {
    let place = Place::new();
    let threads = place.program("threads", include_str!("threads.c"));
    let (program, ticks) = (threads.display(), place.path("ticks"));
    let length = || std::fs::metadata(&ticks).map_or(0, |metadata| metadata.len());
    let script = format!("{program} 1 >{} & exit 0", ticks.display());
    assert_eq!(place.code(&["run", "a", "--", "sh", "-c", &script]), 0);
    assert_eq!(length(), 50, "it was released while a member ran");
    // As the leader, and ended because its time is over.
    let script = format!("exec {program} 600 >{}", ticks.display());
    assert_eq!(place.code(&["run", "--max-hold", "3", "--on-lost", "kill", "a", "--", "sh", "-c", &script]), 79);
    let ended_at = length();
    assert_eq!(place.code(&["run", "a", "true"]), 0);
    assert!(ended_at > 50 && length() == ended_at, "it ran on");
}

/// The system cuts a program's name after fifteen bytes, wherever that is.
#[test]
fn a_process_whose_name_is_no_text_is_ended() {
    let place = Place::new();
    let program = place.path("sauvegarde-x\u{e9}\u{e9}\u{e9}\u{e9}");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let number = place.path("number");
    let script = format!("setsid sh -c 'echo $$ > {}; exec {} 600' & wait", number.display(), program.display());
    assert_eq!(place.code(&["run", "--max-hold", "3", "--on-lost", "kill", "a", "--", "sh", "-c", &script]), 79);
    let pid = Pid::from_raw(std::fs::read_to_string(&number).unwrap().trim().parse().unwrap()).unwrap();
    assert!(!lives(pid), "it lives");
}

#[test]
fn a_process_of_another_user_is_named() {
    if !geteuid().is_root() {
        not_run("a command that becomes another user", "root");
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let root = place.program("root", "#include <unistd.h>\nint main() { return setuid(0) || write(1, \"root\\n\", 5) != 5 || sleep(6); }");
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o4755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_heirlock"), "run", "--max-hold", "3", "a", "--"]);
    command.arg(&root).env("HEIRLOCK_STORE", place.store()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let output = Running::start(&mut command).wait_for_line("root").finish();
    assert_eq!(output.status.code(), Some(79), "{output:?}");
    let said = stderr(&output);
    assert_eq!(said.matches("runs as another user (uid 0), and cannot be ended").count(), 1, "{said}");
    assert!(!said.contains("its guardian"), "that one is not to blame: {said}");
}

#[test]
fn where_our_processes_are_not_shown_nothing_is_started() {
    if !can_unshare("a /proc of another namespace", "-rp") {
        return;
    }
    let unshare = |args: &[&str]| Command::new("unshare").args(["-rpf"]).args(args).output().unwrap();
    let place = Place::new();
    let file = place.path("ran");
    let run = |options: &[&str]| {
        let heirlock = env!("CARGO_BIN_EXE_heirlock");
        let store = place.store();
        let args = [heirlock, "run", "--store", store.as_str(), "a", "touch", file.to_str().unwrap()];
        unshare(&[options, &args].concat())
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(stderr(&output).contains("mount the /proc of this pid namespace") && stderr(&output).lines().count() == 1, "{output:?}");
    assert!(!file.exists());
    // As the first process of the namespace.
    let output = run(&["--mount-proc"]);
    assert_eq!((output.status.code(), file.exists()), (Some(0), true), "{output:?}");
}

#[test]
fn who_was_there_before_is_let_alone() {
    let place = Place::new();
    let file = place.path("stranger");
    let script = format!(
        "sleep 600 & echo $! > {}; exec {} run a -- sh -c 'echo $PPID; exec sleep 600'",
        file.display(),
        env!("CARGO_BIN_EXE_heirlock")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("HEIRLOCK_STORE", place.store());
    let mut running = Running::start(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    let guardian = running.read_line().parse().unwrap();
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    let status = running.child.wait().unwrap();
    let stranger = Pid::from_raw(std::fs::read_to_string(&file).unwrap().trim().parse().unwrap()).unwrap();
    let lives = test_kill_process(stranger).is_ok();
    let _ = kill_process(stranger, Signal::KILL);
    assert_eq!((status.code(), lives), (Some(125), true), "heirlock ends, and a job of the shell before it does not");
}

#[test]
fn the_first_process_of_a_namespace_reaps_whoever_comes_to_it() {
    if !can_unshare("heirlock as the first process of a namespace", "-rp") {
        return;
    }
    let place = Place::new();
    let mut command = Command::new("unshare");
    command.args(["-rpf", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_heirlock"), "run", "--store", &place.store(), "a", "--"]);
    command.args(["sh", "-c", "echo held; while [ ! -e stop ]; do sleep 0.02; done"]);
    command.current_dir(place.folder.path()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = Running::start(&mut command).wait_for_line("held");
    let unshare = running.pid();
    let first = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).unwrap();
    // Its child loses its parent, and ends a little later.
    let script = format!("(sleep 0.1; echo > {}) & exit 0", place.path("orphan").display());
    let enter = ["-t", first.trim(), "-U", "-p", "-m", "--preserve-credentials", "sh", "-c", &script];
    let status = Command::new("nsenter").args(enter).status().unwrap();
    assert!(status.success());
    let zombies = || {
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter(|entry| {
                let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
                let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
                fields.next() == Some("Z") && fields.next() == Some(first.trim())
            })
            .count()
    };
    eventually("the orphan has ended", || place.path("orphan").exists());
    eventually("it is reaped", || zombies() == 0);
    std::fs::write(place.path("stop"), "").unwrap();
    assert_eq!(running.finish().status.code(), Some(0));
}
