//! Take the locks of two accounts to move money between them.
//!
//! Two transfers in opposite directions that take one lock after the other can each hold what the other waits for, for ever. `lock_all` takes both in
//! one order, whatever order they are named in. Where locks are taken one by one all the same, as below, whoever closes the circle gets an error that
//! names it.
//!
//! You do not need this where one lock guards all accounts and is held for microseconds, nor where the accounts are rows of a database: lock these.

use heirlock::Worker;
use heirlock::local::{Mutex, lock_all};

pub(crate) type Account = Mutex<u64>;

/// Moves so much, if it is there and fits; whether it did. `Invalid` if both are the same account.
pub(crate) async fn transfer(from: &Account, to: &Account, amount: u64) -> heirlock::Result<bool> {
    let (mut from, mut to) = lock_all((from.lock(), to.lock())).await?;
    Ok(book(&mut from, &mut to, amount))
}

/// The same with one lock after the other, and something slow in between, such as a question to a server: do not do this.
pub(crate) async fn one_after_the_other(from: &Account, to: &Account, amount: u64) -> heirlock::Result<bool> {
    let mut from = from.lock().await?;
    tokio::task::yield_now().await;
    let mut to = to.lock().await?;
    Ok(book(&mut from, &mut to, amount))
}

fn book(from: &mut u64, to: &mut u64, amount: u64) -> bool {
    let (Some(rest), Some(sum)) = (from.checked_sub(amount), to.checked_add(amount)) else { return false };
    (*from, *to) = (rest, sum);
    true
}

/// What the circle was, and what alice and bob have in the end.
pub(crate) async fn recipe() -> heirlock::Result<(Option<heirlock::Error>, (u64, u64))> {
    let (alice, bob) = (Account::named("alice", 100), Account::named("bob", 50));
    // Each is one line of work, so that a circle is a deadlock for certain, and an error at once.
    let (rent, refund) = (Worker::new("rent"), Worker::new("refund"));
    let (paid, refunded) = tokio::join!(rent.run(one_after_the_other(&alice, &bob, 30)), refund.run(one_after_the_other(&bob, &alice, 10)));
    // One of them was refused and let go of what it had, so that the other could go on. It tries again, as it should have done.
    if paid.is_err() {
        rent.run(transfer(&alice, &bob, 30)).await?;
    }
    if refunded.is_err() {
        refund.run(transfer(&bob, &alice, 10)).await?;
    }
    let balances = (*alice.lock().await?, *bob.lock().await?);
    Ok((paid.and(refunded).err(), balances))
}

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    let (deadlock, (alice, bob)) = recipe().await?;
    println!("one lock after the other: {}", deadlock.map_or("no deadlock".into(), |error| error.to_string()));
    println!("in the end alice has {alice}, and bob {bob}");
    Ok(())
}
