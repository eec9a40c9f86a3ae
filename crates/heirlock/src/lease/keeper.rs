//! The keeper: one thread per session that beats all its tickets, withdraws what is given up, and lets run out what has run out.
//!
//! It polls the store's futures itself, so it needs no runtime. Requests go out in chunks; each has its own time limit, after which its outcome
//! is unknown and the ticket is asked about again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::entry::{Request, Sent};
use super::key::Key;
use super::session::{Session, Work};
use super::ticket::Token;
use super::verb::{Answer, Beat, Left};
use crate::clock::Moment;
use crate::sync::poll_for;
use crate::{Error, Kind, Result};

/// The most beats in one request.
const CHUNK: usize = 256;
/// The most requests under way at once.
const FLIGHTS: usize = 256;
/// How long an ended session may take to say its last words.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long the store may take over the very last of them.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Starts the keeper's thread.
pub(crate) fn start(session: &Arc<Session>) -> Result<()> {
    let session = Arc::clone(session);
    std::thread::Builder::new()
        .name("heirlock-keeper".to_owned())
        .spawn(move || {
            // Even if a store panics, nobody must wait for ever for a keeper that is gone.
            let done = Done(Arc::clone(&session));
            Keeper { session, flights: Vec::new(), ending_by: None }.run();
            drop(done);
        })
        .map(drop)
        .map_err(|cause| Error::new(Kind::Storage, "cannot start the thread that renews leases").because(cause))
}

struct Done(Arc<Session>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.close();
        self.0.ended();
    }
}

/// What comes back from the store.
enum Landed {
    Beats(Vec<Result<Answer>>),
    Enter(Answer),
    Leave(Left),
}

/// One request under way.
struct Flight {
    about: Vec<(Token, Sent)>,
    is_leave: bool,
    request: Pin<Box<dyn Future<Output = Result<Landed>> + Send>>,
    ready: Arc<Ready>,
    limit: Moment,
}

/// Set when a request can make progress.
struct Ready {
    session: Arc<Session>,
    flag: AtomicBool,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        // Set before the bell rings: a keeper that is just falling asleep sees one or the other.
        self.flag.store(true, Ordering::Release);
        self.session.ring();
    }
}

struct Keeper {
    session: Arc<Session>,
    flights: Vec<Flight>,
    /// When an ended session gives up on what it could not yet tell the store.
    ending_by: Option<Moment>,
}

impl Keeper {
    fn run(&mut self) {
        loop {
            let full = self.flights.len() >= FLIGHTS;
            let work = self.session.collect(if full { 0 } else { CHUNK });
            if self.is_over(&work) {
                let store = Arc::clone(&self.session.store);
                let id = self.session.id;
                farewell(async move { store.goodbye(id).await });
                return;
            }
            self.send(work);
            if !self.poll() {
                let until = self.flights.iter().map(|flight| flight.limit).chain(self.ending_by).min();
                self.session.sleep(until);
            }
        }
    }

    /// Whether the last handle is gone and nothing is left to be said, or no time to say it.
    fn is_over(&mut self, work: &Work) -> bool {
        if !work.ending {
            return false;
        }
        let now = self.session.clock.now();
        let by = *self.ending_by.get_or_insert(now + FAREWELL);
        work.is_empty || now >= by
    }

    fn send(&mut self, work: Work) {
        let mut beats: Vec<(Key, Beat)> = Vec::new();
        let mut about = Vec::new();
        let mut limit = Duration::MAX;
        for (key, token, request, sent, its_limit) in work.requests {
            let store = Arc::clone(&self.session.store);
            match request {
                Request::Beat(beat) => {
                    beats.push((key, beat));
                    about.push((token, sent));
                    limit = limit.min(its_limit);
                    if beats.len() == CHUNK {
                        self.send_beats(std::mem::take(&mut beats), std::mem::take(&mut about), limit);
                        limit = Duration::MAX;
                    }
                }
                Request::Enter(enter) => {
                    let request = Box::pin(async move { store.enter(&key, enter).await.map(Landed::Enter) });
                    self.fly(vec![(token, sent)], false, its_limit, request);
                }
                Request::Leave(leave) => {
                    let request = Box::pin(async move { store.leave(&key, leave).await.map(Landed::Leave) });
                    self.fly(vec![(token, sent)], true, its_limit, request);
                }
            }
        }
        if !beats.is_empty() {
            self.send_beats(beats, about, limit);
        }
    }

    fn send_beats(&mut self, beats: Vec<(Key, Beat)>, about: Vec<(Token, Sent)>, limit: Duration) {
        let store = Arc::clone(&self.session.store);
        let request = Box::pin(async move { store.beat(beats).await.map(Landed::Beats) });
        self.fly(about, false, limit, request);
    }

    fn fly(
        &mut self,
        about: Vec<(Token, Sent)>,
        is_leave: bool,
        limit: Duration,
        request: Pin<Box<dyn Future<Output = Result<Landed>> + Send>>,
    ) {
        let ready = Arc::new(Ready { session: Arc::clone(&self.session), flag: AtomicBool::new(true) });
        let limit = self.session.clock.now() + limit;
        self.flights.push(Flight { about, is_leave, request, ready, limit });
    }

    /// Polls what can make progress; tells whether anything ended, so that there may be more to do at once.
    fn poll(&mut self) -> bool {
        let mut landed = false;
        let mut at = 0;
        while at < self.flights.len() {
            let flight = &mut self.flights[at];
            // Cleared before the poll: a wake during it is kept for the next.
            let result = if flight.ready.flag.swap(false, Ordering::AcqRel) {
                let waker = Waker::from(Arc::clone(&flight.ready));
                flight.request.as_mut().poll(&mut Context::from_waker(&waker))
            } else {
                Poll::Pending
            };
            match result {
                Poll::Ready(result) => {
                    let flight = self.flights.swap_remove(at);
                    self.land(&flight, result);
                    landed = true;
                }
                Poll::Pending if self.session.clock.now() >= flight.limit => {
                    let flight = self.flights.swap_remove(at);
                    self.land(&flight, Err(Error::new(Kind::Unreachable, "the store did not answer in time")));
                    landed = true;
                }
                Poll::Pending => at += 1,
            }
        }
        landed
    }

    fn land(&self, flight: &Flight, result: Result<Landed>) {
        match result {
            Ok(Landed::Beats(answers)) => {
                for (&(token, sent), answer) in flight.about.iter().zip(answers) {
                    self.session.answered(token, sent, answer);
                }
            }
            Ok(Landed::Enter(answer)) => flight.about.iter().for_each(|&(token, sent)| self.session.answered(token, sent, Ok(answer))),
            Ok(Landed::Leave(left)) => flight.about.iter().for_each(|&(token, sent)| self.session.left(token, sent, Ok(left))),
            Err(error) => {
                for &(token, sent) in &flight.about {
                    let error = Error::new(error.kind(), error.chain());
                    if flight.is_leave {
                        self.session.left(token, sent, Err(error));
                    } else {
                        self.session.answered(token, sent, Err(error));
                    }
                }
            }
        }
    }
}

/// The session's last word, so that the store forgets where its hints went. A store that hangs here is left alone after a moment.
fn farewell(goodbye: impl Future<Output = Result<()>>) {
    if let Some(Err(error)) = poll_for(goodbye, LAST_WORD) {
        tracing::debug!(error = %error.chain(), "the store did not take the session's goodbye");
    }
}
