//! The processes of this machine, as `/proc` tells of them.

use rustix::process::{Pid, getpid};

/// One that runs, or has ended and is not reaped yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    parent: i32,
    pub(crate) group: i32,
    session: i32,
    /// All of its threads have.
    pub(crate) has_ended: bool,
}

/// Whether the system shows the processes among which we are: `/proc` may be missing, or show those of another namespace, by other numbers.
pub(crate) fn are_shown() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|us| us.to_str() == Some(&getpid().to_string()))
}

/// All of them; `None` where the system does not tell. One that starts or ends meanwhile may be missed.
fn all() -> Option<Vec<Process>> {
    if !are_shown() {
        return None;
    }
    let entries = std::fs::read_dir("/proc").ok()?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    Some(numbers.filter_map(Pid::from_raw).filter_map(look).collect())
}

fn look(pid: Pid) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; after it come the state, the parent, the group, and the session.
    // It need not be text: the system cuts it after fifteen bytes.
    let name_ends = stat.windows(2).rposition(|two| two == b") ")?;
    let mut fields = std::str::from_utf8(&stat[name_ends + 2..]).ok()?.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // One whose first thread has ended looks like one that has ended itself.
    let threads: u32 = fields.nth(13)?.parse().ok()?;
    Some(Process { pid, parent, group, session, has_ended: matches!(state, "Z" | "X") && threads <= 1 })
}

/// The members of a process group that have not ended yet.
pub(crate) fn members(group: Pid) -> Option<Vec<Pid>> {
    let is_member = |process: &Process| process.group == group.as_raw_nonzero().get() && !process.has_ended;
    Some(all()?.iter().filter(|process| is_member(process)).map(|process| process.pid).collect())
}

/// Whether nobody is there who could continue the members of our group if they are stopped: a shell, which is another's parent and in the same session.
pub(crate) fn are_orphans() -> bool {
    let (Some(all), Some(us)) = (all(), look(getpid())) else { return false };
    let is_shell = |parent: i32| {
        let is = |process: &Process| {
            process.pid.as_raw_nonzero().get() == parent && process.session == us.session && process.group != us.group && !process.has_ended
        };
        all.iter().any(is)
    };
    !all.iter().any(|process| process.group == us.group && is_shell(process.parent))
}

/// All that descend from us, those that have ended and are not reaped included, but for these children of ours and what descends from them. As far as
/// one look shows: those whose parent ends in that moment may be missed.
pub(crate) fn descendants(but: &[Pid]) -> Option<Vec<Process>> {
    let all = all()?;
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent.as_raw_nonzero().get() && !but.contains(&process.pid)) {
            parents.push(child.pid);
            found.push(*child);
        }
    }
    Some(found)
}

/// Our children, those that have ended included.
pub(crate) fn children() -> Option<Vec<Pid>> {
    // One short file, where the kernel has it.
    if are_shown()
        && let Ok(list) = std::fs::read_to_string("/proc/thread-self/children")
    {
        return Some(list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).filter_map(Pid::from_raw).collect());
    }
    let us = getpid().as_raw_nonzero().get();
    Some(all()?.iter().filter(|process| process.parent == us).map(|process| process.pid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_in_our_group() {
        let members = members(rustix::process::getpgrp()).unwrap();
        assert!(members.contains(&getpid()), "{members:?}");
    }

    #[test]
    fn a_child_and_its_child_descend_from_us() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let grandchild = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let pid = Pid::from_child(&child);
        let found = |but: &[Pid]| -> Vec<Pid> { descendants(but).unwrap().iter().map(|process| process.pid).collect() };
        let all = found(&[]);
        assert!(all.contains(&pid) && all.contains(&grandchild) && !all.contains(&getpid()), "{all:?}");
        assert!(!found(&[pid]).contains(&grandchild));
        assert!(children().unwrap().contains(&pid));
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!found(&[]).contains(&pid));
    }
}
