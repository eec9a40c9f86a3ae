//! What the link's thread does: it keeps the connection, and answers jobs and news one after the other, without ever standing still for one of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value};
use futures_channel::oneshot;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{Job, Other, Steps};
use crate::lease::{Key, News, Notice, Sink, Work};
use crate::store::redis::address::{Address, Form};
use crate::store::redis::connection::{Connection, Ears, LIMIT, NoConnection, Pushes, may_elect};
use crate::store::redis::health::Health;
use crate::store::redis::replicas::{Replicas, Waited};
use crate::store::redis::trouble::{explain, unreachable};
use crate::store::redis::wire::channel;
use crate::{Error, Kind, Result};

/// Between two attempts to connect: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// While a primary is chosen no first attempt is made later than this. Where servers are killed it takes them some seconds more than they are set to wait.
const ELECTION: Duration = Duration::from_secs(8);
/// How often a cluster's ears are looked after.
const PING: Duration = Duration::from_secs(3);
/// The most requests that are taken together, and the most steps that then go in one write: so long waits the first for the answer of the last.
const TOGETHER: usize = 64;

/// A connection in use.
#[derive(Clone)]
struct Made {
    /// Which one it is: news of an older one changes nothing.
    number: u64,
    connection: Connection,
    ears: Ears,
    /// The other one, if grants wait for replicas.
    replicas: Option<Replicas>,
    /// The channels that its ears were told of from the beginning.
    heard: Arc<HashSet<String>>,
    /// Closed when it is given up.
    in_use: watch::Receiver<()>,
}

/// With what keeps it in use.
type Kept = (Made, watch::Sender<()>);

/// What happens beside requests.
enum Event {
    /// An attempt has come to its end.
    Attempt(Result<Kept>),
    /// The server says something by itself, over the connection of this number.
    Push(u64, PushInfo),
    /// A request found that nobody is at the other end, or not whom it needs.
    Broken(u64),
    /// The server does not let it listen to this channel.
    Unheard(String),
}

/// The thread's own.
pub(super) struct Keeper {
    address: Address,
    wait: u32,
    sinks: HashMap<String, Sink>,
    made: Option<Made>,
    /// Dropped when that is given up: what is under way over it fails then, and is asked again over the next one.
    keeps: Option<watch::Sender<()>>,
    /// How many connections there have been.
    number: u64,
    /// An attempt is under way.
    is_trying: bool,
    /// Requests that wait for it.
    waiting: Vec<Job>,
    /// No attempt is made before then, and why the last one failed.
    pause: Option<(Instant, Error)>,
    next_pause: Duration,
    next_ping: Instant,
    events: UnboundedSender<Event>,
    /// What is under way.
    running: FuturesUnordered<LocalBoxFuture<'static, ()>>,
}

impl Keeper {
    fn new(address: Address, wait: u32, events: UnboundedSender<Event>) -> Keeper {
        Keeper {
            address,
            wait,
            sinks: HashMap::new(),
            made: None,
            keeps: None,
            number: 0,
            is_trying: false,
            waiting: Vec::new(),
            pause: None,
            next_pause: PAUSES.0,
            next_ping: Instant::now(),
            events,
            running: FuturesUnordered::new(),
        }
    }

    /// Keeps a connection to these servers until nobody can ask for anything any more; says what they are like once there is the first.
    pub(super) async fn keep(
        address: Address,
        wait: u32,
        todo: (UnboundedReceiver<Job>, UnboundedReceiver<Work>),
        mut opened: oneshot::Sender<Result<Vec<Health>>>,
    ) {
        let (events, news) = unbounded_channel();
        let mut keeper = Keeper::new(address, wait, events);
        let first = tokio::select! {
            first = keeper.first() => first,
            // Who asked for it has gone.
            () = opened.cancellation() => return,
        };
        let (servers, made) = first.map_or_else(|why| (Err(why), None), |(servers, made)| (Ok(servers), Some(made)));
        if opened.send(servers).is_err() {
            return;
        }
        if let Some((made, keeps)) = made {
            (keeper.made, keeper.keeps) = (Some(made), Some(keeps));
            keeper.work(todo, news).await;
        }
    }

    /// The first connection, and what its servers are like. If they may only be choosing a primary, in the place of one that does not answer, that is
    /// waited for.
    async fn first(&mut self) -> Result<(Vec<Health>, Kept)> {
        let (began, mut pause, mut why) = (Instant::now(), PAUSES.0, None);
        loop {
            let error = match timeout_at(began + LIMIT, self.open()).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(error)) => error,
                Err(_) => return Err(why.unwrap_or_else(|| too_late(&self.address.shown))),
            };
            let is_late = began.elapsed() + pause >= ELECTION;
            if error.kind() != Kind::Unreachable || is_late || !may_elect(&self.address).await? {
                return Err(error);
            }
            tracing::debug!(store = %self.address.shown, error = %error.chain(), "no connection, and a primary may be chosen now: trying again");
            why = Some(error);
            sleep(pause).await;
            pause = (pause * 2).min(ELECTION / 16);
        }
    }

    /// One attempt, and a look at what it leads to.
    async fn open(&mut self) -> Result<(Vec<Health>, Kept)> {
        let made = self.attempt().await?;
        let servers = Health::of(&made.0.connection, &self.address.shown).await?;
        servers.iter().try_for_each(|server| server.check(&self.address))?;
        Ok((servers, made))
    }

    async fn work(mut self, (mut todo, mut works): (UnboundedReceiver<Job>, UnboundedReceiver<Work>), mut news: UnboundedReceiver<Event>) {
        let mut jobs = Vec::with_capacity(TOGETHER);
        loop {
            let retry = self.pause.as_ref().filter(|_| !self.is_trying && self.wants_connection()).map(|(until, _)| *until);
            tokio::select! {
                taken = todo.recv_many(&mut jobs, TOGETHER) => match taken {
                    0 => return,
                    _ => self.take(&mut jobs),
                },
                Some(event) = news.recv() => self.hear(event),
                Some(work) = works.recv() => self.running.push(work),
                Some(()) = self.running.next(), if !self.running.is_empty() => {}
                () = sleep_until(self.next_ping), if self.is_cluster() && self.wants_connection() => self.ping(),
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => self.try_again(),
            }
        }
    }

    fn is_cluster(&self) -> bool {
        matches!(self.address.form, Form::Cluster(_))
    }

    /// Of a cluster the ears have nothing else to do by which it could be seen that nobody is at the other end.
    fn ping(&mut self) {
        self.next_ping = Instant::now() + PING;
        if let Some(made) = &self.made {
            let (report, mut ears) = (self.report(made), made.ears.clone());
            self.running.push(Box::pin(async move { drop(report.answer(ears.ping().await)) }));
        }
    }

    /// Hints that are lost cost time only, but whoever waits for them should not have to ask first.
    fn wants_connection(&self) -> bool {
        !self.sinks.is_empty()
    }

    /// One attempt to connect, with all channels subscribed to.
    fn attempt(&mut self) -> impl Future<Output = Result<Kept>> + use<> {
        self.number += 1;
        let (number, wait, address, events) = (self.number, self.wait, self.address.clone(), self.events.clone());
        let heard: Arc<HashSet<String>> = Arc::new(self.sinks.keys().cloned().collect());
        async move {
            let shown = &address.shown;
            let failed = |error| match error {
                NoConnection::Error(error) => explain(shown, &error),
                NoConnection::TooLate => too_late(shown),
            };
            let pushes: Pushes = Arc::new(move |push| events.send(Event::Push(number, push)).map_err(drop));
            let (connection, mut ears) = Connection::make(&address, pushes).await.map_err(failed)?;
            ears.subscribe(heard.iter().cloned().collect()).await.map_err(|error| explain(shown, &error))?;
            let replicas = match wait {
                0 => None,
                wait => Some(Replicas::new(Connection::make_deaf(&address).await.map_err(failed)?, wait)),
            };
            let (keeps, in_use) = watch::channel(());
            Ok((Made { number, connection, ears, replicas, heard, in_use }, keeps))
        }
    }

    fn try_again(&mut self) {
        if self.is_trying {
            return;
        }
        self.is_trying = true;
        let (attempt, events) = (self.attempt(), self.events.clone());
        self.running.push(Box::pin(async move {
            let _ = events.send(Event::Attempt(attempt.await));
        }));
    }

    fn take(&mut self, jobs: &mut Vec<Job>) {
        match (&self.made, &self.pause) {
            (Some(made), _) => {
                let made = made.clone();
                self.start(jobs, &made);
            }
            (None, Some((until, why))) if !self.is_trying && Instant::now() < *until => {
                let why = again(why);
                jobs.drain(..).for_each(|job| self.refuse(job, &why));
            }
            (None, _) => {
                self.waiting.append(jobs);
                self.try_again();
            }
        }
    }

    fn start(&mut self, jobs: &mut Vec<Job>, made: &Made) {
        let (mut plain, mut granting, mut count) = (Vec::new(), Vec::new(), 0);
        for job in jobs.drain(..) {
            match job {
                Job::Steps(steps) => {
                    if count + steps.steps.len() > TOGETHER {
                        self.run(std::mem::take(&mut plain), std::mem::take(&mut granting), made);
                        count = 0;
                    }
                    count += steps.steps.len();
                    if made.replicas.is_some() && steps.grants() { granting.push(steps) } else { plain.push(steps) }
                }
                Job::Other(other) => self.start_other(other, made.clone()),
            }
        }
        self.run(plain, granting, made);
    }

    /// Runs steps in one round trip, but for those that wait for replicas.
    fn run(&mut self, plain: Vec<Steps>, granting: Vec<Steps>, made: &Made) {
        for (jobs, replicas) in [(plain, None), (granting, made.replicas.clone())] {
            if jobs.is_empty() {
                continue;
            }
            let (report, connection, mut in_use) = (self.report(made), made.connection.clone(), made.in_use.clone());
            self.running.push(Box::pin(async move {
                let (mut all, mut takers) = (Vec::new(), Vec::with_capacity(jobs.len()));
                for Steps { mut steps, answer } in jobs {
                    takers.push((steps.len(), answer));
                    all.append(&mut steps);
                }
                let count = all.len();
                let answers = async {
                    match replicas {
                        Some(replicas) => replicas.run(all).await.into_iter().map(|waited| report.waited(waited)).collect(),
                        None => connection.run(&all).await.into_iter().map(|answer| report.answer(answer)).collect::<Vec<_>>(),
                    }
                };
                let answers = tokio::select! {
                    biased;
                    answers = answers => answers,
                    _ = in_use.changed() => (0..count).map(|_| Err(report.given_up())).collect(),
                };
                let mut answers = answers.into_iter();
                for (count, taker) in takers {
                    // The caller may have gone.
                    let _ = taker.send(Ok(answers.by_ref().take(count).collect()));
                }
            }));
        }
    }

    fn report(&self, made: &Made) -> Report {
        Report { shown: Arc::clone(&self.address.shown), number: made.number, events: self.events.clone() }
    }

    /// Does it beside the others: each waits for its own answer.
    fn start_other(&mut self, other: Other, made: Made) {
        let report = self.report(&made);
        let Made { connection, mut ears, .. } = made;
        let doing: LocalBoxFuture<'static, ()> = match other {
            Other::Scan(pattern, answer) => Box::pin(async move {
                let _ = answer.send(report.answer(connection.scan(&pattern).await));
            }),
            Other::Look(answer) => Box::pin(async move {
                let _ = answer.send(Health::of(&connection, &report.shown).await);
            }),
            Other::Listen(session, sink, answer) => {
                let name = channel(session);
                self.sinks.insert(name.clone(), sink);
                Box::pin(async move {
                    let done = report.answer(ears.subscribe(vec![name.clone()]).await);
                    if done.is_err() {
                        let _ = report.events.send(Event::Unheard(name));
                    }
                    let _ = answer.send(done);
                })
            }
            Other::Hush(session, answer) => {
                let name = channel(session);
                self.sinks.remove(&name);
                Box::pin(async move {
                    // A connection that breaks has no channels either.
                    let _ = ears.unsubscribe(&name).await;
                    let _ = answer.send(Ok(()));
                })
            }
        };
        self.running.push(doing);
    }

    /// Nothing comes of it now.
    fn refuse(&mut self, job: Job, why: &Error) {
        match job {
            Job::Steps(Steps { answer, .. }) => drop(answer.send(Err(again(why)))),
            Job::Other(Other::Scan(_, answer)) => drop(answer.send(Err(again(why)))),
            Job::Other(Other::Look(answer)) => drop(answer.send(Err(again(why)))),
            Job::Other(Other::Listen(_, _, answer)) => drop(answer.send(Err(again(why)))),
            Job::Other(Other::Hush(session, answer)) => {
                self.sinks.remove(&channel(session));
                drop(answer.send(Ok(())));
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Attempt(Ok((made, keeps))) => {
                self.is_trying = false;
                self.pause = None;
                self.next_pause = PAUSES.0;
                self.made = Some(made.clone());
                self.keeps = Some(keeps);
                self.listen_to_late_ones(&made);
                let mut waiting = std::mem::take(&mut self.waiting);
                self.start(&mut waiting, &made);
            }
            Event::Attempt(Err(why)) => {
                self.is_trying = false;
                tracing::debug!(store = %self.address.shown, error = %why.chain(), "no connection");
                for job in std::mem::take(&mut self.waiting) {
                    self.refuse(job, &why);
                }
                self.pause = Some((Instant::now() + self.next_pause, why));
                self.next_pause = (self.next_pause * 2).min(PAUSES.1);
            }
            Event::Push(number, push) if push.kind == PushKind::Disconnection => self.lose(number),
            Event::Push(_, push) => self.hint(&push),
            Event::Broken(number) => self.lose(number),
            Event::Unheard(name) => drop(self.sinks.remove(&name)),
        }
    }

    /// Subscribes to the channels that came while the attempt was under way, and that only the ears before it have heard of.
    fn listen_to_late_ones(&mut self, made: &Made) {
        let late: Vec<String> = self.sinks.keys().filter(|name| !made.heard.contains(*name)).cloned().collect();
        if !late.is_empty() {
            let (report, mut ears) = (self.report(made), made.ears.clone());
            self.running.push(Box::pin(async move { drop(report.answer(ears.subscribe(late).await)) }));
        }
    }

    /// The connection of this number is of no use any more, or its ears. Of a cluster, other nodes can still be reached by it until there is another.
    fn lose(&mut self, number: u64) {
        if self.made.as_ref().is_none_or(|made| made.number != number) {
            return;
        }
        if !self.is_cluster() {
            self.made = None;
            self.keeps = None;
        }
        let may_try = self.pause.as_ref().is_none_or(|(until, _)| Instant::now() >= *until);
        if may_try && (self.is_cluster() || self.wants_connection()) {
            self.try_again();
        }
    }

    fn hint(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let [Value::BulkString(name), Value::BulkString(text)] = &push.data[..]
            && let (Ok(name), Ok(text)) = (std::str::from_utf8(name), std::str::from_utf8(text))
            && let (Some(sink), Some((word, key))) = (self.sinks.get(name), text.split_once(' '))
            && let (Some(news), Ok(key)) = (News::from_word(word), Key::new(key))
        {
            sink(Notice { key, news });
        }
    }
}

fn too_late(shown: &str) -> Error {
    unreachable(shown, "no connection was made in time")
}

/// The same error once more.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.chain())
}

/// What a request tells of the connection that it used.
struct Report {
    shown: Arc<str>,
    number: u64,
    events: UnboundedSender<Event>,
}

impl Report {
    fn answer<T>(&self, answer: ::redis::RedisResult<T>) -> Result<T> {
        answer.map_err(|error| {
            if is_broken(&error) {
                let _ = self.events.send(Event::Broken(self.number));
            }
            explain(&self.shown, &error)
        })
    }

    fn given_up(&self) -> Error {
        unreachable(&self.shown, "the connection broke")
    }

    fn waited(&self, waited: Waited) -> Result<Value> {
        match waited {
            Waited::Answer(answer) => self.answer(answer),
            Waited::TooFew(have) => {
                Err(Error::new(Kind::Unreachable, format!("{} waits for its replicas: only {have} have the lock so far", self.shown)))
            }
        }
    }
}

/// Whether nobody is at the other end, or one that writes no more: another connection may lead to the one that does.
fn is_broken(error: &RedisError) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Io
        || kind == ErrorKind::ClusterConnectionNotFound
        || matches!(
            kind,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::Moved | ServerErrorKind::Ask)
        )
}
