//! `RwLock`: many readers, or one writer.

mod guards;
mod owned;
mod upgradable;

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::AsyncFnOnce;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

pub use self::guards::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard};
pub use self::owned::{OwnedMappedRwLockReadGuard, OwnedMappedRwLockWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
pub use self::upgradable::{OwnedRwLockUpgradableGuard, RwLockUpgradableGuard, Upgradable, Upgrade, UpgradedGuard};
use super::acquire::{Acquire, Exclusive, Sealed, Way, questions, setup};
use super::domain::Domain;
use super::graph::{Mode, Order};
use super::owned::AcquireOwned;
use super::raw::{Shared, Want, Word};
use super::sync::const_fn;
use super::wait::{Held, Unfinished, attempt};
use crate::Result;

/// A value that many may read at once, or one may write, and whose readers and writer inherit the priority of whoever waits for it.
///
/// The most urgent waiter is served first, whether it reads or writes: a reader waits behind a writer that is as urgent or more and came first, and
/// one that is more urgent than all writers in line joins the readers at once. A worker, a task or a blocking thread that reads may read again, also while a writer waits; an acquire outside of all
/// these is nobody's in particular, and waits. Who reads and
/// would write waits for itself: an explicit [`Worker`](crate::Worker) is refused with `Deadlock` at once. To look first and then write, acquire it
/// for that, by [`upgradable`](RwLock::upgradable).
///
/// Readers come and go with one compare-and-swap each, as long as nobody writes or waits and no more than eight read at once.
///
/// ```
/// use heirlock::local::RwLock;
/// # pollster::block_on(async {
/// static ROUTES: RwLock<Vec<&str>> = RwLock::named("routes", Vec::new());
/// ROUTES.write().await?.push("/");
/// let (one, other) = (ROUTES.read().await?, ROUTES.read().priority(10).await?);
/// assert_eq!(one.len() + other.len(), 2);
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct RwLock<T: ?Sized> {
    word: Shared,
    value: UnsafeCell<T>,
}

// SAFETY: the lock owns its value, so it may go wherever the value may.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: through a shared lock `&T` is handed out on several threads at once, so the value must be `Sync`; and a writer on any thread has a `&mut T`,
// so it must be `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The way of readers.
#[derive(Debug)]
pub enum Read {}

impl Way for Read {
    const MODE: Mode = Mode::Shared;
}

impl<T> RwLock<T> {
    const_fn! {
        /// A free lock in the global domain.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock { word: Shared::new(None), value: UnsafeCell::new(value) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str, value: T) -> RwLock<T> {
            RwLock { word: Shared::new(Some(name)), value: UnsafeCell::new(value) }
        }
    }

    setup!(RwLock, word, word.raw);

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Acquires the lock to read, beside other readers: a future that also has a priority, a deadline and a timeout. It does nothing before it is
    /// first polled; whose acquire it is, is settled then. What reads already as a worker, a task or a thread reads again at once, whoever waits.
    ///
    /// # Errors
    /// `Timeout` when its time is over first; `Deadlock`, naming the cycle, when waiting would never end; `Poisoned` where a writer panicked.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: what it was just granted goes on to the next. A place in the queue is lost.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> Acquire<'_, RwLock<T>, Read> {
        Acquire::new(self, Location::caller())
    }

    /// Acquires the lock to write, beside nobody. As [`read`](RwLock::read) otherwise.
    ///
    /// # Errors
    /// As [`read`](RwLock::read). An explicit worker that reads the lock gets `Deadlock` at once.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    ///
    /// ```
    /// use heirlock::{Worker, local::RwLock};
    /// # pollster::block_on(Worker::new("main").run(async {
    /// let routes = RwLock::new(vec!["/"]);
    /// routes.write().await?.push("/about");
    /// let reader = routes.read().await?;
    /// assert!(routes.write().await.unwrap_err().is_deadlock());
    /// # drop(reader);
    /// # Ok::<(), heirlock::Error>(()) })).unwrap();
    /// ```
    #[inline]
    #[track_caller]
    pub fn write(&self) -> Acquire<'_, RwLock<T>> {
        Acquire::new(self, Location::caller())
    }

    /// Acquires the lock to read, and perhaps [to write](RwLockUpgradableGuard::upgrade) what was read, without anybody else writing it in between;
    /// beside readers, but beside no other that may write. As [`read`](RwLock::read) otherwise.
    ///
    /// # Errors
    /// As [`read`](RwLock::read). An explicit worker that has the lock upgradable gets `Deadlock` at once.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    #[track_caller]
    pub fn upgradable(&self) -> Acquire<'_, RwLock<T>, Upgradable> {
        Acquire::new(self, Location::caller())
    }

    /// Runs the closure on the value, and the lock is written that long. If the lock is [`poisoning`](RwLock::poisoning), work that is dropped
    /// unfinished poisons it, as a panic does.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    ///
    /// # Cancel safety
    /// While it waits, as [`write`](RwLock::write); from then on as the closure's future.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let list = heirlock::local::RwLock::new(vec![1]);
    /// let length = list.with(async |list| { list.push(2); list.len() }).await?;
    /// assert_eq!((length, list.read().await?.len()), (2, 2));
    /// # Ok::<(), heirlock::Error>(()) }).unwrap();
    /// ```
    #[track_caller]
    pub fn with<R>(&self, work: impl AsyncFnOnce(&mut T) -> R) -> impl Future<Output = Result<R>> {
        let acquire = self.write();
        async move {
            let mut guard = acquire.await?;
            let unfinished = Unfinished::of(&self.word.raw);
            let result = work(&mut guard).await;
            unfinished.finished();
            Ok(result)
        }
    }

    /// As [`read`](RwLock::read), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`read`](RwLock::read).
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    ///
    /// ```
    /// use heirlock::local::RwLock;
    /// use std::sync::Arc;
    /// let lock = Arc::new(RwLock::new(1));
    /// let guard = pollster::block_on(lock.read_owned()).unwrap();
    /// let read = std::thread::spawn(move || *guard).join().unwrap();
    /// assert_eq!((read, lock.is_locked()), (1, false));
    /// ```
    #[track_caller]
    pub fn read_owned(self: &Arc<Self>) -> AcquireOwned<RwLock<T>, Read> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// As [`write`](RwLock::write), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`write`](RwLock::write).
    ///
    /// # Cancel safety
    /// As [`write`](RwLock::write).
    #[track_caller]
    pub fn write_owned(self: &Arc<Self>) -> AcquireOwned<RwLock<T>> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// As [`upgradable`](RwLock::upgradable), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`upgradable`](RwLock::upgradable).
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    ///
    /// ```
    /// use heirlock::local::RwLock;
    /// use std::sync::Arc;
    /// let lock = Arc::new(RwLock::new(1));
    /// let mut guard = pollster::block_on(lock.upgradable_owned()).unwrap();
    /// std::thread::spawn(move || *guard.upgrade().blocking().unwrap() += 1).join().unwrap();
    /// assert_eq!(*lock.try_read().unwrap(), 2);
    /// ```
    #[track_caller]
    pub fn upgradable_owned(self: &Arc<Self>) -> AcquireOwned<RwLock<T>, Upgradable> {
        AcquireOwned::new(Arc::clone(self), Location::caller())
    }

    /// Acquires the lock to read if nobody writes it or waits for it. What reads already as a worker, a task or a thread always gets it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise; `Poisoned` where a writer panicked.
    ///
    /// ```
    /// let lock = heirlock::local::RwLock::new(3);
    /// let (one, other) = (lock.try_read().unwrap(), lock.try_read().unwrap());
    /// assert_eq!(*one, *other);
    /// assert!(lock.try_write().unwrap_err().is_would_block());
    /// ```
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>> {
        attempt(&self.word, Want::mode(Mode::Shared), Location::caller()).map(|held| Sealed::<Read>::guard(self, held))
    }

    /// Acquires the lock to write if nobody holds it or waits for it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise; `Poisoned` where a writer panicked.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>> {
        attempt(&self.word, Want::ONE, Location::caller()).map(|held| Sealed::<Exclusive>::guard(self, held))
    }

    /// Acquires the lock upgradable if nobody writes it, may write it, or waits for it.
    ///
    /// # Errors
    /// `WouldBlock` otherwise; `Poisoned` where a writer panicked.
    ///
    /// ```
    /// let lock = heirlock::local::RwLock::new(3);
    /// let (guard, reader) = (lock.try_upgradable().unwrap(), lock.try_read().unwrap());
    /// assert_eq!(*guard, *reader);
    /// assert!(lock.try_upgradable().unwrap_err().is_would_block());
    /// ```
    #[track_caller]
    pub fn try_upgradable(&self) -> Result<RwLockUpgradableGuard<'_, T>> {
        attempt(&self.word, Want::mode(Mode::Upgradable), Location::caller()).map(|held| Sealed::<Upgradable>::guard(self, held))
    }

    /// As [`try_read`](RwLock::try_read), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_read`](RwLock::try_read).
    ///
    /// ```
    /// let lock = std::sync::Arc::new(heirlock::local::RwLock::new(3));
    /// let guard = lock.try_read_owned().unwrap();
    /// assert!(lock.try_write_owned().unwrap_err().is_would_block());
    /// assert_eq!(std::thread::spawn(move || *guard).join().unwrap(), 3);
    /// ```
    #[track_caller]
    pub fn try_read_owned(self: &Arc<Self>) -> Result<OwnedRwLockReadGuard<T>> {
        attempt(&self.word, Want::mode(Mode::Shared), Location::caller()).map(|held| Sealed::<Read>::owned_guard(Arc::clone(self), held))
    }

    /// As [`try_write`](RwLock::try_write), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_write`](RwLock::try_write).
    #[track_caller]
    pub fn try_write_owned(self: &Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>> {
        attempt(&self.word, Want::ONE, Location::caller()).map(|held| Sealed::<Exclusive>::owned_guard(Arc::clone(self), held))
    }

    /// As [`try_upgradable`](RwLock::try_upgradable), with a guard that keeps the lock alive and may go anywhere.
    ///
    /// # Errors
    /// As [`try_upgradable`](RwLock::try_upgradable).
    #[track_caller]
    pub fn try_upgradable_owned(self: &Arc<Self>) -> Result<OwnedRwLockUpgradableGuard<T>> {
        let held = attempt(&self.word, Want::mode(Mode::Upgradable), Location::caller())?;
        Ok(Sealed::<Upgradable>::owned_guard(Arc::clone(self), held))
    }

    /// Acquires the lock to read on this thread, for code that is not async: [`read`](RwLock::read) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    ///
    /// ```
    /// let lock = heirlock::local::RwLock::new(3);
    /// assert_eq!(*lock.read_blocking().unwrap(), 3);
    /// ```
    #[track_caller]
    pub fn read_blocking(&self) -> Result<RwLockReadGuard<'_, T>> {
        self.read().blocking()
    }

    /// Acquires the lock to write on this thread, for code that is not async: [`write`](RwLock::write) with [`Acquire::blocking`].
    ///
    /// # Errors
    /// As [`Acquire::blocking`].
    #[track_caller]
    pub fn write_blocking(&self) -> Result<RwLockWriteGuard<'_, T>> {
        self.write().blocking()
    }

    questions!(RwLock, word.raw);

    /// Where the value is. To be dereferenced by holders only.
    #[inline]
    fn value(&self) -> NonNull<T> {
        // SAFETY: the pointer of a cell is never null.
        unsafe { NonNull::new_unchecked(self.value.get()) }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        out.field("name", &self.name());
        match self.try_read() {
            Ok(guard) => out.field("value", &&*guard),
            Err(_) => out.field("value", &format_args!("<locked>")),
        };
        out.finish()
    }
}

/// What the lock gives to who acquires it in each way.
macro_rules! gives {
    ($($way:ident: $guard:ident, $owned:ident;)*) => {
        $(impl<T: ?Sized> Sealed<$way> for RwLock<T> {
            type Guard<'a>
                = $guard<'a, T>
            where
                T: 'a;

            type Word = Shared;

            #[inline]
            fn word(&self) -> &Shared {
                &self.word
            }

            #[inline]
            fn guard(&self, held: Held) -> $guard<'_, T> {
                $guard::new(&self.word, self.value(), held)
            }

            type OwnedGuard = $owned<T>;

            fn owned_guard(self: Arc<Self>, held: Held) -> $owned<T> {
                $owned::new(self, held)
            }
        })*
    };
}

gives! {
    Read: RwLockReadGuard, OwnedRwLockReadGuard;
    Upgradable: RwLockUpgradableGuard, OwnedRwLockUpgradableGuard;
    Exclusive: RwLockWriteGuard, OwnedRwLockWriteGuard;
}
