//! `svc webtty client` on a terminal.

use futures_util::{SinkExt as _, StreamExt as _};
use nix::sys::signal::Signal;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;
use tty::message::{self, Ack, AckSession, Close, Feature, Heartbeat, Kind, Notice, NoticeKind};

use crate::program::Home;
use crate::publishing::panel::TerminalSession;
use crate::terminals::webtty_client::served::{Options, TestServer};

async fn shell(home: &Home, url: &str) -> TerminalSession {
    let mut terminal =
        TerminalSession::start(home, &["webtty", "client", url, "--", "sh"], 100, 30);
    terminal.until_text("ready> ").await;
    terminal
}

/// Waits until the remote terminal has 120 columns and 40 rows. It prints each size once, for the
/// report of a failure.
async fn until_sized(terminal: &mut TerminalSession) {
    terminal.press(
        "until s=$(stty size); [ \"$s\" = \"$l\" ] || echo \"has $s\"; l=$s; \
         [ \"$s\" = '40 120' ]; do sleep 0.05; done; echo si''zed\r",
    );
    terminal.until_text("sized").await;
}

/// WT-1: a shell with its own terminal, which follows the size, receives all keys, and ends the
/// client with it.
#[tokio::test]
async fn a_client_controls_a_remote_shell() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let mut terminal = shell(&home, &served.url()).await;
    terminal.press("echo $((6 * 7)) $TERM; stty size\r");
    terminal.until_text("42 xterm-256color").await;
    terminal.until_text("30 100").await;
    terminal.resize(120, 40);
    until_sized(&mut terminal).await;
    // Ctrl-C ends the remote command, and not this program.
    terminal.press("sh -c 'echo ru\"\"ns; exec sleep 600'\r");
    terminal.until_text("runs").await;
    terminal.press("\u{3}");
    terminal.press("echo sti''ll here\r");
    terminal.until_text("still here").await;
    terminal.press("exit 5\r");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("[svc] session ended (exit code 5)"), "{text}");
}

/// A shell has the colours and the language of the user's own terminal.
#[tokio::test]
async fn a_shell_has_the_locale_and_the_colours_of_the_client() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let environment = [
        ("TERM", "xterm-256color"),
        ("COLORTERM", "truecolor"),
        ("LANG", "de_DE.UTF-8"),
        ("LC_TIME", "en_GB.UTF-8"),
    ];
    let args = ["webtty", "client", &url, "--", "sh"];
    let mut terminal = TerminalSession::start_with(&home, &args, 100, 30, &environment);
    terminal.until_text("ready> ").await;
    terminal.press("echo $COLORTERM/$LANG/$LC_TIME\r");
    let expected = "truecolor/de_DE.UTF-8/en_GB.UTF-8";
    terminal.until_text(expected).await;
    terminal.press("exit\r");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(0), "{text}");
}

/// A stopped program gets no SIGWINCH, because another job is in the foreground.
#[tokio::test]
async fn a_client_that_continues_passes_on_the_size_from_meanwhile() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let mut terminal = shell(&home, &served.url()).await;
    terminal.signal(Signal::SIGSTOP);
    terminal.is_in_state('T').await;
    terminal.set_size(120, 40);
    terminal.signal(Signal::SIGCONT);
    until_sized(&mut terminal).await;
    terminal.press("exit\r");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn a_client_disconnects_with_an_escape() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let mut terminal = shell(&home, &served.url()).await;
    terminal.press("echo a~.b\r");
    terminal.until_text("a~.b").await;
    terminal.press("~?");
    terminal.until_text("~.  disconnect").await;
    // A program with its own screen is cut off, and the screen is restored.
    terminal.press("printf '\\033[?1049h\\033[?25lfull'; sleep 600\r");
    terminal
        .until(|screen| screen.alternate_screen() && screen.hide_cursor())
        .await;
    // Input during the sleep starts a line.
    terminal.press("\r~.");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(255), "{text}");
    assert!(text.contains("[svc] hung up"), "{text}");
}

#[tokio::test]
async fn a_signal_restores_the_terminal() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let terminal = shell(&home, &served.url()).await;
    terminal.signal(Signal::SIGTERM);
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(143), "{text}");
}

/// WT-1: the shell outlives its connection, and input from the meantime is delivered.
#[tokio::test]
async fn a_lost_connection_is_resumed_with_the_same_shell() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let mut terminal = shell(&home, &served.url()).await;
    terminal.press("kept=yes\r");
    served.cut();
    terminal.until_text("[svc] connection lost").await;
    terminal.press("echo kept=$kept\r");
    terminal.until_text("[svc] reconnected").await;
    terminal.until_text("kept=yes").await;
    terminal.press("exit\r");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(0), "{text}");
}

/// WT-2: the controller sees the requester and the reason on a separate line, and answers with two
/// keys. They do not go to a request that was withdrawn.
#[tokio::test]
async fn the_controller_answers_control_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let engine = tokio::spawn(async move {
        let (stream, _peer) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let send = |kind: &Kind| Message::Binary(message::encode(kind).unwrap());
        let ack = Kind::Ack(Ack {
            session: Some(AckSession {
                features: vec![Feature::Notices.into()],
                ..AckSession::default()
            }),
        });
        socket.send(send(&ack)).await.unwrap();
        for (kind, request_id) in [
            (NoticeKind::Requested, "req_0"),
            (NoticeKind::Revoked, "req_0"),
            (NoticeKind::Requested, "req_1"),
            (NoticeKind::Requested, "req_2"),
        ] {
            let asks = Kind::Heartbeat(Heartbeat {
                notice: Some(Box::new(Notice {
                    kind: kind.into(),
                    request_id: request_id.to_owned(),
                    user: "ada".to_owned(),
                    reason: "to fix it".to_owned(),
                    ..Notice::default()
                })),
                ..Heartbeat::default()
            });
            socket.send(send(&asks)).await.unwrap();
        }
        let mut decisions = Vec::new();
        while decisions.len() < 2 {
            if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap()
                && let Kind::Heartbeat(heartbeat) = message::decode(bytes).unwrap()
                && let Some(decision) = heartbeat.decision
            {
                decisions.push((decision.request_id, decision.grant));
            }
        }
        let close = Kind::Close(Close::default());
        socket.send(send(&close)).await.unwrap();
        decisions
    });
    let home = Home::new();
    let mut terminal = TerminalSession::start(&home, &["webtty", "client", &url], 100, 30);
    terminal
        .until(|screen| {
            let question = "[svc] ada requests control: to fix it (~y grants, ~n refuses)";
            let withdrawn = "[svc] ada has withdrawn the request for control";
            let text = screen.contents();
            text.matches(question).count() == 3 && text.contains(withdrawn)
        })
        .await;
    terminal.press("~y~n");
    let (code, text) = terminal.ended().await;
    assert_eq!(code, Some(0), "{text}");
    let answers = [("req_1".to_owned(), true), ("req_2".to_owned(), false)];
    assert_eq!(engine.await.unwrap(), answers);
}
