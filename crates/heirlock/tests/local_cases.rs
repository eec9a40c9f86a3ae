//! TABLE
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod case_locks;
    pub(crate) mod polls;
}
#[path = "common/case_text.rs"]
mod case_text;

use case_text::play;
use common::case_locks::{Locks, Manner};
use common::polls::everywhere;

/// A worker that holds a re-entrant lock does not wait for it.
const WAITS_FOR_ITSELF: [&str; 1] = ["p21"];

/// Plays the text in every manner, wherever futures can be polled. So many of its expectations are of effective deadlines.
fn run(name: &'static str, deadlines: usize) {
    everywhere(move || async move {
        for tracked in [false, true] {
            for prompt in [false, true] {
                for reentrant in [false, true] {
                    if reentrant && WAITS_FOR_ITSELF.contains(&name) {
                        continue;
                    }
                    let manner = Manner { tracked, prompt, reentrant };
                    let mut stage = Locks::new(manner);
                    let tally = play(&mut stage, name);
                    stage.end();
                    println!("{name}: {} expectations met, {} unseen, {manner:?}", tally.met, tally.unseen);
                    assert_eq!(tally.unseen, deadlines);
                }
            }
        }
    });
}

macro_rules! cases {
    ($($test:ident: $name:literal, $deadlines:literal;)*) => {
        $(#[test]
        fn $test() {
            run($name, $deadlines);
        })*

        #[test]
        fn every_text_of_mutexes_and_rlocks_has_its_test() {
            let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")).unwrap();
            let paths = directory.map(|entry| entry.unwrap().path());
            let mut texts: Vec<_> = paths.filter(|path| !std::fs::read_to_string(path).unwrap().contains(" rwlock")).collect();
            texts.sort();
            let names: Vec<&str> = texts.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
            println!("local cases: {} texts", names.len());
            assert_eq!(names, [$($name),*]);
        }
    };
}

cases! {
    case_p01_chain: "p01", 0;
    case_p02_chain_falls: "p02", 0;
    case_p03_not_last_in_first_out: "p03", 0;
    case_p04_boosted_while_acquiring: "p04", 0;
    case_p05_intermediate_rekey: "p05", 0;
    case_p06_stale_boost: "p06", 0;
    case_p07_ties: "p07", 0;
    case_p08_reentrancy: "p08", 0;
    case_p09_deadlock: "p09", 0;
    case_p11_cancel_after_grant: "p11", 0;
    case_p12_base_change_while_blocked: "p12", 0;
    case_p13_fan_out: "p13", 0;
    case_p16_earliest_deadline_among_equals: "p16", 3;
    case_p18_starvation_bound: "p18", 0;
    case_p19_extremes: "p19", 0;
    case_p21_self_wait_leaves_nothing_behind: "p21", 0;
    case_p22_phantom_boost: "p22", 0;
    case_p24_orders_and_boosts: "p24", 0;
    case_p25_forks: "p25", 0;
    case_p26_deadlines_inherited_for_ordering: "p26", 4;
    case_p28_certain_at_last: "p28", 0;
}
