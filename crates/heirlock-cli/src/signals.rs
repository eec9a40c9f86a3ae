//! The signals that are forwarded to the command, or that end a wait.

use std::task::{Context, Poll, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// The stop from the keyboard; not in tokio's list.
const TSTP: i32 = rustix::process::Signal::TSTP.as_raw();
/// The terminal's size has changed.
const WINCH: i32 = rustix::process::Signal::WINCH.as_raw();

/// TERM, INT, HUP, QUIT, USR1, USR2, WINCH and TSTP, as far as whoever started us does not have them ignored (`nohup`, a shell's background job).
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Those that end us while there is no command.
    pub(crate) fn listen() -> Result<Signals, Exit> {
        let mut signals = Signals(Vec::new());
        let ends = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        for kind in ends.into_iter().chain([SignalKind::user_defined1(), SignalKind::user_defined2(), SignalKind::window_change()]) {
            signals.add(kind)?;
        }
        Ok(signals)
    }

    /// From now on also the stop from the keyboard: the command is to stop first.
    pub(crate) fn and_stops(&mut self) -> Result<(), Exit> {
        self.add(SignalKind::from_raw(TSTP))
    }

    fn add(&mut self, kind: SignalKind) -> Result<(), Exit> {
        let number = kind.as_raw_value();
        if !is_ignored(number) {
            self.0.push((number, signal(kind).map_err(|error| Exit::own(format!("cannot listen for signals: {error}")))?));
        }
        Ok(())
    }

    /// Those that have come count no more.
    pub(crate) fn forget(&mut self) {
        while self.poll(&mut Context::from_waker(Waker::noop())).is_ready() {}
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// The next one that ends us.
    pub(crate) async fn end(&mut self) -> i32 {
        loop {
            match self.next().await {
                TSTP | WINCH => {}
                signal => return signal,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        for (number, stream) in &mut self.0 {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    }
}

/// Whether this process ignores the signal, as it may have been started; no where the system does not say.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0) >> (signal - 1) & 1 == 1
}
