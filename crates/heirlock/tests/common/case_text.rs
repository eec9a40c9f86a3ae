//! The texts of the numbered cases (`cases/pNN.case`), and who plays them: a [`Stage`], of plain graph or of real locks.
//!
//! One statement a line; `#` starts a comment. `W takes L` acquires and must hold, `W waits L as q` must be queued, `W asks L as q` may be either,
//! `W tries L` does not wait; `expect ...` looks at what the last event did or at what stands now; `fresh` begins another scenario.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use heirlock::local::graph::{Kind, LockSpec, Order};

/// A cycle by names: worker, lock, worker, lock ...; a fork has no lock before it.
pub(crate) type Names = Vec<String>;

/// What came of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// held queued deadlock no cancelled forwarded timeout released kept ok
    pub(crate) result: &'static str,
    /// The other waits that were granted.
    pub(crate) granted: Vec<String>,
    /// Of a refused acquire.
    pub(crate) cycle: Option<Names>,
    /// Waits ended by a cycle, with it.
    pub(crate) closed: Vec<(String, Names)>,
    /// Workers whose effective priority the event changed.
    pub(crate) changed: Vec<String>,
}

/// The whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) eff: BTreeMap<String, i32>,
    pub(crate) eff_deadline: BTreeMap<String, u64>,
    pub(crate) holders: BTreeMap<String, BTreeMap<String, (String, u32)>>,
    pub(crate) queues: BTreeMap<String, Vec<String>>,
    pub(crate) suspected: bool,
}

/// How an acquire is called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    pub(crate) shared: bool,
    pub(crate) priority: Option<i32>,
    pub(crate) deadline: Option<u64>,
    /// It never orders, so a graph has none.
    pub(crate) timeout: Option<u64>,
}

/// What plays a text: workers, locks and waits by their names.
pub(crate) trait Stage {
    /// Whether effective deadlines can be seen; that they order is seen in the queues.
    const SHOWS_DEADLINES: bool;

    /// Another scenario begins, in which these waits will expire, in this order.
    fn begin(&mut self, expiries: &[&str]);
    fn worker(&mut self, name: &str, base: Option<i32>, deadline: Option<u64>, parent: Option<&str>) -> Outcome;
    fn lock(&mut self, name: &str, spec: LockSpec) -> Outcome;
    fn acquire(&mut self, worker: &str, lock: &str, wait: &str, call: Call) -> Outcome;
    fn try_acquire(&mut self, worker: &str, lock: &str, shared: bool) -> Outcome;
    fn cancel(&mut self, wait: &str) -> Outcome;
    fn expire(&mut self, wait: &str) -> Outcome;
    fn release(&mut self, worker: &str, lock: &str) -> Outcome;
    fn base(&mut self, worker: &str, base: i32) -> Outcome;
    fn look(&mut self) -> Snapshot;
}

/// How many expectations there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) met: usize,
    /// Those that this stage cannot show.
    pub(crate) unseen: usize,
}

/// Plays a text.
pub(crate) fn play<S: Stage>(stage: &mut S, name: &str) -> Tally {
    let path = format!("{}/tests/cases/{name}.case", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the case is beside the tests");
    let lines: Vec<(usize, Vec<&str>)> = (1..).zip(text.lines().map(words)).collect();
    let mut tally = Tally::default();
    for scenario in lines.split(|(_, words)| *words == ["fresh"]) {
        let mut expiries = Vec::new();
        for (_, words) in scenario {
            if let ["expire", wait] = words[..] {
                expiries.push(wait);
            }
        }
        stage.begin(&expiries);
        let mut last = Outcome::default();
        for (number, words) in scenario {
            let at = format!("{name}, line {number}: {}", words.join(" "));
            match words.as_slice() {
                [] => {}
                ["expect", "deadline", ..] if !S::SHOWS_DEADLINES => tally.unseen += 1,
                ["expect", what @ ..] => {
                    expect(&at, stage, &last, what);
                    tally.met += 1;
                }
                statement => last = act(&at, stage, statement),
            }
        }
    }
    assert!(tally.met > 0);
    tally
}

fn words(line: &str) -> Vec<&str> {
    line.split('#').next().unwrap().split_whitespace().collect()
}

fn act(at: &str, stage: &mut impl Stage, words: &[&str]) -> Outcome {
    match words {
        ["worker", name, "fork", "of", parent, rest @ ..] => {
            let (base, rest) = match rest {
                [base, rest @ ..] if *base != "deadline" => (Some(number(base)), rest),
                rest => (None, rest),
            };
            stage.worker(name, base, deadline(at, rest), Some(parent))
        }
        ["worker", name, base, rest @ ..] => stage.worker(name, Some(number(base)), deadline(at, rest), None),
        ["lock", name, kind, rest @ ..] => stage.lock(name, lock_spec(at, kind, rest)),
        ["cancel", wait] => stage.cancel(wait),
        ["expire", wait] => stage.expire(wait),
        ["release", lock, "by", worker] => stage.release(worker, lock),
        ["base", worker, base] => stage.base(worker, number(base)),
        [worker, "tries", lock, rest @ ..] => stage.try_acquire(worker, lock, *rest == ["shared"]),
        [worker, "takes", lock, rest @ ..] => {
            let outcome = stage.acquire(worker, lock, "", call(at, rest));
            assert_eq!(outcome.result, "held", "{at}");
            outcome
        }
        [worker, how @ ("waits" | "asks"), lock, "as", wait, rest @ ..] => {
            let outcome = stage.acquire(worker, lock, wait, call(at, rest));
            assert!(*how == "asks" || outcome.result == "queued", "{at}: {outcome:?}");
            outcome
        }
        _ => panic!("{at}: no such statement"),
    }
}

fn expect(at: &str, stage: &mut impl Stage, last: &Outcome, words: &[&str]) {
    let now = stage.look();
    match words {
        ["result", result] => assert_eq!(last.result, *result, "{at}"),
        ["eff", pairs @ ..] => {
            for (worker, value) in pairs.iter().map(|pair| pair.split_once('=').unwrap()) {
                assert_eq!(now.eff[worker], number(value), "{at}: {worker}");
            }
        }
        ["deadline", pairs @ ..] => {
            for (worker, value) in pairs.iter().map(|pair| pair.split_once('=').unwrap()) {
                let expected = (value != "none").then(|| value.parse().unwrap());
                assert_eq!(now.eff_deadline.get(worker).copied(), expected, "{at}: {worker}");
            }
        }
        ["owner", lock, "=", workers @ ..] => {
            let holders = now.holders.get(*lock).cloned().unwrap_or_default();
            assert_eq!(holders.keys().collect::<Vec<_>>(), sorted(workers, "none"), "{at}");
        }
        ["depth", lock, "by", worker, "=", depth] => assert_eq!(now.holders[*lock][*worker].1, depth.parse::<u32>().unwrap(), "{at}"),
        ["queue", lock, "=", waits @ ..] => {
            let waits = if *waits == ["empty"] { &[] } else { waits };
            assert_eq!(now.queues.get(*lock).cloned().unwrap_or_default(), waits, "{at}");
        }
        ["granted", waits @ ..] => assert_eq!(last.granted, sorted(waits, "none"), "{at}"),
        ["deadlock", cycle @ ..] => assert_eq!(last.cycle.as_deref().unwrap(), cycle, "{at}"),
        ["closed", wait, cycle @ ..] => {
            let (_, actual) = last.closed.iter().find(|(closed, _)| closed == wait).unwrap_or_else(|| panic!("{at}: {last:?}"));
            assert_eq!(actual, cycle, "{at}");
        }
        ["suspected", answer] => assert_eq!(now.suspected, *answer == "yes", "{at}"),
        _ => panic!("{at}: no such expectation"),
    }
}

fn number(word: &str) -> i32 {
    match word {
        "MIN" => i32::MIN,
        "MAX" => i32::MAX,
        number => number.parse().unwrap(),
    }
}

fn sorted<'a>(words: &[&'a str], none: &str) -> Vec<&'a str> {
    let mut words: Vec<&str> = words.iter().copied().filter(|word| *word != none).collect();
    words.sort_unstable();
    words
}

fn deadline(at: &str, words: &[&str]) -> Option<u64> {
    match words {
        [] => None,
        ["deadline", deadline] => Some(deadline.parse().unwrap()),
        _ => panic!("{at}: no such option"),
    }
}

fn lock_spec(at: &str, kind: &str, mut options: &[&str]) -> LockSpec {
    let mut spec = LockSpec::new(match kind {
        "mutex" => Kind::Mutex,
        "rlock" => Kind::RLock,
        "rwlock" => Kind::RwLock,
        _ => panic!("{at}: no such lock"),
    });
    while let [option, value, rest @ ..] = options {
        match (*option, *value) {
            ("order", "priority") => spec.order = Order::Priority,
            ("order", "deadline") => spec.order = Order::Deadline,
            ("order", "fifo") => spec.order = Order::Fifo,
            ("bypass", limit) => spec.bypass = Some(limit.parse::<NonZeroU32>().unwrap()),
            _ => panic!("{at}: no such option"),
        }
        options = rest;
    }
    assert!(options.is_empty(), "{at}");
    spec
}

fn call(at: &str, mut options: &[&str]) -> Call {
    let mut call = Call::default();
    loop {
        options = match options {
            [] => return call,
            ["shared", rest @ ..] => {
                call.shared = true;
                rest
            }
            ["priority", priority, rest @ ..] => {
                call.priority = Some(number(priority));
                rest
            }
            ["deadline", deadline, rest @ ..] => {
                call.deadline = Some(deadline.parse().unwrap());
                rest
            }
            ["timeout", timeout, rest @ ..] => {
                call.timeout = Some(timeout.parse().unwrap());
                rest
            }
            _ => panic!("{at}: no such option"),
        };
    }
}
