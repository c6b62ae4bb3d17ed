//! The text of a systemd unit for `svc run`.
//!
//! All directives exist since systemd 247. Older versions ignore unknown directives with a warning,
//! so newer ones are not used.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::PrintArgs;
use crate::{commands::run::LOCAL_FILE_NAME, connection::config_directory, failure::Failure};

/// Contents of a unit.
#[derive(Debug)]
pub(super) struct Unit {
    program: PathBuf,
    /// Path of the configuration. `None` for a service that only publishes containers.
    file: Option<PathBuf>,
    /// The directory of the file, if relative paths in the file refer to it.
    directory: Option<PathBuf>,
    token_file: Option<PathBuf>,
    docker: bool,
    user: bool,
}

impl PrintArgs {
    /// The unit for these flags. Its paths are absolute, because a service has no working
    /// directory.
    pub(super) fn unit(&self) -> Result<Unit, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::from_error("the path of this program is unknown", error))?;
        let here = Path::new(LOCAL_FILE_NAME);
        let file = match &self.file {
            Some(file) => Some(absolute(file)?),
            // The file that `svc run` uses here.
            None if here.exists() => Some(absolute(here)?),
            None if self.name.user => {
                let directory = config_directory(None)
                    .ok_or_else(|| Failure::usage("no home directory is set"))?;
                Some(directory.join("agent.yaml"))
            }
            None => Some(PathBuf::from("/etc/svc/agent.yaml")),
        };
        // Containers need no file, but a named file must exist.
        let file = file.filter(|file| !self.docker || self.file.is_some() || file.exists());
        let is_local = self.file.is_none() && here.exists();
        let directory = file.as_deref().filter(|_| is_local).and_then(Path::parent);
        let unit = Unit {
            program,
            directory: directory.map(Path::to_owned),
            file,
            token_file: self.token_file.as_deref().map(absolute).transpose()?,
            docker: self.docker,
            user: self.name.user,
        };
        for path in [
            Some(&unit.program),
            unit.file.as_ref(),
            unit.token_file.as_ref(),
        ] {
            let text = path.and_then(|path| path.to_str());
            let plain = |text: &str| !text.chars().any(char::is_control);
            if path.is_some() && !text.is_some_and(plain) {
                return Err(Failure::usage("a path of the service is not valid UTF-8"));
            }
        }
        Ok(unit)
    }
}

impl Unit {
    /// Path of the program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Path of the configuration.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// File with the token.
    pub(super) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// The complete unit.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("[Unit]\nDescription=svc agent\n");
        if !self.user {
            text.push_str("Wants=network-online.target\nAfter=network-online.target\n");
            if self.docker {
                text.push_str("After=docker.service\n");
            }
        }
        text.push_str("\n[Service]\nType=notify\nNotifyAccess=main\n");
        let mut start = quoted(&self.program);
        start.push_str(" run");
        if let Some(file) = &self.file {
            // Writing to a string cannot fail.
            write!(start, " {}", quoted(file)).ok();
        }
        match &self.token_file {
            Some(path) if self.user => {
                // Credentials for user services need a newer systemd than many systems have. The
                // user can read the file anyway.
                write!(start, " --token-file {}", quoted(path)).ok();
            }
            Some(path) => {
                let path = specifiers(&path.to_string_lossy());
                writeln!(text, "LoadCredential=token:{path}").ok();
                start.push_str(" --token-file ${CREDENTIALS_DIRECTORY}/token");
            }
            None => {}
        }
        if self.docker {
            start.push_str(" --docker");
        }
        if let Some(directory) = &self.directory {
            let directory = specifiers(&directory.to_string_lossy());
            writeln!(text, "WorkingDirectory={directory}").ok();
        }
        writeln!(text, "ExecStart={start}").ok();
        text.push_str(RESTART_POLICY);
        if !self.user {
            text.push_str(SYSTEM_HARDENING);
            if self.docker {
                text.push_str("SupplementaryGroups=docker\n");
            }
        }
        text.push_str(UNPRIVILEGED_HARDENING);
        let target = if self.user {
            "default.target"
        } else {
            "multi-user.target"
        };
        writeln!(text, "\n[Install]\nWantedBy={target}").ok();
        text
    }
}

/// Restart policy. An invalid configuration (exit code 2) is not retried forever. The stop timeout
/// is longer than the drain.
const RESTART_POLICY: &str = "\
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=5
RestartPreventExitStatus=2
TimeoutStartSec=60
TimeoutStopSec=45
WatchdogSec=30
LimitNOFILE=1048576
";

/// For a system service: a dynamic user, and a read-only view of the machine.
const SYSTEM_HARDENING: &str = "\
DynamicUser=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
ProcSubset=pid
RestrictNamespaces=yes
RemoveIPC=yes
UMask=0077
";

/// Restrictions that do not require root, so that a user service has them as well.
const UNPRIVILEGED_HARDENING: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
";

/// Quotes a path as a word of a command line (systemd.service(5), "Command lines").
fn quoted(path: &Path) -> String {
    let path = specifiers(&path.to_string_lossy()).replace('$', "$$");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.+@:%$".contains(&byte);
    if path.bytes().all(plain) {
        return path;
    }
    let escaped = path.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// A percent sign starts a specifier in every directive.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::from_error(&format!("{} is not a file", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        Unit {
            program: "/usr/bin/svc".into(),
            file: Some("/etc/svc/agent.yaml".into()),
            directory: None,
            token_file: Some("/etc/svc/token".into()),
            docker: false,
            user: false,
        }
    }

    #[test]
    fn a_system_unit_drops_all_privileges_and_contains_no_secret() {
        insta::assert_snapshot!(unit().text());
    }

    #[test]
    fn a_unit_of_a_person_needs_no_root() {
        let unit = Unit {
            user: true,
            docker: true,
            file: Some("/srv/ada/.config/svc/agent.yaml".into()),
            ..unit()
        };
        insta::assert_snapshot!(unit.text());
    }

    #[test]
    fn paths_are_quoted_as_words() {
        for (path, word) in [
            ("/usr/bin/svc", "/usr/bin/svc"),
            ("/a b/c", r#""/a b/c""#),
            ("/50%", "/50%%"),
            ("/$HOME", "/$$HOME"),
            (r#"/"\"#, r#""/\"\\""#),
            ("/a;b", r#""/a;b""#),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
