//! A snapshot as JSON, as text and as a drawing.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

use heirlock::observe::{Edge, Holder, Lock, Party, Snapshot, Waiter, WorkerView};

fn worker(id: u64, name: &str) -> WorkerView {
    WorkerView { id, name: name.into(), host: "db1".into(), pid: 42 }
}

fn party(worker: WorkerView, mode: &'static str) -> Party {
    Party { worker, command: None, why: None, mode }
}

fn holder(worker: WorkerView, priority: i32, effective: i32) -> Holder {
    Holder {
        party: party(worker, "exclusive"),
        slot: None,
        fence: None,
        since_ms: 1_200,
        expires_in_ms: None,
        priority,
        effective,
        revoked: None,
        site: Some("src/import.rs:10".into()),
    }
}

fn waiter(position: usize, worker: WorkerView, priority: i32) -> Waiter {
    Waiter {
        position,
        party: party(worker, "exclusive"),
        priority,
        effective: priority,
        waiting_ms: 300,
        deadline_in_ms: None,
        site: Some("src/night.rs:7".into()),
    }
}

fn lock(name: &str, holders: Vec<Holder>, queue: Vec<Waiter>) -> Lock {
    Lock { name: name.into(), kind: "mutex", unknown_releaser: false, holders, queue, resting_ms: None }
}

fn edge(from: &WorkerView, to: &WorkerView, lock: &str) -> Edge {
    Edge { from: from.clone(), to: to.clone(), lock: Some(lock.into()) }
}

/// `import` holds `db` and waits for `cache`, which `night` holds, who waits for `db`, and `page` does, too.
fn circle() -> Snapshot {
    let [import, night, page] = [(4, "import"), (7, "night"), (9, "page")].map(|(id, name)| worker(id, name));
    let late = Waiter { deadline_in_ms: Some(4_700), ..waiter(2, night.clone(), -1) };
    Snapshot {
        at: 1_000,
        locks: vec![
            lock("db", vec![holder(import.clone(), 1, 9)], vec![waiter(1, page.clone(), 9), late]),
            lock("cache", vec![holder(night.clone(), -1, 9)], vec![waiter(1, import.clone(), 1)]),
        ],
        edges: vec![edge(&page, &import, "db"), edge(&night, &import, "db"), edge(&import, &night, "cache")],
        suspected: vec![vec!["import waits for cache".into(), "night waits for db".into()]],
        ..Snapshot::default()
    }
}

#[test]
fn text_tells_who_holds_who_waits_and_what_looks_wrong() {
    let expected = "\
db (mutex): 2 waiting
  held by  import  priority 1, raised to 9   for 1.2 s              at src/import.rs:10
  1.       page    priority 9                for 0.3 s              at src/night.rs:7
  2.       night   priority -1               for 0.3 s  4.7 s left  at src/night.rs:7
cache (mutex): 1 waiting
  held by  night   priority -1, raised to 9  for 1.2 s              at src/import.rs:10
  1.       import  priority 1                for 0.3 s              at src/night.rs:7
who waits for whom
  page waits for import: db
  night waits for import: db
  import waits for night: cache
suspected cycles
  import waits for cache
    night waits for db
";
    assert_eq!(circle().to_string(), expected);
}

#[test]
fn text_tells_workers_apart_by_as_much_as_it_takes() {
    let twins = lock("db", vec![holder(worker(4, "import"), 0, 0)], vec![waiter(1, worker(5, "import"), 0)]);
    let mut snapshot = Snapshot { locks: vec![twins], ..Snapshot::default() };
    let text = snapshot.to_string();
    assert!(text.contains(" import #4 ") && text.contains(" import #5 "), "{text}");
    // Elsewhere the same name is another worker.
    snapshot.locks[0].queue[0].party.worker.pid = 43;
    let text = snapshot.to_string();
    assert!(text.contains(" import @db1:42 ") && text.contains(" import @db1:43 "), "{text}");
}

#[test]
fn text_has_what_applies() {
    let mut lease = lock("backup", vec![holder(worker(1, "cron"), 0, 0)], Vec::new());
    lease.kind = "lease";
    let held = &mut lease.holders[0];
    (held.slot, held.fence, held.expires_in_ms, held.revoked) = (Some(2), Some(77), Some(20_000), Some(true));
    (held.party.command, held.party.why) = (Some("pg_dump".into()), Some("nightly".into()));
    let mut rests = lock("rests", Vec::new(), Vec::new());
    rests.resting_ms = Some(3_000);
    let mut semaphore = lock("permits", Vec::new(), vec![waiter(1, worker(1, "cron"), 0)]);
    (semaphore.kind, semaphore.unknown_releaser) = ("semaphore", true);
    let snapshot = Snapshot {
        locks: vec![lease, rests, semaphore],
        edges: vec![Edge { from: worker(1, "cron"), to: worker(2, "arm"), lock: None }],
        deadlocks: vec![vec!["a waits for b".into()], vec!["b waits for a".into()]],
        losses: vec!["lost one".into()],
        inversions: vec!["db before cache".into()],
        ..Snapshot::default()
    };
    let expected = "\
backup (lease)
  held by  cron  slot 2  priority 0  for 1.2 s  20 s left, revoked  fence 77  at src/import.rs:10  pg_dump  (nightly)
rests (mutex): free, rests for 3.0 s
permits (semaphore): not held, 1 waiting, others than its holders may release it
  1.       cron          priority 0  for 0.3 s                                at src/night.rs:7
who waits for whom
  cron waits for arm, its fork
deadlocks found lately
  a waits for b
  b waits for a
leases lost lately
  lost one
locks taken in both orders
  db before cache
";
    assert_eq!(snapshot.to_string(), expected);
}

#[test]
fn whatever_a_name_contains_it_stays_on_its_line() {
    let odd = lock("a\nb\u{1b}[2J", vec![holder(worker(1, "x\ry"), 0, 0)], Vec::new());
    let snapshot = Snapshot { locks: vec![odd], inversions: vec!["one\ntwo".into()], ..Snapshot::default() };
    let text = snapshot.to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn nothing_is_said_to_be_nothing() {
    assert_eq!(Snapshot::default().to_string(), "nothing is held or waited for\n");
}

/// The order of the fields and which are absent is what others rely on.
#[test]
fn json_has_its_fixed_shape() {
    let mut snapshot = circle();
    snapshot.locks.truncate(1);
    snapshot.locks[0].queue.truncate(1);
    snapshot.edges.truncate(1);
    let import = r#"{"id":4,"name":"import","host":"db1","pid":42}"#;
    let page = r#"{"id":9,"name":"page","host":"db1","pid":42}"#;
    let expected = format!(
        r#"{{"at":1000,"locks":[{{"name":"db","kind":"mutex","holders":[{{"worker":{import},"mode":"exclusive","since_ms":1200,"priority":1,"effective":9,"site":"src/import.rs:10"}}],"queue":[{{"position":1,"worker":{page},"mode":"exclusive","priority":9,"effective":9,"waiting_ms":300,"site":"src/night.rs:7"}}]}}],"edges":[{{"from":{page},"to":{import},"lock":"db"}}],"suspected":[["import waits for cache","night waits for db"]],"deadlocks":[],"losses":[]}}"#
    );
    assert_eq!(serde_json::to_string(&snapshot).unwrap(), expected);

    let mut all = Snapshot { store: Some("memory:x".into()), inversions: vec!["i".into()], ..Snapshot::default() };
    let held = Holder {
        party: Party { command: Some("c".into()), why: Some("w".into()), ..party(worker(4, "import"), "slot") },
        slot: Some(1),
        fence: Some(2),
        expires_in_ms: Some(3),
        revoked: Some(false),
        ..holder(worker(4, "import"), 1, 1)
    };
    let waits = Waiter { deadline_in_ms: Some(5), ..waiter(1, worker(9, "page"), 9) };
    all.locks = vec![Lock { unknown_releaser: true, resting_ms: Some(6), ..lock("k", vec![held], vec![waits]) }];
    all.edges = vec![Edge { from: worker(4, "import"), to: worker(9, "page"), lock: None }];
    let expected = format!(
        r#"{{"store":"memory:x","at":0,"locks":[{{"name":"k","kind":"mutex","unknown_releaser":true,"holders":[{{"worker":{import},"command":"c","why":"w","mode":"slot","slot":1,"fence":2,"since_ms":1200,"expires_in_ms":3,"priority":1,"effective":1,"revoked":false,"site":"src/import.rs:10"}}],"queue":[{{"position":1,"worker":{page},"mode":"exclusive","priority":9,"effective":9,"waiting_ms":300,"deadline_in_ms":5,"site":"src/night.rs:7"}}],"resting_ms":6}}],"edges":[{{"from":{import},"to":{page}}}],"suspected":[],"deadlocks":[],"losses":[],"inversions":["i"]}}"#
    );
    assert_eq!(serde_json::to_string(&all).unwrap(), expected);
}

/// What a drawing consists of, read by Graphviz's grammar as far as we use it: `digraph ID { statement; ... }`, a statement being
/// `ID`, `ID -> ID` or `ID = ID`, with or without `[ID=ID, ...]`.
#[derive(Debug, Default)]
struct Drawing {
    /// Each node with its attributes.
    nodes: Vec<(String, Attributes)>,
    arrows: Vec<(String, String, Attributes)>,
}

type Attributes = Vec<(String, String)>;

impl Drawing {
    fn read(dot: &str) -> Drawing {
        let mut tokens = tokens(dot).into_iter().peekable();
        let mut next = || tokens.next().unwrap_or_default();
        assert_eq!((next(), next(), next()), ("digraph".into(), "heirlock".into(), "{".into()));
        let mut drawing = Drawing::default();
        loop {
            let first = next();
            if first == "}" {
                break;
            }
            let mut second = next();
            let mut target = None;
            if second == "=" {
                let _value = next();
                assert_eq!(next(), ";");
                continue;
            }
            if second == "->" {
                target = Some(next());
                second = next();
            }
            assert_eq!(second, "[", "after {first}");
            let mut attributes = Vec::new();
            loop {
                let (name, equals, value) = (next(), next(), next());
                assert_eq!(equals, "=");
                attributes.push((name, value));
                match next().as_str() {
                    "," => {}
                    "]" => break,
                    other => panic!("{other:?} among attributes"),
                }
            }
            assert_eq!(next(), ";");
            match target {
                Some(target) => drawing.arrows.push((first, target, attributes)),
                None if first == "node" || first == "edge" => {}
                None => drawing.nodes.push((first, attributes)),
            }
        }
        assert_eq!(tokens.next(), None, "after the closing brace");
        drawing
    }

    fn called(&self, label: &str) -> &str {
        let of = |(_, attributes): &&(String, Attributes)| attributes.contains(&("label".into(), label.into()));
        &self.nodes.iter().find(of).unwrap_or_else(|| panic!("no node {label:?} in {self:#?}")).0
    }

    fn is_red(&self, from: &str, to: &str) -> bool {
        let arrow = self.arrows.iter().find(|arrow| (arrow.0.as_str(), arrow.1.as_str()) == (from, to));
        arrow.unwrap_or_else(|| panic!("no arrow from {from} to {to}")).2.contains(&("color".into(), "red".into()))
    }
}

/// Words, quoted texts (with what they mean: `\n` is a line's end) and signs.
fn tokens(dot: &str) -> Vec<String> {
    let mut chars = dot.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        let mut token = String::new();
        match c {
            c if c.is_whitespace() => continue,
            '"' => loop {
                match chars.next().unwrap_or_else(|| panic!("a quoted text does not end")) {
                    '"' => break,
                    '\\' => match chars.next() {
                        Some('n') => token.push('\n'),
                        Some(c @ ('"' | '\\')) => token.push(c),
                        other => panic!("{other:?} is escaped"),
                    },
                    c => {
                        assert!(!c.is_control(), "{c:?} within quotes");
                        token.push(c);
                    }
                }
            },
            c if c.is_alphanumeric() || c == '_' => {
                token.push(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    token.push(c);
                }
            }
            '-' => {
                assert_eq!(chars.next(), Some('>'));
                token = "->".into();
            }
            '{' | '}' | '[' | ']' | '=' | ',' | ';' => token.push(c),
            other => panic!("{other:?} outside of quotes"),
        }
        tokens.push(token);
    }
    tokens
}

#[test]
fn a_drawing_shows_workers_locks_and_red_cycles() {
    let drawing = Drawing::read(&circle().to_dot());
    assert_eq!((drawing.nodes.len(), drawing.arrows.len()), (5, 5));
    let [import, night, page] = ["import", "night", "page"].map(|name| drawing.called(name));
    let [db, cache] = ["db\nmutex", "cache\nmutex"].map(|label| drawing.called(label));
    for (from, to) in [(db, import), (import, cache), (cache, night), (night, db)] {
        assert!(drawing.is_red(from, to), "{from} to {to}");
    }
    assert!(!drawing.is_red(page, db));
    let shape = |node: &str, shape: &str| drawing.nodes.iter().any(|(id, all)| id == node && all.contains(&("shape".into(), shape.into())));
    assert!(shape(page, "ellipse") && shape(db, "box"));
}

#[test]
fn a_fork_is_drawn_and_may_be_on_a_cycle() {
    let (parent, fork) = (worker(1, "parent"), worker(2, "fork"));
    let snapshot = Snapshot {
        locks: vec![lock("a", vec![holder(parent.clone(), 0, 0)], vec![waiter(1, fork.clone(), 0)])],
        edges: vec![edge(&fork, &parent, "a"), Edge { from: parent.clone(), to: fork.clone(), lock: None }],
        ..Snapshot::default()
    };
    let drawing = Drawing::read(&snapshot.to_dot());
    assert!(drawing.is_red(drawing.called("parent"), drawing.called("fork")));
    assert!(drawing.is_red(drawing.called("fork"), drawing.called("a\nmutex")));
}

#[test]
fn a_diamond_is_not_red() {
    let [low, left, right, top] = [(1, "low"), (2, "left"), (3, "right"), (4, "top")].map(|(id, name)| worker(id, name));
    let snapshot = Snapshot {
        locks: vec![
            lock("a", vec![holder(low.clone(), 0, 0)], vec![waiter(1, left.clone(), 0), waiter(2, right.clone(), 0)]),
            lock("b", vec![holder(left.clone(), 0, 0)], vec![waiter(1, top.clone(), 0)]),
            lock("c", vec![holder(right.clone(), 0, 0)], vec![waiter(1, top.clone(), 0)]),
        ],
        edges: vec![edge(&left, &low, "a"), edge(&right, &low, "a"), edge(&top, &left, "b"), edge(&top, &right, "c")],
        ..Snapshot::default()
    };
    assert!(!snapshot.to_dot().contains("red"));
}

/// Names are anybody's: none of them may end a text early, begin a command or draw something else.
#[test]
fn a_drawing_quotes_every_name() {
    let names = ["\"", "\\", "\\\"", "a\\", "]; x -> y [", "{\"}", "two\nlines", "tab\there", "ü ✓ 锁", "", "\\N", "a\"b\\nc"];
    for name in names {
        let snapshot = Snapshot {
            locks: vec![lock(name, vec![holder(worker(1, name), 0, 0)], vec![waiter(1, worker(2, name), 3)])],
            ..Snapshot::default()
        };
        let drawing = Drawing::read(&snapshot.to_dot());
        assert_eq!((drawing.nodes.len(), drawing.arrows.len()), (3, 2), "{name:?}");
        let shown: String = name.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        drawing.called(&format!("{shown}\nmutex"));
    }
    let snapshot = Snapshot { locks: vec![lock("a&lt;b", Vec::new(), Vec::new())], ..Snapshot::default() };
    assert_eq!(Drawing::read(&snapshot.to_dot()).called("a&amp;lt;b\nmutex"), "l0");
}

#[test]
fn a_drawing_of_nothing_is_one() {
    let drawing = Drawing::read(&Snapshot::default().to_dot());
    assert!(drawing.nodes.is_empty() && drawing.arrows.is_empty());
}
