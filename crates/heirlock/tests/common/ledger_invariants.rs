//! What always holds of a key: the seven invariants that `lease/ledger.rs` names, read off the rows before and after a step.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use heirlock::lease::ledger::{MAX_TOMBSTONES, Now};
use heirlock::lease::{Answer, Book, Mode, Reason, Rows, Ticket, Token, Told};

use super::ledger_requests::{Reply, Request, ask, session, sure};

type Check = Result<(), String>;

macro_rules! hold {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// Checks one step, and the state that it left.
pub(crate) fn check_step(before: &Book, now: Now<'_>, request: &Request, reply: &Reply, told: &[Told], after: &Book) -> Check {
    compatible(after)?;
    fences_grow(before, after)?;
    head_waits_for_a_reason(after)?;
    nobody_overdue(before, now, after)?;
    ended_stays_ended(before, now, request, reply, after)?;
    older_changes_nothing(before, now, request, after)?;
    counts(after)?;
    for notice in told {
        hold!(notice.session == session(notice.token), "a notice goes to another session");
        hold!(Some(notice.token) != request.token(), "who speaks gets a notice");
    }
    Ok(())
}

fn holders(book: &Book) -> Vec<&Ticket> {
    book.tickets().filter(|ticket| ticket.holds()).collect()
}

/// 1: holders stand beside each other only as readers, or in slots of distinct indexes below n.
pub(crate) fn compatible(book: &Book) -> Check {
    let holders = holders(book);
    for (index, one) in holders.iter().enumerate() {
        if let Mode::Slot(n) = one.mode {
            hold!(one.slot < n, "slot {} of {n}", one.slot);
        }
        for other in &holders[index + 1..] {
            hold!(beside(one, other), "{:?} and {:?} hold together, in slots {} and {}", one.mode, other.mode, one.slot, other.slot);
        }
    }
    let slots: BTreeSet<Option<u32>> = book.tickets().map(|ticket| ticket.mode.slots()).collect();
    hold!(slots.len() <= 1, "live tickets disagree on the slots: {slots:?}");
    Ok(())
}

fn beside(one: &Ticket, other: &Ticket) -> bool {
    match (one.mode, other.mode) {
        (Mode::Shared, Mode::Shared) => true,
        (Mode::Slot(n), Mode::Slot(m)) => n == m && one.slot != other.slot,
        _ => false,
    }
}

/// 2: fences strictly increase in the order of grants; only readers of one generation share one.
pub(crate) fn fences_grow(before: &Book, after: &Book) -> Check {
    let (low, high) = (before.header().last_fence, after.header().last_fence);
    hold!(low <= high, "the last fence fell from {low} to {high}");
    let held: BTreeSet<Token> = holders(before).iter().map(|ticket| ticket.token).collect();
    let now = holders(after);
    for ticket in &now {
        hold!(ticket.fence <= high, "fence {} is beyond the last, {high}", ticket.fence);
        let joined = ticket.mode == Mode::Shared && now.iter().any(|other| other.token != ticket.token && other.fence == ticket.fence);
        // A generation that was there before, some of whom may have left in this step.
        let joined = joined || (ticket.mode == Mode::Shared && holders(before).iter().any(|other| other.fence == ticket.fence));
        hold!(held.contains(&ticket.token) || ticket.fence > low || joined, "a grant has fence {} after {low}", ticket.fence);
    }
    for (index, one) in now.iter().enumerate() {
        for other in &now[index + 1..] {
            let readers = one.mode == Mode::Shared && other.mode == Mode::Shared;
            hold!((one.fence == other.fence) == readers, "holders have fences {} and {}", one.fence, other.fence);
        }
    }
    Ok(())
}

/// 3: the head of the queue could not be granted.
pub(crate) fn head_waits_for_a_reason(book: &Book) -> Check {
    let Some(head) = book.waiters().next() else { return Ok(()) };
    let rests = &book.header().rests;
    let holders = holders(book);
    let free = match head.mode {
        Mode::Exclusive => rests.is_empty() && holders.is_empty(),
        Mode::Shared => rests.is_empty() && holders.iter().all(|holder| holder.mode == Mode::Shared),
        Mode::Slot(n) => (0..n).any(|slot| {
            rests.iter().all(|rest| rest.slot.is_some_and(|resting| resting != slot)) && holders.iter().all(|holder| holder.slot != slot)
        }),
    };
    hold!(!free, "the head of the queue waits for nothing");
    Ok(())
}

/// 4: no ticket is live, no tombstone there and no place at rest, at or after its end.
pub(crate) fn nobody_overdue(before: &Book, now: Now<'_>, book: &Book) -> Check {
    match now {
        Now::Clock { mono_ms, .. } => {
            hold!(book.tickets().all(|ticket| ticket.due_ms > mono_ms), "a ticket is overdue");
            hold!(book.tombstones().all(|grave| grave.due_ms > mono_ms), "a tombstone is overdue");
            hold!(book.header().rests.iter().all(|rest| rest.until_ms > mono_ms), "a rest is over");
        }
        Now::Liveness { dead, .. } => {
            // One who had not come before may come now, whatever is said of it.
            let died = |token: &Token| dead.contains(token) && before.tickets().any(|ticket| ticket.token == *token);
            hold!(!book.tickets().any(|ticket| died(&ticket.token)), "a dead ticket is live");
        }
    }
    Ok(())
}

/// 5: who has ended stays ended, and leaves a tombstone to say so.
pub(crate) fn ended_stays_ended(before: &Book, now: Now<'_>, request: &Request, reply: &Reply, after: &Book) -> Check {
    let live: BTreeSet<Token> = after.tickets().map(|ticket| ticket.token).collect();
    let lasts = |due: u64| match now {
        Now::Clock { mono_ms, .. } => due > mono_ms,
        Now::Liveness { .. } => true,
    };
    let buried: BTreeSet<Token> = after.tombstones().map(|grave| grave.token).collect();
    for grave in before.tombstones().filter(|grave| lasts(grave.due_ms)) {
        // Pushed out; its token may even have ended anew in this step.
        if !after.tombstones().any(|kept| kept == grave) {
            hold!(after.header().graves == MAX_TOMBSTONES, "a tombstone went before its time");
            continue;
        }
        hold!(!live.contains(&grave.token), "an ended ticket is live");
        if request.token() == Some(grave.token)
            && let Reply::Stands(answer) = reply
        {
            let end = matches!(answer, Answer::Gone(reason) if *reason == grave.reason);
            hold!(end || (grave.reason == Reason::Busy && *answer == Answer::Busy), "an ended ticket is answered {answer:?}");
        }
    }
    hold!(buried.is_disjoint(&live), "a live ticket has a tombstone");
    let ended = before.tickets().filter(|ticket| !live.contains(&ticket.token));
    let forgotten = ended.filter(|ticket| !buried.contains(&ticket.token)).count();
    hold!(forgotten == 0 || after.header().graves == MAX_TOMBSTONES, "{forgotten} tickets ended without a tombstone");
    Ok(())
}

/// 6: a request whose number is not newer than the last applied changes no more than a look does.
pub(crate) fn older_changes_nothing(before: &Book, now: Now<'_>, request: &Request, after: &Book) -> Check {
    let (Some(token), Some(seq)) = (request.token(), request.seq()) else { return Ok(()) };
    // A look first: the ticket may have ended by now.
    let mut looked = before.clone();
    let _ = ask(&mut looked, now, &Request::Look);
    if looked.tickets().any(|ticket| ticket.token == token && ticket.seq >= seq) {
        hold!(looked == *after, "an older request changed something");
    }
    Ok(())
}

/// 7: the counts of the header are those of the rows; so are its bound, and all that the rows are asked for.
pub(crate) fn counts(book: &Book) -> Check {
    let header = book.header();
    let (tickets, graves): (Vec<_>, Vec<_>) = (book.tickets().collect(), book.tombstones().collect());
    let count = |holds: bool| tickets.iter().filter(|ticket| ticket.holds() == holds).count() as u64;
    hold!(header.holders == count(true), "{} holders, not {}", count(true), header.holders);
    hold!(header.queued == count(false), "{} queued, not {}", count(false), header.queued);
    hold!(header.graves == graves.len() as u64, "{} tombstones, not {}", graves.len(), header.graves);
    hold!(header.graves <= MAX_TOMBSTONES, "{} tombstones", header.graves);
    hold!(tickets.iter().all(|ticket| ticket.arrival <= header.arrivals), "a ticket came after the last arrival");
    for ticket in &tickets {
        hold!(ticket.mode.slots().unwrap_or(0) == header.slots, "{:?} where there are {} slots", ticket.mode, header.slots);
        hold!(!ticket.holds() || header.readers == (ticket.mode == Mode::Shared), "{:?} among readers: {}", ticket.mode, header.readers);
    }

    let mut rows = book.clone();
    let dues = tickets.iter().map(|ticket| ticket.due_ms).chain(graves.iter().map(|grave| grave.due_ms));
    let earliest = dues.min().unwrap_or(u64::MAX);
    hold!(header.next_due_ms <= earliest, "due at {earliest}, not before {}", header.next_due_ms);
    hold!(sure(rows.next_due()) == earliest, "the rows miss that something is due at {earliest}");
    let mut queue: Vec<&Ticket> = tickets.iter().copied().filter(|ticket| !ticket.holds()).collect();
    queue.sort_by_key(|ticket| (Reverse(ticket.priority), ticket.arrival));
    hold!(book.waiters().eq(queue.iter().copied()), "the queue is out of order");
    hold!(sure(rows.queue(2)).iter().eq(queue.iter().copied().take(2)), "the queue begins with somebody else");
    hold!(sure(rows.holders()).iter().eq(holders(book)), "the rows miss a holder");
    let due = holders(book).iter().map(|ticket| ticket.due_ms).min();
    hold!(sure(rows.holders_due()) == due, "the rows miss that a holder is due at {due:?}");
    let oldest = graves.iter().map(|grave| (!grave.settled, grave.due_ms)).min();
    let first = sure(rows.oldest_grave()).map(|grave| (!grave.settled, grave.due_ms));
    hold!(first == oldest, "{first:?} goes first, not {oldest:?}");
    Ok(())
}
