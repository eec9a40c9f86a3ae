//! A connection to the servers, in each form that they have, and what is done over it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::redis::aio::{ConnectionLike, MultiplexedConnection};
use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo, SingleNodeRoutingInfo};
use ::redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Script, ServerErrorKind, Value};
use futures_util::future::join_all;

use super::address::{Address, Form, Nodes, Sentinels};
use super::trouble::no_service;
use super::wire::Step;

/// How long a connection to one server may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one to all that there are may take.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How long the server may take to answer, before the connection is taken for one that nobody is at the other end of.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// How many names a look through all of them takes at a time.
const SCAN: usize = 500;

/// Where what the server sends by itself goes.
pub(super) type Pushes = Arc<dyn ::redis::aio::AsyncPushSender>;

/// The step of the ledger, for all verbs.
pub(super) fn script() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| Script::new(LEDGER))
}

const LEDGER: &str = include_str!("ledger.lua");

/// How long a node of a cluster may take to be heard.
const NODE_ANSWER: Duration = Duration::from_secs(2);

/// The connection over which hints come; its copies are the same one.
#[derive(Clone)]
pub(super) struct Ears(MultiplexedConnection);

impl Ears {
    pub(super) async fn subscribe(&mut self, channels: Vec<String>) -> RedisResult<()> {
        if channels.is_empty() { Ok(()) } else { self.0.subscribe(channels).await }
    }

    pub(super) async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        self.0.unsubscribe(channel).await
    }

    /// Whether anybody is at the other end.
    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        ::redis::cmd("PING").exec_async(&mut self.0).await
    }
}

/// A connection; its copies are the same one.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    /// One to each node, which makes itself anew when a node goes or a slot moves.
    Cluster(ClusterConnection),
}

/// Why there is none.
pub(super) enum NoConnection {
    Error(RedisError),
    TooLate,
}

impl Connection {
    /// A new one, and the ears for what the server sends by itself, which goes to `pushes`.
    pub(super) async fn make(address: &Address, pushes: Pushes) -> Result<(Connection, Ears), NoConnection> {
        within(async {
            let Form::Cluster(nodes) = &address.form else {
                let connection = one_server(address, Some(pushes)).await?;
                return Ok((Connection::One(connection.clone()), Ears(connection)));
            };
            let connection = nodes.client(ANSWER)?.get_async_connection().await?;
            Ok((Connection::Cluster(connection), ears(nodes, pushes).await?))
        })
        .await
    }

    /// A new one that hears nothing.
    pub(super) async fn make_deaf(address: &Address) -> Result<Connection, NoConnection> {
        within(async {
            match &address.form {
                Form::Cluster(nodes) => Ok(Connection::Cluster(nodes.client(ANSWER)?.get_async_connection().await?)),
                _ => Ok(Connection::One(one_server(address, None).await?)),
            }
        })
        .await
    }

    /// Runs steps in one round trip, all at once. An error of the whole is one of each.
    pub(super) async fn run(&self, steps: &[Step]) -> Vec<RedisResult<Value>> {
        match self {
            Connection::One(connection) => run_in_order(connection, steps).await,
            // The driver finds each one's node, and follows it when it moves; what goes to one node goes in one write.
            Connection::Cluster(connection) => join_all(steps.iter().map(|step| run_one(connection.clone(), step))).await,
        }
    }

    /// The names that match.
    pub(super) async fn scan(&self, pattern: &str) -> RedisResult<Vec<String>> {
        let names = match self {
            Connection::One(connection) => scan(pattern, |command| one(connection, command)).await?,
            Connection::Cluster(connection) => {
                let (mut names, nodes) = (BTreeSet::new(), on_each(connection, ::redis::cmd("PING")).await?);
                // One that is not there is passed over, with the names that it has.
                let owners: BTreeSet<String> = slots(connection).await?.into_iter().map(|(_, owner)| owner).collect();
                if nodes.len() < owners.len() {
                    return Err((ErrorKind::ClusterConnectionNotFound, "a node that has some of the names is not there").into());
                }
                for (node, _) in nodes {
                    names.extend(scan(pattern, |command| at(connection, &node, command)).await?);
                }
                names.into_iter().collect()
            }
        };
        // What is no text is none of ours.
        Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }

    /// What a command answers on each node that is written to, by the node's address; none for the only one.
    pub(super) async fn ask_each(&self, command: Cmd) -> RedisResult<Vec<(String, Value)>> {
        match self {
            Connection::One(connection) => Ok(vec![(String::new(), one(connection, command).await?)]),
            Connection::Cluster(connection) => on_each(connection, command).await,
        }
    }
}

async fn within<T>(made: impl Future<Output = RedisResult<T>>) -> Result<T, NoConnection> {
    match tokio::time::timeout(LIMIT, made).await {
        Ok(made) => made.map_err(NoConnection::Error),
        Err(_) => Err(NoConnection::TooLate),
    }
}

/// To the only server, or to the one that Sentinels name.
async fn one_server(address: &Address, pushes: Option<Pushes>) -> RedisResult<MultiplexedConnection> {
    let client = match &address.form {
        Form::One(client) => (**client).clone(),
        Form::Sentinel(sentinels) => sentinels.client()?.async_get_client().await?,
        Form::Cluster(_) => return Err((ErrorKind::InvalidClientConfig, "a cluster is no single server").into()),
    };
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(ANSWER));
    if let Some(pushes) = pushes {
        config = config.set_push_sender(pushes);
    }
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// What is published on one node is told by all. A connection of its own, for those that the driver keeps come and go with the slots, and what they were
/// subscribed to with them.
async fn ears(nodes: &Nodes, pushes: Pushes) -> RedisResult<Ears> {
    Ok(Ears(first_node(nodes, AsyncConnectionConfig::new().set_push_sender(pushes)).await?))
}

/// To the first node of a cluster that answers.
async fn first_node(nodes: &Nodes, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
    let config = config.set_connection_timeout(Some(NODE_ANSWER)).set_response_timeout(Some(NODE_ANSWER));
    let mut failed = (ErrorKind::ClusterConnectionNotFound, "no node answers").into();
    for client in nodes.each()? {
        match tokio::time::timeout(NODE_ANSWER, client.get_multiplexed_async_connection_with_config(&config)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => failed = error,
            Err(_) => {}
        }
    }
    Err(failed)
}

/// Of servers that cannot be used now: whether they may only be between one primary and the next, for a Sentinel that knows the service answers, or a
/// node of the cluster.
pub(super) async fn may_elect(address: &Address) -> crate::Result<bool> {
    match &address.form {
        Form::One(_) => Ok(false),
        Form::Sentinel(sentinels) => match tokio::time::timeout(CONNECT, primary(sentinels)).await {
            Ok(Ok(None)) => Err(no_service(&address.shown)),
            answer => Ok(matches!(answer, Ok(Ok(Some(_))))),
        },
        Form::Cluster(nodes) => Ok(first_node(nodes, AsyncConnectionConfig::new()).await.is_ok()),
    }
}

/// Where the primary is, or was last, as the first Sentinel that answers has it; none if it knows no such service.
async fn primary(sentinels: &Sentinels) -> RedisResult<Option<Vec<String>>> {
    let mut connection = sentinels.client()?.async_get_sentinel_client().await?.get_multiplexed_async_connection().await?;
    ::redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&sentinels.service).query_async(&mut connection).await
}

/// The script by its hash or, where the server has forgotten it, as a whole.
pub(super) fn command(step: &Step, whole: bool) -> Cmd {
    let mut command = ::redis::cmd(if whole { "EVAL" } else { "EVALSHA" });
    command.arg(if whole { LEDGER } else { script().get_hash() }).arg(step.keys.len()).arg(&step.keys);
    for arg in &step.args {
        command.arg(arg);
    }
    command
}

pub(super) fn forgot_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

async fn one(connection: &MultiplexedConnection, command: Cmd) -> RedisResult<Value> {
    command.query_async(&mut connection.clone()).await
}

async fn run_in_order(connection: &MultiplexedConnection, steps: &[Step]) -> Vec<RedisResult<Value>> {
    if let [step] = steps {
        return vec![run_one(connection.clone(), step).await];
    }
    let mut answers: Vec<Option<RedisResult<Value>>> = steps.iter().map(|_| None).collect();
    for knows_script in [true, false] {
        let open: Vec<usize> = (0..steps.len()).filter(|at| answers[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let mut pipeline = Pipeline::with_capacity(open.len());
        pipeline.ignore_errors();
        for (nth, at) in open.iter().enumerate() {
            // The first of those that met a server without the script brings it for the others.
            pipeline.add_command(command(&steps[*at], !knows_script && nth == 0));
        }
        let values: RedisResult<Vec<RedisResult<Value>>> = pipeline.query_async(&mut connection.clone()).await;
        match values {
            Ok(values) => {
                for (at, value) in open.into_iter().zip(values) {
                    match value {
                        Err(error) if knows_script && forgot_script(&error) => {}
                        value => answers[at] = Some(value),
                    }
                }
            }
            Err(error) => open.into_iter().for_each(|at| answers[at] = Some(Err(error.clone()))),
        }
    }
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(incomplete()))).collect()
}

async fn run_one(mut connection: impl ConnectionLike, step: &Step) -> RedisResult<Value> {
    match command(step, false).query_async(&mut connection).await {
        Err(error) if forgot_script(&error) => command(step, true).query_async(&mut connection).await,
        answer => answer,
    }
}

/// Fewer answers than requests.
fn incomplete() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "an answer is missing").into()
}

async fn scan<F: Future<Output = RedisResult<Value>>>(pattern: &str, ask: impl Fn(Cmd) -> F) -> RedisResult<Vec<Vec<u8>>> {
    let (mut names, mut cursor) = (Vec::new(), 0_u64);
    loop {
        let mut command = ::redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN).arg("TYPE").arg("hash");
        let (next, page): (u64, Vec<Vec<u8>>) = ::redis::from_redis_value(ask(command).await?)?;
        names.extend(page);
        cursor = next;
        if cursor == 0 {
            return Ok(names);
        }
    }
}

/// The answers of all primaries of a cluster, by their addresses.
async fn on_each(connection: &ClusterConnection, command: Cmd) -> RedisResult<Vec<(String, Value)>> {
    let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, Some(ResponsePolicy::Special)));
    ::redis::from_redis_value(connection.clone().route_command(command, all).await?).map_err(Into::into)
}

/// Up to which slot each range goes, and whose it is.
pub(super) async fn slots(connection: &ClusterConnection) -> RedisResult<Vec<(u16, String)>> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let ranges: Vec<Vec<Value>> = command.query_async(&mut connection.clone()).await?;
    let mut slots = Vec::new();
    for range in ranges {
        let mut parts = range.into_iter().skip(1);
        let (Some(Value::Int(last)), Some(owner)) = (parts.next(), parts.next()) else { continue };
        slots.push((u16::try_from(last).unwrap_or(u16::MAX), format!("{owner:?}")));
    }
    slots.sort_unstable();
    Ok(slots)
}

async fn at(connection: &ClusterConnection, node: &str, command: Cmd) -> RedisResult<Value> {
    let address = node.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    let (host, port) = address.ok_or_else(incomplete)?;
    connection.clone().route_command(command, RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port })).await
}
