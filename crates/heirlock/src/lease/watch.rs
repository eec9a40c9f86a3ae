//! Leases that are held together: the first that is lost counts.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use super::lease::Lease;
use super::vital::{Listener, LostReason};
use crate::Result;

/// Whoever waits until one of them is lost.
pub(crate) struct Watch<'l> {
    leases: &'l [Lease],
    listeners: Vec<Listener<'l>>,
}

impl<'l> Watch<'l> {
    pub(crate) fn over(leases: &'l [Lease]) -> Watch<'l> {
        Watch { leases, listeners: leases.iter().map(Lease::listen).collect() }
    }

    /// Waits for the first loss, and tells whose it is.
    pub(crate) async fn lost(&mut self) -> (&'l Lease, LostReason) {
        poll_fn(|cx| match self.forked() {
            Some(lost) => Poll::Ready(lost),
            None => self.poll(cx),
        })
        .await
    }

    /// What has been told.
    fn poll(&mut self, cx: &Context<'_>) -> Poll<(&'l Lease, LostReason)> {
        let told = self.leases.iter().zip(&mut self.listeners).find_map(|(lease, listener)| match listener.lost(cx) {
            Poll::Ready(reason) => Some((lease, reason)),
            Poll::Pending => None,
        });
        told.map_or(Poll::Pending, Poll::Ready)
    }

    /// Nobody tells a forked child anything.
    fn forked(&self) -> Option<(&'l Lease, LostReason)> {
        self.leases.iter().find(|lease| lease.is_forked()).map(|lease| (lease, LostReason::Forked))
    }
}

/// The first of them that is lost, without waiting.
pub(crate) fn lost(leases: &[Lease]) -> Option<(&Lease, LostReason)> {
    leases.iter().find_map(|lease| Some((lease, lease.lost_reason()?)))
}

/// Does the work while all are valid: when one is lost the work is dropped, and never polled again.
pub(crate) async fn run<F: Future>(leases: &[Lease], work: F) -> Result<F::Output> {
    let mut work = pin!(work);
    let mut watch = Watch::over(leases);
    // The timer may be late, after a stop or a suspend: the clock is asked too.
    let check = || lost(leases).map_or(Ok(()), |(lease, reason)| Err(reason.of_key(lease.key())));
    poll_fn(|cx| {
        // A waker for the loss first, so that it cannot slip between the check and the wait.
        if let Poll::Ready((lease, reason)) = watch.poll(cx) {
            return Poll::Ready(Err(reason.of_key(lease.key())));
        }
        check()?;
        work.as_mut().poll(cx).map(|output| check().map(|()| output))
    })
    .await
}
