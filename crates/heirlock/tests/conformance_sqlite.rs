//! The conformance suite over the SQLite store.
#![cfg(all(feature = "conformance", feature = "sqlite"))]
// The factory is test code, though not within a test.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use heirlock::conformance::{self, Factory};
use heirlock::lease::{Pending, Store};
use heirlock::store::SqliteStore;

/// A file of its own, gone with the factory.
struct Sqlite {
    directory: tempfile::TempDir,
    opened: Mutex<Vec<Weak<SqliteStore>>>,
}

impl Sqlite {
    fn new() -> Sqlite {
        Sqlite { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(), opened: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("leases.db")
    }
}

/// A session says its last words in the background, and would make a file that is gone anew.
impl Drop for Sqlite {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        let opened = self.opened.get_mut().unwrap();
        while opened.iter().any(|store| store.strong_count() > 0) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Factory for Sqlite {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async {
            let store = Arc::new(SqliteStore::options().connect(self.path()).await?);
            self.opened.lock().unwrap().push(Arc::downgrade(&store));
            Ok(store as Arc<dyn Store>)
        })
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
