//! Poison: what a lock remembers of a holder that panicked.

use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::identity::Owner;
use super::sync::{AtomicBool, const_fn};
use crate::sync::lock;
use crate::{Error, Kind};

/// Whether a lock is poisoned, and by whom.
#[derive(Debug)]
pub(super) struct Poison {
    /// Whether a holder that panics poisons the lock.
    watched: bool,
    /// Set by the holder only, so it needs no more order than the lock itself gives.
    poisoned: AtomicBool,
    note: Mutex<Option<Box<Note>>>,
}

#[derive(Debug)]
struct Note {
    worker: String,
    site: Option<&'static Location<'static>>,
    unfinished: bool,
}

impl Poison {
    const_fn! {
        pub(super) const fn off() -> Poison {
            Poison { watched: false, poisoned: AtomicBool::new(false), note: Mutex::new(None) }
        }
    }

    /// From now on, before the lock is shared.
    pub(super) const fn watch(&mut self) {
        self.watched = true;
    }

    /// Whether there is nothing to be done when the lock is taken or released.
    #[inline]
    pub(super) fn is_off(&self) -> bool {
        !self.watched
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// The holder has left its work unfinished, or has panicked.
    pub(super) fn poison(&self, owner: u64, site: Option<&'static Location<'static>>, unfinished: bool) {
        if !self.is_off() && !self.is_poisoned() {
            let worker = Owner::from_number(owner).to_string();
            *lock(&self.note) = Some(Box::new(Note { worker, site, unfinished }));
            self.poisoned.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn clear(&self) {
        if self.is_poisoned() {
            self.poisoned.store(false, Ordering::Relaxed);
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
