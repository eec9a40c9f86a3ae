//! Leases in Redis, or a server that speaks as it does (Valkey), for all processes of all machines that reach it.
//!
//! ```no_run
//! use heirlock::store::RedisStore;
//! # async fn connected() -> heirlock::Result<()> {
//! let store = RedisStore::connect("redis://127.0.0.1/").await?;
//! # drop(store);
//! # Ok(()) }
//! ```
//!
//! # How it works
//! Each verb is one script, one round trip, and atomic as all scripts are: the [ledger](crate::lease::ledger) over three keys of one hash slot, at the
//! server's time. What a step tells others is published to the channels of their sessions, each of which its process has subscribed to.
//! One connection carries requests and hints (RESP3), in a cluster one to each node. If it breaks, is silent for five seconds, or leads to a server that
//! is a replica now, it is made anew: Sentinels are asked again who the primary is, and a cluster where its slots are.
//!
//! # What is kept
//! `heirlock:{NAME}` (a hash), `heirlock:{NAME}:q` and `heirlock:{NAME}:d` (sorted sets), with `{`, `}` and `%` of the key percent-encoded. They go a day
//! after their last use: fences go on from the server's clock.
//!
//! # What it needs
//! A server from version 6.2 on that does not evict: locks that are dropped for want of memory are held by nobody. What of this it can see, and what else
//! of the settings can lose locks, it says when it connects (a `tracing` warning each), and to who asks
//! ([`Store::warnings`]). A user of its own needs the [`COMMANDS`], and of keys and channels those that begin with
//! `heirlock:`.
//!
//! TLS (`rediss://`) trusts the authorities of the system, or those of a file. It uses the process's provider of cryptography for `rustls`, and makes
//! `ring` that if there is none.
//!
//! # What a failover can lose
//! Replication is asynchronous: a replica that takes over may lack the last grants, and somebody else is granted what is held already. The first holder
//! finds out at its next renewal, and fences tell the two apart ([`Fences`](crate::lease::Fences)). [`Options::wait`] narrows it.

mod address;
mod connection;
mod health;
mod link;
mod replicas;
#[cfg(test)]
mod tests;
mod trouble;
mod wire;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use self::address::{Address, Form, SentinelUser, Tls};
use self::health::Health;
use self::link::Link;
use self::wire::{Names, Step};
use crate::connect::encode;
use crate::lease::{
    Answer, Beat, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, Pending, SessionId, Sink, Spawner, Store, check_part,
};
use crate::{Error, Kind, Result};

/// The commands that a user needs, as ACL rules name them, beside the keys and channels that begin with `heirlock:`.
pub const COMMANDS: &[&str] = &[
    "hello",
    "select",
    "info",
    "role",
    "scan",
    "eval",
    "evalsha",
    "hget",
    "hgetall",
    "hmget",
    "hset",
    "hdel",
    "del",
    "exists",
    "zadd",
    "zrem",
    "zrangebyscore",
    "pexpire",
    "time",
    "wait",
    "publish",
    "subscribe",
    "unsubscribe",
    "ping",
    "cluster|slots",
    "asking",
];
/// How many keys a look through all of them takes at a time.
const PAGE: usize = 500;

/// A store in Redis. See the [module](self).
pub struct RedisStore {
    link: Arc<Link>,
    names: Names,
    url: String,
    wait: u32,
    durable: bool,
}

/// How to reach a [`RedisStore`].
#[derive(Clone, Default)]
pub struct Options {
    prefix: String,
    wait: u32,
    tls: Tls,
    sentinel: SentinelUser,
}

impl Options {
    /// Puts every key under a namespace: it is stored with this before its name, and shown without.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Lets a grant or renewal count only once so many replicas have it, so that those which take over know of it. While too few answer, nothing is
    /// granted or renewed; a ticket keeps its place meanwhile, and is withdrawn when its caller gives up.
    ///
    /// It costs a second connection, and each grant the way to the replicas and back. It narrows what a failover can lose, and does not close it: the
    /// replica that takes over may be another one.
    #[must_use]
    pub fn wait(mut self, replicas: u32) -> Self {
        self.wait = replicas;
        self
    }

    /// Trusts the authorities in this PEM file, and not those of the system; for `rediss` URLs.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.ca = Some(file.into());
        self
    }

    /// Shows this certificate to the server, which wants one, with its key; both are PEM files. For `rediss` URLs.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.tls.certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The password that the Sentinels want; the URL has that of the servers.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel.password = Some(password.into());
        self
    }

    /// The user by which the Sentinels know who asks; theirs by default.
    #[must_use]
    pub fn sentinel_user(mut self, name: impl Into<String>) -> Self {
        self.sentinel.name = Some(name.into());
        self
    }

    /// Connects to the servers at this URL; with `rediss` in the place of `redis`, by TLS.
    ///
    /// | URL | is |
    /// |---|---|
    /// | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]` | one server |
    /// | `redis+sentinel://[USER[:PASSWORD]@]SENTINEL[:PORT][,SENTINEL...]/SERVICE[/DATABASE]` | the primary that Sentinels name |
    /// | `redis+cluster://[USER[:PASSWORD]@]NODE[:PORT][,NODE...]` | a cluster, found by some of its nodes |
    ///
    /// While there is no primary, and Sentinels or nodes of the cluster live that may choose one, it tries again for eight seconds; one server that
    /// refuses who comes is told of at once.
    ///
    /// # Errors
    /// `Invalid` for a URL, prefix or certificate that cannot be used, a password or user that the server refuses, or a service that the Sentinels do not
    /// know; `Incompatible` for a server before 6.2; `Unreachable` if it does not answer; `Storage` if it cannot do its work. No error shows a password.
    ///
    /// # Cancel safety
    /// Dropped at any moment, it leaves no connection behind.
    pub async fn connect(self, url: &str) -> Result<RedisStore> {
        check_part(&self.prefix)?;
        let address = Address::parse(url, &self.tls, &self.sentinel)?;
        let (url, in_cluster) = (self.url(&address.shown), matches!(address.form, Form::Cluster(_)));
        let (link, servers) = Link::connect(address, self.wait).await?;
        let durable = servers.iter().all(Health::is_durable);
        let store = RedisStore { link: Arc::new(link), names: Names::new(&self.prefix, in_cluster), url, wait: self.wait, durable };
        for warning in store.told(&servers) {
            tracing::warn!(store = %store.url, "{warning}");
        }
        Ok(store)
    }

    /// As operators see it: what leads to the same store again, but for what is secret.
    fn url(&self, shown: &str) -> String {
        let file = |name, path: &Path| format!("{name}={}", encode(&path.to_string_lossy(), "%&#+?@"));
        let parameters = [
            (!self.prefix.is_empty()).then(|| format!("prefix={}", encode(&self.prefix, "%&#+?@"))),
            (self.wait > 0).then(|| format!("wait={}", self.wait)),
            self.tls.ca.as_ref().map(|path| file("ca", path)),
            self.tls.certificate.as_ref().map(|(path, _)| file("cert", path)),
            self.tls.certificate.as_ref().map(|(_, path)| file("key", path)),
        ];
        let parameters: Vec<String> = parameters.into_iter().flatten().collect();
        if parameters.is_empty() { shown.to_owned() } else { format!("{shown}?{}", parameters.join("&")) }
    }
}

impl fmt::Debug for Options {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("prefix", &self.prefix).field("wait", &self.wait).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// The server at this URL, with all options as they are.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect(url: &str) -> Result<RedisStore> {
        RedisStore::options().connect(url).await
    }

    /// How to reach one.
    pub fn options() -> Options {
        Options::default()
    }

    /// What the servers' settings can do to locks; of several the same is said once.
    fn told(&self, servers: &[Health]) -> Vec<String> {
        let mut all: Vec<String> = servers.iter().flat_map(|server| server.warnings(self.wait)).collect();
        let mut seen = HashSet::new();
        all.retain(|warning| seen.insert(warning.clone()));
        all
    }

    async fn step(&self, step: Step) -> Result<Value> {
        self.link.steps(vec![step]).await?.pop().unwrap_or_else(|| Err(wire::nonsense(&Value::Nil)))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        Box::pin(async move { wire::answer(&self.step(self.names.enter(key, &request)).await?) })
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        Box::pin(async move {
            let steps = requests.iter().map(|(key, beat)| self.names.beat(key, beat)).collect();
            let answers = self.link.steps(steps).await?;
            Ok(answers.into_iter().map(|value| wire::answer(&value?)).collect())
        })
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        Box::pin(async move { wire::left(&self.step(self.names.leave(key, request)).await?) })
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        Box::pin(async move { wire::met(&self.step(self.names.evict(key, request)).await?) })
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        Box::pin(async move { Ok(wire::view(key.clone(), &self.step(self.names.look(key)).await?)?.0) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        Box::pin(async move {
            let mut keys = self.names.keys(&self.link.scan(self.names.pattern(prefix)).await?);
            keys.retain(|key| key.as_str().starts_with(prefix));
            let mut views = Vec::new();
            for page in keys.chunks(PAGE) {
                let looks = self.link.steps(page.iter().map(|key| self.names.look(key)).collect()).await?;
                for (key, value) in page.iter().zip(looks) {
                    let (view, is_used) = wire::view(key.clone(), &value?)?;
                    if is_used {
                        views.push(view);
                    }
                }
            }
            Ok(views)
        })
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        Box::pin(self.link.listen(session, sink))
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        Box::pin(self.link.hush(session))
    }

    fn min_ttl(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shared: true, durable: self.durable, notices: true }
    }

    fn spawner(&self) -> Option<Spawner> {
        Some(self.link.spawner())
    }

    fn warnings(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async move { Ok(self.told(&self.link.look().await?)) })
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

fn closed() -> Error {
    Error::new(Kind::Closed, "the store's thread has ended")
}
