// Many acquires at once, cancelled wherever they are, of whichever lock is `Lock` where this is included.

/// What the lock guards, and whether anybody is inside now.
#[derive(Default)]
struct Guarded {
    count: AtomicU64,
}

struct Storm {
    domain: Domain,
    locks: [Lock<Guarded>; 2],
    inside: [AtomicBool; 2],
    held: AtomicU64,
    timed_out: AtomicU64,
}

impl Storm {
    fn new() -> Arc<Storm> {
        let domain = Domain::builder().build();
        let locks = [(), ()].map(|()| Lock::new(Guarded::default()).in_domain(&domain));
        Arc::new(Storm { domain, locks, inside: Default::default(), held: AtomicU64::new(0), timed_out: AtomicU64::new(0) })
    }

    /// Acquires once, and goes away at some point of it.
    async fn acquire(&self, random: &mut Random) {
        let which = random.index(2);
        let mut wait = self.locks[which].lock().priority(i32::try_from(random.within(0, 50)).unwrap());
        if random.chance(30) {
            wait = wait.timeout(Duration::from_micros(random.within(0, 300)));
        }
        // Dropped before it is polled, while it is queued, or when it was granted and does not know yet.
        for _ in 0..random.pick(&[0, 1, 1, 2, 3, 5, 1000]) {
            match once(&mut wait).await {
                Poll::Pending => pause().await,
                Poll::Ready(Err(error)) => {
                    assert!(error.is_timeout(), "{error}");
                    self.timed_out.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Poll::Ready(Ok(guard)) => {
                    assert!(!self.inside[which].swap(true, Ordering::Relaxed), "two are inside");
                    guard.count.fetch_add(1, Ordering::Relaxed);
                    self.held.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..random.index(3) {
                        pause().await;
                    }
                    self.inside[which].store(false, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    fn assert_over(&self) {
        let mut counts = 0;
        for lock in &self.locks {
            assert!(!lock.is_locked());
            counts += lock.try_lock().unwrap().count.load(Ordering::Relaxed);
        }
        assert_eq!(counts, self.held.load(Ordering::Relaxed));
        assert!(counts > 0);
        assert_eq!(self.domain.records(), [0; 7]);
    }
}

#[test]
fn case_f05_cancel_storm() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for explicit in [true, false] {
        let storm = Storm::new();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let workers: Vec<Worker> = (0..8).map(|at| Worker::new(format!("w{at}")).priority(at)).collect();
        runtime.block_on(async {
            let tasks: Vec<_> = (0_u64..)
                .zip(&workers)
                .map(|(stream, worker)| {
                    let storm = Arc::clone(&storm);
                    let work = async move {
                        let mut random = Random::new(seed, stream);
                        for _ in 0..1250 {
                            storm.acquire(&mut random).await;
                        }
                    };
                    if explicit { tokio::spawn(worker.run(work)) } else { tokio::spawn(work) }
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        storm.assert_over();
        for worker in &workers {
            assert_eq!(worker.effective_priority(), worker.base_priority());
        }
    }
}

/// The same by threads that block beside threads that poll: without any runtime.
#[test]
fn case_f05_without_a_runtime() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let storm = Storm::new();
    std::thread::scope(|scope| {
        for stream in 0..4 {
            let storm = &storm;
            scope.spawn(move || {
                let mut random = Random::new(seed, stream);
                for _ in 0..500 {
                    if stream == 0 {
                        storm.locks[0].lock_blocking().unwrap().count.fetch_add(1, Ordering::Relaxed);
                        storm.held.fetch_add(1, Ordering::Relaxed);
                    } else {
                        pollster::block_on(storm.acquire(&mut random));
                    }
                }
            });
        }
    });
    storm.assert_over();
}
