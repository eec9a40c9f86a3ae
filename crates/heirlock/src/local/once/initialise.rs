//! The future of a cell: a wait for whoever is making the value, or the making itself.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Maker, OnceCell};
use crate::Error;
use crate::local::raw::Site;
use crate::local::wait::Wait;

/// An initialisation that gives a value.
#[derive(Debug)]
pub enum Sure {}

/// An initialisation that gives a value or an error.
#[derive(Debug)]
pub struct Fallible<E>(PhantomData<fn() -> E>);

/// What comes of an initialisation.
pub trait Outcome<T, Output> {
    /// The error of the whole.
    type Error: From<Error>;

    /// The value, or the error.
    fn split(output: Output) -> Result<T, Self::Error>;
}

impl<T> Outcome<T, T> for Sure {
    type Error = Error;

    fn split(value: T) -> Result<T, Error> {
        Ok(value)
    }
}

impl<T, E: From<Error>> Outcome<T, Result<T, E>> for Fallible<E> {
    type Error = E;

    fn split(output: Result<T, E>) -> Result<T, E> {
        output
    }
}

pin_project! {
    /// The future of [`OnceCell::get_or_init`] and [`OnceCell::get_or_try_init`]. What is said of it after its first poll changes nothing.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Initialise<'c, T, F, Fut, O> {
        make: Option<F>,
        // In this order they are dropped: what is under way goes before the cell is given up.
        #[pin]
        making: Option<Fut>,
        held: Option<Maker<'c, T>>,
        turn: Turn<'c, T>,
        outcome: PhantomData<fn() -> O>,
    }
}

/// The wait for the cell.
struct Turn<'c, T> {
    cell: &'c OnceCell<T>,
    wait: Wait,
    over: bool,
}

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(&self.cell.raw);
    }
}

impl<'c, T, F, Fut, O> Initialise<'c, T, F, Fut, O> {
    #[inline]
    pub(super) fn new(cell: &'c OnceCell<T>, make: F, site: Site) -> Initialise<'c, T, F, Fut, O> {
        let turn = Turn { cell, wait: Wait::new(site), over: false };
        Initialise { make: Some(make), making: None, held: None, turn, outcome: PhantomData }
    }

    /// How urgent it is to have the value, in place of its worker's base priority: for whoever is making it, and for who is next should that fail.
    /// Larger is more urgent.
    pub fn priority(mut self, priority: i32) -> Self {
        self.turn.wait.options.priority = Some(priority);
        self
    }

    /// How long it may wait for others, from when it queues. With zero it waits for nobody.
    pub fn timeout(mut self, span: std::time::Duration) -> Self {
        self.turn.wait.options.timeout = Some(span);
        self
    }

    /// Until when it may wait for others. An earlier deadline of the worker counts.
    pub fn deadline(mut self, instant: std::time::Instant) -> Self {
        self.turn.wait.options.deadline = Some(instant);
        self
    }
}

impl<'c, T, F, Fut, O> Future for Initialise<'c, T, F, Fut, O>
where
    F: FnOnce() -> Fut,
    Fut: Future,
    O: Outcome<T, Fut::Output>,
{
    type Output = Result<&'c T, O::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Mostly the value has long been there.
        let Turn { cell, wait, over } = self.as_mut().project().turn;
        if wait.is_new()
            && !*over
            && let Some(value) = cell.get()
        {
            *over = true;
            return Poll::Ready(Ok(value));
        }
        self.poll_unset(cx)
    }
}

impl<'c, T, F, Fut, O> Initialise<'c, T, F, Fut, O>
where
    F: FnOnce() -> Fut,
    Fut: Future,
    O: Outcome<T, Fut::Output>,
{
    #[inline(never)]
    fn poll_unset(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<&'c T, O::Error>> {
        let mut this = self.project();
        assert!(!this.turn.over, "a cell's future was polled after it had completed");
        if this.making.is_none() {
            let held = match ready!(this.turn.poll(cx)) {
                Ok(Ok(value)) => return Poll::Ready(Ok(value)),
                Ok(Err(maker)) => maker,
                Err(error) => return Poll::Ready(Err(error.into())),
            };
            let Some(make) = this.make.take() else { unreachable!("a cell's future makes once") };
            this.making.set(Some(make()));
            *this.held = Some(held);
        }
        // Taken out while the work is polled: should it panic, the next may try at once, and need not wait for this future to be dropped.
        let Some(held) = this.held.take() else { panic!("a cell's future was polled after its work had panicked") };
        let Some(making) = this.making.as_mut().as_pin_mut() else { unreachable!("it was just made") };
        let Poll::Ready(output) = making.poll(cx) else {
            *this.held = Some(held);
            return Poll::Pending;
        };
        this.turn.over = true;
        this.making.set(None);
        Poll::Ready(O::split(output).map(|value| held.set(value)))
    }
}

impl<'c, T> Turn<'c, T> {
    /// The value, or else who makes it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<crate::Result<Result<&'c T, Maker<'c, T>>>> {
        let cell = self.cell;
        if let Some(value) = cell.get() {
            self.wait.cancel(&cell.raw);
            self.over = true;
            return Poll::Ready(Ok(Ok(value)));
        }
        let turn = self.wait.poll(&cell.raw, cx);
        // Between the two looks the value may have come. Then this wait has ended because of that, or found the cell over; or stands in its queue for a
        // moment yet.
        let turn = match (cell.get(), turn) {
            (Some(value), _) => Ok(Ok(value)),
            (None, turn) => ready!(turn).map(|held| cell.let_in(held)),
        };
        self.over = !matches!(turn, Ok(Err(_)));
        if self.over {
            self.wait.cancel(&cell.raw);
        }
        Poll::Ready(turn)
    }
}

impl<T, F, Fut, O> fmt::Debug for Initialise<'_, T, F, Fut, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match (&self.held, &self.making, self.turn.over) {
            (_, _, true) => "done",
            (Some(_), ..) => "making",
            (None, Some(_), _) => "failed",
            (None, None, _) => "waiting",
        };
        f.debug_struct("Initialise").field("cell", &self.turn.cell.name()).field("stage", &stage).finish_non_exhaustive()
    }
}
