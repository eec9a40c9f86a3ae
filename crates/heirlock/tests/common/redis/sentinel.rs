//! A server, its replica, and three Sentinels that put the one in the place of the other.

use std::collections::HashMap;
use std::time::Duration;

use super::{Server, eventually};

const SERVICE: &str = "locks";

pub(crate) struct Watched {
    /// Either of them may be the primary.
    pub(crate) servers: [Server; 2],
    pub(crate) sentinels: Vec<Server>,
}

impl Watched {
    /// Returns when the replica has all, and all Sentinels know of it and of each other. A server that is silent for so long is down to them.
    pub(crate) fn start(down_after: Duration, options: &[&str]) -> Watched {
        let common = ["--repl-diskless-sync-delay", "0"];
        let primary = Server::start(&[&common, options].concat());
        let port = primary.port().to_string();
        let replica = Server::start(&[&["--replicaof", "127.0.0.1", &port], &common[..], options].concat());
        eventually("the replica has all", || replica.info("master_link_status").as_deref() == Some("up"));
        let lines = [
            format!("sentinel monitor {SERVICE} 127.0.0.1 {port} 2"),
            format!("sentinel down-after-milliseconds {SERVICE} {}", down_after.as_millis()),
            // How long an attempt that came to nothing keeps others from trying.
            format!("sentinel failover-timeout {SERVICE} 5000"),
        ];
        let sentinels: Vec<Server> = (0..3).map(|_| Server::sentinel(&lines)).collect();
        let watched = Watched { servers: [primary, replica], sentinels };
        for sentinel in &watched.sentinels {
            eventually("a Sentinel knows all", || {
                let seen: HashMap<String, String> = sentinel.ask(&["SENTINEL", "MASTER", SERVICE]).unwrap();
                seen["num-slaves"] == "1" && seen["num-other-sentinels"] == "2"
            });
            eventually("a Sentinel can take the replica", || {
                let seen: Vec<HashMap<String, String>> = sentinel.ask(&["SENTINEL", "REPLICAS", SERVICE]).unwrap();
                seen[0]["flags"] == "slave" && seen[0]["master-link-status"] == "ok"
            });
        }
        watched
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// Which of the servers is the primary, as the first Sentinel that lives has it.
    pub(crate) fn primary(&self) -> usize {
        let ask = |sentinel: &Server| sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok();
        let (_, port): (String, u16) = self.sentinels.iter().find_map(ask).unwrap();
        self.servers.iter().position(|server| server.port() == port).unwrap()
    }

    /// Kills the primary; tells which it was. On a busy machine the servers may have changed places of themselves before.
    pub(crate) fn kill_primary(&mut self) -> usize {
        let primary = self.primary();
        self.servers[primary].kill();
        primary
    }

    /// Until another one than this is the primary.
    pub(crate) fn await_primary_but(&self, old: usize) {
        eventually("the replica is the primary", || self.primary() != old);
    }

    /// Until this one is a replica, and has all.
    pub(crate) fn await_replica(&self, server: usize) {
        eventually("it is a replica", || self.servers[server].info("master_link_status").as_deref() == Some("up"));
    }

    /// Until the replica has what the primary has now.
    pub(crate) fn await_offset(&self) {
        let primary = self.primary();
        let offset = |server: usize, field: &str| self.servers[server].info(field).and_then(|offset| offset.parse::<u64>().ok());
        let all = offset(primary, "master_repl_offset").unwrap();
        eventually("the replica has all", || offset(1 - primary, "slave_repl_offset").is_some_and(|offset| offset >= all));
    }

    /// The Sentinels are asked to put the replica in the primary's place, which lives.
    pub(crate) fn fail_over(&self) {
        // A replica that has only just come is not good enough.
        eventually("a failover begins", || self.sentinels[0].ask::<String>(&["SENTINEL", "FAILOVER", SERVICE]).is_ok());
    }
}
