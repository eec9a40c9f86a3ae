//! What the pool's threads share, and what they do.

use std::cell::RefCell;
use std::hint;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::thread;

use tokio::runtime;

use super::queue::{Queue, TaskKey};
use super::task::{Task, Turn};
use crate::local::Event;
use crate::sync::{lock, survives};

/// What the threads, the handles and the tasks of a pool share.
pub(super) struct Shared {
    pub(super) name: String,
    runtime: runtime::Handle,
    state: Mutex<State>,
    /// Whether something is ready, for who looks without the mutex.
    ready: AtomicBool,
    /// Where threads wait that have nothing to poll.
    bell: Condvar,
    /// Where the watch waits.
    pub(super) watch: Condvar,
    /// All tasks have ended, and all threads with them.
    pub(super) gone: Event,
}

/// What is under the pool's one mutex. No foreign code runs under it: no future, no waker, no destructor of a user's.
pub(super) struct State {
    queue: Queue<Turn, Entry>,
    pub(super) phase: Phase,
    /// What each thread polls now.
    pub(super) polls: Vec<Option<Polling>>,
    /// How many polls have begun.
    begun: u64,
    /// How many threads live; how many of them wait for something to poll; and how many of those have been woken and have not noted it yet.
    threads: usize,
    idle: usize,
    woken: usize,
    /// Whether one of them looks for something to poll without the mutex: whoever has something need not wake another.
    looks: bool,
    /// Whether the watch is to be told when something is polled.
    pub(super) watch_sleeps: bool,
    /// How many tasks were cancelled since the pool began to be shut down.
    cancelled: usize,
    #[cfg(test)]
    pub(super) recorded: Option<Vec<super::tests::Recorded>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Tasks are waited for.
    Draining,
    /// Tasks are cancelled.
    Cancelling,
}

/// The poll with this number, of this task.
#[derive(Clone, Copy)]
pub(super) struct Polling {
    pub(super) number: u64,
    task: TaskKey,
}

/// What the pool keeps of a task until that has ended.
pub(super) struct Entry {
    pub(super) task: Arc<Task>,
    pub(super) waker: Waker,
}

/// How often a thread looks for something to poll before it sleeps: a few microseconds.
const LOOKS: usize = 200;

thread_local! {
    /// The pool whose thread this is.
    static HERE: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
    /// The task that this thread polls, if it was woken meanwhile and so is ready again: queued when the thread has the mutex anyway, to pop the next.
    static AGAIN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// The pool whose thread this is.
pub(super) fn here() -> Option<Arc<Shared>> {
    // A destructor of the thread's end may ask, too.
    HERE.try_with(|here| here.borrow().upgrade()).ok().flatten()
}

/// Whether this is a thread of that pool.
pub(super) fn is_here(shared: &Arc<Shared>) -> bool {
    HERE.try_with(|here| std::ptr::eq(here.borrow().as_ptr(), Arc::as_ptr(shared))).unwrap_or(false)
}

impl Shared {
    pub(super) fn new(name: String, runtime: runtime::Handle, threads: usize) -> Shared {
        let state = State {
            queue: Queue::new(),
            phase: Phase::Open,
            polls: vec![None; threads],
            begun: 0,
            threads: 0,
            idle: 0,
            woken: 0,
            looks: false,
            watch_sleeps: false,
            cancelled: 0,
            #[cfg(test)]
            recorded: None,
        };
        let (bell, watch) = (Condvar::new(), Condvar::new());
        Shared { name, runtime, state: Mutex::new(state), ready: AtomicBool::new(false), bell, watch, gone: Event::named("end of a pool") }
    }

    /// Starts the thread with this index.
    pub(super) fn start(shared: &Arc<Shared>, index: usize) -> io::Result<()> {
        lock(&shared.state).threads += 1;
        let name = format!("{}-{index}", shared.name);
        let started = thread::Builder::new().name(name).spawn({
            let shared = Arc::clone(shared);
            move || {
                HERE.set(Arc::downgrade(&shared));
                let _context = shared.runtime.enter();
                shared.work(index);
                // What destructors of this thread spawn now would never be polled.
                HERE.set(Weak::new());
            }
        });
        if started.is_err() {
            lock(&shared.state).threads -= 1;
        }
        started.map(drop)
    }

    /// Polls whoever's turn it is, until the pool is shut down and nobody is left.
    fn work(&self, index: usize) {
        let mut state = lock(&self.state);
        let mut looked = false;
        loop {
            let Some((key, turn)) = state.queue.pop() else {
                if state.is_over() {
                    break;
                }
                if !looked && !state.looks {
                    state.looks = true;
                    drop(state);
                    self.look();
                    state = lock(&self.state);
                    state.looks = false;
                    looked = true;
                    continue;
                }
                looked = false;
                state.idle += 1;
                state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                state.woken = state.woken.saturating_sub(1);
                continue;
            };
            self.ready.store(state.queue.ready() > 0, Ordering::Relaxed);
            if std::mem::take(&mut looked) {
                // What became ready during the look rang no bell, so this thread rings for it.
                let wakes = state.queue.ready().min(state.idle.saturating_sub(state.woken));
                state.woken += wakes;
                (0..wakes).for_each(|_| self.bell.notify_one());
            }
            state.begun += 1;
            state.polls[index] = Some(Polling { number: state.begun, task: key });
            #[cfg(test)]
            state.record(|state| super::tests::Recorded::polled(state, key));
            if std::mem::take(&mut state.watch_sleeps) {
                self.watch.notify_one();
            }
            drop(state);
            // Panics of the task are caught within. What is left is the waker of whoever awaits it, which is foreign code.
            if !survives(|| _ = turn.run()) {
                tracing::error!(pool = self.name, "the waker of who awaits a task panicked");
            }
            let again = AGAIN.take();
            state = lock(&self.state);
            state.polls[index] = None;
            if let Some(turn) = again {
                state.push(key, turn);
            }
        }
        state.threads -= 1;
        let last = state.threads == 0;
        drop(state);
        if last {
            self.watch.notify_one();
            self.gone.set();
        }
    }

    /// Looks for a moment whether something is ready: to sleep and to be woken costs many times as much, both of whom.
    fn look(&self) {
        for _ in 0..LOOKS {
            if self.ready.load(Ordering::Relaxed) {
                return;
            }
            hint::spin_loop();
        }
    }

    /// A new task, ready to be polled, which is told its key under the mutex; what it answers. The task comes back if none is taken any more.
    pub(super) fn admit<R>(&self, entry: Entry, priority: i32, turn: Turn, told: impl FnOnce(TaskKey) -> R) -> Result<R, (Entry, Turn)> {
        let mut state = lock(&self.state);
        let open = match state.phase {
            Phase::Open => true,
            Phase::Draining => here().is_some_and(|here| std::ptr::eq(&raw const *here, self)),
            Phase::Cancelling => false,
        };
        if !open {
            drop(state);
            return Err((entry, turn));
        }
        let key = state.queue.insert(priority, entry);
        let answer = told(key);
        self.push(state, key, turn);
        Ok(answer)
    }

    /// The task is to be polled; `again` if this thread polls it.
    pub(super) fn ready(&self, key: TaskKey, turn: Turn, again: bool) {
        if again {
            AGAIN.set(Some(turn));
        } else {
            self.push(lock(&self.state), key, turn);
        }
    }

    fn push(&self, mut state: MutexGuard<'_, State>, key: TaskKey, turn: Turn) {
        state.push(key, turn);
        // Each that was woken looks at the queue before it waits again, so none is needed beyond them.
        let wakes = !state.looks && state.idle > state.woken;
        self.ready.store(true, Ordering::Relaxed);
        state.woken += usize::from(wakes);
        drop(state);
        if wakes {
            self.bell.notify_one();
        }
    }

    /// The priority at which the task is to be polled, as found out with this ticket.
    pub(super) fn rekey(&self, key: impl FnOnce() -> Option<TaskKey>, priority: i32, ticket: u64) {
        let mut state = lock(&self.state);
        // Looked for under the mutex: whoever gives the task its key looks for tickets there.
        if let Some(key) = key() {
            state.queue.rekey(key, priority, ticket);
            #[cfg(test)]
            state.record(|state| super::tests::Recorded::rekeyed(state, key));
        }
    }

    /// The task has ended, in its last poll.
    pub(super) fn end(&self, key: TaskKey) {
        let mut state = lock(&self.state);
        let entry = state.end(key);
        let over = state.is_over();
        drop(state);
        drop(entry);
        if over {
            self.bell.notify_all();
        }
    }

    /// What wakes the task, unless it has ended.
    pub(super) fn waker(&self, key: TaskKey) -> Option<Waker> {
        lock(&self.state).queue.kept(key).map(|entry| entry.waker.clone())
    }

    /// Takes no more tasks.
    pub(super) fn close(&self, phase: Phase) {
        let mut state = lock(&self.state);
        state.phase = phase;
        let mut wakers = Vec::new();
        if phase == Phase::Cancelling {
            for entry in state.queue.all() {
                entry.task.mark_cancelled();
                wakers.push(entry.waker.clone());
            }
        }
        let over = state.is_over();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if over {
            self.bell.notify_all();
        }
    }

    pub(super) fn close_if_open(&self, phase: Phase) {
        // Nobody but who has the pool closes it, so it is not closed in between.
        let open = lock(&self.state).phase == Phase::Open;
        if open {
            self.close(phase);
        }
    }

    /// How many tasks were cancelled since the pool began to be shut down.
    pub(super) fn cancelled(&self) -> usize {
        lock(&self.state).cancelled
    }

    /// How many tasks have not ended, and how many of them are ready.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.queue.len(), state.queue.ready())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn push(&mut self, key: TaskKey, turn: Turn) {
        self.queue.push(key, turn);
        #[cfg(test)]
        self.record(|state| super::tests::Recorded::ready(state, key));
    }

    /// Whether nothing will ever have to be polled again.
    fn is_over(&self) -> bool {
        self.phase != Phase::Open && self.queue.len() == 0
    }

    /// Whether all threads have ended.
    pub(super) fn is_gone(&self) -> bool {
        self.threads == 0
    }

    /// The task has ended. What was kept of it, to be dropped elsewhere.
    fn end(&mut self, key: TaskKey) -> Option<Entry> {
        #[cfg(test)]
        self.record(|state| super::tests::Recorded::ended(state, key));
        let entry = self.queue.remove(key);
        let cancelled = entry.as_ref().is_some_and(|entry| entry.task.was_cancelled());
        self.cancelled += usize::from(cancelled && self.phase != Phase::Open);
        entry
    }

    /// Who is polled by the poll.
    pub(super) fn polled(&self, poll: Polling) -> Option<&Arc<Task>> {
        self.queue.kept(poll.task).map(|entry| &entry.task)
    }

    #[cfg(test)]
    pub(super) fn queue(&self) -> &Queue<Turn, Entry> {
        &self.queue
    }

    #[cfg(test)]
    fn record(&mut self, record: impl FnOnce(&State) -> super::tests::Recorded) {
        if self.recorded.is_some() {
            let record = record(self);
            self.recorded.iter_mut().for_each(|all| all.push(record));
        }
    }
}
