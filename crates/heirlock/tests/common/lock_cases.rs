// The cases of time that is over, and of abandoned, cancelled and forgotten futures, for whichever lock is `Lock` where this is included. `TWICE` is how
// it ends when a worker asks for what it has: a second level of a lock that has levels, or that error; `IS_HELD` how a refusal begins.

#[test]
fn case_p10_expiry_against_grant() {
    everywhere(|| async {
        for (release_at, granted) in [(100, false), (99, true)] {
            let (domain, clock) = domain();
            let lock = Lock::new(()).in_domain(&domain);
            let guard = Hand::by(&worker("t", 0), lock.lock()).ready().unwrap();
            let mut w1 = Hand::by(&worker("w1", 50), lock.lock().timeout(ms(100))).waiting();
            let mut w2 = Hand::by(&worker("w2", 20), lock.lock()).waiting();
            clock.advance(ms(release_at));
            drop(guard);
            clock.advance(ms(150 - release_at));
            if granted {
                drop(w1.ready().unwrap());
            } else {
                assert!(w1.ready().unwrap_err().is_timeout());
            }
            drop(w2.ready().unwrap());
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_p20_zero_timeout() {
    everywhere(|| async {
        let (domain, _) = domain();
        let lock = Lock::new(()).in_domain(&domain);
        let (holder, other) = (worker("holder", 1), worker("other", 9));
        drop(Hand::by(&other, lock.lock().timeout(Duration::ZERO)).ready().unwrap());
        let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
        for _ in 0..2 {
            assert!(Hand::by(&other, lock.lock().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
            assert!(Hand::by(&other, lock.lock().deadline(Instant::now())).ready().unwrap_err().is_timeout());
            assert_eq!(holder.effective_priority(), 1);
        }
        // Nor with somebody queued, whose untaken grant it is then.
        let kept = Hand::by(&other, lock.lock()).waiting();
        assert!(Hand::by(&worker("third", 99), lock.lock().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
        assert_eq!(holder.effective_priority(), 9);
        drop(guard);
        drop(Hand::by(&other, lock.lock().timeout(Duration::ZERO)).ready().unwrap());
        drop(kept);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let lock = Lock::new(AtomicU64::new(0)).in_domain(&domain);
        let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        let mut abandoned = lock.lock();
        assert!(once(&mut abandoned).await.is_pending());
        drop(guard);
        lock.lock().await.unwrap().fetch_add(1, Ordering::Relaxed);
        // It was displaced, and is as good as new.
        abandoned.await.unwrap().fetch_add(1, Ordering::Relaxed);
        // One level each time, not two.
        assert!(!lock.is_locked());
        assert_eq!(lock.lock().await.unwrap().load(Ordering::Relaxed), 2);
        assert_idle(&domain);
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let lock = Lock::new(()).in_domain(&domain);
        let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        let (mut f1, mut f2) = (lock.lock(), lock.lock());
        assert!(once(&mut f1).await.is_pending() && once(&mut f2).await.is_pending());
        drop(guard);
        drop(f2.await.unwrap());
        assert!(!lock.is_locked());
        // Nobody waits because of f1.
        let mut other = Hand::by(&Worker::new("other"), lock.lock());
        drop(other.ready().unwrap());
        drop(f1);
        assert_idle(&domain);
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        let lock = Lock::new(());
        let mut guard = Some(Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap());
        let mut f1 = lock.lock();
        for round in 0.. {
            if let Poll::Ready(first) = once(&mut f1).await {
                drop(first.unwrap());
                assert_eq!(round, 1);
                break;
            }
            // As the arm of `select!` that was ready.
            guard = None;
            drop(lock.lock().await.unwrap());
        }
        assert!(guard.is_none());
    });
}

#[test]
fn case_f04_abandoned_by_another_task() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let lock = Arc::new(Lock::named("kept", ()).in_domain(&domain));
        let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        let mut f1 = lock.lock();
        assert!(once(&mut f1).await.is_pending());
        let second = std::thread::spawn({
            let (lock, clock) = (Arc::clone(&lock), clock.clone());
            move || {
                let guard = lock.lock_blocking().unwrap();
                let taken = clock.now();
                drop(guard);
                taken
            }
        });
        // The second has queued behind f1.
        while domain.snapshot().locks[0].queue.len() < 2 {
            std::thread::yield_now();
        }
        let start = clock.now();
        drop(guard);
        let holder = |domain: &Domain| domain.snapshot().locks[0].holders[0].party.worker.name.clone();
        let kept_by = holder(&domain);
        for span in [Duration::ZERO, domain.stall_time().checked_sub(ms(1)).unwrap()] {
            clock.advance(span);
            domain.expire();
            assert_eq!(holder(&domain), kept_by);
        }
        // It takes no longer than it must: the clock stands from now on.
        clock.advance(ms(1));
        domain.expire();
        assert_eq!(second.join().unwrap().since(start), domain.stall_time());
        // It believes nothing: it waits again, before those who came after it.
        let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        let later = Hand::by(&Worker::new("later"), lock.lock()).waiting();
        assert!(once(&mut f1).await.is_pending());
        drop(guard);
        drop(f1.await.unwrap());
        assert_eq!(later.wakes(), 1);
        drop(later);
        assert_idle(&domain);
    });
}

/// The same by the machine's clock and the timer's thread; how late they are is the machine's business.
#[test]
fn case_f04_by_the_machines_clock() {
    let domain = Domain::builder().stall_time(ms(20)).build();
    let lock = Lock::new(()).in_domain(&domain);
    let guard = Hand::by(&worker("holder", 0), lock.lock()).ready().unwrap();
    let abandoned = Hand::by(&worker("idle", 9), lock.lock()).waiting();
    let next = lock.lock();
    let start = Instant::now();
    drop(guard);
    drop(pollster::block_on(next).unwrap());
    assert!(start.elapsed() >= domain.stall_time());
    drop(abandoned);
    assert_idle(&domain);
}

/// Whoever comes when the grant has long been stalled has the lock at once; whoever only tries does not, and takes nothing from who comes next.
#[test]
fn case_f04_queueing_behind_a_stalled_grant() {
    let (domain, clock) = domain();
    let lock = Lock::new(()).in_domain(&domain);
    let guard = Hand::by(&worker("holder", 0), lock.lock()).ready().unwrap();
    let abandoned = Hand::by(&worker("idle", 9), lock.lock()).waiting();
    drop(guard);
    for _ in 0..2 {
        clock.advance(domain.stall_time());
        domain.expire();
    }
    assert!(lock.try_lock().unwrap_err().is_would_block());
    let mut late = Hand::by(&worker("late", 0), lock.lock()).waiting();
    assert_eq!(late.wakes(), 1);
    drop(late.ready().unwrap());
    drop(abandoned);
    assert_idle(&domain);
}

#[test]
fn case_f08_outside_a_task() {
    let (domain, clock) = domain();
    let lock = Lock::new(()).in_domain(&domain);
    let twice = || async {
        let _first = lock.lock().await?;
        let mut second = lock.lock().timeout(ms(10));
        if let Poll::Ready(result) = once(&mut second).await {
            return result.map(drop);
        }
        clock.advance(ms(10));
        second.await.map(drop)
    };
    for _ in 0..2 {
        pollster::block_on(lock.lock()).map(drop).unwrap();
        assert!(pollster::block_on(twice()).unwrap_err().is_timeout());
        let by_worker = pollster::block_on(Worker::new("main").run(twice()));
        assert_eq!(by_worker.err().map(|error| error.kind()), TWICE);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(twice()).unwrap_err().is_timeout());
    assert_idle(&domain);
}

#[test]
fn case_f09_converging_waits_are_not_a_cycle() {
    let domain = Domain::builder().build();
    let [top, left, right] = ["top", "left", "right"].map(|name| Lock::named(name, ()).in_domain(&domain));
    let [end, w1, w2, start] = [0, 1, 2, 3].map(|at| worker(format!("w{at}"), at));
    let held_top = Hand::by(&end, top.lock()).ready().unwrap();
    let (held_left, held_right) = (Hand::by(&w1, left.lock()).ready().unwrap(), Hand::by(&w2, right.lock()).ready().unwrap());
    // From `start` by two ways to `end`.
    let mut waits = [Hand::by(&w1, top.lock()).waiting(), Hand::by(&w2, top.lock()).waiting()];
    let mut starts = [Hand::by(&start, left.lock()).waiting(), Hand::by(&start, right.lock()).waiting()];
    assert_eq!(end.effective_priority(), 3);
    drop(held_top);
    drop(waits[0].ready().unwrap());
    drop(waits[1].ready().unwrap());
    drop((held_left, held_right));
    for start in &mut starts {
        drop(start.ready().unwrap());
    }
    assert_idle(&domain);
}

#[test]
fn case_f10_blocking_inside_a_runtime() {
    everywhere(|| async {
        let lock = Arc::new(Lock::named("db", 1));
        let guard = lock.lock_blocking().unwrap();
        if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
            let error = lock.lock_blocking().unwrap_err();
            assert!(error.is_would_block());
            assert!(error.to_string().starts_with(&format!("{IS_HELD}, and waiting for it here")), "{error}");
        }
        let other = std::thread::spawn({
            let lock = Arc::clone(&lock);
            move || *lock.lock_blocking().unwrap()
        });
        drop(guard);
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn case_f11_guard_across_threads() {
    everywhere(|| async {
        let (domain, _) = domain();
        let lock = Arc::new(Lock::new(()).in_domain(&domain));
        let (low, high) = (worker("low", 1), worker("high", 8));
        let guard = Hand::by(&low, lock.lock_owned()).ready().unwrap();
        let mut waits = Hand::by(&high, lock.lock()).waiting();
        assert_eq!(low.effective_priority(), 8);
        std::thread::spawn(move || drop(guard)).join().unwrap();
        assert_eq!((low.effective_priority(), waits.wakes()), (1, 1));
        drop(waits.ready().unwrap());
        assert_idle(&domain);
    });
}

#[test]
fn case_f13_lost_wake_up() {
    everywhere(|| async {
        let (domain, _) = domain();
        let lock = Lock::new(()).in_domain(&domain);
        let guard = Hand::new(lock.lock()).ready().unwrap();
        let [notified, next] = ["notified", "next"].map(|name| Hand::by(&Worker::new(name), lock.lock()).waiting());
        drop(guard);
        assert_eq!((notified.wakes(), next.wakes()), (1, 0));
        drop(notified);
        assert_eq!(next.wakes(), 1);
        let mut next = next;
        drop(next.ready().unwrap());
        assert_idle(&domain);
    });
}

#[test]
fn case_f15_forgotten() {
    let clock = ManualClock::new();
    let domain = Domain::builder().clock(clock.clone()).build();
    let [w1, w2, w3] = ["w1", "w2", "w3"].map(Worker::new);
    // A queued future: who comes next waits behind it, and has the lock once it was granted and not taken for too long.
    let lock = Lock::new(StdMutex::new(vec![1])).in_domain(&domain);
    let guard = Hand::by(&w1, lock.lock()).ready().unwrap();
    forget(Hand::by(&w2, lock.lock()).waiting());
    let mut waits = Hand::by(&w3, lock.lock()).waiting();
    drop(guard);
    // The watch is a thread of its own: the clock goes on until it has seen enough.
    while waits.wakes() == 0 {
        clock.advance(domain.stall_time() / 2);
        std::thread::yield_now();
    }
    // It learns that it may take over, does so, and so is granted the lock.
    assert!(waits.poll().is_pending());
    waits.ready().unwrap().lock().unwrap().push(2);
    assert!(!lock.is_locked());
    drop(waits);
    // A granted one, with nobody behind it; then the lock moves and drops.
    let guard = Hand::by(&w1, lock.lock()).ready().unwrap();
    forget(Hand::by(&w2, lock.lock()).waiting());
    drop(guard);
    assert!(lock.is_locked());
    let moved = Box::new(lock);
    drop(moved);
    // What the first could still be told, were it ever polled: leaked as it is.
    let leaked = [0, 0, 1, 0, 0, 0, 0];
    assert_eq!(domain.records(), leaked);
    // A guard: whoever waits behind it can only time out.
    let lock = Lock::named("leaked", ()).in_domain(&domain);
    forget(Hand::by(&w1, lock.lock()).ready().unwrap());
    let mut late = Hand::by(&w2, lock.lock().timeout(Duration::from_secs(1))).waiting();
    clock.advance(Duration::from_secs(1));
    while late.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(late.ready().unwrap_err().is_timeout());
    drop(late);
    drop(lock);
    assert_eq!(domain.records(), leaked);
}

