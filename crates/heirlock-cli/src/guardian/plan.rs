//! When the command is ended if its lock cannot be kept: decided by the time alone, without doing anything.

use std::time::Duration;

use heirlock::clock::Moment;
use serde::{Deserialize, Serialize};

/// TERM comes this much earlier than the grace would need.
pub(crate) const EARLY: Duration = Duration::from_millis(500);
/// KILL comes this much before another could hold.
pub(crate) const LAST_MOMENT: Duration = Duration::from_millis(250);
/// How often the clock is looked at, at least: a timed wait does not count suspend.
const GLANCE: Duration = Duration::from_secs(1);
/// How often KILL is repeated, for those that were forked just before.
const AGAIN: Duration = Duration::from_millis(10);

/// What happens to the command when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, the grace, KILL
    Term,
    /// KILL
    Kill,
    /// A line on stderr; the command goes on
    Notify,
}

/// Why the command is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// The lock is not renewed, and another could soon hold it.
    Expiring,
    /// Heirlock says that it is lost.
    Told,
    /// Heirlock has died.
    Orphaned,
}

/// What is known now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) now: Moment,
    /// Until when nobody else can hold the lock.
    pub(crate) valid_until: Moment,
    pub(crate) is_told: bool,
    pub(crate) is_orphaned: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, for so long at most.
    Wait(Duration),
    /// Say why, once; the command goes on.
    Notify(Cause),
    /// Ask the command to end.
    Term(Cause),
    /// End it, and whatever it has started.
    Kill(Cause),
}

#[derive(Debug)]
pub(crate) struct Plan {
    on_lost: OnLost,
    grace: Duration,
    begun: Option<(Cause, Moment)>,
    is_killed: bool,
}

impl Plan {
    pub(crate) fn new(on_lost: OnLost, grace: Duration) -> Plan {
        Plan { on_lost, grace: if on_lost == OnLost::Term { grace } else { Duration::ZERO }, begun: None, is_killed: false }
    }

    /// Why the command is being ended, if it is, or why it was told of.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.begun.map(|(cause, _)| cause)
    }

    /// Whether all that descends from the command is to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.begun.is_some() && self.on_lost != OnLost::Notify
    }

    /// What is to be done now, which the caller then does.
    pub(crate) fn next(&mut self, seen: Seen) -> Step {
        let left = seen.valid_until.since(seen.now);
        let Some((cause, begun)) = self.begun else {
            // Who only tells does not tell too early.
            let early = if self.on_lost == OnLost::Notify { Duration::ZERO } else { self.grace + EARLY };
            let cause = match seen {
                Seen { is_orphaned: true, .. } => Cause::Orphaned,
                Seen { is_told: true, .. } => Cause::Told,
                _ if left <= early => Cause::Expiring,
                _ => return Step::Wait(left.saturating_sub(early).min(GLANCE)),
            };
            self.begun = Some((cause, seen.now));
            return match self.on_lost {
                OnLost::Term => Step::Term(cause),
                OnLost::Kill => self.kill(cause),
                OnLost::Notify => Step::Notify(cause),
            };
        };
        if self.on_lost == OnLost::Notify {
            return Step::Wait(GLANCE);
        }
        if self.is_killed {
            return Step::Kill(cause);
        }
        let patience = (begun + self.grace).since(seen.now).min(left.saturating_sub(LAST_MOMENT));
        if patience.is_zero() { self.kill(cause) } else { Step::Wait(patience.min(GLANCE)) }
    }

    fn kill(&mut self, cause: Cause) -> Step {
        self.is_killed = true;
        Step::Kill(cause)
    }

    /// How long to wait for the effect of a step.
    pub(crate) fn pause(step: Step) -> Duration {
        match step {
            Step::Wait(span) => span,
            Step::Notify(_) | Step::Term(_) => Duration::ZERO,
            Step::Kill(_) => AGAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(now_ms: u64, valid_until_ms: u64) -> Seen {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        Seen { now: at(now_ms), valid_until: at(valid_until_ms), is_told: false, is_orphaned: false }
    }

    const GRACE: Duration = Duration::from_secs(2);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lock_that_is_renewed_is_let_alone() {
        let mut plan = Plan::new(OnLost::Term, GRACE);
        assert_eq!(plan.next(seen(0, 10_000)), Step::Wait(GLANCE));
        assert_eq!(plan.next(seen(7_000, 10_000)), Step::Wait(ms(500)));
        assert_eq!(plan.next(seen(7_499, 20_000)), Step::Wait(GLANCE));
        assert_eq!(plan.cause(), None);
    }

    #[test]
    fn one_that_is_not_renewed_is_ended_before_another_holds() {
        let mut plan = Plan::new(OnLost::Term, GRACE);
        assert_eq!(plan.next(seen(7_500, 10_000)), Step::Term(Cause::Expiring));
        assert_eq!(plan.next(seen(7_500, 10_000)), Step::Wait(GLANCE));
        assert_eq!(plan.next(seen(9_400, 10_000)), Step::Wait(ms(100)));
        assert_eq!(plan.next(seen(9_500, 10_000)), Step::Kill(Cause::Expiring));
        assert_eq!(plan.next(seen(9_510, 10_000)), Step::Kill(Cause::Expiring), "again, for those that were forked meanwhile");
        assert!(plan.is_ending());
    }

    #[test]
    fn a_grace_ends_at_the_last_moment() {
        let mut plan = Plan::new(OnLost::Term, GRACE);
        let told = |now, until| Seen { is_told: true, ..seen(now, until) };
        assert_eq!(plan.next(told(0, 1_000)), Step::Term(Cause::Told));
        assert_eq!(plan.next(told(700, 1_000)), Step::Wait(ms(50)));
        assert_eq!(plan.next(told(750, 1_000)), Step::Kill(Cause::Told));
    }

    #[test]
    fn who_was_stopped_for_too_long_kills_at_once() {
        let mut plan = Plan::new(OnLost::Term, GRACE);
        assert_eq!(plan.next(seen(50_000, 10_000)), Step::Term(Cause::Expiring));
        assert_eq!(plan.next(seen(50_000, 10_000)), Step::Kill(Cause::Expiring));
    }

    #[test]
    fn an_orphan_has_its_grace() {
        let mut plan = Plan::new(OnLost::Term, GRACE);
        let orphaned = |now| Seen { is_orphaned: true, ..seen(now, 30_000) };
        assert_eq!(plan.next(orphaned(0)), Step::Term(Cause::Orphaned));
        assert_eq!(plan.next(orphaned(1_500)), Step::Wait(ms(500)));
        assert_eq!(plan.next(orphaned(2_000)), Step::Kill(Cause::Orphaned));
    }

    #[test]
    fn kill_waits_for_nothing_and_comes_no_earlier_than_it_must() {
        let mut plan = Plan::new(OnLost::Kill, GRACE);
        assert_eq!(plan.next(seen(9_400, 10_000)), Step::Wait(ms(100)));
        assert_eq!(plan.next(seen(9_500, 10_000)), Step::Kill(Cause::Expiring));
    }

    #[test]
    fn notify_says_so_once_and_when_it_is_lost() {
        let mut plan = Plan::new(OnLost::Notify, GRACE);
        assert_eq!(plan.next(seen(9_900, 10_000)), Step::Wait(ms(100)));
        assert_eq!(plan.next(seen(10_000, 10_000)), Step::Notify(Cause::Expiring));
        assert_eq!(plan.next(seen(60_000, 10_000)), Step::Wait(GLANCE));
        assert!(!plan.is_ending());
    }
}
