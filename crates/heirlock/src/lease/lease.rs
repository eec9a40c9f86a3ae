//! A lease that is held.

use std::fmt;
use std::future::Future;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::hold::Hold;
use super::key::Key;
use super::sequencer::Sequencer;
use super::ticket::{Mode, Owner, Token, Was};
use super::verb::Holding;
use super::vital::{Listener, LostReason};
use super::watch::{self, Watch};
use crate::Result;

/// A lock that is held until it is released, lost, or dropped (which releases it promptly in the background). It is renewed meanwhile.
///
/// Its validity is counted from before the request for it was sent, on a clock that goes on during suspend, less 1% of its length and 2 ms: while
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
///
/// An explicit worker that asks for what it holds has one lease more of the same hold: see [`Acquire`](super::Acquire#asking-again).
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    hold: Arc<Hold>,
    holding: Holding,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// It was held to the end.
    InTime,
    /// The worker holds the key by another lease, or waits for one; the store was told nothing, and the key goes on with the last of them.
    StillHeld,
    /// It had been lost before.
    AlreadyLost,
}

impl Lease {
    pub(crate) fn new(hold: Arc<Hold>, holding: Holding) -> Lease {
        Lease { hold, holding }
    }

    /// What is locked.
    pub fn key(&self) -> &Key {
        &self.hold.ask.key
    }

    /// How it is held. Whoever asks for a key shared that its worker holds alone has the exclusive lease.
    pub fn mode(&self) -> Mode {
        self.hold.ask.mode
    }

    /// A number larger than that of every earlier grant of this key; readers of one generation share it. Hand it to what is guarded, so that it
    /// can refuse a holder that does not know that it has lost.
    pub fn fence(&self) -> u64 {
        self.holding.fence
    }

    /// The fence with how and by whom the key is held: what a [`FencedCell`](super::FencedCell), or any resource that is shown fences over a wire,
    /// tells a late holder by. It stays the same to the end of the lease, and after. To a resource, a forked child that shows it is its parent.
    pub fn sequencer(&self) -> Sequencer {
        let hold = &self.hold;
        Sequencer::of(&hold.ask.key, hold.ask.mode, self.fence(), self.slot(), &hold.token)
    }

    /// Which slot it is, from 0, if slots were asked for.
    pub fn slot(&self) -> Option<u32> {
        self.holding.slot
    }

    /// Who holds it, as operators see it.
    pub fn owner(&self) -> &Owner {
        &self.hold.ask.owner
    }

    /// How long it lives without renewal.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.hold.ask.terms.ttl)
    }

    /// Whether nobody else can hold the key now. Once false, always false. Of a forced eviction, or a store that was emptied, it learns by its next
    /// renewal only: to be safe from those, have what you guard check fences.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long nobody else can hold the key, even if no renewal succeeds any more. Zero once it is lost.
    pub fn remaining(&self) -> Duration {
        if self.is_forked() {
            return Duration::ZERO;
        }
        self.hold.vital.until().since(self.hold.handle.session.clock.now())
    }

    /// The larger of its own priority and of all that wait for it, as the store last said.
    pub fn effective_priority(&self) -> i32 {
        self.hold.vital.effective()
    }

    /// Why it is lost, if it is; without waiting.
    pub fn lost_reason(&self) -> Option<LostReason> {
        if self.is_forked() {
            return Some(LostReason::Forked);
        }
        self.hold.vital.lost().or_else(|| (!self.is_valid()).then_some(LostReason::Expired))
    }

    /// Writes the end of its validity there, now and at each change: nanoseconds of the session's clock ([`BootClock`](crate::clock::BootClock) unless
    /// another was given), 0 while it is not valid. For a watchdog in another process, which shares the memory and goes on when this process stands
    /// still. Only the last place that was given is written to.
    ///
    /// ```
    /// # use heirlock::{Locks, store::MemoryStore};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// static VALID_UNTIL: AtomicU64 = AtomicU64::new(0);
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// let lease = locks.lock("report").await?;
    /// lease.publish_validity(&VALID_UNTIL);
    /// assert!(VALID_UNTIL.load(Ordering::Acquire) > 0);
    /// lease.release().await?;
    /// assert_eq!(VALID_UNTIL.load(Ordering::Acquire), 0);
    /// # Ok(()) }
    /// ```
    pub fn publish_validity(&self, to: &'static AtomicU64) {
        self.hold.vital.publish(to);
    }

    /// The secret that proves the hold to the store. Whoever has it can release the lease there by a [`Leave`](super::Leave), which is how a process
    /// that outlives this one gives the key back.
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// Waits until it is lost. An operator's wish to have it back counts: it fires at once, though nobody else can hold before it is released or
    /// expires.
    ///
    /// # Cancel safety
    /// Safe: nothing is lost by dropping it.
    pub async fn lost(&self) -> LostReason {
        Watch::over(slice::from_ref(self)).lost().await.1
    }

    /// Whether it is the parent's of this process.
    pub(super) fn is_forked(&self) -> bool {
        self.hold.handle.session.is_forked()
    }

    /// For somebody who waits until it is lost.
    pub(super) fn listen(&self) -> Listener<'_> {
        self.hold.vital.listen()
    }

    /// Does the work while the lease is valid: when it is lost the work is dropped, and never polled again.
    ///
    /// # Errors
    /// `Lost` or `Evicted` if the lease was lost before the work was done, even if it was done in the same moment.
    ///
    /// # Cancel safety
    /// Dropping it drops the work.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        watch::run(slice::from_ref(self), work).await
    }

    /// Releases it and hands the key on; tells whether it was held until now. Of several leases of one hold, the last one does.
    ///
    /// # Errors
    /// `Unreachable` or `Storage` if the store did not answer before the lease would have expired by itself; `Closed` if the session has ended
    /// meanwhile; `Incompatible` if something else is at the store's address now.
    ///
    /// # Cancel safety
    /// Dropped half-way, it is released in the background.
    pub async fn release(self) -> Result<Released> {
        let was_lost = self.lost_reason().is_some_and(|reason| reason != LostReason::Evicted);
        if self.is_forked() {
            return Ok(Released::AlreadyLost);
        }
        // Of two that are released at once, exactly one is the last.
        let Some(hold) = Arc::into_inner(self.hold) else {
            return Ok(if was_lost { Released::AlreadyLost } else { Released::StillHeld });
        };
        match hold.release().await {
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

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.hold.ask.key)
            .field("mode", &self.hold.ask.mode)
            .field("fence", &self.holding.fence)
            .field("remaining", &self.remaining())
            .field("lost", &self.lost_reason())
            .finish_non_exhaustive()
    }
}
