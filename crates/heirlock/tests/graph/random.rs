//! Long random histories: the graph and a naive reference agree after every event.
//!
//! `HEIRLOCK_SEED` fixes the seed, which is printed; `HEIRLOCK_EVENTS` says how many events (100,000).

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::common::graph_pair::Pair;
use crate::common::random::{Random, seed};

#[test]
fn the_graph_agrees_with_a_naive_reference() {
    let seed = seed();
    let events: usize =
        std::env::var("HEIRLOCK_EVENTS").ok().map_or(100_000, |events| events.parse().expect("HEIRLOCK_EVENTS is a number"));
    println!("HEIRLOCK_SEED={seed}");
    let (mut done, mut histories) = (0, 0_u64);
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let mut policies = BTreeSet::new();
    while done < events {
        let mut pair = Pair::new(Random::new(seed, histories));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while pair.log.len() < 250 {
                pair.step();
            }
            pair.clear();
        }));
        if let Err(panic) = outcome {
            println!("HEIRLOCK_SEED={seed}, history {histories}, {:?}:", pair.flavour);
            for event in &pair.log {
                println!("    {event}");
            }
            pair.show();
            resume_unwind(panic);
        }
        done += pair.log.len();
        histories += 1;
        policies.insert(format!("{:?}", pair.flavour.policy));
        for (what, many) in pair.tally {
            *tally.entry(what).or_default() += many;
        }
    }
    println!("graph against reference: {histories} histories, {done} events, {tally:?}, {policies:?}");
    assert!(done >= events);
    assert!(events < 100_000 || tally.values().all(|many| *many >= 10), "{tally:?}");
}
