//! A store that is looked at: nothing is made, and nobody waits for ever.

use std::future::Future;
use std::time::{Duration, Instant};

use heirlock::lease::{Evict, Key, KeyView};
use heirlock::{Kind, Locks, redact};
use tokio::time::{sleep, timeout};

use crate::default_store::{self, Place};
use crate::exit::Exit;
use crate::run;

/// How long a look may take, the connect included.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a store that does not answer the first.
const PAUSE: Duration = Duration::from_millis(500);

/// A store, or the place of one that nobody has ever used.
pub(crate) struct Look {
    place: Place,
    locks: Option<Locks>,
    until: Instant,
}

impl Look {
    /// At the store that was said, or else is used.
    pub(crate) async fn at(store: Option<String>) -> Result<Look, Exit> {
        Look::into(default_store::url(store)?).await
    }

    /// At this store.
    pub(crate) async fn into(place: Place) -> Result<Look, Exit> {
        let until = Instant::now() + PATIENCE;
        // Nobody has ever locked anything: looking must not leave a file behind.
        let locks = if place.is_unused() { None } else { Some(run::connect(&place.for_looking(), None).await?) };
        Ok(Look { place, locks, until })
    }

    /// The keys whose names start so.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<KeyView>, Exit> {
        match &self.locks {
            Some(locks) => self.again(|| locks.list(prefix)).await,
            None => Ok(Vec::new()),
        }
    }

    /// One key.
    pub(crate) async fn inspect(&self, key: &Key) -> Result<KeyView, Exit> {
        match &self.locks {
            Some(locks) => self.again(|| locks.inspect(key.as_str())).await,
            None => Ok(KeyView::of(key.clone(), 0, None, Vec::new(), 0)),
        }
    }

    /// What of the store's set-up can lose locks.
    pub(crate) async fn warnings(&self) -> Result<Vec<String>, Exit> {
        match &self.locks {
            Some(locks) => self.again(|| locks.warnings()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Takes the key away from its holders with this fence. Answers how many it met.
    pub(crate) async fn evict(&self, key: &Key, fence: u64, force: bool) -> Result<u64, Exit> {
        match &self.locks {
            Some(locks) => self.in_time(locks.evict(key.as_str(), Evict { fence: Some(fence), force })).await,
            None => Ok(0),
        }
    }

    /// Ends the look. Answers the store's address, without any password.
    pub(crate) async fn close(self) -> String {
        let Some(locks) = self.locks else { return redact(&self.place.url) };
        let url = locks.url();
        locks.close().await;
        url
    }

    /// Asks until there is an answer, for as long as a look may take: in a cluster the node that has a key may just be replaced.
    async fn again<T, F: Future<Output = heirlock::Result<T>>>(&self, ask: impl Fn() -> F) -> Result<T, Exit> {
        let asked = async {
            loop {
                match ask().await {
                    Err(error) if error.kind() == Kind::Unreachable && Instant::now() + 2 * PAUSE < self.until => {
                        tracing::debug!(error = %error.chain(), "trying again");
                        sleep(PAUSE).await;
                    }
                    answer => return answer,
                }
            }
        };
        self.in_time(asked).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = heirlock::Result<T>>) -> Result<T, Exit> {
        match timeout(self.until.saturating_duration_since(Instant::now()), answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Exit::own(error.chain())),
            Err(_) => Err(Exit::own(format!("{} did not answer within {PATIENCE:?}", redact(&self.place.url)))),
        }
    }
}
