//! Who hears of a worker's changes of priority.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::{Inner, Worker};
use crate::sync::{lock, survives};

/// From how many forks on those that have gone are swept out before another comes.
const SWEPT: usize = 8;

/// Who wants to know when the effective priority was changed.
#[derive(Default)]
pub(super) struct Hook {
    /// Whether there is anybody: of the worker's own, or of those whose fork it is, or of its forks. Never false again.
    pub(super) heard: AtomicBool,
    /// In one mutex, for who tells of a change needs all of it.
    family: Mutex<Family>,
}

#[derive(Default)]
struct Family {
    own: Option<Arc<dyn Fn() + Send + Sync>>,
    /// It has, or had, a task of its own: it is not polled with whose fork it is.
    apart: bool,
    /// Its tasks that have not ended: one, for most workers.
    task: Option<Weak<dyn Follow>>,
    more: Vec<Weak<dyn Follow>>,
    /// Its forks, without those of forks.
    forks: Vec<Weak<Inner>>,
    /// How many there may be before those that have gone are swept out.
    room: usize,
}

/// The first of them, and the others; apart, so that one costs no allocation.
type Tasks = (Option<Arc<dyn Follow>>, Vec<Arc<dyn Follow>>);

impl Family {
    #[cfg(feature = "tokio")]
    fn follow(&mut self, task: Weak<dyn Follow>) {
        self.apart = true;
        if self.task.is_none() { self.task = Some(task) } else { self.more.push(task) }
    }

    #[cfg(feature = "tokio")]
    fn unfollow(&mut self, task: *const ()) {
        let is = |other: &Weak<dyn Follow>| std::ptr::addr_eq(other.as_ptr(), task);
        if self.task.as_ref().is_some_and(is) {
            self.task = self.more.pop();
        } else {
            self.more.retain(|other| !is(other));
        }
    }

    fn fork(&mut self, fork: &Worker) {
        if self.forks.len() >= self.room {
            self.forks.retain(|fork| fork.strong_count() > 0);
            self.room = SWEPT.max(2 * self.forks.len());
        }
        self.forks.push(Arc::downgrade(&fork.0));
    }

    fn tasks(&self) -> Tasks {
        (self.task.as_ref().and_then(Weak::upgrade), self.more.iter().filter_map(Weak::upgrade).collect())
    }

    fn forks(&self) -> Vec<Worker> {
        self.forks.iter().filter_map(Weak::upgrade).map(Worker).collect()
    }
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
        let old = lock(&self.0.hook.family).own.replace(Arc::new(hook));
        self.be_heard();
        drop(old);
    }

    /// The task follows the worker's changes of priority, and those of its forks that have no task of their own: they are polled with it.
    #[cfg(feature = "tokio")]
    pub(crate) fn follow(&self, task: Weak<dyn Follow>) {
        lock(&self.0.hook.family).follow(task);
        self.be_heard();
        // If it was polled with another, it is no more.
        if let Some(parent) = self.parent() {
            parent.tell_task();
        }
    }

    /// The task has ended.
    #[cfg(feature = "tokio")]
    pub(crate) fn unfollow(&self, task: &Arc<impl Follow>) {
        lock(&self.0.hook.family).unfollow(Arc::as_ptr(task).cast());
    }

    /// The priority at which the worker's task is to be polled: its effective one, or the highest of the forks that are polled within it.
    #[cfg(feature = "tokio")]
    pub(crate) fn polling_priority(&self) -> i32 {
        let mut highest = self.effective_priority();
        let mut open = lock(&self.0.hook.family).forks();
        while let Some(fork) = open.pop() {
            let family = lock(&fork.0.hook.family);
            if family.apart {
                continue;
            }
            open.append(&mut family.forks());
            drop(family);
            highest = highest.max(fork.inherited_priority());
        }
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
        lock(&self.0.hook.family).fork(fork);
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
        let mut open = lock(&self.0.hook.family).forks();
        while let Some(fork) = open.pop() {
            each(&fork);
            open.append(&mut lock(&fork.0.hook.family).forks());
        }
    }

    /// Calls who wants to know that the effective priority may have changed. Never under a mutex.
    pub(crate) fn tell_change(&self) {
        let (mut open, apart) = self.tell();
        while let Some(fork) = open.pop() {
            open.append(&mut fork.tell().0);
        }
        if let Some(parent) = self.parent().filter(|_| !apart) {
            parent.tell_task();
        }
    }

    /// Tells the task in which it is polled: its own, or that of whose fork it is, or the next above. These do not gain by a change of their forks, but
    /// may be polled sooner.
    pub(super) fn tell_task(&self) {
        for worker in self.and_parents() {
            let family = lock(&worker.0.hook.family);
            let ((task, more), apart) = (family.tasks(), family.apart);
            drop(family);
            for task in task.into_iter().chain(more) {
                task.changed();
            }
            if apart {
                return;
            }
        }
    }

    /// Calls its hook and its tasks. Its forks, and whether it is polled apart from whose fork it is.
    fn tell(&self) -> (Vec<Worker>, bool) {
        let family = lock(&self.0.hook.family);
        let (own, forks, (task, more), apart) = (family.own.clone(), family.forks(), family.tasks(), family.apart);
        drop(family);
        // Foreign code: whoever changed the priority has no part in its panic.
        if own.is_some_and(|own| !survives(|| own())) {
            tracing::error!(worker = self.name(), "a hook on a change of priority panicked; what called it goes on");
        }
        for task in task.into_iter().chain(more) {
            task.changed();
        }
        (forks, apart)
    }
}
