//! In what order futures are woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

/// Notes that one was woken.
pub(crate) struct Turns {
    at: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Turns {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.at);
    }
}

impl Turns {
    /// Polls each once, when it has to wait; then which were woken, in order. In the end all are ready, last first.
    #[track_caller]
    pub(crate) fn of<F: Future + Unpin, const N: usize>(mut futures: [F; N], come: impl FnOnce()) -> Vec<usize> {
        let woken = Arc::default();
        for (at, future) in futures.iter_mut().enumerate() {
            let waker = Waker::from(Arc::new(Turns { at, woken: Arc::clone(&woken) }));
            assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending(), "{at} should wait");
        }
        come();
        for future in futures.iter_mut().rev() {
            assert!(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        let woken = woken.lock().unwrap();
        woken.clone()
    }
}
