//! What all handles to a session share; the session ends with the last of them.

use std::fmt;
use std::sync::Arc;

use super::session::Session;
use crate::process::Process;

pub(crate) struct Handle {
    pub(crate) session: Arc<Session>,
    pub(crate) process: Process,
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
