//! Small things around mutexes that several modules need.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays right even if a thread panicked while it held it: every change under it is whole at each statement.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
