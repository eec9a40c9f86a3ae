//! The connection: a thread with a small runtime that keeps it, makes it anew when it breaks, sends steps, and hands hints on.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, Script, ServerErrorKind, Value,
};
use futures_channel::oneshot;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::closed;
use super::trouble::{explain, unreachable};
use super::wire::{Step, channel};
use crate::lease::{Key, News, Notice, SessionId, Sink};
use crate::{Error, Kind, Result};

/// The step of the ledger, for all verbs.
static SCRIPT: OnceLock<Script> = OnceLock::new();
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the server may take to answer, before the connection is taken for one that nobody is at the other end of.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two attempts to connect.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How many names a look through all of them takes at a time.
const SCAN: usize = 500;

fn script() -> &'static Script {
    SCRIPT.get_or_init(|| Script::new(include_str!("ledger.lua")))
}

/// What the server is like.
pub(super) struct Server {
    pub(super) durable: bool,
}

/// What the thread is asked for.
enum Job {
    Steps(Vec<Step>, oneshot::Sender<Result<Vec<Result<Value>>>>),
    Scan(String, oneshot::Sender<Result<Vec<String>>>),
    Listen(SessionId, Sink, oneshot::Sender<Result<()>>),
    Hush(SessionId, oneshot::Sender<Result<()>>),
}

/// A handle to the thread, which ends when it is dropped.
pub(super) struct Link {
    jobs: UnboundedSender<Job>,
}

impl Link {
    pub(super) async fn connect(url: &str) -> Result<(Link, Server)> {
        let shown = crate::redact(url);
        let bad = |error: &RedisError| {
            Error::new(
                Kind::Invalid,
                format!("{shown} is no Redis URL ({}): give redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]", error.category()),
            )
        };
        let info = url.into_connection_info().map_err(|error| bad(&error))?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings)).map_err(|error| bad(&error))?;
        let (jobs, todo) = unbounded_channel();
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
                runtime.block_on(Keeper::new(client, shown).keep(todo, sender));
            })
            .map_err(|cause| Error::new(Kind::Storage, "the system gives no thread for the store").because(cause))?;
        let server = opened.await.unwrap_or_else(|_| Err(closed()))?;
        Ok((Link { jobs }, server))
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.jobs.send(job(sender)).map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Runs steps in one round trip; answers each.
    pub(super) async fn steps(&self, steps: Vec<Step>) -> Result<Vec<Result<Value>>> {
        self.ask(|sender| Job::Steps(steps, sender)).await
    }

    /// The names that match.
    pub(super) async fn scan(&self, pattern: String) -> Result<Vec<String>> {
        self.ask(|sender| Job::Scan(pattern, sender)).await
    }

    pub(super) async fn listen(&self, session: SessionId, sink: Sink) -> Result<()> {
        self.ask(|sender| Job::Listen(session, sink, sender)).await
    }

    pub(super) async fn hush(&self, session: SessionId) -> Result<()> {
        self.ask(|sender| Job::Hush(session, sender)).await
    }
}

type Sinks = HashMap<String, Sink>;

/// The thread's own.
struct Keeper {
    client: Client,
    shown: Arc<str>,
    sinks: Sinks,
    /// The connection that is in use, if any, and how many there have been.
    connection: Option<MultiplexedConnection>,
    pushes: UnboundedSender<PushInfo>,
    hints: UnboundedReceiver<PushInfo>,
    pause: Duration,
}

impl Keeper {
    fn new(client: Client, shown: String) -> Keeper {
        let (pushes, hints) = unbounded_channel();
        Keeper { client, shown: shown.into(), sinks: Sinks::new(), connection: None, pushes, hints, pause: PAUSES.0 }
    }

    async fn keep(mut self, mut todo: UnboundedReceiver<Job>, opened: oneshot::Sender<Result<Server>>) {
        let server = match self.connection().await {
            Ok(mut connection) => look_at(&mut connection, &self.shown).await,
            Err(error) => Err(error),
        };
        let failed = server.is_err();
        if opened.send(server).is_err() || failed {
            return;
        }
        loop {
            tokio::select! {
                job = todo.recv() => match job {
                    Some(job) => self.take(job).await,
                    None => return,
                },
                Some(push) = self.hints.recv() => self.hear(&push).await,
            }
        }
    }

    /// The connection, made if need be, with all channels subscribed to.
    async fn connection(&mut self) -> Result<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_push_sender(self.pushes.clone());
        let made = timeout(CONNECT * 2, self.client.get_multiplexed_async_connection_with_config(&config)).await;
        let mut connection = match made {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(explain(&self.shown, &error)),
            Err(_) => return Err(unreachable(&self.shown, "it does not answer")),
        };
        let channels: Vec<&String> = self.sinks.keys().collect();
        if !channels.is_empty() {
            connection.subscribe(channels).await.map_err(|error| explain(&self.shown, &error))?;
        }
        self.pause = PAUSES.0;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    async fn take(&mut self, job: Job) {
        match job {
            Job::Steps(steps, answer) => {
                let connection = match self.connection().await {
                    Ok(connection) => connection,
                    Err(error) => return drop(answer.send(Err(error))),
                };
                let shown = Arc::clone(&self.shown);
                // Beside the others: each waits for its own answer.
                tokio::spawn(async move {
                    let _ = answer.send(run(connection, steps, &shown).await);
                });
            }
            Job::Scan(pattern, answer) => {
                let connection = match self.connection().await {
                    Ok(connection) => connection,
                    Err(error) => return drop(answer.send(Err(error))),
                };
                let shown = Arc::clone(&self.shown);
                tokio::spawn(async move {
                    let _ = answer.send(scan(connection, &pattern).await.map_err(|error| explain(&shown, &error)));
                });
            }
            Job::Listen(session, sink, answer) => {
                let name = channel(session);
                self.sinks.insert(name.clone(), sink);
                let done = match self.connection().await {
                    Ok(mut connection) => connection.subscribe(&name).await.map_err(|error| explain(&self.shown, &error)),
                    Err(error) => Err(error),
                };
                let _ = answer.send(done);
            }
            Job::Hush(session, answer) => {
                let name = channel(session);
                self.sinks.remove(&name);
                if let Some(connection) = &mut self.connection {
                    // A connection that breaks has no channels either.
                    let _ = connection.unsubscribe(&name).await;
                }
                let _ = answer.send(Ok(()));
            }
        }
    }

    async fn hear(&mut self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {
                if let [Value::BulkString(name), Value::BulkString(text)] = &push.data[..]
                    && let (Ok(name), Ok(text)) = (std::str::from_utf8(name), std::str::from_utf8(text))
                    && let (Some(sink), Some((word, key))) = (self.sinks.get(name), text.split_once(' '))
                    && let (Some(news), Ok(key)) = (News::from_word(word), Key::new(key))
                {
                    sink(Notice { key, news });
                }
            }
            PushKind::Disconnection => {
                self.connection = None;
                // Hints that are lost cost time only, so it is made anew before anybody asks: but not all the time.
                if !self.sinks.is_empty() && self.connection().await.is_err() {
                    sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(PAUSES.1);
                    let _ = self.pushes.send(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
                }
            }
            _ => {}
        }
    }
}

/// Steps in one round trip. What the server has forgotten of scripts is told to it again.
async fn run(mut connection: MultiplexedConnection, steps: Vec<Step>, shown: &str) -> Result<Vec<Result<Value>>> {
    let script = script();
    let mut answers: Vec<Option<Result<Value>>> = steps.iter().map(|_| None).collect();
    for is_first in [true, false] {
        let open: Vec<usize> = (0..steps.len()).filter(|at| answers[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let mut pipeline = ::redis::Pipeline::with_capacity(open.len());
        pipeline.ignore_errors();
        for at in &open {
            pipeline.add_command(command(script.get_hash(), &steps[*at]));
        }
        let values: Vec<::redis::RedisResult<Value>> =
            pipeline.query_async(&mut connection).await.map_err(|error| explain(shown, &error))?;
        for (at, value) in open.into_iter().zip(values) {
            match value {
                Err(error) if is_first && error.kind() == ::redis::ErrorKind::Server(ServerErrorKind::NoScript) => {}
                value => answers[at] = Some(value.map_err(|error| explain(shown, &error))),
            }
        }
        if is_first && answers.iter().any(Option::is_none) {
            script.load_async(&mut connection).await.map_err(|error| explain(shown, &error))?;
        }
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(unreachable(shown, "it does not keep scripts")))).collect())
}

fn command(hash: &str, step: &Step) -> Cmd {
    let mut command = ::redis::cmd("EVALSHA");
    command.arg(hash).arg(step.keys.len()).arg(&step.keys);
    for arg in &step.args {
        command.arg(arg);
    }
    command
}

async fn scan(mut connection: MultiplexedConnection, pattern: &str) -> ::redis::RedisResult<Vec<String>> {
    let (mut names, mut cursor) = (Vec::new(), 0_u64);
    loop {
        let mut command = ::redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN).arg("TYPE").arg("hash");
        let (next, page): (u64, Vec<Vec<u8>>) = command.query_async(&mut connection).await?;
        // What is no text is none of ours.
        names.extend(page.into_iter().filter_map(|name| String::from_utf8(name).ok()));
        cursor = next;
        if cursor == 0 {
            return Ok(names);
        }
    }
}

/// What kind of server it is.
async fn look_at(connection: &mut MultiplexedConnection, shown: &str) -> Result<Server> {
    let info: String = ::redis::cmd("INFO").query_async(connection).await.map_err(|error| explain(shown, &error))?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let version = field("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < (6, 2) {
        return Err(Error::new(Kind::Incompatible, format!("{shown} is of version {version}: 6.2 or a later one is needed")));
    }
    if let Some(policy) = field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        tracing::warn!(store = %shown, policy, "the server may drop locks when its memory is full: set maxmemory-policy to noeviction");
    }
    Ok(Server { durable: field("aof_enabled") == Some("1") })
}
