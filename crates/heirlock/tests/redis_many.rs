//! One session that holds very many keys on Redis, in each of its forms. `ci/services` starts the servers.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "common/many_keys.rs"]
mod many_keys;

use heirlock::lease::SessionId;

/// In a namespace of its own on the servers of this variable.
async fn case_s16(variable: &str) {
    let servers = std::env::var(variable).unwrap_or_else(|_| panic!("{variable}: run the tests by ci/test, or by ci/services"));
    many_keys::ten_thousand_keys(&format!("{servers}?prefix={:016x}/", SessionId::random().unwrap().0), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s16_ten_thousand_keys_on_one_server() {
    case_s16("HEIRLOCK_TEST_REDIS").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s16_ten_thousand_keys_through_sentinels() {
    case_s16("HEIRLOCK_TEST_REDIS_SENTINEL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_s16_ten_thousand_keys_on_a_cluster() {
    case_s16("HEIRLOCK_TEST_REDIS_CLUSTER").await;
}
