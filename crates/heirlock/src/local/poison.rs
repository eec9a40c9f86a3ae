//! Poison: what a lock remembers of a holder that panicked.

use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use super::identity::Owner;
use crate::sync::lock;
use crate::{Error, Kind};

/// Nobody asks.
const OFF: u8 = 0;
/// A holder that panics poisons the lock.
const CLEAN: u8 = 1;
const POISONED: u8 = 2;

/// Whether a lock is poisoned, and by whom.
#[derive(Debug)]
pub(super) struct Poison {
    /// Written by the holder only, so it needs no more order than the lock itself gives.
    state: AtomicU8,
    note: Mutex<Option<Box<Note>>>,
}

#[derive(Debug)]
struct Note {
    worker: String,
    site: Option<&'static Location<'static>>,
    unfinished: bool,
}

impl Poison {
    pub(super) const fn off() -> Poison {
        Poison { state: AtomicU8::new(OFF), note: Mutex::new(None) }
    }

    /// From now on, before the lock is shared.
    pub(super) const fn watch(&mut self) {
        self.state = AtomicU8::new(CLEAN);
    }

    /// Whether there is nothing to be done when the lock is taken or released.
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OFF
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == POISONED
    }

    /// The holder has left its work unfinished, or has panicked.
    pub(super) fn poison(&self, owner: u64, site: Option<&'static Location<'static>>, unfinished: bool) {
        if !self.is_off() && !self.is_poisoned() {
            let worker = Owner::from_number(owner).to_string();
            *lock(&self.note) = Some(Box::new(Note { worker, site, unfinished }));
            self.state.store(POISONED, Ordering::Relaxed);
        }
    }

    pub(super) fn clear(&self) {
        if self.is_poisoned() {
            self.state.store(CLEAN, Ordering::Relaxed);
            *lock(&self.note) = None;
        }
    }

    pub(super) fn error(&self, label: &str) -> Error {
        let note = lock(&self.note);
        let (worker, site, what) = match &*note {
            Some(note) => {
                let site = note.site.map(|site| format!(", which acquired it at {site},")).unwrap_or_default();
                (note.worker.clone(), site, if note.unfinished { "dropped its work unfinished" } else { "panicked" })
            }
            None => ("a holder".into(), String::new(), "panicked"),
        };
        let text = format!(
            "{label} is poisoned: {worker}{site} {what} while it held it; if the value is right nevertheless, acquire with even_poisoned() and \
             call clear_poison()"
        );
        Error::new(Kind::Poisoned, text)
    }
}
