//! The ledger once more, as plainly as can be: a list of tickets, everything else computed anew whenever it is asked. Written from the
//! design, not from `lease/ledger.rs`, which must agree with it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use heirlock::lease::ledger::Now;
use heirlock::lease::{Answer, BlockedOn, Enter, Holding, Mode, News, Reason, Terms, Token, Was};

use super::ledger_requests::{Reply, Request, number};

#[path = "ledger_snapshot.rs"]
mod snapshot;

pub(crate) use snapshot::Snapshot;

const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Ticket {
    token: Token,
    seq: u64,
    priority: i32,
    arrival: usize,
    mode: Mode,
    terms: Terms,
    blocked: Option<BlockedOn>,
    due: u64,
    /// Nothing while it waits.
    hold: Option<Hold>,
}

#[derive(Clone, Debug)]
struct Hold {
    fence: u64,
    slot: u32,
    since: u64,
    claimed: bool,
    revoked: bool,
}

#[derive(Clone, Debug)]
struct Grave {
    token: Token,
    reason: Reason,
    was: Was,
    settled: bool,
    due: u64,
    /// Where there are no instants, the order of the ends alone tells the oldest.
    order: usize,
}

#[derive(Clone, Debug)]
struct Rest {
    slot: Option<u32>,
    until: u64,
    token: Token,
}

/// What the ledger should say next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    tickets: Vec<Ticket>,
    graves: Vec<Grave>,
    rests: Vec<Rest>,
    last_fence: u64,
    arrivals: usize,
    ends: usize,
}

/// The time of one step, and what it tells.
struct Moment<'a> {
    now: Now<'a>,
    speaker: Option<Token>,
    told: Vec<(u64, News)>,
}

impl Moment<'_> {
    fn ms(&self) -> u64 {
        match self.now {
            Now::Clock { mono_ms, .. } => mono_ms,
            Now::Liveness { .. } => 0,
        }
    }

    fn in_ms(&self, ms: u64) -> u64 {
        match self.now {
            Now::Clock { mono_ms, .. } => mono_ms + ms,
            Now::Liveness { .. } => NEVER,
        }
    }

    fn wall_us(&self) -> u64 {
        match self.now {
            Now::Clock { wall_us, .. } | Now::Liveness { wall_us, .. } => wall_us,
        }
    }

    fn tell(&mut self, token: Token, news: News) {
        if self.speaker != Some(token) {
            self.told.push((number(token), news));
        }
    }
}

impl Naive {
    /// One step: purge, promote, the verb, promote, and what holders inherit. Answers with the notices, sorted.
    pub(crate) fn ask(&mut self, now: Now<'_>, request: &Request) -> (Reply, Vec<(u64, News)>) {
        let mut moment = Moment { now, speaker: request.token(), told: Vec::new() };
        let inherited_before = self.effectives();
        self.purge(&moment);
        self.promote(&mut moment);
        let reply = self.act(&mut moment, request);
        // Who speaks and is granted because of it knows of it at once. (An older request changes nothing that could grant.)
        for granted in self.promote(&mut moment) {
            if moment.speaker == Some(granted) {
                let index = self.find(granted).unwrap();
                self.claim(&moment, index);
            }
        }
        let reply = reply.unwrap_or_else(|| Reply::Stands(self.standing(&moment, request.token().unwrap())));
        for (token, effective) in self.effectives() {
            match inherited_before.get(&token).map(|before| effective.cmp(before)) {
                Some(std::cmp::Ordering::Greater) => moment.tell(token, News::Boosted),
                Some(std::cmp::Ordering::Less) => moment.tell(token, News::Lowered),
                _ => {}
            }
        }
        moment.told.sort_unstable();
        (reply, moment.told)
    }

    fn act(&mut self, moment: &mut Moment<'_>, request: &Request) -> Option<Reply> {
        match request {
            Request::Look => Some(Reply::Looked),
            Request::Leave(leave) => Some(Reply::Left(self.leave(moment, leave.token, leave.settled))),
            Request::Evict(evict) => Some(Reply::Evicted(self.evict(moment, evict.fence, evict.force))),
            Request::Beat(beat) => {
                if let Some(ticket) = self.refresh(moment, beat.token, beat.seq, beat.priority) {
                    ticket.blocked.clone_from(&beat.blocked);
                }
                None
            }
            Request::Enter(enter) => match self.graves.iter().find(|grave| grave.token == enter.token) {
                Some(grave) if grave.reason == Reason::Busy => Some(Reply::Stands(Answer::Busy)),
                Some(_) => None,
                None if self.find(enter.token).is_some() => {
                    self.refresh(moment, enter.token, enter.seq, enter.priority);
                    None
                }
                None => self.admit(moment, enter).map(Reply::Stands),
            },
        }
    }

    // Reading.

    fn find(&self, token: Token) -> Option<usize> {
        self.tickets.iter().position(|ticket| ticket.token == token)
    }

    fn queue(&self) -> Vec<&Ticket> {
        let mut queue: Vec<_> = self.tickets.iter().filter(|ticket| ticket.hold.is_none()).collect();
        queue.sort_by_key(|ticket| (Reverse(ticket.priority), ticket.arrival));
        queue
    }

    fn holders(&self) -> impl Iterator<Item = (&Ticket, &Hold)> {
        self.tickets.iter().filter_map(|ticket| Some((ticket, ticket.hold.as_ref()?)))
    }

    /// What each holder runs with: its own priority, or a waiter's if that is higher.
    fn effectives(&self) -> BTreeMap<Token, i32> {
        let waiting = self.queue().into_iter().map(|waiter| waiter.priority).max();
        self.holders().map(|(ticket, _)| (ticket.token, ticket.priority.max(waiting.unwrap_or(ticket.priority)))).collect()
    }

    /// The slot (0 where there are none) that this mode would get now.
    fn place(&self, mode: Mode) -> Option<u32> {
        match mode {
            Mode::Exclusive => (self.rests.is_empty() && self.holders().count() == 0).then_some(0),
            Mode::Shared => (self.rests.is_empty() && self.holders().all(|(ticket, _)| ticket.mode == Mode::Shared)).then_some(0),
            Mode::Slot(n) => (0..n).find(|slot| {
                let rests = self.rests.iter().any(|rest| rest.slot.is_none() || rest.slot == Some(*slot));
                !rests && self.holders().all(|(_, hold)| hold.slot != *slot)
            }),
        }
    }

    /// Until when each place rests: of several rests, the latest end.
    fn rested(&self) -> BTreeMap<Option<u32>, u64> {
        let mut rested = BTreeMap::new();
        for rest in self.rests.iter().filter(|rest| rest.until != NEVER) {
            let latest = rested.entry(rest.slot).or_insert(rest.until);
            *latest = rest.until.max(*latest);
        }
        rested
    }

    fn standing(&self, moment: &Moment<'_>, token: Token) -> Answer {
        let Some(index) = self.find(token) else {
            let grave = self.graves.iter().find(|grave| grave.token == token);
            return Answer::Gone(grave.map_or(Reason::Unknown, |grave| grave.reason));
        };
        let ticket = &self.tickets[index];
        match &ticket.hold {
            Some(hold) if hold.claimed => Answer::Held(Holding {
                fence: hold.fence,
                slot: ticket.mode.slots().map(|_| hold.slot),
                expires_in: match moment.now {
                    Now::Clock { mono_ms, .. } => ticket.due - mono_ms,
                    Now::Liveness { .. } => ticket.terms.ttl,
                },
                effective: self.effectives()[&token],
                revoked: hold.revoked,
            }),
            Some(_) => Answer::Queued { next_look: 1 },
            None => {
                let mut looks = vec![ticket.terms.queue_life / 3];
                if self.queue().iter().take(4).any(|near| near.token == token) {
                    looks.push(1_000);
                }
                if let Now::Clock { mono_ms, .. } = moment.now {
                    looks.extend(self.holders().map(|(holder, _)| holder.due - mono_ms));
                    looks.extend(self.rested().values().map(|until| until - mono_ms));
                }
                Answer::Queued { next_look: looks.into_iter().min().unwrap().max(1) }
            }
        }
    }

    // Writing.

    fn purge(&mut self, moment: &Moment<'_>) {
        let mut over: Vec<Ticket> = match moment.now {
            Now::Clock { mono_ms, .. } => {
                self.rests.retain(|rest| rest.until > mono_ms);
                self.graves.retain(|grave| grave.due > mono_ms);
                self.tickets.iter().filter(|ticket| ticket.due <= mono_ms).cloned().collect()
            }
            Now::Liveness { dead, .. } => {
                self.rests.retain(|rest| !dead.contains(&rest.token));
                let live = |token: &Token| self.find(*token).map(|index| self.tickets[index].clone());
                dead.iter().filter_map(live).collect()
            }
        };
        if matches!(moment.now, Now::Clock { .. }) {
            over.sort_by_key(|ticket| (ticket.due, ticket.token));
        }
        for ticket in over {
            let Some(index) = self.find(ticket.token) else { continue };
            self.tickets.remove(index);
            let claimed = ticket.hold.as_ref().is_some_and(|hold| hold.claimed);
            let cap = ticket.hold.as_ref().and_then(|hold| Some(hold.since + ticket.terms.max_hold?));
            let capped = claimed && cap == Some(ticket.due);
            self.bury(moment, ticket.token, if capped { Reason::MaxHold } else { Reason::Expired }, Was::Gone, false);
            if let (true, Some(span)) = (claimed, ticket.terms.lock_delay) {
                self.rest(moment, &ticket, ticket.due.saturating_add(span));
            }
        }
    }

    fn bury(&mut self, moment: &Moment<'_>, token: Token, reason: Reason, was: Was, settled: bool) {
        if self.graves.len() == 64 {
            let first = self
                .graves
                .iter()
                .min_by_key(|grave| (!grave.settled, grave.due, (grave.due == NEVER).then_some(grave.order), grave.token));
            let first = first.unwrap().token;
            self.graves.retain(|grave| grave.token != first);
        }
        self.ends += 1;
        self.graves.push(Grave { token, reason, was, settled, due: moment.in_ms(60_000), order: self.ends });
    }

    fn rest(&mut self, moment: &Moment<'_>, ticket: &Ticket, until: u64) {
        let slot = ticket.mode.slots().map(|_| ticket.hold.as_ref().unwrap().slot);
        if until > moment.ms() {
            self.rests.push(Rest { slot, until, token: ticket.token });
        }
    }

    fn promote(&mut self, moment: &mut Moment<'_>) -> Vec<Token> {
        let mut granted = Vec::new();
        while let Some(head) = self.queue().first().map(|head| head.token) {
            let index = self.find(head).unwrap();
            let Some(slot) = self.place(self.tickets[index].mode) else { break };
            // Who could be placed beside a holder and has no slot of its own is a reader: of the same generation.
            let generation = match self.tickets[index].mode {
                Mode::Shared => self.holders().next().map(|(_, hold)| hold.fence),
                Mode::Exclusive | Mode::Slot(_) => None,
            };
            let fence = generation.unwrap_or_else(|| (self.last_fence + 1).max(moment.wall_us()));
            self.last_fence = fence;
            self.tickets[index].hold = Some(Hold { fence, slot, since: moment.ms(), claimed: false, revoked: false });
            moment.tell(head, News::Granted);
            granted.push(head);
        }
        granted
    }

    fn claim(&mut self, moment: &Moment<'_>, index: usize) {
        let ticket = &mut self.tickets[index];
        let hold = ticket.hold.as_mut().unwrap();
        hold.claimed = true;
        if !hold.revoked {
            ticket.due = moment.in_ms(ticket.terms.ttl);
            if let (Some(max), Now::Clock { .. }) = (ticket.terms.max_hold, moment.now) {
                ticket.due = ticket.due.min(hold.since + max);
            }
        }
    }

    // The verbs.

    /// A newer request renews, claims or keeps alive: this ticket.
    fn refresh(&mut self, moment: &Moment<'_>, token: Token, seq: u64, priority: i32) -> Option<&mut Ticket> {
        let index = self.find(token)?;
        let ticket = &mut self.tickets[index];
        if seq <= ticket.seq {
            return None;
        }
        // A hold that would have ended before it is claimed has ended.
        if let (Some(hold), Some(max), Now::Clock { mono_ms, .. }) = (&ticket.hold, ticket.terms.max_hold, moment.now)
            && hold.since + max <= mono_ms
        {
            self.tickets.remove(index);
            self.bury(moment, token, Reason::MaxHold, Was::Gone, false);
            return None;
        }
        ticket.seq = seq;
        ticket.priority = priority;
        if ticket.hold.is_some() {
            self.claim(moment, index);
        } else {
            ticket.due = moment.in_ms(ticket.terms.queue_life);
        }
        Some(&mut self.tickets[index])
    }

    fn admit(&mut self, moment: &Moment<'_>, enter: &Enter) -> Option<Answer> {
        if let Some(other) = self.tickets.iter().find(|ticket| ticket.mode.slots() != enter.mode.slots()) {
            return Some(Answer::Mismatch { slots: other.mode.slots().unwrap_or(0) });
        }
        if !enter.may_queue && (!self.queue().is_empty() || self.place(enter.mode).is_none()) {
            self.bury(moment, enter.token, Reason::Busy, Was::Gone, false);
            return Some(Answer::Busy);
        }
        self.arrivals += 1;
        self.tickets.push(Ticket {
            token: enter.token,
            seq: enter.seq,
            priority: enter.priority,
            arrival: self.arrivals,
            mode: enter.mode,
            terms: enter.terms,
            blocked: None,
            due: moment.in_ms(enter.terms.queue_life),
            hold: None,
        });
        None
    }

    fn leave(&mut self, moment: &Moment<'_>, token: Token, settled: bool) -> Was {
        if let Some(grave) = self.graves.iter().find(|grave| grave.token == token) {
            return grave.was;
        }
        let Some(index) = self.find(token) else {
            self.bury(moment, token, Reason::Withdrawn, Was::Gone, settled);
            return Was::Gone;
        };
        let ticket = self.tickets.remove(index);
        let (reason, was) = match &ticket.hold {
            None => (Reason::Withdrawn, Was::Queued),
            Some(hold) if !hold.claimed => (Reason::Withdrawn, Was::Granted),
            Some(_) => (Reason::Released, Was::Held),
        };
        self.bury(moment, token, reason, was, settled);
        if let (Was::Held, Some(span), Some(hold)) = (was, ticket.terms.hold_at_least, &ticket.hold) {
            let until = if matches!(moment.now, Now::Clock { .. }) { hold.since + span } else { NEVER };
            self.rest(moment, &ticket, until);
        }
        was
    }

    fn evict(&mut self, moment: &mut Moment<'_>, fence: Option<u64>, force: bool) -> u64 {
        let mut met: Vec<_> =
            self.holders().filter(|(_, hold)| fence.is_none_or(|fence| fence == hold.fence)).map(|(t, _)| t.token).collect();
        met.sort_unstable();
        for token in &met {
            let index = self.find(*token).unwrap();
            let hold = self.tickets[index].hold.as_mut().unwrap();
            if force || !hold.claimed {
                self.tickets.remove(index);
                self.bury(moment, *token, Reason::Evicted, Was::Gone, false);
                moment.tell(*token, News::Revoked);
            } else if !hold.revoked {
                hold.revoked = true;
                moment.tell(*token, News::Revoked);
            }
        }
        let mut ended = 0;
        if force && fence == Some(0) {
            ended = if matches!(moment.now, Now::Clock { .. }) { self.rested().len() } else { self.rests.len() };
            self.rests.clear();
        }
        (met.len() + ended) as u64
    }
}
