//! Sessions with end-to-end encryption.

use std::sync::Arc;

use terminal::client::{CommandEnd, Event, Request, Session, SessionError};
use terminal::server::Seal;
use tty::message::{ClientHello, Data, Kind, OpenCommand, Payload, Resume, Stream};
use tty::seal::{Channel, ClientHandshake, Content, Identity};
use tty::session::ClientError;

use crate::ends::{Client, Host, ours, script};
use crate::interceptor::{Interceptor, MessageSender, read_to_end};

const CONTEXT: &[u8] = b"wsv_1";

fn host(server: &Arc<Identity>, client: &Identity) -> Host {
    let known = client.public();
    Host::sealed(Seal {
        identity: Arc::clone(server),
        context: CONTEXT.to_vec(),
        authorized: Arc::new(move |key| *key == known),
    })
}

/// Sends hello and open. Returns the error if the server refuses.
async fn open(
    client: &mut Client,
    me: &Identity,
    server: &Identity,
    open: OpenCommand,
) -> Result<(tty::message::Ack, Channel), String> {
    open_through(client, me, server, open, |_| {}).await
}

/// The same through an interceptor that changes the open message.
async fn open_through(
    client: &mut Client,
    me: &Identity,
    server: &Identity,
    mut open: OpenCommand,
    change: impl FnOnce(&mut OpenCommand),
) -> Result<(tty::message::Ack, Channel), String> {
    let (handshake, hello) = ClientHandshake::begin(me, server.public(), CONTEXT, [9; 32]).unwrap();
    let hello = ClientHello {
        protocol_version: 1,
        seal: Some(hello),
    };
    client.send(&Kind::ClientHello(hello)).await;
    let answer = match client.said().await {
        Some(Kind::ServerHello(hello)) => hello.seal.unwrap(),
        Some(Kind::ProtocolError(error)) => return Err(error.msg),
        other => panic!("{other:?}"),
    };
    let ready = handshake.answer(me, &answer).unwrap();
    let (confirm, mut channel) = ready.confirm(&open).unwrap();
    open.seal = Some(confirm);
    change(&mut open);
    client.send(&Kind::Open(Box::new(open))).await;
    let mut marked = None;
    loop {
        match client.said().await {
            Some(Kind::Data(data)) => {
                let Some(Payload::EncryptedData(payload)) = data.payload else {
                    panic!("not sealed");
                };
                match channel.opener.open(Stream::Stdout, &payload).unwrap() {
                    Content::Mark(mark) => marked = Some(mark),
                    other => panic!("{other:?}"),
                }
            }
            Some(Kind::Ack(ack)) => {
                let session = ack.session.as_ref();
                let token = session.map(|session| session.resume_token.clone());
                assert_eq!(marked.map(|mark| mark.token.to_vec()), token);
                return Ok((ack, channel));
            }
            Some(Kind::Error(error)) => return Err(error.msg),
            Some(Kind::ProtocolError(error)) => return Err(error.msg),
            other => panic!("{other:?}"),
        }
    }
}

async fn seal(client: &mut Client, channel: &mut Channel, content: &Content) {
    let payload = channel.sealer.seal(Stream::Stdin, content).unwrap();
    client
        .send(&Kind::Data(Data {
            r#type: Stream::Stdin.into(),
            payload: Some(Payload::EncryptedData(Box::new(payload))),
        }))
        .await;
}

/// The decrypted output, and the encrypted exit code.
async fn finish(client: &mut Client, channel: &mut Channel) -> (String, i32) {
    let (mut output, mut exit) = (Vec::new(), None);
    loop {
        match client.said().await {
            Some(Kind::Data(data)) => {
                let stream = data.r#type();
                let Some(Payload::EncryptedData(payload)) = data.payload else {
                    panic!("not sealed");
                };
                match channel.opener.open(stream, &payload).unwrap() {
                    Content::Data(bytes) => output.extend_from_slice(&bytes),
                    Content::Exit(code) => exit = Some(code),
                    Content::End => {}
                    Content::Mark(_) => panic!("a second mark"),
                }
            }
            Some(Kind::Close(close)) => {
                assert_eq!(Some(close.return_code), exit);
                return (String::from_utf8(output).unwrap(), close.return_code);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn input_output_and_exit_code_are_encrypted() {
    let (server, me) = (
        Arc::new(Identity::generate().unwrap()),
        Identity::generate().unwrap(),
    );
    let host = host(&server, &me);
    for mut client in [host.plain(), host.websocket().await] {
        let wanted = script("cat; exit 9", false);
        let (_, mut channel) = open(&mut client, &me, &server, wanted).await.unwrap();
        seal(&mut client, &mut channel, &Content::Data("typed".into())).await;
        seal(&mut client, &mut channel, &Content::End).await;
        let finished = finish(&mut client, &mut channel).await;
        assert_eq!(finished, ("typed".to_owned(), 9));
    }
}

#[tokio::test]
async fn unknown_or_unencrypted_clients_are_refused_before_anything_starts() {
    let (server, me) = (
        Arc::new(Identity::generate().unwrap()),
        Identity::generate().unwrap(),
    );
    let host = host(&server, &me);
    let stranger = Identity::generate().unwrap();
    let mut client = host.plain();
    let refused = open(&mut client, &stranger, &server, script("true", false)).await;
    assert!(refused.unwrap_err().contains("not authorized"));
    // A published client.
    let mut client = host.plain();
    client
        .send(&Kind::Open(Box::new(script("true", false))))
        .await;
    assert!(
        client
            .refused()
            .await
            .contains("only end-to-end encrypted sessions")
    );
    let mut client = host.plain();
    let hello = ClientHello {
        protocol_version: 1,
        seal: None,
    };
    client.send(&Kind::ClientHello(hello)).await;
    assert!(
        client
            .refused()
            .await
            .contains("only end-to-end encrypted sessions")
    );
    // Unencrypted, within an encrypted session.
    let mut client = host.plain();
    open(&mut client, &me, &server, script("cat", false))
        .await
        .unwrap();
    client.input("in the clear").await;
    assert!(client.refused().await.contains("unencrypted data"));
    // A replayed message.
    let mut client = host.plain();
    let (_, mut channel) = open(&mut client, &me, &server, script("cat", false))
        .await
        .unwrap();
    let payload = channel
        .sealer
        .seal(Stream::Stdin, &Content::Data("x".into()));
    let data = Kind::Data(Data {
        r#type: Stream::Stdin.into(),
        payload: Some(Payload::EncryptedData(Box::new(payload.unwrap()))),
    });
    client.send(&data).await;
    client.send(&data).await;
    loop {
        match client.said().await {
            Some(Kind::Data(_)) => {}
            Some(Kind::Error(error)) => {
                assert!(error.msg.contains("in place of"), "{error:?}");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    host.empty().await;
}

/// An interceptor sees a token, so the token is worthless without its client's key.
#[tokio::test]
async fn only_its_client_can_resume_an_encrypted_session() {
    let (server, me) = (
        Arc::new(Identity::generate().unwrap()),
        Identity::generate().unwrap(),
    );
    let other = Identity::generate().unwrap();
    let known = [me.public(), other.public()];
    let host = Host::sealed(Seal {
        identity: Arc::clone(&server),
        context: CONTEXT.to_vec(),
        authorized: Arc::new(move |key| known.contains(key)),
    });
    let mut client = host.plain();
    let wanted = ours("read x; echo got $x", true);
    let (ack, _) = open(&mut client, &me, &server, wanted).await.unwrap();
    let mut back = OpenCommand {
        session: Some(tty::message::OpenSession::default()),
        ..OpenCommand::default()
    };
    back.session.as_mut().unwrap().resume = Some(Resume {
        token: ack.session.unwrap().resume_token,
        received: 0,
    });
    // The interceptor tries to redirect the client's input into its own session, and the other way
    // round.
    let mut again = host.plain();
    let refused = open_through(&mut again, &me, &server, back.clone(), |open| {
        open.session = None;
    });
    assert!(refused.await.unwrap_err().contains("could not prove"));
    let mut again = host.plain();
    let command = script("cat", false);
    let refused = open_through(&mut again, &me, &server, command, |open| {
        open.session.clone_from(&back.session);
    });
    assert!(refused.await.unwrap_err().contains("could not prove"));
    let mut again = host.plain();
    let refused = open_through(&mut again, &me, &server, back.clone(), |open| {
        let session = open.session.as_mut().unwrap();
        session.resume.as_mut().unwrap().received = 1;
    });
    assert!(refused.await.unwrap_err().contains("could not prove"));
    let mut thief = host.plain();
    let refused = open(&mut thief, &other, &server, back.clone()).await;
    assert!(refused.unwrap_err().contains("session to resume"));
    drop(client);
    let mut client = host.plain();
    let (_, mut channel) = open(&mut client, &me, &server, back).await.unwrap();
    seal(&mut client, &mut channel, &Content::Data("it\n".into())).await;
    let (output, _) = finish(&mut client, &mut channel).await;
    assert!(output.contains("got it"), "{output}");
}

/// A client and a server that resume a session through an interceptor. It breaks the first
/// connection after the command's output, and can change the messages of the second.
async fn through(
    mut change: impl FnMut(MessageSender, Kind) -> Option<Kind> + Send + 'static,
) -> (String, Result<CommandEnd, SessionError>) {
    let [server, me] = [(), ()].map(|()| Arc::new(Identity::generate().unwrap()));
    let mut outputs = 0;
    let interceptor = Interceptor::start(host(&server, &me), move |connection, from, kind| {
        if connection > 0 {
            return Some(change(from, kind).into_iter().collect());
        }
        if from == MessageSender::Server && matches!(kind, Kind::Data(_)) {
            outputs += 1;
        }
        // The mark is the first message.
        (outputs < 2).then_some(vec![kind])
    });
    let interceptor = interceptor.await;
    let request = Request {
        seal: Some(terminal::client::Seal {
            identity: me,
            server: server.public(),
            context: CONTEXT.to_vec(),
        }),
        ..Request::new(script("read x; echo $x; cat", false).config.unwrap())
    };
    let (mut session, input) = Session::start(interceptor.endpoint.clone(), request);
    input.typed("one\ntwo\n".into()).await;
    // The command ends after that, not while its client is disconnected.
    loop {
        match session.event().await {
            Some(Event::Opened { .. } | Event::Lost { .. }) => {}
            Some(Event::Reconnected { .. }) => break,
            Some(Event::Ended(ended)) => return (String::new(), ended),
            other => panic!("{other:?}"),
        }
    }
    input.end().await;
    let (shown, ended) = read_to_end(&mut session).await;
    (String::from_utf8(shown).unwrap(), ended)
}

#[tokio::test]
async fn an_interceptor_cannot_choose_the_resume_position() {
    let whole = |(shown, ended): (String, Result<CommandEnd, SessionError>)| {
        assert_eq!((shown.as_str(), ended.unwrap().code), ("one\ntwo\n", 0));
    };
    whole(through(|_, kind| Some(kind)).await);
    // Counts and token of an ack have no effect unencrypted.
    whole(
        through(|_, mut kind| {
            if let Kind::Ack(ack) = &mut kind {
                let session = ack.session.as_mut().unwrap();
                session.output_from = Some(4000);
                session.input_received = 3;
                session.resume_token = vec![1; 32];
            }
            Some(kind)
        })
        .await,
    );
    // A reconnection without them is not a resumption.
    let mut marks = 0;
    let (shown, ended) = through(move |from, kind| {
        let is_mark = from == MessageSender::Server && matches!(kind, Kind::Data(_)) && marks == 0;
        marks += u32::from(is_mark);
        (!is_mark).then_some(kind)
    })
    .await;
    assert_eq!(shown, "");
    assert!(matches!(ended, Err(SessionError::NotSealed)), "{ended:?}");
    // If a reconnection is changed into an open, the new command gets no input.
    let (shown, ended) = through(|_, mut kind| {
        if let Kind::Open(open) = &mut kind {
            open.session.as_mut().unwrap().resume = None;
        }
        Some(kind)
    })
    .await;
    assert_eq!(shown, "");
    let Err(SessionError::Server(ClientError::Refused(why))) = ended else {
        panic!("{ended:?}");
    };
    assert!(why.contains("could not prove"), "{why}");
}
