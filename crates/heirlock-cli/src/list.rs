//! `heirlock ls`.

use std::io::{self, ErrorKind, Write};

use heirlock::Locks;
use heirlock::observe::{Lock, Snapshot, align, span};

use crate::args::Ls;
use crate::exit::Exit;
use crate::{default_store, run};

pub(crate) async fn list(ls: Ls) -> Exit {
    match snapshot(&ls).await {
        Ok(snapshot) => match print(&snapshot, ls.json) {
            Ok(()) => Exit::code(0),
            Err(error) => cannot_write(&error),
        },
        Err(exit) => exit,
    }
}

async fn snapshot(ls: &Ls) -> Result<Snapshot, Exit> {
    let place = default_store::url(ls.store.clone())?;
    if place.is_unused() {
        // Nobody has ever locked anything: looking must not leave a file behind.
        return Ok(Snapshot::of_leases(place.url, Vec::new()));
    }
    // Looking makes nothing.
    let locks = run::connect(&place.for_looking(), None).await?;
    let keys = locks.list(&ls.prefix).await.map_err(|error| Exit::own(error.chain()))?;
    let url = Locks::url(&locks);
    locks.close().await;
    Ok(Snapshot::of_leases(url, keys))
}

fn print(snapshot: &Snapshot, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, snapshot).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        out.write_all(table(&snapshot.locks).as_bytes())?;
    }
    out.flush()
}

/// Whoever read our output has gone: that is no failure. A full disk is one.
pub(crate) fn cannot_write(error: &io::Error) -> Exit {
    if error.kind() == ErrorKind::BrokenPipe { Exit::code(0) } else { Exit::own(format!("cannot write to stdout: {error}")) }
}

/// One line a holder, one a waiter.
fn table(locks: &[Lock]) -> String {
    let mut rows = vec![["NAME", "", "WHO", "PID", "FOR", "LEFT", "MODE", "PRIO", "COMMAND", "WHY"].map(str::to_owned)];
    for lock in locks {
        for holder in &lock.holders {
            let mode = holder.slot.map_or(holder.party.mode.to_owned(), |slot| format!("slot {slot}"));
            rows.push([
                lock.name.clone(),
                "held by".into(),
                format!("{}@{}", holder.party.worker.name, holder.party.worker.host),
                holder.party.worker.pid.to_string(),
                span(holder.since_ms),
                holder.expires_in_ms.map_or(String::new(), span),
                mode,
                holder.effective.to_string(),
                holder.party.command.clone().unwrap_or_default(),
                holder.party.why.clone().unwrap_or_default(),
            ]);
        }
        for waiter in &lock.queue {
            rows.push([
                lock.name.clone(),
                format!("waits {}", waiter.position),
                format!("{}@{}", waiter.party.worker.name, waiter.party.worker.host),
                waiter.party.worker.pid.to_string(),
                span(waiter.waiting_ms),
                String::new(),
                waiter.party.mode.to_owned(),
                waiter.effective.to_string(),
                waiter.party.command.clone().unwrap_or_default(),
                waiter.party.why.clone().unwrap_or_default(),
            ]);
        }
        if let (true, Some(rest)) = (lock.holders.is_empty(), lock.resting_ms) {
            let mut row: [String; 10] = std::array::from_fn(|_| String::new());
            row[0].clone_from(&lock.name);
            row[1] = "rests".into();
            row[5] = span(rest);
            rows.push(row);
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    align(&rows).into_iter().map(|line| line + "\n").collect()
}
