//! Readers that may become the writer.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use super::RwLock;
use super::guards::RwLockReadGuard;
use super::owned::OwnedRwLockReadGuard;
use crate::local::acquire::{Way, options};
use crate::local::graph::Mode;
use crate::local::raw::{Shared, Site, Upgrading, Want};
use crate::local::wait::{Held, Wait, attempt};
use crate::{Result, Worker};

/// The way of a reader that may become the writer.
#[derive(Debug)]
pub enum Upgradable {}

impl Way for Upgradable {
    const MODE: Mode = Mode::Upgradable;
}

macro_rules! upgradable {
    ($guard:ident $(<$life:lifetime>)?, $($word:ident).+) => {
        impl<$($life,)? T: ?Sized> $guard<$($life,)? T> {
            /// Waits until all other readers have gone, and then writes, until the guard that this gives is dropped: a future that also has a
            /// priority, a deadline and a timeout. From its first poll on no new reader comes in, and it is
            /// before all who wait.
            ///
            /// ```
            /// use heirlock::local::RwLock;
            /// # pollster::block_on(async {
            /// let cache = RwLock::new(None);
            /// let mut guard = cache.upgradable().await?;
            /// if guard.is_none() {
            ///     *guard.upgrade().await? = Some("made once");
            /// }
            /// assert_eq!(*guard, Some("made once"));
            /// # Ok::<(), heirlock::Error>(()) }).unwrap();
            /// ```
            ///
            /// # Errors
            /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end, such as for a read guard of the
            /// same explicit worker; `Poisoned` as ever. The upgradable hold stays in any case.
            ///
            /// # Cancel safety
            /// Dropping the future in whatever state leaves the upgradable hold as it was.
            #[track_caller]
            pub fn upgrade(&mut self) -> Upgrade<'_, T> {
                Upgrade::new(&self.$($word).+, self.value, *self.holder.get_mut(), Location::caller())
            }

            /// Writes, if there are no other readers, until the guard that this gives is dropped.
            ///
            /// # Errors
            /// `WouldBlock` otherwise, such as for a read guard of the same worker; `Poisoned` where a writer panicked. The upgradable hold stays.
            ///
            /// ```
            /// let lock = heirlock::local::RwLock::named("table", 1);
            /// let (mut guard, reader) = (lock.try_upgradable().unwrap(), lock.try_read().unwrap());
            /// assert_eq!(guard.try_upgrade().unwrap_err().to_string(), "lock \"table\" has other read guards");
            /// drop(reader);
            /// *guard.try_upgrade().unwrap() = 2;
            /// assert_eq!(*guard, 2);
            /// ```
            #[track_caller]
            pub fn try_upgrade(&mut self) -> Result<UpgradedGuard<'_, T>> {
                let (word, holder) = (&self.$($word).+, *self.holder.get_mut());
                let held = attempt(&Upgrading::new(word, holder), Want::ONE, Location::caller())?;
                Ok(UpgradedGuard::new(word, self.value, holder, held))
            }

            /// Makes the hold another worker's: from now on that one inherits from who waits, and is named by errors and snapshots. An upgrade of this
            /// guard that was forgotten ends.
            ///
            /// ```
            /// use heirlock::{Worker, local::RwLock};
            /// # pollster::block_on(async {
            /// let (first, second, lock) = (Worker::new("first"), Worker::new("second"), RwLock::new(()));
            /// let guard = first.run(lock.upgradable()).await?;
            /// guard.transfer_to(&second);
            /// assert!(second.run(lock.upgradable()).await.unwrap_err().is_deadlock());
            /// # Ok::<(), heirlock::Error>(()) }).unwrap();
            /// ```
            pub fn transfer_to(&self, worker: &Worker) {
                self.$($word).+.transfer_upgradable(&self.holder, worker);
            }
        }

        impl<$($life,)? T: ?Sized> Deref for $guard<$($life,)? T> {
            type Target = T;

            fn deref(&self) -> &T {
                // SAFETY: while this guard lives nobody writes but who was upgraded from it, and that one borrows it exclusively.
                unsafe { self.value.as_ref() }
            }
        }

        impl<$($life,)? T: ?Sized> Drop for $guard<$($life,)? T> {
            fn drop(&mut self) {
                let holder = *self.holder.get_mut();
                if holder != 0 {
                    self.$($word).+.release_upgradable(holder);
                }
            }
        }

        impl<$($life,)? T: ?Sized + fmt::Debug> fmt::Debug for $guard<$($life,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        // SAFETY: a guard gives `&T`, and while it is borrowed exclusively `&mut T`.
        unsafe impl<$($life,)? T: ?Sized + Send + Sync> Send for $guard<$($life,)? T> {}
        // SAFETY: a shared guard gives `&T` only.
        unsafe impl<$($life,)? T: ?Sized + Sync> Sync for $guard<$($life,)? T> {}
    };
}

/// The right to read the value of a [`RwLock`] beside other readers, and to become its writer, which no other has at the same time; until it is
/// dropped. The hold stays its acquirer's wherever the guard goes, unless it is [transferred](RwLockUpgradableGuard::transfer_to).
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct RwLockUpgradableGuard<'a, T: ?Sized> {
    word: &'a Shared,
    /// Not a reference, as who is upgraded writes it.
    value: NonNull<T>,
    /// The graph's number of the worker, 0 once the hold is another guard's. Guards are shared by threads, and may be transferred by several; changed
    /// under the mutex of the domain.
    holder: AtomicU64,
    marker: PhantomData<&'a mut T>,
}

upgradable!(RwLockUpgradableGuard<'a>, word);

impl<'a, T: ?Sized> RwLockUpgradableGuard<'a, T> {
    pub(super) fn new(word: &'a Shared, value: NonNull<T>, held: Held) -> RwLockUpgradableGuard<'a, T> {
        RwLockUpgradableGuard::with(word, value, held.word().unwrap_or(0))
    }

    pub(super) fn with(word: &'a Shared, value: NonNull<T>, holder: u64) -> RwLockUpgradableGuard<'a, T> {
        RwLockUpgradableGuard { word, value, holder: AtomicU64::new(holder), marker: PhantomData }
    }

    /// Reads only, from now on.
    #[track_caller]
    pub fn downgrade(mut guard: Self) -> RwLockReadGuard<'a, T> {
        let holder = guard.holder.get_mut();
        let number = guard.word.downgrade_upgradable(*holder, Location::caller());
        // Its hold is the reader's now.
        *holder = 0;
        RwLockReadGuard::with(guard.word, guard.value, number)
    }
}

/// The same of a [`RwLock`] in an [`Arc`].
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct OwnedRwLockUpgradableGuard<T: ?Sized> {
    lock: Arc<RwLock<T>>,
    value: NonNull<T>,
    holder: AtomicU64,
}

upgradable!(OwnedRwLockUpgradableGuard, lock.word);

impl<T: ?Sized> OwnedRwLockUpgradableGuard<T> {
    pub(super) fn new(lock: Arc<RwLock<T>>, held: Held) -> OwnedRwLockUpgradableGuard<T> {
        OwnedRwLockUpgradableGuard::with(lock, held.word().unwrap_or(0))
    }

    pub(super) fn with(lock: Arc<RwLock<T>>, holder: u64) -> OwnedRwLockUpgradableGuard<T> {
        let value = lock.value();
        OwnedRwLockUpgradableGuard { lock, value, holder: AtomicU64::new(holder) }
    }

    /// Reads only, from now on.
    #[track_caller]
    pub fn downgrade(mut guard: Self) -> OwnedRwLockReadGuard<T> {
        let holder = guard.holder.get_mut();
        let number = guard.lock.word.downgrade_upgradable(*holder, Location::caller());
        // Its hold is the reader's now.
        *holder = 0;
        OwnedRwLockReadGuard::with(Arc::clone(&guard.lock), number)
    }
}

/// The future of [`RwLockUpgradableGuard::upgrade`]. What is said of it after its first poll changes nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Upgrade<'g, T: ?Sized> {
    word: &'g Shared,
    value: NonNull<T>,
    holder: u64,
    wait: Wait,
    marker: PhantomData<&'g mut T>,
}

// SAFETY: it gives a `&mut T` to whoever polls it, and holds nothing else that could not be sent.
unsafe impl<T: ?Sized + Send + Sync> Send for Upgrade<'_, T> {}

impl<'g, T: ?Sized> Upgrade<'g, T> {
    fn new(word: &'g Shared, value: NonNull<T>, holder: u64, site: Site) -> Upgrade<'g, T> {
        Upgrade { word, value, holder, wait: Wait::new(site), marker: PhantomData }
    }

    options!();

    /// Waits on this thread instead of being polled.
    ///
    /// One that was polled before goes on from there: granted meanwhile, it is upgraded at once. So it is where an earlier one of this guard was granted
    /// and then forgotten ([`std::mem::forget`]), untaken.
    ///
    /// # Errors
    /// As of `upgrade()`, and `WouldBlock` within an async runtime if it would have to wait.
    pub fn blocking(mut self) -> Result<UpgradedGuard<'g, T>> {
        self.wait.block(&Upgrading::new(self.word, self.holder)).map(|held| UpgradedGuard::new(self.word, self.value, self.holder, held))
    }
}

impl<'g, T: ?Sized> Future for Upgrade<'g, T> {
    type Output = Result<UpgradedGuard<'g, T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Upgrade { word, value, holder, ref mut wait, .. } = *self;
        wait.poll(&Upgrading::new(word, holder), cx).map_ok(|held| UpgradedGuard::new(word, value, holder, held))
    }
}

impl<T: ?Sized> Drop for Upgrade<'_, T> {
    fn drop(&mut self) {
        self.wait.cancel(&Upgrading::new(self.word, self.holder));
    }
}

impl<T: ?Sized> fmt::Debug for Upgrade<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgrade").field("name", &self.word.raw.name()).field("wait", &self.wait).finish_non_exhaustive()
    }
}

/// The right to write the value of a [`RwLock`], until it is dropped; then the guard that was upgraded is upgradable again.
#[must_use = "the lock is upgradable again as soon as this is dropped"]
pub struct UpgradedGuard<'g, T: ?Sized> {
    word: &'g Shared,
    value: NonNull<T>,
    holder: u64,
    held: Held,
    marker: PhantomData<&'g mut T>,
}

// SAFETY: a guard is a `&mut T` and a `&Shared`, which is `Sync`.
unsafe impl<T: ?Sized + Send> Send for UpgradedGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for UpgradedGuard<'_, T> {}

impl<'g, T: ?Sized> UpgradedGuard<'g, T> {
    fn new(word: &'g Shared, value: NonNull<T>, holder: u64, held: Held) -> UpgradedGuard<'g, T> {
        UpgradedGuard { word, value, holder, held, marker: PhantomData }
    }
}

impl<T: ?Sized> Deref for UpgradedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: it exists for the lock's one holder only, and while it is borrowed shared, no `&mut` of the value can come from it.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for UpgradedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it exists for the lock's one holder only, and it is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> Drop for UpgradedGuard<'_, T> {
    fn drop(&mut self) {
        if !self.word.raw.poison.is_off() && self.held.is_dropped_by_a_panic() {
            self.word.raw.left(false);
        }
        self.word.downgrade_upgraded(self.holder);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for UpgradedGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
