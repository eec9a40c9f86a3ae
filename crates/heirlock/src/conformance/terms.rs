//! S18: holds that are cut short, and rests after them.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::tools::{
    FOR_EVER, assert_within, enter, faulty_session, get, is_empty, key, ms, open, poll_for, session, ttl_of, view, wait_for, wait_for_queue,
};
use crate::lease::{Answer, Beat, Evict, LostReason, Reason, Released, SessionId, Store, Terms, Token};

/// What S18 grants beyond an end.
const SLACK: Duration = ms(1_000);
const MAX_HOLD: Duration = ms(2_000);
const AT_LEAST: Duration = ms(1_000);
/// A ttl of which 1% is more than the longest hold.
const AN_HOUR: Duration = Duration::from_secs(3_600);
/// When a store that knows no longest hold is found out.
const AT_LAST: Duration = ms(6_000);

/// **S18** `max_hold` 2 s on a holder that never returns, also when its client goes on beating: expired by the store, `lost` with the reason; the next
/// one holds. `hold_at_least` 1 s released after 0.1 s: `Busy` or queued until 1 s. A rest of an hour is ended by a forced eviction, and by no other.
pub fn case_s18_holds_have_ends_and_rests(factory: &dyn Factory) {
    let store = open(factory);
    thread::scope(|threads| {
        threads.spawn(|| a_longest_hold(factory, &*store, "not beaten", AN_HOUR));
        threads.spawn(|| a_longest_hold(factory, &*store, "beaten", ttl_of(&*store, ms(900))));
        threads.spawn(|| beats_beyond_the_end(&*store));
        threads.spawn(|| a_shortest_hold(factory));
        threads.spawn(|| a_rest_that_is_ended(factory));
    });
    wait_for("the last lease to be given back", || is_empty(&*store));
}

fn a_longest_hold(factory: &dyn Factory, store: &dyn Store, name: &str, ttl: Duration) {
    let ((faulty, locks), others) = (faulty_session(factory), session(factory));
    let before = Instant::now();
    let lease = get(locks.lock(name).ttl(ttl).max_hold(MAX_HOLD));
    let granted = Instant::now();
    thread::scope(|threads| {
        let next = threads.spawn(|| {
            let other = others.lock(name).timeout(AT_LAST).blocking().expect("the hold has an end");
            (other, lease.is_valid(), Instant::now())
        });
        wait_for_queue(store, name, 1);
        let reason = poll_for(lease.lost(), AT_LAST).expect("the hold has an end");
        assert_within(name, granted.elapsed(), MAX_HOLD, SLACK);
        assert_eq!(reason, LostReason::MaxHold, "{name}");
        assert!(!lease.is_valid());
        let work = pollster::block_on(lease.run(std::future::ready(())));
        assert!(work.expect_err("it is lost").is_lost(), "{name}");
        let (other, both, held) = next.join().expect("no panic");
        assert!(other.fence() > lease.fence());
        assert!(!both, "{name}: two hold at once");
        // Validity ends by the margin earlier than the hold does at the store.
        let margin = MAX_HOLD / 100 + ms(2);
        assert!(held + margin + ms(1) >= before + MAX_HOLD, "{name}: a longest hold of {MAX_HOLD:?} was over after {:?}", held - before);
        assert_within(name, held - granted, MAX_HOLD, SLACK);
        assert!(ttl > MAX_HOLD || faulty.counts().beats >= 2, "{name}: {:?}", faulty.counts());
    });
    assert_eq!(lease.release_blocking().expect("no error"), Released::AlreadyLost);
}

/// A client that does not know of any end, and goes on.
fn beats_beyond_the_end(store: &dyn Store) {
    let name = key("goes on");
    let (token, id) = (Token::random().expect("random bytes"), SessionId::random().expect("random bytes"));
    let ttl = ttl_of(store, ms(900));
    let mut request = enter(token, id, ttl, "goes on");
    request.terms = Terms { max_hold: Some(2_000), ..request.terms };
    let before = Instant::now();
    let answer = pollster::block_on(store.enter(&name, request)).expect("the store answers");
    let granted = Instant::now();
    assert!(matches!(answer, Answer::Held(_)), "{answer:?}");
    for seq in 2.. {
        thread::sleep(ms(50));
        let beat = Beat { token, seq, priority: 0, blocked: None };
        let answers = pollster::block_on(store.beat(vec![(name.clone(), beat)])).expect("the store answers");
        let took = Instant::now();
        match answers.into_iter().next().expect("one answer").expect("the store answers") {
            Answer::Held(holding) => {
                let end = took + ms(holding.expires_in);
                assert!(end <= granted + MAX_HOLD + 2 * SLACK, "held until {:?} after the grant", end - granted);
                assert!(took - granted < FOR_EVER);
            }
            Answer::Gone(reason) => {
                assert_eq!(reason, Reason::MaxHold);
                assert!(took + ms(1) >= before + MAX_HOLD, "over after {:?}", took - before);
                assert_within("a hold that is beaten beyond its end", took - granted, MAX_HOLD, SLACK);
                break;
            }
            other => panic!("it holds until its end, and is told {other:?}"),
        }
    }
    assert!(view(store, "goes on").holders.is_empty());
}

fn a_shortest_hold(factory: &dyn Factory) {
    let (locks, others) = (session(factory), session(factory));
    let before = Instant::now();
    let lease = get(locks.lock("rests").hold_at_least(AT_LEAST));
    let granted = Instant::now();
    thread::sleep(ms(100));
    let fence = lease.fence();
    assert_eq!(lease.release_blocking().expect("the store answers"), Released::InTime);
    thread::scope(|threads| {
        let refused = others.try_lock("rests").blocking();
        // Only on a machine that stood still meanwhile is the rest over.
        assert!(Instant::now() > before + AT_LEAST || refused.is_err_and(|error| error.is_busy()), "it rests");
        let next = threads.spawn(|| (get(others.lock("rests")), Instant::now()));
        let (lease, held) = next.join().expect("no panic");
        assert!(lease.fence() > fence);
        assert!(held + ms(1) >= before + AT_LEAST, "a rest of {AT_LEAST:?} was over after {:?}", held - before);
        assert_within("the next after a rest", held - granted, AT_LEAST, ms(500));
    });
}

/// Whoever asked for too long a rest finds a cure: the next is granted, with a higher fence.
fn a_rest_that_is_ended(factory: &dyn Factory) {
    let (locks, others) = (session(factory), session(factory));
    let lease = get(locks.lock("rests long").hold_at_least(AN_HOUR));
    let fence = lease.fence();
    assert_eq!(lease.release_blocking().expect("the store answers"), Released::InTime);
    let evict = |fence, force| pollster::block_on(others.evict("rests long", Evict { fence, force })).expect("the store answers");
    assert_eq!((evict(None, false), evict(Some(fence), true)), (0, 0));
    assert!(others.try_lock("rests long").blocking().is_err_and(|error| error.is_busy()), "it rests");
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(others.lock("rests long")), Instant::now()));
        wait_for_queue(&*open(factory), "rests long", 1);
        let before = Instant::now();
        assert_eq!(pollster::block_on(locks.evict("rests long", Evict { fence: Some(0), force: true })).expect("the store answers"), 1);
        let (lease, held) = next.join().expect("no panic");
        assert!(lease.fence() > fence);
        assert_within("the next after a rest that was ended", held - before, Duration::ZERO, ms(500));
        // Whoever holds is not met by that.
        assert_eq!(evict(Some(0), true), 0);
        assert!(lease.is_valid());
    });
}
