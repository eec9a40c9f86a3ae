//! Cycles in words.

use std::fmt::Write;

use super::Core;
use crate::local::graph::{Cycle, LockKey, On, Step, WorkerKey};
use crate::local::identity::Owner;

impl Core {
    /// The cycle in words.
    pub(in crate::local) fn describe(&self, cycle: &Cycle) -> String {
        if let [Step { worker, on: On::Lock { lock, .. } }] = cycle.as_slice() {
            let mut text = format!("deadlock: {} waits for {}, which it holds itself", self.name(*worker), self.lock_name(*lock));
            if let Some(Owner::Worker(_)) = self.parties.get(worker) {
                text.push_str("; if that is another arm of join! or select!, give each arm a fork of the worker: worker.fork(\"arm\")");
            }
            return text;
        }
        let mut text = String::from("deadlock: ");
        for (at, step) in cycle.iter().enumerate() {
            let next = cycle.get(at + 1).unwrap_or(&cycle[0]);
            if at > 0 {
                text.push_str(", which ");
            } else {
                text.push_str(&self.name(step.worker));
                text.push(' ');
            }
            let _ = match step.on {
                On::Lock { lock, .. } => write!(text, "waits for {}, held by {}", self.lock_name(lock), self.name(next.worker)),
                On::Fork => write!(text, "waits for its fork {}", self.name(next.worker)),
            };
        }
        text
    }

    fn name(&self, worker: WorkerKey) -> String {
        self.parties.get(&worker).map_or_else(|| format!("worker {}", worker.get()), ToString::to_string)
    }

    fn lock_name(&self, lock: LockKey) -> String {
        match self.locks.get(&lock).copied().flatten() {
            Some(name) => format!("lock {name:?}"),
            None => format!("lock #{}", lock.get()),
        }
    }
}
