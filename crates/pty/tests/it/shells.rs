use pty::{Directory, Exit, Signal, Size, StartError};

use crate::world::{SIZE, exit, finish, sh, until, write};

#[tokio::test]
async fn pipes_are_separate_and_the_end_of_input_is_seen() {
    let mut process = sh("cat; echo err >&2; exit 7", None).start().unwrap();
    assert!(!process.has_terminal());
    write(&mut process, b"in").await;
    process.end_input();
    let (output, errors, exit) = finish(&mut process).await;
    assert_eq!((output.as_str(), errors.as_str()), ("in", "err\n"));
    assert_eq!(exit, Exit::Code(7));
}

#[tokio::test]
async fn a_terminal_has_its_initial_size_and_can_be_resized() {
    let script =
        "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut process = sh(script, Some(Size { rows: 7, cols: 91 }))
        .start()
        .unwrap();
    let seen = until(&mut process, "ready").await;
    assert!(seen.contains("7 91"), "{seen}");
    process
        .resize(Size {
            rows: 40,
            cols: 120,
        })
        .unwrap();
    until(&mut process, "40 120").await;
    assert_eq!(exit(&mut process).await, Exit::Code(0));
}

#[tokio::test]
async fn a_command_controls_its_terminal_and_keys_send_signals() {
    let script = "tty; ps -o tpgid= -p $$ >/dev/null; exec sleep 60";
    let mut process = sh(script, Some(SIZE)).start().unwrap();
    until(&mut process, "/dev/").await;
    write(&mut process, b"\x03").await;
    assert_eq!(exit(&mut process).await, Exit::Signal(2, "INT"));
}

#[tokio::test]
async fn a_signal_reaches_the_foreground_and_its_name_is_returned() {
    for (signal, number, name) in [(Signal::SIGUSR1, 10, "USR1"), (Signal::SIGKILL, 9, "KILL")] {
        for terminal in [None, Some(SIZE)] {
            let mut process = sh("echo ready; exec sleep 60", terminal).start().unwrap();
            until(&mut process, "ready").await;
            process.signal(signal);
            assert_eq!(exit(&mut process).await, Exit::Signal(number, name));
        }
    }
}

/// A shell gives each job its own group, and a stopped job does not react.
#[tokio::test]
async fn all_descendants_end_with_the_command() {
    let script = "set -m; sleep 61 & a=$!; sleep 62 & kill -STOP $!; echo $a $! ready; wait";
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut process = sh(script, Some(SIZE)).start().unwrap();
        let seen = until(&mut process, "ready").await;
        let jobs: Vec<i32> = seen
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(jobs.len(), 2, "{seen}");
        process.signal(signal);
        exit(&mut process).await;
        drop(process);
        for job in jobs {
            gone(job).await;
        }
    }
}

#[tokio::test]
async fn dropping_it_ends_all_descendants() {
    let mut process = sh("trap '' TERM HUP; sleep 63 & echo $!; wait", None)
        .start()
        .unwrap();
    let seen = until(&mut process, "\n").await;
    drop(process);
    gone(seen.trim().parse().unwrap()).await;
}

#[tokio::test]
async fn hidden_input_is_detected() {
    let script = "stty -echo; echo hidden; read x; stty echo; echo shown; read y; \
                  stty -icanon -echo; echo keys; read z";
    let mut process = sh(script, Some(SIZE)).start().unwrap();
    until(&mut process, "hidden").await;
    assert!(process.hides_input());
    write(&mut process, b"\n").await;
    until(&mut process, "shown").await;
    assert!(!process.hides_input());
    write(&mut process, b"\n").await;
    until(&mut process, "keys").await;
    // An editor or a shell echoes typed text itself.
    assert!(!process.hides_input());
}

#[tokio::test]
async fn ignored_signals_of_the_server_are_not_inherited() {
    let mut process = sh("kill -HUP $$; echo survived", None).start().unwrap();
    let (output, _, exit) = finish(&mut process).await;
    assert_eq!((output.as_str(), exit), ("", Exit::Signal(1, "HUP")));
}

#[tokio::test]
async fn the_environment_and_the_directory_are_the_requested_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = sh("pwd; echo $A; env | sort", None);
    spec.environment.push(("A".into(), "b c".into()));
    spec.directory = Directory::Exactly(dir.path().canonicalize().unwrap());
    let (output, _, _) = finish(&mut spec.start().unwrap()).await;
    let mut lines = output.lines();
    assert_eq!(lines.next(), dir.path().canonicalize().unwrap().to_str());
    assert_eq!(lines.next(), Some("b c"));
    assert!(lines.all(|line| {
        ["A=", "PATH=", "PWD=", "OLDPWD=", "SHLVL=", "_="]
            .iter()
            .any(|name| line.starts_with(name))
    }));

    spec.directory = Directory::Exactly(dir.path().join("no"));
    let failed = spec.start().unwrap_err();
    assert!(matches!(failed, StartError::Directory { .. }), "{failed}");
    spec.directory = Directory::OrRoot(dir.path().join("no"));
    let (output, _, _) = finish(&mut spec.start().unwrap()).await;
    assert!(output.starts_with("/\n"), "{output}");
}

#[tokio::test]
async fn a_failed_start_returns_the_reason() {
    for terminal in [None, Some(SIZE)] {
        let mut spec = sh("", terminal);
        spec.program = "no-such-program-anywhere".into();
        let failed = spec.start().unwrap_err();
        assert!(failed.to_string().contains("No such file"), "{failed}");
    }
}

#[tokio::test]
async fn much_output_arrives_completely_in_large_pieces() {
    let mut process = sh("head -c 3000000 /dev/zero | tr '\\0' x", Some(SIZE))
        .start()
        .unwrap();
    let (output, _, _) = finish(&mut process).await;
    assert_eq!(output.len(), 3_000_000);
}

/// Waits until a process is gone or a zombie.
async fn gone(pid: i32) {
    let stat = format!("/proc/{pid}/stat");
    let wait = async {
        while let Ok(stat) = std::fs::read_to_string(&stat) {
            if stat.contains(") Z ") {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::world::SOON, wait)
        .await
        .expect("it is gone");
}
