//! The leases of a store, as operators see them.

use super::snapshot::{Edge, Holder, Lock, Party, Snapshot, Waiter, WorkerView};
use crate::lease::{HolderView, KeyView, Mode, Owner, WaiterView};

impl Snapshot {
    /// The leases of one store.
    ///
    /// ```
    /// # use heirlock::{Locks, observe::Snapshot, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> heirlock::Result<()> {
    /// # let locks = Locks::new(MemoryStore::new()).await?;
    /// let lease = locks.lock("nightly").await?;
    /// let snapshot = Snapshot::of_leases(locks.url(), locks.list("").await?);
    /// assert_eq!(snapshot.locks[0].holders[0].fence, Some(lease.fence()));
    /// # Ok(()) }
    /// ```
    pub fn of_leases(store: String, keys: Vec<KeyView>) -> Snapshot {
        let edges = keys.iter().flat_map(edges).collect();
        let locks = keys.into_iter().map(Lock::from).collect();
        Snapshot { store: Some(store), at: crate::clock::wall_micros() / 1000, locks, edges, ..Snapshot::default() }
    }
}

/// Every waiter waits for every holder: none of them stands beside it.
fn edges(key: &KeyView) -> impl Iterator<Item = Edge> {
    key.queue.iter().flat_map(move |waiter| {
        key.holders.iter().map(move |holder| Edge {
            from: WorkerView::from(&*waiter.owner),
            to: WorkerView::from(&*holder.owner),
            lock: Some(key.key.to_string()),
        })
    })
}

impl From<&Owner> for WorkerView {
    fn from(owner: &Owner) -> WorkerView {
        WorkerView { id: owner.worker, name: owner.name.clone(), host: owner.host.clone(), pid: owner.pid }
    }
}

impl From<KeyView> for Lock {
    fn from(key: KeyView) -> Lock {
        Lock {
            name: key.key.to_string(),
            kind: "lease",
            unknown_releaser: false,
            holders: key.holders.into_iter().map(Holder::from).collect(),
            queue: key.queue.into_iter().enumerate().map(|(at, waiter)| Waiter::of(at + 1, &waiter)).collect(),
            resting_ms: key.resting_ms,
        }
    }
}

impl Party {
    fn of(owner: &Owner, mode: Mode) -> Party {
        Party { worker: WorkerView::from(owner), command: owner.command.clone(), why: owner.why.clone(), mode: mode.word() }
    }
}

impl From<HolderView> for Holder {
    fn from(holder: HolderView) -> Holder {
        Holder {
            party: Party::of(&holder.owner, holder.mode),
            slot: holder.slot,
            fence: Some(holder.fence),
            since_ms: holder.since_ms,
            expires_in_ms: Some(holder.expires_in_ms),
            priority: holder.priority,
            effective: holder.effective,
            revoked: Some(holder.revoked),
            site: holder.owner.site.clone(),
        }
    }
}

impl Waiter {
    fn of(position: usize, waiter: &WaiterView) -> Waiter {
        Waiter {
            position,
            party: Party::of(&waiter.owner, waiter.mode),
            priority: waiter.priority,
            effective: waiter.priority,
            waiting_ms: waiter.waiting_ms,
            deadline_in_ms: None,
            site: waiter.owner.site.clone(),
        }
    }
}
