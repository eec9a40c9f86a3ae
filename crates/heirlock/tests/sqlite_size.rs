//! One session that holds very many keys of one file.
#![cfg(feature = "sqlite")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use heirlock::Locks;

#[path = "common/many_keys.rs"]
mod many_keys;

/// **S16** over a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s16_ten_thousand_keys() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    many_keys::ten_thousand_keys(&format!("sqlite:{}", directory.path().join("leases.db").display()), 2).await;
}

/// A file that has seen very many keys: who asks now is served as ever, and what nobody uses is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_keys_in_one_file() {
    const MANY: usize = 100_000;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("sqlite:{}", directory.path().join("leases.db").display());
    let locks = Locks::connect(&url).await.unwrap();
    let asks: Vec<_> = (0..8)
        .map(|part| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for number in (part..MANY).step_by(8) {
                    // As a script would that does one thing and ends.
                    drop(locks.lock(format!("key {number}")).await.unwrap());
                }
            })
        })
        .collect();
    for ask in asks {
        ask.await.unwrap();
    }
    let held = locks.lock("key 99999").await.unwrap();
    assert!(locks.try_lock("key 99999").await.unwrap_err().is_busy());
    // Only what is in use is shown, however much there was.
    let until = Instant::now() + Duration::from_secs(60);
    while locks.list("").await.unwrap().len() > 1 {
        assert!(Instant::now() < until, "what was given up is still held");
    }
    held.release().await.unwrap();
    locks.close().await;
}
