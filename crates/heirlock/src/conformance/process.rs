//! Worker processes as a case drives them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::Factory;
use super::protocol::{Order, Reply};
use super::tools::FOR_EVER;

/// A worker process. It is killed when this is dropped.
pub(super) struct Process {
    child: Child,
    orders: ChildStdin,
    replies: Receiver<Reply>,
}

impl Process {
    /// Starts one and waits until it has its session.
    pub(super) fn start(factory: &dyn Factory) -> Process {
        let mut command = factory.worker().expect("this case needs processes, and Factory::worker gives none");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the worker starts");
        let orders = child.stdin.take().expect("it was piped");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        let (sender, replies) = channel();
        // A thread of its own, so that a worker that says nothing cannot hang the case.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let reply = serde_json::from_str(&line).unwrap_or_else(|error| panic!("the worker says {line:?}: {error}"));
                if sender.send(reply).is_err() {
                    return;
                }
            }
        });
        let process = Process { child, orders, replies };
        assert_eq!(process.reply(), Reply::Ready);
        process
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something; it may be stopped.
    pub(super) fn order(&mut self, order: &Order) {
        let mut line = serde_json::to_string(order).expect("an order is plain data");
        line.push('\n');
        self.orders.write_all(line.as_bytes()).and_then(|()| self.orders.flush()).expect("the worker listens");
    }

    /// What it says next.
    pub(super) fn reply(&self) -> Reply {
        self.reply_within(FOR_EVER)
    }

    /// The same, of something that takes long.
    pub(super) fn reply_within(&self, limit: Duration) -> Reply {
        self.replies.recv_timeout(limit).expect("the worker answers")
    }

    pub(super) fn ask(&mut self, order: &Order) -> Reply {
        self.order(order);
        self.reply()
    }

    /// Asks for the key and does not wait.
    pub(super) fn order_lock(&mut self, key: &str, ttl: Duration) {
        let ttl_ms = u64::try_from(ttl.as_millis()).expect("a short ttl");
        self.order(&Order::Lock { key: key.to_owned(), ttl_ms });
    }

    /// The fence of the lease that it has been waiting for.
    pub(super) fn held(&self) -> u64 {
        match self.reply() {
            Reply::Held { fence } => fence,
            other => panic!("it should hold, and says {other:?}"),
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops it; when this returns, none of its threads runs.
    pub(super) fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("the worker is there");
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("the worker is there");
        assert!(status.is_some_and(|(_, status)| status.stopped()), "the worker stops: {status:?}");
    }

    pub(super) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("the worker is there");
    }

    /// Kills it; when this returns, it is dead.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("the worker is there");
        self.child.wait().expect("the worker is there");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead already; and a stopped process dies of this too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
