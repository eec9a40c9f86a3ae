//! What a worker's further calls for a key share with the first: its lease, or how its waiting comes out.

use std::sync::Arc;

use super::{Ask, Entry, Phase, in_use};
use crate::clock::Moment;
use crate::lease::hold::Hold;
use crate::lease::ticket::{Mode, Token};
use crate::lease::verb::Holding;
use crate::{Error, Kind, Result};

/// What a further call of the same worker for the same key comes to.
pub(crate) enum Again {
    /// The lease is held: it has it, too.
    Shares(Arc<Hold>, Holding),
    /// The first is waiting: it waits how that comes out.
    Behind(Token),
    /// The first is over, or lost: it asks for itself.
    Anew,
}

impl Entry {
    /// What a further call of the worker whose ticket this is comes to.
    pub(crate) fn again(&self, ask: &Ask, now: Moment) -> Result<Again> {
        if self.hold.strong_count() == 0 {
            return Ok(Again::Anew);
        }
        if self.phase == Phase::Asking {
            self.ask.covers(ask)?;
            if !ask.may_queue {
                return Err(ask.busy(&format!("asked for by {} already", self.ask.owner.name)));
            }
            return Ok(Again::Behind(self.token));
        }
        // The clock is asked, too: nobody shares what has run out and is only not yet told.
        let Some(holding) = self.vital.holding(now).filter(|_| self.phase == Phase::Held) else { return Ok(Again::Anew) };
        self.ask.covers(ask)?;
        // The last thing: were it not given away, and the last there is, its drop here would come back to the table.
        Ok(self.hold.upgrade().map_or(Again::Anew, |hold| Again::Shares(hold, holding)))
    }

    /// It has no ticket of its own: nothing is sent for it.
    pub(crate) fn wait_behind(&mut self) {
        self.phase = Phase::Behind;
        self.next = Moment::END;
    }

    /// Somebody waits for how it comes out. Of those known already only those stay that still wait.
    pub(crate) fn is_awaited_by(&mut self, behind: Vec<Token>, now: Moment) {
        self.behind = behind;
        // Its first request is its caller's, whose future may never be polled again, and then nobody hears the answer: the keeper asks, too.
        if self.answered == 0 && self.in_flight == 0 {
            self.next = now;
        }
    }

    /// Who waits for how it comes out.
    pub(crate) fn awaited_by(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.behind)
    }

    /// Whether it still wants to hold.
    pub(crate) fn is_asking(&self) -> bool {
        self.phase == Phase::Asking
    }
}

impl Ask {
    /// Whether who holds, or waits, as this says can give its worker what it asks for again.
    fn covers(&self, again: &Ask) -> Result<()> {
        let key = &self.key;
        match (self.mode, again.mode) {
            (Mode::Exclusive, Mode::Exclusive | Mode::Shared) | (Mode::Shared, Mode::Shared) => Ok(()),
            (Mode::Slot(slots), Mode::Slot(same)) if slots == same => Ok(()),
            (Mode::Shared, Mode::Exclusive) => {
                let who = &self.owner.name;
                let cure = "release the shared lease first, or ask for an exclusive one from the start";
                Err(Error::new(
                    Kind::Deadlock,
                    format!("{who} asks for {key} alone and shares it already, so it would wait for itself: {cure}"),
                ))
            }
            (mode, _) => Err(in_use(key, mode.slots().unwrap_or(0))),
        }
    }
}
