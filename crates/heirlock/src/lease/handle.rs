//! What all handles to a session share; the session ends with the last of them.

use std::fmt;
use std::sync::Arc;

use super::session::Session;

/// This process, as operators see it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// What a lease without a worker is under.
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) command: Option<String>,
}

impl Process {
    pub(crate) fn this() -> Process {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let program = std::env::args_os().next();
        let name = program.as_ref().and_then(|path| std::path::Path::new(path).file_name()).map(|name| name.to_string_lossy().into_owned());
        Process { name: name.clone().unwrap_or_else(|| "anonymous".to_owned()), host, pid: std::process::id(), command: name }
    }
}

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
