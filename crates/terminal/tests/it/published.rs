//! Sessions of published clients, which do not use the extensions of this project.

use tty::message::{Ack, Heartbeat, Kind, Parameter, Stream, TerminalSize, User, Username};

use crate::ends::{Client, Host, published, script, with_environment};

async fn both(host: &Host) -> [Client; 2] {
    [host.plain(), host.websocket().await]
}

#[tokio::test]
async fn a_command_with_pipes_has_separate_streams_and_an_exit_code() {
    let host = Host::new();
    for mut client in both(&host).await {
        let ack = client
            .open(script("cat; echo $A in $PWD >&2; exit 7", false))
            .await;
        assert_eq!(ack, Ack::default());
        client.input("typed").await;
        client.send(&Kind::end(Stream::Stdin)).await;
        let (output, errors, close) = client.finish().await;
        assert_eq!((output.as_str(), errors.as_str()), ("typed", "in /\n"));
        assert_eq!((close.return_code, close.termination), (7, None));
    }
    host.empty().await;
}

#[tokio::test]
async fn a_terminal_has_its_initial_size_and_can_be_resized() {
    let host = Host::new();
    for mut client in both(&host).await {
        client.open(published(&[], true)).await;
        client.input("stty size; tty; echo \"shell $0\"\n").await;
        let seen = client.until("shell -sh").await;
        assert!(seen.contains("24 80") && seen.contains("/dev/"), "{seen}");
        let size = TerminalSize {
            row: 40,
            col: 120,
            ..TerminalSize::default()
        };
        client.send(&Kind::Parameter(Parameter::from(size))).await;
        client.input("stty size\n").await;
        client.until("40 120").await;
        client.input("exit 3\n").await;
        let (_, errors, close) = client.finish().await;
        assert_eq!((errors.as_str(), close.return_code), ("", 3));
    }
    host.empty().await;
}

#[tokio::test]
async fn keys_send_signals_and_signals_become_exit_codes() {
    let host = Host::new();
    let mut client = host.websocket().await;
    client
        .open(script("echo ready; exec sleep 600", true))
        .await;
    client.until("ready").await;
    client.input("\x03").await;
    assert_eq!(client.finish().await.2.return_code, 130);
}

#[tokio::test]
async fn environment_directory_and_account() {
    let host = Host::new();
    let open = script("echo $A $TERM; pwd", false);
    let mut client = host.plain();
    client
        .open(with_environment(open, "/tmp", &[("A", "b c")]))
        .await;
    assert_eq!(client.finish().await.0, "b c\n/tmp\n");

    let mut client = host.plain();
    let open = with_environment(script("", false), "/no/such/folder", &[]);
    client.send(&Kind::Open(Box::new(open))).await;
    let told = client.refused().await;
    assert!(told.contains("/no/such/folder: No such file"), "{told}");

    for (user, told) in [
        ("daemon", "run as"),
        ("nobody-is-called-so", "does not exist"),
    ] {
        let mut open = script("", false);
        open.config.as_mut().unwrap().username = Some(Username {
            payload: Some(User::Name(user.to_owned())),
        });
        let mut client = host.plain();
        client.send(&Kind::Open(Box::new(open))).await;
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
    }
    let mut client = host.plain();
    let open = published(&["no-such-program-anywhere"], false);
    client.send(&Kind::Open(Box::new(open))).await;
    assert!(client.refused().await.contains("No such file"));
    host.empty().await;
}

#[tokio::test]
async fn much_output_is_complete_and_does_not_pile_up() {
    let host = Host::new();
    for mut client in both(&host).await {
        client
            .open(script("head -c 20000000 /dev/zero | tr '\\0' x", true))
            .await;
        let (output, _, close) = client.finish().await;
        assert_eq!((output.len(), close.return_code), (20_000_000, 0));
    }
}

/// The command does not outlive a client that cannot reconnect.
#[tokio::test]
async fn a_lost_client_ends_its_command() {
    let host = Host::new();
    for mut client in both(&host).await {
        client.open(published(&[], true)).await;
        client.input("echo pid $$\n").await;
        client.until("pid ").await;
        drop(client);
    }
    host.empty().await;
}

#[tokio::test]
async fn heartbeats_are_accepted() {
    let host = Host::new();
    let mut client = host.plain();
    client.send(&Kind::Heartbeat(Heartbeat::default())).await;
    client.open(script("read x; echo got $x", false)).await;
    client.send(&Kind::Heartbeat(Heartbeat::default())).await;
    client.input("it\n").await;
    assert_eq!(client.finish().await.0, "got it\n");
}
