//! Who is in a process group.

use rustix::process::Pid;

/// The members that have not ended yet; `None` where the system does not tell.
pub(crate) fn members(group: Pid) -> Option<Vec<Pid>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    Some(numbers.filter(|number| group_of(*number) == Some(group.as_raw_nonzero().get())).filter_map(Pid::from_raw).collect())
}

/// The group of a process that runs.
fn group_of(number: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name in parentheses may hold anything; after it come the state, the parent, and the group.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_in_our_group() {
        let members = members(rustix::process::getpgrp()).unwrap();
        assert!(members.contains(&rustix::process::getpid()), "{members:?}");
    }
}
