//! One ticket in the hands of who asked for it: how it is got, shared, and given back.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::entry::{Ask, Request};
use super::handle::Handle;
use super::session::Begun;
use super::ticket::{Token, Was};
use super::verb::Holding;
use super::vital::{Refusal, Vital};
use crate::Result;
use crate::clock::Moment;

/// A ticket: in the hands of the call that waits for it, then of its lease and of every lease that its worker shares it with. It is withdrawn with
/// the last of them, so how many there are is the count of the `Arc`s, and which one is the last is decided once.
pub(crate) struct Hold {
    pub(crate) handle: Arc<Handle>,
    pub(crate) token: Token,
    pub(crate) ask: Arc<Ask>,
    pub(crate) vital: Arc<Vital>,
    is_released: bool,
}

impl Hold {
    fn new(handle: &Arc<Handle>, ask: &Arc<Ask>) -> Result<Arc<Hold>> {
        let (handle, ask) = (Arc::clone(handle), Arc::clone(ask));
        Ok(Arc::new(Hold { handle, token: Token::random()?, ask, vital: Arc::new(Vital::new()), is_released: false }))
    }

    /// Asks until it holds, at the latest until then.
    pub(crate) async fn take(handle: &Arc<Handle>, ask: Ask, until: Option<Moment>) -> Result<(Arc<Hold>, Holding)> {
        let ask = Arc::new(ask);
        loop {
            let hold = Hold::new(handle, &ask)?;
            if let Some(witness) = &ask.witness {
                witness.hear(hold.token);
            }
            let verdict = match handle.session.begin(&hold, until)? {
                Begun::Ticket => hold.enter().await,
                Begun::Behind => hold.decided().await,
                Begun::Shares(hold, holding) => return Ok((hold, holding)),
            };
            match verdict {
                Ok(holding) => return Ok((hold, holding)),
                Err(Refusal::Error(error)) => return Err(error),
                // The store was emptied, or the other call has come to its end: once more, under the same deadline.
                Err(Refusal::Forgotten | Refusal::Again) => {}
            }
        }
    }

    /// Sends the first `enter` from here, which saves two changes of thread when the key is free; all that follows is the keeper's.
    async fn enter(&self) -> Result<Holding, Refusal> {
        let session = &self.handle.session;
        let mut first = match session.request(self.token) {
            Some((Request::Enter(enter), sent)) => Some((session.store.enter(&self.ask.key, enter), sent)),
            _ => None,
        };
        let mut listener = self.vital.listen();
        poll_fn(|cx| {
            if let Some((enter, sent)) = &mut first
                && let Poll::Ready(answer) = enter.as_mut().poll(cx)
            {
                session.answered(self.token, *sent, answer);
                first = None;
            }
            listener.verdict(cx)
        })
        .await
    }

    async fn decided(&self) -> Result<Holding, Refusal> {
        let mut listener = self.vital.listen();
        poll_fn(|cx| listener.verdict(cx)).await
    }

    /// Tells the store that it leaves, and waits for what it was.
    pub(crate) async fn release(mut self) -> Result<Was> {
        let session = &self.handle.session;
        session.withdraw(self.token, self.ask.request_limit());
        let mut first = match session.request(self.token) {
            Some((Request::Leave(leave), sent)) => Some((session.store.leave(&self.ask.key, leave), sent)),
            _ => None,
        };
        let mut listener = self.vital.listen();
        let left = poll_fn(|cx| {
            if let Some((leave, sent)) = &mut first
                && let Poll::Ready(answer) = leave.as_mut().poll(cx)
            {
                session.left(self.token, *sent, answer);
                first = None;
            }
            listener.left(cx)
        })
        .await;
        drop(first);
        drop(listener);
        self.is_released = true;
        left
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_released {
            self.handle.session.withdraw(self.token, Duration::ZERO);
        }
    }
}
