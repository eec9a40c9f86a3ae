//! S08: acquires that are dropped.

use std::thread;

use super::Factory;
use super::chance::Chance;
use super::tools::{faulty_session, is_empty, ms, open, poll_for, wait_within};
use crate::store::{Fault, Point};

/// **S08** 200 acquires dropped at random moments between 0 and 2 ms: within 1 s no key is held and no ticket queued.
///
/// On three keys, from four threads and two sessions, one of which has replies that are slow, so that drops meet requests under way.
pub fn case_s08_dropped_acquires_leave_nothing(factory: &dyn Factory) {
    let mut chance = Chance::of("S08");
    let store = open(factory);
    let sessions = [faulty_session(factory), faulty_session(factory)];
    let slow = &sessions[1].0;
    slow.next(Point::Enter, (0..100).map(|_| Fault::SlowReply(chance.span(ms(2)))).collect::<Vec<_>>());
    thread::scope(|threads| {
        for at in 0..4 {
            let (mut chance, locks) = (chance.fork(), &sessions[at % 2].1);
            threads.spawn(move || {
                for _ in 0..50 {
                    let call = locks.lock(chance.pick(&["s08/a", "s08/b", "s08/c"])).priority(i32::from(chance.percent(50)));
                    // A lease that came in time goes the same way; and nothing else can have come.
                    if let Some(Err(error)) = poll_for(call, chance.span(ms(2))) {
                        panic!("an acquire without a time limit failed: {}", error.chain());
                    }
                }
            });
        }
    });
    wait_within("the dropped calls to be gone", ms(2_000), || is_empty(&*store));
    // What a session still had under way ends with it, and leaves nothing either.
    for (_, locks) in sessions {
        pollster::block_on(locks.close());
    }
    assert!(is_empty(&*store));
}
