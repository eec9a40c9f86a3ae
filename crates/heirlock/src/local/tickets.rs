//! Of a value that several find out anew after each of its changes: which finding is the newest.

use super::sync::{AtomicU64, const_fn};
use std::sync::atomic::Ordering;

/// Tickets are drawn before the value is read. Of two who come with changes one after the other, the later draws the higher ticket and reads what
/// stands after its change; so whatever the earlier one read, and however late it brings it, is not needed.
#[derive(Debug)]
pub struct Tickets(AtomicU64);

/// The newest finding so far, to be kept under a mutex.
#[derive(Clone, Copy, Debug)]
pub struct Newest<T> {
    ticket: u64,
    value: T,
}

impl Tickets {
    const_fn! {
        /// None was drawn but the one with which a [`Newest`] begins.
        pub const fn new() -> Tickets {
            Tickets(AtomicU64::new(0))
        }
    }

    /// One that is higher than all before.
    pub fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether one was drawn. Asked under the mutex of the [`Newest`] by who has just put that where those who draw look for it, under the same
    /// mutex: then each of them finds it, or is seen here.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Default for Tickets {
    fn default() -> Tickets {
        Tickets::new()
    }
}

impl<T: Copy> Newest<T> {
    /// What was found out before anybody drew a ticket.
    pub fn first(value: T) -> Newest<T> {
        Newest { ticket: 0, value }
    }

    /// What was found out with this ticket; whether it is the newest.
    pub fn offer(&mut self, ticket: u64, value: T) -> bool {
        let newer = self.ticket < ticket;
        if newer {
            *self = Newest { ticket, value };
        }
        newer
    }

    /// The value.
    pub fn get(self) -> T {
        self.value
    }
}
