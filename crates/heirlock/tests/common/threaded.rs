//! A store whose own thread does more than hand hints on: any store, with a thread for each work that it is given.

use std::sync::Arc;
use std::time::Duration;

use heirlock::Result;
use heirlock::conformance::Factory;
use heirlock::lease::{Answer, Beat, Capabilities, Enter, Evict, Key, KeyView, Leave, Left, Pending, SessionId, Sink, Spawner, Store};
use heirlock::store::MemoryStore;

#[derive(Clone)]
pub(crate) struct Threaded(pub(crate) MemoryStore);

impl Factory for Threaded {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.clone()) as Arc<dyn Store>) })
    }
}

impl Store for Threaded {
    fn enter<'a>(&'a self, key: &'a Key, request: Enter) -> Pending<'a, Answer> {
        self.0.enter(key, request)
    }

    fn beat(&self, requests: Vec<(Key, Beat)>) -> Pending<'_, Vec<Result<Answer>>> {
        self.0.beat(requests)
    }

    fn leave<'a>(&'a self, key: &'a Key, request: Leave) -> Pending<'a, Left> {
        self.0.leave(key, request)
    }

    fn evict<'a>(&'a self, key: &'a Key, request: Evict) -> Pending<'a, u64> {
        self.0.evict(key, request)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, KeyView> {
        self.0.inspect(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Pending<'a, Vec<KeyView>> {
        self.0.list(prefix)
    }

    fn notices(&self, session: SessionId, sink: Sink) -> Pending<'_, ()> {
        self.0.notices(session, sink)
    }

    fn goodbye(&self, session: SessionId) -> Pending<'_, ()> {
        self.0.goodbye(session)
    }

    fn min_ttl(&self) -> Duration {
        self.0.min_ttl()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn spawner(&self) -> Option<Spawner> {
        Some(Arc::new(|work| drop(std::thread::spawn(|| pollster::block_on(work)))))
    }

    fn url(&self) -> String {
        self.0.url()
    }
}
