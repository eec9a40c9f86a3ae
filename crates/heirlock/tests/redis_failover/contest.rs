//! Twenty clients contend for a few keys, each with a session of its own, and write what is guarded: while something happens to the servers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use heirlock::lease::{FencedCell, Lease, Released};
use heirlock::{Kind, Locks};
use pollster::block_on;

use super::common::random::{Random, seed};
use super::ms;

const CLIENTS: usize = 20;
pub(crate) const KEYS: [&str; 3] = ["a", "b", "c"];
/// While it happens, one in so many holds takes so many ms, so that it meets somebody who holds.
const LONG: (u64, [u64; 2]) = (10, [300, 1_000]);
/// By when every client has made progress after what happened.
const PROGRESS: Duration = ms(15_000);

/// What is guarded: how often it was written, each time by who had read what was there before; and with which fences.
type Guarded = FencedCell<(u64, Vec<u64>)>;

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Writes that were let in.
    pub(crate) written: usize,
    /// How many in a second before it happened, and in one when all was as good again, or never was.
    pub(crate) rates: [usize; 2],
    /// Holders that were refused, by the fence of another one.
    pub(crate) refused: usize,
    /// Pairs of holders of one key that took themselves for the only one at one moment.
    pub(crate) overlaps: usize,
    /// Calls and releases that failed, by kind.
    pub(crate) failed: BTreeMap<String, usize>,
    /// Leases that were lost before they were released.
    pub(crate) lost: usize,
    /// The longest that any client was without progress, from before it happened to long after.
    pub(crate) stood_still: Duration,
    /// How long it took, from when it had happened, until every client had written under every key.
    pub(crate) progress: Duration,
}

impl Report {
    /// Every client makes progress in time after what happened; and while it happens, which may take as long again.
    pub(crate) fn assert_progress(&self) {
        assert!(self.progress <= PROGRESS && self.stood_still <= 2 * PROGRESS, "{self:?}");
    }

    /// Without hints, each hand-over would wait for a look: a tenth of what it was, or less.
    pub(crate) fn assert_hints(&self) {
        assert!(self.rates[1] >= self.rates[0] / 4, "{self:?}");
    }
}

struct Hold {
    key: usize,
    from: Instant,
    until: Instant,
}

struct Field<'u> {
    url: &'u str,
    ttl: Duration,
    seed: u64,
    cells: [Guarded; KEYS.len()],
    is_over: AtomicBool,
    has_long_holds: AtomicBool,
    /// How often each client has written.
    progress: [AtomicUsize; CLIENTS],
    report: Mutex<Report>,
    holds: Mutex<Vec<Hold>>,
}

/// Contests come one after the other: each is a load by itself.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that failed has nothing to say to the others.
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Lets them contend for leases of this ttl, does that to the servers, and waits until all have made progress. All holders that were let in are told
/// apart by their fences.
pub(crate) fn contest(what: &str, url: &str, ttl: Duration, happens: impl FnOnce()) -> Report {
    let seed = seed();
    println!("{what}: HEIRLOCK_SEED={seed}");
    let field = Field {
        url,
        ttl,
        seed,
        cells: KEYS.map(|key| FencedCell::new(key, (0, Vec::new())).unwrap()),
        is_over: AtomicBool::new(false),
        has_long_holds: AtomicBool::new(false),
        progress: [const { AtomicUsize::new(0) }; CLIENTS],
        report: Mutex::default(),
        holds: Mutex::default(),
    };
    let (progress, rates) = thread::scope(|threads| {
        for client in 0..CLIENTS {
            let field = &field;
            threads.spawn(move || field.contend(client));
        }
        let _over = Over(&field.is_over);
        field.await_progress(ms(60_000));
        let before = field.rate();
        field.has_long_holds.store(true, Ordering::SeqCst);
        thread::sleep(ms(200));
        happens();
        field.has_long_holds.store(false, Ordering::SeqCst);
        let progress = field.await_progress(2 * PROGRESS);
        let since = Instant::now();
        let mut after = field.rate();
        while after < before / 4 && since.elapsed() < PROGRESS {
            after = field.rate();
        }
        (progress, [before, after])
    });
    let mut report = field.report.into_inner().unwrap();
    (report.progress, report.rates) = (progress, rates);
    report.overlaps = overlaps(field.holds.into_inner().unwrap());
    let mut written = 0;
    for cell in field.cells {
        let (number, fences) = cell.into_inner();
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "two wrote with one fence, or in the wrong order: {fences:?}");
        assert_eq!(number, fences.len() as u64, "somebody wrote over what another had written");
        written += fences.len();
    }
    assert_eq!(written, report.written);
    println!("{what}: {report:?}");
    report
}

/// However the contest ends, the clients do.
struct Over<'f>(&'f AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Field<'_> {
    /// Until every client has asked for every key and written, from now on; tells how long that took.
    fn await_progress(&self, limit: Duration) -> Duration {
        let from = Instant::now();
        let writes = || self.progress.each_ref().map(|writes| writes.load(Ordering::SeqCst));
        // It goes from key to key; and the first may be one that it had before.
        let due = writes().map(|writes| writes + KEYS.len() + 1);
        while writes().iter().zip(&due).any(|(writes, due)| writes < due) {
            let so_far = || format!("{:?} of {due:?}, {:?}", writes(), self.report.lock().unwrap());
            assert!(from.elapsed() < limit, "after {:?} some have made no progress: {}", from.elapsed(), so_far());
            thread::sleep(ms(5));
        }
        from.elapsed()
    }

    /// How much is written in a second.
    fn rate(&self) -> usize {
        let written = || self.report.lock().unwrap().written;
        let before = written();
        thread::sleep(ms(1_000));
        written() - before
    }

    fn contend(&self, client: usize) {
        let mut random = Random::new(self.seed, client as u64);
        let locks = block_on(Locks::connect(self.url)).unwrap();
        let mut last = Instant::now();
        for key in (0..KEYS.len()).cycle().skip(client) {
            if self.is_over.load(Ordering::SeqCst) {
                break;
            }
            match locks.lock(KEYS[key]).ttl(self.ttl).timeout(ms(20_000)).blocking() {
                Ok(lease) => {
                    let (of, [shortest, longest]) = LONG;
                    let is_long = self.has_long_holds.load(Ordering::SeqCst) && random.within(0, of) == 0;
                    let span = if is_long { random.within(shortest, longest) } else { random.within(0, 5) };
                    if self.hold(key, lease, ms(span)) {
                        self.progress[client].fetch_add(1, Ordering::SeqCst);
                        let mut report = self.report.lock().unwrap();
                        report.written += 1;
                        report.stood_still = report.stood_still.max(last.elapsed());
                        last = Instant::now();
                    }
                }
                Err(error) => self.failed("lock", &error),
            }
        }
        block_on(locks.close());
    }

    /// Whether it was let in.
    fn hold(&self, key: usize, lease: Lease, span: Duration) -> bool {
        let from = Instant::now();
        let guarded = self.cells[key].advance(&lease);
        // It reads, thinks, and writes: whoever came between would be overwritten.
        let wrote = guarded.and_then(|guarded| {
            let number = guarded.read(|(number, _)| *number)?;
            thread::sleep(span);
            guarded.write(|(guarded, fences)| {
                *guarded = number + 1;
                fences.push(lease.fence());
            })
        });
        let (until, is_valid) = (Instant::now(), lease.is_valid());
        match &wrote {
            Ok(()) => {}
            Err(error) if error.is_lost() => self.report.lock().unwrap().refused += 1,
            Err(error) => panic!("{}", error.chain()),
        }
        if is_valid {
            self.holds.lock().unwrap().push(Hold { key, from, until });
        }
        match lease.release_blocking() {
            Ok(Released::InTime) => {}
            Ok(_) => self.report.lock().unwrap().lost += 1,
            Err(error) => self.failed("release", &error),
        }
        wrote.is_ok()
    }

    /// Servers may be away, forget, and change; nothing else may go wrong.
    fn failed(&self, what: &str, error: &heirlock::Error) {
        assert!(matches!(error.kind(), Kind::Unreachable | Kind::Lost), "{what}: {:?} {}", error.kind(), error.chain());
        *self.report.lock().unwrap().failed.entry(format!("{what} {:?}", error.kind())).or_default() += 1;
    }
}

/// How many pairs of one key held at one moment.
fn overlaps(mut holds: Vec<Hold>) -> usize {
    holds.sort_by_key(|hold| hold.from);
    let mut count = 0;
    for (at, hold) in holds.iter().enumerate() {
        count += holds[at + 1..].iter().take_while(|other| other.from < hold.until).filter(|other| other.key == hold.key).count();
    }
    count
}
