//! Another account, which the test creates. This needs root.

use std::process::Command;

use pty::{Account, AccountError, Directory};

use crate::world::{SIZE, finish, sh};

/// An account that is deleted on drop.
struct TestAccount(String);

impl TestAccount {
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

impl Drop for TestAccount {
    fn drop(&mut self) {
        let gone = Command::new("userdel").args(["--remove", &self.0]).output();
        drop(gone);
    }
}

#[tokio::test]
async fn another_account_has_its_own_ids_groups_terminal_and_home() {
    let made = TestAccount::new();
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
        // None of root's groups is left.
        assert!(!lines[2].split(' ').any(|id| id == "0"), "{output}");
        assert_eq!(lines[3], account.home().to_str().unwrap());
        assert!((output + &errors).contains("Permission denied"), "{errors}");
    }
    // It owns its terminal, so it can open it by name.
    let mut spec = sh("stat -c %U $(tty); : <$(tty) && echo opened", Some(SIZE));
    spec.account = Some(account);
    let (output, ..) = finish(&mut spec.start().unwrap()).await;
    assert_eq!(output.replace('\r', ""), format!("{}\nopened\n", made.0));
}

#[tokio::test]
async fn a_missing_account_is_reported() {
    assert!(matches!(
        Account::named("nobody-is-called-so"),
        Err(AccountError::Unknown(_))
    ));
    Account::current().unwrap().check().unwrap();
}
