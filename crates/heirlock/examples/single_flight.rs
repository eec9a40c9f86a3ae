//! Rebuild a cache entry once while many ask for it ("single flight").
//!
//! An entry is not there, or no more; a hundred requests miss it in the same moment, and all hundred ask the database for it. Here the first takes
//! the lock of that key and rebuilds; the others wait, none beyond its deadline, and read what it made. While an urgent one waits, whoever rebuilds
//! is as urgent itself, in every queue that it stands in.
//!
//! You do not need this for a value that is made once for good (`OnceCell`), or where rebuilding costs less than the wait.

use heirlock::local::{KeyedLock, Mutex, RwLock};
use heirlock::{Worker, spawn};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Cache {
    entries: RwLock<HashMap<String, Arc<str>>>,
    rebuilding: KeyedLock<String>,
}

impl Cache {
    pub(crate) fn new() -> Cache {
        let rebuilding = KeyedLock::named("rebuilding").label(String::clone);
        Cache { entries: RwLock::named("entries", HashMap::new()), rebuilding }
    }

    /// The entry. Where there is none, `rebuild` makes it, once for all who ask meanwhile; if that fails or is dropped, the next who waits tries.
    pub(crate) async fn get(&self, key: &str, rebuild: impl AsyncFnOnce() -> heirlock::Result<String>) -> heirlock::Result<Arc<str>> {
        if let Some(entry) = self.entries.read().await?.get(key) {
            return Ok(Arc::clone(entry));
        }
        let _turn = self.rebuilding.lock(key.to_owned()).await?;
        // Whoever had the turn before may have made it.
        if let Some(entry) = self.entries.read().await?.get(key) {
            return Ok(Arc::clone(entry));
        }
        let entry: Arc<str> = rebuild().await?.into();
        self.entries.write().await?.insert(key.to_owned(), Arc::clone(&entry));
        Ok(entry)
    }
}

/// What the database made, the pages that were got, and what one heard who could not wait.
pub(crate) async fn recipe() -> Result<(Vec<&'static str>, Vec<Arc<str>>, Option<heirlock::Error>), Box<dyn Error>> {
    let cache = Arc::new(Cache::new());
    let database = Arc::new(Mutex::named("database", Vec::new()));
    let query = |who| {
        let database = Arc::clone(&database);
        async move { database.lock().await.map(|mut served| served.push(who)) }
    };
    let ask = |worker: Worker| {
        let (cache, query) = (Arc::clone(&cache), query("the front page"));
        spawn(worker, async move { cache.get("front page", async || query.await.map(|()| "<h1>News</h1>".to_owned())).await })
    };
    // The one connection is in use, a crawler begins to rebuild the page, and reports pass it in the line. But then users wait for that page.
    let busy = Worker::new("backup").run(database.lock()).await?;
    let crawler = ask(Worker::new("crawler"));
    let reports: Vec<_> = (0..3).map(|_| spawn(Worker::new("report").priority(5), query("a report"))).collect();
    let users: Vec<_> = (0..100).map(|_| ask(Worker::new("user").priority(10))).collect();
    let hasty = ask(Worker::new("hasty").priority(10).deadline(Instant::now() + Duration::from_millis(5)));
    let late = hasty.await?.err();
    drop(busy);
    let mut pages = vec![crawler.await??];
    for user in users {
        pages.push(user.await??);
    }
    for report in reports {
        report.await??;
    }
    Ok((database.lock().await?.clone(), pages, late))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (served, pages, late) = recipe().await?;
    println!("the database made, one after the other: {}", served.join(", "));
    println!("{} got the page; one who could wait for 5 ms got: {}", pages.len(), late.map_or("it, too".into(), |error| error.to_string()));
    Ok(())
}
