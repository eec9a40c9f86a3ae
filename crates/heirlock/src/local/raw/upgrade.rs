//! Holders of a read-write lock that change how they hold it. Who is upgradable is known to the graph from the beginning.

use std::ptr;
use std::sync::atomic::{AtomicU64 as Number, Ordering};

use super::shared::Shared;
use super::word::{Ask, Entered, Want, Word};
use super::{CONTENDED, FREE, Raw, Site, owner_in};
use crate::Worker;
use crate::local::core::Core;
use crate::local::graph::{Acquired, LockKey, Mode, Request, WorkerKey};
use crate::local::identity::Owner;
use crate::local::wait::Held;

impl Shared {
    /// Gives up an upgradable hold, as its guard knows it.
    pub(in crate::local) fn release_upgradable(&self, holder: u64) {
        let domain = self.raw.domain();
        domain.event(|core| {
            let (key, holder) = (self.begin(core), WorkerKey::from_number(holder));
            core.note_time(key, domain.clock());
            // An upgrade that was granted and forgotten is over with the guard that it is of.
            core.graph.downgrade(holder, key, Mode::Upgradable, &mut core.effects);
            core.release_mode(holder, key, Mode::Upgradable);
            core.leaves(holder);
            self.follow(core, key);
        });
    }

    /// An upgraded hold is upgradable again.
    pub(in crate::local) fn downgrade_upgraded(&self, holder: u64) {
        let domain = self.raw.domain();
        domain.event(|core| {
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            self.raw.site.store(ptr::null_mut(), Ordering::Relaxed);
            core.graph.downgrade(WorkerKey::from_number(holder), key, Mode::Upgradable, &mut core.effects);
            self.follow(core, key);
        });
    }

    /// The upgradable level becomes another worker's: of the holder whose guard knows this number, which then is the other's.
    pub(in crate::local) fn transfer_upgradable(&self, number: &Number, to: &Worker) {
        let domain = self.raw.domain();
        domain.event(|core| {
            let (key, holder) = (self.begin(core), WorkerKey::from_number(number.load(Ordering::Relaxed)));
            core.note_time(key, domain.clock());
            let heir = core.enlist(&Owner::Worker(to.clone()));
            // An upgrade that was granted and forgotten is over with the hold that it is of.
            core.graph.downgrade(holder, key, Mode::Upgradable, &mut core.effects);
            if core.graph.transfer_upgradable(key, holder, heir, &mut core.effects) {
                number.store(heir.get(), Ordering::Relaxed);
            }
            core.leaves(holder);
            core.leaves(heir);
            self.follow(core, key);
        });
    }

    /// An upgradable hold becomes a reader's: what its guard is to know then.
    pub(in crate::local) fn downgrade_upgradable(&self, holder: u64, site: Site) -> u64 {
        let domain = self.raw.domain();
        domain.event(|core| {
            let (key, holder) = (self.begin(core), WorkerKey::from_number(holder));
            core.note_time(key, domain.clock());
            core.graph.downgrade(holder, key, Mode::Shared, &mut core.effects);
            let number = self.given(core, holder, Want::mode(Mode::Shared), site);
            self.follow(core, key);
            number
        })
    }

    /// The writer's hold becomes a reader's: what its guard is to know then.
    pub(in crate::local) fn downgrade_to_read(&self, held: Held, site: Site) -> u64 {
        // Who sees the word free sees the place taken: nobody writes in between. A contender that comes first tells the graph of the writer alone.
        if let Some(word) = held.word()
            && let Some(number) = self.exchange_for_place(word, site)
        {
            return number;
        }
        self.downgrade_writer(Mode::Shared, site)
    }

    /// The writer's hold becomes an upgradable one: what its guard is to know then.
    pub(in crate::local) fn downgrade_to_upgradable(&self, site: Site) -> u64 {
        self.downgrade_writer(Mode::Upgradable, site)
    }

    fn exchange_for_place(&self, word: u64, site: Site) -> Option<u64> {
        let (number, place) = self.take_place(owner_in(word) << 1, owner_in(word))?;
        place.note_site(Some(site));
        if self.raw.exchange_for_less(word, FREE).is_ok() {
            return Some(number);
        }
        place.free_up();
        None
    }

    fn downgrade_writer(&self, to: Mode, site: Site) -> u64 {
        let domain = self.raw.domain();
        domain.event(|core| {
            loop {
                let word = self.raw.word.load(Ordering::Relaxed);
                if word & CONTENDED != 0 || self.raw.tell_graph(core, word) {
                    break;
                }
            }
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            let Some(holder) = core.graph.holder(key) else { unreachable!("whoever downgrades holds the lock") };
            self.raw.site.store(ptr::null_mut(), Ordering::Relaxed);
            core.graph.downgrade(holder, key, to, &mut core.effects);
            let number = self.given(core, holder, Want::mode(to), site);
            self.follow(core, key);
            number
        })
    }
}

/// The same lock for the upgradable holder that would write: its wait is not to acquire what it has not, but to be alone in it.
pub(in crate::local) struct Upgrading<'a> {
    lock: &'a Shared,
    /// As its guard knows it.
    holder: u64,
}

impl<'a> Upgrading<'a> {
    pub(in crate::local) fn new(lock: &'a Shared, holder: u64) -> Upgrading<'a> {
        Upgrading { lock, holder }
    }

    fn worker(&self) -> WorkerKey {
        WorkerKey::from_number(self.holder)
    }
}

impl Word for Upgrading<'_> {
    fn raw(&self) -> &Raw {
        &self.lock.raw
    }

    fn is_held(&self) -> bool {
        self.lock.is_held()
    }

    fn take(&self, _: u64, _: Want, _: Site) -> Option<u64> {
        None
    }

    fn take_offered(&self, _: u64, _: Site) -> bool {
        false
    }

    /// The graph knows the lock as long as the upgradable hold lasts.
    fn approach(&self, _: &mut Core, _: &Ask<'_>) -> Result<bool, Entered> {
        Ok(false)
    }

    fn begin(&self, core: &mut Core) -> LockKey {
        self.lock.begin(core)
    }

    fn follow(&self, core: &mut Core, key: LockKey) {
        self.lock.follow(core, key);
    }

    fn given(&self, core: &mut Core, worker: WorkerKey, want: Want, site: Site) -> u64 {
        self.lock.given(core, worker, want, site)
    }

    fn give_up(&self, _: Held) {
        self.lock.downgrade_upgraded(self.holder);
    }

    /// Whoever polls: the hold is its holder's.
    fn asker(&self, _: &mut Core, _: &Ask<'_>) -> WorkerKey {
        self.worker()
    }

    /// The lock is held already.
    fn nests(&self) -> bool {
        false
    }

    fn why_not(&self) -> String {
        format!("{} has other read guards", self.lock.raw.label())
    }

    fn ask_graph(&self, core: &mut Core, request: &Request, may_wait: bool) -> Option<Acquired> {
        let Core { graph, effects, .. } = core;
        if may_wait { graph.upgrade(request, effects) } else { graph.try_upgrade(request.worker, request.lock, effects) }
    }
}
