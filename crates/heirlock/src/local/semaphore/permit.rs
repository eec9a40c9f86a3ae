//! Permits that somebody has.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::Semaphore;
use crate::Worker;
use crate::local::raw::Permits;
use crate::local::wait::Held;

/// How many permits, and who holds them; what both kinds of permits are.
struct Share {
    permits: u32,
    /// The graph's number of the holder, 0 where holders are not known. Changed under the mutex of the domain.
    holder: AtomicU64,
}

impl Share {
    #[inline]
    fn new(held: Held) -> Share {
        Share { permits: held.levels(), holder: AtomicU64::new(held.word().unwrap_or(0)) }
    }

    fn split(&mut self, permits: u32) -> Option<Share> {
        if permits == 0 || permits >= self.permits {
            return None;
        }
        self.permits -= permits;
        Some(Share { permits, holder: AtomicU64::new(*self.holder.get_mut()) })
    }

    fn merge(&mut self, of: &Permits, other: &mut Share) {
        of.join(other.permits, *other.holder.get_mut(), *self.holder.get_mut());
        // Both are among those that there are in all, whose number fits.
        self.permits += std::mem::take(&mut other.permits);
    }

    fn forget(&mut self, of: &Permits) {
        of.forget(std::mem::take(&mut self.permits), *self.holder.get_mut());
    }

    #[inline]
    fn give_back(&mut self, of: &Permits) {
        // None are left to one that was forgotten or has become a part of another.
        if self.permits > 0 {
            of.give_back(self.permits, *self.holder.get_mut());
        }
    }
}

macro_rules! permit {
    ($permit:ident $(<$life:lifetime>)?, $($permits:ident).+) => {
        impl $permit$(<$life>)? {
            /// How many permits these are.
            pub fn permits(&self) -> u32 {
                self.share.permits
            }

            /// The permits are no more: they are not given back, and only [`Semaphore::release`] can add others in their place.
            ///
            /// ```
            /// let semaphore = heirlock::local::Semaphore::new(2);
            /// semaphore.try_acquire().unwrap().forget();
            /// assert!(semaphore.try_acquire_many(2).unwrap_err().is_would_block());
            /// semaphore.release(1).unwrap();
            /// assert_eq!(semaphore.try_acquire_many(2).unwrap().permits(), 2);
            /// ```
            pub fn forget(mut self) {
                self.share.forget(&self.$($permits).+);
            }

            /// Makes the permits another worker's, if the semaphore is [tracked](Semaphore::tracked): from now on that one inherits from who waits.
            ///
            /// ```
            /// use heirlock::{Worker, local::Semaphore};
            /// # use std::{future::Future, pin::pin, task::{Context, Waker}};
            /// let connections = Semaphore::new(1).tracked();
            /// let [first, second, high] = [("first", 0), ("second", 0), ("high", 9)].map(|(name, base)| Worker::new(name).priority(base));
            /// let permit = first.scope(|| connections.try_acquire()).unwrap();
            /// let mut wait = pin!(high.run(connections.acquire()));
            /// assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            /// permit.transfer_to(&second);
            /// assert_eq!([first, second].map(|worker| worker.effective_priority()), [0, 9]);
            /// # drop(permit);
            /// ```
            pub fn transfer_to(&self, worker: &Worker) {
                self.$($permits).+.transfer(self.share.permits, &self.share.holder, worker);
            }
        }

        impl Drop for $permit$(<$life>)? {
            #[inline]
            fn drop(&mut self) {
                self.share.give_back(&self.$($permits).+);
            }
        }

        impl fmt::Debug for $permit$(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($permit))
                    .field("semaphore", &self.$($permits).+.raw.name())
                    .field("permits", &self.share.permits)
                    .finish()
            }
        }
    };
}

/// One or more permits of a [`Semaphore`], until they are dropped.
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct SemaphorePermit<'a> {
    of: &'a Permits,
    share: Share,
}

permit!(SemaphorePermit<'_>, of);

impl<'a> SemaphorePermit<'a> {
    #[inline]
    pub(super) fn new(of: &'a Permits, held: Held) -> SemaphorePermit<'a> {
        SemaphorePermit { of, share: Share::new(held) }
    }

    /// So many of the permits apart; `None` if that would be none, or leave none.
    ///
    /// ```
    /// let semaphore = heirlock::local::Semaphore::new(3);
    /// let mut permits = semaphore.try_acquire_many(3).unwrap();
    /// drop(permits.split(2));
    /// assert_eq!((permits.permits(), semaphore.free_permits()), (1, 2));
    /// assert!(permits.split(1).is_none());
    /// ```
    pub fn split(&mut self, permits: u32) -> Option<SemaphorePermit<'a>> {
        let of = self.of;
        self.share.split(permits).map(|share| SemaphorePermit { of, share })
    }

    /// The other's permits become a part of these, and their holder's.
    ///
    /// # Panics
    /// If the other is of another semaphore.
    ///
    /// ```
    /// let semaphore = heirlock::local::Semaphore::new(2);
    /// let (mut one, other) = (semaphore.try_acquire().unwrap(), semaphore.try_acquire().unwrap());
    /// one.merge(other);
    /// drop(one);
    /// assert_eq!(semaphore.free_permits(), 2);
    /// ```
    pub fn merge(&mut self, mut other: SemaphorePermit<'a>) {
        assert!(ptr::eq(self.of, other.of), "permits of two semaphores cannot be merged");
        self.share.merge(self.of, &mut other.share);
    }
}

/// One or more permits of a [`Semaphore`] in an [`Arc`], until they are dropped.
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct OwnedSemaphorePermit {
    of: Arc<Semaphore>,
    share: Share,
}

permit!(OwnedSemaphorePermit, of.permits);

impl OwnedSemaphorePermit {
    pub(super) fn new(of: Arc<Semaphore>, held: Held) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit { of, share: Share::new(held) }
    }

    /// As [`SemaphorePermit::split`].
    pub fn split(&mut self, permits: u32) -> Option<OwnedSemaphorePermit> {
        let of = &self.of;
        self.share.split(permits).map(|share| OwnedSemaphorePermit { of: Arc::clone(of), share })
    }

    /// As [`SemaphorePermit::merge`].
    ///
    /// # Panics
    /// As there.
    pub fn merge(&mut self, mut other: OwnedSemaphorePermit) {
        assert!(Arc::ptr_eq(&self.of, &other.of), "permits of two semaphores cannot be merged");
        self.share.merge(&self.of.permits, &mut other.share);
    }
}
