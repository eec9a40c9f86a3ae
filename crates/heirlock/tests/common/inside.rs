//! Who is inside of a lock that is read and written.

use std::sync::atomic::{AtomicU64, Ordering};

/// Readers, and a thousand for each writer.
#[derive(Default)]
pub(crate) struct Inside(AtomicU64);

const WRITER: u64 = 1000;

impl Inside {
    /// Somebody comes in. A writer must find nobody, a reader no writer.
    #[track_caller]
    pub(crate) fn enter(&self, writes: bool) {
        let others = self.0.fetch_add(if writes { WRITER } else { 1 }, Ordering::SeqCst);
        assert!(others == 0 || !writes && others < WRITER, "a writer is beside somebody: {others}");
    }

    pub(crate) fn leave(&self, writes: bool) {
        self.0.fetch_sub(if writes { WRITER } else { 1 }, Ordering::SeqCst);
    }

    pub(crate) fn readers(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
