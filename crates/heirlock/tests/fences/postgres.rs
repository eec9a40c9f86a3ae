//! The statements for Postgres, on a real server, through `psql`: what waits for what is Postgres's own, and no client's.
//!
//! The server is that of `HEIRLOCK_TEST_POSTGRES`, which `ci/services` sets.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use heirlock::lease::fence_sql::POSTGRES;
use heirlock::lease::{Fences, Key, Sequencer};

use crate::naive::{KEY, Shown, exclusive, shared, slot};
use crate::random::seed;

fn server() -> String {
    std::env::var("HEIRLOCK_TEST_POSTGRES").expect("HEIRLOCK_TEST_POSTGRES: run the tests by ci/test, or by ci/services")
}

/// One connection, that is asked line by line.
struct Psql {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Psql {
    /// In a schema of its own: tests do not meet.
    fn connect(server: &str, schema: &str) -> Psql {
        let mut child = Command::new("psql")
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--dbname", server])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut psql = Psql { child, orders, answers };
        // Errors are no answers: they go to the test's own output.
        psql.ask(&format!("SET client_min_messages = warning; SET search_path = {schema};"));
        psql
    }

    fn prepare(&mut self) {
        let places = "text, int, bigint, int, text";
        let all = [
            ("open", POSTGRES.open, "text, int, bigint"),
            ("advance", POSTGRES.advance, places),
            ("check_read", POSTGRES.check_read, places),
            ("check_write", POSTGRES.check_write, places),
        ];
        for (name, statement, places) in all {
            assert_eq!(self.ask(&format!("PREPARE {name} ({places}) AS {statement};")), Vec::<String>::new());
        }
    }

    /// Asks, and does not wait for the answer.
    fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}\n\\echo ready").unwrap();
    }

    /// The rows of the answer.
    fn end(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "psql has ended");
            match line.trim_end() {
                "ready" => return rows,
                row => rows.push(row.to_owned()),
            }
        }
    }

    fn ask(&mut self, order: &str) -> Vec<String> {
        self.begin(order);
        self.end()
    }

    fn is_good(&mut self, statement: &str, by: &Sequencer) -> bool {
        match self.ask(&execute(statement, by)).as_slice() {
            [] => false,
            [fence] => {
                assert_eq!(fence.parse(), Ok(by.fence()));
                true
            }
            rows => panic!("{rows:?}"),
        }
    }

    fn advance(&mut self, by: &Sequencer) -> bool {
        self.ask("BEGIN;");
        self.ask(&open(by));
        let good = self.is_good("advance", by);
        assert_eq!(self.ask("COMMIT;"), Vec::<String>::new());
        good
    }

    fn pid(&mut self) -> String {
        self.ask("SELECT pg_backend_pid();").remove(0)
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        // Its input ends with us; only this child is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(by: &Sequencer) -> String {
    let p = by.parameters();
    format!("EXECUTE open('{}', {}, {});", p.name, p.slots, p.fence)
}

fn execute(statement: &str, by: &Sequencer) -> String {
    let p = by.parameters();
    format!("EXECUTE {statement}('{}', {}, {}, {}, '{}');", p.name, p.slots, p.fence, p.slot, p.holder)
}

/// So many connections to tables of their own.
fn connections<const N: usize>(server: &str, schema: &str) -> [Psql; N] {
    let mut first = Psql::connect(server, schema);
    first.ask(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE;"));
    first.ask(&format!("CREATE SCHEMA {schema};"));
    // Twice: what is there already is left.
    for _ in 0..2 {
        first.ask(POSTGRES.create);
    }
    first.ask("CREATE TABLE written (by BIGINT NOT NULL);");
    std::array::from_fn(|_| {
        let mut psql = Psql::connect(server, schema);
        psql.prepare();
        psql
    })
}

/// Waits until the server says that this connection waits for a lock.
fn until_it_waits(watch: &mut Psql, pid: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while watch.ask(&format!("SELECT cardinality(pg_blocking_pids({pid})) > 0;")) != ["t"] {
        assert!(Instant::now() < until, "it does not wait");
    }
}

#[test]
fn case_s27_late_transactions_are_refused_by_postgres() {
    let server = server();
    let [mut db] = connections(&server, "fences_late");
    let (old, new) = (exclusive(5, 1), exclusive(6, 2));
    assert!(!db.is_good("check_write", &old), "it has not advanced");
    assert!(db.advance(&old) && db.is_good("check_write", &old));
    assert!(db.advance(&new));
    assert!(!db.is_good("check_write", &old) && !db.advance(&old));
    assert!(!db.advance(&exclusive(6, 3)), "an equal fence of another holder");
    assert!(db.advance(&new) && db.is_good("check_write", &new));

    let (one, two) = (slot(7, 0, 2, 3), slot(8, 1, 2, 4));
    assert!(db.advance(&one) && db.advance(&two));
    assert!(db.is_good("check_write", &one) && db.is_good("check_write", &two), "slots stand beside each other");

    assert!(db.advance(&shared(9)));
    assert!(db.is_good("check_read", &shared(9)) && !db.is_good("check_write", &shared(9)));
}

/// At both levels of isolation, a new holder waits for a transaction that was checked; the old one's next is refused.
#[test]
fn an_advance_waits_for_a_transaction_that_was_checked_by_postgres() {
    let server = server();
    for (at, level) in ["READ COMMITTED", "REPEATABLE READ"].into_iter().enumerate() {
        let [mut old, mut new, mut watch] = connections(&server, &format!("fences_wait_{at}"));
        let (by_old, by_new) = (exclusive(5, 1), exclusive(6, 2));
        old.advance(&by_old);
        old.ask(&format!("BEGIN ISOLATION LEVEL {level};"));
        assert!(old.is_good("check_write", &by_old));

        let pid = new.pid();
        new.ask(&format!("BEGIN ISOLATION LEVEL {level};"));
        new.begin(&open(&by_new));
        until_it_waits(&mut watch, &pid);
        old.ask("INSERT INTO written VALUES (5);");
        old.ask("COMMIT;");
        new.end();
        assert!(new.is_good("advance", &by_new));

        // Not yet committed: whoever is checked now waits for the verdict.
        let pid = old.pid();
        old.begin(&execute("check_write", &by_old));
        until_it_waits(&mut watch, &pid);
        new.ask("COMMIT;");
        assert!(old.end().is_empty(), "{level}: a late holder was let in");
        assert_eq!(new.ask("SELECT by FROM written;"), ["5"], "what was checked before it, it sees");
    }
}

/// What was seen before the new holder came is no ground to let the old one in.
#[test]
fn an_old_view_of_the_tables_lets_nobody_in() {
    let server = server();
    let [mut old, mut new] = connections(&server, "fences_view");
    // The last one changes how the key is held: it has no row in common with the old one's but that of the key.
    for (by_old, by_new) in [(exclusive(5, 1), exclusive(6, 2)), (slot(7, 1, 2, 3), slot(8, 1, 2, 4)), (slot(9, 1, 2, 5), exclusive(10, 6))]
    {
        assert!(old.advance(&by_old));
        old.ask("BEGIN ISOLATION LEVEL REPEATABLE READ;");
        old.ask("SELECT * FROM heirlock_fence;");
        assert!(new.advance(&by_new));
        let rows = old.ask(&execute("check_write", &by_old));
        assert!(rows.is_empty(), "{by_old} after {by_new}: {rows:?}");
        // It is a serialization failure, not an answer: nothing more is done in this transaction.
        assert!(old.ask("INSERT INTO written VALUES (1);").is_empty());
        old.ask("ROLLBACK;");
        assert!(!old.is_good("check_write", &by_old));
    }
    assert!(new.ask("SELECT * FROM written;").is_empty());
}

#[test]
fn siblings_in_other_slots_do_not_wait_for_each_other() {
    let server = server();
    let [mut one, mut two] = connections(&server, "fences_slots");
    let (by_one, by_two) = (slot(5, 0, 2, 1), slot(6, 1, 2, 2));
    assert!(one.advance(&by_one) && two.advance(&by_two));
    for psql in [&mut one, &mut two] {
        // Whoever would wait gets an error instead.
        psql.ask("SET lock_timeout = 1;");
        psql.ask("BEGIN;");
    }
    assert!(one.is_good("check_write", &by_one) && two.is_good("check_write", &by_two));
    for psql in [&mut one, &mut two] {
        psql.ask("COMMIT;");
    }
}

#[test]
fn random_holders_are_judged_as_by_the_rule_by_postgres() {
    let server = server();
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut counts = [0; 2];
    for round in 0..4 {
        let [mut db] = connections(&server, "fences_random");
        let (mut rule, mut shown) = (Fences::new(Key::new(KEY).unwrap()), Shown::new(seed ^ round));
        for step in 0..250 {
            let by = shown.next();
            let (is, must) = if shown.chance(50) {
                (db.advance(&by), rule.advance(&by).is_ok())
            } else {
                let must = rule.check(&by).is_ok();
                assert_eq!(db.is_good("check_write", &by), must && by.may_write(), "seed {seed}, round {round}, step {step}");
                (db.is_good("check_read", &by), must)
            };
            assert_eq!(is, must, "seed {seed}, round {round}, step {step}: {by}, where {rule:?}");
            counts[usize::from(must)] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}: a test of little");
}
