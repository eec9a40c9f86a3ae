//! S09: durations are what they say.

use std::thread;
use std::time::Instant;

use super::Factory;
use super::tools::{
    FOR_EVER, assert_within, enter, faulty_session, get, is_empty, key, ms, open, session, ttl_of, wait_for, wait_for_queue,
};
use crate::lease::{Answer, Leave, SessionId, Store, Token};

/// **S09** `timeout(0.5 s)` waits 0.5 s, not 0 and not the ttl; a ttl of 400 ms (or the store's `min_ttl`) is that, not 0; a timeout spans
/// wake-ups that lost a race (absolute, never restarted); a ttl below `min_ttl` is refused.
pub fn case_s09_durations_are_what_they_say(factory: &dyn Factory) {
    let store = open(factory);
    a_timeout(factory);
    a_ttl(factory, &*store);
    a_timeout_among_wake_ups(factory, &*store);
    too_short_a_ttl(factory, &*store);
    wait_for("everything to be gone", || is_empty(&*store));
}

fn a_timeout(factory: &dyn Factory) {
    let locks = session(factory);
    let lease = get(locks.lock("held"));
    let since = Instant::now();
    let error = locks.lock("held").timeout(ms(500)).blocking().expect_err("it is held");
    let took = since.elapsed();
    assert!(error.is_timeout(), "{error}");
    assert!(took >= ms(500), "gave up after {took:?}");
    assert_within("a timeout of 0.5 s", took, ms(500), ms(250));
    drop(lease);
}

fn a_ttl(factory: &dyn Factory, store: &dyn Store) {
    let locks = session(factory);
    let ttl = ttl_of(store, ms(400));
    let name = key("ttl");
    let token = Token::random().expect("random bytes");
    let id = SessionId::random().expect("random bytes");
    let (before, answer) = (Instant::now(), pollster::block_on(store.enter(&name, enter(token, id, ttl, "never beats"))));
    let after = Instant::now();
    let Ok(Answer::Held(holding)) = answer else { panic!("the key is free: {answer:?}") };
    assert_eq!(u128::from(holding.expires_in), ttl.as_millis());
    let lease = get(locks.lock("ttl").ttl(ttl));
    let held = Instant::now();
    assert!(lease.ttl() == ttl && lease.remaining() <= ttl);
    // A store counts whole milliseconds.
    assert!(held - before + ms(1) >= ttl, "a ttl of {ttl:?} was over after {:?}", held - before);
    assert_within("a ttl of 0.4 s", held - after, ttl, ms(400));
    // The late ticket takes nothing with it.
    pollster::block_on(store.leave(&name, Leave { token, settled: true })).expect("the store answers");
    assert!(lease.is_valid());
}

/// The key goes from hand to hand among more urgent waiters of the same session, so that every hint wakes the one that runs out of time.
fn a_timeout_among_wake_ups(factory: &dyn Factory, store: &dyn Store) {
    const RIVALS: usize = 16;
    let (faulty, locks) = faulty_session(factory);
    let locks = &locks;
    let first = get(locks.lock("race"));
    thread::scope(|threads| {
        for at in 0..RIVALS {
            threads.spawn(|| {
                let lease = get(locks.lock("race").priority(5));
                thread::sleep(ms(60));
                drop(lease);
            });
            wait_for_queue(store, "race", at + 1);
        }
        let since = Instant::now();
        let loser = threads.spawn(move || (locks.lock("race").timeout(ms(600)).blocking(), since.elapsed()));
        wait_for_queue(store, "race", RIVALS + 1);
        drop(first);
        let (result, took) = loser.join().expect("no panic");
        let error = result.expect_err("there was always somebody more urgent");
        assert!(error.is_timeout(), "{error}");
        assert!(took >= ms(600), "gave up after {took:?}");
        assert_within("a timeout of 0.6 s among wake-ups", took, ms(600), ms(300));
        // On a busy machine few hands are changed in that time.
        assert!(faulty.counts().granted >= 2, "it lost races meanwhile");
    });
}

fn too_short_a_ttl(factory: &dyn Factory, store: &dyn Store) {
    let least = store.min_ttl();
    assert!(least <= ms(60_000), "a store that cannot keep a ttl of a minute: {least:?}");
    let (faulty, locks) = faulty_session(factory);
    let error = locks.lock("short").ttl(least.saturating_sub((least / 2).min(ms(1)))).blocking().expect_err("it is below min_ttl");
    assert!(error.is_invalid(), "{error}");
    assert_eq!(faulty.counts().enters, 0, "nothing was sent");
    // The least is taken; but a busy machine may not get back to it in time.
    match locks.lock("short").ttl(least).timeout(FOR_EVER).blocking() {
        Ok(short) => assert_eq!(short.ttl(), least),
        Err(error) => assert!(error.is_lost(), "{error}"),
    }
}
