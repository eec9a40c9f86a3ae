//! Who is being polled on this thread.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Worker, WorkerId};
use crate::local::sync::{current_thread, thread_local};
use crate::sync::lock;

/// The innermost of them.
pub(super) fn current() -> Option<Worker> {
    CURRENT.with(|stack| stack.borrow().last().cloned())
}

/// Its id.
#[inline]
pub(super) fn current_id() -> Option<WorkerId> {
    match CURRENT_ID.with(Cell::get) {
        0 => None,
        UNLISTED => list_current(),
        id => Some(WorkerId(id)),
    }
}

/// The first time that somebody asks for it.
#[cold]
#[inline(never)]
fn list_current() -> Option<WorkerId> {
    let id = CURRENT.with(|stack| stack.borrow().last().map(Worker::id))?;
    CURRENT_ID.with(|current| current.set(id.0));
    Some(id)
}

/// What stands for the id of one that is not listed yet. Ids count up from 1 and never come so far.
const UNLISTED: u64 = u64::MAX;

fn known_id(worker: &Worker) -> u64 {
    if worker.0.listed.load(Ordering::Acquire) { worker.0.id.0 } else { UNLISTED }
}

thread_local! {
    /// The id of the innermost of them, or 0 or `UNLISTED`: all that most acquires need to know, without a borrow.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
    /// The workers being polled on this thread, innermost last.
    static CURRENT: RefCell<Vec<Worker>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, the thread polls this worker.
pub(super) struct Entered;

impl Entered {
    pub(super) fn new(worker: &Worker) -> Entered {
        let here = current_thread().id();
        let mut polled_by = lock(&worker.0.polled_by);
        let depth = match *polled_by {
            None => 1,
            Some((thread, depth)) if thread == here => depth + 1,
            Some(_) => {
                drop(polled_by);
                panic!("worker {:?} is polled on two threads at once: it is one line of work; give each its own Worker", worker.name());
            }
        };
        *polled_by = Some((here, depth));
        drop(polled_by);
        CURRENT.with(|stack| stack.borrow_mut().push(worker.clone()));
        CURRENT_ID.with(|id| id.set(known_id(worker)));
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let (worker, outer) = CURRENT.with(|stack| {
            let mut stack = stack.borrow_mut();
            (stack.pop(), stack.last().map_or(0, known_id))
        });
        CURRENT_ID.with(|id| id.set(outer));
        let Some(worker) = worker else { return };
        let mut polled_by = lock(&worker.0.polled_by);
        *polled_by = match *polled_by {
            Some((thread, depth)) if depth > 1 => Some((thread, depth - 1)),
            _ => None,
        };
    }
}

pin_project! {
    /// The future of [`Worker::run`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F> {
        #[pin]
        pub(super) future: F,
        pub(super) worker: Worker,
    }
}

impl<F: Future> Future for Run<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = Entered::new(this.worker);
        this.future.poll(cx)
    }
}

/// Runs the future as this worker, as a task of the current tokio runtime.
///
/// # Panics
/// Outside a tokio runtime, as [`tokio::spawn`].
///
/// ```
/// # use heirlock::{Worker, spawn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let name = spawn(Worker::new("ingest"), async { Worker::current().unwrap().name().to_owned() });
/// assert_eq!(name.await.unwrap(), "ingest");
/// # }
/// ```
#[cfg(feature = "tokio")]
#[allow(clippy::needless_pass_by_value)] // As `tokio::spawn`: it is the last the caller does with it.
pub fn spawn<F>(worker: Worker, future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(worker.run(future))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn workers_nest_and_end_with_their_poll() {
        let (outer, inner) = (Worker::new("outer"), Worker::new("inner").priority(-3));
        let names = pollster::block_on(outer.run(async {
            let before = Worker::current().unwrap();
            let within = inner.run(async { Worker::current().unwrap() }).await;
            (before, within, Worker::current().unwrap())
        }));
        assert_eq!(names, (outer.clone(), inner.clone(), outer.clone()));
        assert!(inner.id() > outer.id());
        assert_eq!(inner.base_priority(), -3);
    }

    #[test]
    fn a_panic_leaves_no_worker_behind() {
        let worker = Worker::new("w");
        let caught = std::panic::catch_unwind(|| worker.scope(|| panic!("on purpose")));
        assert!(caught.is_err());
        assert!(Worker::current().is_none());
        assert_eq!(worker.scope(|| 7), 7);
    }

    #[test]
    fn two_threads_at_once_panic() {
        let (worker, both) = (Worker::new("one line"), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                worker.scope(|| {
                    both.wait();
                    both.wait();
                });
            });
            both.wait();
            let caught = std::panic::catch_unwind(|| worker.scope(|| ()));
            both.wait();
            assert!(caught.is_err());
        });
    }
}
