//! The file's tables, and whose file it is.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::trouble::{Patience, explain};
use crate::{Error, Kind, Result};

/// SQLite's `application_id` of our files: "heir".
pub(super) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"heir");
/// Versions with the same major share a file; one of another major is refused.
pub(super) const MAJOR: u32 = 1;
/// A larger minor has more columns, all with defaults; no statement names what it does not know.
pub(super) const MINOR: u32 = 0;

/// How much of a file tells whose it is: SQLite's header.
pub(super) const HEADER_BYTES: usize = 100;

/// Small pages, since each that a step changes is summed and written whole; yet a key's own row, with 64 tombstones and a holder, fits in one.
pub(super) const PAGE_BYTES: u32 = 2048;

/// A table's columns for one ticket; in `key` they may all be NULL.
macro_rules! ticket {
    ($null:literal) => {
        concat!(
            "token BLOB ",
            $null,
            ",          -- 16 random bytes\n",
            "session INTEGER ",
            $null,
            ",\n",
            "seq INTEGER ",
            $null,
            ",\n",
            "state INTEGER ",
            $null,
            ",       -- 0 queued, 1 granted, 2 held\n",
            "priority INTEGER ",
            $null,
            ",\n",
            "arrival INTEGER ",
            $null,
            ",\n",
            "mode INTEGER ",
            $null,
            ",        -- 0 exclusive, 1 shared, n + 2: one of n slots\n",
            "ttl INTEGER ",
            $null,
            ",         -- milliseconds, as all durations\n",
            "queue_life INTEGER ",
            $null,
            ",\n",
            "max_hold INTEGER,\n",
            "lock_delay INTEGER,\n",
            "hold_at_least INTEGER,\n",
            "entered_ms INTEGER ",
            $null,
            ",  -- since boot, as all instants\n",
            "granted_ms INTEGER ",
            $null,
            ",\n",
            "due_ms INTEGER ",
            $null,
            ",\n",
            "fence INTEGER ",
            $null,
            ",\n",
            "slot INTEGER ",
            $null,
            ",\n",
            "revoked INTEGER ",
            $null,
            ",\n",
            "owner TEXT ",
            $null,
            ",          -- JSON\n",
            "blocked TEXT"
        )
    };
}

/// `ticket` is clustered by token; a queue is read by `ticket_queue`, what is due and who else holds by `ticket_due`.
const TABLES: &str = concat!(
    "CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        floor INTEGER NOT NULL,               -- every fence of a key without a row is larger
        boot TEXT NOT NULL,                   -- the boot that instants count from
        swept_ms INTEGER NOT NULL             -- when unused keys were last looked for
    );
    CREATE TABLE key (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        last_fence INTEGER NOT NULL DEFAULT 0,
        arrivals INTEGER NOT NULL DEFAULT 0,
        holders INTEGER NOT NULL DEFAULT 0,
        queued INTEGER NOT NULL DEFAULT 0,
        readers INTEGER NOT NULL DEFAULT 0,
        slots INTEGER NOT NULL DEFAULT 0,
        next_due_ms INTEGER NOT NULL DEFAULT 0,
        rests BLOB NOT NULL DEFAULT x'',
        -- The first holder, if any:
        ",
    ticket!(""),
    ",
        tombstones BLOB NOT NULL DEFAULT x''
    );
    CREATE TABLE ticket (
        key INTEGER NOT NULL,
        -- Everybody who waits, and who holds beside the first:
        ",
    ticket!("NOT NULL"),
    ",
        PRIMARY KEY (key, token)
    ) WITHOUT ROWID;
    CREATE INDEX ticket_queue ON ticket (key, priority DESC, arrival) WHERE state = 0;
    CREATE INDEX ticket_due ON ticket (key, state, due_ms);"
);

/// Whether the start of a file allows it to be opened: empty, or a store of this major version.
///
/// # Errors
/// `Incompatible`, saying whose it seems to be.
pub(super) fn check_header(path: &Path, header: &[u8]) -> Result<()> {
    if header.is_empty() {
        return Ok(());
    }
    let word = |at: usize| header.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    match (header.starts_with(b"SQLite format 3\0"), word(60), word(68)) {
        (true, Some(version), Some(application)) => check_version(path, application, version),
        _ => Err(Error::new(
            Kind::Incompatible,
            format!("{} is not a store of leases but another file: it is left as it is; give another path", path.display()),
        )),
    }
}

fn check_version(path: &Path, application: u32, version: u32) -> Result<()> {
    if application != APPLICATION_ID {
        return Err(Error::new(
            Kind::Incompatible,
            format!("{} is another program's SQLite database: it is left as it is; give another path", path.display()),
        ));
    }
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != MAJOR {
        return Err(Error::new(
            Kind::Incompatible,
            format!(
                "{} is a store of version {major}.{minor}, and this heirlock shares those of version {MAJOR} only: use the one that wrote it, or \
                 another path",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// Connects to a file that has been found fit, and makes its tables if it is empty.
///
/// # Errors
/// `Unreachable` if others keep it busy; `Incompatible`, `Invalid`, `Storage` as it is found.
pub(super) fn connect(path: &Path, boot: &str, patience: &mut Patience<'_>) -> Result<Connection> {
    // No CREATE: an empty file stands there, with the mode that was asked for. NOFOLLOW: the path is without links.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(path, flags).map_err(|cause| explain(path, cause))?;
    prepare(&db, path, boot, patience)?;
    Ok(db)
}

fn prepare(db: &Connection, path: &Path, boot: &str, patience: &mut Patience<'_>) -> Result<()> {
    let settings =
        format!("PRAGMA busy_timeout = 0; PRAGMA page_size = {PAGE_BYTES}; PRAGMA cache_size = -1024; PRAGMA temp_store = MEMORY;");
    patience.busy(path, || db.execute_batch(&settings))?;
    if db.is_readonly("main").map_err(|cause| explain(path, cause))? {
        return Err(Error::new(
            Kind::Invalid,
            format!("{} cannot be written: change its mode, mount its disk writable, or give another path", path.display()),
        ));
    }
    let (application, version) = patience.busy(path, || identity(db))?;
    if application != 0 {
        check_version(path, application, version)?;
    } else {
        // In a rollback journal, not yet in the log: the file's own first bytes must say whose it is from the first moment on.
        patience.busy(path, || db.execute_batch("BEGIN EXCLUSIVE"))?;
        let made = create(db, path, boot);
        if made.is_err() {
            // It goes back to empty; what failed is what is said.
            let _ = db.execute_batch("ROLLBACK");
        }
        made?;
    }
    patience.busy(path, || log_ahead(db))?;
    patience.busy(path, || db.execute_batch("PRAGMA synchronous = NORMAL"))
}

fn identity(db: &Connection) -> rusqlite::Result<(u32, u32)> {
    let number = |pragma| db.query_one(pragma, (), |row| row.get::<_, i32>(0).map(i32::cast_unsigned));
    Ok((number("PRAGMA application_id")?, number("PRAGMA user_version")?))
}

/// Makes the tables, within a transaction, unless another process was faster.
fn create(db: &Connection, path: &Path, boot: &str) -> Result<()> {
    let failed = |cause| explain(path, cause);
    let (application, version) = identity(db).map_err(failed)?;
    let tables: i64 = db.query_one("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).map_err(failed)?;
    if application != 0 || tables > 0 {
        check_version(path, application, version)?;
    } else {
        let version = MAJOR << 16 | MINOR;
        db.execute_batch(&format!("{TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version};"))
            .map_err(failed)?;
        db.execute("INSERT INTO meta (id, floor, boot, swept_ms) VALUES (1, 0, ?1, 0)", [boot]).map_err(failed)?;
    }
    db.execute_batch("COMMIT").map_err(failed)
}

/// Write-ahead logging, which stays set in the file. The change needs the file for itself for a moment.
fn log_ahead(db: &Connection) -> rusqlite::Result<()> {
    let mode = |pragma| db.query_one(pragma, (), |row| row.get::<_, String>(0));
    if mode("PRAGMA journal_mode")? == "wal" || mode("PRAGMA journal_mode = WAL")? == "wal" {
        return Ok(());
    }
    // It answers the old mode where it could not change it.
    Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None))
}
