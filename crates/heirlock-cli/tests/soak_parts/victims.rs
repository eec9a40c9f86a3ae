//! Who is stopped, killed, or asked to end, and when.

use std::process::Child;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::random::Random;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    Heirlock(Signal),
    Guardian(Signal),
    /// One of those that descend from the guardian: of these the one with this number, modulo how many there are.
    Command(usize, Signal),
}

/// What is to happen to a run, and how long after its start. Of heirlock and its guardian only one is ever stopped or killed: if both are, nobody ends
/// the command, and that is a limit that is documented.
pub(crate) struct Plan {
    todo: Vec<(Duration, Hit)>,
    done: Vec<(Duration, Hit)>,
    /// Those that were stopped, to be continued at the end of their time.
    stopped: Vec<(Duration, OwnedFd)>,
    /// For how long.
    pause: Duration,
}

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

impl Plan {
    /// Half of the runs are let alone.
    pub(crate) fn random(random: &mut Random) -> Plan {
        let mut todo = Vec::new();
        if random.chance(50) {
            let harm = |random: &mut Random| random.pick(&[Signal::STOP, Signal::STOP, Signal::KILL, Signal::TERM]);
            let when =
                |random: &mut Random| ms(random.pick(&[20, 100, 400, 2_000])) * u32::try_from(random.within(1, 100)).unwrap_or(1) / 100;
            let is_heirlock = random.chance(50);
            for _ in 0..random.within(0, 3) {
                let signal = harm(random);
                todo.push((when(random), if is_heirlock { Hit::Heirlock(signal) } else { Hit::Guardian(signal) }));
            }
            for _ in 0..random.within(0, 3) {
                todo.push((when(random), Hit::Command(random.index(6), harm(random))));
            }
            // What was stopped goes on before the ttl of 3 s is over, or after it.
            let pause = ms(random.within(50, 6_000));
            todo.sort_by_key(|(when, _)| *when);
            return Plan { todo, done: Vec::new(), stopped: Vec::new(), pause };
        }
        Plan { todo, done: Vec::new(), stopped: Vec::new(), pause: ms(0) }
    }

    /// What has happened to it, and how long after its start.
    pub(crate) fn hits(&self) -> &[(Duration, Hit)] {
        &self.done
    }

    /// Does what is due. `child` is not reaped, so its number is its own.
    pub(crate) fn act(&mut self, child: &Child, age: Duration) {
        while let Some((when, hit)) = self.todo.first().copied() {
            if when > age {
                break;
            }
            self.todo.remove(0);
            let heirlock = Pid::from_child(child);
            let (victim, signal) = match hit {
                Hit::Heirlock(signal) => (open(heirlock, |_| true), signal),
                Hit::Guardian(signal) => (guardian(heirlock), signal),
                Hit::Command(which, signal) => (command(heirlock, which), signal),
            };
            let Some(victim) = victim else { continue };
            if pidfd_send_signal(&victim, signal).is_ok() {
                self.done.push((age, hit));
                if signal == Signal::STOP {
                    self.stopped.push((age + self.pause, victim));
                }
            }
        }
        self.stopped.retain(|(when, victim)| {
            let is_due = *when <= age;
            if is_due {
                // It may have been killed meanwhile.
                let _ = pidfd_send_signal(victim, Signal::CONT);
            }
            !is_due
        });
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        for (_, victim) in &self.stopped {
            let _ = pidfd_send_signal(victim, Signal::CONT);
        }
    }
}

/// A process that is meant still: its number may be another's by now, so it is looked at once it is held.
fn open(pid: Pid, is_meant: impl Fn(Pid) -> bool) -> Option<OwnedFd> {
    let victim = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    is_meant(pid).then_some(victim)
}

fn children(pid: Pid) -> Vec<Pid> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

fn is_guardian(pid: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "lock-guardian\n")
}

fn guardian(heirlock: Pid) -> Option<OwnedFd> {
    let guardian = children(heirlock).into_iter().find(|pid| is_guardian(*pid))?;
    open(guardian, |pid| is_guardian(pid) && children(heirlock).contains(&pid))
}

fn command(heirlock: Pid, which: usize) -> Option<OwnedFd> {
    let guardian = children(heirlock).into_iter().find(|pid| is_guardian(*pid))?;
    let mut found: Vec<(Pid, Pid)> = children(guardian).into_iter().map(|pid| (guardian, pid)).collect();
    let mut next = 0;
    while let Some((_, parent)) = found.get(next).copied() {
        found.extend(children(parent).into_iter().map(|pid| (parent, pid)));
        next += 1;
    }
    let (parent, pid) = *found.get(which % found.len().max(1))?;
    // Between fork and exec it has the guardian's name.
    open(pid, |pid| children(parent).contains(&pid) && !is_guardian(pid))
}
