//! What heirlock says to the log, heard by tests.

use std::fmt::{Debug, Write};
use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Everything that was traced, by all tests, of other modules, too: the timer's thread traces as well, so there is one subscriber for all threads.
static SAID: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static MORE: Condvar = Condvar::new();

struct Listener;

/// `message field=value ...`
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.insert_str(0, &format!("{value:?}"));
        } else {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("heirlock")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        SAID.lock().unwrap().push((*event.metadata().level(), line.0));
        MORE.notify_all();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
}

/// What was said with this in it; each test has names of its own.
pub(crate) fn said(part: &str) -> Vec<String> {
    SAID.lock().unwrap().iter().map(|(_, line)| line).filter(|line| line.contains(part)).cloned().collect()
}

/// Waits until that has been said, and does this again and again meanwhile.
#[track_caller]
pub(crate) fn hears(part: &str, meanwhile: impl FnMut()) -> String {
    hears_leveled(part, meanwhile).1
}

/// The same with the level.
#[track_caller]
pub(crate) fn hears_leveled(part: &str, mut meanwhile: impl FnMut()) -> (Level, String) {
    let mut lines = SAID.lock().unwrap();
    for _ in 0..6_000 {
        if let Some(line) = lines.iter().find(|(_, line)| line.contains(part)) {
            return line.clone();
        }
        drop(lines);
        meanwhile();
        lines = MORE.wait_timeout(SAID.lock().unwrap(), Duration::from_millis(5)).unwrap().0;
    }
    panic!("nobody said {part:?}: {lines:#?}")
}

/// A name that no other test, and no other run of this one, has.
pub(crate) fn unique(name: &str) -> &'static str {
    static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    format!("{name}-{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst)).leak()
}
