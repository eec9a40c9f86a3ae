//! The numbered cases of priority inheritance and deadlock that need only the graph, from their texts (`cases/pNN.case`).
//!
//! One statement a line; `#` starts a comment. `W takes L` acquires and must hold, `W waits L as q` must be queued, `W asks L as q` may be either,
//! `W tries L` does not wait; `expect ...` looks at what the last event did or at what stands now; `fresh` begins another scenario.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/graph_world.rs"]
mod graph_world;

use std::num::NonZeroU32;

use graph_world::{Call, Outcome, World};
use heirlock::local::graph::{Kind, LockSpec, Order};

/// Runs a text; says how many expectations it met.
fn run(name: &str) -> usize {
    let path = format!("{}/tests/cases/{name}.case", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the case is beside the tests");
    let (mut world, mut last, mut met) = (World::default(), Outcome::default(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = format!("{name}, line {number}: {}", line.trim());
        match words.as_slice() {
            [] => {}
            ["fresh"] => world = World::default(),
            ["expect", what @ ..] => {
                expect(&at, &mut world, &last, what);
                met += 1;
            }
            statement => last = act(&at, &mut world, statement),
        }
    }
    println!("{name}: {met} expectations met");
    assert!(met > 0);
    met
}

fn act(at: &str, world: &mut World, words: &[&str]) -> Outcome {
    match words {
        ["worker", name, "fork", "of", parent, rest @ ..] => {
            let (base, rest) = match rest {
                [base, rest @ ..] if *base != "deadline" => (number(base), rest),
                rest => (i32::MIN, rest),
            };
            world.worker(name, base, deadline(at, rest), Some(parent), true)
        }
        ["worker", name, base, rest @ ..] => world.worker(name, number(base), deadline(at, rest), None, true),
        ["lock", name, kind, rest @ ..] => world.lock(name, lock_spec(at, kind, rest)),
        ["cancel", wait] => world.cancel(wait),
        ["expire", wait] => world.expire(wait),
        ["release", lock, "by", worker] => world.release(worker, lock),
        ["base", worker, base] => world.base(worker, number(base)),
        [worker, "tries", lock, rest @ ..] => world.try_acquire(worker, lock, *rest == ["shared"]),
        [worker, "takes", lock, rest @ ..] => {
            let outcome = world.acquire(worker, lock, "", call(at, rest));
            assert_eq!(outcome.result, "held", "{at}");
            outcome
        }
        [worker, how @ ("waits" | "asks"), lock, "as", wait, rest @ ..] => {
            let outcome = world.acquire(worker, lock, wait, call(at, rest));
            assert!(*how == "asks" || outcome.result == "queued", "{at}: {outcome:?}");
            outcome
        }
        _ => panic!("{at}: no such statement"),
    }
}

fn expect(at: &str, world: &mut World, last: &Outcome, words: &[&str]) {
    let now = world.snapshot();
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
            // It never orders, and there is no clock here.
            ["timeout", _, rest @ ..] => rest,
            _ => panic!("{at}: no such option"),
        };
    }
}

macro_rules! cases {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            run($name);
        })*

        #[test]
        fn every_text_has_its_test() {
            let tested = [$($name),*];
            let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")).unwrap();
            let mut found: Vec<String> = directory.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            found.sort();
            println!("graph cases: {} texts", found.len());
            assert_eq!(found, tested.map(|name| format!("{name}.case")));
        }
    };
}

cases! {
    case_p01_chain: "p01",
    case_p02_chain_falls: "p02",
    case_p03_not_last_in_first_out: "p03",
    case_p04_boosted_while_acquiring: "p04",
    case_p05_intermediate_rekey: "p05",
    case_p06_stale_boost: "p06",
    case_p07_ties: "p07",
    case_p08_reentrancy: "p08",
    case_p09_deadlock: "p09",
    case_p11_cancel_after_grant: "p11",
    case_p12_base_change_while_blocked: "p12",
    case_p13_fan_out: "p13",
    case_p14_readers: "p14",
    case_p16_earliest_deadline_among_equals: "p16",
    case_p18_starvation_bound: "p18",
    case_p19_extremes: "p19",
    case_p21_self_wait_leaves_nothing_behind: "p21",
    case_p22_phantom_boost: "p22",
    case_p23_boost_dissolves_a_cycle: "p23",
    case_p24_orders_and_boosts: "p24",
    case_p25_forks: "p25",
    case_p26_deadlines_inherited_for_ordering: "p26",
    case_p27_a_place_in_a_queue_is_no_deadlock: "p27",
    case_p28_certain_at_last: "p28",
}
