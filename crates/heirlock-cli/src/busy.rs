//! What a refused run says: who holds the lock, or until when it rests, and where to see more.

use heirlock::lease::KeyView;
use heirlock::observe::{Lock, span};

use crate::list::freedom;

/// One line; none if the look shows nothing that is in the way any more.
pub(crate) fn line(view: &KeyView, at_ms: u64, has_waited: bool) -> Option<String> {
    let name = view.key.as_str();
    let still = if has_waited { "still " } else { "" };
    let why = match view.holders.as_slice() {
        [] if view.resting_ms.is_some() => freedom(&Lock::from(view.clone()), at_ms),
        [] if view.queue.is_empty() => return None,
        [] => format!("others wait for {name}: {}", view.queue.len()),
        [first, others @ ..] => {
            let owner = &first.owner;
            let command = owner.command.as_ref().map_or(String::new(), |command| format!(" ({command})"));
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            format!("{name} is {still}held by {}@{} pid {}{command}, for {}{more}", owner.name, owner.host, owner.pid, span(first.since_ms))
        }
    };
    Some(format!("{why}: see heirlock show {name}"))
}
