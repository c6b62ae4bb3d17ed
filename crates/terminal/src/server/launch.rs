//! Start of a client's command: its account, directory and environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use pty::{Account, AccountError, Directory, Spec};
use tty::message::{Config, User};
use tty::session::Start;

/// Commands that clients may start.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Account of the commands.
    pub execution: Execution,
    /// Command if the client names none; `None` is the account's login shell.
    pub shell: Option<PathBuf>,
    /// The environment of this program. Commands of [`Execution::Spawn`] inherit it, those of
    /// [`Execution::Login`] only its language and time zone.
    pub environment: Vec<(OsString, OsString)>,
}

/// Account as which commands run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The account of this program, with its environment.
    Spawn,
    /// An account that logged in: its home, shell and groups, without the environment of this
    /// program.
    Login {
        /// The account if the client names none.
        account: Option<Account>,
        /// True if a client may name another account.
        client_chooses: bool,
    },
}

/// Reasons for which a command cannot start. The text is for the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("{0}")]
    Text(&'static str),
    #[error("commands run as `{0}` on this server")]
    OtherAccount(String),
    #[error(transparent)]
    Account(#[from] AccountError),
}

impl Policy {
    /// The process to start for the client's request.
    pub(crate) fn spec(&self, start: &Start) -> Result<Spec, LaunchError> {
        let config = &start.config;
        let who = self.account(config)?;
        let shell = self.shell.clone().unwrap_or_else(|| who.shell.clone());
        let (program, arg0, arguments) = match config.cmd_args.split_first() {
            None => (
                shell.clone().into_os_string(),
                Some(login_name(&shell)),
                &[][..],
            ),
            Some((program, _)) if program.is_empty() => {
                return Err(LaunchError::Text("the command has no name"));
            }
            Some((program, rest)) => (program.into(), None, rest),
        };
        let workdir = config.workdir.as_ref().map(|workdir| &workdir.value);
        let directory = match workdir.filter(|path| !path.is_empty()) {
            Some(path) => Directory::Exactly(who.home.join(path)),
            None => Directory::OrRoot(who.home.clone()),
        };
        Ok(Spec {
            program,
            arg0,
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: self.environment(config, &who, start.terminal.is_some()),
            directory,
            account: who.account,
            terminal: start.terminal.map(|size| pty::Size {
                rows: size.rows,
                cols: size.cols,
            }),
        })
    }

    fn account(&self, config: &Config) -> Result<RunAs, LaunchError> {
        let wanted = config
            .username
            .as_ref()
            .and_then(|user| match &user.payload {
                Some(User::Name(name)) if name.is_empty() => None,
                payload => payload.as_ref(),
            });
        let wanted = wanted.map(|user| match user {
            User::Name(name) => Account::named(name),
            User::Id(id) => Account::numbered(*id),
        });
        match &self.execution {
            Execution::Spawn => {
                // A container may run with a user id that has no account.
                let own = Account::current().ok();
                match (wanted.transpose()?, &own) {
                    (Some(wanted), own) if own.as_ref() != Some(&wanted) => {
                        let own = own.as_ref().map_or("another", Account::name);
                        Err(LaunchError::OtherAccount(own.to_owned()))
                    }
                    _ => Ok(self.own(own.as_ref())),
                }
            }
            Execution::Login {
                account,
                client_chooses,
            } => {
                let account = match (wanted.transpose()?, account) {
                    (Some(wanted), Some(fixed)) if wanted == *fixed => wanted,
                    (Some(wanted), _) if *client_chooses => wanted,
                    (Some(_), Some(fixed)) => {
                        return Err(LaunchError::OtherAccount(fixed.name().to_owned()));
                    }
                    (Some(_), None) => {
                        return Err(LaunchError::Text(
                            "clients cannot choose the account on this \
                                                      server",
                        ));
                    }
                    (None, Some(fixed)) => fixed.clone(),
                    (None, None) => {
                        return Err(LaunchError::Text("give the account that runs the command"));
                    }
                };
                account.check()?;
                Ok(RunAs {
                    home: account.home().to_owned(),
                    shell: account.shell().to_owned(),
                    account: Some(account),
                })
            }
        }
    }

    fn own(&self, own: Option<&Account>) -> RunAs {
        let variable = |name: &str| {
            let found = self.environment.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let home = variable("HOME").or_else(|| Some(own?.home().to_owned()));
        let shell = own.map(|own| own.shell().to_owned());
        RunAs {
            account: None,
            home: home.unwrap_or_else(|| "/".into()),
            shell: shell
                .or_else(|| variable("SHELL"))
                .unwrap_or_else(|| "/bin/sh".into()),
        }
    }

    /// Later variables replace earlier ones of the same name.
    fn environment(
        &self,
        config: &Config,
        who: &RunAs,
        has_terminal: bool,
    ) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> = self
            .environment
            .iter()
            .filter(|(name, _)| self.hands_on(name))
            .cloned()
            .collect();
        if let Some(account) = &who.account {
            let path = if account.uid() == 0 { ROOT_PATH } else { PATH };
            let shell = self.shell.as_ref().unwrap_or(&who.shell);
            all.extend([
                ("PATH".into(), path.into()),
                ("HOME".into(), who.home.clone().into()),
                ("SHELL".into(), shell.clone().into()),
                ("USER".into(), account.name().into()),
                ("LOGNAME".into(), account.name().into()),
            ]);
            let runtime = PathBuf::from(format!("/run/user/{}", account.uid()));
            if runtime.is_dir() {
                all.push(("XDG_RUNTIME_DIR".into(), runtime.into()));
            }
        }
        let has_locale = all
            .iter()
            .any(|(name, value)| sets_encoding(name) && !value.is_empty());
        if !has_locale {
            // Without a locale, programs show names outside of ASCII as escapes.
            all.push(("LANG".into(), UTF8_LOCALE.into()));
        }
        if has_terminal {
            all.push(("TERM".into(), "xterm-256color".into()));
        }
        let wanted = config.env_vars.iter();
        all.extend(wanted.map(|pair| (OsString::from(&pair.key), OsString::from(&pair.value))));
        all
    }

    /// True if a command inherits this variable of the program.
    fn hands_on(&self, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        match self.execution {
            // These variables contain the token of this program, and describe its own terminal.
            Execution::Spawn => !name.starts_with("SVC_") && name != "TERM",
            Execution::Login { .. } => {
                matches!(name.as_ref(), "LANG" | "TZ") || name.starts_with("LC_")
            }
        }
    }
}

/// True for the variables that decide about the encoding of characters (POSIX, section 8.2).
fn sets_encoding(name: &OsStr) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .any(|known| name == *known)
}

/// A locale that needs no installation.
const UTF8_LOCALE: &str = if cfg!(target_os = "macos") {
    "en_US.UTF-8"
} else {
    "C.UTF-8"
};

/// Account as which a command runs.
struct RunAs {
    account: Option<Account>,
    home: PathBuf,
    shell: PathBuf,
}

/// The `argv[0]` by which a shell detects that it is a login shell.
fn login_name(shell: &Path) -> OsString {
    let mut name = OsString::from("-");
    name.push(shell.file_name().unwrap_or(OsStr::new("sh")));
    name
}

/// The values of login(1).
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const ROOT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use tty::message::{Environment, Username, Workdir};

    use super::*;

    fn policy(execution: Execution) -> Policy {
        let variables = [
            ("PATH", "/opt/bin"),
            ("SVC_TOKEN", "secret"),
            ("TERM", "dumb"),
            ("LC_ALL", "C"),
            ("HOME", "/somewhere"),
            ("SSH_AUTH_SOCK", "/agent"),
        ];
        Policy {
            execution,
            shell: None,
            environment: variables.map(|(k, v)| (k.into(), v.into())).to_vec(),
        }
    }

    fn login(account: Option<&str>, client_chooses: bool) -> Policy {
        policy(Execution::Login {
            account: account.map(|name| Account::named(name).unwrap()),
            client_chooses,
        })
    }

    fn start(config: Config) -> Start {
        Start {
            config,
            terminal: Some(tty::size::Size::DEFAULT),
        }
    }

    fn user(name: &str) -> Config {
        Config {
            username: Some(Username {
                payload: Some(User::Name(name.to_owned())),
            }),
            ..Config::default()
        }
    }

    fn variable(spec: &Spec, name: &str) -> Option<String> {
        let found = spec.environment.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_spawned_command_has_this_environment_without_its_secrets() {
        let mut config = Config {
            cmd_args: vec!["ls".into(), "-l".into()],
            workdir: Some(Workdir { value: "x".into() }),
            ..Config::default()
        };
        config.env_vars = vec![Environment {
            key: "PATH".into(),
            value: "/mine".into(),
        }];
        let spec = policy(Execution::Spawn).spec(&start(config)).unwrap();
        assert_eq!(
            (spec.program.to_str(), spec.arg0.clone()),
            (Some("ls"), None)
        );
        assert_eq!(spec.arguments, ["-l"]);
        assert_eq!(spec.directory, Directory::Exactly("/somewhere/x".into()));
        assert_eq!(variable(&spec, "PATH").unwrap(), "/mine");
        assert_eq!(variable(&spec, "TERM").unwrap(), "xterm-256color");
        assert_eq!(variable(&spec, "SSH_AUTH_SOCK").unwrap(), "/agent");
        assert_eq!(variable(&spec, "SVC_TOKEN"), None);
        assert_eq!(spec.account, None);
    }

    #[test]
    fn a_login_has_the_environment_of_its_account_only() {
        let own = Account::current().unwrap();
        let spec = login(Some(own.name()), false);
        let spec = spec.spec(&start(Config::default())).unwrap();
        let name = own.shell().file_name().unwrap().to_str().unwrap();
        assert_eq!(spec.arg0.clone().unwrap(), *format!("-{name}"));
        assert_eq!(spec.directory, Directory::OrRoot(own.home().to_owned()));
        assert_eq!(
            variable(&spec, "HOME").unwrap(),
            own.home().to_str().unwrap()
        );
        assert_eq!(variable(&spec, "LOGNAME").unwrap(), own.name());
        assert_eq!(variable(&spec, "LC_ALL").unwrap(), "C");
        assert_eq!(variable(&spec, "SSH_AUTH_SOCK"), None);
        assert_eq!(variable(&spec, "SVC_TOKEN"), None);
    }

    #[test]
    fn a_command_has_a_utf8_locale_unless_the_server_or_the_client_sets_one() {
        let own = Account::current().unwrap();
        let language = |policy: &Policy, config| {
            let spec = policy.spec(&start(config)).unwrap();
            variable(&spec, "LANG")
        };
        for mut policy in [policy(Execution::Spawn), login(Some(own.name()), false)] {
            assert_eq!(language(&policy, Config::default()), None);
            policy.environment.retain(|(name, _)| name != "LC_ALL");
            let utf8 = Some(UTF8_LOCALE.to_owned());
            assert_eq!(language(&policy, Config::default()), utf8);
            policy.environment.push(("LANG".into(), "".into()));
            assert_eq!(language(&policy, Config::default()), utf8);
            let config = Config {
                env_vars: vec![Environment {
                    key: "LANG".into(),
                    value: "de_DE.UTF-8".into(),
                }],
                ..Config::default()
            };
            assert_eq!(language(&policy, config), Some("de_DE.UTF-8".to_owned()));
        }
    }

    #[test]
    fn accounts_are_limited_by_the_policy() {
        let own = Account::current().unwrap();
        let refused =
            |policy: &Policy, config| policy.spec(&start(config)).unwrap_err().to_string();
        let spawn = policy(Execution::Spawn);
        assert!(spawn.spec(&start(user(own.name()))).is_ok());
        assert!(refused(&spawn, user("daemon")).contains("run as"));
        let fixed = login(Some(own.name()), false);
        assert!(fixed.spec(&start(user(own.name()))).is_ok());
        assert!(refused(&fixed, user("daemon")).contains("run as"));
        assert!(refused(&fixed, user("nobody-is-called-so")).contains("does not exist"));
        let open = login(None, true);
        assert!(refused(&open, Config::default()).contains("give the account"));
        assert!(open.spec(&start(user(own.name()))).is_ok());
        assert!(refused(&login(None, false), user("daemon")).contains("cannot choose"));
        let empty = Config {
            cmd_args: vec![String::new()],
            ..Config::default()
        };
        assert!(refused(&spawn, empty).contains("no name"));
    }
}
