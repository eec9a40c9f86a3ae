//! Who hears of a worker's changes of priority.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::{Inner, Worker};
use crate::sync::lock;

/// From how many forks on those that have gone are swept out before another comes.
const SWEPT: usize = 8;

/// Who wants to know when the effective priority was changed.
#[derive(Default)]
pub(super) struct Hook {
    /// Whether there is anybody: of the worker's own, or of those whose fork it is, or of its forks. Never false again.
    heard: AtomicBool,
    own: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
    /// The tasks in which it is polled.
    followers: Mutex<Vec<Weak<dyn Follow>>>,
    forks: Mutex<Forks>,
}

/// Its forks, without those of forks.
#[derive(Default)]
struct Forks {
    all: Vec<Weak<Inner>>,
    /// How many there may be before they are swept.
    room: usize,
}

/// An executor's task, which is to be polled at the priority of what it polls.
pub(crate) trait Follow: Send + Sync {
    /// [`Worker::polling_priority`] may have changed. As a hook, it may be called by several threads at once, and once too often.
    fn changed(&self);
}

impl Worker {
    /// Calls the closure whenever the effective priority may have changed: the hook for executors. It is called on the thread that caused the
    /// change, which may be the timer's, so it must not block; after everything is settled, perhaps by several threads at once and perhaps once too
    /// often; so it carries no value, and
    /// [`effective_priority`](Worker::effective_priority) is to be read in it. A panic of it is traced and ends there. The last closure given counts.
    ///
    /// ```
    /// use heirlock::Worker;
    /// use std::sync::{Arc, atomic::{AtomicI32, Ordering}};
    /// let (worker, seen) = (Worker::new("ingest"), Arc::new(AtomicI32::new(0)));
    /// worker.on_priority_change({
    ///     let (worker, seen) = (worker.downgrade(), Arc::clone(&seen));
    ///     move || seen.store(worker.upgrade().unwrap().effective_priority(), Ordering::SeqCst)
    /// });
    /// worker.set_priority(7);
    /// assert_eq!(seen.load(Ordering::SeqCst), 7);
    /// ```
    pub fn on_priority_change(&self, hook: impl Fn() + Send + Sync + 'static) {
        // The old one is dropped after the mutex is released: it is foreign code.
        let old = lock(&self.0.hook.own).replace(Arc::new(hook));
        self.be_heard();
        drop(old);
    }

    /// The task follows the worker's changes of priority, and those of its forks, which are polled with it.
    #[cfg(feature = "tokio")]
    pub(crate) fn follow(&self, task: Weak<dyn Follow>) {
        let mut followers = lock(&self.0.hook.followers);
        followers.retain(|task| task.strong_count() > 0);
        followers.push(task);
        drop(followers);
        self.be_heard();
    }

    /// The priority at which the worker is to be polled: its own effective one or the highest of its forks, for they are polled within it.
    #[cfg(feature = "tokio")]
    pub(crate) fn polling_priority(&self) -> i32 {
        let mut highest = self.effective_priority();
        self.each_fork(|fork| highest = highest.max(fork.inherited_priority()));
        highest
    }

    pub(crate) fn is_listened_to(&self) -> bool {
        self.0.hook.heard.load(Ordering::SeqCst)
    }

    /// Whether foreign code may be dropped with it, or with those whose fork it is; of these it is not asked, as there may be many.
    pub(crate) fn may_hold_hooks(&self) -> bool {
        self.is_listened_to() || self.parent().is_some()
    }

    /// It has a fork more.
    pub(super) fn has_forked(&self, fork: &Worker) {
        let mut forks = lock(&self.0.hook.forks);
        if forks.all.len() >= forks.room {
            forks.all.retain(|fork| fork.strong_count() > 0);
            forks.room = SWEPT.max(2 * forks.all.len());
        }
        forks.all.push(Arc::downgrade(&fork.0));
        drop(forks);
        // Whoever begins to listen meanwhile says so here first and then looks for forks: it finds this one, or is seen by it.
        if self.is_listened_to() {
            fork.0.hook.heard.store(true, Ordering::SeqCst);
        }
    }

    /// From now on changes are told: what a parent gains, its forks gain; and what they gain, whoever polls the parent needs to know.
    fn be_heard(&self) {
        self.and_parents().for_each(|worker| worker.0.hook.heard.store(true, Ordering::SeqCst));
        self.each_fork(|fork| fork.0.hook.heard.store(true, Ordering::SeqCst));
    }

    /// Its forks, and theirs.
    fn each_fork(&self, mut each: impl FnMut(&Worker)) {
        let mut open = self.forks();
        while let Some(fork) = open.pop() {
            each(&fork);
            open.append(&mut fork.forks());
        }
    }

    fn forks(&self) -> Vec<Worker> {
        lock(&self.0.hook.forks).all.iter().filter_map(Weak::upgrade).map(Worker).collect()
    }

    /// Calls who wants to know that the effective priority may have changed. Never under a mutex.
    pub(crate) fn tell_change(&self) {
        self.tell();
        self.each_fork(Worker::tell);
        // They do not gain by it, but may be polled sooner.
        self.and_parents().skip(1).for_each(Worker::tell_followers);
    }

    fn tell(&self) {
        let hook = lock(&self.0.hook.own).clone();
        // Foreign code: whoever changed the priority has no part in its panic.
        if hook.is_some_and(|hook| catch_unwind(AssertUnwindSafe(|| hook())).is_err()) {
            tracing::error!(worker = self.name(), "a hook on a change of priority panicked; what called it goes on");
        }
        self.tell_followers();
    }

    fn tell_followers(&self) {
        let followers: Vec<Arc<dyn Follow>> = lock(&self.0.hook.followers).iter().filter_map(Weak::upgrade).collect();
        for task in followers {
            task.changed();
        }
    }
}
