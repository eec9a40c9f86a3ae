//! Three locks that are wanted at once, in every order.

use heirlock::local::{Domain, Mutex};

pub(crate) type Locks = [Mutex<u32>; 3];

/// They lie in memory as they are in the array.
pub(crate) fn three(domain: &Domain) -> Locks {
    ["a", "b", "c"].map(|name| Mutex::named(name, 0).in_domain(domain))
}

/// Every order of three.
pub(crate) const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[track_caller]
pub(crate) fn assert_none_held(locks: &Locks) {
    assert_eq!(locks.each_ref().map(Mutex::is_locked), [false; 3]);
}
