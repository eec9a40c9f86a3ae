//! What all handles to a session share; the session ends with the last of them.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};

use super::session::Session;
use super::ticket::Owner;
use crate::process::Process;
use crate::sync::lock;

pub(crate) struct Handle {
    pub(crate) session: Arc<Session>,
    pub(crate) process: Process,
    last_owner: Mutex<Option<(&'static Location<'static>, Arc<Owner>)>>,
}

impl Handle {
    pub(crate) fn new(session: Arc<Session>, process: Process) -> Arc<Handle> {
        Arc::new(Handle { session, process, last_owner: Mutex::default() })
    }

    /// Who asks from this line: the last who did so, if it is that one again. Ten thousand leases that one line has asked for have one owner, and
    /// not ten thousand of six texts each.
    pub(super) fn owner(
        &self,
        site: &'static Location<'static>,
        is_last: impl FnOnce(&Owner) -> bool,
        make: impl FnOnce() -> Owner,
    ) -> Arc<Owner> {
        let mut last = lock(&self.last_owner);
        if let Some((_, owner)) = last.as_ref().filter(|(asked, owner)| *asked == site && is_last(owner)) {
            return Arc::clone(owner);
        }
        let owner = Arc::new(make());
        *last = Some((site, Arc::clone(&owner)));
        owner
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.end();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({} at {})", self.session.id, self.session.store.url())
    }
}
