//! The link: a thread with a small runtime that keeps a connection, makes it anew when it breaks, sends steps, and hands hints on.
//!
//! While there is no connection, requests wait for the attempt that is under way; when it fails they fail together, and so does all that comes until
//! the next one.

mod keeper;

use std::sync::Arc;
use std::thread;

use ::redis::Value;
use futures_channel::oneshot;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::keeper::Keeper;
use super::address::Address;
use super::closed;
use super::health::Health;
use super::wire::Step;
use crate::lease::{SessionId, Sink, Spawner, Work};
use crate::{Error, Kind, Result};

/// What the thread is asked for.
enum Job {
    Steps(Steps),
    Other(Other),
}

/// What is asked for more rarely.
enum Other {
    Scan(String, oneshot::Sender<Result<Vec<String>>>),
    Look(oneshot::Sender<Result<Vec<Health>>>),
    Listen(SessionId, Sink, oneshot::Sender<Result<()>>),
    Hush(SessionId, oneshot::Sender<Result<()>>),
}

/// Steps, and who waits for what they come to.
struct Steps {
    steps: Vec<Step>,
    answer: oneshot::Sender<Result<Vec<Result<Value>>>>,
}

impl Steps {
    /// Only what can grant waits for replicas.
    fn grants(&self) -> bool {
        self.steps.iter().any(|step| step.grants)
    }
}

/// A handle to the thread, which ends when it is dropped.
pub(super) struct Link {
    jobs: UnboundedSender<Job>,
    works: UnboundedSender<Work>,
}

impl Link {
    /// To the servers at this address, whose grants are to be known to so many replicas before they count.
    pub(super) async fn connect(address: Address, wait: u32) -> Result<(Link, Vec<Health>)> {
        let (jobs, todo) = unbounded_channel();
        let (works, to_run) = unbounded_channel();
        let (sender, opened) = oneshot::channel();
        thread::Builder::new()
            .name("heirlock-redis".into())
            .spawn(move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(cause) => {
                        let _ = sender.send(Err(Error::new(Kind::Storage, "the system gives no runtime for the store").because(cause)));
                        return;
                    }
                };
                runtime.block_on(Keeper::keep(address, wait, (todo, to_run), sender));
            })
            .map_err(|cause| Error::new(Kind::Storage, "the system gives no thread for the store").because(cause))?;
        let servers = opened.await.unwrap_or_else(|_| Err(closed()))?;
        Ok((Link { jobs, works }, servers))
    }

    async fn ask<T>(&self, other: impl FnOnce(oneshot::Sender<Result<T>>) -> Other) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.send(Job::Other(other(sender)), answer).await
    }

    async fn send<T>(&self, job: Job, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        self.jobs.send(job).map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Runs steps in one round trip; answers each.
    pub(super) async fn steps(&self, steps: Vec<Step>) -> Result<Vec<Result<Value>>> {
        let (sender, answer) = oneshot::channel();
        self.send(Job::Steps(Steps { steps, answer: sender }), answer).await
    }

    /// The names that match.
    pub(super) async fn scan(&self, pattern: String) -> Result<Vec<String>> {
        self.ask(|sender| Other::Scan(pattern, sender)).await
    }

    /// What the servers tell of themselves.
    pub(super) async fn look(&self) -> Result<Vec<Health>> {
        self.ask(Other::Look).await
    }

    /// A way to the thread, which does not keep it.
    pub(super) fn spawner(&self) -> Spawner {
        let works = self.works.clone();
        Arc::new(move |work| {
            // When the thread has ended there is nobody for whom it could be done.
            let _ = works.send(work);
        })
    }

    pub(super) async fn listen(&self, session: SessionId, sink: Sink) -> Result<()> {
        self.ask(|sender| Other::Listen(session, sink, sender)).await
    }

    pub(super) async fn hush(&self, session: SessionId) -> Result<()> {
        self.ask(|sender| Other::Hush(session, sender)).await
    }
}
