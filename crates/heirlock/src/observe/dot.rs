//! A snapshot as a drawing, in the language of Graphviz.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::snapshot::{Edge, Lock, Snapshot, WorkerView};
use super::text::{Names, span, workers};

/// What tells one worker from all others: host, process, id.
type Id<'a> = (&'a str, u32, u64);

fn id(worker: &WorkerView) -> Id<'_> {
    (&worker.host, worker.pid, worker.id)
}

impl Snapshot {
    /// The snapshot as a Graphviz graph: workers as ellipses, locks as boxes, an arrow from a lock to who holds it and a dashed one from who waits
    /// to the lock. Arrows that are part of a cycle, which may be a deadlock, are red. `dot -Tsvg` draws it.
    ///
    /// ```
    /// let nothing = heirlock::observe::Snapshot::default();
    /// assert!(nothing.to_dot().starts_with("digraph heirlock {\n"));
    /// ```
    pub fn to_dot(&self) -> String {
        let names = Names::of(self);
        let mut nodes: HashMap<Id<'_>, usize> = HashMap::new();
        let mut dot =
            String::from("digraph heirlock {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\"];\n");
        for worker in workers(self) {
            let next = nodes.len();
            nodes.entry(id(worker)).or_insert_with(|| {
                let _ = writeln!(dot, "  w{next} [shape=ellipse, label={}];", quoted(&names.name(worker)));
                next
            });
        }
        let circular = circular(&self.edges, &nodes);
        for (number, lock) in self.locks.iter().enumerate() {
            let _ = writeln!(dot, "  l{number} [shape=box, label={}];", quoted(&format!("{}\n{}", lock.name, lock.kind)));
            let (waits, holds) = red(lock, &circular);
            for holder in &lock.holders {
                let worker = &holder.party.worker;
                let label = label(holder.party.mode, "held", holder.since_ms, holder.priority, holder.effective);
                let red = if holds.contains(&id(worker)) { RED } else { "" };
                let _ = writeln!(dot, "  l{number} -> w{} [label={}{red}];", nodes[&id(worker)], quoted(&label));
            }
            for waiter in &lock.queue {
                let worker = &waiter.party.worker;
                let words = format!("{}. waits", waiter.position);
                let label = label(waiter.party.mode, &words, waiter.waiting_ms, waiter.priority, waiter.effective);
                let red = if waits.contains(&id(worker)) { RED } else { "" };
                let _ = writeln!(dot, "  w{} -> l{number} [style=dashed, label={}{red}];", nodes[&id(worker)], quoted(&label));
            }
        }
        for edge in self.edges.iter().filter(|edge| edge.lock.is_none()) {
            let red = if circular.contains(&(id(&edge.from), id(&edge.to))) { RED } else { "" };
            let _ = writeln!(dot, "  w{} -> w{} [style=dotted, label=\"its fork\"{red}];", nodes[&id(&edge.from)], nodes[&id(&edge.to)]);
        }
        dot.push_str("}\n");
        dot
    }
}

const RED: &str = ", color=red, fontcolor=red, penwidth=2";

fn label(mode: &str, words: &str, ms: u64, priority: i32, effective: i32) -> String {
    let mut text = if mode == "exclusive" { String::new() } else { format!("{mode}, ") };
    text += &format!("{words} {}\npriority {priority}", span(ms));
    if effective != priority {
        text += &format!(", raised to {effective}");
    }
    text
}

/// Within double quotes these have a meaning, in labels also the names of characters (`&lt;`), and a line's end is written.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '&' => quoted.push_str("&amp;"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Which of those who wait for the lock, and of its holders, do so on a cycle.
fn red<'a>(lock: &'a Lock, circular: &HashSet<(Id<'_>, Id<'_>)>) -> (HashSet<Id<'a>>, HashSet<Id<'a>>) {
    let (mut waits, mut holds) = (HashSet::new(), HashSet::new());
    if !circular.is_empty() {
        for waiter in &lock.queue {
            for holder in &lock.holders {
                let (from, to) = (id(&waiter.party.worker), id(&holder.party.worker));
                if circular.contains(&(from, to)) {
                    waits.insert(from);
                    holds.insert(to);
                }
            }
        }
    }
    (waits, holds)
}

/// The pairs of which the first waits for the second and, perhaps through others, the second for the first.
fn circular<'a>(edges: &'a [Edge], nodes: &HashMap<Id<'_>, usize>) -> HashSet<(Id<'a>, Id<'a>)> {
    let mut ways = vec![Vec::new(); nodes.len()];
    for edge in edges {
        ways[nodes[&id(&edge.from)]].push(nodes[&id(&edge.to)]);
    }
    let component = components(&ways);
    let same = |edge: &&Edge| component[nodes[&id(&edge.from)]] == component[nodes[&id(&edge.to)]];
    edges.iter().filter(same).map(|edge| (id(&edge.from), id(&edge.to))).collect()
}

/// For each node the number of its strongly connected component: two nodes have the same if each can be reached from the other. Kosaraju's way, with
/// stacks of our own, as a chain may be long: in the order in which a search leaves the nodes, whatever reaches a node is in its component.
fn components(ways: &[Vec<usize>]) -> Vec<usize> {
    let mut back = vec![Vec::new(); ways.len()];
    for (from, ways) in ways.iter().enumerate() {
        for &to in ways {
            back[to].push(from);
        }
    }
    let (mut left, mut seen) = (Vec::new(), vec![false; ways.len()]);
    for root in 0..ways.len() {
        let mut stack = vec![(root, 0)];
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        while let Some((node, next)) = stack.last_mut() {
            let Some(&to) = ways[*node].get(*next) else {
                left.push(*node);
                stack.pop();
                continue;
            };
            *next += 1;
            if !std::mem::replace(&mut seen[to], true) {
                stack.push((to, 0));
            }
        }
    }
    let mut component = vec![usize::MAX; ways.len()];
    for &root in left.iter().rev() {
        let mut stack = vec![root];
        while let Some(node) = stack.pop() {
            if component[node] == usize::MAX {
                component[node] = root;
                stack.extend(back[node].iter().filter(|from| component[**from] == usize::MAX));
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_what_reaches_each_other() {
        // 0 -> 1 -> 2 -> 0, 2 -> 3 -> 4 -> 3, and 5 by itself.
        let component = components(&[vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]]);
        let same = |a: usize, b: usize| component[a] == component[b];
        assert!(same(0, 1) && same(1, 2) && same(3, 4));
        assert!(!same(2, 3) && !same(5, 0) && !same(5, 4));
    }

    #[test]
    fn a_long_chain_is_no_deep_recursion() {
        let ways: Vec<Vec<usize>> = (0..300_000).map(|node| if node == 299_999 { vec![0] } else { vec![node + 1] }).collect();
        let component = components(&ways);
        assert!(component.iter().all(|number| *number == component[0]));
    }
}
