//! The lock-order check: which classes of locks are taken while which others are held, and whether that ever happens in both orders.
//!
//! Plain data, like the graph: what is wanted while what is held goes in, inversions come out. Who holds what, the graph knows. The idea is that of
//! Linux's lockdep (`Documentation/locking/lockdep-design.rst`): two orders are a deadlock that has not happened yet, and each has to be seen once
//! only, at any time, by anybody.
//!
//! # What counts
//! - A *class* is all locks of one name; a lock without a name is a class of its own, and is forgotten with it.
//! - Whoever wants a lock nests its class in those of all locks that it holds. Whether it then gets the lock does not matter.
//! - What is taken without waiting (`try_lock`) closes no cycle, and is not to be told here; but it is held, and others nest in it.
//! - Who enters again what it holds nests nothing.
//! - Two different locks of one class, one within the other, are an inversion: somebody else may take the same two the other way round. Give them
//!   names by which they differ, or take the second without waiting.
//! - An anonymous acquire never holds anything else, as the graph sees it: it is passed by. All arms of one task are one holder: what one takes
//!   while another holds counts as nested.
//!
//! Of each two classes the first inversion is told, and no other. There is room for 2,048 classes and 8,192 nestings at once; what comes beyond is
//! neither learned nor checked, and [`Nesting::is_full`] says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::panic::Location;

const MOST_CLASSES: usize = 2048;
const MOST_NESTINGS: usize = 8192;

/// The source line of an acquire, if it is known.
pub type Site = Option<&'static Location<'static>>;

/// Which lock of which class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockId {
    /// Never used twice.
    pub number: u64,
    /// Its name.
    pub name: Option<&'static str>,
}

impl LockId {
    fn class(self) -> Class {
        self.name.map_or(Class::Lock(self.number), Class::Named)
    }
}

/// Locks that are taken for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// All of this name.
    Named(&'static str),
    /// One that has no name.
    Lock(u64),
}

/// A lock that was wanted while another was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nested {
    /// What was held.
    pub outer: Class,
    /// Where it was taken.
    pub outer_site: Site,
    /// What was wanted.
    pub inner: Class,
    /// Where.
    pub inner_site: Site,
    /// By whom.
    pub worker: Box<str>,
}

/// Classes that nest in both orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// What was just seen.
    pub now: Nested,
    /// What was seen before: from the class that is wanted now, each in the one before it, to the class that is held now. Empty if both are one
    /// class.
    pub before: Vec<Nested>,
}

/// What is known of nesting.
///
/// ```
/// use heirlock::local::nesting::{LockId, Nesting};
/// let [db, cache] = [(1, "db"), (2, "cache")].map(|(number, name)| LockId { number, name: Some(name) });
/// let mut nesting = Nesting::default();
/// assert!(nesting.wants(cache, None, &[(db, None)], &"nightly").is_empty());
/// let found = nesting.wants(db, None, &[(cache, None)], &"import");
/// assert_eq!(
///     found[0].to_string(),
///     r#"import wanted lock "db" while it held lock "cache", but before nightly wanted lock "cache" while it held lock "db""#
/// );
/// ```
#[derive(Debug, Default)]
pub struct Nesting {
    classes: BTreeMap<Class, Known>,
    nestings: usize,
    /// The pairs of which an inversion was told, the smaller first.
    told: BTreeSet<(Class, Class)>,
    is_full: bool,
}

/// What is known of a class.
#[derive(Debug, Default)]
struct Known {
    /// The first time that each class was wanted within this one.
    inner: BTreeMap<Class, Nested>,
    /// In which classes it was wanted.
    outer: BTreeSet<Class>,
}

impl Nesting {
    /// The lock is wanted, by a worker who will wait for it if it has to, and who holds what is held. Inversions that are new.
    pub fn wants(&mut self, lock: LockId, site: Site, held: &[(LockId, Site)], worker: &dyn fmt::Display) -> Vec<Inversion> {
        if held.iter().any(|(held, _)| held.number == lock.number) {
            return Vec::new();
        }
        let mut found = Vec::new();
        let inner = lock.class();
        for (held, outer_site) in held {
            let outer = held.class();
            // Mostly it is: nothing is written down twice.
            if self.classes.get(&outer).is_none_or(|known| !known.inner.contains_key(&inner)) {
                let worker = worker.to_string().into();
                found.extend(self.learn(Nested { outer, outer_site: *outer_site, inner, inner_site: site, worker }));
            }
        }
        found
    }

    fn learn(&mut self, now: Nested) -> Option<Inversion> {
        let (outer, inner) = (now.outer, now.inner);
        let new = [outer, inner].into_iter().filter(|class| !self.classes.contains_key(class)).count();
        if self.classes.len() + new > MOST_CLASSES || self.nestings == MOST_NESTINGS {
            self.is_full = true;
            return None;
        }
        let before = self.way(inner, outer);
        self.classes.entry(inner).or_default().outer.insert(outer);
        self.classes.entry(outer).or_default().inner.insert(inner, now.clone());
        self.nestings += 1;
        let before = before.filter(|_| self.told.insert((outer.min(inner), outer.max(inner))))?;
        Some(Inversion { now, before })
    }

    /// How `to` was nested in `from`, through as few others as possible.
    fn way(&self, from: Class, to: Class) -> Option<Vec<Nested>> {
        if from == to {
            return Some(Vec::new());
        }
        let mut came: BTreeMap<Class, &Nested> = BTreeMap::new();
        let mut ahead = VecDeque::from([from]);
        while let Some(class) = ahead.pop_front() {
            for (inner, nested) in self.classes.get(&class).into_iter().flat_map(|known| &known.inner) {
                if *inner == from || came.contains_key(inner) {
                    continue;
                }
                came.insert(*inner, nested);
                if *inner == to {
                    let mut way = vec![(*nested).clone()];
                    let mut at = nested.outer;
                    while let Some(nested) = came.get(&at) {
                        way.push((*nested).clone());
                        at = nested.outer;
                    }
                    way.reverse();
                    return Some(way);
                }
                ahead.push_back(*inner);
            }
        }
        None
    }

    /// The lock has gone.
    pub fn forget(&mut self, lock: LockId) {
        let class = lock.class();
        let Class::Lock(_) = class else { return };
        let Some(known) = self.classes.remove(&class) else { return };
        for outer in known.outer {
            let inner = self.classes.get_mut(&outer).map(|known| &mut known.inner);
            self.nestings -= usize::from(inner.is_some_and(|inner| inner.remove(&class).is_some()));
        }
        self.nestings -= known.inner.len();
        for inner in known.inner.into_keys() {
            self.classes.get_mut(&inner).map(|known| known.outer.remove(&class));
        }
        self.told.retain(|(one, other)| *one != class && *other != class);
    }

    /// Whether there was no room for something: inversions may have been missed.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How many classes and nestings are known.
    pub fn counts(&self) -> [usize; 2] {
        [self.classes.len(), self.nestings]
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::Named(name) => write!(f, "lock {name:?}"),
            Class::Lock(number) => write!(f, "lock #{number}"),
        }
    }
}

impl fmt::Display for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nested { outer, outer_site, inner, inner_site, worker } = self;
        write!(f, "{worker} wanted {inner}")?;
        if let Some(site) = inner_site {
            write!(f, " at {}:{}", site.file(), site.line())?;
        }
        write!(f, " while it held {outer}")?;
        if let Some(site) = outer_site {
            write!(f, " from {}:{}", site.file(), site.line())?;
        }
        Ok(())
    }
}

impl fmt::Display for Inversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inversion { now, before } = self;
        if before.is_empty() {
            return write!(f, "{now}: another lock of the same name, which may be taken the other way round");
        }
        write!(f, "{now}, but before ")?;
        for (at, nested) in before.iter().enumerate() {
            if at > 0 {
                f.write_str(", and ")?;
            }
            nested.fmt(f)?;
        }
        Ok(())
    }
}
