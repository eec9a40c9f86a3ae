//! The one error of the crate.

#[cfg(feature = "tokio")]
use std::any::Any;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
#[cfg(feature = "tokio")]
use std::sync::{Mutex, PoisonError};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one sentence that says what to do, with the kind to match on and the chain of causes behind it.
///
/// Opaque on purpose: match on [`Error::kind`] or ask one of the `is_*` predicates. The shape follows `std::io::Error`.
///
/// ```
/// use heirlock::{Error, Kind};
/// let error = heirlock::lease::Key::new("").unwrap_err();
/// assert_eq!(error.kind(), Kind::Invalid);
/// assert!(error.is_invalid() && !error.is_timeout());
/// assert!(error.to_string().contains("empty"));
/// ```
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    what: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The time given was over before the lock was granted.
    Timeout,
    /// Waiting would have closed a cycle of workers that wait for each other; or a task would have waited for its own pool.
    Deadlock,
    /// Re-entry was asked for without an explicit [`Worker`](crate::Worker).
    NeedsWorker,
    /// The lock, the session it was asked from, or the pool is closed.
    Closed,
    /// A holder panicked.
    Poisoned,
    /// The lock is held, and the call may not wait.
    WouldBlock,
    /// A counter would overflow.
    Overflow,
    /// An argument cannot be used as it is.
    Invalid,
    /// A lease is held by another, and the call may not queue.
    Busy,
    /// The holder can no longer be sure that it holds.
    Lost,
    /// An operator took the lease away.
    Evicted,
    /// The store takes no more waiters for this key.
    QueueFull,
    /// The store does not answer.
    Unreachable,
    /// What is at the store's address is not ours, or of another major version.
    Incompatible,
    /// The store answered that it could not do its work (a full disk, say); or the system gave no thread.
    Storage,
    /// A task was cancelled before it had ended.
    Cancelled,
    /// A task panicked; [`Error::into_panic`] has with what.
    Panicked,
}

impl Kind {
    /// Whether the same request may succeed if it is simply sent again.
    ///
    /// ```
    /// assert!(heirlock::Kind::Unreachable.is_transient() && !heirlock::Kind::Invalid.is_transient());
    /// ```
    pub fn is_transient(self) -> bool {
        matches!(self, Kind::Unreachable | Kind::Storage)
    }
}

impl Error {
    /// An error of this kind that says `what`.
    ///
    /// ```
    /// let error = heirlock::Error::new(heirlock::Kind::Busy, "nightly is held by cron@db1");
    /// assert_eq!(error.to_string(), "nightly is held by cron@db1");
    /// ```
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Inner { kind, what: what.into(), source: None }))
    }

    /// The same error with its cause, which [`std::error::Error::source`] gives back.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Of a task that panicked.
    #[cfg(feature = "tokio")]
    pub(crate) fn panicked(task: &str, payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let what = format!("task {task:?} panicked: {}", text.unwrap_or("with something else than text"));
        Error::new(Kind::Panicked, what).because(Panic(Mutex::new(payload)))
    }

    /// What the task panicked with, for [`std::panic::resume_unwind`].
    ///
    /// # Errors
    /// Gives the error back if it is none of a panic.
    ///
    /// ```
    /// use heirlock::{Worker, pool::Pool};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let pool = Pool::builder().threads(1).build()?;
    /// let error = pool.spawn(Worker::new("rash"), async { panic!("on purpose") }).await.unwrap_err();
    /// assert_eq!(error.to_string(), r#"task "rash" panicked: on purpose"#);
    /// assert_eq!(error.into_panic().unwrap().downcast_ref(), Some(&"on purpose"));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn into_panic(mut self) -> std::result::Result<Box<dyn Any + Send>, Error> {
        let Some(source) = self.0.source.take() else { return Err(self) };
        match source.downcast::<Panic>() {
            Ok(panic) => Ok(panic.0.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Err(source) => Err(self.because(source)),
        }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The sentence and all its causes on one line, for a log or a terminal.
    ///
    /// ```
    /// # use heirlock::{Error, Kind};
    /// let error = Error::new(Kind::Storage, "the store's disk is full").because("No space left on device");
    /// assert_eq!(error.chain(), "the store's disk is full: No space left on device");
    /// ```
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.ends_with(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            cause = error.source();
        }
        text
    }
}

/// What a task panicked with; in a mutex, for it may be of one thread at a time.
#[cfg(feature = "tokio")]
#[derive(Debug)]
struct Panic(Mutex<Box<dyn Any + Send>>);

#[cfg(feature = "tokio")]
impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a panic")
    }
}

#[cfg(feature = "tokio")]
impl StdError for Panic {}

/// One predicate a kind.
macro_rules! predicates {
    ($($name:ident $kind:ident),* $(,)?) => {
        impl Error {
            $(
                #[doc = concat!("Whether the kind is [`Kind::", stringify!($kind), "`].")]
                pub fn $name(&self) -> bool {
                    self.kind() == Kind::$kind
                }
            )*
        }
    };
}

predicates! {
    is_timeout Timeout, is_deadlock Deadlock, is_needs_worker NeedsWorker, is_closed Closed, is_poisoned Poisoned,
    is_would_block WouldBlock, is_overflow Overflow, is_invalid Invalid, is_busy Busy, is_lost Lost, is_evicted Evicted,
    is_queue_full QueueFull, is_unreachable Unreachable, is_incompatible Incompatible, is_storage Storage,
    is_cancelled Cancelled, is_panicked Panicked,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("what", &self.0.what);
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause_once() {
        let io = std::io::Error::other("disk on fire");
        let inner = Error::new(Kind::Storage, "cannot write").because(io);
        let outer = Error::new(Kind::Lost, "the lease is lost").because(inner);
        assert_eq!(outer.chain(), "the lease is lost: cannot write: disk on fire");
        assert!(outer.is_lost() && !outer.is_storage());
    }

    #[test]
    fn is_small_and_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
        assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    }
}
