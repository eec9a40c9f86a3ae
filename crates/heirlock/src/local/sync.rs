//! What the local locks and workers take from `std`, and a model checker in its place.
//!
//! Built with `--cfg heirlock_loom` or `--cfg heirlock_shuttle`, the same code runs under a checker that decides who runs next and, with loom,
//! which of several stores a load sees. `CONTRIBUTING.md` says how. This is the only place that knows of it.
//!
//! Only what threads meet at is exchanged: the words of locks and the domains' mutexes, and what is a thread's own. The process-wide tables of
//! workers and domains are `std`'s also in models, which run one after another: nothing under their mutexes touches what is exchanged here.

pub(crate) use exchanged::*;

/// Into how many parts a map is split that all threads use: a power of two. In a model they are to meet.
pub(crate) const SHARDS: usize = if HAS_TIMER { 32 } else { 1 };

/// The checkers run one thread at a time and know no thread but theirs, so there is no timer: a model calls `Domain::expire` itself.
pub(crate) const HAS_TIMER: bool = !MODELLED;

/// Whether this is a model, which has few of everything and must do the same each time it is run.
pub(crate) const MODELLED: bool = cfg!(any(heirlock_loom, heirlock_shuttle));

#[cfg(not(any(heirlock_loom, heirlock_shuttle)))]
mod exchanged {
    pub(crate) use crate::sync::lock;
    pub(crate) use pollster::block_on;
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};
    pub(crate) use std::thread::{ThreadId, current as current_thread};
    pub(crate) use std::thread_local;

    /// What is sequentially consistent needs no more than to say so.
    #[inline]
    pub(crate) fn full_fence() {}

    /// A function that is `const` but in a model: loom must note where and when an atomic was made, and shuttle cannot take one apart in a constant.
    macro_rules! const_fn {
        ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)+) => { $(#[$meta])* $vis const fn $($rest)+ };
    }
    pub(crate) use const_fn;

    /// An array of so many new ones.
    macro_rules! each {
        ($new:expr; $count:expr) => {
            [const { $new }; $count]
        };
    }
    pub(crate) use each;
}

#[cfg(heirlock_loom)]
mod exchanged {
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};
    pub(crate) use loom::thread::{ThreadId, current as current_thread};

    /// loom takes a sequentially consistent access for one that acquires and releases, but knows the fence.
    pub(crate) fn full_fence() {
        loom::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    macro_rules! const_fn {
        ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)+) => { $(#[$meta])* $vis fn $($rest)+ };
    }
    pub(crate) use const_fn;

    macro_rules! each {
        ($new:expr; $count:expr) => {
            std::array::from_fn::<_, { $count }, _>(|_| $new)
        };
    }
    pub(crate) use each;

    /// loom's own does not know the `const` initialiser.
    macro_rules! own {
        ($($(#[$meta:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
            $(loom::thread_local! { $(#[$meta])* static $name: $type = $init; })+
        };
        ($($rest:tt)+) => { loom::thread_local! { $($rest)+ } };
    }
    pub(crate) use own as thread_local;
}

#[cfg(heirlock_shuttle)]
mod exchanged {
    pub(crate) use shuttle::future::block_on;
    pub(crate) use shuttle::sync::Mutex;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};
    pub(crate) use shuttle::thread::{ThreadId, current as current_thread};
    pub(crate) use shuttle::thread_local;

    pub(crate) fn full_fence() {}

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> shuttle::sync::MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    macro_rules! const_fn {
        ($(#[$meta:meta])* $vis:vis const fn $($rest:tt)+) => { $(#[$meta])* $vis fn $($rest)+ };
    }
    pub(crate) use const_fn;

    macro_rules! each {
        ($new:expr; $count:expr) => {
            std::array::from_fn::<_, { $count }, _>(|_| $new)
        };
    }
    pub(crate) use each;
}
