//! S03 and S26: processes that are stopped, and go on.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::death::queue_life;
use super::process::Process;
use super::protocol::{Order, Reply};
use super::tools::{
    FOR_EVER, assert_within, faulty_session, fence_of, get, ms, open, session, ttl_of, view, wait_for, wait_for_queue, wait_within,
};
use crate::lease::KeyView;

const TTL: Duration = ms(1_500);
const SLACK: Duration = ms(1_000);

/// **S03** A holder is stopped past its ttl and continued: another held meanwhile with a larger fence; the first call of `is_valid` is false, `run`
/// never polls its work again; its release frees nothing.
pub fn case_s03_a_stopped_holder_knows(factory: &dyn Factory) {
    let (store, locks) = (open(factory), session(factory));
    let ttl = ttl_of(&*store, TTL);
    let mut holder = Process::start(factory);
    holder.order_lock("s03", ttl);
    let fence = holder.held();
    assert_eq!(holder.ask(&Order::IsValid), Reply::Valid { valid: true });
    assert_eq!(holder.ask(&Order::Work), Reply::Polls { times: 1, ended: None });
    let Reply::Polls { times: polls, ended: None } = holder.ask(&Order::Wake) else { panic!("the work goes on while the lease is held") };
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(locks.lock("s03")), Instant::now()));
        wait_for_queue(&*store, "s03", 1);
        let stopped = Instant::now();
        holder.stop();
        // What it finds when it goes on, before anything else can happen in it.
        holder.order(&Order::IsValid);
        holder.order(&Order::Wake);
        let (other, held) = next.join().expect("no panic");
        assert!(other.fence() > fence);
        assert_within("the next after a stopped holder", held - stopped, ttl, SLACK);
        holder.go_on();
        assert_eq!(holder.reply(), Reply::Valid { valid: false });
        let Reply::Polls { times, ended } = holder.reply() else { panic!("the work answers") };
        assert_eq!((times, ended.as_deref()), (polls, Some("Lost")), "the work was polled after the loss");
        assert_eq!(holder.ask(&Order::Release), Reply::Released { in_time: false });
        assert!(other.is_valid());
        assert_eq!(fence_of(&*store, "s03"), Some(other.fence()));
    });
}

/// Whether only this process has been granted the key, and does not know.
fn is_granted_to(view: &KeyView, pid: u32) -> bool {
    matches!(&view.holders[..], [holder] if holder.owner.pid == pid && !holder.claimed)
}

/// **S26** A waiter is granted and stopped before it claims: the next holds within queue_life + 1 s; continued, the first is back in no queue and
/// says so.
pub fn case_s26_a_stopped_grantee_says_so(factory: &dyn Factory) {
    let (store, locks) = (open(factory), session(factory));
    let ttl = ttl_of(&*store, TTL);
    let first = get(locks.lock("s26"));
    let mut waiter = Process::start(factory);
    waiter.order_lock("s26", ttl);
    wait_for_queue(&*store, "s26", 1);
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(locks.lock("s26")), Instant::now()));
        wait_for_queue(&*store, "s26", 2);
        waiter.stop();
        let released = Instant::now();
        drop(first);
        wait_within("the grant to the stopped one", ms(1_000), || is_granted_to(&view(&*store, "s26"), waiter.id()));
        let (lease, held) = next.join().expect("no panic");
        assert_within("the next after a stopped grantee", held - released, queue_life(ttl), SLACK);
        waiter.go_on();
        match waiter.reply() {
            Reply::Refused { kind, what } => assert_eq!(kind, "Lost", "{what}"),
            other => panic!("it has lost its place, and says {other:?}"),
        }
        let now = view(&*store, "s26");
        assert!(now.queue.is_empty(), "{now:?}");
        assert_eq!(now.holders.len(), 1);
        assert_eq!(now.holders[0].fence, lease.fence());
    });
}

/// **S26** within one process: a session that is cut off instead of a process that is stopped.
pub fn case_s26_within_a_process(factory: &dyn Factory) {
    let (store, locks) = (open(factory), session(factory));
    let (cut, cut_locks) = faulty_session(factory);
    let ttl = ttl_of(&*store, TTL);
    let first = get(locks.lock("s26"));
    thread::scope(|threads| {
        let waiter = threads.spawn(|| cut_locks.lock("s26").ttl(ttl).timeout(FOR_EVER).blocking());
        wait_for_queue(&*store, "s26", 1);
        let next = threads.spawn(|| (get(locks.lock("s26")), Instant::now()));
        wait_for_queue(&*store, "s26", 2);
        cut.cut_off();
        let released = Instant::now();
        drop(first);
        wait_within(
            "the grant to the one that was cut off",
            ms(1_000),
            || matches!(&view(&*store, "s26").holders[..], [holder] if holder.session == cut_locks.session() && !holder.claimed),
        );
        let (lease, held) = next.join().expect("no panic");
        assert_within("the next after a grantee that was cut off", held - released, queue_life(ttl), SLACK);
        cut.heal();
        let error = waiter.join().expect("no panic").expect_err("it has lost its place");
        assert!(error.is_lost(), "{error}");
        wait_for("the others' hold alone", || fence_of(&*store, "s26") == Some(lease.fence()));
        assert!(view(&*store, "s26").queue.is_empty());
    });
}
