//! What the guards of different locks have in common.

use super::mutex::MutexGuard;
use super::raw::Raw;
use super::rlock::RLockGuard;
use super::wait::Held;

/// Of a guard: that it gives the whole value of its lock.
#[derive(Debug)]
pub enum Whole {}

/// Of a guard: that it gives a part of the value, which may no longer be there once the lock was given up. So nobody can wait with it.
#[derive(Debug)]
pub enum Part {}

/// A guard with which one can wait for a [`Condvar`](super::Condvar): that of a [`Mutex`](super::Mutex) or an [`RLock`](super::RLock), nothing
/// else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be given up to wait for a condition",
    note = "a guard of the whole value of a `Mutex` or an `RLock` can; one that was made by `map` cannot, for its part may go meanwhile"
)]
pub trait Waitable: Giving + for<'v> View<'v> {}

impl<G: Giving + for<'v> View<'v>> Waitable for G {}

/// What only this module may implement.
pub trait Giving: Unpin {
    /// What is under the lock's type.
    fn raw(&self) -> &Raw;

    /// How many levels are this guard's.
    fn levels(&self) -> u32;

    /// It is had again. Only who has just got the lock can call this.
    fn regain(&mut self, held: Held);
}

/// How a guard shows its value: a `&mut T` or a `&T`. The second parameter is always left out; it says that the guard lives as long as the view.
pub trait View<'v, Bounds = &'v Self> {
    /// The value.
    type Ref;

    /// Shows the value.
    fn view(&'v mut self) -> Self::Ref;
}

impl<T: ?Sized> Giving for MutexGuard<'_, T> {
    fn raw(&self) -> &Raw {
        self.raw
    }

    fn levels(&self) -> u32 {
        1
    }

    fn regain(&mut self, held: Held) {
        self.held = held;
    }
}

impl<'v, T: ?Sized> View<'v> for MutexGuard<'_, T> {
    type Ref = &'v mut T;

    fn view(&'v mut self) -> &'v mut T {
        self
    }
}

impl<T: ?Sized> Giving for RLockGuard<'_, T> {
    fn raw(&self) -> &Raw {
        self.raw
    }

    fn levels(&self) -> u32 {
        self.held.levels()
    }

    fn regain(&mut self, held: Held) {
        self.held = held;
    }
}

impl<'v, T: ?Sized> View<'v> for RLockGuard<'_, T> {
    type Ref = &'v T;

    fn view(&'v mut self) -> &'v T {
        self
    }
}
