//! Small things around mutexes and threads that several modules need.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Locks a mutex whose data stays right even if a thread panicked while it held it: every change under it is whole at each statement.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs foreign code, whose panic ends here; whether there was none. The caller traces it.
pub(crate) fn survives(foreign: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(foreign)).map_err(discard).is_ok()
}

/// Drops what a panic came with, which may panic itself.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // It has been enough.
        std::mem::forget(another);
    }
}

/// Polls the future on this thread for so long, and then drops it.
pub(crate) fn poll_for<F: IntoFuture>(future: F, limit: Duration) -> Option<F::Output> {
    let until = Instant::now() + limit;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

/// Wakes a thread that parks. A wake before it parks is kept: it does not sleep then.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
