//! The signals that are forwarded to the command, or that end the wait for the lock.

use std::task::{Context, Poll};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// TERM, INT, HUP and QUIT, as far as whoever started us does not have them ignored (`nohup`, a shell's background job).
pub(crate) struct Signals(Vec<(SignalKind, Signal)>);

impl Signals {
    pub(crate) fn listen() -> Result<Signals, Exit> {
        let ignored = ignored();
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let heard = kinds.into_iter().filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        let streams = heard.map(|kind| signal(kind).map(|stream| (kind, stream))).collect::<Result<_, _>>();
        streams.map(Signals).map_err(|error| Exit::own(format!("cannot listen for signals: {error}")))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<i32> {
        for (kind, stream) in &mut self.0 {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(kind.as_raw_value());
            }
        }
        Poll::Pending
    }
}

/// The mask of the signals that this process was started with ignored; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
