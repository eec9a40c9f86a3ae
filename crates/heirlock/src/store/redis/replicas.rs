//! Grants that count only once so many replicas have them: over a connection of its own, which `WAIT` makes stand.
//!
//! Steps that come while one `WAIT` stands go together before the next.

use std::collections::BTreeMap;
use std::time::Duration;

use ::redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use ::redis::{ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use futures_channel::oneshot;
use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection::{Connection, command, forgot_script, slots};
use super::wire::{Step, is_grant};

/// How long the replicas have.
const WAIT: Duration = Duration::from_millis(500);

/// What one step came to.
pub(super) enum Waited {
    Answer(RedisResult<Value>),
    /// It holds, but only so many replicas know.
    TooFew(i64),
}

type Job = (Vec<Step>, oneshot::Sender<Vec<Waited>>);

/// A handle to the task that waits; it ends with the last one.
#[derive(Clone)]
pub(super) struct Replicas(UnboundedSender<Job>);

impl Replicas {
    /// Over this connection, which is nobody else's.
    pub(super) fn new(connection: Connection, wanted: u32) -> Replicas {
        let (jobs, todo) = unbounded_channel();
        tokio::spawn(Waiter { connection, wanted: wanted.into(), slots: Vec::new() }.work(todo));
        Replicas(jobs)
    }

    pub(super) async fn run(&self, steps: Vec<Step>) -> Vec<Waited> {
        let count = steps.len();
        let (answer, answers) = oneshot::channel();
        let _ = self.0.send((steps, answer));
        let gone = |_| (0..count).map(|_| Waited::Answer(Err((ErrorKind::Io, "the connection has ended").into()))).collect();
        answers.await.unwrap_or_else(gone)
    }
}

struct Waiter {
    connection: Connection,
    wanted: i64,
    /// Of a cluster: up to which slot each range goes, and whose it is. Old news only cost a round trip.
    slots: Vec<(u16, String)>,
}

impl Waiter {
    async fn work(mut self, mut todo: UnboundedReceiver<Job>) {
        let mut jobs = Vec::new();
        while todo.recv_many(&mut jobs, 64).await > 0 {
            let steps: Vec<&Step> = jobs.iter().flat_map(|(steps, _)| steps).collect();
            let mut answers = self.together(&steps).await.into_iter();
            for (steps, answer) in jobs.drain(..) {
                // The caller may have gone.
                let _ = answer.send(answers.by_ref().take(steps.len()).collect());
            }
        }
    }

    async fn together(&mut self, steps: &[&Step]) -> Vec<Waited> {
        let (wanted, connection) = (self.wanted, self.connection.clone());
        match connection {
            Connection::One(_) => on_one_node(&connection, steps, wanted).await,
            Connection::Cluster(ref cluster) => {
                if self.slots.is_empty() {
                    self.slots = slots(cluster).await.unwrap_or_default();
                }
                let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
                for (at, step) in steps.iter().enumerate() {
                    groups.entry(self.owner(&step.keys[0]).to_owned()).or_default().push(at);
                }
                let each = groups.into_values().map(|group| {
                    let (connection, steps) = (&connection, group.iter().map(|at| steps[*at]).collect::<Vec<_>>());
                    async move { (group, on_one_node(connection, &steps, wanted).await) }
                });
                let mut all: BTreeMap<usize, Waited> = BTreeMap::new();
                for (group, answers) in join_all(each).await {
                    all.extend(group.into_iter().zip(answers));
                }
                if all.values().any(|waited| matches!(waited, Waited::Answer(Err(_)))) {
                    self.slots.clear();
                }
                all.into_values().collect()
            }
        }
    }

    fn owner(&self, key: &str) -> &str {
        let slot = slot(key);
        let at = self.slots.partition_point(|(last, _)| *last < slot);
        self.slots.get(at).map_or("", |(_, owner)| owner)
    }
}

/// The slot of a name of ours, all of which have a hash tag.
fn slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or(name, |(tag, _)| tag);
    crc16::State::<crc16::XMODEM>::calculate(tag.as_bytes()) % 16_384
}

/// The answers of the steps, each with what the replicas' number makes of it.
fn judge(answers: RedisResult<(Vec<RedisResult<Value>>, i64)>, count: usize, wanted: i64) -> Vec<Waited> {
    match answers {
        Ok((answers, have)) => {
            let missing = || Err((ErrorKind::UnexpectedReturnType, "an answer is missing").into());
            let one = |answer: RedisResult<Value>| match answer {
                Ok(value) if have < wanted && is_grant(&value) => Waited::TooFew(have),
                answer => Waited::Answer(answer),
            };
            answers.into_iter().chain(std::iter::repeat_with(missing)).take(count).map(one).collect()
        }
        Err(error) => (0..count).map(|_| Waited::Answer(Err(error.clone()))).collect(),
    }
}

/// What steps come to whose keys are all on one node, as far as is known. The driver sends all of them after the first that is elsewhere, so one whose slot
/// is on its way takes the others along to where they are not, and back: then each goes by itself.
async fn on_one_node(connection: &Connection, steps: &[&Step], wanted: i64) -> Vec<Waited> {
    let answers = acknowledged(connection, steps, wanted).await;
    if steps.len() < 2 || !answers.as_ref().is_err_and(is_elsewhere) {
        return judge(answers, steps.len(), wanted);
    }
    join_all(steps.iter().map(async |step| judge(acknowledged(connection, &[*step], wanted).await, 1, wanted)))
        .await
        .into_iter()
        .flatten()
        .collect()
}

fn is_elsewhere(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// The steps and a `WAIT`, all on one server: their answers, and how many replicas have them.
async fn acknowledged(connection: &Connection, steps: &[&Step], wanted: i64) -> RedisResult<(Vec<RedisResult<Value>>, i64)> {
    let mut whole = false;
    loop {
        match take_apart(send(connection, pipeline(steps, wanted, whole), steps).await?)? {
            // What was answered is answered again: each step is applied once.
            (answers, _) if !whole && forgot(&answers) => whole = true,
            taken => return Ok(taken),
        }
    }
}

/// Over a connection that nobody else uses; of a cluster, to the node that has all the steps' keys, as far as is known: the driver follows what has moved.
async fn send(connection: &Connection, mut pipeline: Pipeline, steps: &[&Step]) -> RedisResult<Vec<RedisResult<Value>>> {
    match (connection, steps.first()) {
        (Connection::Cluster(connection), Some(first)) => {
            let route = SingleNodeRoutingInfo::SpecificNode(Route::with_key(&first.keys[0], SlotAddr::Master));
            let answers = connection.clone().route_pipeline(pipeline, 0, steps.len() + 1, route).await?;
            Ok(answers.into_iter().map(Value::extract_error).collect())
        }
        (Connection::Cluster(_), None) => Ok(vec![Ok(Value::Int(0))]),
        (Connection::One(connection), _) => pipeline.ignore_errors().query_async(&mut connection.clone()).await,
    }
}

fn pipeline(steps: &[&Step], wanted: i64, whole: bool) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(steps.len() + 1);
    for (nth, step) in steps.iter().enumerate() {
        // The first brings the script for the others.
        pipeline.add_command(command(step, whole && nth == 0));
    }
    pipeline.cmd("WAIT").arg(wanted).arg(WAIT.as_millis().to_string());
    pipeline
}

fn forgot(answers: &[RedisResult<Value>]) -> bool {
    answers.iter().any(|answer| answer.as_ref().is_err_and(forgot_script))
}

/// The last answer is that of `WAIT`.
fn take_apart(mut answers: Vec<RedisResult<Value>>) -> RedisResult<(Vec<RedisResult<Value>>, i64)> {
    match answers.pop() {
        Some(Ok(Value::Int(have))) => Ok((answers, have)),
        Some(Err(error)) => Err(error),
        _ => Err((ErrorKind::UnexpectedReturnType, "WAIT answers no number").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!((slot("123456789"), slot("{user1000}.following"), slot("heirlock:{foo}:q")), (12_739, 3_443, 12_182));
    }
}
