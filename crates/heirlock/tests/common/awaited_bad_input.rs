// What is extreme, and what happens where it should not, of whatever is `Source` where this is included.

/// Some leave, and the rest goes on at once.
#[test]
fn a_hundred_thousand_wait() {
    let domain = Domain::builder().build();
    let count = if cfg!(miri) { 100 } else { 100_000 };
    let source = source(&domain, count * 3 / 4);
    let wait = |_| Hand::new(async { source.wait().timeout(Duration::from_secs(3600)).await.map(drop) }).waiting();
    let mut waits: Vec<_> = (0..count / 2).map(wait).collect();
    drop(waits.split_off(count / 4));
    let rest: Vec<_> = (0..count / 2).map(wait).collect();
    come(&source);
    drop(rest);
    for mut wait in waits {
        wait.ready().unwrap();
    }
    assert_idle(&domain);
}

/// The waker of one wait ends another, and begins one: no mutex is held then.
#[test]
fn a_wait_that_ends_within_a_wake_up() {
    struct Waits(StdMutex<Option<Await<'static, Source>>>, &'static Source);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            // It may have come, or not: it is asked here, and left.
            let mut wait = self.1.wait();
            let _ = Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop()));
        }
    }
    let domain = Domain::builder().build();
    let source: &'static Source = Box::leak(Box::new(source(&domain, 2)));
    let mut other = source.wait().priority(-1);
    assert!(Pin::new(&mut other).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let waits = Arc::new(Waits(StdMutex::new(Some(other)), source));
    let mut first = source.wait();
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waits)))).is_pending());
    come(source);
    assert!(waits.0.lock().unwrap().is_none());
    pollster::block_on(first).map(drop).unwrap();
    assert_idle(&domain);
}

/// A waker that panics takes nothing from the others.
#[test]
fn a_waker_that_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let domain = Domain::builder().build();
    let source = source(&domain, 2);
    let mut first = source.wait().priority(9);
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
    let mut second = waiting(&worker("w", 0), &source);
    come(&source);
    second.ready().unwrap();
    pollster::block_on(first).map(drop).unwrap();
    drop(second);
    assert_idle(&domain);
}

/// A wait that was begun in a task of a runtime that has gone.
#[test]
fn a_wait_that_outlives_its_runtime() {
    let domain = Domain::builder().build();
    let source: &'static Source = Box::leak(Box::new(source(&domain, 1)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task = runtime.spawn(async move {
        let mut wait = source.wait();
        assert!(once(&mut wait).await.is_pending());
        (wait,)
    });
    let (wait,) = runtime.block_on(task).unwrap();
    drop(runtime);
    come(source);
    pollster::block_on(wait).map(drop).unwrap();
    assert_idle(&domain);
}

/// Whoever was forgotten in one domain is in nobody's way in another.
#[test]
fn moved_to_another_domain() {
    let [first, second] = [(); 2].map(|()| Domain::builder().build());
    let source = source(&first, 1);
    drop(waiting(&worker("gone", 0), &source));
    forget(waiting(&worker("forgotten", 0), &source));
    let source = source.in_domain(&second);
    let mut waits = waiting(&worker("w", 0), &source);
    come(&source);
    waits.ready().unwrap();
    drop(waits);
    assert_idle(&second);
    // What has come stays so.
    let moved = source.in_domain(&first);
    assert_eq!(Hand::new(moved.wait()).poll().is_ready(), STAYS);
    assert_idle(&first);
}
