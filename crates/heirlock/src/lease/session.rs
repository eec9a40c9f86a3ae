//! A session: the table of this process's tickets at one store, and the ways into it. The keeper's thread works on the same table.

use std::cmp::Reverse;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::time::Duration;

mod table;

use self::table::{After, Table, owned};
use super::entry::{Again, Effect, Entry, Request, Sent};
use super::hold::Hold;
use super::key::Key;
use super::store::{Notice, Spawner, Store};
use super::ticket::{SessionId, Token};
use super::verb::{Answer, Beat, Holding, Left, News};
use crate::clock::{Clock, Moment};
use crate::sync::lock;
use crate::{Error, Kind, Result};

/// The longest nap of the keeper while something is held: a thread's timed wait does not count suspend, the clock does.
const LONGEST_NAP: Duration = Duration::from_secs(1);
/// How long a request waits before it is looked at again, when too many are under way.
const CROWDED: Duration = Duration::from_millis(10);

/// How many of a session's waiters for a key look when one of them may have been granted.
const NEXT_IN_TURN: usize = 4;

pub(crate) struct Session {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: SessionId,
    pid: u32,
    /// The way to the store's own thread, if it does more than that.
    spawner: Option<Spawner>,
    table: Mutex<Table>,
    bell: Condvar,
}

/// What a call has begun.
pub(crate) enum Begun {
    /// A ticket.
    Ticket,
    /// To wait for how another call of its worker comes out.
    Behind,
    /// Nothing: its worker holds the key.
    Shares(Arc<Hold>, Holding),
}

/// What the keeper has to do now.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) requests: Vec<(Key, Token, Request, Sent, Duration)>,
    pub(crate) ending: bool,
    pub(crate) is_empty: bool,
}

impl Session {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Session>> {
        let session = Arc::new(Session {
            spawner: store.spawner(),
            store,
            clock,
            id: SessionId::random()?,
            pid: std::process::id(),
            table: Mutex::default(),
            bell: Condvar::new(),
        });
        let weak = Arc::downgrade(&session);
        session.clock.on_jump(Box::new(move || {
            if let Some(session) = weak.upgrade() {
                session.ring();
            }
        }));
        Ok(session)
    }

    /// Whether this is a forked child: the tickets and the keeper are the parent's.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    /// Refuses a forked child; before any mutex, which a thread that is not there may have had at the fork.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            let cure = "fork first and connect then, or have the child run a program of its own";
            return Err(Error::new(Kind::Closed, format!("this session is of the process that this one was forked from: {cure}")));
        }
        Ok(())
    }

    /// Begins an attempt: nothing is sent yet, but from now on the keeper looks after it.
    pub(crate) fn begin(&self, hold: &Arc<Hold>, deadline: Option<Moment>) -> Result<Begun> {
        let now = self.clock.now();
        let mut entry = Entry::of(hold, deadline, now);
        let mut table = lock(&self.table);
        if table.closed {
            return Err(Error::new(Kind::Closed, "this session is closed: connect again"));
        }
        let (begun, ring) = match table.again(&hold.ask, now)? {
            Again::Shares(hold, holding) => return Ok(Begun::Shares(hold, holding)),
            Again::Behind(first) => (Begun::Behind, table.wait_behind(first, entry, now)),
            Again::Anew => {
                // The caller sends the first request itself, at once.
                entry.next = now + entry.ask.request_limit();
                if let Some(owned) = owned(&hold.ask) {
                    table.by_worker.insert(owned, hold.token);
                }
                (Begun::Ticket, table.insert(entry))
            }
        };
        drop(table);
        if ring {
            self.ring();
        }
        Ok(begun)
    }

    /// The next request of a ticket, for the caller to send itself.
    pub(crate) fn request(&self, token: Token) -> Option<(Request, Sent)> {
        let now = self.clock.now();
        self.change(token, |entry| (Some(entry.request(self.id, now)), Effect::default())).flatten()
    }

    /// What an `enter` or a `beat` came to.
    pub(crate) fn answered(&self, token: Token, sent: Sent, answer: Result<Answer>) {
        let now = self.clock.now();
        let joined = self.change(token, |entry| {
            let held = entry.holds_beside_others();
            entry.land(sent);
            let effect = entry.answered(sent, answer, now);
            let joined = (!held && entry.holds_beside_others()).then(|| entry.ask.key.clone());
            (joined, effect)
        });
        // Others of this session may have been granted with it: one hint stands for all of them.
        if let Some(Some(key)) = joined {
            self.hint(&Notice { key, news: News::Granted });
        }
    }

    /// What a `leave` came to.
    pub(crate) fn left(&self, token: Token, sent: Sent, answer: Result<Left>) {
        let now = self.clock.now();
        self.change(token, |entry| {
            entry.land(sent);
            ((), entry.left(answer, now))
        });
    }

    /// Takes a ticket out of the store, in the background: at once, or after `head_start`, which the caller uses to do it itself.
    pub(crate) fn withdraw(&self, token: Token, head_start: Duration) {
        if self.is_forked() {
            return;
        }
        let when = self.clock.now() + head_start;
        self.change(token, |entry| {
            if entry.is_unsent() {
                return ((), Effect { over: true, ..Effect::default() });
            }
            entry.withdraw(when);
            ((), Effect::default())
        });
    }

    /// A hint came from the store. Where its own thread can do that, the ticket that is next in turn asks from there, and the keeper sleeps on: of all that
    /// stands between a release and the next holder, a change of thread takes longest. Should it have been another ticket, all look as ever.
    pub(crate) fn heard(self: &Arc<Self>, notice: &Notice) {
        let next =
            self.spawner.as_ref().filter(|_| notice.news == News::Granted).and_then(|spawner| Some((spawner, self.next_in_turn(notice)?)));
        let Some((spawner, (token, beat, sent))) = next else { return self.hint(notice) };
        let (session, notice) = (Arc::clone(self), notice.clone());
        spawner(Box::pin(async move {
            let answers = session.store.beat(vec![(notice.key.clone(), beat)]).await;
            let nothing = || Err(Error::new(Kind::Unreachable, "the store did not answer"));
            let answer = answers.and_then(|mut answers| answers.pop().unwrap_or_else(nothing));
            let was_it = matches!(answer, Ok(Answer::Held(_)));
            session.answered(token, sent, answer);
            if !was_it {
                session.hint(&notice);
            }
        }));
    }

    /// The request of the ticket that is likely to have been granted: of those that have none under way, the first. Those before it look again once they
    /// are answered. As with the first request of all, the keeper sends another if no answer comes.
    fn next_in_turn(&self, notice: &Notice) -> Option<(Token, Beat, Sent)> {
        let now = self.clock.now();
        let mut table = lock(&self.table);
        let mut concerned = concerned(&table, notice);
        concerned.sort_unstable();
        let at = concerned.iter().position(|(_, token)| table.entries.get(token).is_some_and(|entry| entry.is_answered()))?;
        for (_, token) in &concerned[..at] {
            if let Some(entry) = table.entries.get_mut(token) {
                entry.look_again();
            }
        }
        let token = concerned[at].1;
        let (request, sent) = table.entries.get_mut(&token)?.request(self.id, now);
        table.schedule(token);
        match request {
            Request::Beat(beat) => Some((token, beat, sent)),
            Request::Enter(_) | Request::Leave(_) => None,
        }
    }

    /// A hint came for a key: whom it may concern looks now. It does not say which ticket was granted, but that must be one of those next in
    /// turn; should it be another after all, its own look finds it.
    pub(crate) fn hint(&self, notice: &Notice) {
        let now = self.clock.now();
        let mut table = lock(&self.table);
        let concerned = concerned(&table, notice);
        let mut ring = false;
        for (_, token) in concerned {
            if let Some(entry) = table.entries.get_mut(&token) {
                entry.hint(now);
                ring |= table.schedule(token);
            }
        }
        drop(table);
        if ring {
            self.ring();
        }
    }

    /// What the store last failed with for one of the tickets, if it has not answered since.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.table).entries.values().find_map(|entry| entry.trouble().map(Error::chain))
    }

    /// Changes an entry under the table's mutex, wakes whom that concerns after it, and the keeper if it sleeps too long for it now.
    fn change<T>(&self, token: Token, change: impl FnOnce(&mut Entry) -> (T, Effect)) -> Option<T> {
        let mut table = lock(&self.table);
        let entry = table.entries.get_mut(&token)?;
        let (answer, effect) = change(entry);
        let after = table.settle(token, effect);
        drop(table);
        let ring = after.ring;
        after.wake();
        if ring {
            self.ring();
        }
        Some(answer)
    }

    /// Wakes the keeper: there is something to do, or one of its requests has made progress.
    pub(crate) fn ring(&self) {
        lock(&self.table).rung = true;
        self.bell.notify_all();
    }

    // The keeper's side.

    /// Lets run out what has run out, and collects the requests that are due, at most so many; with none, they are put off.
    pub(crate) fn collect(&self, most: usize) -> Work {
        let mut work = Work::default();
        let mut after = After::default();
        let mut table = lock(&self.table);
        table.nap = None;
        table.rung = false;
        // Read once the bell is still, and under its mutex: a jump of the clock is either seen here, or rings after this.
        let now = self.clock.now();
        let due: Vec<Token> = table.agenda.iter().take_while(|(due, _)| *due <= now).map(|(_, token)| *token).collect();
        for token in due {
            let Some(entry) = table.entries.get_mut(&token) else { continue };
            let effect = entry.tick(now);
            if most == 0 && entry.wants_request(now) {
                // Off the agenda for a moment, so that what must not wait, the end of a validity, is seen behind it.
                entry.put_off(now + CROWDED);
            } else if !effect.over && entry.wants_request(now) && work.requests.len() < most {
                let limit = entry.ask.request_limit();
                let (request, sent) = entry.request(self.id, now);
                entry.fly(sent);
                work.requests.push((entry.ask.key.clone(), token, request, sent, limit));
            }
            after.add(table.settle(token, effect));
        }
        work.ending = table.ending;
        work.is_empty = table.entries.is_empty();
        drop(table);
        after.wake();
        work
    }

    /// Sleeps until somebody rings, or until the next thing is due, at the latest at `until`.
    pub(crate) fn sleep(&self, until: Option<Moment>) {
        let mut table = lock(&self.table);
        if table.rung {
            return;
        }
        let first = table.agenda.first().map(|(due, _)| *due);
        let wake_at = first.into_iter().chain(until).min().unwrap_or(Moment::from_nanos(u64::MAX));
        table.nap = Some(wake_at);
        let nap = self.clock.sleep_for(wake_at);
        let bounded = nap.map(|nap| if table.entries.is_empty() { nap.min(Duration::from_secs(86_400)) } else { nap.min(LONGEST_NAP) });
        let mut table = match bounded {
            Some(nap) => match self.bell.wait_timeout_while(table, nap, |table| !table.rung) {
                Ok((table, _)) => table,
                Err(poisoned) => poisoned.into_inner().0,
            },
            None => match self.bell.wait_while(table, |table| !table.rung) {
                Ok(table) => table,
                Err(poisoned) => poisoned.into_inner(),
            },
        };
        table.nap = None;
    }

    // The end.

    /// Refuses all that is asked from now on; tickets are withdrawn, leases lost.
    pub(crate) fn close(&self) {
        if self.is_forked() {
            return;
        }
        let now = self.clock.now();
        let mut table = lock(&self.table);
        table.closed = true;
        let tokens: Vec<Token> = table.entries.keys().copied().collect();
        let mut after = After::default();
        for token in tokens {
            if let Some(entry) = table.entries.get_mut(&token) {
                let effect = if entry.is_unsent() { Effect { over: true, ..entry.close(now) } } else { entry.close(now) };
                after.add(table.settle(token, effect));
            }
        }
        drop(table);
        after.wake();
        self.ring();
    }

    /// The last handle is gone.
    pub(crate) fn end(&self) {
        if self.is_forked() {
            return;
        }
        self.close();
        lock(&self.table).ending = true;
        self.ring();
    }

    /// Whether the keeper has ended, and with it all that was to be told to the store; if not, the waker is woken then.
    pub(crate) fn poll_ended(&self, waker: Waker) -> bool {
        let mut table = lock(&self.table);
        if table.ended {
            return true;
        }
        table.enders.push(waker);
        false
    }

    /// The keeper has ended; nobody else will.
    pub(crate) fn ended(&self) {
        let mut table = lock(&self.table);
        table.ended = true;
        let mut wakers = std::mem::take(&mut table.enders);
        let entries = std::mem::take(&mut table.entries);
        for entry in entries.values() {
            wakers.extend(entry.vital.leave(Err(Error::new(Kind::Closed, "the session ended before the store answered"))));
        }
        table.agenda.clear();
        table.by_key.clear();
        table.by_worker.clear();
        drop(table);
        drop(entries);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Whom a hint may concern, with how near it is to its turn; of those who may have been granted, the nearest few.
fn concerned(table: &Table, notice: &Notice) -> Vec<((Reverse<i32>, Moment), Token)> {
    let concern = |token: Token| Some((table.entries.get(&token)?.concerns(notice.news)?, token));
    let mut concerned: Vec<_> = table.of_key(&notice.key).filter_map(concern).collect();
    if notice.news == News::Granted && concerned.len() > NEXT_IN_TURN {
        concerned.select_nth_unstable(NEXT_IN_TURN);
        concerned.truncate(NEXT_IN_TURN);
    }
    concerned
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::MemoryStore;

    /// A clock that jumps just after it was read. Whoever tells of the jump comes at once if the table is free, and else later.
    #[derive(Default)]
    struct JumpsOnceRead {
        clock: ManualClock,
        session: OnceLock<Arc<Session>>,
        armed: AtomicBool,
        told: AtomicBool,
    }

    impl Clock for JumpsOnceRead {
        fn now(&self) -> Moment {
            let now = self.clock.now();
            if self.armed.swap(false, Ordering::SeqCst) {
                self.clock.advance(Duration::from_secs(60));
                let session = self.session.get().unwrap();
                if session.table.try_lock().is_ok() {
                    session.ring();
                    self.told.store(true, Ordering::SeqCst);
                }
            }
            now
        }

        fn sleep_for(&self, _until: Moment) -> Option<Duration> {
            None
        }
    }

    #[test]
    fn a_jump_of_the_clock_while_the_keeper_looks_is_not_slept_through() {
        let clock = Arc::new(JumpsOnceRead::default());
        let session = Session::new(Arc::new(MemoryStore::new()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        assert!(clock.session.set(Arc::clone(&session)).is_ok());
        clock.armed.store(true, Ordering::SeqCst);
        drop(session.collect(1));
        assert!(!clock.armed.load(Ordering::SeqCst), "the clock was read");
        if !clock.told.load(Ordering::SeqCst) {
            session.ring();
        }
        assert!(lock(&session.table).rung, "the keeper would sleep with a time that is over");
    }
}
