//! What can be seen of the servers: whether they can be used at all, and what of their settings can lose locks.

use ::redis::{RedisResult, Value};

use super::address::{Address, Form};
use super::connection::Connection;
use super::trouble::explain;
use crate::{Error, Kind, Result};

/// What one server tells of itself.
#[derive(Debug, Default)]
pub(super) struct Health {
    version: String,
    /// `standalone`, `sentinel` or `cluster`.
    mode: String,
    is_replica: bool,
    policy: String,
    has_log: bool,
    /// What `appendfsync` is, where it may be asked for.
    log_sync: Option<String>,
    replicas: u32,
}

impl Health {
    /// Of all servers that are written to.
    pub(super) async fn of(connection: &Connection, shown: &str) -> Result<Vec<Health>> {
        let infos = connection.ask_each(::redis::cmd("INFO")).await.map_err(|error| explain(shown, &error))?;
        // Often forbidden; then nothing is said of it.
        let mut ask = ::redis::cmd("CONFIG");
        ask.arg("GET").arg("appendfsync");
        let syncs = connection.ask_each(ask).await.unwrap_or_default();
        let one = |(node, info): (String, Value)| {
            let sync = syncs.iter().find(|(of, _)| *of == node).map(|(_, answer)| answer.clone());
            let pairs = sync.and_then(|answer| ::redis::from_redis_value::<Vec<(String, String)>>(answer).ok());
            Ok(Health { log_sync: pairs.and_then(|pairs| Some(pairs.into_iter().next()?.1)), ..read(info)? })
        };
        infos.into_iter().map(one).collect::<RedisResult<_>>().map_err(|error| explain(shown, &error))
    }

    /// Refuses what cannot be used, or not so.
    pub(super) fn check(&self, address: &Address) -> Result<()> {
        let shown = &address.shown;
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if (major, minor) < (6, 2) {
            let version = &self.version;
            return Err(Error::new(Kind::Incompatible, format!("{shown} is of version {version}: 6.2 or a later one is needed")));
        }
        match (self.mode.as_str(), &address.form) {
            ("sentinel", _) => Err(Error::new(Kind::Invalid, format!("{shown} is a Sentinel: give redis+sentinel://HOST:PORT/SERVICE"))),
            ("cluster", Form::One(_) | Form::Sentinel(_)) => {
                Err(Error::new(Kind::Invalid, format!("{shown} belongs to a cluster: give redis+cluster://HOST:PORT")))
            }
            (_, Form::One(_)) if self.is_replica => {
                let cure = "give its primary, or redis+sentinel://HOST:PORT/SERVICE, which finds it";
                Err(Error::new(Kind::Unreachable, format!("{shown} is a replica, and writes nothing: {cure}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a restart loses nothing that was answered.
    pub(super) fn is_durable(&self) -> bool {
        self.has_log && self.log_sync.as_deref() == Some("always")
    }

    /// What can lose locks, and what to do, when grants wait for so many replicas.
    pub(super) fn warnings(&self, wait: u32) -> Vec<String> {
        let mut said = Vec::new();
        if self.policy != "noeviction" {
            said.push(format!("{} can drop locks when its memory is full: set maxmemory-policy to noeviction", self.policy));
        }
        match (self.has_log, self.log_sync.as_deref()) {
            (false, _) => said.push("a restart forgets all leases: set appendonly yes and appendfsync always".to_owned()),
            (true, None | Some("always")) => {}
            (true, Some(other)) => said.push(format!("a crash can forget the last leases, for appendfsync is {other}: set it to always")),
        }
        if wait == 0 && self.replicas > 0 {
            said.push("a replica that takes over may not know the last leases: add ?wait=1 to the URL".to_owned());
        }
        if wait > self.replicas {
            said.push(format!("it has {} replicas and wait={wait} needs more: nothing can be locked", self.replicas));
        }
        said
    }
}

fn read(info: Value) -> RedisResult<Health> {
    let info: String = ::redis::from_redis_value(info)?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().to_owned();
    Ok(Health {
        version: field("redis_version"),
        mode: field("redis_mode"),
        is_replica: field("role") == "slave",
        policy: field("maxmemory_policy"),
        has_log: field("aof_enabled") == "1",
        log_sync: None,
        replicas: field("connected_slaves").parse().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::address::{SentinelUser, Tls};

    /// What a server tells, as far as it matters.
    fn told(lines: &[&str]) -> Health {
        let info = [&["# Server", "redis_version:7.0.15", "redis_mode:standalone", "maxmemory_policy:noeviction"], lines].concat();
        // The first of several lines of one name counts.
        let info: Vec<&str> = info.into_iter().rev().collect();
        read(Value::BulkString(info.join("\r\n").into_bytes())).unwrap()
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_to_do() {
        let address = |url| Address::parse(url, &Tls::default(), &SentinelUser::default()).unwrap();
        let (one, cluster) = (address("redis://db1"), address("redis+cluster://db1"));
        let refused = |lines: &[&str], address: &Address| told(lines).check(address).unwrap_err();
        for version in ["redis_version:6.0.16", "redis_version:5.0.14", "redis_version:2.8.9", "redis_version:"] {
            let error = refused(&[version], &one);
            assert!(error.kind() == Kind::Incompatible && error.to_string().contains("6.2"), "{version}: {error}");
        }
        for version in ["redis_version:6.2.0", "redis_version:7.0.15", "redis_version:8.4.0", "redis_version:255.255.255"] {
            told(&[version]).check(&one).unwrap();
        }
        assert!(refused(&["redis_mode:sentinel"], &one).to_string().contains("redis+sentinel://"));
        assert!(refused(&["redis_mode:cluster"], &one).to_string().contains("redis+cluster://"));
        told(&["redis_mode:cluster"]).check(&cluster).unwrap();
        assert!(refused(&["role:slave"], &one).to_string().contains("give its primary"));
    }

    #[test]
    fn what_can_lose_locks_is_said() {
        let said = |lines: &[&str], sync: Option<&str>, wait| {
            let health = Health { log_sync: sync.map(str::to_owned), ..told(lines) };
            (health.warnings(wait).join("; "), health.is_durable())
        };
        assert_eq!(said(&["aof_enabled:1"], Some("always"), 0), (String::new(), true));
        assert_eq!(said(&["aof_enabled:1"], None, 0), (String::new(), false));
        assert!(said(&["aof_enabled:1"], Some("everysec"), 0).0.contains("everysec"));
        assert!(said(&["aof_enabled:0"], None, 0).0.contains("appendonly yes"));
        assert!(said(&["maxmemory_policy:allkeys-lru"], None, 0).0.contains("noeviction"));
        assert!(said(&["connected_slaves:2"], None, 0).0.contains("?wait=1"));
        assert!(!said(&["connected_slaves:2"], None, 2).0.contains("wait="));
        assert!(said(&["connected_slaves:2"], None, 3).0.contains("wait=3 needs more"));
    }
}
