//! Many runs over a few names while some of their heirlocks, guardians and commands are stopped, killed and asked to end at random: no two commands
//! of one name that exclude each other are ever alive at once, and nothing is left running or held.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "../../heirlock/tests/common/random.rs"]
mod random;
mod soak_parts {
    pub(crate) mod record;
    pub(crate) mod victims;
}

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Place, eventually, stderr};
use random::{Random, seed};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
use soak_parts::record::Record;
use soak_parts::victims::{Hit, Plan};

const NAMES: u64 = 20;

/// What the command of a run does. All that is started in its tree has descriptor 9 open, by which the kernel knows whether any of it is alive; but
/// for daemons, which are let alone.
const COMMANDS: [&str; 11] = [
    ":",
    "sleep 0.05",
    "sleep 0.3 & sleep 0.1",
    "(sleep 0.2; sleep 0.2) & (sleep 0.1) & wait",
    "trap '' TERM INT HUP; sleep 0.2; sleep 0.2",
    "timeout 5 sleep 0.2 9>&-",
    "setsid sh -c 'sleep 0.3' 9>&- & sleep 0.02",
    "setsid sleep 0.3 9>&- & wait",
    // Nobody is there for long.
    "hop() { [ $1 = 0 ] || hop $(($1 - 1)) & }; hop 40",
    "exec $THREADS",
    "for i in 1 2 3 4 5; do sh -c 'sleep 0.02 & exec sleep 0.03'; done",
];

/// The script of a run: begins, does it, ends, each end of it said by one write.
fn script(folder: &Path, work: &str, is_shared: bool) -> String {
    let (record, alive) = (folder.join("record"), folder.join("alive"));
    let (record, alive, how) = (record.display(), alive.display(), if is_shared { "s" } else { "x" });
    // A lock of the kernel's own, held as long as any process has the descriptor: nobody may be there who excludes us.
    format!(
        "say() {{ echo \"$1 $HEIRLOCK_NAME $HEIRLOCK_FENCE {how} $HEIRLOCK_SOAK_RUN\" >> {record}; }}; \
         exec 9<> {alive}.$HEIRLOCK_NAME; flock -E 9 -n{how} 9; [ $? != 9 ] || say overlap; say begin; {work}; code=$?; say end; exit $code"
    )
}

/// One that runs, and what is to happen to it.
struct Run {
    child: Child,
    plan: Plan,
    since: Instant,
    what: String,
    number: u64,
    complaints: PathBuf,
}

impl Run {
    fn start(place: &Place, number: u64, random: &mut Random) -> Run {
        let name = format!("name{}", random.within(0, NAMES));
        let is_shared = random.chance(15);
        let work = random.pick(&COMMANDS);
        let mut args: Vec<String> = ["run", "--ttl", "3"].map(String::from).into();
        let grace = random.pick(&["0", "0.2", "1"]);
        args.extend(["--grace".into(), grace.into()]);
        if is_shared {
            args.push("-s".into());
        }
        if random.chance(10) {
            args.extend(["--on-lost".into(), "kill".into()]);
        }
        if random.chance(10) {
            args.push("-n".into());
        }
        if random.chance(20) {
            args.extend(["-p".into(), random.within(0, 9).to_string()]);
        }
        args.extend([name, "--".into(), "sh".into(), "-c".into(), script(place.folder.path(), work, is_shared)]);
        let plan = Plan::random(random);
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let complaints = place.path(&format!("stderr {number}"));
        let mut child = place.heirlock(&words);
        child.stdout(Stdio::null()).stderr(File::create(&complaints).unwrap());
        child.env("HEIRLOCK_SOAK_RUN", number.to_string()).env("THREADS", place.path("threads"));
        let child = child.spawn().unwrap();
        Run { child, plan, number, complaints, since: Instant::now(), what: format!("{} {work:?}", args[1..args.len() - 4].join(" ")) }
    }
}

/// What the ends of runs were, for who reads the output.
#[derive(Default)]
struct Ends {
    counts: BTreeMap<String, u32>,
    /// What became of each run.
    stories: BTreeMap<u64, String>,
    /// Those that ended with 0, and so must have done all that they had to.
    done: Vec<u64>,
}

impl Ends {
    /// Takes note of one, which must be one that can be explained.
    fn add(&mut self, run: &Run, status: ExitStatus) {
        let complaints = std::fs::read_to_string(&run.complaints).unwrap_or_default();
        let _ = std::fs::remove_file(&run.complaints);
        let how = status.code().map_or_else(|| format!("signal {}", status.signal().unwrap_or(0)), |code| format!("exit {code}"));
        let story =
            format!("{} {}: {how} after {:.3?}, hit {:.3?} {complaints}", run.number, run.what, run.since.elapsed(), run.plan.hits());
        let was_hit = |is_so: fn(&Hit) -> bool| run.plan.hits().iter().any(|(_, hit)| is_so(hit));
        let is_explained = match (status.code(), status.signal()) {
            // Its own; held by another; lost, for one that is stopped in the midst of a transaction keeps all others from renewing; taken by an operator.
            (Some(0 | 79 | 81), _) => true,
            (Some(75), _) => run.what.contains(" -n "),
            // Somebody of the tree was ended by a signal.
            (Some(137 | 143), _) => was_hit(|hit| matches!(hit, Hit::Command(..) | Hit::Heirlock(Signal::TERM))),
            (Some(125), _) => was_hit(|hit| matches!(hit, Hit::Guardian(_))) || complaints.contains("did not answer"),
            (_, Some(9)) => was_hit(|hit| *hit == Hit::Heirlock(Signal::KILL)),
            // In its first moment it does not listen yet.
            (_, Some(15)) => was_hit(|hit| *hit == Hit::Heirlock(Signal::TERM)),
            _ => false,
        };
        assert!(is_explained, "{story}");
        *self.counts.entry(how).or_default() += 1;
        if status.success() {
            self.done.push(run.number);
        }
        self.stories.insert(run.number, story);
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[test]
fn no_two_commands_of_a_name_overlap_whoever_is_killed() {
    let (seconds, at_once) = (number("HEIRLOCK_SOAK_SECONDS", 30), number("HEIRLOCK_SOAK_RUNS", 60));
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut random = Random::new(seed, 0);
    // Whoever is left behind becomes our child, and so nothing is overlooked.
    set_child_subreaper(Some(getpid())).unwrap();
    let place = Place::new();
    // Its first thread ends at once, another one in a moment.
    place.program("threads", include_str!("threads.c"));
    assert_eq!(place.code(&["run", "first", "true"]), 0, "the file is made");
    let (since, mut ends, mut runs, mut operators) = (Instant::now(), Ends::default(), Vec::new(), Vec::new());
    let (mut total, mut evicted) = (0, 0);
    loop {
        let is_over = since.elapsed() >= Duration::from_secs(seconds);
        while !is_over && (runs.len() as u64) < at_once {
            runs.push(Run::start(&place, total, &mut random));
            total += 1;
        }
        for run in &mut runs {
            run.plan.act(&run.child, run.since.elapsed());
        }
        if !is_over && random.chance(2) {
            // Not waited for: one that is stopped in the midst of a transaction keeps it waiting, and is to be continued.
            let name = format!("name{}", random.within(0, NAMES));
            operators.push(place.heirlock(&["evict", &name]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        }
        operators.retain_mut(|operator| {
            let status = operator.try_wait().unwrap();
            evicted += u32::from(status.is_some_and(|status| status.success()));
            status.is_none()
        });
        runs.retain_mut(|run| {
            let status = run.child.try_wait().unwrap();
            if let Some(status) = status {
                ends.add(run, status);
            }
            status.is_none()
        });
        if is_over && runs.is_empty() && operators.is_empty() {
            break;
        }
        let late = since.elapsed().saturating_sub(Duration::from_secs(seconds));
        assert!(
            late < Duration::from_secs(120),
            "{} runs do not end: {:?}",
            runs.len(),
            runs.iter().map(|run| &run.what).collect::<Vec<_>>()
        );
        sleep(Duration::from_millis(2));
    }
    // Orphans of those that were killed end by themselves: guardians when their trees are gone, daemons in a moment.
    eventually("nothing is left running", || {
        while let Ok(Some(_)) = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {}
        matches!(waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG), Err(Errno::CHILD))
    });
    for name in 0..NAMES {
        // A hold that nobody could give back ends with its ttl.
        let output = place.output(&["run", "-w", "9", &format!("name{name}"), "true"]);
        assert_eq!(output.status.code(), Some(0), "name{name}: {}", stderr(&output));
    }
    let listed = place.output(&["ls"]);
    let shown = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!shown.contains("held by") && !shown.contains("waits"), "{shown}");
    let record = Record::read(&place.path("record"));
    println!(
        "{total} runs in {:.0?}, {evicted} evicted, {} began, {} ended: {:?}",
        since.elapsed(),
        record.begun,
        record.ended,
        ends.counts
    );
    record.assert_nothing_overlaps(&ends.stories);
    record.assert_done(&ends.done, &ends.stories);
    assert!(record.begun > total / 4 && record.ended < record.begun, "faults and work: {} of {total}, {}", record.begun, record.ended);
}
