//! Where locks are kept if nobody says.

use std::path::{Path, PathBuf};

use crate::exit::{Exit, tell};

/// The store's URL: what was said, else the environment's, else a file of this user's.
pub(crate) fn url(said: Option<String>) -> Result<Place, Exit> {
    if let Some(url) = said {
        return Ok(Place { url, file: None });
    }
    match std::env::var_os("HEIRLOCK_STORE").filter(|url| !url.is_empty()) {
        Some(url) => {
            let url = url
                .into_string()
                .map_err(|_| Exit::own("HEIRLOCK_STORE is not UTF-8 text: set it to something like sqlite:/path/to/file"))?;
            Ok(Place { url, file: None })
        }
        None => default(),
    }
}

/// A store's address, and the file if it is this user's default.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    file: Option<PathBuf>,
}

impl Place {
    /// Whether it is the default and nobody has ever used it.
    pub(crate) fn is_unused(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// Its URL for somebody who only looks.
    pub(crate) fn for_looking(&self) -> String {
        match self.url.split_once('?') {
            _ if !self.url.starts_with("sqlite:") => self.url.clone(),
            Some((_, query)) if query.split('&').any(|pair| pair.starts_with("create=")) => self.url.clone(),
            Some(_) => format!("{}&create=no", self.url),
            None => format!("{}?create=no", self.url),
        }
    }

    /// Says where locks are kept.
    pub(crate) fn note_first_use(&self) {
        if let Some(file) = &self.file {
            tell(&format!("first use: locks are kept in {} (change it with --store or HEIRLOCK_STORE)", file.display()));
        }
    }
}

fn default() -> Result<Place, Exit> {
    let directory = directory()?;
    let file = directory.join("heirlock.db");
    let text = file.to_str().ok_or_else(|| Exit::own("the path of this user's state directory is not UTF-8 text: set HEIRLOCK_STORE"))?;
    // The characters that mean something in a URL.
    let path = text.replace('%', "%25").replace('?', "%3F");
    Ok(Place { url: format!("sqlite:{path}"), file: Some(file) })
}

fn directory() -> Result<PathBuf, Exit> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/heirlock"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("heirlock"));
    }
    let home = absolute("HOME").filter(|home| home != Path::new("/"));
    home.map(|home| home.join(".local/state/heirlock"))
        .ok_or_else(|| Exit::own("there is no home directory to keep locks in: set HEIRLOCK_STORE=sqlite:/path/to/file, or HOME"))
}
