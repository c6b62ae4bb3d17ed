//! Another account, which the test makes: this needs root.

use std::process::Command;

use pty::{Account, AccountError, Directory};

use crate::world::{SIZE, finish, sh};

/// An account that goes with this value.
struct Made(String);

impl Made {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "the test of other accounts makes one, and has to run as root"
        );
        let name = format!("svcpty{}", std::process::id());
        let made = Command::new("useradd")
            .args(["--create-home", "--shell", "/bin/sh", &name])
            .status();
        assert!(made.unwrap().success(), "useradd made {name}");
        Self(name)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let gone = Command::new("userdel").args(["--remove", &self.0]).output();
        drop(gone);
    }
}

#[tokio::test]
async fn another_account_has_its_own_numbers_groups_terminal_and_home() {
    let made = Made::new();
    let account = Account::named(&made.0).unwrap();
    assert_eq!(Account::numbered(account.uid()).unwrap(), account);
    for terminal in [None, Some(SIZE)] {
        let mut spec = sh(
            "id -un; id -gn; id -G; pwd; cat /etc/shadow; exec true </dev/tty",
            terminal,
        );
        spec.directory = Directory::Exactly(account.home().to_owned());
        spec.account = Some(account.clone());
        let (output, errors, _) = finish(&mut spec.start().unwrap()).await;
        let output = output.replace('\r', "");
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines[..2], [&made.0, &made.0], "{output}");
        // Not one of root's groups is left.
        assert!(!lines[2].split(' ').any(|id| id == "0"), "{output}");
        assert_eq!(lines[3], account.home().to_str().unwrap());
        assert!((output + &errors).contains("Permission denied"), "{errors}");
    }
    // Its terminal is its own, so that it can be opened by its name.
    let mut spec = sh("stat -c %U $(tty); : <$(tty) && echo opened", Some(SIZE));
    spec.account = Some(account);
    let (output, ..) = finish(&mut spec.start().unwrap()).await;
    assert_eq!(output.replace('\r', ""), format!("{}\nopened\n", made.0));
}

#[tokio::test]
async fn an_account_that_is_not_there_is_told() {
    assert!(matches!(
        Account::named("nobody-is-called-so"),
        Err(AccountError::Unknown(_))
    ));
    Account::own().unwrap().check().unwrap();
}
