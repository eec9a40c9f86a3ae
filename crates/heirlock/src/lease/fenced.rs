//! A value in memory that only who shows a good fence may touch.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fences::Fences;
use super::key::Key;
use super::sequencer::Sequencer;
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// A value in memory that is guarded by leases on one key, and refuses every holder that is too late, whether it knows that or not.
///
/// A lease alone cannot do that: a holder that is stopped between its last look at the clock and its write writes when another holds already.
/// Here every access checks the fence in the same step, so exclusion is exact. There is no way to the value but by a [`Fenced`], and nobody gets
/// one without telling the cell its fence first: so the fence is known before the first read.
///
/// It is for values that outlive the leases on them: state of a server whose clients hold the leases and show their [`Sequencer`] with each
/// request, or of workers of one process that hang for longer than they hold. All leases must be on the same key, of the same store. [`Fences`] says
/// what is refused.
///
/// ```
/// use heirlock::lease::FencedCell;
/// # use heirlock::{Locks, lease::Evict, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// # let locks = Locks::new(MemoryStore::new()).await?;
/// let report = FencedCell::new("report", Vec::new())?;
///
/// let first = locks.lock("report").await?;
/// let pages = report.advance(&first)?;
/// pages.write(|pages| pages.push("by the first"))?;
///
/// // It loses the key without noticing, and another gets it.
/// # locks.evict("report", Evict { fence: None, force: true }).await?;
/// let second = locks.lock("report").await?;
/// let new = report.advance(&second)?;
/// assert!(pages.write(|pages| pages.push("too late")).unwrap_err().is_lost());
/// assert_eq!(new.read(|pages| pages.clone())?, ["by the first"]);
/// # Ok(()) }
/// ```
///
/// Accesses exclude each other by a mutex, for as long as a closure runs; so closures should be short, and cannot await. One that panics leaves the
/// value as it is at that moment: nothing is poisoned.
pub struct FencedCell<T: ?Sized> {
    /// The thread that is in a closure, as [`here`] numbers it; 0 if none is.
    inside: AtomicUsize,
    state: Mutex<State<T>>,
}

struct State<T: ?Sized> {
    fences: Fences,
    value: T,
}

impl<T> FencedCell<T> {
    /// A cell that is guarded by leases on this key, and has been shown no fence.
    ///
    /// # Errors
    /// `Invalid` for what is no key.
    pub fn new(key: impl AsRef<str>, value: T) -> Result<FencedCell<T>> {
        Ok(FencedCell::with_fences(Fences::new(Key::new(key)?), value))
    }

    /// A cell whose value comes from elsewhere, with the fences that were kept beside it.
    ///
    /// ```
    /// use heirlock::lease::FencedCell;
    /// # use heirlock::{Locks, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// # let (old, new) = { let old = locks.lock("count").await?; let shown = old.sequencer(); drop(old); (shown, locks.lock("count").await?) };
    /// let count = FencedCell::new("count", 1)?;
    /// count.advance(&new)?;
    /// let kept = count.fences()?;
    ///
    /// let count = FencedCell::with_fences(kept, count.into_inner());
    /// assert!(count.advance(&old).unwrap_err().is_lost());
    /// # Ok(()) }
    /// ```
    pub fn with_fences(fences: Fences, value: T) -> FencedCell<T> {
        FencedCell { inside: AtomicUsize::new(0), state: Mutex::new(State { fences, value }) }
    }

    /// The value. Who owns the cell needs no fence.
    pub fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).value
    }
}

impl<T: ?Sized> FencedCell<T> {
    /// The value. Who has the whole cell to itself needs no fence.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).value
    }

    /// A holder comes: from here on all before it are refused, and it may read and write. To come again changes nothing.
    ///
    /// # Errors
    /// `Lost` for a fence that is older than what was shown, or that another holder has shown; `Invalid` for a lease on another key; `Deadlock`
    /// within a closure of this cell.
    pub fn advance(&self, by: impl Into<Sequencer>) -> Result<Fenced<'_, T>> {
        let by = by.into();
        self.enter()?.state.fences.advance(&by)?;
        Ok(Fenced { cell: self, by })
    }

    /// A holder goes on, that has advanced already: for a server that is shown the fence anew with every request. Where requests can come in
    /// another order than they were sent, the first that a client sends should advance and be answered before it sends others.
    ///
    /// # Errors
    /// As [`FencedCell::advance`]; and `Invalid` for a holder that has not advanced.
    ///
    /// ```
    /// use heirlock::lease::FencedCell;
    /// let count = FencedCell::new("count", 1)?;
    /// let shown = "5 exclusive 0123456789abcdef count".parse::<heirlock::lease::Sequencer>()?;
    /// assert!(count.check(&shown).unwrap_err().is_invalid());
    /// count.advance(&shown)?;
    /// assert_eq!(count.check(&shown)?.read(|count| *count)?, 1);
    /// # Ok::<(), heirlock::Error>(())
    /// ```
    pub fn check(&self, by: impl Into<Sequencer>) -> Result<Fenced<'_, T>> {
        let by = by.into();
        self.enter()?.state.fences.check(&by)?;
        Ok(Fenced { cell: self, by })
    }

    /// What it has been shown, to look at or to be kept beside the value.
    ///
    /// # Errors
    /// `Deadlock` within a closure of this cell.
    pub fn fences(&self) -> Result<Fences> {
        Ok(self.enter()?.state.fences.clone())
    }

    fn enter(&self) -> Result<Inside<'_, T>> {
        let here = here();
        // Only this thread writes its own number, and it takes it away before it lets go of the mutex: so it reads what it wrote last, and no
        // other thread's number can be mistaken for it. That asks for no order with anything else.
        if self.inside.load(Ordering::Relaxed) == here {
            return Err(Error::new(
                Kind::Deadlock,
                "this thread is within a closure of this very cell, and would wait for itself: end that one first",
            ));
        }
        let state = lock(&self.state);
        self.inside.store(here, Ordering::Relaxed);
        Ok(Inside { inside: &self.inside, state })
    }
}

/// The value is shown to nobody without a fence.
impl<T: ?Sized> fmt::Debug for FencedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fences() {
            Ok(fences) => write!(f, "FencedCell({}, fence {})", fences.key(), fences.newest()),
            Err(_) => f.write_str("FencedCell(in use)"),
        }
    }
}

/// The mutex with the mark of who has it, which goes before the mutex does, also when a closure panics.
struct Inside<'c, T: ?Sized> {
    inside: &'c AtomicUsize,
    state: MutexGuard<'c, State<T>>,
}

impl<T: ?Sized> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.inside.store(0, Ordering::Relaxed);
    }
}

/// A number that no other living thread has: where something of its own is.
fn here() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// A holder's access to a [`FencedCell`], until one comes that refuses it. Each access checks that.
pub struct Fenced<'c, T: ?Sized> {
    cell: &'c FencedCell<T>,
    by: Sequencer,
}

impl<T: ?Sized> Fenced<'_, T> {
    /// Reads the value.
    ///
    /// # Errors
    /// `Lost` once a newer holder has advanced, and `read` is then not called; `Deadlock` within a closure of this cell.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R> {
        let inside = self.enter()?;
        Ok(read(&inside.state.value))
    }

    /// Changes the value.
    ///
    /// # Errors
    /// `Lost` once a newer holder has advanced, and `write` is then not called; `Invalid` for a reader's lease; `Deadlock` within a closure of this
    /// cell.
    ///
    /// ```
    /// # use heirlock::{Locks, lease::FencedCell, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// let count = FencedCell::new("count", 1)?;
    /// let reader = locks.lock("count").shared().await?;
    /// let seen = count.advance(&reader)?;
    /// assert_eq!(seen.read(|count| *count)?, 1);
    /// assert!(seen.write(|count| *count += 1).unwrap_err().is_invalid());
    /// # Ok(()) }
    /// ```
    pub fn write<R>(&self, write: impl FnOnce(&mut T) -> R) -> Result<R> {
        if !self.by.may_write() {
            let key = self.by.key();
            return Err(Error::new(Kind::Invalid, format!("a reader's lease on {key} lets nobody write: take an exclusive one")));
        }
        let mut inside = self.enter()?;
        Ok(write(&mut inside.state.value))
    }

    /// Whether it may still go on. What is read and written later is checked then.
    ///
    /// # Errors
    /// `Lost` once a newer holder has advanced; `Deadlock` within a closure of this cell.
    pub fn check(&self) -> Result<()> {
        self.enter().map(drop)
    }

    /// What was shown.
    pub fn sequencer(&self) -> &Sequencer {
        &self.by
    }

    fn enter(&self) -> Result<Inside<'_, T>> {
        let inside = self.cell.enter()?;
        inside.state.fences.check(&self.by)?;
        Ok(inside)
    }
}

impl<T: ?Sized> fmt::Debug for Fenced<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fenced").field(&self.by).finish()
    }
}
