//! `OnceCell`: a value that is made once.

mod initialise;

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::sync::atomic::Ordering;

pub use self::initialise::Initialise;
use self::initialise::{Fallible, Sure};
use super::domain::Domain;
use super::graph::{Kind, Order};
use super::raw::{Raw, Want};
use super::sync::{AtomicBool, const_fn};
use super::wait::{Held, attempt};
use crate::Error;

/// A value that is made by the first who needs it, while the others wait, and from then on is read without waiting.
///
/// Whoever makes it holds the cell like a lock: it inherits the priority of whoever waits, and an explicit worker whose wait would close a cycle,
/// such as by asking for the cell within its own initialisation, gets `Deadlock`. Who fails, panics or is cancelled leaves the next to try. Once
/// there is a value, all who wait go on at once.
///
/// ```
/// use heirlock::local::OnceCell;
/// static ADDRESS: OnceCell<String> = OnceCell::named("address");
/// # async fn look_up() -> String { "10.0.0.1".into() }
/// # pollster::block_on(async {
/// let address = ADDRESS.get_or_init(async || look_up().await).await?;
/// assert_eq!((address.as_str(), ADDRESS.get().is_some()), ("10.0.0.1", true));
/// # Ok::<(), heirlock::Error>(()) }).unwrap();
/// ```
pub struct OnceCell<T> {
    raw: Raw,
    /// Whether there is a value. Set once, by who holds the cell, after the value was written; the value is never written again while the cell is
    /// shared.
    set: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: through a shared cell `&T` is handed out on several threads, so the value must be `Sync`; and whoever makes it may be on another thread
// than who drops it, so it must be `Send`.
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}

impl<T> OnceCell<T> {
    const_fn! {
        /// An empty cell in the global domain.
        pub const fn new() -> OnceCell<T> {
            OnceCell { raw: Raw::new(Kind::Once, None), set: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    const_fn! {
        /// The same with a name, by which errors and snapshots call it.
        pub const fn named(name: &'static str) -> OnceCell<T> {
            OnceCell { raw: Raw::new(Kind::Once, Some(name)), set: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// A cell that has this value, if any.
    pub fn new_with(value: Option<T>) -> OnceCell<T> {
        let mut cell = OnceCell::new();
        if let Some(value) = value {
            cell.value.get_mut().write(value);
            cell.set.store(true, Ordering::Relaxed);
            cell.raw.set_over(true);
        }
        cell
    }

    /// The cell in another domain.
    #[must_use]
    pub fn in_domain(mut self, domain: &Domain) -> OnceCell<T> {
        self.raw.set_domain(domain);
        self
    }

    /// Who makes the value next, should an initialisation fail; in its domain's order if nothing is said, which is by priority unless changed.
    #[must_use]
    pub const fn order(mut self, order: Order) -> OnceCell<T> {
        self.raw.set_order(order);
        self
    }

    /// Its name.
    pub fn name(&self) -> Option<&'static str> {
        self.raw.name()
    }

    /// The value, if it is there: one load.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // What was written before the flag was set is seen by who sees it set.
        if !self.set.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the flag is set after the value was written, and both stay while the cell is shared.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// The value, if it is there.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if !self.set.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the flag is set after the value was written.
        Some(unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// Sets the value, if there is none and nobody is making one. All who wait for it go on.
    ///
    /// # Errors
    /// The value itself otherwise.
    ///
    /// ```
    /// let cell = heirlock::local::OnceCell::new();
    /// assert_eq!((cell.set(1), cell.set(2)), (Ok(()), Err(2)));
    /// assert_eq!(cell.get(), Some(&1));
    /// ```
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.set.load(Ordering::Acquire) {
            return Err(value);
        }
        let Ok(held) = attempt(&self.raw, Want::ONE, Location::caller()) else { return Err(value) };
        match self.let_in(held) {
            Ok(_) => Err(value),
            Err(maker) => {
                maker.set(value);
                Ok(())
            }
        }
    }

    /// For who was let in: the value, if it has come since this one looked, for then the cell is over and this one does not hold it; or else the duty
    /// to make it. Whoever got the cell sees what its holders before it did.
    fn let_in(&self, held: Held) -> Result<&T, Maker<'_, T>> {
        match self.get() {
            Some(value) => Ok(value),
            None => Err(Maker(self, held)),
        }
    }

    /// The value; if there is none, the closure's future makes it, or whoever is making it is waited for. The closure is called at most once: `async
    /// || ..`, or a function that gives a future. Nothing happens before the first poll; whose call it is, is settled then.
    ///
    /// What is said with [`priority`](Initialise::priority), [`timeout`](Initialise::timeout) and [`deadline`](Initialise::deadline) is of the
    /// wait for others. One's own initialisation takes as long as it takes.
    ///
    /// # Errors
    /// `Timeout` when it has waited for too long; `Deadlock`, naming the cycle, when waiting would never end.
    ///
    /// # Panics
    /// If the closure or its future does; the next who waits tries then.
    ///
    /// # Cancel safety
    /// Dropping the future in whatever state leaves nothing behind: an initialisation under way is dropped, and the next who waits tries with its own.
    ///
    /// ```
    /// use heirlock::{Worker, local::OnceCell};
    /// static CONFIG: OnceCell<u32> = OnceCell::named("config");
    /// # pollster::block_on(Worker::new("main").run(async {
    /// // Within its own initialisation it would wait for ever.
    /// let error = CONFIG.get_or_try_init(async || CONFIG.get_or_init(async || 1).await.copied()).await.unwrap_err();
    /// assert!(error.is_deadlock());
    /// assert_eq!(*CONFIG.get_or_init(async || 2).await?, 2);
    /// # Ok::<(), heirlock::Error>(()) })).unwrap();
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_init<F, Fut>(&self, make: F) -> Initialise<'_, T, F, Fut, Sure>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T>,
    {
        Initialise::new(self, make, Location::caller())
    }

    /// As [`get_or_init`](OnceCell::get_or_init), with an initialisation that may fail. Then the next who waits tries.
    ///
    /// # Errors
    /// Those of the closure's future, and as [`get_or_init`](OnceCell::get_or_init).
    ///
    /// # Panics
    /// As [`get_or_init`](OnceCell::get_or_init).
    ///
    /// # Cancel safety
    /// As [`get_or_init`](OnceCell::get_or_init).
    #[inline]
    #[track_caller]
    pub fn get_or_try_init<F, Fut, E>(&self, make: F) -> Initialise<'_, T, F, Fut, Fallible<E>>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        Initialise::new(self, make, Location::caller())
    }

    /// The value, if it is there, out of the cell.
    pub fn into_inner(mut self) -> Option<T> {
        self.take_out()
    }

    /// The value, if it is there; the cell is empty again.
    pub fn take(&mut self) -> Option<T> {
        let value = self.take_out()?;
        self.raw.set_over(false);
        Some(value)
    }

    /// The same for who does not use the cell any more.
    fn take_out(&mut self) -> Option<T> {
        if !self.set.load(Ordering::Relaxed) {
            return None;
        }
        self.set.store(false, Ordering::Relaxed);
        // SAFETY: the flag was set after the value was written, and is not set any more, so the value is taken once.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }
}

impl<T> Drop for OnceCell<T> {
    fn drop(&mut self) {
        drop(self.take_out());
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> OnceCell<T> {
        OnceCell::new()
    }
}

impl<T> From<T> for OnceCell<T> {
    fn from(value: T) -> OnceCell<T> {
        OnceCell::new_with(Some(value))
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("OnceCell");
        out.field("name", &self.raw.name());
        match self.get() {
            Some(value) => out.field("value", value),
            None => out.field("value", &format_args!("<unset>")),
        };
        out.finish_non_exhaustive()
    }
}

/// Who holds the cell. Dropped without having set it, the next may try.
struct Maker<'c, T>(&'c OnceCell<T>, Held);

impl<'c, T> Maker<'c, T> {
    /// Sets the value, and everybody goes on.
    fn set(self, value: T) -> &'c T {
        let Maker(cell, _) = self;
        // From here on the cell is given up for good instead: by the end of this, whatever a waker does.
        std::mem::forget(self);
        // SAFETY: who holds the cell is alone in writing it, and nobody reads it before the flag is set. It was not set before: a maker is made by who
        // was let in and then found the flag unset, so it holds the cell, and only a maker sets it.
        let value = unsafe { (*cell.value.get()).write(value) };
        // After the value and before the waits end: who is woken by that, or finds the cell over, finds the value.
        cell.set.store(true, Ordering::Release);
        cell.raw.release_for_good();
        value
    }
}

impl<T> Drop for Maker<'_, T> {
    fn drop(&mut self) {
        self.0.raw.release(1, self.1);
    }
}
