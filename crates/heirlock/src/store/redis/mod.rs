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
//! One connection carries requests and hints (RESP3); if it breaks, it is made anew.
//!
//! # What is kept
//! `heirlock:{NAME}` (a hash), `heirlock:{NAME}:q` and `heirlock:{NAME}:d` (sorted sets), with `{`, `}` and `%` of the key percent-encoded. They go a day
//! after their last use: fences go on from the server's clock.
//!
//! # What it needs
//! A server from version 6.2 on that does not evict: locks that are dropped for want of memory are held by nobody. A user of its own needs the
//! [`COMMANDS`], and of keys and channels those that begin with `heirlock:`.

mod link;
#[cfg(test)]
mod tests;
mod trouble;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use self::link::{Link, Server};
use self::wire::{Names, Step};
use crate::connect::encode;
use crate::lease::{Answer, Beat, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, Pending, SessionId, Sink, Store, check_part};
use crate::{Error, Kind, Result};

/// The commands that a user needs, as ACL rules name them, beside the keys and channels that begin with `heirlock:`.
pub const COMMANDS: [&str; 21] = [
    "hello",
    "select",
    "info",
    "scan",
    "script|load",
    "evalsha",
    "hget",
    "hset",
    "hdel",
    "del",
    "exists",
    "zadd",
    "zrem",
    "zrange",
    "zrangebyscore",
    "pexpire",
    "time",
    "publish",
    "subscribe",
    "unsubscribe",
    "ping",
];
/// How many keys a look through all of them takes at a time.
const PAGE: usize = 500;

/// A store in Redis. See the [module](self).
pub struct RedisStore {
    link: Arc<Link>,
    names: Names,
    url: String,
    durable: bool,
}

/// How to reach a [`RedisStore`].
#[derive(Clone, Debug, Default)]
pub struct Options {
    prefix: String,
}

impl Options {
    /// Puts every key under a namespace: it is stored with this before its name, and shown without.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Connects to the server at this URL: `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`.
    ///
    /// # Errors
    /// `Invalid` for a URL or prefix that cannot be used, or a password or user that the server refuses; `Incompatible` for a server before 6.2;
    /// `Unreachable` if it does not answer; `Storage` if it cannot do its work. No error shows a password.
    pub async fn connect(self, url: &str) -> Result<RedisStore> {
        check_part(&self.prefix)?;
        let (link, Server { durable }) = Link::connect(url).await?;
        let mut shown = crate::redact(url);
        if !self.prefix.is_empty() {
            shown += &format!("?prefix={}", encode(&self.prefix, "%&#+?@"));
        }
        Ok(RedisStore { link: Arc::new(link), names: Names::new(&self.prefix), url: shown, durable })
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

    fn url(&self) -> String {
        self.url.clone()
    }
}

fn closed() -> Error {
    Error::new(Kind::Closed, "the store's thread has ended")
}
