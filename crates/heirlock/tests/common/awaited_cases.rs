// The cases that are the same for all that is awaited and not acquired, for whichever is `Source` where this is included. `source(&domain, waits)` makes
// one for which so many wait; `come(&source)` is what ends all these waits, and `STAYS` whether waits that begin after that end at once.

/// A wait of this worker, polled once.
fn waiting<'a>(worker: &Worker, source: &'a Source) -> Hand<'a, heirlock::Result<()>> {
    Hand::by(worker, async { source.wait().await.map(drop) }).waiting()
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let (domain, _) = domain();
    let source = source(&domain, 1);
    drop((source.wait(), source.wait().timeout(ms(1)).priority(3).deadline(Instant::now())));
    assert_idle(&domain);
    let unpolled = source.wait();
    let mut waits = waiting(&worker("w", 0), &source);
    come(&source);
    waits.ready().unwrap();
    drop((waits, unpolled));
    assert_idle(&domain);
}

/// All at once, whoever is polled or not, and in order of their urgency.
#[test]
fn case_p16_p19_p24_all_are_woken_the_most_urgent_first() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let start = Instant::now() + Duration::from_secs(3600);
        let later = |span| start + ms(span);
        // Priorities, and of the last two equals the earlier deadline.
        let sorted = source(&domain, 6);
        let waits = [
            sorted.wait().priority(0),
            sorted.wait().priority(i32::MIN),
            sorted.wait().priority(i32::MAX),
            sorted.wait().priority(5).timeout(Duration::from_secs(60)),
            sorted.wait().priority(5).deadline(later(200)),
            sorted.wait().priority(5).deadline(later(100)),
        ];
        assert_eq!(Turns::of(waits, || come(&sorted)), [2, 5, 4, 3, 0, 1]);
        let fifo = source(&domain, 3).order(Order::Fifo);
        assert_eq!(Turns::of([1, 9, 5].map(|priority| fifo.wait().priority(priority)), || come(&fifo)), [0, 1, 2]);
        let by_deadline = source(&domain, 3).order(Order::Deadline);
        let waits = [by_deadline.wait().priority(9), by_deadline.wait().deadline(later(200)), by_deadline.wait().deadline(later(100))];
        assert_eq!(Turns::of(waits, || come(&by_deadline)), [2, 1, 0]);
        assert_idle(&domain);
    });
}

#[test]
fn case_p20_no_time_to_wait() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = source(&domain, 1);
        let late = worker("late", 0).deadline(Instant::now());
        assert!(Hand::by(&worker("w", 9), source.wait().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
        assert!(Hand::by(&worker("w", 9), source.wait().deadline(Instant::now())).ready().unwrap_err().is_timeout());
        assert!(Hand::by(&late, source.wait()).ready().unwrap_err().is_timeout());
        // Neither has queued.
        let mut waits = waiting(&worker("w", 0), &source);
        come(&source);
        waits.ready().unwrap();
        if STAYS {
            Hand::by(&late, source.wait().timeout(Duration::ZERO)).ready().unwrap();
        }
        assert_idle(&domain);
    });
}

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = source(&domain, 1);
        let mut abandoned = source.wait();
        assert!(once(&mut abandoned).await.is_pending());
        come(&source);
        let mut anew = source.wait();
        let polled = once(&mut anew).await;
        assert_eq!(polled.is_ready(), STAYS);
        if polled.is_pending() {
            come(&source);
            anew.await.unwrap();
        }
        // It was over when it came first, and passes nothing on.
        abandoned.await.unwrap();
        assert_idle(&domain);
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = source(&domain, 3);
        let (mut f1, mut f2) = (source.wait(), source.wait());
        assert!(once(&mut f1).await.is_pending() && once(&mut f2).await.is_pending());
        let mut other = waiting(&worker("other", 0), &source);
        come(&source);
        f2.await.unwrap();
        // Nobody waits because of f1.
        other.ready().unwrap();
        drop(f1);
        assert_idle(&domain);
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = source(&domain, 1);
        let mut f1 = source.wait();
        for round in 0.. {
            if let Poll::Ready(first) = once(&mut f1).await {
                first.unwrap();
                assert_eq!(round, 1);
                break;
            }
            // As the arm of `select!` that was ready.
            come(&source);
        }
        assert_idle(&domain);
    });
}

/// What came ends all waits, so nobody's is behind one that is not polled.
#[test]
fn case_f04_abandoned_by_another_task() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let source = Arc::new(source(&domain, 2));
        let mut f1 = source.wait();
        assert!(once(&mut f1).await.is_pending());
        let second = std::thread::spawn({
            let source = Arc::clone(&source);
            move || source.wait_blocking().map(drop)
        });
        while domain.records()[5] < 2 {
            std::thread::yield_now();
        }
        let start = clock.now();
        come(&source);
        second.join().unwrap().unwrap();
        assert_eq!(clock.now(), start);
        // It lasts however late that is noticed.
        clock.advance(domain.stall_time() * 3);
        domain.expire();
        f1.await.unwrap();
        assert_idle(&domain);
    });
}

#[test]
fn case_f06_join_arms() {
    async fn arms() {
        let (domain, _) = domain();
        let source = source(&domain, 2);
        let arm = async || source.wait().await.map(drop);
        let comes = async {
            pause().await;
            come(&source);
        };
        let (first, second, ()) = tokio::join!(arm(), arm(), comes);
        first.unwrap();
        second.unwrap();
        assert_idle(&domain);
    }
    in_tasks(arms);
    pollster::block_on(arms());
    // Also of one worker that was not forked: each is a wait of its own.
    pollster::block_on(Worker::new("w").run(arms()));
}

#[test]
fn case_f08_outside_a_task() {
    let (domain, clock) = domain();
    let source = source(&domain, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| pollster::block_on(source.wait()).map(drop).unwrap());
        while domain.records()[5] < 1 {
            std::thread::yield_now();
        }
        come(&source);
    });
    let other = self::source(&domain, 1);
    let mut waits = other.wait().timeout(ms(10));
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    clock.advance(ms(10));
    assert!(pollster::block_on(waits).map(drop).unwrap_err().is_timeout());
    drop(other);
    assert_idle(&domain);
}

#[test]
fn case_f10_blocking_inside_a_runtime() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = Arc::new(source(&domain, 1));
        if cfg!(feature = "tokio") && tokio::runtime::Handle::try_current().is_ok() {
            for error in [source.wait_blocking().map(drop).unwrap_err(), source.wait().priority(3).blocking().map(drop).unwrap_err()] {
                assert!(error.is_would_block());
                let text = format!("waiting for {KIND} \"it\" here would block a thread of the async runtime");
                assert!(error.to_string().starts_with(&text), "{error}");
            }
            assert_idle(&domain);
        }
        let waiter = std::thread::spawn({
            let source = Arc::clone(&source);
            move || source.wait_blocking().map(drop)
        });
        while domain.records()[5] < 1 {
            pause().await;
        }
        come(&source);
        waiter.join().unwrap().unwrap();
        if STAYS {
            source.wait_blocking().map(drop).unwrap();
        }
        assert_idle(&domain);
    });
}

/// Begun on one thread, ended on another.
#[test]
fn case_f11_a_wait_that_moves_to_another_thread() {
    let (domain, _) = domain();
    let source = source(&domain, 2);
    let mut moves = waiting(&worker("w", 0), &source);
    let dropped = waiting(&worker("w", 0), &source);
    come(&source);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(dropped));
        scope.spawn(|| moves.ready().unwrap());
    });
    drop(moves);
    assert_idle(&domain);
}

/// Who was just told and goes takes nothing from the others, who have been told as well; nor from whoever waits anew.
#[test]
fn case_f13_lost_wake_up() {
    everywhere(|| async {
        let (domain, _) = domain();
        let source = source(&domain, 2);
        let (told, mut other) = (waiting(&worker("told", 0), &source), waiting(&worker("other", 0), &source));
        come(&source);
        assert_eq!((told.wakes(), other.wakes()), (1, 1));
        let mut anew = Hand::new(source.wait());
        let early = anew.poll().is_ready();
        assert_eq!(early, STAYS);
        drop(told);
        other.ready().unwrap();
        if !early {
            assert!(anew.poll().is_pending() && anew.wakes() == 0, "nothing is passed on");
        }
        drop((anew, other));
        assert_idle(&domain);
    });
}

#[test]
fn case_f15_forgotten() {
    let (domain, clock) = domain();
    let [w1, w2] = ["w1", "w2"].map(Worker::new);
    // One that is told and forgotten is in nobody's way.
    let source = source(&domain, 2);
    forget(waiting(&w1, &source));
    let mut next = waiting(&w2, &source);
    come(&source);
    next.ready().unwrap();
    drop(next);
    // One that waits; then what it waits for moves and goes.
    let other = self::source(&domain, 2);
    forget(waiting(&w1, &other));
    forget(Hand::by(&w1, other.wait()));
    let mut late = Hand::by(&w2, other.wait().timeout(ms(10))).waiting();
    clock.advance(ms(10));
    while late.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(late.ready().map(drop).unwrap_err().is_timeout());
    drop(late);
    drop(Box::new(other));
    assert_eq!(domain.records()[4..], [0, 0, 0]);
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let (domain, _) = domain();
        let (source, gone_on) = (source(&domain, 100), AtomicUsize::new(0));
        let mut arms: Vec<_> = (0..100)
            .map(|_| {
                let arm = Hand::new(async {
                    source.wait().await.map(drop).unwrap();
                    pause().await;
                    gone_on.fetch_add(1, Ordering::Relaxed);
                });
                arm.waiting()
            })
            .collect();
        come(&source);
        for _ in 0..2 {
            arms.retain_mut(|arm| arm.poll().is_pending());
        }
        assert_eq!((arms.len(), gone_on.load(Ordering::Relaxed)), (0, 100));
        assert_idle(&domain);
    });
}

#[test]
fn snapshots_show_who_waits() {
    let (domain, clock) = domain();
    let source = source(&domain, 2);
    let here = std::panic::Location::caller();
    let mut waits = Hand::by(&worker("low", 1), source.wait()).waiting();
    let mut also = Hand::by(&worker("high", 9), source.wait().timeout(ms(500))).waiting();
    clock.advance(ms(200));
    let snapshot = domain.snapshot();
    let [lock] = snapshot.locks.as_slice() else { panic!("{snapshot}") };
    assert_eq!((&*lock.name, lock.kind, lock.unknown_releaser, lock.holders.len()), ("it", KIND, true, 0));
    assert!(snapshot.edges.is_empty(), "{snapshot}");
    let queue: Vec<_> = lock.queue.iter().map(|wait| (&*wait.party.worker.name, wait.effective, wait.waiting_ms, wait.deadline_in_ms)).collect();
    assert_eq!(queue, [("high", 9, 200, Some(300)), ("low", 1, 200, None)]);
    assert!(lock.queue.iter().all(|wait| wait.site.as_ref().is_some_and(|site| site.contains(here.file()))), "{snapshot}");
    come(&source);
    for wait in [&mut waits, &mut also] {
        wait.ready().map(drop).unwrap();
    }
    drop((waits, also));
    assert!(domain.snapshot().locks.is_empty());
    assert_idle(&domain);
}
