//! A lease that is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::entry::{Ask, Request};
use super::handle::Handle;
use super::key::Key;
use super::sequencer::Sequencer;
use super::ticket::{Mode, Owner, Token, Was};
use super::verb::Holding;
use super::vital::{LostReason, Vital};
use crate::Result;

/// A lock that is held until it is released, lost, or dropped (which releases it promptly in the background). It is renewed meanwhile.
///
/// Its validity is counted from before the request for it was sent, on a clock that goes on during suspend, less 1% of the ttl and 2 ms: while
/// [`is_valid`](Lease::is_valid), no correct store gives the key to another.
///
/// ```
/// # use heirlock::{Locks, Released, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let lease = locks.lock("report").await?;
/// let rows = lease.run(async { 42 }).await?;
/// assert_eq!(lease.release().await?, Released::InTime);
/// # assert_eq!(rows, 42);
/// # Ok(()) }
/// ```
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    handle: Arc<Handle>,
    token: Token,
    ask: Ask,
    holding: Holding,
    vital: Arc<Vital>,
    is_released: bool,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// It was held to the end.
    InTime,
    /// It had been lost before.
    AlreadyLost,
}

impl Lease {
    pub(crate) fn new(handle: Arc<Handle>, token: Token, ask: Ask, holding: Holding, vital: Arc<Vital>) -> Lease {
        Lease { handle, token, ask, holding, vital, is_released: false }
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        &self.ask.key
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.ask.mode
    }

    /// A number larger than that of every earlier grant of this key; readers of one generation share it. Hand it to what is guarded, so that it
    /// can refuse a holder that does not know that it has lost.
    pub fn fence(&self) -> u64 {
        self.holding.fence
    }

    /// The fence with how and by whom the key is held: what a [`FencedCell`](super::FencedCell), or any resource that is shown fences over a wire,
    /// tells a late holder by. It stays the same to the end of the lease, and after. To a resource, a forked child that shows it is its parent.
    pub fn sequencer(&self) -> Sequencer {
        Sequencer::of(&self.ask.key, self.ask.mode, self.holding.fence, self.holding.slot, &self.token)
    }

    /// Which slot it is, from 0, if slots were asked for.
    pub fn slot(&self) -> Option<u32> {
        self.holding.slot
    }

    /// Who holds it, as operators see it.
    pub fn owner(&self) -> &Owner {
        &self.ask.owner
    }

    /// How long it lives without renewal.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ask.terms.ttl)
    }

    /// Whether nobody else can hold the key now. Once false, always false.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long nobody else can hold the key, even if no renewal succeeds any more. Zero once it is lost.
    pub fn remaining(&self) -> Duration {
        if self.handle.session.is_forked() {
            return Duration::ZERO;
        }
        self.vital.until().since(self.handle.session.clock.now())
    }

    /// The larger of its own priority and of all that wait for it, as the store last said.
    pub fn effective_priority(&self) -> i32 {
        self.vital.effective()
    }

    /// Why it is lost, if it is; without waiting.
    pub fn lost_reason(&self) -> Option<LostReason> {
        if self.handle.session.is_forked() {
            return Some(LostReason::Forked);
        }
        self.vital.lost().or_else(|| (!self.is_valid()).then_some(LostReason::Expired))
    }

    /// Waits until it is lost. An operator's wish to have it back counts: it fires at once, though nobody else can hold before it is released or
    /// expires.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost by dropping it.
    pub async fn lost(&self) -> LostReason {
        if self.handle.session.is_forked() {
            return LostReason::Forked;
        }
        let mut listener = self.vital.listen();
        poll_fn(|cx| listener.lost(cx)).await
    }

    /// Does the work while the lease is valid: when it is lost the work is dropped, and never polled again.
    ///
    /// # Errors
    /// `Lost` or `Evicted` if the lease was lost before the work was done, even if it was done in the same moment.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let mut work = pin!(work);
        let mut listener = self.vital.listen();
        poll_fn(|cx| {
            // A waker for the loss first, so that it cannot slip between the check and the wait.
            if let Poll::Ready(reason) = listener.lost(cx) {
                return Poll::Ready(Err(reason.to_error()));
            }
            // The timer may be late, after a stop or a suspend: the clock is asked too.
            if let Some(reason) = self.lost_reason() {
                return Poll::Ready(Err(reason.to_error()));
            }
            match work.as_mut().poll(cx) {
                Poll::Ready(output) => match self.lost_reason() {
                    Some(reason) => Poll::Ready(Err(reason.to_error())),
                    None => Poll::Ready(Ok(output)),
                },
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Releases it and hands the key on; tells whether it was held until now.
    ///
    /// # Errors
    /// `Unreachable` or `Storage` if the store did not answer before the lease would have expired by itself.
    ///
    /// # Cancel safety
    /// Dropped half-way, it is released in the background.
    pub async fn release(mut self) -> Result<Released> {
        let session = &self.handle.session;
        let was_lost = self.lost_reason().is_some_and(|reason| reason != LostReason::Evicted);
        if session.is_forked() {
            return Ok(Released::AlreadyLost);
        }
        session.withdraw(self.token, self.ask.request_limit());
        let mut first = match session.request(self.token) {
            Some((Request::Leave(leave), sent)) => Some((session.store.leave(&self.ask.key, leave), sent)),
            _ => None,
        };
        let mut listener = self.vital.listen();
        let left = poll_fn(|cx| {
            if let Some((leave, sent)) = &mut first
                && let Poll::Ready(answer) = leave.as_mut().poll(cx)
            {
                session.left(self.token, *sent, answer);
                first = None;
            }
            listener.left(cx)
        })
        .await;
        drop(first);
        drop(listener);
        self.is_released = true;
        match left {
            Ok(Was::Held) if !was_lost => Ok(Released::InTime),
            Ok(_) => Ok(Released::AlreadyLost),
            Err(_) if was_lost => Ok(Released::AlreadyLost),
            Err(error) => Err(error),
        }
    }

    /// Releases it from a thread: [`release`](Lease::release) without a task.
    ///
    /// # Errors
    /// As [`release`](Lease::release).
    pub fn release_blocking(self) -> Result<Released> {
        pollster::block_on(self.release())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_released {
            self.handle.session.withdraw(self.token, Duration::ZERO);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.ask.key)
            .field("mode", &self.ask.mode)
            .field("fence", &self.holding.fence)
            .field("remaining", &self.remaining())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
