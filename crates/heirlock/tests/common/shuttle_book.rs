//! Who holds, waits and has been woken, by the account of those who do: the other side of what the library says of them.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    bases: Vec<i32>,
    holders: Vec<Option<usize>>,
    /// On which lock and how urgently each waits.
    waits: Vec<Option<(usize, i32)>>,
    /// The task to be woken, and whether it has been and was not polled since.
    wakers: Vec<Option<Waker>>,
    woken: Vec<bool>,
    /// How many calls into the library are under way, and how many have begun ever.
    under_way: usize,
    begun: u64,
}

/// A call into the library, while it lives.
pub(crate) struct Op<'a>(&'a Book);

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.0.pages().under_way -= 1;
    }
}

impl Book {
    pub(crate) fn new(bases: Vec<i32>, locks: usize) -> Arc<Book> {
        let (waits, wakers, woken) = (vec![None; bases.len()], vec![None; bases.len()], vec![false; bases.len()]);
        let pages = Pages { bases, holders: vec![None; locks], waits, wakers, woken, ..Pages::default() };
        Arc::new(Book(Mutex::new(pages)))
    }

    /// Never kept across anything at which the scheduler may choose another thread.
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    pub(crate) fn op(&self) -> Op<'_> {
        let mut pages = self.pages();
        pages.under_way += 1;
        pages.begun += 1;
        Op(self)
    }

    pub(crate) fn holds(&self, me: usize, lock: usize) {
        let before = self.pages().holders[lock].replace(me);
        assert_eq!(before, None, "two hold lock {lock}");
    }

    pub(crate) fn gave_up(&self, me: usize, lock: usize) {
        let before = self.pages().holders[lock].take();
        assert_eq!(before, Some(me));
    }

    pub(crate) fn waits(&self, me: usize, lock: usize, priority: i32) {
        self.pages().waits[me] = Some((lock, priority));
    }

    pub(crate) fn waits_no_more(&self, me: usize) {
        self.pages().waits[me] = None;
    }

    /// It is polled.
    pub(crate) fn will_wake(&self, me: usize, waker: &Waker) {
        let old = self.pages().wakers[me].replace(waker.clone());
        drop(old);
        self.pages().woken[me] = false;
    }

    pub(crate) fn wake(&self, me: usize) {
        let waker = {
            let mut pages = self.pages();
            pages.woken[me] = true;
            pages.wakers[me].take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Until it is woken.
    pub(crate) async fn woken(&self, me: usize) {
        poll_fn(|_| if self.pages().woken[me] { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// The effective priorities, and the moment; `None` while anything is under way, or somebody has been woken and does not know what for.
    pub(crate) fn quiet(&self) -> Option<(u64, Vec<i32>)> {
        let pages = self.pages();
        if pages.under_way > 0 || pages.woken.iter().zip(&pages.waits).any(|(woken, wait)| *woken && wait.is_some()) {
            return None;
        }
        let effective = |(me, base): (usize, &i32)| pages.inherited(me, 0).map_or(*base, |given| given.max(*base));
        Some((pages.begun, pages.bases.iter().enumerate().map(effective).collect()))
    }

    /// Whether nothing has begun since.
    pub(crate) fn still(&self, seen: u64) -> bool {
        self.pages().begun == seen
    }
}

impl Pages {
    /// The most urgent of all who wait for what this one holds.
    fn inherited(&self, me: usize, depth: usize) -> Option<i32> {
        assert!(depth <= self.bases.len(), "a cycle stands");
        let waiters = self.waits.iter().enumerate().filter_map(|(who, wait)| wait.map(|(lock, priority)| (who, lock, priority)));
        waiters
            .filter(|(_, lock, _)| self.holders[*lock] == Some(me))
            .map(|(who, _, priority)| self.inherited(who, depth + 1).map_or(priority, |given| given.max(priority)))
            .max()
    }
}
