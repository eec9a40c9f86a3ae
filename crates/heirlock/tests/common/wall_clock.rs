//! A wall clock of a process's own, which a test steps: by libfaketime.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

pub(crate) struct WallClock {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl WallClock {
    /// None where there is no libfaketime.
    pub(crate) fn new() -> Option<WallClock> {
        let places = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok).map(|entry| entry.path().join("faketime/libfaketime.so.1"));
        let library = places.chain([PathBuf::from("/usr/lib/faketime/libfaketime.so.1")]).find(|path| path.exists())?;
        let clock = WallClock { library, folder: tempfile::tempdir().unwrap() };
        clock.set("+0");
        Some(clock)
    }

    /// As far from the true time.
    pub(crate) fn set(&self, offset: &str) {
        // Replaced whole, so that nobody reads half of it.
        let new = self.folder.path().join("new");
        fs::write(&new, offset).unwrap();
        fs::rename(&new, self.folder.path().join("time")).unwrap();
    }

    /// What makes it the clock of a process.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.path().join("time").into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            // Only what a person or a time server sets: the kernel's count since its start is no wall clock.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}
