//! The numbered cases of priority inheritance and deadlock that need only the graph, from their texts (`cases/pNN.case`).

use crate::common::case_text::play;
use crate::common::graph_world::World;

fn run(name: &str) {
    let tally = play(&mut World::default(), name);
    println!("{name}: {} expectations met", tally.met);
    assert_eq!(tally.unseen, 0);
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
