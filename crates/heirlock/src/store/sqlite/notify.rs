//! Hints between processes: one FIFO a session, beside the file.
//!
//! A named pipe needs no server, works between containers that share nothing but the volume, and shows a dead reader: opening it for writing
//! answers `ENXIO`. A message is one line, `WORD NAME`, in one write of at most `PIPE_BUF` bytes, which is atomic. A full pipe drops it: its
//! reader has hints enough to look after.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::file::directory_mode;
use crate::lease::{Key, News, Notice, SessionId, Sink, Told};
use crate::sync::lock;

/// A line longer than any message is no message.
const LONGEST_LINE: u64 = rustix::pipe::PIPE_BUF as u64;
/// How many dead ones one look removes.
const MOST_DEAD: usize = 256;

/// How long the making of a pipe may take, on a machine that stands still for a while.
const DRAFT: Duration = Duration::from_secs(600);

/// The sessions of this store that listen, and the way to all others.
pub(super) struct Notices {
    directory: PathBuf,
    mode: u32,
    prefix: Arc<str>,
    ears: HashMap<SessionId, Ear>,
}

/// One session's FIFO and the thread that reads it.
struct Ear {
    path: PathBuf,
    sink: Arc<Mutex<Sink>>,
    deaf: Arc<AtomicBool>,
    /// Keeps the pipe open for writing, so that its reader never sees an end, and wakes it.
    wake: File,
}

impl Notices {
    /// The pipes of the file at this path, without links.
    pub(super) fn beside(file: &Path, mode: u32, prefix: Arc<str>) -> Notices {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".notify");
        Notices { directory: file.with_file_name(name), mode, prefix, ears: HashMap::new() }
    }

    /// From now on the session's hints go to this sink.
    pub(super) fn listen(&mut self, session: SessionId, sink: Sink) -> io::Result<()> {
        if let Some(ear) = self.ears.get(&session)
            && ear.path.exists()
        {
            *lock(&ear.sink) = sink;
            return Ok(());
        }
        let ear = Ear::open(&self.directory, self.mode, session, sink, Arc::clone(&self.prefix))?;
        self.ears.insert(session, ear);
        Ok(())
    }

    /// The session's hints end.
    pub(super) fn hush(&mut self, session: SessionId) {
        self.ears.remove(&session);
    }

    /// Tells everybody what a step on this key has changed for them.
    pub(super) fn tell(&self, name: &str, told: &[Told]) {
        for (at, one) in told.iter().enumerate() {
            // Two tickets of one session may have the same news.
            let said = told.iter().take(at).any(|before| (before.session, before.news) == (one.session, one.news));
            if !said && let Err(cause) = self.send(one.session, one.news, name) {
                tracing::debug!(session = %one.session, %cause, "a hint was lost");
            }
        }
    }

    fn send(&self, session: SessionId, news: News, name: &str) -> io::Result<()> {
        let message = format!("{} {name}\n", news.word());
        if message.len() > rustix::pipe::PIPE_BUF {
            return Ok(());
        }
        let path = self.path(session);
        let pipe = match open(&path, OFlags::WRONLY | OFlags::NONBLOCK) {
            Ok(pipe) => pipe,
            // It never listened, or has said goodbye.
            Err(Errno::NOENT) => return Ok(()),
            // Its process died.
            Err(Errno::NXIO) => return fs::remove_file(&path),
            Err(cause) => return Err(cause.into()),
        };
        // A reader that dies just now would have our write raise SIGPIPE, which kills a process that does not ignore it. So the pipe has a reader
        // of ours meanwhile. (That is why pipes are not kept open: a write to a kept one would need the same.)
        let _reader = open(&path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        match rustix::io::write(&pipe, message.as_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(cause) => Err(cause.into()),
        }
    }

    fn path(&self, session: SessionId) -> PathBuf {
        self.directory.join(session.to_string())
    }

    /// Removes pipes that nobody reads any more.
    pub(super) fn bury_dead(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        // Those that live are passed over, however many there are.
        let dead = entries
            .flatten()
            .filter(|entry| !is_young_draft(entry) && matches!(open(&entry.path(), OFlags::WRONLY | OFlags::NONBLOCK), Err(Errno::NXIO)));
        for entry in dead.take(MOST_DEAD) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether it is a pipe that somebody may just be making, and that has no reader yet.
fn is_young_draft(entry: &fs::DirEntry) -> bool {
    let is_draft = entry.path().extension().is_some_and(|end| end == "new");
    let age = entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|made| made.elapsed().ok());
    is_draft && age.is_none_or(|age| age < DRAFT)
}

impl Ear {
    fn open(directory: &Path, mode: u32, session: SessionId, sink: Sink, prefix: Arc<str>) -> io::Result<Ear> {
        make_directory(directory, mode)?;
        let path = directory.join(session.to_string());
        // Under another name until it has a reader: nobody may take it for a dead one meanwhile.
        let draft = directory.join(format!("{session}.new"));
        make_fifo(&draft, mode)?;
        let opened = (|| {
            fs::set_permissions(&draft, Permissions::from_mode(mode))?;
            let wake = open(&draft, OFlags::RDWR | OFlags::NONBLOCK)?;
            // Blocking, which it does not for lack of a writer.
            let pipe = open(&draft, OFlags::RDONLY)?;
            fs::rename(&draft, &path)?;
            Ok((wake, pipe))
        })();
        let (wake, pipe) = match opened {
            Ok(ends) => ends,
            Err(cause) => {
                let _ = fs::remove_file(&draft);
                return Err(cause);
            }
        };
        let ear = Ear { path, sink: Arc::new(Mutex::new(sink)), deaf: Arc::default(), wake };
        let (sink, deaf) = (Arc::clone(&ear.sink), Arc::clone(&ear.deaf));
        thread::Builder::new().name("heirlock-notify".to_owned()).spawn(move || listen(pipe, &sink, &deaf, &prefix))?;
        Ok(ear)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        self.deaf.store(true, Ordering::Release);
        // A full pipe wakes its reader as well. We are a reader ourselves: no SIGPIPE.
        let _ = rustix::io::write(&self.wake, b"\n");
    }
}

/// Reads messages until told to stop.
fn listen(pipe: File, sink: &Mutex<Sink>, deaf: &AtomicBool, prefix: &str) {
    let mut pipe = BufReader::with_capacity(rustix::pipe::PIPE_BUF, pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(read) if read > 0 && !deaf.load(Ordering::Acquire) => {}
            Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
            _ => return,
        }
        if let Some(notice) = parse(&line, prefix) {
            // Not called under the mutex: it may ask for another sink.
            let sink = Arc::clone(&lock(sink));
            sink(notice);
        }
    }
}

/// The notice in a line, if it is one for a key under this prefix.
fn parse(line: &[u8], prefix: &str) -> Option<Notice> {
    let (word, name) = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split_once(' ')?;
    Some(Notice { news: News::from_word(word)?, key: Key::new(name.strip_prefix(prefix)?).ok()? })
}

fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
}

fn make_directory(directory: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(directory_mode(mode)).create(directory) {
        // The process's umask has no say.
        Ok(()) => fs::set_permissions(directory, Permissions::from_mode(directory_mode(mode))),
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(cause) => Err(cause),
    }
}

#[cfg(not(target_vendor = "apple"))]
fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::from_raw_mode(mode))?)
}

/// rustix has no call for it there: such sessions go by looks alone.
#[cfg(target_vendor = "apple")]
fn make_fifo(_path: &Path, _mode: u32) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_passed_over() {
        let notice = parse(b"granted app/nightly report\n", "app/").unwrap();
        assert_eq!((notice.news, notice.key.as_str()), (News::Granted, "nightly report"));
        for line in
            ["", "\n", "granted", "granted app/", "granted app/\n", "granted other\n", "taken app/x\n", "granted app/x", "\u{fffd} app/x\n"]
        {
            assert_eq!(parse(line.as_bytes(), "app/"), None, "{line:?}");
        }
        assert_eq!(parse(b"granted app/\xff\n", "app/"), None);
    }
}
