//! From a URL to a store.

use std::sync::Arc;

use crate::clock::BootClock;
use crate::lease::{Locks, Store};
use crate::store::MemoryStore;
use crate::{Error, Kind, Result};

impl Locks {
    /// A session with the store at this URL: `sqlite:/path/to/file`, `memory:`, `memory:name`, or one of Redis
    #[cfg_attr(feature = "redis", doc = "([`store::redis::Options::connect`](crate::store::redis::Options::connect)).")]
    #[cfg_attr(not(feature = "redis"), doc = "(feature `redis`).")]
    ///
    /// | parameter | for | means |
    /// |---|---|---|
    /// | `prefix=app/` | `sqlite`, `redis` | puts every key under this namespace |
    /// | `mode=0660` | `sqlite` | the permissions of a new file; 0600 unless said |
    /// | `create=no` | `sqlite` | makes nothing: an error where there is no store yet |
    /// | `wait=1` | `redis` | a grant counts only once so many replicas have it |
    /// | `ca=/file` | `rediss` | trusts the authorities in this PEM file, and not those of the system |
    /// | `cert=/file`, `key=/file` | `rediss` | the certificate and key to show to the server |
    /// | `sentinel_user=`, `sentinel_password=` | `redis+sentinel` | what the Sentinels want |
    ///
    /// # Errors
    /// `Invalid` for a URL that is malformed or of a kind that this build does not support, `Incompatible` if something else is at that address,
    /// `Unreachable` or `Storage` if the store does not answer. No error shows a password.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// let locks = heirlock::Locks::connect("memory:").await?;
    /// let lease = locks.lock("nightly").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Locks> {
        Locks::with(open_store(url).await?, Arc::new(BootClock)).await
    }
}

/// The store at this URL, of the kinds that [`Locks::connect`] knows: for who speaks its verbs, without a session.
///
/// # Errors
/// As [`Locks::connect`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
/// use heirlock::lease::Key;
/// let store = heirlock::open_store("memory:").await?;
/// assert!(store.inspect(&Key::new("nightly")?).await?.holders.is_empty());
/// # Ok(()) }
/// ```
// Only some stores take time to open.
#[cfg_attr(not(any(feature = "sqlite", feature = "redis")), allow(clippy::unused_async))]
pub async fn open_store(text: &str) -> Result<Arc<dyn Store>> {
    let url = Url::parse(text)?;
    match url.scheme {
        "memory" => open_memory(&url),
        #[cfg(feature = "sqlite")]
        "sqlite" => open_sqlite(&url).await,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster" => open_redis(text, &url).await,
        _ => Err(Error::new(
            Kind::Invalid,
            format!(
                "this build has no store for {}: use {}",
                redact(text),
                if cfg!(feature = "sqlite") { "sqlite:/path/to/file" } else { "memory:" }
            ),
        )),
    }
}

#[cfg(feature = "redis")]
async fn open_redis(text: &str, url: &Url<'_>) -> Result<Arc<dyn Store>> {
    // What stands before an @ may be part of a password, and is not to be shown as a parameter.
    if text.split_once('?').is_some_and(|(_, query)| query.contains('@')) {
        let shown = redact(text);
        return Err(Error::new(
            Kind::Invalid,
            format!("{shown} has a ? before its host: write it as %3F in a user or password, and @ as %40"),
        ));
    }
    url.only(&["prefix", "wait", "ca", "cert", "key", "sentinel_user", "sentinel_password"])?;
    let mut options = crate::store::RedisStore::options();
    if let Some(prefix) = url.parameter("prefix") {
        options = options.prefix(prefix);
    }
    if let Some(wait) = url.parameter("wait") {
        let replicas = wait.parse();
        options =
            options.wait(replicas.map_err(|_| Error::new(Kind::Invalid, format!("wait={wait} is no number of replicas: give wait=1")))?);
    }
    if let Some(file) = url.parameter("ca") {
        options = options.ca(file);
    }
    match (url.parameter("cert"), url.parameter("key")) {
        (Some(certificate), Some(key)) => options = options.client_certificate(certificate, key),
        (None, None) => {}
        _ => return Err(Error::new(Kind::Invalid, "cert and key belong together: give both files")),
    }
    if let Some(name) = url.parameter("sentinel_user") {
        options = options.sentinel_user(name);
    }
    if let Some(password) = url.parameter("sentinel_password") {
        options = options.sentinel_password(password);
    }
    let address = text.split_once('?').map_or(text, |(address, _)| address);
    Ok(Arc::new(options.connect(address).await?))
}

fn open_memory(url: &Url<'_>) -> Result<Arc<dyn Store>> {
    url.only(&[])?;
    Ok(Arc::new(if url.rest.is_empty() { MemoryStore::new() } else { MemoryStore::named(&url.rest) }))
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(url: &Url<'_>) -> Result<Arc<dyn Store>> {
    url.only(&["mode", "prefix", "create"])?;
    let path = path_in(url)?;
    let mut options = crate::store::SqliteStore::options();
    if let Some(mode) = url.parameter("mode") {
        let bits = u32::from_str_radix(mode, 8);
        options = options
            .mode(bits.map_err(|_| Error::new(Kind::Invalid, format!("mode={mode} is no file mode: give something like mode=0660")))?);
    }
    match url.parameter("create") {
        None | Some("yes") => {}
        Some("no") => options = options.existing(),
        Some(other) => return Err(Error::new(Kind::Invalid, format!("create={other} is neither create=yes nor create=no"))),
    }
    if let Some(prefix) = url.parameter("prefix") {
        options = options.prefix(prefix);
    }
    Ok(Arc::new(options.connect(path).await?))
}

/// The file that a `sqlite:` URL names, as an absolute path, whether or not one is there; `None` for URLs of other kinds and malformed ones.
///
/// ```
/// use std::path::Path;
/// let file = heirlock::sqlite_path("sqlite:/var/lib/app%20one.db?mode=0660");
/// assert_eq!(file.as_deref(), Some(Path::new("/var/lib/app one.db")));
/// assert_eq!(heirlock::sqlite_path("memory:"), None);
/// ```
#[cfg(feature = "sqlite")]
pub fn sqlite_path(url: &str) -> Option<std::path::PathBuf> {
    let url = Url::parse(url).ok().filter(|url| url.scheme == "sqlite")?;
    std::path::absolute(path_in(&url).ok()?).ok()
}

#[cfg(feature = "sqlite")]
fn path_in<'a>(url: &'a Url<'_>) -> Result<&'a str> {
    let path = match url.rest.strip_prefix("//") {
        // sqlite:///absolute and sqlite://relative are both in use elsewhere.
        Some(rest) => rest,
        None => &url.rest,
    };
    if path.starts_with(':') {
        return Err(Error::new(Kind::Invalid, "a database in memory is seen by one connection only: use memory:, or sqlite:/path/to/file"));
    }
    if path.is_empty() || path.contains('\0') {
        return Err(Error::new(Kind::Invalid, "a sqlite URL needs a path: sqlite:/path/to/file"));
    }
    Ok(path)
}

/// A store's URL, taken apart.
struct Url<'u> {
    scheme: &'u str,
    /// Between the scheme and the parameters, percent-decoded.
    rest: String,
    parameters: Vec<(String, String)>,
}

impl<'u> Url<'u> {
    fn parse(url: &'u str) -> Result<Url<'u>> {
        let bad = |why: &str| {
            Error::new(Kind::Invalid, format!("{} is no store's URL, {why}: give something like sqlite:/path/to/file", redact(url)))
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(|| bad("it has no scheme"))?;
        if !is_scheme(scheme) {
            return Err(bad("its scheme is malformed"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let decode =
            |text: &str| decode(text).ok_or_else(|| bad("a percent sign must be followed by two hexadecimal digits of UTF-8 text"));
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| bad("a parameter has no value"))?;
            let name = decode(name)?;
            if parameters.iter().any(|(known, _)| *known == name) {
                return Err(bad("a parameter stands twice"));
            }
            parameters.push((name, decode(value)?));
        }
        Ok(Url { scheme, rest: decode(rest)?, parameters })
    }

    #[cfg_attr(not(any(feature = "sqlite", feature = "redis", test)), allow(dead_code))]
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Refuses a parameter that would be silently ignored.
    fn only(&self, known: &[&str]) -> Result<()> {
        match self.parameters.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(
                Kind::Invalid,
                format!(
                    "{name:?} is no parameter of {} URLs, which have: {}",
                    self.scheme,
                    if known.is_empty() { "none".into() } else { known.join(", ") }
                ),
            )),
        }
    }
}

/// Without percent signs; none if one stands for nothing.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

/// The text with these characters, and those that no URL shows, percent-encoded.
#[cfg(any(feature = "sqlite", feature = "redis"))]
pub(crate) fn encode(text: &str, special: &str) -> String {
    let mut encoded = String::new();
    for c in text.chars() {
        if special.contains(c) || c.is_control() {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| encoded += &format!("%{byte:02X}"));
        } else {
            encoded.push(c);
        }
    }
    encoded
}

/// The URL without what may be secret: everything before its last `@`, and the values of the parameters after it, but for those that
/// [`Locks::connect`] knows and that are no secrets. What has no scheme is not shown at all.
///
/// ```
/// assert_eq!(heirlock::redact("redis://app:hunter2@db1:6379/0?password=x"), "redis://***@db1:6379/0?password=***");
/// assert_eq!(heirlock::redact("redis://app:hunter2@db1/0?prefix=a/"), "redis://***@db1/0?prefix=a/");
/// assert_eq!(heirlock::redact("sqlite:/var/lib/app.db"), "sqlite:/var/lib/app.db");
/// assert_eq!(heirlock::redact("sqlite:/var/lib/app.db?prefix=a/&key=x"), "sqlite:/var/lib/app.db?prefix=a/&key=***");
/// assert_eq!(heirlock::redact("app:hunter2@db1"), "(something without a scheme)");
/// ```
pub fn redact(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return "(something without a scheme)".to_owned();
    };
    // The last @ of all: a password may have any character in it that should have been encoded.
    let (user, rest) = match rest.rfind('@') {
        // Paths and names have no users.
        _ if LOCAL.contains(&scheme) => ("", rest),
        Some(at) if rest.starts_with("//") => ("//***", &rest[at..]),
        // What looks like a scheme is a user's name, or the start of a password.
        Some(_) => return "(something without a scheme)".to_owned(),
        None => ("", rest),
    };
    let (place, query) = rest.split_once('?').map_or((rest, String::new()), |(place, query)| {
        let hide = |pair: &str| match pair.split_once('=') {
            Some((name, _)) if OPEN.iter().any(|(schemes, open)| schemes.contains(&scheme) && open.contains(&name)) => pair.to_owned(),
            Some((name, _)) => format!("{name}=***"),
            None => "***".to_owned(),
        };
        (place, format!("?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&")))
    });
    format!("{scheme}:{user}{place}{query}").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The schemes of addresses that name nobody.
const LOCAL: [&str; 2] = ["memory", "sqlite"];
/// Parameters that are no secrets.
const OPEN: [(&[&str], &[&str]); 2] = [
    (&LOCAL, &["mode", "prefix", "create"]),
    (
        &["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"],
        &["prefix", "wait", "ca", "cert", "key"],
    ),
];

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = Url::parse("sqlite:/a%20b/c.db?mode=0660&prefix=app%2F").unwrap();
        assert_eq!((url.scheme, url.rest.as_str()), ("sqlite", "/a b/c.db"));
        assert_eq!((url.parameter("mode"), url.parameter("prefix")), (Some("0660"), Some("app/")));
        assert!(url.only(&["mode"]).unwrap_err().to_string().contains("\"prefix\""));
    }

    #[test]
    fn a_bad_url_is_refused_without_its_password() {
        for bad in [
            "/var/lib/x",
            "postgres://u:hunter2@h/0",
            ":x",
            "re dis://u:hunter2@h",
            "sqlite:x%zz",
            "memory:?x",
            "postgres://u:hunter2/@h:1?x",
            "postgres://u:hunter2?x@h/0",
            "hunter2@h:1/x",
        ] {
            let error = pollster::block_on(Locks::connect(bad)).unwrap_err();
            assert!(error.is_invalid(), "{bad}: {error}");
            assert!(!error.chain().contains("hunter2"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_url_panics_and_no_password_shows(user in "[a-z]{1,5}", secret in "[a-zA-Z0-9/:?&=%@ ]{4,12}", rest in any::<String>()) {
            let secret = format!("S3cr{secret}3T");
            let urls = [format!("postgres://{user}:{secret}@host{rest}"), format!("{user}:{secret}@host"), format!("{secret}@host:1/{rest}")];
            // A password that begins like a URL, in the place of one, cannot be told from it.
            for url in urls.iter().filter(|url| !url.starts_with("S3cr") || !secret.contains("://")) {
                let error = pollster::block_on(Locks::connect(url)).unwrap_err();
                for shown in [redact(url), error.chain()] {
                    prop_assert!(!shown.contains("S3cr") && !shown.contains("3T") || rest.contains("S3cr") || rest.contains("3T"), "{}", shown);
                }
            }
            drop(Url::parse(&rest));
            drop(redact(&rest));
        }
    }
}
