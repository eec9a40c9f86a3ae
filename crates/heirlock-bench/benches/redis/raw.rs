//! The commands that no lease in Redis can do without, on one multiplexed connection.

use redis::aio::MultiplexedConnection;
use redis::{Client, Script};

use crate::server;

pub(crate) struct Raw {
    connection: MultiplexedConnection,
    release: Script,
    number: u64,
}

impl Raw {
    pub(crate) async fn connect() -> Raw {
        let client = Client::open(server()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let release = Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end");
        Raw { connection, release, number: 0 }
    }

    /// Takes a free key, and gives it back if it is still ours.
    pub(crate) async fn cycle(&mut self, name: &str) {
        self.number += 1;
        let token = format!("{:032x}", self.number);
        self.set(name, &token).await;
        let gone: u32 = self.release.key(name).arg(&token).invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(gone, 1);
    }

    async fn set(&mut self, name: &str, token: &str) {
        let mut command = redis::cmd("SET");
        command.arg(name).arg(token).arg("NX").arg("PX").arg(30_000);
        let set: Option<String> = command.query_async(&mut self.connection).await.unwrap();
        assert!(set.is_some());
    }

    /// One round trip of that kind.
    pub(crate) async fn round_trip(&mut self, name: &str) {
        let mut command = redis::cmd("SET");
        command.arg(name).arg("value").arg("PX").arg(30_000);
        command.exec_async(&mut self.connection).await.unwrap();
    }
}
