//! Commands of the tests, and waits for their output.

use std::ffi::OsString;
use std::future::poll_fn;
use std::time::Duration;

use pty::{Directory, Exit, Output, Process, Size, Spec};
use tokio::time::timeout;

/// Longer than any step of these tests takes.
pub(crate) const SOON: Duration = Duration::from_secs(50);

pub(crate) const SIZE: Size = Size { rows: 24, cols: 80 };

/// `sh -c script`, with or without a terminal.
pub(crate) fn sh(script: &str, terminal: Option<Size>) -> Spec {
    Spec {
        program: "/bin/sh".into(),
        arg0: None,
        arguments: ["-c", script].map(OsString::from).to_vec(),
        environment: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
        directory: Directory::Exactly("/".into()),
        account: None,
        terminal,
    }
}

/// Reads until the output contains a text.
pub(crate) async fn until(process: &mut Process, text: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(text) {
        let read = poll_fn(|cx| process.poll_read(cx, Output::Main, &mut buffer));
        let read = timeout(SOON, read).await.expect("output in time").unwrap();
        assert_ne!(
            read,
            0,
            "the output ended: {}",
            String::from_utf8_lossy(&seen)
        );
        seen.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Reads all output up to the end.
pub(crate) async fn finish(process: &mut Process) -> (String, String, Exit) {
    let mut all = [Vec::new(), Vec::new()];
    let mut buffer = vec![0; 64 * 1024];
    for (from, all) in [Output::Main, Output::Errors].into_iter().zip(&mut all) {
        loop {
            let read = poll_fn(|cx| process.poll_read(cx, from, &mut buffer));
            let read = timeout(SOON, read).await.expect("output in time").unwrap();
            if read == 0 {
                break;
            }
            all.extend_from_slice(&buffer[..read]);
        }
    }
    let [output, errors] = all.map(|all| String::from_utf8(all).unwrap());
    (output, errors, exit(process).await)
}

pub(crate) async fn exit(process: &mut Process) -> Exit {
    let exit = poll_fn(|cx| process.poll_exit(cx));
    timeout(SOON, exit).await.expect("an end in time").unwrap()
}

pub(crate) async fn write(process: &mut Process, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let wrote = poll_fn(|cx| process.poll_write(cx, bytes)).await.unwrap();
        bytes = &bytes[wrote..];
    }
}
