//! A command that has a tree: two who leave its group, one of them its session too.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, test_kill_process};

use super::{Place, Running, eventually, stderr};

/// The process whose number stands in this file.
pub fn pid(file: &Path) -> Pid {
    let mut number = None;
    eventually("its number is written", || {
        number = std::fs::read_to_string(file).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok()).and_then(Pid::from_raw);
        number.is_some()
    });
    number.unwrap()
}

/// Whether it still runs.
pub fn lives(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

/// A shell script that starts two who leave its group, writes their numbers and its own, and says `held`.
pub fn script(place: &Place, own: &str) -> String {
    let [a, b, leader, guardian] = ["a", "b", "leader", "guardian"].map(|name| place.path(name).display().to_string());
    format!(
        "{own}; timeout 60 sh -c 'echo $$ > {a}; exec sleep 600' & setsid sh -c 'echo $$ > {b}; exec sleep 600' & \
         echo $$ > {leader}; echo $PPID > {guardian}; while [ ! -s {a} ] || [ ! -s {b} ]; do sleep 0.01; done; echo held; wait; sleep 600"
    )
}

/// Runs it; answers the processes of its tree.
pub fn run_tree(place: &Place, options: &[&str], own: &str) -> (Running, [Pid; 3], Pid) {
    run_tree_to(place, options, own, Stdio::piped())
}

/// The same with this as stderr.
pub fn run_tree_to(place: &Place, options: &[&str], own: &str, stderr: Stdio) -> (Running, [Pid; 3], Pid) {
    for name in ["a", "b", "leader", "guardian"] {
        let _ = std::fs::remove_file(place.path(name));
    }
    let script = script(place, own);
    let args: Vec<&str> = ["run"].iter().chain(options).chain(&["job", "--", "sh", "-c", &script]).copied().collect();
    let running = Running::start(place.heirlock(&args).stderr(stderr)).wait_for_line("held");
    (running, tree(place), pid(&place.path("guardian")))
}

/// The two and the leader, once they have written their numbers.
pub fn tree(place: &Place) -> [Pid; 3] {
    ["a", "b", "leader"].map(|name| pid(&place.path(name)))
}

/// The next that gets the lock finds nobody of the tree alive.
pub fn next_finds_nobody(place: &Place, tree: [Pid; 3]) {
    // A leader that has ended is there until its guardian goes.
    let look = "for pid; do state=$(sed -n 's/^State:[[:space:]]*//p' /proc/$pid/status 2>/dev/null); \
                case \"$state\" in ''|Z*|X*) ;; *) echo \"process $pid: $state\";; esac; done";
    let [a, b, c] = tree.map(|pid| pid.to_string());
    let since = Instant::now();
    let output = place.output(&["run", "job", "--", "sh", "-c", look, "look", &a, &b, &c]);
    let (said, took) = (String::from_utf8_lossy(&output.stdout), since.elapsed());
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "of {tree:?}, in after {took:?}: {}", stderr(&output));
}
