//! Futures polled by hand, and the same test on every kind of runtime.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use heirlock::Worker;

/// A future on the heap, with a waker that counts.
pub(crate) struct Hand<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    wakes: Arc<Wakes>,
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<'a, T> Hand<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Hand { future: Box::pin(future), wakes: Arc::default() }
    }

    /// As this worker.
    pub(crate) fn by<F: Future<Output = T> + Send + 'a>(worker: &Worker, future: F) -> Self {
        Hand::new(worker.run(future))
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Polled once, and still waiting.
    #[track_caller]
    pub(crate) fn waiting(mut self) -> Self {
        assert!(self.poll().is_pending(), "it should wait");
        self
    }

    #[track_caller]
    pub(crate) fn ready(&mut self) -> T {
        match self.poll() {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it should be ready"),
        }
    }

    pub(crate) fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::SeqCst)
    }

    /// Waits until it has been woken so often: the thread that moves the clock may find that the timer's has done its work, but not yet called.
    pub(crate) fn woken(&self, times: usize) {
        while self.wakes() < times {
            std::thread::yield_now();
        }
    }
}

/// Polled by others from now on.
impl<'a, T> IntoFuture for Hand<'a, T> {
    type Output = T;
    type IntoFuture = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        self.future
    }
}

/// Lets everybody else run once; on any runtime.
pub(crate) async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls once.
pub(crate) async fn once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Runs the same without a runtime, in a task of a one-thread runtime, and of one with two threads. Without a runtime, and where heirlock knows
/// nothing of tasks, as an explicit worker.
pub(crate) fn everywhere<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    pollster::block_on(Worker::new("main").run(test()));
    if cfg!(feature = "tokio") {
        in_tasks(test);
    } else {
        in_tasks(|| Worker::new("task").run(test()));
    }
}

/// Runs the same in a bare task of each kind of tokio's runtime.
pub(crate) fn in_tasks<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    one.block_on(async { tokio::spawn(test()).await.unwrap() });
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    two.block_on(async { tokio::spawn(test()).await.unwrap() });
}

/// A text that has these parts, in this order: places and times apart, which change as files do.
#[track_caller]
pub(crate) fn assert_says(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some(at) = rest.find(part) else { panic!("{part:?} is missing, or not in its place, in {text:?}") };
        rest = &rest[at + part.len()..];
    }
}
