//! This process, as operators see it.

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
        let program = std::env::args_os().next();
        let name = program.as_ref().and_then(|path| std::path::Path::new(path).file_name()).map(|name| name.to_string_lossy().into_owned());
        Process { name: name.clone().unwrap_or_else(|| "anonymous".to_owned()), host: host(), pid: std::process::id(), command: name }
    }
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
