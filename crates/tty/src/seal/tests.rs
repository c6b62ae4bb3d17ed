use proptest::prelude::*;

use super::*;
use crate::message::{
    Config, EncryptedPayload, OpenCommand, OpenSession, Resume, SealAnswer, SealHello, Stream,
    TerminalSize,
};

const CONTEXT: &[u8] = b"wsv_one";

type Change = fn(&mut Vec<EncryptedPayload>);

type HelloEdit = fn(&mut SealHello);

type AnswerEdit = fn(&mut SealAnswer);

struct Ends {
    client: Identity,
    server: Identity,
}

fn ends() -> Ends {
    Ends {
        client: Identity::generate().unwrap(),
        server: Identity::generate().unwrap(),
    }
}

type OpenEdit = fn(&mut OpenCommand);

fn command(command: &str) -> OpenCommand {
    OpenCommand {
        config: Some(Config {
            cmd_args: vec![command.to_owned()],
            ..Config::default()
        }),
        ..OpenCommand::default()
    }
}

fn back(token: u8, received: u64) -> OpenCommand {
    OpenCommand {
        session: Some(OpenSession {
            resume: Some(Resume {
                token: vec![token; 32],
                received,
            }),
            ..OpenSession::default()
        }),
        ..OpenCommand::default()
    }
}

/// A whole handshake, with manipulations of its messages on the way.
fn handshake(
    ends: &Ends,
    on_hello: impl FnOnce(&mut SealHello),
    on_answer: impl FnOnce(&mut SealAnswer),
    mut open: OpenCommand,
    on_open: impl FnOnce(&mut OpenCommand),
) -> Result<(Channel, Channel), SealError> {
    let server_key = ends.server.public();
    let (client, mut hello) =
        ClientHandshake::begin(&ends.client, server_key, CONTEXT, [1; SECRET_LEN])?;
    on_hello(&mut hello);
    let known = ends.client.public();
    let (server, mut answer) = ServerHandshake::accept(
        &ends.server,
        CONTEXT,
        &hello,
        |key| *key == known,
        [[2; SECRET_LEN], [3; SECRET_LEN]],
    )?;
    on_answer(&mut answer);
    let (confirm, client) = client.answer(&ends.client, &answer)?.confirm(&open)?;
    open.seal = Some(confirm);
    on_open(&mut open);
    Ok((client, server.confirm(&open)?))
}

fn channels() -> (Channel, Channel) {
    handshake(&ends(), |_| {}, |_| {}, command("sh"), |_| {}).unwrap()
}

fn data(text: &'static str) -> Content {
    Content::Data(text.into())
}

#[test]
fn each_side_opens_the_messages_that_the_other_seals() {
    let (mut client, mut server) = channels();
    for content in [data("ls\r"), data(""), Content::End] {
        let sealed = client.sealer.seal(Stream::Stdin, &content).unwrap();
        assert_eq!(server.opener.open(Stream::Stdin, &sealed), Ok(content));
    }
    let mark = Content::Mark(Mark {
        token: [7; 32],
        output_from: u64::MAX,
        input_received: 5,
    });
    for content in [data("out"), Content::End, Content::Exit(-7), mark] {
        let sealed = server.sealer.seal(Stream::Stdout, &content).unwrap();
        assert!(!sealed.ciphertext.windows(3).any(|bytes| bytes == b"out"));
        assert_eq!(client.opener.open(Stream::Stdout, &sealed), Ok(content));
    }
}

#[test]
fn an_identity_is_kept_and_its_halves_belong_together() {
    let Ends { client, server } = ends();
    let private: [u8; KEY_LEN] = client.expose_private().try_into().unwrap();
    assert!(Identity::from_parts(&private, client.public()).is_ok());
    assert!(Identity::from_parts(&private, server.public()).is_err());
    assert_ne!(client.public().id(), server.public().id());
    let printed = format!("{client:?}");
    assert!(!printed.contains(&format!("{:?}", &private[..4]).replace(['[', ']'], "")));
}

#[test]
fn a_missing_repeated_or_reordered_message_ends_the_session() {
    let sealed = |client: &mut Channel| -> Vec<EncryptedPayload> {
        let texts = ["one", "two", "three"];
        texts
            .map(|text| client.sealer.seal(Stream::Stdin, &data(text)).unwrap())
            .to_vec()
    };
    let cases: &[(&str, Change, SealError)] = &[
        (
            "gap",
            |m| drop(m.remove(1)),
            SealError::Order {
                expected: 1,
                found: Some(2),
            },
        ),
        (
            "replay",
            |m| m.insert(1, m[0].clone()),
            SealError::Order {
                expected: 1,
                found: Some(0),
            },
        ),
        (
            "order",
            |m| m.swap(1, 2),
            SealError::Order {
                expected: 1,
                found: Some(2),
            },
        ),
        (
            "no number",
            |m| m[1].sequence = None,
            SealError::Order {
                expected: 1,
                found: None,
            },
        ),
        (
            "renumbered",
            |m| {
                m.remove(1);
                m[1].sequence = Some(1);
            },
            SealError::Changed,
        ),
        ("length", |m| m[1].plaintext_length = 1, SealError::Changed),
        (
            "cut",
            |m| m[1].ciphertext = m[1].ciphertext.slice(1..),
            SealError::Changed,
        ),
        (
            "empty",
            |m| m[1].ciphertext = bytes::Bytes::new(),
            SealError::Changed,
        ),
    ];
    for (name, change, error) in cases {
        let (mut client, mut server) = channels();
        let mut messages = sealed(&mut client);
        change(&mut messages);
        let open = |payload| server.opener.open(Stream::Stdin, payload);
        let opened: Vec<_> = messages.iter().map(open).collect();
        assert_eq!(opened[0], Ok(data("one")), "{name}");
        assert_eq!(opened[1], Err(*error), "{name}");
        // Nothing is opened after an error, not even valid messages.
        let rest = &opened[2..];
        assert!(
            rest.iter().all(|opened| *opened == Err(SealError::Failed)),
            "{name}"
        );
    }
}

#[test]
fn a_message_is_bound_to_its_stream_direction_and_session() {
    let (mut client, mut server) = channels();
    let sealed = server.sealer.seal(Stream::Stderr, &data("x")).unwrap();
    assert_eq!(
        client.opener.open(Stream::Stdout, &sealed),
        Err(SealError::Changed)
    );
    let (mut client, mut server) = channels();
    let sealed = client.sealer.seal(Stream::Stdin, &data("x")).unwrap();
    // The message is sent back to its sender.
    assert_eq!(
        client.opener.open(Stream::Stdin, &sealed),
        Err(SealError::Changed)
    );
    let (_, mut other) = channels();
    assert_eq!(
        other.opener.open(Stream::Stdin, &sealed),
        Err(SealError::Changed)
    );
    assert_eq!(server.opener.open(Stream::Stdin, &sealed), Ok(data("x")));
}

#[test]
fn a_manipulated_handshake_fails() {
    let ends = ends();
    let hellos: &[(&str, HelloEdit, SealError)] = &[
        ("version", |h| h.version = 1, SealError::Version),
        (
            "key",
            |h| h.server_key_id[0] ^= 1,
            SealError::WrongRecipient,
        ),
        (
            "no key",
            |h| h.server_key_id.clear(),
            SealError::WrongRecipient,
        ),
        (
            "encapsulated",
            |h| h.encapsulated[5] ^= 1,
            SealError::WrongRecipient,
        ),
        ("sealed", |h| h.sealed[5] ^= 1, SealError::WrongRecipient),
        ("emptied", |h| h.sealed.clear(), SealError::WrongRecipient),
        (
            "no secret",
            |h| h.encapsulated.clear(),
            SealError::WrongRecipient,
        ),
    ];
    for (name, change, error) in hellos {
        let failed = handshake(&ends, change, |_| {}, command("sh"), |_| {}).map(drop);
        assert_eq!(failed, Err(*error), "{name}");
    }
    let answers: &[(&str, AnswerEdit, SealError)] = &[
        (
            "encapsulated",
            |a| a.encapsulated[5] ^= 1,
            SealError::WrongRecipient,
        ),
        ("sealed", |a| a.sealed[5] ^= 1, SealError::WrongRecipient),
        (
            "fresh",
            |a| a.fresh_sealed[5] ^= 1,
            SealError::WrongRecipient,
        ),
        (
            "confirmation",
            |a| a.confirmation[5] ^= 1,
            SealError::Unconfirmed,
        ),
        (
            "no confirmation",
            |a| a.confirmation.clear(),
            SealError::Unconfirmed,
        ),
        (
            "swapped",
            |a| std::mem::swap(&mut a.sealed, &mut a.fresh_sealed),
            SealError::WrongRecipient,
        ),
    ];
    for (name, change, error) in answers {
        let failed = handshake(&ends, |_| {}, change, command("sh"), |_| {}).map(drop);
        assert_eq!(failed, Err(*error), "{name}");
    }
}

/// An attacker in between wants another command, or another session of the client.
#[test]
fn a_manipulated_open_fails() {
    let ends = ends();
    let opens: &[(&str, OpenCommand, OpenEdit)] = &[
        ("command", command("sh"), |o| {
            o.config = command("rm").config;
        }),
        ("none", command("sh"), |o| o.config = None),
        ("injected", command("sh"), |o| {
            o.session = back(1, 0).session;
        }),
        ("turned", command("sh"), |o| {
            *o = OpenCommand {
                seal: o.seal.take(),
                ..back(1, 0)
            };
        }),
        ("stripped", back(1, 7), |o| o.session = None),
        ("emptied", back(1, 7), |o| {
            let session = o.session.as_mut().unwrap();
            session.resume = Some(Resume::default());
        }),
        ("another", back(1, 7), |o| o.session = back(2, 7).session),
        ("more", back(1, 7), |o| o.session = back(1, 8).session),
        ("with", back(1, 7), |o| o.config = command("sh").config),
        ("unproved", back(1, 7), |o| o.seal = None),
    ];
    for (name, open, change) in opens {
        let failed = handshake(&ends, |_| {}, |_| {}, open.clone(), change).map(drop);
        assert_eq!(failed, Err(SealError::Unconfirmed), "{name}");
    }
    // An engine that manages sessions removes features that it does not support.
    for open in [command("sh"), back(1, 7)] {
        let changed = handshake(
            &ends,
            |_| {},
            |_| {},
            open,
            |open| {
                let session = open.session.get_or_insert_default();
                session.features = vec![1];
                session.size = Some(TerminalSize::default());
            },
        );
        assert_eq!(changed.map(drop), Ok(()));
    }
}

#[test]
fn only_authorized_clients_and_the_known_server_succeed() {
    let ends = ends();
    let stranger = Identity::generate().unwrap();
    let begin = |identity: &Identity, server: PublicKey| {
        ClientHandshake::begin(identity, server, CONTEXT, [1; SECRET_LEN]).unwrap()
    };
    let known = ends.client.public();
    let accept = |server: &Identity, context: &[u8], hello: &SealHello| {
        ServerHandshake::accept(
            server,
            context,
            hello,
            |key| *key == known,
            [[2; 32], [3; 32]],
        )
    };
    let (_, hello) = begin(&stranger, ends.server.public());
    let refused = accept(&ends.server, CONTEXT, &hello).map(drop);
    assert_eq!(refused, Err(SealError::Unauthorized));
    // Another server that pretends to be this one, and this one for another record.
    let (client, hello) = begin(&ends.client, ends.server.public());
    assert_eq!(
        accept(&stranger, CONTEXT, &hello).map(drop),
        Err(SealError::WrongRecipient)
    );
    let refused = accept(&ends.server, b"wsv_two", &hello).map(drop);
    assert_eq!(refused, Err(SealError::WrongRecipient));
    // A stranger that claims a known key cannot open the answer.
    let (server, answer) = accept(&ends.server, CONTEXT, &hello).unwrap();
    assert_eq!(server.client(), known);
    assert_eq!(
        client.answer(&stranger, &answer).map(drop),
        Err(SealError::WrongRecipient)
    );
    // A complete earlier session is replayed: the server's secrets are new.
    let (client, hello) = begin(&ends.client, ends.server.public());
    let (_, answer) = accept(&ends.server, CONTEXT, &hello).unwrap();
    let ready = client.answer(&ends.client, &answer).unwrap();
    let mut open = command("sh");
    let (confirm, _) = ready.confirm(&open).unwrap();
    open.seal = Some(confirm);
    let again =
        ServerHandshake::accept(&ends.server, CONTEXT, &hello, |_| true, [[4; 32], [5; 32]]);
    let (server, _) = again.unwrap();
    assert_eq!(server.confirm(&open).map(drop), Err(SealError::Unconfirmed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_change_of_a_message_is_found(
        clear in prop::collection::vec(any::<u8>(), 0..50),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let (mut client, mut server) = channels();
        let content = Content::Data(clear.into());
        let mut sealed = client.sealer.seal(Stream::Stdin, &content).unwrap();
        let mut bytes = sealed.ciphertext.to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        sealed.ciphertext = bytes.into();
        prop_assert_eq!(server.opener.open(Stream::Stdin, &sealed), Err(SealError::Changed));
    }
}
