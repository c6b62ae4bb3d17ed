//! Invalid messages.

use futures_util::SinkExt as _;
use terminal::server::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;
use tty::frame;
use tty::message::{Ack, Close, Kind, Parameter, Stream, TerminalSize};

use crate::ends::{Client, Host, published, script};

#[tokio::test]
async fn messages_out_of_order_are_refused_and_the_command_ends() {
    let host = Host::new();
    let before: [(Kind, &str); 4] = [
        (Kind::data(Stream::Stdin, "x"), "an unexpected data"),
        (Kind::Ack(Ack::default()), "an unexpected ack"),
        (
            Kind::Attach(Box::default()),
            "does not support joining sessions",
        ),
        (
            Kind::ClientHello(tty::message::ClientHello::default()),
            "an unexpected client hello",
        ),
    ];
    for (kind, told) in before {
        // On a plain stream the client disconnects first.
        let mut client = host.plain();
        client.send(&kind).await;
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
        let mut client = host.websocket().await;
        client.send(&kind).await;
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
        assert_eq!(client.said().await, None);
    }
    let while_it_runs: [(Kind, &str); 4] = [
        (
            Kind::Open(Box::new(script("true", false))),
            "an unexpected open",
        ),
        (Kind::data(Stream::Stdout, "x"), "not input"),
        (
            Kind::Parameter(Parameter::from(TerminalSize::default())),
            "without a terminal",
        ),
        (Kind::Close(Close::default()), "an unexpected close"),
    ];
    for (kind, told) in while_it_runs {
        let mut client = host.plain();
        client.open(script("sleep 600", false)).await;
        client.send(&kind).await;
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
    }
    host.empty().await;
}

#[tokio::test]
async fn garbage_and_oversized_frames_end_only_their_connection() {
    let host = Host::new();
    let mut other = host.plain();
    other.open(published(&[], true)).await;
    let too_large = (u32::try_from(tty::message::limits::MAX_MESSAGE).unwrap() + 1).to_be_bytes();
    for (bytes, told) in [
        (&[0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff][..], "not a WebTTY"),
        (&[0, 0, 0, 0][..], "not a WebTTY"),
        (&too_large[..], "too large"),
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "too large"),
    ] {
        let mut stream = host.stream(Transport::Plain);
        stream.write_all(bytes).await.unwrap();
        let mut client = Client::Plain(stream, frame::Decoder::new());
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
    }
    // A truncated frame is a lost connection.
    let mut stream = host.stream(Transport::Plain);
    stream.write_all(&[0, 0, 1, 0, 10]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
    other.input("echo here\n").await;
    other.until("here").await;
}

#[tokio::test]
async fn a_websocket_has_binary_messages_of_a_maximum_size() {
    let host = Host::new();
    let large = vec![0; tty::message::limits::MAX_MESSAGE + 1];
    for (message, told) in [
        (Message::text("hello"), "a text message"),
        (Message::binary(large), "too large"),
        (Message::binary(vec![0xff; 9]), "not a WebTTY"),
        (Message::binary(Vec::new()), "unknown WebTTY"),
    ] {
        let mut client = host.websocket().await;
        let Client::WebSocket(socket) = &mut client else {
            unreachable!()
        };
        // The server may disconnect before everything is sent.
        drop(socket.send(message).await);
        let refused = client.refused().await;
        assert!(refused.contains(told), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_clients_are_disconnected() {
    let host = Host::new();
    let mut client = host.plain();
    assert!(client.refused().await.contains("in time"));
    let attach = Kind::Attach(Box::default());
    let mut client = host.plain();
    client.send(&attach).await;
    client.refused().await;
}
