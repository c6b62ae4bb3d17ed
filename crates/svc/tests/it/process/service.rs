//! `svc service`: the unit, verified by systemd's own tool. No systemd runs here.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use tokio::process::Command;

use crate::program::{CommandOutput, Home};

/// The file that `svc run` uses in this directory, and that the README writes.
#[tokio::test]
async fn the_file_of_this_directory_is_the_default() {
    let home = Home::new();
    fs::write(home.path().join("svc.yaml"), "version: 1\n").unwrap();
    let file = text(&home.path().canonicalize().unwrap().join("svc.yaml"));
    for more in [&[][..], &["--user"]] {
        let printed = home.run(&[&["service", "print"], more].concat()).await;
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert!(
            printed.stdout.contains(&format!(" run {file}\n")),
            "{printed:?}"
        );
        // Relative paths in the file refer to the directory of `svc run`.
        let directory = file.strip_suffix("/svc.yaml").unwrap();
        let line = format!("WorkingDirectory={directory}\n");
        assert!(printed.stdout.contains(&line), "{printed:?}");
    }
    let args = ["service", "install", "--user", "--no-start"];
    let installed = home.run(&args).await;
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(
        installed
            .stderr
            .contains(&format!("the service runs {file}")),
        "{installed:?}"
    );
    let unit = home.path().join(".config/systemd/user/svc-agent.service");
    assert!(fs::read_to_string(unit).unwrap().contains(&file));

    // Another file takes precedence.
    let other = home
        .run(&["service", "print", "--user", "other.yaml"])
        .await;
    assert!(other.stdout.contains("other.yaml"), "{other:?}");
}

/// A configuration and a token for `svc service`.
fn files(home: &Home) -> (String, String) {
    let (file, token) = (home.path().join("agent.yaml"), home.path().join("to ken"));
    fs::write(&file, "version: 1\n").unwrap();
    fs::write(&token, "a.secret.token\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    (text(&file), text(&token))
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

async fn analyze(home: &Home, args: &[&str]) -> CommandOutput {
    // Only systemd includes it. `cargo xtask provision` installs it on systems with systemd.
    let program = env::var_os("SVC_TEST_SYSTEMD_ANALYZE").unwrap_or_else(|| {
        panic!("SVC_TEST_SYSTEMD_ANALYZE names systemd-analyze; cargo xtask test sets it")
    });
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path());
    CommandOutput::of_command(command).await
}

#[tokio::test]
async fn the_unit_passes_verification_and_contains_no_secret() {
    let home = Home::new();
    let (file, token) = files(&home);
    for more in [&[][..], &["--docker"], &["--user"]] {
        let print = ["service", "print", &file, "--token-file", &token];
        let printed = home.run(&[&print, more].concat()).await;
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert!(!printed.stdout.contains("a.secret.token"), "{printed:?}");
        fs::write(home.path().join("svc-agent.service"), &printed.stdout).unwrap();
        let mode = if more == ["--user"] {
            "--user"
        } else {
            "--system"
        };
        let verify = ["verify", mode, "--man=no", "--recursive-errors=no"];
        let verified = analyze(&home, &[&verify[..], &["./svc-agent.service"]].concat()).await;
        assert_eq!(
            (verified.code, verified.stderr.as_str()),
            (Some(0), ""),
            "{printed:?}"
        );
    }
}

/// 100 is a root service without restrictions. The remaining exposure is mostly the network, which
/// tunnels need.
#[tokio::test]
async fn a_system_service_has_minimal_exposure() {
    let home = Home::new();
    let (file, token) = files(&home);
    let print = ["service", "print", &file, "--token-file", &token];
    let printed = home.run(&print).await;
    fs::write(home.path().join("svc-agent.service"), &printed.stdout).unwrap();
    let security = ["security", "--offline=true", "--threshold=20", "--no-pager"];
    let judged = analyze(&home, &[&security[..], &["./svc-agent.service"]].concat()).await;
    assert_eq!(judged.code, Some(0), "{}", judged.stdout);
}

#[tokio::test]
async fn a_user_service_is_installed_and_removed() {
    let home = Home::new();
    let (file, token) = files(&home);
    let install = ["service", "install", "--user", "--no-start", &file];
    let install = [&install[..], &["--token-file", &token]].concat();
    let installed = home.run(&install).await;
    assert_eq!(installed.code, Some(0), "{installed:?}");
    let unit = home.path().join(".config/systemd/user/svc-agent.service");
    let written = fs::read_to_string(&unit).unwrap();
    let program = env!("CARGO_BIN_EXE_svc");
    let line = format!("ExecStart={program} run {file} --token-file \"{token}\"\n");
    assert!(written.contains(&line), "{written}");

    // A token that other users can read is refused.
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = home.run(&install).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("hint: chmod 600"), "{refused:?}");

    let removed = home.run(&["service", "uninstall", "--user"]).await;
    assert!(!unit.exists(), "{removed:?}");
    let status = home.run(&["service", "status", "--user"]).await;
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(
        status.stderr.contains("`svc service install`"),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_service_needs_its_file() {
    let home = Home::new();
    let missing = ["service", "install", "--user", "--no-start", "none.yaml"];
    let missing = home.run(&missing).await;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("cannot read"), "{missing:?}");
    let named = home.run(&["service", "print", "--name", "../x"]).await;
    assert_eq!(named.code, Some(2), "{named:?}");
}
