//! The end of a pool.

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::task::may_block;
use super::threads::{Phase, Shared, is_here};
use crate::{Error, Kind, Result, Worker};

/// A pool that is being shut down, by [`drain`](super::Pool::drain) or [`cancel`](super::Pool::cancel): await it, or call
/// [`blocking`](Shutdown::blocking), until its tasks have gone and its threads have nothing left to do. It says how many tasks were cancelled.
///
/// # Errors
/// `Deadlock` within a task of that pool: it would wait for itself.
///
/// # Cancel safety
/// The shutdown goes on by itself, as it was begun, if this is dropped or not awaited at all.
#[must_use = "the shutdown goes on by itself, but nobody waits for it"]
pub struct Shutdown {
    shared: Arc<Shared>,
    limit: Option<Duration>,
}

impl Shutdown {
    pub(super) fn of(shared: Arc<Shared>) -> Shutdown {
        Shutdown { shared, limit: None }
    }

    /// When what is left is cancelled, counted from when this is awaited. A poll that has begun is waited for all the same: for a task that never
    /// yields, in vain.
    pub fn timeout(mut self, span: Duration) -> Shutdown {
        self.limit = Some(span);
        self
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As when it is awaited. And `WouldBlock` within a runtime, unless all has ended already.
    pub fn blocking(self) -> Result<usize> {
        let mut ends = self.into_future();
        if let Poll::Ready(result) = ends.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
        may_block("the end")?;
        pollster::block_on(ends)
    }
}

/// Until nobody is left, or only this long; then the rest is cancelled.
async fn gone(shared: Arc<Shared>, limit: Option<Duration>) -> Result<usize> {
    // As a worker of its own: a deadline of whoever waits is for their locks.
    let waits = Worker::new("end of a pool");
    if let Some(limit) = limit {
        match waits.run(shared.gone.wait().timeout(limit).into_future()).await {
            Err(error) if error.is_timeout() => shared.close(Phase::Cancelling),
            other => other?,
        }
    }
    waits.run(shared.gone.wait().into_future()).await?;
    Ok(shared.cancelled())
}

impl IntoFuture for Shutdown {
    type Output = Result<usize>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<usize>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Shutdown { shared, limit } = self;
        let mut gone = Box::pin(gone(Arc::clone(&shared), limit));
        Box::pin(poll_fn(move |cx| {
            // Asked each time: it may be given to a task later.
            if is_here(&shared) {
                let what =
                    "a task of the pool cannot wait for the pool's end, of which it is a part: drop the pool, or have somebody else wait";
                return Poll::Ready(Err(Error::new(Kind::Deadlock, what)));
            }
            gone.as_mut().poll(cx)
        }))
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("pool", &self.shared.name).field("limit", &self.limit).finish()
    }
}
