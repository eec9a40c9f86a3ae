//! The numbered cases over real locks: the texts `cases/pNN.case` that graphs play (`graph/cases.rs`), with workers, futures and a domain; and the
//! table of where every case of the local locks is.
//!
//! Each text is played without a runtime and in tasks of both kinds of tokio's, by a domain that tracks its holds and by one that does not, with
//! grants that are taken at once and such that lie as long as the text lets them, and with a re-entrant lock, or one that is only written, in place of
//! every mutex.
//!
//! What real locks cannot show: the effective *deadline* of a worker, of which no face tells. So `expect deadline` of P16 (three lines) and P26 (four)
//! is counted instead; how deadlines order, `expect queue` of the same texts shows. A `depth` is how many guards the lock gave, and how many releases
//! it takes.
//!
//! | case | `Mutex` | `RLock` | `Condvar` | `OnceCell` |
//! |---|---|---|---|---|
//! | P01 to P07, P12, P13, P22, P25, P28 | here; P22 by bare tasks: snapshot; P25, P28 also: mutex, mutex_rules | here | - nobody holds a condition | as a mutex; P02, P03: once; P01: bad_input |
//! | P08 | - not re-entrant | here, rlock | - | - |
//! | P09 | here, mutex | here | F09: condvar | once |
//! | P10 | futures | futures | condvar | once |
//! | P11 | here, mutex | here | F13: condvar_futures | once |
//! | P15 | - | condvar | condvar | - no levels |
//! | P16 | here, mutex | here | condvar | as a mutex |
//! | P18 | here, order | here | condvar | - no such option |
//! | P19 | here, bad_input | here, bad_input | condvar | bad_input |
//! | P20 | futures | futures | condvar | once |
//! | P21 | here; by a bare task: mutex | - it enters again, or is refused (F06) | - | F06: once |
//! | P24, P26 | here, order | here | P24: condvar; P26: - inherits nothing | as a mutex |
//! | F01, F02, F03, F04, F05 | futures | futures | condvar_futures | once_futures |
//! | F06 | mutex | rlock | condvar | once |
//! | F07 | snapshot | snapshot | - whoever is to notify is not known | once_futures |
//! | F08 | futures | futures | condvar | once |
//! | F09 | futures | futures | condvar | once_futures |
//! | F10 | futures | futures | condvar | - no blocking calls |
//! | F11 | futures, guards | futures, guards | condvar | once |
//! | F12 | guards | guards | condvar | once: nothing is half made, so no poison |
//! | F13 | futures | futures | condvar_futures | once |
//! | F15 | futures, snapshot | futures | condvar_futures | once_futures |
//! | F17 | mutex | rlock: with forks, as bare arms are refused | condvar_futures | once_futures |
//!
//! What is awaited without being acquired:
//!
//! | case | `Event` | `Barrier` | `Promise` |
//! |---|---|---|---|
//! | P01 to P07, P12, P13, P22, P25, P28 | - nobody holds it | - nobody holds it | as a mutex; P01, P02, P12: promise |
//! | P08, P14, P15, P18, P23, P27 | - | - | - |
//! | P09 | F09: event | F09: barrier | promise, F07: promise |
//! | P10 | event | barrier | promise_ends: a value that has come is what the wait gets |
//! | P11 | F13 | F13 | F13 |
//! | P16, P19, P20, P24 | awaited | awaited | awaited |
//! | P21 | - | - | F06: promise |
//! | P26 | - inherits nothing | - inherits nothing | as a mutex |
//! | F01, F02, F03, F04 | awaited, also of one that is cleared at once | awaited | awaited |
//! | F05 | event | barrier | promise_ends |
//! | F06 | awaited | awaited, barrier | awaited, promise |
//! | F07 | - whoever is to set it is not known | - whoever has yet to come is not known | promise: the closer gets `Deadlock` |
//! | F08 | awaited | awaited | awaited |
//! | F09 | event | barrier | promise |
//! | F10 | awaited | awaited, barrier | awaited |
//! | F11 | awaited | awaited | awaited, promise |
//! | F12 | - there is no guard | - there is no guard | promise_ends: it is broken |
//! | F13 | awaited, event | awaited, barrier | awaited, promise_ends |
//! | F15 | awaited | awaited | awaited, promise_ends |
//! | F17 | awaited | awaited | awaited |
//!
//! And of what is made of locks:
//!
//! | case | `KeyedLock` | `lock_all` |
//! |---|---|---|
//! | P01, P02, P03 | keyed | as each of its locks; what it passes on: all_waits |
//! | P04 to P07, P12, P13, P16, P19, P21, P22, P25, P26, P28 | as a mutex | as each of its locks |
//! | P09 | keyed | all_waits |
//! | P10, P20 | futures | all_waits |
//! | P11 | F13: futures | as each of its locks |
//! | P18, P24 | keyed | as each of its locks |
//! | F01, F02, F03, F04 | futures | - a wait is that of one of its locks; what it holds meanwhile, it holds |
//! | F05 | futures, keyed | all_waits |
//! | F06 | keyed | all: whoever asks for one lock twice |
//! | F07 | keyed | - |
//! | F08, F09 | futures | all_waits: without a worker and with one |
//! | F10 | futures | all |
//! | F11 | futures, keyed | all: whose they are |
//! | F12 | keyed: there is no value, so no poison | all |
//! | F13 | futures | loom_keyed |
//! | F15 | futures, keyed_keys | all |
//! | F17 | keyed | F05: all_waits |
//!
//! What is read and written, and permits:
//!
//! | case | `RwLock` | `Semaphore` |
//! |---|---|---|
//! | P01 to P07, P12, P13, P22, P25, P28 | here, written; readers: rwlock_rules | tracked, P01 to P03: semaphore_tracked; all of them at random: graph_random |
//! | P08, P15 | F14; - no condition waits with it | - no levels; - |
//! | P09 | here, written; F14 | semaphore_tracked: suspected, never an error |
//! | P10 | futures; several readers at once: rwlock_rules | futures |
//! | P11 | here, written; F13 | F13 |
//! | P14, P23, P27 | here; P14: rwlock_rules | - nobody is let past the first of the queue: semaphore_order |
//! | P16, P24, P26 | here, written; P24: rwlock_rules | P16 in each order: semaphore_order |
//! | P18 | here, written; rwlock_rules | semaphore_order |
//! | P19 | here, bad_input | semaphore_order |
//! | P20 | futures; both ways: rwlock_workers | futures, semaphore_order |
//! | P21 | here, written; F14 | F11: semaphore_tracked |
//! | F01, F02, F03, F04, F05 | futures; readers: rwlock | futures; semaphore_futures |
//! | F06 | rwlock_workers | semaphore_workers |
//! | F07 | snapshot | snapshot |
//! | F08, F10 | futures; readers: rwlock_workers | futures; semaphore_workers |
//! | F09 | futures | futures |
//! | F11 | futures; rwlock_guards | futures; semaphore_tracked |
//! | F12 | rwlock_guards | - no value |
//! | F13 | futures; readers: rwlock | futures; semaphore_futures |
//! | F14 | rwlock_workers | - |
//! | F15 | futures; readers: rwlock | futures; semaphore_futures |
//! | F17 | rwlock_workers | semaphore_workers |
//!
//! A file `local/NAME.rs` is called `NAME`; "as a mutex" means that under its type a cell that is empty is a `Mutex`, held by who makes the value, with
//! the same queue; so is a promise, held by who is to keep it, and a key of a `KeyedLock`. "futures" has its cases in `common/lock_cases.rs`, once for
//! each lock, "awaited" in `common/awaited_cases.rs`.

use crate::common::case_locks::{Locks, Manner, StandIn};
use crate::common::case_text::play;
use crate::common::polls::everywhere;

/// A worker that holds a re-entrant lock does not wait for it.
const WAITS_FOR_ITSELF: [&str; 1] = ["p21"];

/// Plays the text in every manner, wherever futures can be polled. So many of its expectations are of effective deadlines.
fn run(name: &'static str, deadlines: usize) {
    everywhere(move || async move {
        for tracked in [false, true] {
            for prompt in [false, true] {
                for mutex in [StandIn::Itself, StandIn::Reentrant, StandIn::Written] {
                    if mutex == StandIn::Reentrant && WAITS_FOR_ITSELF.contains(&name) {
                        continue;
                    }
                    let manner = Manner { tracked, prompt, mutex };
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
        fn every_text_has_its_test() {
            let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases")).unwrap();
            let mut texts: Vec<_> = directory.map(|entry| entry.unwrap().path()).collect();
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
    case_p14_readers: "p14", 0;
    case_p16_earliest_deadline_among_equals: "p16", 3;
    case_p18_starvation_bound: "p18", 0;
    case_p19_extremes: "p19", 0;
    case_p21_self_wait_leaves_nothing_behind: "p21", 0;
    case_p22_phantom_boost: "p22", 0;
    case_p23_boost_dissolves_a_cycle: "p23", 0;
    case_p24_orders_and_boosts: "p24", 0;
    case_p25_forks: "p25", 0;
    case_p26_deadlines_inherited_for_ordering: "p26", 4;
    case_p27_a_place_in_a_queue_is_no_deadlock: "p27", 0;
    case_p28_certain_at_last: "p28", 0;
}
