//! Every statement of a step, and their prepared forms.

use std::rc::Rc;

use rusqlite::{Connection, PrepFlags, Result, Statement};

use super::owners::Owners;

/// The columns of a ticket, in the order of [`columns`](super::columns): the same in a key's row, for its first holder, and in `ticket`.
macro_rules! ticket {
    () => {
        "token, session, seq, state, priority, arrival, mode, ttl, queue_life, max_hold, lock_delay, hold_at_least, entered_ms, granted_ms, \
         due_ms, fence, slot, revoked, owner, blocked"
    };
}

/// Values for them from `?2` on.
macro_rules! ticket_values {
    () => {
        "?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21"
    };
}

/// What is saved of a key in every step that changes it.
macro_rules! header {
    () => {
        "last_fence = ?22, arrivals = ?23, holders = ?24, queued = ?25, readers = ?26, slots = ?27, next_due_ms = ?28, rests = ?29, \
         tombstones = ?30"
    };
}

/// Names the statements and keeps them in one table.
macro_rules! statements {
    ($($(#[doc = $doc:literal])* $name:ident => $text:expr,)*) => {
        /// A statement by its name.
        #[derive(Clone, Copy)]
        pub(super) enum Sql {
            $($(#[doc = $doc])* $name,)*
        }

        const TEXTS: &[&str] = &[$($text),*];
    };
}

statements! {
    Begin => "BEGIN IMMEDIATE",
    Commit => "COMMIT",
    Rollback => "ROLLBACK",
    /// What every fence of a key without a row must exceed.
    Floor => "SELECT floor FROM meta WHERE id = 1",
    RaiseFloor => "UPDATE meta SET floor = max(floor, ?1) WHERE id = 1",
    LoadKey => concat!(
        "SELECT id, last_fence, arrivals, holders, queued, readers, slots, next_due_ms, rests, tombstones, ", ticket!(),
        " FROM key WHERE name = ?1"
    ),
    MakeKey => "INSERT INTO key (name) VALUES (?1)",
    DropKey => "DELETE FROM key WHERE id = ?1",
    /// A key whose first holder's columns stay.
    SaveHeader => concat!("UPDATE key SET ", header!(), " WHERE id = ?1"),
    SaveKey => concat!("UPDATE key SET ", header!(), ", (", ticket!(), ") = (", ticket_values!(), ") WHERE id = ?1"),
    FindTicket => concat!("SELECT ", ticket!(), " FROM ticket WHERE key = ?1 AND token = ?2"),
    AllTickets => concat!("SELECT ", ticket!(), " FROM ticket WHERE key = ?1"),
    AddTicket => concat!("INSERT INTO ticket (key, ", ticket!(), ") VALUES (?1, ", ticket_values!(), ")"),
    /// Only what can change, numbered as all of a ticket's values are.
    KeepTicket => "UPDATE ticket SET seq = ?4, state = ?5, priority = ?6, entered_ms = ?14, granted_ms = ?15, due_ms = ?16, fence = ?17, \
                   slot = ?18, revoked = ?19, blocked = ?21 WHERE key = ?1 AND token = ?2",
    /// The same without what the queue is ordered by, so that its index is not written.
    BeatTicket => "UPDATE ticket SET seq = ?4, entered_ms = ?14, granted_ms = ?15, due_ms = ?16, fence = ?17, slot = ?18, revoked = ?19, \
                   blocked = ?21 WHERE key = ?1 AND token = ?2",
    DropTicket => "DELETE FROM ticket WHERE key = ?1 AND token = ?2",
    Queue => concat!(
        "SELECT ", ticket!(), " FROM ticket INDEXED BY ticket_queue WHERE key = ?1 AND state = 0 ORDER BY priority DESC, arrival LIMIT ?2"
    ),
    Holders => concat!("SELECT ", ticket!(), " FROM ticket INDEXED BY ticket_due WHERE key = ?1 AND state IN (1, 2)"),
    DueTickets => concat!("SELECT ", ticket!(), " FROM ticket INDEXED BY ticket_due WHERE key = ?1 AND state IN (0, 1, 2) AND due_ms <= ?2"),
    FirstDue => "SELECT min(due_ms) FROM ticket INDEXED BY ticket_due WHERE key = ?1 AND state = ?2",
    /// Names from one on, for listing.
    NamesFrom => "SELECT name FROM key WHERE name >= ?1 ORDER BY name LIMIT ?2",
    NamesAfter => "SELECT name FROM key WHERE name > ?1 ORDER BY name LIMIT ?2",
    /// Keys that nobody has or wants, or only tickets that are overdue, for sweeping.
    Unused => "SELECT name FROM key WHERE name > ?1 AND (holders = 0 AND queued = 0 OR next_due_ms <= ?2) ORDER BY name LIMIT ?3",
    SweptAt => "SELECT swept_ms FROM meta WHERE id = 1",
    NoteSweep => "UPDATE meta SET swept_ms = ?1 WHERE id = 1",
    Boot => "SELECT boot FROM meta WHERE id = 1",
    NoteBoot => "UPDATE meta SET boot = ?1, swept_ms = 0 WHERE id = 1",
}

/// The statements of one connection, each prepared when it is first needed and kept.
///
/// rusqlite's own cache looks its statements up by their text and copies it each time; a step has few enough microseconds to feel that.
pub(super) struct Statements<'c> {
    db: &'c Connection,
    ready: [Option<Statement<'c>>; TEXTS.len()],
    owners: Rc<Owners>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(db: &'c Connection) -> Self {
        Statements { db, ready: [const { None }; TEXTS.len()], owners: Rc::default() }
    }

    pub(super) fn get(&mut self, sql: Sql) -> Result<&mut Statement<'c>> {
        let at = sql as usize;
        Ok(match &mut self.ready[at] {
            Some(statement) => statement,
            empty => empty.insert(self.db.prepare_with_flags(TEXTS[at], PrepFlags::SQLITE_PREPARE_PERSISTENT)?),
        })
    }

    /// Whether the instants in the file count from this boot.
    pub(super) fn is_boot(&mut self, boot: &str) -> Result<bool> {
        self.get(Sql::Boot)?.query_one((), |row| Ok(row.get_ref(0)?.as_str()? == boot))
    }

    /// Runs a statement without parameters that answers nothing.
    pub(super) fn run(&mut self, sql: Sql) -> Result<()> {
        self.get(sql)?.raw_execute().map(drop)
    }

    /// The names that a query of [`Sql::NamesFrom`]'s kind finds.
    pub(super) fn names(&mut self, query: Sql, from: &str, most: i64) -> Result<Vec<String>> {
        self.get(query)?.query_map((from, most), |row| row.get(0))?.collect()
    }

    /// The owners that came by, apart from the statements that they are bound to.
    pub(super) fn owners(&self) -> Rc<Owners> {
        Rc::clone(&self.owners)
    }

    pub(super) fn db(&self) -> &'c Connection {
        self.db
    }
}
