//! Ends the command in time if the lease cannot be kept.

use std::time::{Duration, Instant};

use heirlock::{Lease, LostReason};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::child::Child;
use crate::exit::tell;

/// The longest from TERM to KILL.
const GRACE: Duration = Duration::from_secs(5);
/// TERM comes this much earlier than the grace would need.
const EARLY: Duration = Duration::from_millis(500);
/// KILL comes this much before another could hold.
const LAST_MOMENT: Duration = Duration::from_millis(250);
/// How often a valid lease is looked at, at least: a timed wait does not count suspend.
const GLANCE: Duration = Duration::from_secs(1);
/// How often a group whose leader has ended is looked at.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Watch {
    grace: Duration,
    term_at: Option<Instant>,
    killed: bool,
    /// Why the command was ended.
    pub(crate) loss: Option<LostReason>,
}

impl Watch {
    pub(crate) fn over(lease: &Lease) -> Watch {
        Watch { grace: GRACE.min(lease.ttl() / 3), term_at: None, killed: false, loss: None }
    }

    /// Returns when there may be something to do.
    pub(crate) async fn next(&self, lease: &Lease) {
        if self.killed {
            return std::future::pending().await;
        }
        let nap = match self.term_at {
            None => lease.remaining().saturating_sub(self.grace + EARLY),
            Some(_) => self.until_kill(lease),
        };
        tokio::select! {
            () = sleep(nap.min(GLANCE)) => {}
            _ = lease.lost(), if self.term_at.is_none() => {}
        }
    }

    fn until_kill(&self, lease: &Lease) -> Duration {
        let term_at = self.term_at.unwrap_or_else(Instant::now);
        (term_at + self.grace).saturating_duration_since(Instant::now()).min(lease.remaining().saturating_sub(LAST_MOMENT))
    }

    /// Does what is to be done now.
    pub(crate) fn act(&mut self, lease: &Lease, child: &Child) {
        if self.term_at.is_none() {
            let close = lease.remaining() <= self.grace + EARLY;
            let Some(reason) = lease.lost_reason().or(close.then_some(LostReason::Expired)) else { return };
            tell(&format!("ending the command, for the lock on {} is lost: {reason}", lease.key()));
            self.loss = Some(reason);
            self.term_at = Some(Instant::now());
            child.signal(Signal::TERM.as_raw());
            // One that is stopped could not act on it.
            child.signal(Signal::CONT.as_raw());
        } else if self.until_kill(lease).is_zero() {
            child.signal(Signal::KILL.as_raw());
            self.killed = true;
        }
    }

    /// The command's leader has ended. If that was because of a loss, the rest of its group ends with it.
    pub(crate) async fn sweep(&mut self, lease: &Lease, child: &Child) {
        while self.loss.is_some() && child.has_members() {
            if self.killed {
                // Also those that were forked just before.
                child.signal(Signal::KILL.as_raw());
            }
            self.act(lease, child);
            sleep(LOOK).await;
        }
    }
}
