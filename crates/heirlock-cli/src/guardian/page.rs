//! The memory that heirlock and its guardian share: until when the lock is valid.

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// A number that a forked child sees change. It is never unmapped: both processes need it to their ends.
pub(super) fn shared() -> io::Result<&'static AtomicU64> {
    // SAFETY: no address is asked for, so no mapping of this process is replaced.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED) }?;
    // SAFETY: the mapping is at least as long as the number, aligned to a page, zeroed (which is a valid number), never unmapped, and from here on
    // reached through this reference only, and in the forked child through its copy: by atomic operations, all of them.
    Ok(unsafe { AtomicU64::from_ptr(page.cast()) })
}
