//! One acquire of several.

use std::task::{Context, Poll, ready};

use crate::Result;
use crate::local::raw::{Raw, Word};
use crate::local::wait::{Held, Wait};

/// An acquire: what the futures of `lock()` and the like are, and nothing else.
pub trait Member {
    /// What its holder has.
    type Guard;

    /// The type of what is under the lock's type.
    type Word: Word;

    /// The lock, which stays where it is from now on as long as the acquire and its guard live; and the wait for it.
    fn parts(&mut self) -> (&Self::Word, &mut Wait);

    /// A guard, for who has just acquired the lock.
    fn guard(&mut self, held: Held) -> Self::Guard;
}

/// An acquire and what came of it. The guard is made at the end: its type may have lifetimes of which a future that has it cannot say that it may be
/// sent.
pub struct Seat<A> {
    acquire: A,
    held: Option<Held>,
}

impl<A: Member> Seat<A> {
    pub(super) fn new(acquire: A) -> Seat<A> {
        Seat { acquire, held: None }
    }

    pub(super) fn take(&mut self) -> A::Guard {
        let Some(held) = self.held.take() else { unreachable!("all locks have been acquired") };
        self.acquire.guard(held)
    }
}

/// A seat, whatever its lock.
pub trait Step {
    /// The lock, and the wait for it.
    fn parts(&mut self) -> (&Raw, &mut Wait);

    /// Acquires the lock.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>>;

    /// The same on this thread.
    fn block(&mut self) -> Result<()>;

    /// Gives up the lock, or waiting for it.
    fn give_up(&mut self);
}

impl<A: Member> Step for Seat<A> {
    fn parts(&mut self) -> (&Raw, &mut Wait) {
        let (word, wait) = self.acquire.parts();
        (word.raw(), wait)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let (word, wait) = self.acquire.parts();
        self.held = Some(ready!(wait.poll(word, cx))?);
        Poll::Ready(Ok(()))
    }

    fn block(&mut self) -> Result<()> {
        let (word, wait) = self.acquire.parts();
        self.held = Some(wait.block(word)?);
        Ok(())
    }

    fn give_up(&mut self) {
        if let Some(held) = self.held.take() {
            drop(self.acquire.guard(held.untouched()));
        } else {
            let (word, wait) = self.acquire.parts();
            wait.cancel(word);
        }
    }
}
