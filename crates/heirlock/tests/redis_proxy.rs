//! What becomes of leases when the network between them and a Redis server loses, delays and cuts: S04 to S07 as they happen on a wire, and hosts that
//! are silent.
#![cfg(feature = "redis")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod common {
    pub(crate) mod proxy;
    // This program uses a part of what all share.
    #[allow(dead_code)]
    pub(crate) mod redis;
}

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::proxy::{Loss, Proxy, Way};
use common::redis::Server;
use heirlock::lease::{Acquire, Key, KeyView, LostReason, Released, Store};
use heirlock::{Kind, Lease, Locks};
use pollster::block_on;
use rustix::process::Signal;

/// Verbs, as they stand in a request.
const ENTER: &str = "$5\r\nenter\r\n";
const BEAT: &str = "$4\r\nbeat\r\n";
const LEAVE: &str = "$5\r\nleave\r\n";
/// Longer than anything that goes well.
const FOR_EVER: Duration = Duration::from_secs(60);
/// How long the store takes for a connection to be made, and how long it waits for an answer before it gives one up.
const PATIENCE: Duration = Duration::from_secs(5);

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A server, a proxy before it, a session through that, one beside it, and a store to look with.
struct World {
    proxy: Proxy,
    locks: Locks,
    others: Locks,
    store: Arc<dyn Store>,
    server: Server,
}

impl World {
    fn new() -> World {
        let server = Server::start(&[]);
        let proxy = Proxy::before(server.port());
        let locks = block_on(Locks::connect(&url(&proxy))).unwrap();
        let (others, store) =
            (block_on(Locks::connect(&server.url(""))).unwrap(), block_on(heirlock::open_store(&server.url(""))).unwrap());
        let world = World { proxy, locks, others, store, server };
        // The server has the scripts from now on, so that each verb is one request.
        assert_eq!(get(world.locks.lock("first")).release_blocking().unwrap(), Released::InTime);
        world
    }

    fn view(&self, name: &str) -> KeyView {
        block_on(self.store.inspect(&Key::new(name).unwrap())).unwrap()
    }

    fn fence(&self, name: &str) -> Option<u64> {
        match self.view(name).holders.as_slice() {
            [holder] => Some(holder.fence),
            _ => None,
        }
    }

    fn is_empty(&self) -> bool {
        block_on(self.store.list("")).unwrap().is_empty()
    }
}

fn url(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

fn get(call: Acquire) -> Lease {
    call.timeout(FOR_EVER).blocking().unwrap()
}

fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    wait_within(what, FOR_EVER, condition);
}

fn wait_within(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < limit, "after {:?} still waiting for {what}", since.elapsed());
        thread::sleep(ms(2));
    }
}

/// Asks, and gives up after so long, as a dropped future does.
fn give_up_after(span: Duration, call: Acquire) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let outcome = runtime.block_on(async { tokio::time::timeout(span, call.into_future()).await });
    assert!(outcome.is_err(), "it cannot know that it holds: {:?}", outcome.map(|lease| lease.map(|lease| lease.fence())));
}

/// The reply of `enter` is lost: the retry finds the same ticket and the same fence, and validity counts from the retry's send.
#[test]
fn case_s04_the_retry_finds_the_same_ticket() {
    let mut world = World::new();
    let ttl = ms(5_000);
    // The first is carried out; retries do not arrive until the fence has been read.
    world.proxy.next(ENTER, [Loss::Reply]);
    world.proxy.always(ENTER, Loss::Request);
    let locks = world.locks.clone();
    let call = thread::spawn(move || {
        let lease = get(locks.lock("s04").ttl(ttl));
        // The end of validity lies between these two.
        let (before, remaining, after) = (Instant::now(), lease.remaining(), Instant::now());
        (lease, before + remaining, after + remaining)
    });
    wait_for("the first enter to be carried out", || world.fence("s04").is_some());
    let fence = world.fence("s04").unwrap();
    wait_for("a retry", || world.proxy.counts().cut >= 2);
    let healed = Instant::now();
    world.proxy.heal();
    let (lease, from, to) = call.join().unwrap();
    let got = Instant::now();
    assert_eq!(lease.fence(), fence, "the same ticket");
    let now = world.view("s04");
    assert_eq!((now.holders.len(), now.queue.len(), now.last_fence), (1, 0, fence), "one ticket and one grant");
    let margin = ttl / 100 + ms(2);
    assert!(to + margin + ms(2) >= healed + ttl, "validity counts from before the retry was sent: {:?} short", healed + ttl - to);
    assert!(from + margin <= got + ttl, "validity is longer than the ttl from the retry");
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    assert!(world.is_empty());
}

/// Dropping instead leaves no lock behind, whether the connection was cut or nothing comes back, and also when the `enter` arrives after the `leave`.
#[test]
fn case_s04_dropping_leaves_nothing() {
    let mut world = World::new();
    world.proxy.next(ENTER, [Loss::Reply]);
    world.proxy.always(ENTER, Loss::Request);
    give_up_after(ms(100), world.locks.lock("s04").ttl(ms(5_000)));
    wait_within("the lock of who was cut off to go", ms(2_000), || world.is_empty());
    world.proxy.heal();

    world.proxy.next(ENTER, [Loss::Late]);
    world.proxy.always(ENTER, Loss::Request);
    let leaves = world.proxy.asked(LEAVE);
    give_up_after(ms(100), world.locks.lock("s04").ttl(ms(5_000)));
    wait_for("the leave", || world.proxy.asked(LEAVE) > leaves);
    world.proxy.heal();
    // Answered: whoever asks over the same connection comes after it.
    drop(get(world.locks.lock("second")));
    assert_eq!(world.proxy.counts().late, 0, "the leave comes first");
    world.proxy.deliver();
    wait_for("the late enter", || world.proxy.counts().late == 1);
    // It has found that its ticket is gone.
    wait_within("the second lease to be given back", ms(2_000), || world.is_empty());

    world.proxy.next(ENTER, [Loss::Silence]);
    give_up_after(ms(100), world.locks.lock("s04").ttl(ms(60_000)));
    // The connection that is silent is given up first.
    wait_within("the lock of whom nothing reached any more to go", 2 * PATIENCE, || world.is_empty());
}

/// The reply of `leave` is lost and retried after someone else has entered: the other keeps it, and the leaver is told that it had released in time.
#[test]
fn case_s05_the_reply_of_leave_is_lost() {
    let mut world = World::new();
    let ttl = ms(5_000);
    let lease = get(world.locks.lock("s05").ttl(ttl));
    world.proxy.next(LEAVE, [Loss::Reply]);
    world.proxy.always(LEAVE, Loss::Request);
    let cut = world.proxy.counts().cut;
    let release = thread::spawn(move || lease.release_blocking());
    let other = get(world.others.lock("s05").ttl(ttl));
    wait_for("a retry", || world.proxy.counts().cut >= cut + 2);
    world.proxy.heal();
    assert_eq!(release.join().unwrap().unwrap(), Released::InTime);
    assert!(other.is_valid());
    assert_eq!(world.fence("s05"), Some(other.fence()), "the other keeps it");
    assert_eq!(other.release_blocking().unwrap(), Released::InTime);
    assert!(world.is_empty());
}

/// Renewal fails twice then works: the lease goes on.
#[test]
fn case_s06_renewal_fails_twice_then_works() {
    thread::scope(|threads| {
        for two in [[Loss::Request, Loss::Request], [Loss::Reply, Loss::Reply], [Loss::Request, Loss::Reply]] {
            threads.spawn(move || {
                let world = World::new();
                let ttl = ms(3_000);
                let lease = get(world.locks.lock("s06").ttl(ttl));
                let (since, before) = (Instant::now(), world.proxy.counts());
                world.proxy.next(BEAT, two);
                wait_for("twice the ttl", || since.elapsed() > 2 * ttl);
                assert!(lease.is_valid(), "{two:?}: {:?}", lease.lost_reason());
                assert_eq!(world.fence("s06"), Some(lease.fence()));
                assert_eq!(world.proxy.counts().cut, before.cut + 2);
                // Nobody has to ask for a connection to be made anew: at most one request finds that there is none.
                assert!(world.proxy.counts().connections >= before.connections + 2);
                assert!(world.proxy.asked(BEAT) > 4, "two failed, and it was renewed at least every ttl/3");
                assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
                assert!(world.is_empty());
            });
        }
    });
}

/// Renewal hangs for ever: `lost` fires by timer before the store could expire it. Whether nothing arrives, or all but nothing comes back.
#[test]
fn case_s06_renewal_hangs_for_ever() {
    thread::scope(|threads| {
        for ways in [&[Way::Requests, Way::Replies][..], &[Way::Requests], &[Way::Replies]] {
            threads.spawn(move || {
                let mut world = World::new();
                let ttl = ms(6_000);
                let sent = Instant::now();
                let lease = get(world.locks.lock("s06").ttl(ttl));
                let held = Instant::now();
                // Nor does another connection come about.
                world.proxy.refuse();
                for way in ways {
                    world.proxy.swallow(*way);
                }
                let others = world.others.clone();
                let next = thread::spawn(move || (get(others.lock("s06")), Instant::now()));
                let reason = block_on(lease.lost());
                let lost = Instant::now();
                assert_eq!(reason, LostReason::Expired, "{ways:?}");
                // Where requests arrive, each has renewed it for others.
                let (other, got) = next.join().unwrap();
                assert!(lost < got, "{ways:?}: two held at once, for {:?}", lost - got);
                assert!(other.fence() > lease.fence());
                if ways.contains(&Way::Requests) {
                    assert!(lost < held + ttl && got + ms(1) >= sent + ttl, "{ways:?}: lost {:?}, next {:?}", lost - sent, got - sent);
                    assert!(got <= held + ttl + 2 * ms(1_000), "the next came {:?} after the last renewal", got - held);
                }
            });
        }
    });
}

/// The notices of grants are lost: the first waiter in line still holds within 1.5 s.
#[test]
fn case_s07_notices_are_lost() {
    let world = World::new();
    world.proxy.set_deaf(true);
    for _ in 0..3 {
        let first = get(world.others.lock("s07"));
        let locks = world.locks.clone();
        let next = thread::spawn(move || (get(locks.lock("s07")), Instant::now()));
        wait_for("the waiter", || world.view("s07").queue.len() == 1);
        let (hints, released) = (world.proxy.counts().hints, Instant::now());
        drop(first);
        let (lease, held) = next.join().unwrap();
        println!("the next without a notice: {:?}", held - released);
        assert!(held - released <= ms(1_000) + 2 * ms(500), "{:?}", held - released);
        assert_eq!(world.proxy.counts().hints, hints + 1, "it was told, and did not hear it");
        assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    }
    assert!(world.is_empty());
}

/// Half a second each way: leases are held and handed on, and validity counts from before the request was sent.
#[test]
fn a_slow_network() {
    let world = World::new();
    let (ttl, delay) = (ms(6_000), ms(500));
    world.proxy.set_delay(delay);
    let called = Instant::now();
    let lease = get(world.locks.lock("slow").ttl(ttl));
    assert!(called.elapsed() >= 2 * delay, "{:?}", called.elapsed());
    assert!(lease.remaining() + 2 * delay <= ttl, "{:?}", lease.remaining());
    let since = Instant::now();
    while since.elapsed() < 2 * ttl {
        assert!(lease.is_valid(), "after {:?}: {:?}", since.elapsed(), lease.lost_reason());
        thread::sleep(ms(20));
    }
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    assert!(world.is_empty());
}

/// A cut connection, and one whose server has said its last word, are found at once: a lease of a short ttl goes on.
#[test]
fn a_connection_that_ends_is_made_anew_at_once() {
    let world = World::new();
    let lease = get(world.locks.lock("short").ttl(ms(1_500)));
    for act in [Proxy::cut, Proxy::half_close] {
        let connections = world.proxy.counts().connections;
        act(&world.proxy);
        wait_within("a new connection", ms(2_000), || world.proxy.counts().connections > connections);
        let since = Instant::now();
        wait_for("twice the ttl", || since.elapsed() > ms(3_000));
        assert!(lease.is_valid(), "{:?}", lease.lost_reason());
    }
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
}

/// Nothing comes or goes any more, and nobody says so: the first request that is not answered in time has the connection made anew, and leases that
/// live long enough go on.
#[test]
fn a_half_open_connection_is_found() {
    let world = World::new();
    let lease = get(world.locks.lock("long").ttl(ms(30_000)));
    let connections = world.proxy.counts().connections;
    world.proxy.swallow(Way::Requests);
    world.proxy.swallow(Way::Replies);
    let since = Instant::now();
    // Whoever asks now is served by the next connection.
    let other = get(world.locks.lock("other").ttl(ms(30_000)));
    println!("a half-open connection: found after {:?}", since.elapsed());
    assert!(since.elapsed() < PATIENCE + 2 * ms(1_000), "{:?}", since.elapsed());
    assert_eq!(world.proxy.counts().connections, connections + 1);
    let fence = lease.fence();
    assert_eq!(world.fence("long"), Some(fence));
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    assert_eq!(other.release_blocking().unwrap(), Released::InTime);
    assert!(world.is_empty());
}

/// Nothing comes or goes any more, and nobody says so: a renewal finds it, in time for a lease of which two more are due until then.
#[test]
fn a_half_open_connection_is_found_by_renewals() {
    let world = World::new();
    let ttl = ms(18_000);
    let lease = get(world.locks.lock("quiet").ttl(ttl));
    world.proxy.swallow(Way::Requests);
    world.proxy.swallow(Way::Replies);
    let since = Instant::now();
    while since.elapsed() < ttl + ms(2_000) {
        assert!(lease.is_valid(), "after {:?}: {:?}", since.elapsed(), lease.lost_reason());
        thread::sleep(ms(20));
    }
    assert_eq!(world.fence("quiet"), Some(lease.fence()));
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
}

/// The error of a host that is silent names it.
fn is_silent_about(port: u16) {
    let since = Instant::now();
    let error = block_on(Locks::connect(&format!("redis://app:hunter2@127.0.0.1:{port}"))).map(|locks| locks.url()).unwrap_err();
    println!("silent: {:?}, {}", since.elapsed(), error.chain());
    assert_eq!(error.kind(), Kind::Unreachable, "{}", error.chain());
    assert!(error.chain().contains(&format!("127.0.0.1:{port}")) && !error.chain().contains("hunter2"), "{}", error.chain());
    assert!(since.elapsed() < 2 * PATIENCE + ms(1_000), "{:?}", since.elapsed());
}

/// It is there, and says nothing.
#[test]
fn a_host_that_never_answers_hello() {
    // The system lets who comes in, and nobody ever looks.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    is_silent_about(listener.local_addr().unwrap().port());
}

/// What is sent to it is dropped.
#[test]
fn a_host_that_never_answers_a_connect() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        socket.listen(1).unwrap()
    });
    let address = listener.local_addr().unwrap();
    // Once its queue is full, the system drops who comes without a word.
    let mut full = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, ms(200)) {
        full.push(stream);
        assert!(full.len() < 100, "the queue of one is never full");
    }
    is_silent_about(address.port());
}

/// Requests that are made while the server is away fail together, not one after the other; and go through once it is back. It may refuse who comes, or
/// let everybody in and be silent.
#[test]
fn a_server_that_is_away_is_asked_once_for_all() {
    let mut world = World::new();
    let store = block_on(heirlock::open_store(&url(&world.proxy))).unwrap();
    let key = Key::new("away").unwrap();
    let all_fail = |world: &World, limit: Duration| {
        let since = Instant::now();
        thread::scope(|threads| {
            let calls: Vec<_> = (0..20).map(|_| threads.spawn(|| block_on(store.inspect(&key)))).collect();
            for call in calls {
                let error = call.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), Kind::Unreachable, "{}", error.chain());
                assert!(error.chain().contains(&format!("127.0.0.1:{}", world.proxy.port())), "{}", error.chain());
            }
        });
        println!("20 requests failed within {:?}", since.elapsed());
        assert!(since.elapsed() < limit, "{:?}", since.elapsed());
    };
    let works_again = || wait_within("the server to be reached again", ms(4_000), || block_on(store.inspect(&key)).is_ok());

    world.proxy.refuse();
    world.proxy.cut();
    all_fail(&world, ms(2_000));
    world.proxy.heal();
    works_again();

    world.server.signal(Signal::STOP);
    // Nobody has found that yet: they wait for an answer, each for its own. Then for a connection, all for one.
    all_fail(&world, PATIENCE + ms(1_000));
    all_fail(&world, 2 * PATIENCE + ms(1_000));
    world.server.signal(Signal::CONT);
    works_again();
}
