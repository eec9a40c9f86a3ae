//! What goes from one to another: jobs, money, the end of a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heirlock::Worker;
use heirlock::local::Semaphore;

use crate::common::random::{Random, seed};
use crate::examples::graceful_shutdown::Service;
use crate::examples::producer_consumers::{BATCH, Queue, ROOM, consume};
use crate::examples::two_accounts::{Account, one_after_the_other, transfer};
use crate::examples::{graceful_shutdown, inversion, producer_consumers, two_accounts};
use crate::{in_time, once};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_consumers_get_all_jobs_in_whole_batches() {
    let batches = in_time(producer_consumers::recipe()).await.unwrap();
    let mut sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
    let mut jobs = batches.concat();
    jobs.sort_unstable();
    assert!(jobs.into_iter().eq(1..=100), "each job once");
}

#[tokio::test]
async fn producer_consumers_wait_for_room_and_for_a_batch() {
    let queue = Queue::new();
    let mut takes = Box::pin(queue.take());
    let last = u32::try_from(BATCH).unwrap();
    for job in 1..last {
        in_time(queue.push(job)).await.unwrap();
        assert!(once(&mut takes).await.is_pending(), "{job} are no batch");
    }
    in_time(queue.push(last)).await.unwrap();
    assert!(in_time(takes).await.unwrap().into_iter().eq(1..=last));
    for job in 0..u32::try_from(ROOM).unwrap() {
        in_time(queue.push(job)).await.unwrap();
    }
    let mut pushes = Box::pin(queue.push(1000));
    assert!(once(&mut pushes).await.is_pending(), "it is full");
    assert_eq!(queue.jobs.lock().await.unwrap().0.len(), ROOM);
    assert!(in_time(queue.take()).await.unwrap().into_iter().eq(0..last));
    in_time(pushes).await.unwrap();
    assert_eq!(queue.jobs.lock().await.unwrap().0.back(), Some(&1000));
}

#[tokio::test]
async fn producer_consumers_all_end_when_no_more_will_come() {
    let queue = Queue::new();
    let mut takes = [(); 3].map(|()| Box::pin(queue.take()));
    in_time(queue.push(1)).await.unwrap();
    for take in &mut takes {
        assert!(once(take).await.is_pending());
    }
    in_time(queue.close()).await.unwrap();
    let mut left = Vec::new();
    for take in takes {
        left.push(in_time(take).await.unwrap());
    }
    assert_eq!(left, [vec![1], vec![], vec![]]);
}

/// Consumers that go away while they wait take no job along, nor the news of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_consumers_lose_nothing_with_who_goes_away() {
    for _ in 0..50 {
        let queue = Arc::new(Queue::new());
        let tasks = [(); 4].map(|()| tokio::spawn(consume(Arc::clone(&queue))));
        let stay = tokio::spawn(consume(Arc::clone(&queue)));
        // The first batch is not yet whole: all wait, or will.
        for job in 1..8 {
            in_time(queue.push(job)).await.unwrap();
        }
        tokio::task::yield_now().await;
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            assert!(in_time(task).await.unwrap_err().is_cancelled());
        }
        for job in 8..=40 {
            in_time(queue.push(job)).await.unwrap();
        }
        in_time(queue.close()).await.unwrap();
        assert!(in_time(stay).await.unwrap().unwrap().concat().into_iter().eq(1..=40));
    }
}

#[tokio::test]
async fn two_accounts_name_the_circle() {
    let (deadlock, balances) = in_time(two_accounts::recipe()).await.unwrap();
    let deadlock = deadlock.unwrap();
    assert!(deadlock.is_deadlock());
    let text = deadlock.to_string();
    for part in [r#"lock "alice""#, r#"lock "bob""#, r#"worker "rent""#, r#"worker "refund""#, "two_accounts.rs:", "same order everywhere"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(balances, (80, 70));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_accounts_keep_the_sum_and_never_deadlock_in_whatever_order_they_are_named() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let accounts: Arc<[Account; 4]> = Arc::new(std::array::from_fn(|_| Account::named("account", 1000)));
    let workers: Vec<_> = (0..8)
        .map(|stream| {
            let (accounts, mut random) = (Arc::clone(&accounts), Random::new(seed, stream));
            heirlock::spawn(Worker::new("transfers"), async move {
                let mut made = 0;
                for _ in 0..500 {
                    let from = random.index(4);
                    let to = (from + 1 + random.index(3)) % 4;
                    made += u32::from(transfer(&accounts[from], &accounts[to], random.within(0, 400)).await?);
                }
                Ok::<_, heirlock::Error>(made)
            })
        })
        .collect();
    for worker in workers {
        assert!(in_time(worker).await.unwrap().unwrap() > 0);
    }
    let mut sum = 0;
    for account in &*accounts {
        sum += *account.lock().await.unwrap();
    }
    assert_eq!(sum, 4000);
}

#[tokio::test]
async fn two_accounts_refuse_what_cannot_be() {
    let (poor, rich) = (Account::named("poor", 1), Account::named("rich", 100));
    assert!(in_time(transfer(&rich, &rich, 1)).await.unwrap_err().is_invalid());
    assert!(!transfer(&poor, &rich, 2).await.unwrap());
    assert!(one_after_the_other(&poor, &rich, 1).await.unwrap());
    assert_eq!((poor.into_inner(), rich.into_inner()), (0, 101));
    let (full, more) = (Account::named("full", u64::MAX), Account::named("more", 5));
    assert!(!in_time(transfer(&more, &full, 1)).await.unwrap());
    assert_eq!((full.into_inner(), more.into_inner()), (u64::MAX, 5));
}

#[tokio::test]
async fn graceful_shutdown_finishes_what_has_begun_and_names_who_is_stuck() {
    let seen = in_time(graceful_shutdown::recipe()).await.unwrap();
    assert_eq!(seen, (3, 2, 7, vec!["search".to_owned()]));
}

/// After a hundred jobs the next one of each worker lasts until all are told to stop: that is finished, and no other is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_shutdown_loses_no_job() {
    const JOBS: u32 = 1000;
    let (service, jobs) = (Arc::new(Service::default()), Arc::new(Semaphore::unbounded(JOBS)));
    let number = Arc::new(AtomicU32::new(0));
    let workers = ["one", "two", "three", "four"].map(|name| {
        let (service, jobs, number, worker) = (Arc::clone(&service), Arc::clone(&jobs), Arc::clone(&number), Worker::new(name));
        let work = async move {
            let job = async || {
                if number.fetch_add(1, Ordering::SeqCst) >= 100 {
                    service.stop.wait().await.unwrap();
                }
                tokio::task::yield_now().await;
            };
            service.work(&jobs, job).await
        };
        (worker.clone(), heirlock::spawn(worker, work))
    });
    in_time(async {
        while service.begun.load(Ordering::SeqCst) < 104 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let stuck = in_time(service.shut_down(workers.into(), Duration::from_secs(60))).await;
    assert!(stuck.is_empty(), "{stuck:?}");
    let (begun, done) = (service.begun.load(Ordering::SeqCst), service.done.load(Ordering::SeqCst));
    assert_eq!((begun, done, jobs.free_permits()), (104, 104, JOBS - 104));
}

/// What a job has is given back when its worker is aborted.
#[tokio::test]
async fn graceful_shutdown_aborts_who_is_stuck() {
    let (service, jobs, has) = (Arc::new(Service::default()), Arc::new(Semaphore::unbounded(1)), Arc::new(()));
    let worker = Worker::new("stuck");
    let work = {
        let (service, jobs, has) = (Arc::clone(&service), Arc::clone(&jobs), Arc::clone(&has));
        async move { service.work(&jobs, async || std::future::pending::<()>().await).await.map(|()| drop(has)) }
    };
    let task = heirlock::spawn(worker.clone(), work);
    tokio::task::yield_now().await;
    assert_eq!((service.begun.load(Ordering::SeqCst), Arc::strong_count(&has)), (1, 2));
    assert_eq!(in_time(service.shut_down(vec![(worker, task)], Duration::from_millis(1))).await, ["stuck"]);
    in_time(async {
        while Arc::strong_count(&has) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Who waits for a job is told, and who failed is named.
#[tokio::test]
async fn graceful_shutdown_ends_who_is_idle_and_names_who_failed() {
    let (service, none, closed) = (Arc::new(Service::default()), Arc::new(Semaphore::unbounded(0)), Arc::new(Semaphore::new(1)));
    closed.close();
    let workers = [("idle", &none), ("failed", &closed)].map(|(name, jobs)| {
        let (service, jobs, worker) = (Arc::clone(&service), Arc::clone(jobs), Worker::new(name));
        let work = async move { service.work(&jobs, async || ()).await };
        (worker.clone(), heirlock::spawn(worker, work))
    });
    tokio::task::yield_now().await;
    assert_eq!(in_time(service.shut_down(workers.into(), Duration::from_secs(60))).await, ["failed"]);
    assert_eq!(service.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn inversion_ends_with_what_low_has_left_to_do() {
    let [with, without, on_tokio] = in_time(inversion::recipe()).await.unwrap();
    assert_eq!((with.0, without.0), (0, 60));
    // Of the tasks that take turns, three others come between any two polls of Low.
    assert!((20..=33).contains(&on_tokio.0), "{on_tokio:?}");
    assert!(with.1 >= Duration::from_millis(20) && without.1 >= Duration::from_millis(120), "{with:?} {without:?}");
}
