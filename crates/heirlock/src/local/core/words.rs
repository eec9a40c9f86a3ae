//! Cycles in words.

use super::Core;
use super::report::millis;
use crate::clock::Moment;
use crate::local::graph::{Cycle, Kind, LockKey, Mode, NEVER, On, Origin, WorkerKey};
use crate::local::identity::Owner;
use crate::local::name::Name;
use crate::observe::span;

/// How many of the deadlocks found are remembered.
const REMEMBERED: usize = 16;

/// One worker on a cycle, with all that is to be said of it: plain data, which is put into words where there is time.
#[derive(Debug)]
pub(in crate::local) struct Link {
    worker: Owner,
    /// What it waits for; nothing if `next` is its fork.
    lock: Option<(LockKey, Kind, Name)>,
    mode: Mode,
    wait: Origin,
    next: Owner,
    /// How `next` holds the lock; it may only be before the worker in the queue.
    hold: Option<(Mode, Origin)>,
    now: u64,
    /// Whether it is known since when a hold stands, or only a lower limit.
    exact: bool,
}

impl Core {
    /// A wait ends with a deadlock: what its error says.
    pub(in crate::local) fn verdict(&mut self, cycle: &Cycle, now: Moment) -> String {
        let links = self.links(cycle, now);
        if self.deadlocks.len() == REMEMBERED {
            self.deadlocks.pop_front();
        }
        self.deadlocks.push_back(links.iter().map(ToString::to_string).collect());
        sentence(&links)
    }

    /// The cycle, with what is known of its waits and holds.
    pub(super) fn links(&self, cycle: &Cycle, now: Moment) -> Vec<Link> {
        let link = |at: usize| {
            let (step, next) = (cycle[at], cycle[(at + 1) % cycle.len()].worker);
            let (mut lock, mut mode, mut wait, mut hold) = (None, Mode::Exclusive, Origin::UNKNOWN, None);
            if let On::Lock { lock: key, mode: wanted, origin, .. } = step.on {
                (lock, mode, wait) = (Some((key, self.kind(key), self.name(key))), wanted, origin);
                hold = self.graph.holding(key).find(|hold| hold.worker == next).map(|hold| (hold.mode, hold.origin));
            }
            let (worker, next) = (self.owner(step.worker), self.owner(next));
            Link { worker, lock, mode, wait, next, hold, now: now.as_nanos(), exact: self.tracking.is_some() }
        };
        (0..cycle.len()).map(link).collect()
    }

    fn owner(&self, worker: WorkerKey) -> Owner {
        // Whoever is on a cycle takes part.
        self.parties.get(&worker).cloned().unwrap_or(Owner::Anonymous)
    }

    pub(super) fn lock_name(&self, lock: LockKey) -> String {
        label(lock, self.kind(lock), &self.name(lock))
    }

    pub(super) fn name(&self, lock: LockKey) -> Name {
        self.locks.get(&lock).cloned().unwrap_or_default()
    }

    fn kind(&self, lock: LockKey) -> Kind {
        // Of a lock that is spoken of the graph knows.
        self.graph.spec(lock).map_or(Kind::Mutex, |spec| spec.kind)
    }
}

fn label(lock: LockKey, kind: Kind, name: &Name) -> String {
    let noun = kind.noun();
    name.text().map_or_else(|| format!("{noun} #{}", lock.get()), |name| format!("{noun} {name:?}"))
}

/// The whole cycle, and what to do.
fn sentence(links: &[Link]) -> String {
    let [only] = links else {
        let ways: Vec<String> = links.iter().map(Link::way).collect();
        let first = links.first().map_or(String::new(), |link| link.worker.to_string());
        return format!(
            "deadlock: {first} {}; give up what is held and try again, or take these locks in the same order everywhere",
            ways.join(", which ")
        );
    };
    let cure = match only.worker {
        _ if matches!(only.hold, Some((Mode::Shared, _))) => {
            "who reads cannot become the writer: acquire it upgradable() and then upgrade(), or release it first"
        }
        _ if matches!(only.hold, Some((Mode::Upgradable, _))) => {
            "drop its other guards of the lock, and then upgrade() the one that is upgradable"
        }
        Owner::Worker(_) => "if that is another arm of join! or select!, give each arm a fork of the worker: worker.fork(\"arm\")",
        _ => "release it first",
    };
    format!("deadlock: {only}; {cure}")
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.worker, self.way())
    }
}

impl Link {
    /// For what it waits, and who is in its way.
    fn way(&self) -> String {
        let Some((key, kind, name)) = &self.lock else { return format!("waits for its fork {}", self.next) };
        let shared = |mode: Mode| match mode {
            Mode::Exclusive => "",
            Mode::Upgradable => " upgradable",
            Mode::Shared => " shared",
        };
        let mut text =
            format!("waits for {}{}{}", label(*key, *kind, name), shared(self.mode), note(self.wait, "at", self.lasts(self.wait, true)));
        match self.hold {
            Some((mode, origin)) => {
                let note = note(origin, "from", self.lasts(origin, self.exact));
                let (held, holds) = if *kind == Kind::Promise { ("produced", "produces") } else { ("held", "holds") };
                if self.worker.number() == self.next.number() {
                    text += &format!(", which it {holds} itself{}{note}", shared(mode));
                } else {
                    text += &format!(", {held}{} by {}{note}", shared(mode), self.next);
                }
            }
            None => text += &format!(", behind {}", self.next),
        }
        text
    }

    /// For how long something has stood; nothing of what has just begun, or is not known.
    fn lasts(&self, origin: Origin, exact: bool) -> Option<String> {
        let span_ms = millis(std::time::Duration::from_nanos(self.now.saturating_sub(origin.at)));
        let least = if exact { "" } else { "at least " };
        (origin.at != NEVER && span_ms > 0).then(|| format!("for {least}{}", span(span_ms)))
    }
}

/// " (at src/main.rs:7, for 1.2 s)", as far as it is known.
fn note(origin: Origin, word: &str, lasts: Option<String>) -> String {
    let site = origin.site.map(|site| format!("{word} {}:{}", site.file(), site.line()));
    let parts: Vec<String> = [site, lasts].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}
