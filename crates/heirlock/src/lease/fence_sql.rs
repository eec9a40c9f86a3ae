//! Fences in SQL: tables and statements by which a database refuses holders that are too late, for SQLite and Postgres.
//!
//! The rule is that of [`Fences`](super::Fences). All statements take the [`Parameters`] of a [`Sequencer`], so many of them as they have places,
//! and answer with one row where the holder is good and with none where it is not. In a program that is:
//!
//! 1. once, where the schema is made: [`create`](Statements::create);
//! 2. after each grant, *before the first read*, in a transaction of its own: [`open`](Statements::open), then
//!    [`advance`](Statements::advance), and commit. No row from `advance`: the lease is lost;
//! 3. in each transaction, before anything else: [`check_write`](Statements::check_write), or [`check_read`](Statements::check_read) where
//!    nothing is written. No row: roll back, the lease is lost.
//!
//! A check holds its row to the end of the transaction. So a holder that comes waits in step 2 for the transactions that were checked before, sees
//! all that they wrote, and refuses those that are checked after: that is what makes the check one step with the write. It holds at every level of
//! isolation; a database may answer with an error instead of no row (a serialization failure, a busy snapshot), and the transaction is begun anew.
//!
//! ```
//! # #[cfg(feature = "sqlite")] fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use heirlock::lease::{Sequencer, fence_sql::SQLITE};
//! use rusqlite::{Connection, OptionalExtension, Transaction, params};
//!
//! fn advance(db: &mut Connection, by: &Sequencer) -> rusqlite::Result<bool> {
//!     let p = by.parameters();
//!     let step = db.transaction()?;
//!     step.query_row(SQLITE.open, params![p.name, p.slots, p.fence], |_| Ok(())).optional()?;
//!     let is_good = step.query_row(SQLITE.advance, params![p.name, p.slots, p.fence, p.slot, p.holder], |_| Ok(())).optional()?.is_some();
//!     step.commit()?;
//!     Ok(is_good)
//! }
//!
//! fn check_write(step: &Transaction<'_>, by: &Sequencer) -> rusqlite::Result<bool> {
//!     let p = by.parameters();
//!     Ok(step.query_row(SQLITE.check_write, params![p.name, p.slots, p.fence, p.slot, p.holder], |_| Ok(())).optional()?.is_some())
//! }
//!
//! let mut db = Connection::open_in_memory()?;
//! db.execute_batch(SQLITE.create)?;
//! let old: Sequencer = "5 exclusive 0123456789abcdef accounts".parse()?;
//! let new: Sequencer = "6 exclusive fedcba9876543210 accounts".parse()?;
//! assert!(advance(&mut db, &old)? && advance(&mut db, &new)?);
//!
//! let step = db.transaction()?;
//! assert!(!check_write(&step, &old)?);
//! step.rollback()?;
//! let step = db.transaction()?;
//! assert!(check_write(&step, &new)?);
//! // ... the writes ...
//! step.commit()?;
//! # Ok(()) }
//! # #[cfg(not(feature = "sqlite"))] fn main() {}
//! ```

use super::sequencer::Sequencer;
use super::ticket::Mode;

/// The statements for one kind of database. The places of the parameters are numbered: `?1` to `?5` in SQLite, `$1` to `$5` in Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statements {
    /// Makes the tables `heirlock_fenced` and `heirlock_fence` where they are missing: two statements, without parameters.
    pub create: &'static str,
    /// The first half of an advance: `name`, `slots`, `fence`. Its row says nothing yet.
    pub open: &'static str,
    /// The second half: `name`, `slots`, `fence`, `slot`, `holder`. One row if the holder is good; then all before it are refused.
    pub advance: &'static str,
    /// Whether the holder may read in this transaction: `name`, `slots`, `fence`, `slot`, `holder`. One row if it has advanced and no newer
    /// one has.
    pub check_read: &'static str,
    /// Whether it may write: the same, and never a reader.
    pub check_write: &'static str,
}

/// A sequencer as SQL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters<'s> {
    /// The key, as text.
    pub name: &'s str,
    /// The number of slots, 0 where there are none; an `INTEGER`.
    pub slots: i32,
    /// The fence, a `BIGINT`.
    pub fence: i64,
    /// The slot, 0 where there are none; an `INTEGER`.
    pub slot: i32,
    /// Who holds, as text; of readers, the word `shared`.
    pub holder: String,
}

impl Sequencer {
    /// The same as parameters of [SQL statements](self).
    ///
    /// SQL has no fences beyond 2^63 - 1, in microseconds the year 294246: a larger one becomes that.
    pub fn parameters(&self) -> Parameters<'_> {
        // There are at most `MAX_SLOTS` slots.
        let small = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        Parameters {
            name: self.key().as_str(),
            slots: match self.mode() {
                Mode::Exclusive | Mode::Shared => 0,
                Mode::Slot(slots) => small(slots),
            },
            fence: i64::try_from(self.fence()).unwrap_or(i64::MAX),
            slot: small(self.slot().unwrap_or(0)),
            holder: self.holder().map_or_else(|| "shared".to_owned(), |holder| holder.to_string()),
        }
    }
}

/// One row for each key that is guarded, and one for each of its slots (0 where there are none).
const CREATE: &str = "\
CREATE TABLE IF NOT EXISTS heirlock_fenced (
    name TEXT NOT NULL PRIMARY KEY,
    slots INTEGER NOT NULL,
    floor BIGINT NOT NULL,
    newest BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS heirlock_fence (
    name TEXT NOT NULL,
    slot INTEGER NOT NULL,
    fence BIGINT NOT NULL,
    holder TEXT NOT NULL,
    PRIMARY KEY (name, slot)
);";

/// Changes the way in which the key is held, if the fence is larger than all before. It always writes the row of a good holder, also where
/// nothing changes: a check has locked it.
const OPEN: &str = "\
INSERT INTO heirlock_fenced AS f (name, slots, floor, newest) VALUES ($1, $2, 0, $3)
ON CONFLICT (name) DO UPDATE SET
    floor = CASE WHEN f.slots = excluded.slots THEN f.floor ELSE f.newest END,
    slots = excluded.slots,
    newest = CASE WHEN f.newest > excluded.newest THEN f.newest ELSE excluded.newest END
WHERE excluded.newest > f.newest OR (excluded.slots = f.slots AND excluded.newest > f.floor)
RETURNING newest";

/// Finds nothing to insert where [`OPEN`] has refused.
const ADVANCE: &str = "\
INSERT INTO heirlock_fence AS f (name, slot, fence, holder)
SELECT n.name, $4, $3, $5 FROM heirlock_fenced AS n WHERE n.name = $1 AND n.slots = $2 AND n.floor < $3
ON CONFLICT (name, slot) DO UPDATE SET fence = excluded.fence, holder = excluded.holder
WHERE f.fence < excluded.fence OR (f.fence = excluded.fence AND f.holder = excluded.holder)
RETURNING fence";

/// What both checks look at.
macro_rules! good {
    () => {
        "n.name = $1 AND n.slots = $2 AND n.floor < $3 AND f.name = n.name AND f.slot = $4 AND f.fence = $3 AND f.holder = $5"
    };
}

/// The text with `?` for `$`, as SQLite numbers its parameters.
macro_rules! with_question_marks {
    ($text:expr) => {{
        const TEXT: [u8; $text.len()] = {
            let mut text = [0; $text.len()];
            let mut at = 0;
            while at < text.len() {
                text[at] = if $text.as_bytes()[at] == b'$' { b'?' } else { $text.as_bytes()[at] };
                at += 1;
            }
            text
        };
        // One ASCII character for another: it stays what it was.
        match std::str::from_utf8(&TEXT) {
            Ok(text) => text,
            Err(_) => unreachable!(),
        }
    }};
}

/// For SQLite 3.35 or later. A writing transaction that begins with its check has the file's one write lock from there on. A transaction that reads
/// and begins with its check sees the database as it was at that moment, when the holder was good.
pub const SQLITE: Statements = Statements {
    create: CREATE,
    open: with_question_marks!(OPEN),
    advance: with_question_marks!(ADVANCE),
    check_read: with_question_marks!(concat!("SELECT f.fence FROM heirlock_fenced AS n, heirlock_fence AS f WHERE ", good!())),
    check_write: with_question_marks!(concat!(
        "UPDATE heirlock_fence AS f SET fence = f.fence FROM heirlock_fenced AS n WHERE ",
        good!(),
        " AND f.holder <> 'shared' RETURNING fence"
    )),
};

/// For Postgres 9.5 or later, in a database whose encoding is UTF8. A check shares its rows with other checks, as those of siblings in other
/// slots, and keeps out advances.
///
/// Advance in a transaction of its own. Two transactions that were checked and then advance on the same key would wait for each other, which Postgres
/// ends with an error; and at `REPEATABLE READ`, what is read behind an advance in the same transaction is from before it.
pub const POSTGRES: Statements = Statements {
    create: CREATE,
    open: OPEN,
    advance: ADVANCE,
    check_read: concat!("SELECT f.fence FROM heirlock_fenced AS n, heirlock_fence AS f WHERE ", good!(), " FOR SHARE"),
    check_write: concat!(
        "SELECT f.fence FROM heirlock_fenced AS n, heirlock_fence AS f WHERE ",
        good!(),
        " AND f.holder <> 'shared' FOR SHARE"
    ),
};
