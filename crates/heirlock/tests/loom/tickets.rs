//! Models of what a pool finds out of a priority that changes: of several findings, the newest stands.

use std::sync::Arc;

use crate::common::loom_world::explore;
use heirlock::local::tickets::{Newest, Tickets};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicI32, Ordering};
use loom::thread::spawn;

struct Followed {
    priority: AtomicI32,
    tickets: Tickets,
    /// What is known of it; nothing before it is looked for here.
    known: Mutex<Option<Newest<i32>>>,
}

impl Followed {
    fn new() -> Arc<Followed> {
        Arc::new(Followed { priority: AtomicI32::new(10), tickets: Tickets::new(), known: Mutex::new(None) })
    }

    fn begin(&self) {
        let priority = self.priority.load(Ordering::SeqCst);
        let overtaken = {
            let mut known = self.known.lock().unwrap();
            *known = Some(Newest::first(priority));
            self.tickets.any()
        };
        if overtaken {
            self.changed();
        }
    }

    fn change(&self, priority: i32) {
        self.priority.store(priority, Ordering::SeqCst);
        self.changed();
    }

    fn changed(&self) {
        let ticket = self.tickets.draw();
        let priority = self.priority.load(Ordering::SeqCst);
        if let Some(known) = self.known.lock().unwrap().as_mut() {
            known.offer(ticket, priority);
        }
    }

    #[track_caller]
    fn assert_known(&self) {
        let known = self.known.lock().unwrap().map(Newest::get);
        assert_eq!(known, Some(self.priority.load(Ordering::SeqCst)));
    }
}

/// Up on one thread and down on another, told in any order.
#[test]
fn case_f16_reversed_callbacks() {
    explore("tickets: reversed callbacks", 3, || {
        let followed = Followed::new();
        followed.begin();
        let up = spawn({
            let followed = Arc::clone(&followed);
            move || followed.change(50)
        });
        followed.change(10);
        up.join().unwrap();
        followed.assert_known();
    });
}

/// When a change has been told, it is known, whatever another thread has yet to tell.
#[test]
fn what_was_told_is_known_at_once() {
    explore("tickets: told and known", 3, || {
        let followed = Followed::new();
        followed.begin();
        // Tells of nothing new.
        let late = spawn({
            let followed = Arc::clone(&followed);
            move || followed.changed()
        });
        followed.change(50);
        followed.assert_known();
        late.join().unwrap();
        followed.assert_known();
    });
}

/// A change while a task is made is seen by its maker, or finds the task.
#[test]
fn a_change_while_it_begins() {
    explore("tickets: a change while it begins", 3, || {
        let followed = Followed::new();
        let changes = spawn({
            let followed = Arc::clone(&followed);
            move || followed.change(50)
        });
        followed.begin();
        changes.join().unwrap();
        followed.assert_known();
    });
}
