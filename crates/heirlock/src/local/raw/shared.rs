//! What a read-write lock is under its type: the word of an exclusive lock for its writer, and a few places for its readers.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicU64 as Number, Ordering};

use super::word::{Ask, Entered, Want, Word};
use super::{CONTENDED, DEPTH, FREE, Raw, Site, owner_in};
use crate::Worker;
use crate::local::core::Core;
use crate::local::domain::Domain;
use crate::local::graph::{Kind, LockKey, Mode, NEVER, Origin, WorkerKey};
use crate::local::identity::Owner;
use crate::local::slots::slot;
use crate::local::sync::{AtomicPtr, AtomicU64, MODELLED, const_fn, each, full_fence};
use crate::local::wait::Held;

/// How many readers have places. Any more are in the graph.
const PLACES: usize = if MODELLED { 2 } else { 8 };

/// In the word of a read-write lock: a writer has come, and has yet to look whether there are readers.
const COMING: u64 = 1 << DEPTH;

/// In the word of a read-write lock of which the graph knows: readers hold it.
const READ: u64 = COMING << 1;

/// In the entry of a place: the graph knows of the reader.
const TOLD: u64 = 1;

/// A word, and the readers beside it:
///
/// | word | means |
/// |---|---|
/// | 0 | free, or read by those in the places |
/// | the writer | written; nobody is in the places but who comes and finds that out |
/// | the writer, `COMING` | a writer looks whether there are readers |
/// | bit 0, perhaps with the writer or `READ` | the graph decides |
///
/// | entry of a place | means |
/// |---|---|
/// | 0 | free |
/// | the reader's number, shifted by one | a reader, or who is about to look whether it may be |
/// | a worker's slot in the graph, shifted by one, and bit 0 | a reader of whom the graph knows |
///
/// A reader takes a place and then looks at the word; a writer writes its word and then looks at the places. As both are sequentially consistent, one of
/// the two at least sees the other and gives way: so there is never a reader beside a writer. Both may see each other and give way; then both take
/// the long way, where one comes first.
///
/// Whoever has to wait tells the graph of the readers: it marks the word, and then every place. A reader who is about to leave, or to give way, finds
/// its place as it was, or marked: either it was gone before the graph knew, or the graph knows that it holds. Whoever takes a place after that
/// sees the word marked, and gives way. When nobody waits any more and all readers have places, the graph forgets them again.
pub struct Shared {
    pub(in crate::local) raw: Raw,
    places: [Place; PLACES],
}

pub(super) struct Place {
    reader: AtomicU64,
    /// Where the reader acquired, for whoever looks; a contender may see none.
    site: AtomicPtr<Location<'static>>,
}

impl Shared {
    const_fn! {
        pub(in crate::local) const fn new(name: Option<&'static str>) -> Shared {
            Shared {
                raw: Raw::new(Kind::RwLock, name),
                places: each![Place::free(); PLACES],
            }
        }
    }

    /// Moves a lock that nobody has yet shared. Whoever reads it has leaked a guard, and reads no more.
    pub(in crate::local) fn set_domain(&mut self, domain: &Domain) {
        for place in &self.places {
            place.free_up();
        }
        self.raw.set_domain(domain);
    }

    /// Whether there is anybody in the places.
    fn is_read(&self) -> bool {
        self.places.iter().any(|place| place.reader.load(Ordering::SeqCst) != 0)
    }

    /// Takes a place and the lock, if nobody writes or waits; the place counts from 1.
    #[inline]
    fn read(&self, owner: u64, site: Site) -> Option<u64> {
        if self.raw.word.load(Ordering::Relaxed) != FREE {
            return None;
        }
        let (number, place) = self.take_place(owner << 1, owner)?;
        full_fence();
        if self.raw.word.load(Ordering::SeqCst) == FREE {
            place.note_site(Some(site));
            return Some(number);
        }
        // A writer has come, or the graph decides. Unless it has been told of this reader in between, who then holds: what the contender that told it
        // has seen of earlier writers, this one sees with the mark.
        let gone = place.reader.compare_exchange(owner << 1, 0, Ordering::Release, Ordering::Acquire).is_ok();
        (!gone).then_some(number)
    }

    /// The first free place after the one where this owner begins to look, with this entry.
    #[inline]
    pub(super) fn take_place(&self, entry: u64, owner: u64) -> Option<(u64, &Place)> {
        // In a model all begin at the same: numbers are new each time that it is run.
        let first = if MODELLED { 0 } else { usize::try_from(owner % PLACES as u64).unwrap_or(0) };
        for step in 0..PLACES {
            let at = (first + step) % PLACES;
            let place = &self.places[at];
            if place.reader.load(Ordering::Relaxed) == 0
                && place.reader.compare_exchange(0, entry, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return Some((at as u64 + 1, place));
            }
        }
        None
    }

    /// Takes the lock if nobody holds it; the word that this made of it.
    #[inline]
    fn write(&self, owner: u64, site: Site) -> Option<u64> {
        let (word, held) = (&self.raw.word, owner << 1);
        if self.is_read() || word.compare_exchange(FREE, held | COMING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return None;
        }
        full_fence();
        let next = if self.is_read() { FREE } else { held };
        // A contender that finds a writer coming does not wait for it, but tells the graph that nobody writes: then both fail, and the graph decides.
        let stands = word.compare_exchange(held | COMING, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !stands || next == FREE {
            return None;
        }
        self.raw.note_site(site);
        Some(held)
    }

    /// Tells the graph who holds, if the word is still that.
    fn tell_graph(&self, core: &mut Core, word: u64) -> bool {
        if owner_in(word) != 0 && word & COMING == 0 {
            return self.raw.tell_graph(core, word);
        }
        if self.raw.word.compare_exchange(word, CONTENDED, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        full_fence();
        let key = self.raw.key(core);
        for place in &self.places {
            let entry = place.reader.load(Ordering::SeqCst);
            if entry == 0 {
                continue;
            }
            let (worker, site) = (core.enlist(&Owner::from_number(entry >> 1)), place.site());
            // If that fails the reader has gone, and what it has read is over for who comes now; and if another has come since, that one sees the mark
            // in the word and gives way.
            if place.reader.compare_exchange(entry, told(worker), Ordering::AcqRel, Ordering::Acquire).is_ok() {
                core.graph.hold(worker, key, Mode::Shared, 1, &mut core.effects);
                core.graph.note_origin(worker, key, Origin { site, at: NEVER });
            }
            core.leaves(worker);
        }
        true
    }

    /// Gives up one level of a reader.
    #[inline]
    pub(in crate::local) fn release_read(&self, number: u64) {
        if let Some(place) = self.place(number)
            && place.leave()
        {
            return;
        }
        self.release_told(number);
    }

    #[cold]
    fn release_told(&self, number: u64) {
        let domain = self.raw.domain();
        domain.event(|core| {
            let place = self.place(number);
            // Since this one came for the mutex the graph may have forgotten the readers.
            if place.is_some_and(Place::leave) {
                return;
            }
            let key = self.begin(core);
            core.note_time(key, domain.clock());
            if let Some(worker) = self.reader(core, number) {
                core.release_mode(worker, key, Mode::Shared);
                core.leaves(worker);
            }
            if let Some(place) = place {
                place.free_up();
            }
            self.follow(core, key);
        });
    }

    /// Gives up the writer's hold.
    #[inline]
    pub(in crate::local) fn release_write(&self, held: Held) {
        if !self.raw.release_at_once(1, held) {
            self.let_go();
        }
    }

    /// The same by the long way.
    fn let_go(&self) {
        if !self.raw.let_go_alone(1) {
            self.hand_over(1);
        }
    }

    fn place(&self, number: u64) -> Option<&Place> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.places.get(at)
    }

    /// The graph's worker of a reader of whom it knows, by what its guard knows: a place, or else the worker itself.
    fn reader(&self, core: &Core, number: u64) -> Option<WorkerKey> {
        match self.place(number) {
            Some(place) => core.worker_at(place.reader.load(Ordering::Relaxed) >> 1),
            None => Some(WorkerKey::from_number(number)),
        }
    }

    /// If nobody waits and all readers have places, the graph forgets them, so that they and others come and go without it.
    fn forget_readers(&self, core: &mut Core, key: LockKey) -> bool {
        let levels = core.graph.holding(key).take(PLACES + 1).map(|hold| hold.depth as usize).sum::<usize>();
        let placed = || self.places.iter().filter(|place| place.reader.load(Ordering::Relaxed) & TOLD != 0);
        if core.tracks() || core.graph.waiting(key) > 0 || levels != placed().count() {
            return false;
        }
        for place in placed() {
            // Nobody else writes to the place of a reader that the graph knows.
            let worker = core.worker_at(place.reader.load(Ordering::Relaxed) >> 1);
            let Some((worker, number)) = worker.and_then(|worker| Some((worker, core.number_of(worker)?))) else { continue };
            core.graph.release(worker, key, &mut core.effects);
            core.leaves(worker);
            place.reader.store(number << 1, Ordering::Relaxed);
        }
        true
    }

    /// One level of a reader becomes another worker's: of the reader whose guard knows this number, which then may be another.
    pub(in crate::local) fn transfer_read(&self, number: &Number, to: &Worker) {
        let theirs = to.id().get() << 1;
        self.raw.domain().event(|core| {
            let known = number.load(Ordering::Relaxed);
            let place = self.place(known);
            if place.is_some_and(|place| place.hand_to(theirs)) {
                return;
            }
            let key = self.begin(core);
            let Some(reader) = self.reader(core, known) else { return };
            let heir = core.enlist(&Owner::Worker(to.clone()));
            // First the one, then the other: so the lock was never free in between.
            core.graph.hold(heir, key, Mode::Shared, 1, &mut core.effects);
            core.graph.release_mode(reader, key, Mode::Shared, &mut core.effects);
            core.leaves(reader);
            match place {
                Some(place) => place.reader.store(told(heir), Ordering::Relaxed),
                None => number.store(heir.get(), Ordering::Relaxed),
            }
            self.follow(core, key);
        });
    }
}

impl Word for Shared {
    fn raw(&self) -> &Raw {
        &self.raw
    }

    fn is_held(&self) -> bool {
        let word = self.raw.word.load(Ordering::Acquire);
        owner_in(word) != 0 || word & READ != 0 || self.is_read()
    }

    #[inline]
    fn take(&self, owner: u64, want: Want, site: Site) -> Option<u64> {
        match want.mode {
            Mode::Shared => self.read(owner, site),
            Mode::Exclusive => self.write(owner, site),
            // Known to the graph alone.
            Mode::Upgradable => None,
        }
    }

    fn take_offered(&self, _: u64, _: Site) -> bool {
        false
    }

    fn approach(&self, core: &mut Core, ask: &Ask<'_>) -> Result<bool, Entered> {
        loop {
            let word = self.raw.word.load(Ordering::Acquire);
            if word & CONTENDED != 0 {
                return Ok(false);
            }
            if let Some(taken) = self.take(ask.owner.number(), ask.want, ask.site) {
                return Err(Entered::Held(taken));
            }
            // Who is only coming may yet give way.
            if ask.over && owner_in(word) != 0 && word & COMING == 0 {
                return Err(Entered::TimedOut);
            }
            if self.tell_graph(core, word) {
                return Ok(false);
            }
        }
    }

    /// Nothing happens here that the graph is not told.
    fn begin(&self, core: &mut Core) -> LockKey {
        self.raw.key(core)
    }

    fn follow(&self, core: &mut Core, key: LockKey) {
        if self.raw.word.load(Ordering::Relaxed) & CONTENDED == 0 {
            return;
        }
        let first = core.graph.holding(key).next().map(|hold| (hold.worker, hold.mode));
        let word = match first {
            Some((writer, Mode::Exclusive)) => core.number_of(writer).map_or(CONTENDED, |writer| writer << 1 | CONTENDED),
            Some(_) if self.forget_readers(core, key) => FREE,
            Some(_) => CONTENDED | READ,
            None if core.tracks() => CONTENDED,
            None => FREE,
        };
        // Readers whom the graph forgot have their places again before the word is free: a writer sees them.
        self.raw.word.store(word, Ordering::SeqCst);
    }

    fn given(&self, _: &mut Core, worker: WorkerKey, want: Want, site: Site) -> u64 {
        match want.mode {
            Mode::Exclusive => {
                self.raw.note_site(site);
                return 0;
            }
            Mode::Upgradable => return worker.get(),
            Mode::Shared => {}
        }
        match self.take_place(told(worker), u64::from(slot(worker))) {
            Some((number, place)) => {
                place.note_site(Some(site));
                number
            }
            None => worker.get(),
        }
    }

    fn give_up(&self, held: Held) {
        match (held.mode(), held.word()) {
            (Mode::Shared, Some(number)) => self.release_read(number),
            (Mode::Upgradable, Some(holder)) => self.release_upgradable(holder),
            _ => self.let_go(),
        }
    }
}

impl Place {
    const_fn! {
        const fn free() -> Place {
            Place { reader: AtomicU64::new(0), site: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    pub(super) fn note_site(&self, site: Option<Site>) {
        self.site.store(site.map_or(ptr::null_mut(), |site| ptr::from_ref(site).cast_mut()), Ordering::Relaxed);
    }

    fn site(&self) -> Option<Site> {
        // SAFETY: null, or made of a `&'static Location` by `note_site`.
        unsafe { self.site.load(Ordering::Relaxed).as_ref() }
    }

    /// The reader goes, unless the graph knows of it.
    #[inline]
    fn leave(&self) -> bool {
        let entry = self.reader.load(Ordering::Relaxed);
        if entry & TOLD != 0 {
            return false;
        }
        self.note_site(None);
        self.reader.compare_exchange(entry, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The reader becomes another, unless the graph knows of it.
    fn hand_to(&self, entry: u64) -> bool {
        let old = self.reader.load(Ordering::Relaxed);
        old & TOLD == 0 && self.reader.compare_exchange(old, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The reader of whom the graph knew has gone.
    pub(super) fn free_up(&self) {
        self.note_site(None);
        self.reader.store(0, Ordering::Release);
    }
}

/// The entry of a reader of whom the graph knows. While it holds, its worker's slot is its own.
fn told(worker: WorkerKey) -> u64 {
    u64::from(slot(worker)) << 1 | TOLD
}
