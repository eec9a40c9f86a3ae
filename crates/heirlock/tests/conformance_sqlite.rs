//! The conformance suite over the SQLite store.
#![cfg(all(feature = "conformance", feature = "sqlite"))]
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use heirlock::conformance::{self, Factory};
use heirlock::lease::{Pending, Store};
use heirlock::store::SqliteStore;

/// A file of its own, gone with the factory.
struct Sqlite(tempfile::TempDir);

impl Sqlite {
    fn new() -> Sqlite {
        Sqlite(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("leases.db")
    }
}

impl Factory for Sqlite {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(SqliteStore::options().connect(self.path()).await?) as Arc<dyn Store>) })
    }

    fn worker(&self) -> Option<Command> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heirlock-conformance-worker"));
        command.arg(format!("sqlite:{}", self.path().display()));
        Some(command)
    }
}

heirlock::conformance_tests!(in_process: Sqlite::new());
heirlock::conformance_tests!(processes: Sqlite::new());

#[test]
fn no_case_is_omitted() {
    assert!(conformance::omitted(&Sqlite::new()).is_empty());
}
