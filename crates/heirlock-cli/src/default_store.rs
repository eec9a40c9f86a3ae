//! Where locks are kept: what was said, else what the environment says, else a file of this user's; and its password.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::args::Data;
use crate::exit::{Exit, tell};
use crate::output;

/// The variable that names a store.
const STORE: &str = "HEIRLOCK_STORE";
/// The variable that names a file with a store's password.
pub(crate) const PASSWORD_FILE: &str = "HEIRLOCK_PASSWORD_FILE";
/// No password is longer.
const MOST_BYTES: u64 = 4096;

#[derive(Args, Debug)]
pub(crate) struct Where {
    #[command(flatten)]
    pub(crate) data: Data,
}

/// The store's URL, with its password if a file has that.
pub(crate) fn url(said: Option<String>) -> Result<Place, Exit> {
    let place = find(said)?;
    let password = password_file().filter(|_| place.has_password());
    tracing::debug!(store = %heirlock::redact(&place.url), because = place.source.reason(), "which store");
    match password {
        None => Ok(place),
        Some(file) => {
            tracing::debug!(file = %file.display(), "the password is in a file");
            let url = with_password(&place.url, &read_password(&file)?)?;
            Ok(Place { user: user(&place.url).map(str::to_owned), url, ..place })
        }
    }
}

fn find(said: Option<String>) -> Result<Place, Exit> {
    if let Some(url) = said {
        // The likeliest slip.
        if url.starts_with(['/', '.']) {
            return Err(Exit::own(format!("--store is a URL: give sqlite:{url}")));
        }
        return Ok(Place { url, file: None, user: None, source: Source::Option });
    }
    match std::env::var_os(STORE).filter(|url| !url.is_empty()) {
        Some(url) => {
            let url = url
                .into_string()
                .map_err(|_| Exit::own("HEIRLOCK_STORE is not UTF-8 text: set it to something like sqlite:/path/to/file"))?;
            Ok(Place { url, file: None, user: None, source: Source::Environment })
        }
        None => default(),
    }
}

/// Who chose the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    Option,
    Environment,
    Default,
}

impl Source {
    /// The beginning of a sentence on what it says.
    fn says(self) -> &'static str {
        match self {
            Source::Option => "--store names a file",
            Source::Environment => "HEIRLOCK_STORE names a file",
            Source::Default => "the default is a file",
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Source::Option => "--store says so",
            Source::Environment => "HEIRLOCK_STORE says so",
            Source::Default if rustix::process::geteuid().is_root() => "the default of root; --store and HEIRLOCK_STORE name another",
            Source::Default => "this user's default; --store and HEIRLOCK_STORE name another",
        }
    }
}

/// A store's address, and the file if it is this user's default. Its URL may have a password, so it is not to be shown as it is.
pub(crate) struct Place {
    pub(crate) url: String,
    file: Option<PathBuf>,
    /// As whom the store is asked, where the password is not in the URL that was given but in a file.
    user: Option<String>,
    pub(crate) source: Source,
}

impl Place {
    /// Whether it is the default and nobody has ever used it.
    pub(crate) fn is_unused(&self) -> bool {
        // What the system does not tell, the store will.
        self.file.as_ref().is_some_and(|file| file.try_exists().is_ok_and(|is_there| !is_there))
    }

    /// Refuses a file in a directory that is not there, of those that somebody named: a path that is mistyped would exclude nobody.
    pub(crate) fn check_directory(&self) -> Result<(), Exit> {
        let Some(path) = self.path().filter(|_| self.file.is_none()) else { return Ok(()) };
        let Some(parent) = path.parent().filter(|parent| parent.try_exists().is_ok_and(|is_there| !is_there)) else { return Ok(()) };
        if directory().is_ok_and(|ours| ours == parent) {
            return Ok(());
        }
        Err(Exit::own(format!(
            "{}, and there is no directory {}: correct it, or make that directory",
            self.source.says(),
            parent.display()
        )))
    }

    /// Its file, if it is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        heirlock::sqlite_path(&self.url)
    }

    /// Whether its kind has users at all.
    fn has_password(&self) -> bool {
        !["sqlite:", "memory:"].iter().any(|scheme| self.url.starts_with(scheme))
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

    /// The store's own address, as a command may see it: without any password, but with the user whose password is in a file, for the command's own
    /// runs read that, too.
    pub(crate) fn for_commands(&self, shown: &str) -> String {
        let anonymous = anonymous(shown);
        match (&self.user, anonymous.split_once("://")) {
            (Some(user), Some((scheme, rest))) => format!("{scheme}://{user}@{rest}"),
            _ => anonymous,
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
    Ok(Place { url: format!("sqlite:{path}"), file: Some(file), user: None, source: Source::Default })
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

/// The file with the password, if one is named.
pub(crate) fn password_file() -> Option<PathBuf> {
    std::env::var_os(PASSWORD_FILE).filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// The file's one line.
fn read_password(file: &Path) -> Result<String, Exit> {
    let failed = |why: &str| Exit::own(format!("{PASSWORD_FILE} names {}, {why}", file.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(&format!("which cannot be read: {error}")))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err(failed("which is too long for a password: give a file with one line"));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("which is not UTF-8 text: give a file with one line"))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.chars().any(char::is_control) {
        return Err(failed("which does not have one line: give a file with the password and nothing else"));
    }
    Ok(line.to_owned())
}

/// What stands before the host.
fn user(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    authority.rsplit_once('@').map(|(user, _)| user)
}

/// The same place, whoever asks: a store's own address without the sign for a user that is hidden.
pub(crate) fn anonymous(shown: &str) -> String {
    shown.replacen("://***@", "://", 1)
}

/// The URL with this password of its user.
fn with_password(url: &str, password: &str) -> Result<String, Exit> {
    let shown = heirlock::redact(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Exit::own(format!("{shown} has no place for the password of {PASSWORD_FILE}: give something like scheme://user@host")));
    };
    let user = user(url).unwrap_or_default();
    let host = rest.strip_prefix(user).unwrap_or(rest);
    let host = host.strip_prefix('@').unwrap_or(host);
    if user.contains(':') {
        return Err(Exit::own(format!("{shown} has a password, and so has the file that {PASSWORD_FILE} names: take one away")));
    }
    let mut encoded = String::new();
    for byte in password.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    Ok(format!("{scheme}://{user}:{encoded}@{host}"))
}

/// What `heirlock where --json` prints.
#[derive(Serialize)]
struct Whereabouts {
    store: String,
    from: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password_file: Option<String>,
}

/// `heirlock where`. It opens nothing, so that it helps where nothing can be opened.
pub(crate) fn tell_where(words: &Where) -> Result<Exit, Exit> {
    let place = find(words.data.store.clone())?;
    let store = heirlock::redact(&place.url);
    // Where the system does not tell, nothing is said.
    let exists = place.path().and_then(|path| path.try_exists().ok());
    let password_file = password_file().filter(|_| place.has_password()).map(|file| file.display().to_string());
    if words.data.json {
        return Ok(output::json(&Whereabouts { store, from: place.source, exists, password_file }, 0));
    }
    let mut text = format!("{store}\n{}\n", place.source.reason());
    if exists == Some(false) {
        text += "nothing is there yet: the first run makes it\n";
    }
    if let Some(file) = password_file {
        text += &format!("the password is read from {}\n", crate::list::printable(&file));
    }
    Ok(output::text(&text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_sees_the_user_and_never_the_password() {
        let place = |url: &str, user: Option<&str>| Place {
            url: url.to_owned(),
            file: None,
            user: user.map(str::to_owned),
            source: Source::Option,
        };
        let from_file = place("redis://app:hunter2@db1/3?prefix=a/", Some("app"));
        assert_eq!(from_file.for_commands("redis://***@db1/3?prefix=a/"), "redis://app@db1/3?prefix=a/");
        assert_eq!(place("redis://:hunter2@db1", Some("")).for_commands("redis://***@db1"), "redis://@db1");
        assert_eq!(place("redis://app:hunter2@db1", None).for_commands("redis://***@db1"), "redis://db1");
        assert_eq!(place("sqlite:l.db", None).for_commands("sqlite:/srv/l.db"), "sqlite:/srv/l.db");
    }

    #[test]
    fn a_password_comes_to_its_place() {
        for (url, expected) in [
            ("redis://db1:6379/0", "redis://:p%40ss%2F@db1:6379/0"),
            ("redis://app@db1", "redis://app:p%40ss%2F@db1"),
            ("redis://@db1", "redis://:p%40ss%2F@db1"),
            ("redis+sentinel://app@db1:1,db2:2/name/3?wait=1", "redis+sentinel://app:p%40ss%2F@db1:1,db2:2/name/3?wait=1"),
            ("postgres://app@db1?sslmode=require", "postgres://app:p%40ss%2F@db1?sslmode=require"),
        ] {
            assert_eq!(with_password(url, "p@ss/").unwrap(), expected);
            assert!(!heirlock::redact(expected).contains("p%40"), "{expected}");
        }
        for url in ["redis://app:x@db1", "etcd:db1", "redis"] {
            assert!(with_password(url, "p").is_err(), "{url}");
        }
    }
}
