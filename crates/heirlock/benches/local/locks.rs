//! The mutexes that are compared, each around the same counter.

use std::convert::identity;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::task::yield_now;

/// A mutex that a task waits for.
pub(crate) trait Lock: Send + Sync + 'static {
    const NAME: &'static str;

    fn new() -> Self;

    /// Locks, counts and unlocks, so many times.
    fn count(&self, times: u64) -> impl Future<Output = ()> + Send;

    /// The same, and lets others run while it holds the lock.
    fn count_yielding(&self, times: u64) -> impl Future<Output = ()> + Send;

    /// One acquires, another waits, the lock passes on, and the other has it: polled by hand, without tasks.
    fn pass_on(&self);

    /// How far it has been counted, and from 0 again.
    fn take(&mut self) -> u64;
}

macro_rules! lock {
    ($name:ident, $mutex:ty, $called:literal, $guard:expr) => {
        pub(crate) struct $name(pub(crate) $mutex);

        impl Lock for $name {
            const NAME: &'static str = $called;

            fn new() -> Self {
                $name(<$mutex>::new(0))
            }

            async fn count(&self, times: u64) {
                for _ in 0..times {
                    *$guard(self.0.lock().await) += 1;
                }
            }

            async fn count_yielding(&self, times: u64) {
                for _ in 0..times {
                    let mut guard = $guard(self.0.lock().await);
                    yield_now().await;
                    *guard += 1;
                }
            }

            fn pass_on(&self) {
                pass_on(self.0.lock(), self.0.lock());
            }

            fn take(&mut self) -> u64 {
                std::mem::take(self.0.get_mut())
            }
        }
    };
}

lock!(Ours, heirlock::local::Mutex<u64>, "ours", heirlock::Result::unwrap);
lock!(Tokio, tokio::sync::Mutex<u64>, "tokio", identity);
lock!(AsyncLock, async_lock::Mutex<u64>, "async-lock", identity);

/// Polls the first future to its end, and the second before and after the guard of the first has gone.
pub(crate) fn pass_on<F: Future>(first: F, second: F) {
    let (first, mut second) = (pin!(first), pin!(second));
    let guard = poll(first).expect("it is free");
    assert!(poll(second.as_mut()).is_none(), "it is held");
    drop(guard);
    drop(poll(second).expect("it has passed on"));
}

fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A mutex that a thread waits for, and so does not hold across an await.
pub(crate) trait Blocking: Send + Sync + 'static {
    fn new() -> Self;

    fn count(&self, times: u64);
}

impl Blocking for std::sync::Mutex<u64> {
    fn new() -> Self {
        std::sync::Mutex::new(0)
    }

    fn count(&self, times: u64) {
        for _ in 0..times {
            *self.lock().unwrap() += 1;
        }
    }
}

impl Blocking for parking_lot::Mutex<u64> {
    fn new() -> Self {
        parking_lot::Mutex::new(0)
    }

    fn count(&self, times: u64) {
        for _ in 0..times {
            *self.lock() += 1;
        }
    }
}
