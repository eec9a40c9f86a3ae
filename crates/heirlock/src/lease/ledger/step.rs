//! What all verbs are made of: who ends, who is granted, what is told, what is answered.

use super::{MAX_TOMBSTONES, NEAR_LOOK_MS, NEAR_LOOKERS, NEVER_DUE, Now, TOMBSTONE_MS};
use crate::lease::book::{Rest, Rows};
use crate::lease::ticket::{Mode, Reason, State, Ticket, Token, Tombstone, Was};
use crate::lease::verb::{Answer, Beat, Enter, Holding, News, Outcome, Told};

/// What a token is to a key.
pub(super) enum Seen {
    Live(Box<Ticket>),
    Gone(Tombstone),
    Never,
}

/// One step in progress.
pub(super) struct Step<'r, 'n, R> {
    pub(super) rows: &'r mut R,
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
    pub(super) fn begin(rows: &'r mut R, now: Now<'n>, speaker: Option<Token>) -> Result<Self, R::Error> {
        let mut step = Step { rows, now, speaker, acted: false, top_before: None, fresh: Vec::new(), told: Vec::new() };
        step.top_before = step.top()?;
        step.purge()?;
        step.promote()?;
        Ok(step)
    }

    /// Promotes, tells holders what they inherit, and answers.
    pub(super) fn end<T>(mut self, answer: impl FnOnce(&mut Self) -> Result<T, R::Error>) -> Result<Outcome<T>, R::Error> {
        self.acted = true;
        self.promote()?;
        self.inherit()?;
        let answer = answer(&mut self)?;
        Ok(Outcome { answer, told: self.told })
    }

    pub(super) fn seen(&mut self, token: &Token) -> Result<Seen, R::Error> {
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
    pub(super) fn finish(&mut self, ticket: &Ticket, reason: Reason, was: Was, settled: bool) -> Result<(), R::Error> {
        self.rows.remove(ticket)?;
        let header = self.rows.header();
        if ticket.holds() {
            header.holders -= 1;
        } else {
            header.queued -= 1;
        }
        self.bury(ticket.token, reason, was, settled)
    }

    pub(super) fn bury(&mut self, token: Token, reason: Reason, was: Was, settled: bool) -> Result<(), R::Error> {
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
    pub(super) fn rest(&mut self, ticket: &Ticket, until_ms: u64, for_ms: u64) {
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
    pub(super) fn admit(&mut self, request: &Enter) -> Result<Option<Answer>, R::Error> {
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
    pub(super) fn refresh(&mut self, ticket: &Ticket, request: &Beat) -> Result<(), R::Error> {
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

    pub(super) fn put(&mut self, before: &Ticket, after: &Ticket) -> Result<(), R::Error> {
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

    pub(super) fn tell(&mut self, ticket: &Ticket, news: News) {
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
    pub(super) fn standing(&mut self, token: &Token) -> Result<Answer, R::Error> {
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
