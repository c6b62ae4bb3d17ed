//! `svc login --token-storage keyring` with a real keyring. The refusal of builds without one is
//! tested next to its code. On macOS no test writes to the user's keychain.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::installed::up;
use crate::program::{CommandOutput, Home, SOON};

/// A context whose token is in a keyring.
fn keep_context(home: &Home, account: &str) {
    let directory = home.path().join(".config/svc/contexts");
    std::fs::create_dir_all(&directory).unwrap();
    let context = json!({"api_url": "http://127.0.0.1:9", "engine": "127.0.0.1:9", "keyring_account": account});
    std::fs::write(directory.join("default.json"), context.to_string()).unwrap();
}

fn kept(home: &Home) -> Option<Value> {
    let path = home.path().join(".config/svc/contexts/default.json");
    let text = std::fs::read(path).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// A desktop session: a bus that starts a keyring on its first use.
struct Desktop {
    home: Home,
    address: String,
    _bus: Child,
}

impl Desktop {
    async fn start() -> Self {
        let home = Home::new();
        let runtime = home.path().join("run");
        let services = runtime.join("dbus-1/services");
        fs::create_dir_all(&services).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        // Unlocked with a login password, as by a desktop. The collection is new.
        let daemon = program("SVC_TEST_KEYRING");
        let script = home.path().join("keyring.sh");
        let line = format!(
            "printf password | exec '{}' --foreground --unlock --components=secrets",
            daemon.display()
        );
        fs::write(&script, line).unwrap();
        let service = format!(
            "[D-BUS Service]\nName=org.freedesktop.secrets\nExec=/bin/sh {}\n",
            script.display()
        );
        fs::write(services.join("org.freedesktop.secrets.service"), service).unwrap();
        let mut bus = Command::new(program("SVC_TEST_DBUS"))
            .args(["--session", "--nofork", "--nopidfile", "--print-address"])
            .env_clear()
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(bus.stdout.take().unwrap()).lines();
        let address = timeout(SOON, lines.next_line()).await.unwrap().unwrap();
        Self {
            home,
            address: address.unwrap(),
            _bus: bus,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address);
        command
    }

    async fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of_command(self.command(args)).await
    }
}

fn program(variable: &str) -> PathBuf {
    let path: Option<OsString> = std::env::var_os(variable);
    let path = path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`"));
    PathBuf::from(path)
}

#[tokio::test]
async fn a_token_in_the_keyring_works_for_every_command_until_logout() {
    let desktop = Desktop::start().await;
    let home = &desktop.home;
    let up = up(home, &[]).await;
    let token = home.path().join("token");
    fs::write(&token, up.ready_field("token")).unwrap();
    let from_file = ["--token-file", token.to_str().unwrap()];
    let login = ["login", "--api-url", up.ready_field("base_url")];
    let in_keyring = [&login[..], &from_file, &["--token-storage", "keyring"]].concat();
    let signed_in = desktop.run(&in_keyring).await;
    assert_eq!(signed_in.code, Some(0), "{signed_in:?}");
    let context = kept(home).unwrap();
    let path = home.path().join(".config/svc/contexts/default.json");
    assert_eq!(context["keyring_account"], path.to_str().unwrap());
    assert!(
        !context.to_string().contains(up.ready_field("token")),
        "{context}"
    );

    let default = ["--context", "default"];
    let endpoint = up.ready_field("project_endpoint");
    for args in [
        &["whoami"][..],
        &["project", "use", endpoint],
        &["project", "list"],
        &["token", "inspect"],
    ] {
        let output = desktop.run(&[args, &default].concat()).await;
        assert_eq!(output.code, Some(0), "{args:?} {output:?}");
        let context = kept(home).unwrap();
        assert_eq!(context["keyring_account"], path.to_str().unwrap());
    }

    let logout = desktop.run(&["logout"]).await;
    assert_eq!(logout.code, Some(0), "{logout:?}");
    assert!(logout.stderr.contains("was issued elsewhere"), "{logout:?}");
    assert_eq!(kept(home), None);
    is_forgotten(&desktop, &path).await;

    // A login with file storage leaves no token in the keyring.
    assert_eq!(desktop.run(&in_keyring).await.code, Some(0));
    let in_file = desktop.run(&[&login[..], &from_file].concat()).await;
    assert_eq!(in_file.code, Some(0), "{in_file:?}");
    assert_eq!(kept(home).unwrap()["token"], up.ready_field("token"));
    is_forgotten(&desktop, &path).await;
}

async fn is_forgotten(desktop: &Desktop, account: &std::path::Path) {
    keep_context(&desktop.home, account.to_str().unwrap());
    let args = ["whoami", "--context", "default"];
    let whoami = desktop.run(&args).await;
    assert_eq!(whoami.code, Some(1), "{whoami:?}");
    for said in ["has no token", "svc login"] {
        assert!(whoami.stderr.contains(said), "{whoami:?}");
    }
}

/// Without a desktop, the error is reported before the login starts, and nothing is deleted.
#[tokio::test]
async fn without_a_secret_service_the_next_step_is_shown() {
    let home = Home::new();
    let nowhere = format!("unix:path={}/none", home.path().display());
    let run = async |args: &[&str]| {
        let mut command = home.command(args);
        command.env("DBUS_SESSION_BUS_ADDRESS", &nowhere);
        CommandOutput::of_command(command).await
    };
    let login = ["login", "--api-url", "http://127.0.0.1:9"];
    let login = run(&[&login[..], &["--token-storage", "keyring"]].concat()).await;
    assert_eq!(login.code, Some(1), "{login:?}");
    for said in ["keyring cannot be reached", "--token-storage file"] {
        assert!(login.stderr.contains(said), "{login:?}");
    }
    assert_eq!(kept(&home), None);

    keep_context(&home, "/somewhere/default.json");
    for args in [&["whoami"][..], &["tunnels"], &["logout"]] {
        let output = run(args).await;
        assert_eq!(output.code, Some(1), "{args:?} {output:?}");
        assert!(
            output.stderr.contains("secret service"),
            "{args:?} {output:?}"
        );
    }
    assert!(kept(&home).is_some());
    let given = run(&["whoami", "--token", "a.b.c"]).await;
    assert!(given.stderr.contains("cannot reach"), "{given:?}");
}
