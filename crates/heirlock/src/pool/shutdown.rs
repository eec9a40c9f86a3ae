//! The end of a pool.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::threads::{Phase, Shared, is_here};
use crate::{Error, Kind, Result};

/// A pool that is being shut down, by [`drain`](super::Pool::drain) or [`cancel`](super::Pool::cancel): await it, or call
/// [`blocking`](Shutdown::blocking), until its tasks and threads have gone. It says how many tasks were cancelled.
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
    /// As when it is awaited.
    pub fn blocking(self) -> Result<usize> {
        pollster::block_on(self.into_future())
    }

    async fn end(self) -> Result<usize> {
        let Shutdown { shared, limit } = self;
        if is_here(&shared) {
            let what =
                "a task of the pool cannot wait for the pool's end, of which it is a part: drop the pool, or have somebody else wait";
            return Err(Error::new(Kind::Deadlock, what));
        }
        if let Some(limit) = limit {
            match shared.gone.wait().timeout(limit).await {
                Err(error) if error.is_timeout() => shared.close(Phase::Cancelling),
                other => other?,
            }
        }
        shared.gone.wait().await?;
        Ok(shared.cancelled())
    }
}

impl IntoFuture for Shutdown {
    type Output = Result<usize>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<usize>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.end())
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("pool", &self.shared.name).field("limit", &self.limit).finish()
    }
}
