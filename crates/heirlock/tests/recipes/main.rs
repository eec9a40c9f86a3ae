//! What the recipes of `examples/` promise, and what the guides show.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common"]
mod common {
    pub(crate) mod random;
    #[allow(dead_code)]
    pub(crate) mod traced;
}

/// The very files that users read and run; their `main` is not called here.
#[allow(dead_code)]
#[path = "../../examples"]
mod examples {
    pub(crate) mod api_limit;
    pub(crate) mod connection_pool;
    pub(crate) mod graceful_shutdown;
    pub(crate) mod hot_lock;
    pub(crate) mod hot_reload;
    pub(crate) mod inversion;
    pub(crate) mod producer_consumers;
    pub(crate) mod rate_counter;
    pub(crate) mod single_flight;
    pub(crate) mod two_accounts;
}

mod flows;
mod guides;
mod limits;
mod values;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// What hangs fails, instead of hanging.
async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it should not wait for ever")
}

/// Polls once.
async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}
