//! The conformance suite over Redis in each of its forms: one server, one with TLS and users, the primary that Sentinels name, a cluster. `ci/services`
//! starts the servers, and says where they are.
#![cfg(all(feature = "conformance", feature = "redis"))]
// The factory is test code, though not within a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::Arc;

use heirlock::conformance::{self, Factory};
use heirlock::lease::{Pending, SessionId, Store};

/// A namespace of its own on the servers.
struct Redis {
    url: String,
}

impl Redis {
    /// On those whose address is in this variable.
    fn new(variable: &str) -> Redis {
        let server = std::env::var(variable).unwrap_or_else(|_| panic!("{variable}: run the tests by ci/test, or by ci/services"));
        let next = if server.contains('?') { '&' } else { '?' };
        Redis { url: format!("{server}{next}prefix={:016x}/", SessionId::random().unwrap().0) }
    }
}

impl Factory for Redis {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(heirlock::open_store(&self.url))
    }

    fn worker(&self) -> Option<Command> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heirlock-conformance-worker"));
        command.arg(&self.url);
        Some(command)
    }
}

mod single {
    use super::Redis;

    heirlock::conformance_tests!(in_process: Redis::new("HEIRLOCK_TEST_REDIS"));
    heirlock::conformance_tests!(processes: Redis::new("HEIRLOCK_TEST_REDIS"));
}

/// The processes that the others start would do the same as these sessions.
mod tls {
    use super::Redis;

    heirlock::conformance_tests!(in_process: Redis::new("HEIRLOCK_TEST_REDIS_TLS"));
}

mod sentinel {
    use super::Redis;

    heirlock::conformance_tests!(in_process: Redis::new("HEIRLOCK_TEST_REDIS_SENTINEL"));
    heirlock::conformance_tests!(processes: Redis::new("HEIRLOCK_TEST_REDIS_SENTINEL"));
}

mod cluster {
    use super::Redis;

    heirlock::conformance_tests!(in_process: Redis::new("HEIRLOCK_TEST_REDIS_CLUSTER"));
    heirlock::conformance_tests!(processes: Redis::new("HEIRLOCK_TEST_REDIS_CLUSTER"));
}

#[test]
fn no_case_is_omitted() {
    assert!(conformance::omitted(&Redis::new("HEIRLOCK_TEST_REDIS")).is_empty());
}
