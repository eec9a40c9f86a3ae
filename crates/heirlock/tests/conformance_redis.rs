//! The conformance suite over Redis. `ci/services` starts the server, and says where it is.
#![cfg(all(feature = "conformance", feature = "redis"))]
// The factory is test code, though not within a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;
use std::sync::Arc;

use heirlock::conformance::{self, Factory};
use heirlock::lease::{Pending, SessionId, Store};

/// A namespace of its own on the server.
struct Redis {
    url: String,
}

impl Redis {
    fn new() -> Redis {
        let server = std::env::var("HEIRLOCK_TEST_REDIS").expect("HEIRLOCK_TEST_REDIS: run the tests by ci/test, or by ci/services");
        let sign = if server.contains('?') { '&' } else { '?' };
        Redis { url: format!("{server}{sign}prefix={:016x}/", SessionId::random().unwrap().0) }
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

heirlock::conformance_tests!(in_process: Redis::new());
heirlock::conformance_tests!(processes: Redis::new());

#[test]
fn no_case_is_omitted() {
    assert!(conformance::omitted(&Redis::new()).is_empty());
}
