//! `svc completions`, `svc man`, and help.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use tokio::{process::Command, time::timeout};

use crate::program::{Home, SOON};
use crate::publishing::panel::TerminalSession;

/// A home with two contexts, and with the script of a shell in this file.
async fn home_with(shell: &str, file: &str) -> Home {
    let home = Home::new();
    for name in ["work", "home"] {
        let set = ["context", "set", name, "--engine", "engine.example.com:443"];
        let output = home.run(&set).await;
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    let output = home.run(&["completions", shell]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    std::fs::write(home.path().join(file), output.stdout).unwrap();
    home
}

/// A shell of the system that finds the program by its name.
fn shell(home: &Home, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let here = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    command
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", path)
        .env("TERM", "xterm")
        .current_dir(home.path())
        .kill_on_drop(true);
    command
}

/// A program that `cargo xtask test` provides.
fn provided(variable: &str) -> OsString {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} names a shell; cargo xtask test sets it"))
}

/// Input up to the completion key, and the completed line.
const LINES: [(&str, &str); 4] = [
    ("svc context use w", "work"),
    ("svc context delete h", "home"),
    ("svc tunnels --context w", "work"),
    ("svc tun", "tunnels"),
];

/// Types each line into a shell on a terminal, and waits for its completion. `before` is typed
/// first.
async fn completes(home: &Home, shell: &[&str], before: &str) {
    for (line, end) in LINES {
        let mut command = self::shell(home, shell[0]);
        let mut terminal = TerminalSession::spawn(command.args(&shell[1..]), 100, 30);
        // The quotes distinguish the echoed input from the expected output.
        terminal.press(&format!("{before}; PS1='rea''dy> '\n"));
        terminal.until_text("ready> ").await;
        terminal.press(&format!("{line}\t"));
        let typed = line.trim_end_matches(|letter| letter != ' ');
        terminal.until_text(&format!("ready> {typed}{end}")).await;
    }
}

#[tokio::test]
async fn bash_completes_names_of_contexts() {
    let home = home_with("bash", "svc.bash").await;
    let bash = ["bash", "--norc", "--noprofile", "-i"];
    completes(&home, &bash, "source ./svc.bash").await;
}

#[tokio::test]
async fn zsh_completes_names_of_contexts() {
    let home = home_with("zsh", "_svc").await;
    let zsh = provided("SVC_TEST_ZSH").into_string().unwrap();
    let zsh = [&zsh, "-f", "-i"];
    let setup = "autoload -Uz compinit; compinit -u -D";
    // The script is found when it is first needed, or sourced.
    completes(&home, &zsh, &format!("fpath=($PWD $fpath); {setup}")).await;
    completes(&home, &zsh, &format!("{setup}; source ./_svc")).await;
}

#[tokio::test]
async fn fish_completes_names_of_contexts() {
    let home = home_with("fish", "svc.fish").await;
    for (line, end) in LINES {
        let mut fish = shell(&home, provided("SVC_TEST_FISH"));
        let asked = format!("source ./svc.fish; complete -C '{line}'");
        let fish = fish.args(["--no-config", "-c", &asked]).output();
        let fish = timeout(SOON, fish).await.unwrap().unwrap();
        let said = String::from_utf8(fish.stdout.clone()).unwrap();
        let names = said.lines().filter_map(|line| line.split('\t').next());
        let names: Vec<_> = names.collect();
        assert_eq!(names, [end], "{line}: {fish:?}");
    }
}

#[tokio::test]
async fn every_shell_gets_a_script() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = home.run(&["completions", shell]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains("SVC_COMPLETE"), "{output:?}");
    }
    // Unknown positions get no completions.
    let asked = home
        .command(&[])
        .env("SVC_COMPLETE", "unknown")
        .output()
        .await;
    let asked = asked.unwrap();
    assert_eq!(asked.status.code(), Some(1));
    assert!(
        asked.stdout.is_empty() && asked.stderr.is_empty(),
        "{asked:?}"
    );
}

#[tokio::test]
async fn each_command_has_a_manual_page() {
    let home = Home::new();
    let page = home.run(&["man"]).await;
    assert!(page.stdout.contains(".TH svc 1"), "{page:?}");
    assert!(page.stdout.contains("refused: authentication"), "{page:?}");
    let written = home.run(&["man", "--dir", "man1"]).await;
    assert_eq!(written.code, Some(0), "{written:?}");
    for name in ["svc.1", "svc-tunnels.1", "svc-context-show.1"] {
        let page = std::fs::read_to_string(home.path().join("man1").join(name)).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
    let codes = home.run(&["help", "exit-codes"]).await;
    assert_eq!(codes.code, Some(0), "{codes:?}");
    assert!(codes.stdout.contains("5  the option"), "{codes:?}");
}

/// The dashboard shows the option that changes a setting of a tunnel. Each is one of `svc forward`.
#[tokio::test]
async fn the_options_that_the_dashboard_shows_exist() {
    let help = Home::new().run(&["help", "forward"]).await.stdout;
    let mut options: Vec<_> = help.split([' ', ',', '=', '[', '<', '\n']).collect();
    options.retain(|word| word.starts_with("--"));
    let format = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/format");
    for file in ["access.ts", "advice.ts", "settings.ts"] {
        let source = std::fs::read_to_string(format.join(file)).unwrap();
        let words = source.split(['"', '`', ' ']);
        let shown: Vec<_> = words.filter(|word| word.starts_with("--")).collect();
        assert!(!shown.is_empty(), "{file} shows none");
        for option in shown {
            assert!(options.contains(&option), "{file}: {option} in {help}");
        }
    }
}
