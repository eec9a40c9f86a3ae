//! The ledger: who holds a key, who waits, and what every request does to that. Pure: rows, a request and the time in; rows, an answer and
//! notices out.
//!
//! # The states of a ticket
//! ```text
//!              enter                   its turn, noticed by       its turn, noticed in
//!           (must wait)                another's step             its own step
//!   (none) ────────────► Queued ──────────────► Granted ─┐            │
//!      │                   │ └───────────────────────────│────────────┤
//!      │ enter             │                      beat,  │            │
//!      │ (nobody before)   │                      enter  ▼            ▼
//!      ├───────────────────│─────────────────────────► Held ◄─────────┘
//!      │ enter (may not    │ leave, expiry               │ leave, expiry, max_hold, eviction
//!      │ queue), leave     ▼                             ▼
//!      └────────────────► Gone (a tombstone for 60 s) ◄──┘
//! ```
//! A grant does not extend a ticket's life: a waiter that died before its turn delays the key by what is left of `queue_life`. Only a claim
//! extends it to the ttl.
//!
//! # A step
//! Purge what is due, promote from the head of the queue, do the verb, promote again, then tell holders what they inherit. So nothing is
//! granted for a moment that has passed, and a newcomer never passes a waiter on a key that an expiry has just freed.
//!
//! # What always holds
//! 1. Holders of one key stand beside each other only as readers, or in slots of distinct indexes below n.
//! 2. Fences of a key strictly increase in the order of its grants; only readers of one generation share one.
//! 3. After a step, the head of the queue could not be granted.
//! 4. No ticket is live at or after its `due_ms`.
//! 5. A token that has ended stays ended for 60 s: a late or repeated `enter` or `beat` answers `Gone` (or `Busy` again).
//! 6. A request whose sequence number is not newer than the last applied renews, claims and changes nothing.
//! 7. The counts of the [`Header`](super::book::Header) are those of the rows.
//!
//! The model in `tests/ledger_model.rs` checks them over every interleaving of duplicated, reordered and delayed requests; the idea of fencing
//! is Chubby's sequencer (Burrows 2006), that of an idempotent token per attempt is etcd's lease key.

use super::book::{Rest, Rows};
use super::ticket::{Mode, Reason, State, Ticket, Token, Tombstone, Was};
use super::verb::{Answer, Beat, Enter, Evict, Holding, Leave, Left, News, Outcome, Told};

/// How long a tombstone stays, in milliseconds.
pub const TOMBSTONE_MS: u64 = 60_000;
/// How many tombstones a key keeps.
pub const MAX_TOMBSTONES: u64 = 64;
/// How many of a queue's first look every [`NEAR_LOOK_MS`].
pub const NEAR_LOOKERS: usize = 4;
/// The longest that the first of a queue go without a look, in milliseconds.
pub const NEAR_LOOK_MS: u64 = 1_000;
/// Where there are no instants, a tombstone's `due_ms` is its number beyond this: an order, not a time.
const NEVER_DUE: u64 = 1 << 63;

/// What the store knows of the time.
#[derive(Clone, Copy, Debug)]
pub enum Now<'a> {
    /// An engine with a clock: tickets end when their instant has come.
    Clock {
        /// For expiries; never goes back.
        mono_ms: u64,
        /// For fences only; it may jump. Microseconds since 1970.
        wall_us: u64,
    },
    /// An engine with liveness (etcd): tickets end, and rests are over, when they are among the dead. There are no instants; a tombstone stays
    /// until there are too many.
    Liveness {
        /// Tickets, and tickets that left a rest, whose liveness key is gone. A `max_hold` is kept by not keeping that key alive beyond it.
        dead: &'a [Token],
        /// For fences only.
        wall_us: u64,
    },
}

impl Now<'_> {
    fn wall_us(&self) -> u64 {
        match *self {
            Now::Clock { wall_us, .. } | Now::Liveness { wall_us, .. } => wall_us,
        }
    }

    /// This instant; 0 where there are none.
    fn ms(&self) -> u64 {
        match *self {
            Now::Clock { mono_ms, .. } => mono_ms,
            Now::Liveness { .. } => 0,
        }
    }

    /// The instant so many milliseconds from now; the end of time where there are none.
    fn after(&self, ms: u64) -> u64 {
        match *self {
            Now::Clock { mono_ms, .. } => mono_ms.saturating_add(ms),
            Now::Liveness { .. } => u64::MAX,
        }
    }
}

/// Asks for the key with a new ticket, or beats a live one.
///
/// # Errors
/// What the rows' engine reports.
pub fn enter<R: Rows>(rows: &mut R, now: Now<'_>, request: &Enter) -> Result<Outcome<Answer>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    let beat = Beat { token: request.token, seq: request.seq, priority: request.priority, blocked: None };
    let answer = match step.seen(&request.token)? {
        Seen::Live(ticket) => {
            let blocked = ticket.blocked.clone();
            step.refresh(&ticket, &Beat { blocked, ..beat })?;
            None
        }
        Seen::Gone(grave) if grave.reason == Reason::Busy => Some(Answer::Busy),
        Seen::Gone(grave) => Some(Answer::Gone(grave.reason)),
        Seen::Never => step.admit(request)?,
    };
    step.end(|step| match answer {
        Some(answer) => Ok(answer),
        None => step.standing(&request.token),
    })
}

/// Renews, claims or keeps alive a ticket.
///
/// # Errors
/// What the rows' engine reports.
pub fn beat<R: Rows>(rows: &mut R, now: Now<'_>, request: &Beat) -> Result<Outcome<Answer>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    if let Seen::Live(ticket) = step.seen(&request.token)? {
        step.refresh(&ticket, request)?;
    }
    step.end(|step| step.standing(&request.token))
}

/// Ends a ticket, whatever its sequence, and hands the key on.
///
/// # Errors
/// What the rows' engine reports.
pub fn leave<R: Rows>(rows: &mut R, now: Now<'_>, request: &Leave) -> Result<Outcome<Left>, R::Error> {
    let mut step = Step::begin(rows, now, Some(request.token))?;
    let was = match step.seen(&request.token)? {
        Seen::Live(ticket) => {
            let (reason, was) = match ticket.state {
                State::Held => (Reason::Released, Was::Held),
                State::Granted => (Reason::Withdrawn, Was::Granted),
                State::Queued => (Reason::Withdrawn, Was::Queued),
            };
            step.finish(&ticket, reason, was, request.settled)?;
            if let (State::Held, Some(span)) = (ticket.state, ticket.terms.hold_at_least) {
                let until = match now {
                    Now::Clock { .. } => ticket.granted_ms.saturating_add(span),
                    Now::Liveness { .. } => u64::MAX,
                };
                step.rest(&ticket, until, span);
            }
            was
        }
        Seen::Gone(grave) if matches!(grave.reason, Reason::Released | Reason::Withdrawn) => grave.was,
        Seen::Gone(_) => Was::Gone,
        Seen::Never => {
            step.bury(request.token, Reason::Withdrawn, Was::Gone, request.settled)?;
            Was::Gone
        }
    };
    step.end(|_| Ok(Left { was }))
}

/// Takes the key away: marks holders as revoked, ends grants that nobody claimed, and with `force` ends all. Answers how many it met.
///
/// # Errors
/// What the rows' engine reports.
pub fn evict<R: Rows>(rows: &mut R, now: Now<'_>, request: &Evict) -> Result<Outcome<u64>, R::Error> {
    let mut step = Step::begin(rows, now, None)?;
    let mut met = 0;
    if step.rows.header().holders > 0 {
        for ticket in step.rows.holders()? {
            if request.fence.is_some_and(|fence| fence != ticket.fence) {
                continue;
            }
            met += 1;
            if request.force || ticket.state == State::Granted {
                step.finish(&ticket, Reason::Evicted, Was::Gone, false)?;
                step.tell(&ticket, News::Revoked);
            } else if !ticket.revoked {
                step.put(&ticket, &Ticket { revoked: true, ..ticket.clone() })?;
                step.tell(&ticket, News::Revoked);
            }
        }
    }
    step.end(|_| Ok(met))
}

/// Does what every verb does first and last, and no more; whoever inspects a key looks first.
///
/// # Errors
/// What the rows' engine reports.
pub fn look<R: Rows>(rows: &mut R, now: Now<'_>) -> Result<Outcome<()>, R::Error> {
    Step::begin(rows, now, None)?.end(|_| Ok(()))
}

/// What a token is to a key.
enum Seen {
    Live(Box<Ticket>),
    Gone(Tombstone),
    Never,
}

/// One step in progress.
struct Step<'r, 'n, R> {
    rows: &'r mut R,
    now: Now<'n>,
    /// The ticket that speaks: it gets an answer, not a notice.
    speaker: Option<Token>,
    /// Whether the verb is done. What the speaker is granted after it, it holds at once; what it is granted before, a newer request claims by
    /// itself and an older one must not.
    acted: bool,
    /// The highest priority in the queue before the step.
    top_before: Option<i32>,
    /// Tickets that were granted in this step: what they inherit is no change.
    fresh: Vec<Token>,
    told: Vec<Told>,
}

impl<'r, 'n, R: Rows> Step<'r, 'n, R> {
    /// Purges and promotes.
    fn begin(rows: &'r mut R, now: Now<'n>, speaker: Option<Token>) -> Result<Self, R::Error> {
        let mut step = Step { rows, now, speaker, acted: false, top_before: None, fresh: Vec::new(), told: Vec::new() };
        step.top_before = step.top()?;
        step.purge()?;
        step.promote()?;
        Ok(step)
    }

    /// Promotes, tells holders what they inherit, and answers.
    fn end<T>(mut self, answer: impl FnOnce(&mut Self) -> Result<T, R::Error>) -> Result<Outcome<T>, R::Error> {
        self.acted = true;
        self.promote()?;
        self.inherit()?;
        let answer = answer(&mut self)?;
        Ok(Outcome { answer, told: self.told })
    }

    fn seen(&mut self, token: &Token) -> Result<Seen, R::Error> {
        if self.rows.header().live() > 0
            && let Some(ticket) = self.rows.ticket(token)?
        {
            return Ok(Seen::Live(Box::new(ticket)));
        }
        if self.rows.header().graves > 0
            && let Some(grave) = self.rows.tombstone(token)?
        {
            return Ok(Seen::Gone(grave));
        }
        Ok(Seen::Never)
    }

    // What ends.

    fn purge(&mut self) -> Result<(), R::Error> {
        match self.now {
            Now::Clock { mono_ms, .. } => {
                self.rows.header().rests.retain(|rest| rest.until_ms > mono_ms);
                if mono_ms < self.rows.header().next_due_ms {
                    return Ok(());
                }
                for grave in self.rows.graves_due(mono_ms)? {
                    self.unbury(&grave)?;
                }
                for ticket in self.rows.due(mono_ms)? {
                    self.expire(&ticket)?;
                }
                let next = self.rows.next_due()?;
                self.rows.header().next_due_ms = next;
            }
            Now::Liveness { dead, .. } => {
                self.rows.header().rests.retain(|rest| !dead.contains(&rest.token));
                for token in dead {
                    if let Seen::Live(ticket) = self.seen(token)? {
                        self.expire(&ticket)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A ticket was not renewed in time, or reached the cap of its hold.
    fn expire(&mut self, ticket: &Ticket) -> Result<(), R::Error> {
        let capped = ticket.state == State::Held && ticket.terms.max_hold.is_some() && ticket.due_ms == cap(ticket);
        let reason = if capped { Reason::MaxHold } else { Reason::Expired };
        self.finish(ticket, reason, Was::Gone, false)?;
        if let (State::Held, Some(span)) = (ticket.state, ticket.terms.lock_delay) {
            self.rest(ticket, ticket.due_ms.saturating_add(span), span);
        }
        Ok(())
    }

    /// Takes a live ticket out and leaves a tombstone.
    fn finish(&mut self, ticket: &Ticket, reason: Reason, was: Was, settled: bool) -> Result<(), R::Error> {
        self.rows.remove(ticket)?;
        let header = self.rows.header();
        if ticket.holds() {
            header.holders -= 1;
        } else {
            header.queued -= 1;
        }
        self.bury(ticket.token, reason, was, settled)
    }

    fn bury(&mut self, token: Token, reason: Reason, was: Was, settled: bool) -> Result<(), R::Error> {
        if self.rows.header().graves >= MAX_TOMBSTONES
            && let Some(oldest) = self.rows.oldest_grave()?
        {
            self.unbury(&oldest)?;
        }
        let header = self.rows.header();
        let due_ms = match self.now {
            Now::Clock { mono_ms, .. } => mono_ms.saturating_add(TOMBSTONE_MS),
            // Never due, but in order: of too many the oldest goes, not the one whose token happens to be the lowest.
            Now::Liveness { .. } => {
                header.arrivals += 1;
                NEVER_DUE + header.arrivals
            }
        };
        self.rows.bury(&Tombstone { token, reason, was, settled, due_ms })?;
        let header = self.rows.header();
        header.graves += 1;
        header.next_due_ms = header.next_due_ms.min(due_ms);
        Ok(())
    }

    fn unbury(&mut self, grave: &Tombstone) -> Result<(), R::Error> {
        self.rows.unbury(grave)?;
        self.rows.header().graves -= 1;
        Ok(())
    }

    /// The ended ticket's place stays empty until then: one slot, or the whole key. Of several rests of a place the latest end counts.
    fn rest(&mut self, ticket: &Ticket, until_ms: u64, for_ms: u64) {
        if until_ms <= self.now.ms() {
            return;
        }
        let slot = ticket.mode.slots().map(|_| ticket.slot);
        let rests = &mut self.rows.header().rests;
        // Where there are no instants, each rest ends by its own liveness key.
        let timed = matches!(self.now, Now::Clock { .. });
        match rests.iter_mut().find(|rest| timed && rest.slot == slot) {
            Some(rest) => rest.until_ms = rest.until_ms.max(until_ms),
            None => rests.push(Rest { slot, until_ms, for_ms, token: ticket.token }),
        }
    }

    // What begins.

    /// A ticket that was never seen: queues it, or answers why not.
    fn admit(&mut self, request: &Enter) -> Result<Option<Answer>, R::Error> {
        let slots = request.mode.slots().unwrap_or(0);
        let header = self.rows.header();
        if header.live() > 0 && header.slots != slots {
            return Ok(Some(Answer::Mismatch { slots: header.slots }));
        }
        if !request.may_queue && (header.queued > 0 || self.room(request.mode)?.is_none()) {
            self.bury(request.token, Reason::Busy, Was::Gone, false)?;
            return Ok(Some(Answer::Busy));
        }
        let due_ms = self.now.after(request.terms.queue_life);
        let header = self.rows.header();
        header.slots = slots;
        header.queued += 1;
        header.arrivals += 1;
        header.next_due_ms = header.next_due_ms.min(due_ms);
        let ticket = Ticket {
            token: request.token,
            session: request.session,
            seq: request.seq,
            state: State::Queued,
            priority: request.priority,
            arrival: header.arrivals,
            mode: request.mode,
            terms: request.terms,
            entered_ms: self.now.ms(),
            granted_ms: 0,
            due_ms,
            fence: 0,
            slot: 0,
            revoked: false,
            owner: request.owner.clone(),
            blocked: None,
        };
        // Nobody before it: it is granted at once, without ever standing in the queue.
        if self.rows.header().queued == 1
            && let Some(room) = self.room(request.mode)?
        {
            self.acted = true;
            self.grant(None, &ticket, room)?;
        } else {
            self.rows.put(None, &ticket)?;
        }
        Ok(None)
    }

    /// A newer request renews what is held, claims what is granted, keeps alive what is queued; an older one does nothing.
    fn refresh(&mut self, ticket: &Ticket, request: &Beat) -> Result<(), R::Error> {
        if request.seq <= ticket.seq {
            return Ok(());
        }
        if ticket.state == State::Granted && self.now.ms() >= cap(ticket) {
            // Its longest hold counts from the grant, and was over before its owner claimed it: a claim now would be overdue at once.
            return self.finish(ticket, Reason::MaxHold, Was::Gone, false);
        }
        let mut after = ticket.clone();
        after.seq = request.seq;
        after.priority = request.priority;
        after.blocked.clone_from(&request.blocked);
        match ticket.state {
            State::Queued => after.due_ms = self.now.after(ticket.terms.queue_life),
            State::Granted | State::Held => claim(&mut after, &self.now),
        }
        self.put(ticket, &after)
    }

    fn put(&mut self, before: &Ticket, after: &Ticket) -> Result<(), R::Error> {
        self.rows.put(Some(before), after)?;
        let header = self.rows.header();
        header.next_due_ms = header.next_due_ms.min(after.due_ms);
        Ok(())
    }

    /// Grants from the head of the queue while the head is compatible with who holds.
    fn promote(&mut self) -> Result<(), R::Error> {
        while let Some(head) = self.head()? {
            let Some(room) = self.room(head.mode)? else { break };
            self.grant(Some(&head), &head, room)?;
        }
        Ok(())
    }

    fn head(&mut self) -> Result<Option<Ticket>, R::Error> {
        if self.rows.header().queued == 0 {
            return Ok(None);
        }
        Ok(self.rows.queue(1)?.pop())
    }

    /// The highest priority in the queue.
    fn top(&mut self) -> Result<Option<i32>, R::Error> {
        Ok(self.head()?.map(|head| head.priority))
    }

    /// The place that a ticket of this mode could have now.
    fn room(&mut self, mode: Mode) -> Result<Option<Room>, R::Error> {
        let header = self.rows.header();
        if header.rests.iter().any(|rest| rest.slot.is_none()) {
            return Ok(None);
        }
        let free = header.holders == 0;
        Ok(match mode {
            Mode::Exclusive => (free && header.rests.is_empty()).then_some(Room::Alone),
            Mode::Shared if free => header.rests.is_empty().then_some(Room::Alone),
            Mode::Shared => (header.readers && header.rests.is_empty()).then_some(Room::Beside),
            Mode::Slot(n) => {
                let mut taken: Vec<u32> = header.rests.iter().filter_map(|rest| rest.slot).collect();
                if !free {
                    taken.extend(self.rows.holders()?.iter().map(|ticket| ticket.slot));
                }
                (0..n).find(|slot| !taken.contains(slot)).map(Room::Slot)
            }
        })
    }

    /// Mints the fence. The speaker holds at once; anybody else's expiry stays until it claims.
    fn grant(&mut self, before: Option<&Ticket>, ticket: &Ticket, room: Room) -> Result<(), R::Error> {
        let mut after = ticket.clone();
        let header = self.rows.header();
        if !matches!(room, Room::Beside) {
            // Readers that join share the fence of the generation, which is the last one minted: nobody else was granted since.
            header.last_fence = (header.last_fence + 1).max(self.now.wall_us());
        }
        after.fence = header.last_fence;
        header.readers = ticket.mode == Mode::Shared;
        header.queued -= 1;
        header.holders += 1;
        if let Room::Slot(slot) = room {
            after.slot = slot;
        }
        after.state = State::Granted;
        after.granted_ms = self.now.ms();
        if self.acted && self.speaker == Some(ticket.token) {
            claim(&mut after, &self.now);
        }
        self.tell(&after, News::Granted);
        self.fresh.push(after.token);
        self.rows.put(before, &after)?;
        let header = self.rows.header();
        header.next_due_ms = header.next_due_ms.min(after.due_ms);
        Ok(())
    }

    // What is told.

    fn tell(&mut self, ticket: &Ticket, news: News) {
        if self.speaker != Some(ticket.token) {
            self.told.push(Told { session: ticket.session, token: ticket.token, news });
        }
    }

    /// Tells those that held before and hold now whose effective priority has changed: they all inherit the queue's highest.
    fn inherit(&mut self) -> Result<(), R::Error> {
        let (before, after) = (self.top_before, self.top()?);
        if before == after || self.rows.header().holders == 0 {
            return Ok(());
        }
        for ticket in self.rows.holders()? {
            if self.fresh.contains(&ticket.token) {
                continue;
            }
            let inherit = |top: Option<i32>| ticket.priority.max(top.unwrap_or(i32::MIN));
            match inherit(after).cmp(&inherit(before)) {
                std::cmp::Ordering::Greater => self.tell(&ticket, News::Boosted),
                std::cmp::Ordering::Less => self.tell(&ticket, News::Lowered),
                std::cmp::Ordering::Equal => {}
            }
        }
        Ok(())
    }

    // What is answered.

    /// Where a ticket stands, as it is told.
    fn standing(&mut self, token: &Token) -> Result<Answer, R::Error> {
        let ticket = match self.seen(token)? {
            Seen::Live(ticket) => ticket,
            Seen::Gone(grave) => return Ok(Answer::Gone(grave.reason)),
            Seen::Never => return Ok(Answer::Gone(Reason::Unknown)),
        };
        Ok(match ticket.state {
            State::Held => Answer::Held(Holding {
                fence: ticket.fence,
                slot: ticket.mode.slots().map(|_| ticket.slot),
                expires_in: match self.now {
                    Now::Clock { mono_ms, .. } => ticket.due_ms.saturating_sub(mono_ms),
                    Now::Liveness { .. } => ticket.terms.ttl,
                },
                effective: ticket.priority.max(self.top()?.unwrap_or(i32::MIN)),
                revoked: ticket.revoked,
            }),
            // Only to an older request: a newer one, which may be on its way, claims.
            State::Granted => Answer::Queued { next_look: 1 },
            State::Queued => Answer::Queued { next_look: self.next_look(&ticket)? },
        })
    }

    /// How long a waiter may go without a look: until a holder's expiry or the end of a rest, whichever is first, within bounds.
    fn next_look(&mut self, ticket: &Ticket) -> Result<u64, R::Error> {
        let mut most = ticket.terms.queue_life / 3;
        if self.rows.queue(NEAR_LOOKERS)?.iter().any(|near| near.token == ticket.token) {
            most = most.min(NEAR_LOOK_MS);
        }
        if let Now::Clock { mono_ms, .. } = self.now {
            let rests = self.rows.header().rests.iter().map(|rest| rest.until_ms).min();
            for instant in rests.into_iter().chain(self.rows.holders_due()?) {
                most = most.min(instant.saturating_sub(mono_ms));
            }
        }
        Ok(most.max(1))
    }
}

/// Where a grant puts a ticket.
#[derive(Clone, Copy)]
enum Room {
    /// With a new fence.
    Alone,
    /// With the readers that hold.
    Beside,
    /// In this slot.
    Slot(u32),
}

/// The latest instant that a held ticket can be renewed to.
fn cap(ticket: &Ticket) -> u64 {
    ticket.terms.max_hold.map_or(u64::MAX, |max| ticket.granted_ms.saturating_add(max))
}

/// Its owner knows that it holds: from now for its ttl, within the cap. A revoked ticket is not renewed.
fn claim(ticket: &mut Ticket, now: &Now<'_>) {
    ticket.state = State::Held;
    if !ticket.revoked {
        ticket.due_ms = match now {
            Now::Clock { .. } => now.after(ticket.terms.ttl).min(cap(ticket)),
            Now::Liveness { .. } => u64::MAX,
        };
    }
}
