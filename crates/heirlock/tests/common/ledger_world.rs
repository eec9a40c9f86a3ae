//! A key, the clients who want it, and the network between them, as a model whose every state is visited.
//!
//! The network is the set of all that was ever sent: each request may come at any time, in any order, any number of times, or never. So
//! requests that are lost, duplicated, delayed and reordered are all here, and nothing in a state tells which it was. Likewise a client who
//! has died is one who sends nothing more: that it may happen at any point is here without an action of its own.
//!
//! Time is a few whole milliseconds, and passes at any point. Replies are believed from the moment of the *send*, as if they came at once:
//! a later or lost one only makes a client believe less.

use heirlock::lease::ledger::{Now, TOMBSTONE_MS};
use heirlock::lease::{Answer, Beat, Book, Enter, Evict, Leave, Mode, Reason, Rows, Token};
use stateright::{Model, Property};

use super::ledger_invariants::{compatible, fences_grow, head_waits_for_a_reason, nobody_overdue, older_changes_nothing};
use super::ledger_requests::{Reply, Request, ask, token};

/// What may happen to one key, within bounds that make it finite.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    pub(crate) name: &'static str,
    /// What each client asks for first. Its later requests have the priorities that follow.
    pub(crate) clients: Vec<(Enter, Vec<i32>)>,
    /// Whether a retry may be an `enter` too, and not only a beat.
    pub(crate) enters_again: bool,
    /// The last instant.
    pub(crate) last_ms: u64,
    /// What the wall clock shows at each instant, over and over; it may jump.
    pub(crate) wall_us: Vec<u64>,
    /// Whether an operator may evict once, naming the fence that was the last then; and whether by force.
    pub(crate) evicts: Option<bool>,
    /// Whether time may leap once, to where the tombstones are over.
    pub(crate) leaps: bool,
    /// What is wrong with the ledger, if the model is to show that it would find out.
    pub(crate) flaw: Option<Flaw>,
}

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Tombstones are forgotten at once.
    NoTombstones,
    /// An older request is taken for a newer one.
    OlderCounts,
    /// Not of the ledger but of the operator: nobody waits for the owner whom a forced eviction threw out.
    ForceIsSafe,
}

/// A rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    Compatible,
    Believed,
    Fences,
    Head,
    Overdue,
    Idempotent,
    Older,
    Resurrected,
    Eviction,
}

impl Rule {
    pub(crate) const ALL: [Rule; 9] = [
        Rule::Compatible,
        Rule::Believed,
        Rule::Fences,
        Rule::Head,
        Rule::Overdue,
        Rule::Idempotent,
        Rule::Older,
        Rule::Resurrected,
        Rule::Eviction,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Compatible => "never two incompatible holders",
            Rule::Believed => "never two who believe that they hold what only one can",
            Rule::Fences => "fences strictly increase in the order of grants",
            Rule::Head => "the head of the queue waits for a reason",
            Rule::Overdue => "no ticket is live at or after its end",
            Rule::Idempotent => "a request that comes twice in a row does no more than once",
            Rule::Older => "an older request changes nothing",
            Rule::Resurrected => "who has ended is not live again before the tombstone is over",
            Rule::Eviction => "an eviction spares holders with another fence",
        }
    }
}

/// The name of the rule that is checked in the states themselves.
pub(crate) const SURVIVOR: &str = "who alone lives on gets the key as soon as the dead are over";

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) book: Book,
    now_ms: u64,
    leapt: bool,
    clients: Vec<Client>,
    /// The fence that the operator read off and sent an eviction for.
    eviction: Option<u64>,
    /// The highest fence that anybody ever had.
    high: u64,
    broken: Option<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// What it sent: the sequence numbers are 1, 2, and so on.
    sent: Vec<Sent>,
    /// Whether it has sent a `leave`: then it does not believe anything any more.
    left: bool,
    /// Until when it believes that it holds, and in which slot.
    believes: Option<(u64, Option<u32>)>,
    /// When its ticket was first seen to have ended.
    ended_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    enter: bool,
    at_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A client sends its next request: an `enter`, or a beat.
    Send(usize, bool),
    SendLeave(usize),
    SendEviction,
    /// What a client sent comes: the request with this index.
    Comes(usize, usize),
    LeaveComes(usize),
    EvictionComes,
    /// Somebody inspects the key.
    Look,
    Tick,
    Leap,
}

impl Play {
    fn request(&self, client: usize, index: usize, enter: bool) -> Request {
        let (first, later) = &self.clients[client];
        let seq = index as u64 + 1;
        let priority = if index == 0 { first.priority } else { later[index - 1] };
        if enter {
            Request::Enter(Enter { seq, priority, ..first.clone() })
        } else {
            Request::Beat(Beat { token: first.token, seq, priority, blocked: None })
        }
    }

    fn now(&self, mono_ms: u64) -> Now<'static> {
        let index = usize::try_from(mono_ms).unwrap_or(0) % self.wall_us.len();
        Now::Clock { mono_ms, wall_us: self.wall_us[index] }
    }

    /// The ledger's step, with what is wrong with it.
    fn ask(&self, book: &mut Book, now: Now<'_>, request: &Request) -> Reply {
        let mut request = request.clone();
        if self.flaw == Some(Flaw::OlderCounts)
            && let (Some(token), Some(seq)) = (request.token(), request.seq())
            && let Some(applied) = book.tickets().find(|ticket| ticket.token == token).map(|ticket| ticket.seq)
            && seq < applied
        {
            match &mut request {
                Request::Enter(enter) => enter.seq = applied + 1,
                Request::Beat(beat) => beat.seq = applied + 1,
                Request::Leave(_) | Request::Evict(_) | Request::Look => {}
            }
        }
        let (reply, _) = ask(book, now, &request);
        if self.flaw == Some(Flaw::NoTombstones) {
            for grave in book.tombstones().copied().collect::<Vec<_>>() {
                let Ok(()) = book.unbury(&grave);
            }
            Rows::header(book).graves = 0;
        }
        reply
    }

    /// A request comes.
    fn step(&self, world: &World, speaker: Option<usize>, request: &Request, sent_ms: u64) -> World {
        let now = self.now(world.now_ms);
        let mut after = world.clone();
        let reply = self.ask(&mut after.book, now, request);
        after.broken = self.judge(world, now, request, reply, &after.book).err();

        for (index, client) in after.clients.iter_mut().enumerate() {
            let ticket = token(index as u64);
            let refused = speaker == Some(index) && matches!(reply, Reply::Stands(Answer::Busy) | Reply::Left(_));
            if is_live(&after.book, ticket) {
                if client.ended_ms.is_some_and(|ended| world.now_ms < ended + TOMBSTONE_MS) {
                    after.broken = after.broken.or(Some(Rule::Resurrected));
                }
                client.ended_ms = None;
            } else if client.ended_ms.is_none() && (refused || is_live(&world.book, ticket)) {
                client.ended_ms = Some(world.now_ms);
            }
            let thrown_out = after.book.tombstones().any(|grave| grave.token == ticket && grave.reason == Reason::Evicted);
            if thrown_out && self.flaw != Some(Flaw::ForceIsSafe) {
                client.believes = None;
            }
        }
        if let (Some(index), Some(holding)) = (speaker, reply.holding())
            && !after.clients[index].left
        {
            let until = sent_ms + holding.expires_in;
            let believed = after.clients[index].believes.map_or(0, |(until, _)| until);
            after.clients[index].believes = Some((until.max(believed), holding.slot));
        }
        for ticket in after.book.tickets().filter(|ticket| ticket.holds() && !had(&world.book, ticket.token)) {
            let joined = ticket.mode == Mode::Shared && ticket.fence == world.high && world.book.header().readers;
            let grew = ticket.fence > world.high || joined;
            after.broken = after.broken.or((!grew).then_some(Rule::Fences));
            after.high = after.high.max(ticket.fence);
        }
        self.settle(after)
    }

    /// What a single step must keep.
    fn judge(&self, world: &World, now: Now<'_>, request: &Request, reply: Reply, after: &Book) -> Result<(), Rule> {
        let before = &world.book;
        compatible(after).map_err(|_| Rule::Compatible)?;
        fences_grow(before, after).map_err(|_| Rule::Fences)?;
        head_waits_for_a_reason(after).map_err(|_| Rule::Head)?;
        nobody_overdue(before, now, after).map_err(|_| Rule::Overdue)?;
        older_changes_nothing(before, now, request, after).map_err(|_| Rule::Older)?;
        if let Request::Evict(evict) = request {
            // No more than that is sure of it: told twice, it may meet a reader who has joined the same generation meanwhile.
            let mut looked = before.clone();
            self.ask(&mut looked, now, &Request::Look);
            let others = looked.tickets().filter(|ticket| ticket.holds() && Some(ticket.fence) != evict.fence);
            let spared = others.into_iter().all(|other| after.tickets().any(|ticket| ticket == other));
            return if spared { Ok(()) } else { Err(Rule::Eviction) };
        }
        let mut twice = after.clone();
        let again = self.ask(&mut twice, now, request);
        if twice == *after && again == reply { Ok(()) } else { Err(Rule::Idempotent) }
    }

    /// Forgets what is over, so that equal states are one, and looks at what clients believe.
    fn settle(&self, mut world: World) -> World {
        let now_ms = world.now_ms;
        for client in &mut world.clients {
            client.believes = client.believes.filter(|(until, _)| *until > now_ms);
        }
        let believers =
            world.clients.iter().enumerate().filter_map(|(index, client)| Some((self.clients[index].0.mode, client.believes?.1)));
        let believers: Vec<_> = believers.collect();
        for (index, (mode, slot)) in believers.iter().enumerate() {
            for (other, other_slot) in &believers[index + 1..] {
                let beside = match (mode, other) {
                    (Mode::Shared, Mode::Shared) => true,
                    (Mode::Slot(_), Mode::Slot(_)) => slot != other_slot,
                    _ => false,
                };
                world.broken = world.broken.or((!beside).then_some(Rule::Believed));
            }
        }
        world
    }

    /// Whether each waiter, if from now on everybody else is dead, stays alive by looking as often as it is told, and holds the key once the
    /// others' tickets, and what rests after them, are over.
    fn survivors_get_the_key(&self, world: &World) -> bool {
        let waiters = world.book.waiters().filter(|ticket| ticket.due_ms > world.now_ms);
        waiters.into_iter().all(|waiter| {
            let others = world.book.tickets().filter(|ticket| ticket.token != waiter.token);
            let over = others.map(|ticket| ticket.due_ms + ticket.terms.lock_delay.unwrap_or(0));
            let over = over.chain(world.book.header().rests.iter().map(|rest| rest.until_ms)).max().unwrap_or(0);
            let (mut book, mut now_ms, mut seq) = (world.book.clone(), world.now_ms, waiter.seq);
            loop {
                seq += 1;
                let beat = Beat { token: waiter.token, seq, priority: waiter.priority, blocked: None };
                match self.ask(&mut book, self.now(now_ms), &Request::Beat(beat)) {
                    Reply::Stands(Answer::Held(_)) => return true,
                    Reply::Stands(Answer::Queued { next_look }) if now_ms < over => now_ms += next_look,
                    _ => return false,
                }
            }
        })
    }
}

fn is_live(book: &Book, token: Token) -> bool {
    book.tickets().any(|ticket| ticket.token == token)
}

fn had(book: &Book, token: Token) -> bool {
    book.tickets().any(|ticket| ticket.token == token && ticket.holds())
}

impl Model for Play {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let clients = vec![Client::default(); self.clients.len()];
        vec![World { book: Book::default(), now_ms: 0, leapt: false, clients, eviction: None, high: 0, broken: None }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Act>) {
        if world.broken.is_some() {
            // What follows a broken rule means nothing. (The checker would not even look at a state beyond its boundary.)
            return;
        }
        for (index, client) in world.clients.iter().enumerate() {
            if !client.left && client.sent.len() <= self.clients[index].1.len() {
                if client.sent.is_empty() || self.enters_again {
                    actions.push(Act::Send(index, true));
                }
                if !client.sent.is_empty() {
                    actions.push(Act::Send(index, false));
                }
            }
            if !client.left && !client.sent.is_empty() {
                actions.push(Act::SendLeave(index));
            }
            actions.extend((0..client.sent.len()).map(|request| Act::Comes(index, request)));
            if client.left {
                actions.push(Act::LeaveComes(index));
            }
        }
        if self.evicts.is_some() {
            let possible = world.book.header().holders > 0;
            match world.eviction {
                None if possible => actions.push(Act::SendEviction),
                None => {}
                Some(_) => actions.push(Act::EvictionComes),
            }
        }
        actions.push(Act::Look);
        if world.now_ms % TOMBSTONE_MS < self.last_ms {
            actions.push(Act::Tick);
        }
        if self.leaps && !world.leapt {
            actions.push(Act::Leap);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let next = || world.clone();
        let after = match act {
            Act::Send(index, enter) => {
                let mut after = next();
                after.clients[index].sent.push(Sent { enter, at_ms: world.now_ms });
                after
            }
            Act::SendLeave(index) => {
                let mut after = next();
                after.clients[index].left = true;
                after.clients[index].believes = None;
                after
            }
            Act::SendEviction => World { eviction: Some(world.book.header().last_fence), ..next() },
            Act::Comes(index, request) => {
                let sent = world.clients[index].sent[request];
                self.step(world, Some(index), &self.request(index, request, sent.enter), sent.at_ms)
            }
            Act::LeaveComes(index) => {
                let leave = Leave { token: self.clients[index].0.token, settled: false };
                self.step(world, Some(index), &Request::Leave(leave), world.now_ms)
            }
            Act::EvictionComes => {
                let evict = Evict { fence: world.eviction, force: self.evicts == Some(true) };
                self.step(world, None, &Request::Evict(evict), world.now_ms)
            }
            Act::Look => self.step(world, None, &Request::Look, world.now_ms),
            Act::Tick => self.settle(World { now_ms: world.now_ms + 1, ..next() }),
            Act::Leap => self.settle(World { now_ms: TOMBSTONE_MS, leapt: true, ..next() }),
        };
        // What changes nothing leads nowhere new.
        (after != *world).then_some(after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn kept<const INDEX: usize>() -> Property<Play> {
            Property::always(Rule::ALL[INDEX].name(), |_, world: &World| world.broken != Some(Rule::ALL[INDEX]))
        }
        // A property's condition is a plain function: it cannot carry its rule along.
        vec![
            kept::<0>(),
            kept::<1>(),
            kept::<2>(),
            kept::<3>(),
            kept::<4>(),
            kept::<5>(),
            kept::<6>(),
            kept::<7>(),
            kept::<8>(),
            Property::always(SURVIVOR, |play: &Play, world: &World| play.survivors_get_the_key(world)),
            // Were these never met, the rules would be about nothing.
            Property::sometimes("a hand-over", |_, world: &World| world.high > 1 && world.book.header().holders > 0),
        ]
    }
}
