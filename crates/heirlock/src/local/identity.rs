//! Who acquires, as a number that fits into a lock's word.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sync::thread_local;
use crate::Worker;

/// Who holds or waits: an explicit worker, else the task, for a blocking call the thread, else nobody in particular.
///
/// | bits 45 and 44 | the lower 44 bits |
/// |---|---|
/// | 00 | the id of a [`Worker`], never 0 |
/// | 01 | the id of a tokio task |
/// | 10 | the number of a thread |
/// | 11 | nothing: an anonymous acquire |
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Worker(Worker),
    /// A worker of which only holds are left.
    Gone(u64),
    Task(u64),
    Thread(u64),
    Anonymous,
}

/// How many bits a number has. The ids of workers and tasks count up from 1: a million a second would last for half a year.
pub(super) const BITS: u32 = 46;
const KIND: u64 = 0b11 << 44;
/// The bits below the kind.
const ID: u64 = (1 << 44) - 1;
const TASK: u64 = 0b01 << 44;
const THREAD: u64 = 0b10 << 44;
pub(super) const ANONYMOUS: u64 = 0b11 << 44;

impl Owner {
    /// Who is being polled here.
    pub(super) fn of_poll() -> Owner {
        match Worker::current() {
            Some(worker) => Owner::Worker(worker),
            None => Owner::from_number(number_of_poll()),
        }
    }

    /// Who calls and blocks: the thread, but within a runtime, where tasks share it, as if polled.
    pub(super) fn of_call() -> Owner {
        Worker::current().map_or_else(|| Owner::from_number(number_of_call()), Owner::Worker)
    }

    pub(super) fn from_number(number: u64) -> Owner {
        match number & KIND {
            TASK => Owner::Task(number & ID),
            THREAD => Owner::Thread(number & ID),
            ANONYMOUS => Owner::Anonymous,
            _ => Worker::find(number).map_or(Owner::Gone(number), Owner::Worker),
        }
    }

    pub(super) fn number(&self) -> u64 {
        match self {
            Owner::Worker(worker) => worker.id().get(),
            Owner::Gone(number) => *number,
            Owner::Task(id) => TASK | id,
            Owner::Thread(id) => THREAD | id,
            Owner::Anonymous => ANONYMOUS,
        }
    }

    pub(super) fn base(&self) -> i32 {
        if let Owner::Worker(worker) = self { worker.own_priority() } else { 0 }
    }

    /// Whose fork it is.
    pub(super) fn parent(&self) -> Option<&Worker> {
        if let Owner::Worker(worker) = self { worker.parent() } else { None }
    }

    /// Whether it is one line of work: what an explicit worker is declared to be, and tasks in a domain that trusts them.
    pub(super) fn is_sequential(&self, trust_tasks: bool) -> bool {
        match self {
            Owner::Worker(_) => true,
            Owner::Task(_) => trust_tasks,
            Owner::Gone(_) | Owner::Thread(_) | Owner::Anonymous => false,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Worker(worker) => write!(f, "worker {:?}", worker.name()),
            Owner::Gone(number) => write!(f, "worker {number}, which has gone"),
            Owner::Task(id) => write!(f, "task {id}"),
            Owner::Thread(id) => write!(f, "thread {id}"),
            Owner::Anonymous => f.write_str("an anonymous acquire"),
        }
    }
}

/// The number of [`Owner::of_poll`], without touching any count of references: the fast path's whole identity.
#[inline]
pub(super) fn number_of_poll() -> u64 {
    Worker::current_id().map_or_else(|| task_number().unwrap_or(ANONYMOUS), crate::WorkerId::get)
}

/// The number of [`Owner::of_call`], as cheaply.
pub(super) fn number_of_call() -> u64 {
    // In this order: asking for a runtime costs the most.
    if let Some(id) = Worker::current_id() {
        return id.get();
    }
    match task_number() {
        Some(number) => number,
        None if in_runtime() => ANONYMOUS,
        None => THREAD | THREAD_NUMBER.with(|number| *number),
    }
}

/// Whether it is one line of work: an explicit worker, or a thread that does not run tasks.
#[inline]
pub(super) fn is_one_line(number: u64) -> bool {
    matches!(number & KIND, 0 | THREAD)
}

/// Whether this thread runs tasks.
#[cfg(feature = "tokio")]
pub(crate) fn in_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

/// Of what runs tasks here nothing is known.
#[cfg(not(feature = "tokio"))]
pub(super) fn in_runtime() -> bool {
    false
}

#[cfg(feature = "tokio")]
fn task_number() -> Option<u64> {
    use std::hash::{Hash, Hasher};

    /// tokio shows a task's id as text only, but hashes it as the number that it is.
    struct Capture(u64);

    impl Hasher for Capture {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = self.0 << 8 | u64::from(*byte);
            }
        }

        fn write_u64(&mut self, id: u64) {
            self.0 = id;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    let mut capture = Capture(0);
    tokio::task::try_id()?.hash(&mut capture);
    Some(TASK | (capture.finish() & ID))
}

#[cfg(not(feature = "tokio"))]
fn task_number() -> Option<u64> {
    None
}

thread_local! {
    /// A thread's number: never used twice.
    static THREAD_NUMBER: u64 = {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_owners_agree() {
        let worker = Worker::new("w");
        for owner in [Owner::Worker(worker), Owner::Gone(ID), Owner::Task(7), Owner::Thread(8), Owner::Anonymous] {
            let number = owner.number();
            assert_ne!(number, 0);
            assert_eq!(Owner::from_number(number).number(), number);
        }
    }

    #[test]
    fn a_worker_that_has_gone_is_said_to_have() {
        let number = Worker::new("short").id().get();
        assert!(matches!(Owner::from_number(number), Owner::Gone(same) if same == number));
    }

    #[test]
    fn outside_of_everything_an_acquire_is_anonymous() {
        assert!(matches!(Owner::of_poll(), Owner::Anonymous));
        assert_eq!(Owner::of_call().number(), Owner::of_call().number());
    }

    #[cfg(feature = "tokio")]
    #[tokio::test(flavor = "current_thread")]
    async fn each_task_has_its_number() {
        assert!(matches!(Owner::of_poll(), Owner::Anonymous));
        let number = || async { (number_of_poll(), number_of_poll()) };
        let (first, second) = (tokio::spawn(number()).await.unwrap(), tokio::spawn(number()).await.unwrap());
        assert_eq!(first.0, first.1);
        assert_ne!(first.0, second.0);
        assert!(matches!(Owner::from_number(first.0), Owner::Task(_)));
    }
}
