//! A cluster of three servers, or of three and a replica of each.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::{Server, eventually};

/// How long each part of a slot's move takes.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    /// Returns when all nodes find it whole, and all replicas have all. A node that is silent for so long is down to the others.
    pub(crate) fn start(replicas: usize, down_after: Duration, options: &[&str]) -> Cluster {
        let timeout = down_after.as_millis().to_string();
        let common = ["--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0", "--cluster-node-timeout", &timeout];
        let nodes: Vec<Server> = (0..3 * (1 + replicas)).map(|_| Server::start(&[&common, options].concat())).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        let made = create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let cluster = Cluster { nodes };
        cluster.await_whole();
        cluster
    }

    /// Until all find it whole, and know who is whose replica.
    pub(crate) fn await_whole(&self) {
        let replicas = self.nodes.len() - 3;
        for node in &self.nodes {
            eventually("the cluster is whole", || {
                let answer = |words: &[&str]| node.ask::<String>(words).unwrap_or_default();
                answer(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                    && answer(&["CLUSTER", "NODES"]).lines().filter(|line| line.contains("slave")).count() == replicas
                    && (node.info("role").as_deref() == Some("master") || node.info("master_link_status").as_deref() == Some("up"))
            });
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// In which slot a lock is.
    pub(crate) fn slot(&self, lock: &str) -> u16 {
        self.nodes[0].ask(&["CLUSTER", "KEYSLOT", &format!("heirlock:{{{lock}}}")]).unwrap()
    }

    /// Which node has the slot, as itself says.
    pub(crate) fn owner(&self, slot: u16) -> usize {
        let mut owner = None;
        eventually("a node has the slot", || {
            owner = self.nodes.iter().position(|node| has(node, slot));
            owner.is_some()
        });
        owner.unwrap()
    }

    /// Moves the slot with all that is in it to another node, so many keys at a time, as `redis-cli --cluster reshard` does, while it is in use.
    pub(crate) fn migrate(&self, slot: u16, to: usize, batch: usize) {
        let from = self.migrate_keys(slot, to, batch);
        self.migrate_rest(slot, from, to);
    }

    /// The first half of it: all that is in the slot is where it goes to, and the slot is not. Answers where that is.
    pub(crate) fn migrate_keys(&self, slot: u16, to: usize, batch: usize) -> usize {
        let from = self.owner(slot);
        let [source, target] = [&self.nodes[from], &self.nodes[to]];
        let number = slot.to_string();
        set_slot(target, slot, &["IMPORTING", &id(source)]);
        set_slot(source, slot, &["MIGRATING", &id(target)]);
        let port = target.port().to_string();
        loop {
            let keys: Vec<String> = source.ask(&["CLUSTER", "GETKEYSINSLOT", &number, &batch.to_string()]).unwrap();
            if keys.is_empty() {
                return from;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            // It answers NOKEY for what has gone meanwhile.
            source.ask::<String>(&words).unwrap();
            // As if there were many more.
            sleep(PAUSE);
        }
    }

    /// The second half.
    pub(crate) fn migrate_rest(&self, slot: u16, from: usize, to: usize) {
        // First where it goes, so that it is nobody's at no moment.
        let others = (0..self.nodes.len()).filter(|at| *at != to && *at != from);
        for node in [to, from].into_iter().chain(others).map(|at| &self.nodes[at]) {
            if node.info("role").as_deref() == Some("master") {
                set_slot(node, slot, &["NODE", &id(&self.nodes[to])]);
            }
        }
    }

    /// How often the nodes refused a request with this word.
    pub(crate) fn told(&self, word: &str) -> u64 {
        let counts = self.nodes.iter().filter_map(|node| node.info(&format!("errorstat_{word}")));
        counts.map(|count| count.strip_prefix("count=").unwrap().parse::<u64>().unwrap()).sum()
    }

    /// Its only replica.
    pub(crate) fn replica_of(&self, primary: usize) -> usize {
        let id = id(&self.nodes[primary]);
        let is_its = |node: &Server| {
            let nodes: String = node.ask(&["CLUSTER", "NODES"]).unwrap();
            nodes.lines().any(|line| line.contains("myself,slave") && line.contains(&id))
        };
        self.nodes.iter().position(is_its).unwrap()
    }
}

fn id(node: &Server) -> String {
    node.ask(&["CLUSTER", "MYID"]).unwrap()
}

fn set_slot(node: &Server, slot: u16, words: &[&str]) {
    node.ask::<()>(&[&["CLUSTER", "SETSLOT", &slot.to_string()], words].concat()).unwrap();
}

/// Whether it is the primary that has the slot.
fn has(node: &Server, slot: u16) -> bool {
    let Ok(nodes) = node.ask::<String>(&["CLUSTER", "NODES"]) else { return false };
    let Some(line) = nodes.lines().find(|line| line.contains("myself,master")) else { return false };
    line.split(' ').skip(8).any(|range| {
        let mut ends = range.split('-').map(str::parse::<u16>);
        match (ends.next(), ends.next()) {
            (Some(Ok(first)), Some(Ok(last))) => (first..=last).contains(&slot),
            (Some(Ok(only)), None) => only == slot,
            _ => false,
        }
    })
}
