//! Model checks of the ledger: every order in which the requests of a few clients can come, however late, twice or never.

use std::time::Instant;

use heirlock::lease::{Enter, Mode, Terms};
use stateright::{Checker, HasDiscoveries, Model};

use crate::common::ledger_requests::entering;
use crate::common::ledger_world::{Act, Flaw, Play, Rule};

fn short(ttl: u64, queue_life: u64) -> Terms {
    Terms { queue_life, ..Terms::new(ttl) }
}

fn client(number: u64, mode: Mode, terms: Terms) -> Enter {
    Enter { mode, terms, ..entering(number) }
}

fn plain(name: &'static str, clients: Vec<(Enter, Vec<i32>)>, last_ms: u64) -> Play {
    Play { name, clients, enters_again: false, last_ms, wall_us: vec![0], evicts: None, leaps: false, flaw: None }
}

fn plays() -> Vec<Play> {
    let (exclusive, shared, slot) = (Mode::Exclusive, Mode::Shared, Mode::Slot(2));
    let life = short(3, 2);
    let with = |change: fn(&mut Terms)| {
        let mut terms = life;
        change(&mut terms);
        terms
    };
    vec![
        // The plain case: retries, a priority that changes, and a wall clock that jumps both ways.
        Play {
            enters_again: true,
            wall_us: vec![0, 7, 2],
            ..plain("two", vec![(client(0, exclusive, life), vec![0, 1]), (client(1, exclusive, life), vec![2])], 2)
        },
        plain(
            "three",
            vec![
                (client(0, exclusive, life), vec![]),
                (client(1, exclusive, life), vec![2]),
                (Enter { priority: 1, ..client(2, exclusive, life) }, vec![]),
            ],
            2,
        ),
        plain(
            "readers and a writer",
            vec![(client(0, shared, life), vec![]), (client(1, exclusive, life), vec![]), (client(2, shared, life), vec![1])],
            2,
        ),
        // One slot rests while the other is taken.
        plain(
            "slots",
            vec![
                (client(0, slot, with(|terms| terms.hold_at_least = Some(2))), vec![]),
                (client(1, slot, with(|terms| terms.lock_delay = Some(1))), vec![]),
                (client(2, slot, life), vec![0]),
            ],
            2,
        ),
        // A rest of the whole key, a cap that is over before a late claim, and one who may not queue.
        plain(
            "rests and caps",
            vec![
                (client(0, exclusive, with(|terms| (terms.lock_delay, terms.hold_at_least) = (Some(1), Some(2)))), vec![]),
                (client(1, exclusive, with(|terms| terms.max_hold = Some(1))), vec![0]),
                (Enter { may_queue: false, ..client(2, shared, life) }, vec![]),
            ],
            2,
        ),
        // An operator, politely and not.
        Play {
            evicts: Some(false),
            ..plain(
                "an eviction",
                vec![(client(0, shared, life), vec![]), (client(1, exclusive, life), vec![]), (client(2, shared, life), vec![])],
                2,
            )
        },
        Play {
            evicts: Some(true),
            ..plain("a forced eviction", vec![(client(0, exclusive, life), vec![0]), (client(1, exclusive, life), vec![0])], 3)
        },
        // Time goes on to where the tombstones are over.
        Play {
            leaps: true,
            ..plain("tombstones end", vec![(client(0, exclusive, life), vec![0]), (client(1, exclusive, life), vec![])], 2)
        },
    ]
}

#[test]
fn every_interleaving_keeps_the_rules() {
    let mut total = 0;
    for play in plays() {
        let (name, began) = (play.name, Instant::now());
        let checker = play.checker().threads(1).spawn_dfs().join();
        checker.assert_properties();
        println!("ledger model, {name}: {} states in {:.1?}", checker.unique_state_count(), began.elapsed());
        total += checker.unique_state_count();
    }
    println!("ledger model: {total} states");
    assert!(total >= 1_000_000, "only {total} states");
}

/// The play with this name, with something wrong in it.
fn flawed(name: &str, flaw: Flaw) -> Play {
    let play = plays().into_iter().find(|play| play.name == name).unwrap();
    Play { flaw: Some(flaw), ..play }
}

/// The events that break this rule.
fn counterexample(play: Play, rule: Rule) -> Vec<Act> {
    let found = HasDiscoveries::AllOf([rule.name()].into());
    let checker = play.checker().threads(1).finish_when(found).spawn_bfs().join();
    checker.assert_any_discovery(rule.name()).into_actions()
}

#[test]
fn the_model_finds_out_that_tombstones_are_missing() {
    let acts = counterexample(flawed("tombstones end", Flaw::NoTombstones), Rule::Resurrected);
    println!("ledger model without tombstones: {acts:?}");
    // An `enter` that comes late, or once more, is what gets through.
    assert!(matches!(acts.last(), Some(Act::Comes(_, _))));
}

#[test]
fn the_model_finds_out_that_older_requests_count() {
    let acts = counterexample(flawed("two", Flaw::OlderCounts), Rule::Older);
    println!("ledger model where older requests count: {acts:?}");
}

#[test]
fn the_model_finds_out_that_a_forced_eviction_leaves_two_who_believe() {
    // What force is for, and what it costs: the evicted owner goes on until it hears of it or its lease would have ended. Only the fence
    // tells the two apart.
    let acts = counterexample(flawed("a forced eviction", Flaw::ForceIsSafe), Rule::Believed);
    println!("ledger model where force is thought safe: {acts:?}");
    assert!(acts.contains(&Act::EvictionComes));
}
