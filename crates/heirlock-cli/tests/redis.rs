//! The command line over Redis: what only a server can do to it. The numbered cases that all stores have stand with those of the others.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common;
#[allow(dead_code)]
#[path = "../../heirlock/tests/common/redis/mod.rs"]
mod server;

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use common::tree::{lives, pid};
use common::{Place, Running, Store, eventually, stderr};
use rustix::process::Signal;
use server::Server;
use server::cluster::Cluster;
use server::sentinel::Watched;

const SECRET: &str = "hunter2";

/// `heirlock ARGS` in this store.
fn heirlock(place: &Place, store: &str, args: &[&str]) -> Command {
    let mut command = place.heirlock(args);
    command.env("HEIRLOCK_STORE", store).current_dir(place.folder.path());
    command
}

/// The one line of a verb that must end with 125, in time.
#[track_caller]
fn refused(place: &Place, store: &str, args: &[&str], most: Duration) -> String {
    let since = Instant::now();
    let output = heirlock(place, store, args).output().unwrap();
    let (took, text) = (since.elapsed(), stderr(&output));
    assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
    assert!(took < most, "{args:?}: {took:?}: {text}");
    assert!(text.starts_with("heirlock: ") && text.lines().count() == 1, "{args:?}: {text}");
    let shown = format!("{text}{}", String::from_utf8_lossy(&output.stdout));
    assert!(!shown.contains(SECRET), "{args:?}: {shown}");
    text
}

/// All that asks a store.
const VERBS: [&[&str]; 7] =
    [&["run", "a", "true"], &["run", "-n", "a", "true"], &["ls"], &["ls", "--json"], &["show", "a"], &["evict", "a"], &["doctor"]];

#[test]
fn who_is_not_let_in_is_told_why_and_where() {
    let (place, server) = (Place::new(), Server::start(&["--requirepass", SECRET, "--databases", "4"]));
    let (wrong, right) = (format!(":no-{SECRET}@"), format!(":{SECRET}@"));
    let address = server.url("").replace("redis://", "");
    for (store, why) in [
        (server.url(""), "refuses the user or the password"),
        (server.url(&wrong), "refuses the user or the password"),
        (server.url(&format!("nobody:{SECRET}@")), "refuses the user or the password"),
        (server.url(&right) + "/9", "has no such database: give a number"),
        (server.url(&right) + "/nine", "is no Redis URL"),
    ] {
        for verb in VERBS {
            let text = refused(&place, &store, verb, Duration::from_secs(4));
            assert!(text.contains(why) && text.contains(&address), "{verb:?}: {text}");
        }
    }
    assert!(heirlock(&place, &(server.url(&right) + "/3"), &["run", "-n", "a", "true"]).status().unwrap().success());
}

/// A user needs what the guide says, and is told what it lacks.
#[test]
fn who_is_not_permitted_what_locks_need_is_told_what() {
    let (place, server) = (Place::new(), Server::start(&[]));
    let mut admin = server.connection("");
    let mut set = |rules: &[&str]| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("app").arg("reset").arg("on").arg(format!(">{SECRET}")).arg(rules).exec(&mut admin).unwrap();
    };
    let store = server.url(&format!("app:{SECRET}@"));
    let commands: Vec<String> = heirlock::store::redis::COMMANDS.iter().map(|command| format!("+{command}")).collect();
    let all: Vec<&str> = commands.iter().map(String::as_str).chain(["~heirlock:*", "&heirlock:*"]).collect();
    set(&all);
    for verb in [&["run", "a", "true"][..], &["run", "--slots", "2", "pool", "true"], &["ls"], &["where"]] {
        let output = heirlock(&place, &store, verb).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{verb:?}");
    }
    // Of what the server itself refuses it names the command.
    for (missing, why) in [
        ("+evalsha", "'evalsha'"),
        ("+subscribe", "'subscribe'"),
        ("+hset", "executing the script"),
        ("+zadd", "executing the script"),
        ("~heirlock:*", "keys"),
        ("&heirlock:*", "channels"),
    ] {
        set(&all.iter().copied().filter(|rule| *rule != missing).collect::<Vec<_>>());
        // Some commands are needed by who waits, and not by who comes first.
        let held =
            Running::start(&mut place.heirlock(&["run", "--store", &server.url(""), "a", "--", "sh", "-c", "echo held; exec sleep 600"]));
        let held = held.wait_for_line("held");
        let text = refused(&place, &store, &["run", "-w", "5", "a", "true"], Duration::from_secs(4));
        for words in ["does not permit what locks need", why, "docs/stores.md"] {
            assert!(text.contains(words), "without {missing}, {words:?}: {text}");
        }
        drop(held);
    }
}

#[test]
fn something_else_under_the_name_of_a_lock_is_told_and_left() {
    let (place, server) = (Place::new(), Server::start(&[]));
    let mut admin = server.connection("");
    redis::cmd("SET").arg("heirlock:{a}").arg("mine").exec(&mut admin).unwrap();
    let store = server.url("");
    for verb in [&["run", "a", "true"][..], &["run", "-n", "a", "true"], &["show", "a"], &["evict", "--force", "a"]] {
        let text = refused(&place, &store, verb, Duration::from_secs(4));
        assert!(text.contains(&store) && text.contains("has something else under the name of a lock: remove that"), "{verb:?}: {text}");
    }
    assert_eq!(redis::cmd("GET").arg("heirlock:{a}").query::<String>(&mut admin).unwrap(), "mine");
    // The others are not in its way.
    assert!(heirlock(&place, &store, &["run", "b", "true"]).status().unwrap().success());
    assert!(heirlock(&place, &store, &["ls"]).status().unwrap().success());
}

#[test]
fn a_ttl_that_is_too_short_is_refused_before_the_store_is_asked() {
    let place = Place::over(Store::Redis);
    for ttl in ["0.05", "0.1", "2.9"] {
        let text = refused(&place, &place.store(), &["run", "--ttl", ttl, "a", "true"], Duration::from_secs(2));
        assert!(text.contains("give at least 3 seconds"), "{text}");
    }
}

/// Where one looks for a server, and none answers.
enum Away {
    /// Nobody listens.
    Closed(SocketAddr),
    /// It lets in, and says nothing.
    Silent(TcpListener),
    /// It does not even let in: its queue is full, and stays so.
    Full { address: SocketAddr, _queue: (rustix::fd::OwnedFd, Vec<std::net::TcpStream>) },
    /// A server that is stopped.
    Stopped(Server),
}

impl Away {
    fn full() -> Away {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            queued.push(stream);
        }
        Away::Full { address, _queue: (listener, queued) }
    }

    fn address(&self) -> String {
        match self {
            Away::Closed(address) | Away::Full { address, .. } => address.to_string(),
            Away::Silent(listener) => listener.local_addr().unwrap().to_string(),
            Away::Stopped(server) => server.url("").replace("redis://", ""),
        }
    }
}

#[test]
fn case_c10_a_server_that_does_not_answer_is_125_in_time() {
    let place = Place::new();
    let stopped = Server::start(&[]);
    stopped.signal(Signal::STOP);
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let all = [Away::Closed(closed), Away::Silent(TcpListener::bind(("127.0.0.1", 0)).unwrap()), Away::full(), Away::Stopped(stopped)];
    let patient: [&[&str]; 2] = [&["run", "-w", "2", "a", "true"], &["run", "-w", "2", "-E", "7", "a", "true"]];
    // Those with the tighter bound first, and by themselves.
    for (verbs, most) in [(&patient[..], Duration::from_secs(4)), (&VERBS, Duration::from_secs(12))] {
        std::thread::scope(|threads| {
            for (away, verb) in all.iter().flat_map(|away| verbs.iter().map(move |verb| (away, verb))) {
                let (place, store) = (&place, format!("redis://app:{SECRET}@{}/", away.address()));
                threads.spawn(move || {
                    let text = refused(place, &store, verb, most);
                    assert!(text.contains(&away.address()) && text.contains("answer"), "{verb:?}: {text}");
                });
            }
        });
    }
}

/// Kills the server that has `a`, and starts it again when each of the verbs has found that it is away: they get in, then.
fn gets_in_when_it_is_back(place: &Place, store: &str, server: &mut Server, is_noticed: impl Fn() -> bool) {
    server.kill();
    eventually("it is seen that it is away", is_noticed);
    // None of the runs finds that another one holds.
    let verbs =
        [(&["run", "a", "true"][..], 0), (&["run", "-n", "--slots", "9", "seats", "true"], 0), (&["ls"], 0), (&["show", "unused"], 1)];
    let said = |nth: usize| place.path(&format!("said {nth}"));
    let text = |nth| std::fs::read_to_string(said(nth)).unwrap();
    let start = |nth: usize| {
        let mut command = heirlock(place, store, &[&["-v"], verbs[nth].0].concat());
        Running::start(command.stderr(std::fs::File::create(said(nth)).unwrap()))
    };
    let running: Vec<Running> = (0..verbs.len()).map(start).collect();
    for (nth, (verb, _)) in verbs.iter().enumerate() {
        eventually(&format!("{verb:?} has not reached it"), || text(nth).contains("trying again"));
    }
    server.again();
    for (nth, running) in running.into_iter().enumerate() {
        let (verb, code) = verbs[nth];
        assert_eq!(running.finish().status.code(), Some(code), "{verb:?}: {}", text(nth));
    }
}

#[test]
fn who_comes_while_there_is_no_primary_gets_in_when_there_is_one() {
    let place = Place::new();
    let mut watched = Watched::start(Duration::from_secs(1), &[]);
    let (primary, replica) = (watched.primary(), 1 - watched.primary());
    // Nobody else takes its place.
    watched.servers[replica].kill();
    let (store, Watched { servers, sentinels }) = (watched.url(), &mut watched);
    // They have all seen it: who asks finds that none is named, and not one that is not there.
    gets_in_when_it_is_back(&place, &store, &mut servers[primary], || sentinels.iter().all(|sentinel| !names_a_primary(sentinel)));
}

#[test]
fn who_comes_while_a_node_is_away_gets_in_when_it_is_back() {
    let (place, mut cluster) = (Place::new(), Cluster::start(0, Duration::from_secs(60), &[]));
    let node = cluster.owner(cluster.slot("a"));
    // So do these.
    assert!(["seats", "unused"].iter().all(|key| cluster.owner(cluster.slot(key)) == node));
    let store = cluster.url();
    gets_in_when_it_is_back(&place, &store, &mut cluster.nodes[node], || true);
}

fn names_a_primary(sentinel: &Server) -> bool {
    let masters: Vec<std::collections::HashMap<String, String>> = sentinel.ask(&["SENTINEL", "MASTERS"]).unwrap();
    masters.iter().any(|master| !master["flags"].contains("s_down"))
}

/// It says so when it has waited, and at once where waiting is of no use.
#[test]
fn who_comes_where_there_is_no_primary_is_told_in_time() {
    let place = Place::new();
    let mut watched = Watched::start(Duration::from_secs(1), &[]);
    let store = watched.url();
    let unknown = refused(&place, &store.replace("/locks", "/lock"), &["run", "a", "true"], Duration::from_secs(4));
    assert!(unknown.contains("names no service that its Sentinels know"), "{unknown}");
    let nobody = store.replace(
        &watched.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect::<Vec<_>>().join(","),
        "127.0.0.1:1,127.0.0.1:2",
    );
    let text = refused(&place, &nobody, &["run", "a", "true"], Duration::from_secs(4));
    assert!(text.contains("127.0.0.1:1") && text.contains("does not answer"), "{text}");
    watched.servers.iter_mut().for_each(Server::kill);
    std::thread::scope(|threads| {
        let (place, store) = (&place, &store);
        threads.spawn(move || {
            let text = refused(place, store, &["run", "-w", "2", "a", "true"], Duration::from_secs(4));
            assert!(text.contains(store) && text.contains("answer"), "{text}");
        });
        for verb in VERBS {
            threads.spawn(move || {
                let text = refused(place, store, verb, Duration::from_secs(12));
                assert!(text.contains(store) && text.contains("name no primary of this service now"), "{verb:?}: {text}");
            });
        }
    });
}

/// Holds `a` until its stdin is closed, whatever it is told.
fn holder(place: &Place, store: &str, ttl: &str) -> Running {
    let script = "trap '' TERM; echo $$ > leader; echo held; while read line; do :; done; exit 4";
    let mut command = heirlock(place, store, &["run", "--ttl", ttl, "a", "--", "sh", "-c", script]);
    Running::start(command.stdin(std::process::Stdio::piped())).wait_for_line("held")
}

fn waiter(place: &Place, store: &str, options: &[&str], nth: usize) -> Running {
    let running = Running::start(&mut heirlock(place, store, &[&["run"], options, &["a", "--", "sh", "-c", "exit 5"]].concat()));
    let count = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).matches("waits ").count();
    eventually("it waits", || count(heirlock(place, store, &["show", "a"]).output().unwrap()) == nth);
    running
}

/// A server that is killed, and one that is stopped: whoever holds ends in time, and whoever may wait for so long only does not take it for held.
#[test]
fn a_server_that_is_away_for_longer_than_the_ttl_ends_the_command_and_is_not_busy() {
    for is_killed in [true, false] {
        let (place, mut server) = (Place::new(), Server::start(&["--appendonly", "yes", "--appendfsync", "always"]));
        let store = server.url("");
        let holding = holder(&place, &store, "3");
        let (hasty, patient) = (waiter(&place, &store, &["-w", "4", "-E", "7"], 1), waiter(&place, &store, &[], 2));
        let leader = pid(&place.path("leader"));
        let since = Instant::now();
        if is_killed {
            server.kill();
        } else {
            server.signal(Signal::STOP);
        }
        eventually("the command has ended", || !lives(leader));
        assert!(since.elapsed() < Duration::from_secs(3), "its ttl: {:?}", since.elapsed());
        let output = holding.finish();
        assert_eq!(output.status.code(), Some(79), "{output:?}");
        assert!(stderr(&output).contains("the lock on a is lost: it could not be renewed"), "{output:?}");
        let output = hasty.finish();
        assert_eq!(output.status.code(), Some(125), "nobody has said that it is held: {output:?}");
        assert!(stderr(&output).contains(&store) && since.elapsed() < Duration::from_secs(8), "{:?}: {output:?}", since.elapsed());
        // Who waits for as long as it takes gets in when the server is back.
        if is_killed {
            server.again();
        } else {
            server.signal(Signal::CONT);
        }
        let output = patient.finish();
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        // A server that is stopped may yet answer.
        assert!(!is_killed || stderr(&output).contains("trying again"), "{output:?}");
    }
}

#[test]
fn a_short_outage_is_ridden_out() {
    let (place, mut server) = (Place::new(), Server::start(&["--appendonly", "yes", "--appendfsync", "always"]));
    let store = server.url("");
    let mut holding = holder(&place, &store, "15");
    let waiting = waiter(&place, &store, &["-w", "60"], 1);
    for _ in 0..2 {
        server.kill();
        // For so long it is away.
        std::thread::sleep(Duration::from_millis(300));
        server.again();
        assert_eq!(heirlock(&place, &store, &["run", "-n", "a", "true"]).status().unwrap().code(), Some(75));
    }
    drop(holding.child.stdin.take());
    let output = holding.finish();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let output = waiting.finish();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// TLS with a user and a password, Sentinels, a cluster: what `ci/services` has started. The password is in a file, whatever stands before the hosts.
#[test]
fn cases_c01_c02_c06_c09_and_c11_over_every_form_of_redis() {
    let this = env!("CARGO_BIN_EXE_heirlock");
    for form in ["REDIS_TLS", "REDIS_SENTINEL", "REDIS_CLUSTER"] {
        let name = format!("HEIRLOCK_TEST_{form}");
        let said = std::env::var(&name).unwrap_or_else(|_| panic!("{name}: run the tests by ci/test, or by ci/services"));
        let place = Place::new();
        let (scheme, rest) = said.split_once("://").unwrap();
        // Where the server has no users, it takes any password of the one that it has.
        let (user, password, hosts) = match rest.split_once('@') {
            Some((who, hosts)) => (who.split_once(':').unwrap().0, who.split_once(':').unwrap().1.to_owned(), hosts),
            None => ("default", SECRET.to_owned(), rest),
        };
        std::fs::write(place.path("password"), &password).unwrap();
        let sign = if hosts.contains('?') { '&' } else { '?' };
        let store = format!("{scheme}://{user}@{hosts}{sign}prefix={}/", place.folder.path().display());
        let run = |args: &[&str]| {
            let mut command = heirlock(&place, &store, args);
            // The tests know it; the command has no need to.
            command.env("HEIRLOCK_PASSWORD_FILE", place.path("password")).env_remove(&name);
            command
        };
        let output = |args: &[&str]| {
            let output = run(args).output().unwrap();
            let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
            assert!(!text.contains(&password), "{form}, {args:?}: {text}");
            (output.status.code(), text)
        };
        if rest.contains('@') {
            // That of another is as little shown.
            std::fs::write(place.path("password"), format!("{password}x")).unwrap();
            let (code, text) = output(&["-vv", "run", "a", "true"]);
            assert!(code == Some(125) && text.contains("refuses the user or the password"), "{form}: {text}");
            std::fs::write(place.path("password"), &password).unwrap();
        }
        assert_eq!(output(&["run", "a", "--", "sh", "-c", "exit 7"]), (Some(7), String::new()), "{form}");
        let (code, text) = output(&["run", "a", "--", this, "run", "-w", "9", "a", "true"]);
        assert!(code == Some(80) && text.contains("so it would wait for itself"), "{form}: {code:?} {text}");
        assert_eq!(output(&["run", "a", "--", this, "run", "-n", "b", "true"]), (Some(0), String::new()), "{form}");
        let held = Running::start(&mut run(&["run", "a", "--", "sh", "-c", "env; echo held; exec sleep 600"]));
        let mut environment = String::new();
        let mut held = held;
        while !environment.ends_with("held\n") {
            environment += &(held.read_line() + "\n");
        }
        assert!(environment.contains(&format!("HEIRLOCK_STORE={scheme}://{user}@")) && !environment.contains(&password), "{environment}");
        assert_eq!(output(&["run", "-n", "a", "true"]).0, Some(75), "{form}");
        for args in [&["ls", "--json"][..], &["show", "a"], &["where"], &["where", "--json"]] {
            let (code, text) = output(args);
            assert!(code == Some(0) && !text.is_empty(), "{form}, {args:?}: {text}");
        }
        // It may warn of what the tests' servers do not keep; and tells the latency of all of them.
        let (code, text) = output(&["doctor"]);
        assert!(
            matches!(code, Some(0 | 1)) && text.lines().any(|line| line.starts_with("ok ") && line.contains("latency")),
            "{form}: {text}"
        );
        assert_eq!(output(&["evict", "a"]).0, Some(0), "{form}");
        assert_eq!(held.finish().status.code(), Some(81), "{form}");
    }
}
