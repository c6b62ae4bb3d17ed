//! Members of a process session.

use nix::unistd::Pid;

/// The processes of a session. A shell gives each of its jobs its own group, so a group does not
/// contain everything that was started. Only the kernel has this list, and only Linux exposes it.
#[cfg(target_os = "linux")]
pub(crate) fn of(session: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let is_member = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| session_of(&stat) == Some(session))
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(Pid::from_raw)
        .filter(is_member)
        .collect()
}

/// On other systems, only the group of the leader and the one in the foreground are signalled.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of(_session: Pid) -> Vec<Pid> {
    Vec::new()
}

/// The field `session` of `proc_pid_stat(5)`. The second field is a name, which may contain any
/// character.
#[cfg(target_os = "linux")]
fn session_of(stat: &str) -> Option<Pid> {
    let (_name, rest) = stat.rsplit_once(')')?;
    let session = rest.split_whitespace().nth(3)?;
    session.parse().ok().map(Pid::from_raw)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn names_with_special_characters_are_parsed() {
        let stat = "12 (a) S 1 2) R 1 12 34 0 -1 4194560";
        assert_eq!(session_of(stat), Some(Pid::from_raw(34)));
        assert_eq!(session_of("12 (x"), None);
    }
}
