//! The graph replays the recorded histories of an independent oracle, the whole state compared after every event.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;

use crate::common::case_text::{Call, Names, Outcome, Snapshot};
use crate::common::graph_world::World;
use heirlock::local::graph::{Kind, LockSpec, Order};
use serde::Deserialize;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/graph-vectors.jsonl.gz");

#[derive(Deserialize)]
struct History {
    seed: String,
    uses: Vec<String>,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(flatten)]
    op: Op,
    result: Expected,
    after: After,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Op {
    Worker { worker: String, base: Option<i32>, deadline: Option<u64>, parent: Option<String> },
    Lock { lock: String, kind: String, order: String, bypass: Option<NonZeroU32> },
    Acquire { worker: String, lock: String, wait: String, mode: String, prio: Option<i32>, deadline: Option<u64> },
    Try { worker: String, lock: String, mode: String },
    Cancel { wait: String },
    Expire { wait: String },
    Release { worker: String, lock: String },
    Base { worker: String, base: i32 },
}

#[derive(Debug, Deserialize)]
struct Expected {
    r: String,
    #[serde(default)]
    granted: Vec<String>,
    #[serde(default)]
    cycles: Vec<Names>,
    #[serde(default)]
    closed: Vec<Closed>,
}

#[derive(Debug, Deserialize)]
struct Closed {
    wait: String,
    cycles: Vec<Names>,
}

#[derive(Debug, Deserialize)]
struct After {
    eff: BTreeMap<String, i32>,
    eff_deadline: BTreeMap<String, u64>,
    holders: BTreeMap<String, BTreeMap<String, (String, u32)>>,
    queues: BTreeMap<String, Vec<String>>,
    suspected: bool,
}

fn apply(world: &mut World, op: &Op) -> Outcome {
    match op {
        Op::Worker { worker, base, deadline, parent } => {
            let base = base.unwrap_or(if parent.is_some() { i32::MIN } else { 0 });
            world.worker(worker, base, *deadline, parent.as_deref(), true)
        }
        Op::Lock { lock, kind, order, bypass } => {
            let kind = match kind.as_str() {
                "mutex" => Kind::Mutex,
                "rlock" => Kind::RLock,
                "rwlock" => Kind::RwLock,
                other => panic!("{other}"),
            };
            let order = match order.as_str() {
                "priority" => Order::Priority,
                "deadline" => Order::Deadline,
                "fifo" => Order::Fifo,
                other => panic!("{other}"),
            };
            world.lock(lock, LockSpec { order, bypass: *bypass, ..LockSpec::new(kind) })
        }
        Op::Acquire { worker, lock, wait, mode, prio, deadline } => {
            world.acquire(worker, lock, wait, Call { shared: mode == "s", priority: *prio, deadline: *deadline, ..Call::default() })
        }
        Op::Try { worker, lock, mode } => world.try_acquire(worker, lock, mode == "s"),
        Op::Cancel { wait } => world.cancel(wait),
        Op::Expire { wait } => world.expire(wait),
        Op::Release { worker, lock } => world.release(worker, lock),
        Op::Base { worker, base } => world.base(worker, *base),
    }
}

/// Whether the outcome is the expected one; of several cycles, one must be named.
fn agrees(outcome: &Outcome, expected: &Expected) -> bool {
    let mut granted = expected.granted.clone();
    granted.sort();
    let cycle = match &outcome.cycle {
        Some(cycle) => expected.cycles.contains(cycle),
        None => expected.cycles.is_empty(),
    };
    let closed = outcome.closed.len() == expected.closed.len()
        && expected.closed.iter().all(|closed| {
            let named = outcome.closed.iter().find(|(wait, _)| *wait == closed.wait);
            named.is_some_and(|(_, cycle)| closed.cycles.contains(cycle))
        });
    outcome.result == expected.r && outcome.granted == granted && cycle && closed
}

#[test]
fn the_graph_replays_every_recorded_history() {
    let file = std::fs::File::open(VECTORS).expect("the histories are beside the tests");
    let (mut histories, mut events) = (0, 0);
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for line in BufReader::new(flate2::read::GzDecoder::new(file)).lines() {
        let history: History = serde_json::from_str(&line.unwrap()).unwrap();
        let mut world = World::default();
        let mut before = Snapshot::default();
        for (index, event) in history.events.iter().enumerate() {
            let outcome = apply(&mut world, &event.op);
            let mut actual = world.snapshot();
            // The design calls a fork that waits for its own ancestor suspected; the histories do not.
            assert_eq!(actual.suspected, world.stands(true));
            actual.suspected = world.stands(false);
            let After { eff, eff_deadline, holders, queues, suspected } = &event.after;
            let expected = Snapshot {
                eff: eff.clone(),
                eff_deadline: eff_deadline.clone(),
                holders: holders.clone(),
                queues: queues.clone(),
                suspected: *suspected,
            };
            assert!(
                agrees(&outcome, &event.result) && actual == expected,
                "history {} (uses {:?}) differs at event {index}\nevent: {:#?}\noutcome: {outcome:#?}\nexpected: {:#?}\nbefore: {before:#?}\nexpected: {expected:#?}\nactual: {actual:#?}",
                history.seed,
                history.uses,
                event.op,
                event.result,
            );
            let changed = actual.eff.iter().filter(|(worker, eff)| before.eff.get(*worker).is_some_and(|before| before != *eff));
            assert_eq!(outcome.changed, changed.map(|(worker, _)| worker.clone()).collect::<Vec<_>>());
            before = actual;
        }
        histories += 1;
        events += history.events.len();
        for used in history.uses {
            *uses.entry(used).or_default() += 1;
        }
    }
    println!("graph vectors: {histories} histories, {events} events; they use {uses:?}");
    assert_eq!(histories, 400);
}
