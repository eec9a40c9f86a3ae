//! One line that says for whom we wait, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use heirlock::Locks;
use heirlock::lease::KeyView;
use heirlock::observe::span;
use rustix::process::{Pid, getpgrp};
use rustix::termios::tcgetpgrp;

use crate::exit::tell;
use crate::stderr::Chatter;

/// The first time that nothing is said: most waits are shorter.
const QUIET: Duration = Duration::from_millis(300);

/// How often the store's health is looked at: at first, and later.
const LOOKS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// Shows the wait, until it is dropped.
pub(crate) async fn show(locks: &Locks, name: &str) -> ! {
    if !stderr().is_terminal() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(QUIET).await;
    let mut line = Line { is_shown: false };
    loop {
        // A store that does not answer now will be asked again; the wait itself goes on elsewhere.
        if is_ours()
            && let Ok(view) = locks.inspect(name).await
        {
            line.show(&describe(&view, locks.session()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Says once when the store fails, and once more if it does so again after it had recovered; it is asked again and again meanwhile.
pub(crate) async fn complain(locks: Locks) {
    let (mut is_told, mut pause) = (false, LOOKS.0);
    loop {
        tokio::time::sleep(pause).await;
        // One that waits for hours costs next to nothing.
        pause = (pause * 2).min(LOOKS.1);
        match locks.trouble() {
            Some(trouble) if !is_told => {
                tell(&format!("{trouble}; trying again"));
                is_told = true;
            }
            Some(_) => {}
            None => is_told = false,
        }
    }
}

/// Whether a line on the terminal would disturb nobody: a job in the background would write over the shell's prompt.
fn is_ours() -> bool {
    is_foreground(tcgetpgrp(stderr()).ok(), getpgrp())
}

/// A terminal that is not ours to control tells of no foreground.
fn is_foreground(foreground: Option<Pid>, us: Pid) -> bool {
    foreground == Some(us)
}

struct Line {
    is_shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        // The answer may have come after we were sent to the background.
        if !is_ours() {
            return;
        }
        self.is_shown = true;
        // A line that wraps could not be written over.
        let width = rustix::termios::tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
        let cut: String = text.chars().take(if width == 0 { usize::MAX } else { width - 1 }).collect();
        // Back to the start, the text, and away with what is left of a longer one.
        let _ = Chatter.write_all(format!("\r{cut}\x1b[K").as_bytes());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_shown && is_ours() {
            let _ = Chatter.write_all(b"\n");
        }
    }
}

/// "waiting for NAME, 3rd of 5, held by cron@db1 pid 4711 for 12 s".
fn describe(view: &KeyView, me: heirlock::lease::SessionId) -> String {
    let mut text = format!("waiting for {}", view.key);
    if let Some(at) = view.queue.iter().position(|waiter| waiter.session == me) {
        text += &format!(", {} of {}", ordinal(at + 1), view.queue.len());
    }
    match view.holders.as_slice() {
        [] => {
            if let Some(rest) = view.resting_ms {
                text += &format!(", free in {}", span(rest));
            }
        }
        [first, others @ ..] => {
            let owner = &first.owner;
            text += &format!(", held by {}@{} pid {} for {}", owner.name, owner.host, owner.pid, span(first.since_ms));
            if !others.is_empty() {
                text += &format!(" and {} more", others.len());
            }
            if let Some(why) = &owner.why {
                text += &format!(" ({why})");
            }
        }
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (1, h) if h != 11 => "st",
        (2, h) if h != 12 => "nd",
        (3, h) if h != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([1, 2, 3, 4, 11, 12, 13, 21, 102, 111].map(ordinal).join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th");
    }
}
