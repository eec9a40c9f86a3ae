// What is extreme, and what happens where it should not, of whichever lock is `Lock` where this is included.

#[test]
fn extreme_priorities() {
    let domain = Domain::builder().build();
    let lock = Lock::new(()).in_domain(&domain);
    let holder = Worker::new("holder").priority(i32::MIN);
    let mut guard = Some(Hand::by(&holder, lock.lock()).ready().unwrap());
    let waits: Vec<_> = [0, i32::MIN, i32::MAX, -1].iter().map(|at| Hand::new(lock.lock().priority(*at)).waiting()).collect();
    assert_eq!(holder.effective_priority(), i32::MAX);
    let mut waits: Vec<_> = waits.into_iter().map(Some).collect();
    for next in [2, 0, 3, 1] {
        drop(guard.take());
        guard = waits[next].as_mut().map(|wait| wait.ready().unwrap());
    }
    assert_eq!(holder.effective_priority(), i32::MIN);
}

#[test]
fn a_deadline_in_the_past() {
    let lock = Lock::new(());
    let past = Instant::now().checked_sub(Duration::from_millis(1)).unwrap();
    let guard = Hand::new(lock.lock().deadline(past)).ready().unwrap();
    assert!(Hand::new(lock.lock().deadline(past)).ready().unwrap_err().is_timeout());
    drop(guard);
}

#[test]
fn a_hundred_thousand_waiters() {
    let domain = Domain::builder().build();
    let lock = Lock::new(()).in_domain(&domain);
    let count = if cfg!(miri) { 100 } else { 100_000 };
    let guard = lock.try_lock().unwrap();
    let mut waits: Vec<_> = (0..count).map(|_| Hand::new(lock.lock().timeout(Duration::from_secs(3600))).waiting()).collect();
    drop(guard);
    // From the middle, from the end, and those that are served.
    let rest = waits.split_off(count / 2);
    drop(waits.split_off(count / 4));
    for mut wait in waits {
        drop(wait.ready().unwrap());
    }
    drop(rest);
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn a_chain_of_ten_thousand_locks() {
    let domain = Domain::builder().build();
    let count = if cfg!(miri) { 50 } else { 10_000 };
    let locks: Vec<_> = (0..count).map(|_| Arc::new(Lock::new(()).in_domain(&domain))).collect();
    let workers: Vec<_> = (0..count).map(|_| Worker::new("link")).collect();
    let held: Vec<Owned> =
        locks.iter().zip(&workers).map(|(lock, worker)| Hand::by(worker, lock.lock_owned()).ready().unwrap()).collect();
    // Each waits for the one before it.
    let waits: Vec<_> = workers[1..].iter().zip(&locks).map(|(worker, lock)| Hand::by(worker, lock.lock()).waiting()).collect();
    let high = Worker::new("high").priority(9);
    let last = Hand::by(&high, locks[count - 1].lock()).waiting();
    assert_eq!(workers[0].effective_priority(), 9);
    // The first for the last one: round it goes.
    let error = Hand::by(&workers[0], locks[count - 1].lock()).ready().unwrap_err();
    assert!(error.is_deadlock());
    drop(last);
    assert_eq!(workers[0].effective_priority(), 0);
    drop((waits, held));
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn a_guard_dropped_by_a_panic_frees_the_lock() {
    let lock = Lock::new(1);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.try_lock().unwrap();
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

/// A waker that uses the domain, when it is called and when it is dropped: no mutex is held then.
#[test]
fn a_guard_dropped_within_a_wake_up() {
    let domain = Domain::builder().build();
    let [first, second] = [(), ()].map(|()| Arc::new(Lock::new(()).in_domain(&domain)));
    let guard = first.try_lock().unwrap();
    let held = pollster::block_on(second.lock_owned()).unwrap();
    let mut second_waits = Hand::new(second.lock()).waiting();
    let waker = Releases::waking(held);
    let mut waits = first.lock();
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
    // Only the domain has it now.
    drop(waker);
    drop(guard);
    drop(second_waits.ready().unwrap());
    drop(waits);
    // Dropped unwoken, with the future.
    let guard = first.try_lock().unwrap();
    let held = pollster::block_on(second.lock_owned()).unwrap();
    let waker = Releases::waking(held);
    let mut waits = first.lock();
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    drop(waits);
    assert!(!second.is_locked());
    drop(guard);
    assert_eq!(domain.records(), [0; 7]);
}

/// A waker that panics takes nothing from the others, and leaves the domain as it should be.
#[test]
fn a_waker_that_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let domain = Domain::builder().build();
    let lock = Lock::new(()).in_domain(&domain);
    let guard = lock.try_lock().unwrap();
    let mut waits = lock.lock();
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
    // The panic is the waker's own, and ends there.
    drop(guard);
    drop(pollster::block_on(waits).unwrap());
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

/// In another thread, too, whose end is the last that is seen of it.
#[test]
fn a_guard_that_outlives_its_runtime() {
    let domain = Domain::builder().build();
    let lock = Arc::new(Lock::new(()).in_domain(&domain));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task = runtime.spawn(lock.lock_owned());
    let guard = runtime.block_on(task).unwrap().unwrap();
    let mut waits = Hand::new(lock.lock()).waiting();
    drop(runtime);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    drop(waits.ready().unwrap());
    assert_eq!(domain.records(), [0; 7]);
}
