//! The rule as plain data, against the naive one.

use heirlock::Kind;
use heirlock::lease::{Fences, HolderId, Key, Sequencer};

use crate::naive::{KEY, Naive, Shown, exclusive, shared, slot};
use crate::random::seed;

fn fences() -> Fences {
    Fences::new(Key::new(KEY).unwrap())
}

#[test]
fn case_s27_an_old_holder_is_refused_after_the_new_one_has_advanced() {
    let mut seen = fences();
    let (old, new) = (exclusive(5, 1), exclusive(6, 2));
    seen.advance(&old).unwrap();
    assert!(seen.check(&new).unwrap_err().is_invalid(), "it has not advanced, and must before it reads");
    seen.check(&old).unwrap();
    seen.advance(&new).unwrap();
    for error in [seen.check(&old).unwrap_err(), seen.advance(&old).unwrap_err()] {
        assert!(error.is_lost());
        assert_eq!(error.to_string(), "fence 5 of k is older than 6, which was shown here: the lease is lost");
    }
    seen.advance(&new).unwrap();
    seen.check(&new).unwrap();
    assert_eq!(seen.newest(), 6);
}

#[test]
fn case_s27_two_slots_have_sequences_of_their_own() {
    let mut seen = fences();
    let (one, two) = (slot(5, 0, 2, 1), slot(6, 1, 2, 2));
    for order in [[&one, &two], [&two, &one]] {
        for by in order {
            seen.advance(by).unwrap();
        }
        seen.check(&one).unwrap();
        seen.check(&two).unwrap();
    }
    seen.advance(&slot(7, 0, 2, 3)).unwrap();
    assert!(seen.check(&one).unwrap_err().is_lost());
    seen.check(&two).unwrap();
}

#[test]
fn case_s27_an_equal_fence_of_another_holder_is_refused() {
    let mut seen = fences();
    seen.advance(&exclusive(5, 1)).unwrap();
    for other in [exclusive(5, 2), shared(5), slot(5, 0, 1, 1), slot(5, 1, 2, 3)] {
        let error = seen.advance(&other).unwrap_err();
        assert!(error.is_lost(), "{other}: {error}");
        assert_eq!(error.to_string(), "fence 5 of k was shown by another holder: the lease is lost");
        assert_eq!(seen.check(&other).unwrap_err().kind(), Kind::Lost);
    }
    seen.check(&exclusive(5, 1)).unwrap();
}

#[test]
fn readers_of_one_generation_are_one_and_keep_out_older_writers() {
    let mut seen = fences();
    seen.advance(&exclusive(4, 1)).unwrap();
    for _ in 0..2 {
        seen.advance(&shared(5)).unwrap();
        seen.check(&shared(5)).unwrap();
    }
    assert!(seen.check(&exclusive(4, 1)).unwrap_err().is_lost(), "what they read would change under them");
    seen.advance(&exclusive(6, 2)).unwrap();
    assert!(seen.check(&shared(5)).unwrap_err().is_lost());
}

#[test]
fn who_held_in_another_way_cannot_come_back() {
    let mut seen = fences();
    for by in [slot(4, 0, 3, 1), slot(5, 2, 3, 2)] {
        seen.advance(&by).unwrap();
    }
    // Two slots now: the third has gone, and what was in it never advances there again.
    seen.advance(&slot(7, 0, 2, 3)).unwrap();
    assert!(seen.check(&slot(5, 2, 3, 2)).unwrap_err().is_lost());
    // It was granted before 7, and comes later.
    assert!(seen.advance(&slot(6, 1, 3, 4)).unwrap_err().is_lost());
    seen.advance(&slot(6, 1, 2, 5)).unwrap();
    // And again as before: what was shown in the meantime refuses what is left of the first three.
    seen.advance(&slot(9, 1, 3, 6)).unwrap();
    assert!(seen.advance(&slot(5, 2, 3, 2)).unwrap_err().is_lost());
    seen.advance(&slot(8, 2, 3, 7)).unwrap();
}

#[test]
fn a_lease_on_another_key_is_no_lease_here() {
    let mut seen = fences();
    let other = Sequencer::exclusive(Key::new("K").unwrap(), 9, HolderId(1)).unwrap();
    assert!(seen.advance(&other).unwrap_err().is_invalid());
    assert!(seen.check(&other).unwrap_err().is_invalid());
    assert_eq!(seen.newest(), 0);
}

#[test]
fn what_is_kept_is_found_again() {
    let mut seen = fences();
    for by in [exclusive(3, 9), slot(5, 1, 3, u64::MAX), slot(6, 2, 3, 2)] {
        seen.advance(&by).unwrap();
    }
    let text = serde_json::to_string(&seen).unwrap();
    let kept: Fences = serde_json::from_str(&text).unwrap();
    assert_eq!(kept, seen);
    assert!(kept.check(&exclusive(3, 9)).unwrap_err().is_lost());
    kept.check(&slot(5, 1, 3, u64::MAX)).unwrap();
    assert!(serde_json::from_str::<Fences>(&text.replace("\"k\"", "\"\"")).is_err(), "no key");
}

#[test]
fn random_holders_are_judged_as_by_the_naive_rule() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (mut good, mut late) = (0, 0);
    for round in 0..200 {
        let (mut rule, mut naive, mut shown) = (fences(), Naive::default(), Shown::new(seed ^ round));
        for step in 0..300 {
            let by = shown.next();
            let (is, must) = if shown.chance(50) {
                (rule.advance(&by).map_err(|error| error.kind()), naive.advance(&by))
            } else {
                (rule.check(&by).map_err(|error| error.kind()), naive.check(&by))
            };
            assert_eq!(is, must, "seed {seed}, round {round}, step {step}: {by}, where {rule:?}");
            good += u32::from(must.is_ok());
            late += u32::from(must == Err(Kind::Lost));
        }
    }
    println!("{good} good, {late} late");
    assert!(good > 3_000 && late > 3_000, "{good} good, {late} late: a test of little");
}
