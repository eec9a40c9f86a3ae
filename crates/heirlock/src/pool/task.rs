//! One task: its future, what is known of it, and its handle.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use async_task::{FallibleTask, Runnable, ScheduleInfo, WithInfo};
use pin_project_lite::pin_project;

use super::queue::TaskKey;
use super::threads::{Entry, Shared, is_here};
use crate::local::identity::in_runtime;
use crate::local::tickets::Tickets;
use crate::sync::{discard, survives};
use crate::worker::{Follow, Run};
use crate::{Error, Kind, Result, Worker};

/// What a thread polls.
pub(super) type Turn = Runnable<Arc<Task>>;

/// A task, as the pool, its handles and its worker know it.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: Worker,
    /// Its slot in the queue, and its number there, or 0: set once, under the pool's mutex.
    slot: AtomicU32,
    number: AtomicU64,
    /// Of those who find the priority out.
    tickets: Tickets,
    /// The future is to be dropped, not polled again.
    cancelled: AtomicBool,
    /// How it ended, if it has: one of the three below.
    end: AtomicU8,
}

const LIVES: u8 = 0;
const ENDED: u8 = 1;
const CANCELLED: u8 = 2;

/// How a task ends without a result.
enum Cut {
    Cancelled,
    Panicked(Box<dyn Any + Send>),
}

/// How a task ended. If nobody takes that, it is dropped within the task's cell, where a panic would be the process's end: it ends here.
struct End<T>(Option<std::result::Result<T, Cut>>);

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        if !survives(|| drop(self.0.take())) {
            tracing::error!("a task's result, which nobody took, panicked when it was dropped");
        }
    }
}

/// The future that is polled in place of the user's.
type Body<F> = Guarded<Run<F>>;

/// A task of this worker with this future, ready to be polled; if the pool takes it.
pub(super) fn spawn<F>(shared: &Arc<Shared>, worker: &Worker, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = Arc::new(Task {
        shared: Arc::clone(shared),
        worker: worker.clone(),
        slot: AtomicU32::new(0),
        number: AtomicU64::new(0),
        tickets: Tickets::new(),
        cancelled: AtomicBool::new(false),
        end: AtomicU8::new(LIVES),
    });
    let weak: Weak<Task> = Arc::downgrade(&task);
    worker.follow(weak);
    let priority = worker.polling_priority();
    let body: Body<F> = Guarded { future: Some(worker.run(future)), task: Arc::clone(&task) };
    let (turn, handle) = async_task::Builder::new().metadata(Arc::clone(&task)).spawn(move |_| body, WithInfo(ready));
    let entry = Entry { task: Arc::clone(&task), waker: turn.waker() };
    let overtaken = shared.admit(entry, priority, turn, |key| {
        task.set_key(key);
        // Whoever came with a change before this found no key to change anything under.
        task.tickets.any()
    });
    match overtaken {
        Ok(overtaken) => {
            if overtaken {
                task.changed();
            }
            JoinHandle { task, result: Awaited::Waits(handle.fallible()) }
        }
        Err((_, turn)) => {
            // Where the future is dropped in the way in which it always is.
            task.mark_cancelled();
            turn.run();
            handle.detach();
            JoinHandle { task, result: Awaited::Refused }
        }
    }
}

/// The task is to be polled.
#[allow(clippy::needless_pass_by_value)] // What is called with it gives it.
fn ready(turn: Turn, info: ScheduleInfo) {
    let task = Arc::clone(turn.metadata());
    if let Some(key) = task.key() {
        // Woken while it was polled, it is scheduled by the thread that polled it.
        task.shared.ready(key, turn, info.woken_while_running);
    }
}

impl Task {
    fn set_key(&self, key: TaskKey) {
        self.slot.store(key.slot, Ordering::Relaxed);
        // Last, and so that whoever sees it sees the slot.
        self.number.store(key.number, Ordering::Release);
    }

    pub(super) fn key(&self) -> Option<TaskKey> {
        let number = self.number.load(Ordering::Acquire);
        (number != 0).then(|| TaskKey { slot: self.slot.load(Ordering::Relaxed), number })
    }

    /// The future is to be dropped before its next poll: who then wakes the task has that done.
    pub(super) fn mark_cancelled(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
    }

    fn cancel(&self) {
        self.mark_cancelled();
        if let Some(waker) = self.key().and_then(|key| self.shared.waker(key)) {
            waker.wake();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.load(Ordering::SeqCst) != LIVES
    }

    pub(super) fn was_cancelled(&self) -> bool {
        self.end.load(Ordering::SeqCst) == CANCELLED
    }
}

impl Follow for Task {
    fn changed(&self) {
        let ticket = self.tickets.draw();
        let priority = self.worker.polling_priority();
        self.shared.rekey(|| self.key(), priority, ticket);
    }
}

pin_project! {
    /// A future whose panic is a result, and that is dropped when its task is cancelled.
    struct Guarded<F> {
        #[pin]
        future: Option<F>,
        task: Arc<Task>,
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = End<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let polled = if this.task.cancelled.load(Ordering::SeqCst) {
            Some(Err(Cut::Cancelled))
        } else {
            match catch_unwind(AssertUnwindSafe(|| this.future.as_mut().as_pin_mut().map(|future| future.poll(cx)))) {
                Ok(Some(Poll::Pending)) => return Poll::Pending,
                Ok(Some(Poll::Ready(output))) => Some(Ok(output)),
                Err(panic) => Some(Err(Cut::Panicked(panic))),
                Ok(None) => None,
            }
        };
        let Some(mut output) = polled else { panic!("a task's future was polled after it had completed") };
        // Foreign code, too.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| this.future.set(None))) {
            if matches!(output, Err(Cut::Cancelled)) {
                output = Err(Cut::Panicked(panic));
            } else {
                // What there is to be told already is worth more.
                discard(panic);
                tracing::error!(worker = this.task.worker.name(), "a task's future panicked when it was dropped");
            }
        }
        let end = if matches!(output, Err(Cut::Cancelled)) { CANCELLED } else { ENDED };
        this.task.end.store(end, Ordering::SeqCst);
        this.task.worker.unfollow(this.task);
        // Before the result is there: whoever has that finds the task gone.
        if let Some(key) = this.task.key() {
            this.task.shared.end(key);
        }
        Poll::Ready(End(Some(output)))
    }
}

/// Waits for a task's result. Dropping it leaves the task to itself.
///
/// # Errors
/// `Panicked`, from which [`Error::into_panic`] has what it panicked with; `Cancelled`, by [`abort`](JoinHandle::abort) or by the end of its pool;
/// `Closed` if it was spawned after that; `Deadlock` if [`blocking`](JoinHandle::blocking) is called in the pool.
///
/// # Panics
/// When it is polled again after it has given the result.
///
/// # Cancel safety
/// It may be dropped and polled anew, by reference, as often as one likes: the result stays where it is until it is taken.
#[must_use = "a task whose handle is dropped goes on, and nobody hears of its panic"]
pub struct JoinHandle<T> {
    task: Arc<Task>,
    result: Awaited<T>,
}

enum Awaited<T> {
    Waits(FallibleTask<End<T>, Arc<Task>>),
    /// The pool took no more.
    Refused,
    Taken,
}

/// Aborts a task, from wherever it is kept.
#[derive(Clone)]
pub struct AbortHandle(Arc<Task>);

impl<T> JoinHandle<T> {
    /// Cancels the task: its future is dropped in place of its next poll, when it is its turn, which among tasks that are more urgent and always ready
    /// is never. Nothing happens if it has ended; a poll that has begun goes on, and if it brings the result, that counts.
    ///
    /// ```
    /// use heirlock::{Worker, pool::Pool};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let pool = Pool::builder().threads(1).build()?;
    /// let task = pool.spawn(Worker::new("endless"), std::future::pending::<()>());
    /// task.abort();
    /// assert!(task.await.unwrap_err().is_cancelled());
    /// # Ok(()) }
    /// ```
    pub fn abort(&self) {
        self.task.cancel();
    }

    /// Aborts the task, too, and can be cloned.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(Arc::clone(&self.task))
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        !matches!(self.result, Awaited::Waits(_)) || self.task.has_ended()
    }

    /// As whom it runs.
    pub fn worker(&self) -> &Worker {
        &self.task.worker
    }

    /// Waits on this thread.
    ///
    /// # Errors
    /// As when it is awaited. And if the task has not ended, `Deadlock` on a thread of the pool, because the task might never have its turn, and
    /// `WouldBlock` on others within a runtime; the task goes on then.
    pub fn blocking(mut self) -> Result<T> {
        if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
        if is_here(&self.task.shared) {
            let what = "a task of the pool cannot block its thread to wait for another: await the handle instead";
            return Err(Error::new(Kind::Deadlock, what));
        }
        may_block("a task")?;
        pollster::block_on(self)
    }
}

/// Whether a thread may wait here for `what`.
pub(super) fn may_block(what: &str) -> Result<()> {
    if in_runtime() {
        let what =
            format!("waiting here for {what} of a pool would block a thread of the async runtime, which may drive it: await it instead");
        return Err(Error::new(Kind::WouldBlock, what));
    }
    Ok(())
}

impl AbortHandle {
    /// As [`JoinHandle::abort`].
    pub fn abort(&self) {
        self.0.cancel();
    }

    /// As [`JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.0.has_ended()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let ended = match &mut self.result {
            Awaited::Waits(result) => std::task::ready!(Pin::new(result).poll(cx)).and_then(|mut end| end.0.take()),
            Awaited::Refused => None,
            Awaited::Taken => panic!("a task's handle was polled after it had given the result"),
        };
        self.result = Awaited::Taken;
        Poll::Ready(match ended {
            Some(Ok(output)) => Ok(output),
            Some(Err(Cut::Panicked(payload))) => Err(Error::panicked(self.task.worker.name(), payload)),
            Some(Err(Cut::Cancelled)) => {
                Err(Error::new(Kind::Cancelled, format!("task {:?} was cancelled before it had ended", self.task.worker.name())))
            }
            None => {
                let (task, pool) = (self.task.worker.name(), &self.task.shared.name);
                Err(Error::new(Kind::Closed, format!("task {task:?} was not begun: the pool {pool:?} is shut down and takes no more")))
            }
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Awaited::Waits(result) = std::mem::replace(&mut self.result, Awaited::Taken) {
            result.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("worker", self.worker()).field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("worker", &self.0.worker).field("finished", &self.is_finished()).finish()
    }
}
