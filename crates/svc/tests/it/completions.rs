//! `svc completions`, `svc man`, and help.

use super::program::Home;

#[tokio::test]
async fn every_shell_gets_a_script_that_knows_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = home.run(&["completions", shell]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for command in ["tunnels", "context", "doctor"] {
            assert!(ended.stdout.contains(command), "{shell} lacks {command}");
        }
    }
    // The one shell that is everywhere reads it, and offers what begins so.
    let script = home.run(&["completions", "bash"]).await.stdout;
    std::fs::write(home.path().join("svc.bash"), script).unwrap();
    let asked = "source ./svc.bash; COMP_WORDS=(svc tun); COMP_CWORD=1; _svc svc tun svc; \
                 echo \"${COMPREPLY[@]}\"";
    let bash = tokio::process::Command::new("bash")
        .args(["--norc", "-c", asked])
        .current_dir(home.path())
        .output()
        .await
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&bash.stdout).trim(),
        "tunnels",
        "{bash:?}"
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
