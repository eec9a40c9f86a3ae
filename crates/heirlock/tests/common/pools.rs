//! What the tests of the pool share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use heirlock::pool::{Builder, JoinHandle, Pool};
use heirlock::{Result, Worker};
use tokio::runtime::Runtime;

/// A runtime for its context alone: its thread drives I/O and timers.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A pool of so many threads, in the context of the runtime.
pub(crate) fn pool(runtime: &Runtime, threads: usize) -> Pool {
    builder(runtime).threads(threads).build().unwrap()
}

pub(crate) fn builder(runtime: &Runtime) -> Builder {
    Pool::builder().runtime(runtime.handle().clone())
}

pub(crate) fn worker(name: impl Into<std::borrow::Cow<'static, str>>, priority: i32) -> Worker {
    Worker::new(name).priority(priority)
}

/// Words in the order in which they were said.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn say(&self, word: impl Into<String>) {
        self.0.lock().unwrap().push(word.into());
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Keeps a thread of the pool busy until it is let go: what is spawned meanwhile is ready all at once.
pub(crate) struct Plug {
    release: std::sync::mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Plug {
    /// Returns when the thread is busy.
    pub(crate) fn new(pool: &Pool) -> Plug {
        let ((release, released), (has_begun, begins)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let task = pool.spawn(worker("plug", i32::MAX), async move {
            has_begun.send(()).unwrap();
            released.recv().unwrap();
        });
        begins.recv().unwrap();
        Plug { release, task }
    }

    pub(crate) fn pull(self) -> Result<()> {
        self.release.send(()).unwrap();
        self.task.blocking()
    }
}

/// Counts when it is dropped.
pub(crate) struct Counted(pub(crate) Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
