//! All messages with their exact bytes. The vectors were made by hand from the numbers of
//! `docs/webtty-protocol.md`; none was recorded from a published program.

use super::*;

/// Decodes a line of hex digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn read(bytes: &[u8]) -> Result<Kind, MessageError> {
    decode(Bytes::copy_from_slice(bytes))
}

#[expect(clippy::needless_pass_by_value, reason = "rows read better")]
fn same(bytes: &str, kind: Kind) {
    let bytes = hex(bytes);
    assert_eq!(encode(&kind).unwrap(), bytes, "{}", kind.name());
    assert_eq!(read(&bytes).unwrap(), kind, "{}", kind.name());
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn messages_of_the_published_programs_have_these_bytes() {
    // Open { options {interactive, allocate_tty, send_heartbeat}, ["ls"], A=b, workdir "/", user "me" }.
    same(
        "0a 20  0a 1e  0a 06 08 01 10 01 18 01  12 02 6c 73  1a 06 0a 01 41 12 01 62
         22 03 0a 01 2f  2a 03 0a 01 6d",
        Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                options: Some(Options {
                    interactive: true,
                    allocate_tty: true,
                    send_heartbeat: true,
                }),
                cmd_args: vec!["ls".to_owned()],
                env_vars: vec![Environment {
                    key: "A".to_owned(),
                    value: "b".to_owned(),
                }],
                workdir: Some(Workdir {
                    value: "/".to_owned(),
                }),
                username: Some(Username {
                    payload: Some(User::Name("m".to_owned())),
                }),
            }),
            ..OpenCommand::default()
        })),
    );
    same("12 00", Kind::Ack(Ack::default()));
    same("1a 04 0a 02 6e 6f", Kind::error("no"));
    same(
        "22 02 08 07",
        Kind::Close(Close {
            return_code: 7,
            termination: None,
        }),
    );
    same("22 00", Kind::Close(Close::default()));
    // A negative number takes all ten bytes.
    same(
        "22 0b 08 ff ff ff ff ff ff ff ff ff 01",
        Kind::Close(Close {
            return_code: -1,
            termination: None,
        }),
    );
    same("2a 04 12 02 68 69", Kind::data(Stream::Stdin, "hi"));
    same("2a 06 08 01 12 02 68 69", Kind::data(Stream::Stdout, "hi"));
    same("2a 04 08 02 1a 00", Kind::end(Stream::Stderr));
    same(
        "32 0b 0a 09 08 18 10 50 18 c0 02 20 64",
        Kind::Parameter(
            TerminalSize {
                row: 24,
                col: 80,
                xpixel: 320,
                ypixel: 100,
            }
            .into(),
        ),
    );
    same("3a 00", Kind::Heartbeat(Heartbeat::default()));
    same(
        "42 11  0a 01 73  12 01 70  1a 02 01 02  20 01  28 02  32 01 01",
        Kind::Attach(Box::new(Attach {
            session_id: "s".to_owned(),
            participant_id: "p".to_owned(),
            attach_grant: vec![1, 2],
            requested_role: AttachRole::Spectator.into(),
            transport: AttachTransport::Websocket.into(),
            capabilities: vec![AttachCapability::ReadStream.into()],
            ..Attach::default()
        })),
    );
    same(
        "4a 18  08 01  12 01 09  22 01 01  2a 01 01  32 01 01  38 02  52 03 0a 01 69  5a 01 73",
        Kind::ServerHello(Box::new(ServerHello {
            protocol_version: ProtocolVersion::Webtty1.into(),
            session_nonce: vec![9],
            payload_suites: vec![PayloadSuite::Aes256Gcm.into()],
            key_envelope_suites: vec![KeyEnvelopeSuite::HpkeX25519Aes256Gcm.into()],
            signature_suites: vec![SignatureSuite::EcdsaP256Sha256.into()],
            auth_requirement: AuthRequirement::ClientProof.into(),
            server_id: Some(StringValue {
                value: "i".to_owned(),
            }),
            session_id: "s".to_owned(),
            ..ServerHello::default()
        })),
    );
    same(
        "52 05 08 06 12 01 6e",
        Kind::ProtocolError(ProtocolError {
            code: ProtocolErrorCode::ClientUnauthorized.into(),
            msg: "n".to_owned(),
        }),
    );
    same(
        "5a 02 08 01",
        Kind::ClientHello(ClientHello {
            protocol_version: ProtocolVersion::Webtty1.into(),
            seal: None,
        }),
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn our_additions_are_in_fields_that_other_programs_skip() {
    same(
        "3a 03 a0 06 0f",
        Kind::Heartbeat(Heartbeat {
            signal: Some(Signal::Terminate.into()),
            ..Heartbeat::default()
        }),
    );
    same(
        "3a 04 a8 06 ac 02",
        Kind::Heartbeat(Heartbeat {
            received: Some(300),
            ..Heartbeat::default()
        }),
    );
    same(
        "3a 08 ba 06 05 0a 01 72 10 01",
        Kind::Heartbeat(Heartbeat {
            decision: Some(Decision {
                request_id: "r".to_owned(),
                grant: true,
            }),
            ..Heartbeat::default()
        }),
    );
    same(
        "3a 0a b2 06 07 08 03 12 01 70 30 05",
        Kind::Heartbeat(Heartbeat {
            notice: Some(Box::new(Notice {
                kind: NoticeKind::Requested.into(),
                participant_id: "p".to_owned(),
                expires_at: 5,
                ..Notice::default()
            })),
            ..Heartbeat::default()
        }),
    );
    same(
        "22 0e 08 89 01 a2 06 08 08 07 12 04 4b 49 4c 4c",
        Kind::Close(Close {
            return_code: 137,
            termination: Some(Termination {
                reason: TerminationReason::Terminated.into(),
                signal: "KILL".to_owned(),
                detail: String::new(),
            }),
        }),
    );
    same(
        "0a 0f a2 06 0c  0a 02 01 02  12 06 0a 02 07 08 10 01",
        Kind::Open(Box::new(OpenCommand {
            session: Some(OpenSession {
                features: vec![Feature::Signals.into(), Feature::Resume.into()],
                resume: Some(Resume {
                    token: vec![7, 8],
                    received: 1,
                }),
                size: None,
            }),
            ..OpenCommand::default()
        })),
    );
    same(
        "12 0d a2 06 0a  0a 01 02  12 01 73  20 1e  28 00",
        Kind::Ack(Ack {
            session: Some(AckSession {
                features: vec![Feature::Resume.into()],
                session_id: "s".to_owned(),
                grace_seconds: 30,
                output_from: Some(0),
                ..AckSession::default()
            }),
        }),
    );
    // Foreign additions are skipped here, just as foreign programs skip ours.
    assert_eq!(
        read(&hex("3a 03 98 75 01")).unwrap(),
        Kind::Heartbeat(Heartbeat::default())
    );
    assert_eq!(
        read(&hex("12 00 9a 7d 01 61")).unwrap(),
        Kind::Ack(Ack::default())
    );
}

#[test]
fn malformed_messages_are_rejected() {
    let refused: &[(&str, &str, MessageError)] = &[
        ("nothing", "", MessageError::Unknown),
        ("a message of the future", "62 00", MessageError::Unknown),
        ("two kinds", "12 00 3a 00", MessageError::Malformed),
        ("one kind twice", "3a 00 3a 00", MessageError::Malformed),
        ("a kind that is a number", "10 01", MessageError::Malformed),
        (
            "a length beyond the end",
            "2a 05 12 02 68 69",
            MessageError::Malformed,
        ),
        ("a broken part", "2a 02 12 09", MessageError::Malformed),
        ("a group", "3a 00 63 64", MessageError::Malformed),
        (
            "an endless number",
            "ff ff ff ff ff ff ff ff ff ff 01",
            MessageError::Malformed,
        ),
        (
            "text that is none",
            "1a 03 0a 01 ff",
            MessageError::Malformed,
        ),
        (
            "data without any",
            "2a 02 08 01",
            MessageError::Invalid("data"),
        ),
        (
            "an unknown stream",
            "2a 05 08 03 12 01 61",
            MessageError::Invalid("stream"),
        ),
        ("no parameter", "32 00", MessageError::Invalid("parameter")),
        (
            "a size beyond drivers",
            "32 06 0a 04 08 80 80 04",
            MessageError::TooLarge("terminal size"),
        ),
    ];
    for (name, bytes, error) in refused {
        assert_eq!(read(&hex(bytes)), Err(*error), "{name}");
    }
}

#[test]
fn ambiguous_texts_are_rejected() {
    let with = |config: Config| {
        Kind::Open(Box::new(OpenCommand {
            config: Some(config),
            ..OpenCommand::default()
        }))
    };
    let variable = |key: &str, value: &str| Environment {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    let refused = [
        (
            with(Config {
                cmd_args: vec!["a\0b".to_owned()],
                ..Config::default()
            }),
            "arguments",
        ),
        (
            with(Config {
                env_vars: vec![variable("", "x")],
                ..Config::default()
            }),
            "environment",
        ),
        (
            with(Config {
                env_vars: vec![variable("A=B", "x")],
                ..Config::default()
            }),
            "environment",
        ),
        (
            with(Config {
                env_vars: vec![variable("A", "\0")],
                ..Config::default()
            }),
            "environment",
        ),
        (
            with(Config {
                workdir: Some(Workdir {
                    value: "/\0".to_owned(),
                }),
                ..Config::default()
            }),
            "working directory",
        ),
        (
            with(Config {
                username: Some(Username {
                    payload: Some(User::Name("a\0".to_owned())),
                }),
                ..Config::default()
            }),
            "user",
        ),
    ];
    for (kind, what) in refused {
        assert_eq!(encode(&kind), Err(MessageError::Invalid(what)));
        assert_eq!(read(&unchecked(&kind)), Err(MessageError::Invalid(what)));
    }
}

#[test]
fn size_limits_are_exact() {
    let args = |count: usize, len: usize| {
        Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                cmd_args: vec!["x".repeat(len); count],
                ..Config::default()
            }),
            ..OpenCommand::default()
        }))
    };
    let attach = |grant: usize| {
        Kind::Attach(Box::new(Attach {
            attach_grant: vec![0; grant],
            ..Attach::default()
        }))
    };
    let path = |len: usize| {
        Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                workdir: Some(Workdir {
                    value: "/".repeat(len),
                }),
                ..Config::default()
            }),
            ..OpenCommand::default()
        }))
    };
    let data = |len: usize| Kind::data(Stream::Stdout, vec![0; len]);
    for (fits, does_not, what) in [
        (
            args(limits::MAX_LIST, 1),
            args(limits::MAX_LIST + 1, 1),
            "arguments",
        ),
        (
            args(1, limits::MAX_TEXTS),
            args(1, limits::MAX_TEXTS + 1),
            "arguments",
        ),
        (
            attach(limits::MAX_GRANT),
            attach(limits::MAX_GRANT + 1),
            "attach grant",
        ),
        (
            path(limits::MAX_PATH),
            path(limits::MAX_PATH + 1),
            "working directory",
        ),
        (data(limits::MAX_DATA), data(limits::MAX_DATA + 1), "data"),
    ] {
        assert_eq!(decode(encode(&fits).unwrap()).unwrap(), fits);
        assert_eq!(encode(&does_not), Err(MessageError::TooLarge(what)));
        assert_eq!(
            read(&unchecked(&does_not)),
            Err(MessageError::TooLarge(what))
        );
    }
    // Beyond these limits, the content is not parsed.
    let large = unchecked(&args(2, limits::MAX_CONTROL / 2));
    assert_eq!(read(&large), Err(MessageError::TooLarge("message")));
    let larger = unchecked(&data(limits::MAX_MESSAGE));
    assert_eq!(read(&larger), Err(MessageError::TooLarge("message")));
}

#[test]
fn limits_of_names_keys_and_lists_are_exact() {
    let user = |len: usize| {
        Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                username: Some(Username {
                    payload: Some(User::Name("u".repeat(len))),
                }),
                ..Config::default()
            }),
            ..OpenCommand::default()
        }))
    };
    let id = |len: usize| {
        Kind::Attach(Box::new(Attach {
            session_id: "s".repeat(len),
            ..Attach::default()
        }))
    };
    let key = |len: usize| {
        Kind::ServerHello(Box::new(ServerHello {
            session_nonce: vec![0; len],
            ..ServerHello::default()
        }))
    };
    let suites = |len: usize| {
        Kind::ServerHello(Box::new(ServerHello {
            payload_suites: vec![1; len],
            ..ServerHello::default()
        }))
    };
    let envelopes = |len: usize| {
        Kind::Open(Box::new(OpenCommand {
            session_key_grant: Some(SessionKeyGrant {
                key_envelopes: vec![KeyEnvelope::default(); len],
                ..SessionKeyGrant::default()
            }),
            ..OpenCommand::default()
        }))
    };
    let side = |side: u32| {
        let size = TerminalSize {
            row: side,
            ..TerminalSize::default()
        };
        Kind::Parameter(size.into())
    };
    let error = |len: usize| {
        Kind::ProtocolError(ProtocolError {
            msg: "e".repeat(len),
            ..ProtocolError::default()
        })
    };
    for (fits, does_not, what) in [
        (user(256), user(257), "user"),
        (id(128), id(129), "session id"),
        (key(512), key(513), "nonce"),
        (suites(32), suites(33), "suites"),
        (envelopes(256), envelopes(257), "key envelopes"),
        (side(65_535), side(65_536), "terminal size"),
        (error(4096), error(4097), "error"),
    ] {
        assert_eq!(decode(encode(&fits).unwrap()).unwrap(), fits);
        assert_eq!(encode(&does_not), Err(MessageError::TooLarge(what)));
        assert_eq!(
            read(&unchecked(&does_not)),
            Err(MessageError::TooLarge(what))
        );
    }
}

#[test]
fn debug_output_contains_no_input_output_or_secrets() {
    let kinds = [
        Kind::data(Stream::Stdin, "hunter2"),
        Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                cmd_args: vec!["hunter2".to_owned()],
                env_vars: vec![Environment {
                    key: "A".to_owned(),
                    value: "hunter2".to_owned(),
                }],
                ..Config::default()
            }),
            session: Some(OpenSession {
                resume: Some(Resume {
                    token: b"hunter2".to_vec(),
                    received: 0,
                }),
                ..OpenSession::default()
            }),
            ..OpenCommand::default()
        })),
        Kind::Ack(Ack {
            session: Some(AckSession {
                resume_token: b"hunter2".to_vec(),
                ..AckSession::default()
            }),
        }),
        Kind::Attach(Box::new(Attach {
            attach_grant: b"hunter2".to_vec(),
            ..Attach::default()
        })),
    ];
    for kind in kinds {
        let printed = format!("{kind:?}");
        assert!(!printed.contains("hunter2"), "{printed}");
        // "hunter2" as the numbers of a byte list.
        assert!(!printed.contains("104, 117"), "{printed}");
    }
}

#[test]
fn errors_are_truncated_at_a_character_boundary() {
    let Kind::Error(error) = Kind::error(&"é".repeat(limits::MAX_ERROR)) else {
        panic!("an error");
    };
    assert_eq!(error.msg.len(), limits::MAX_ERROR);
    let Kind::Error(error) = Kind::error(&format!("a{}", "é".repeat(limits::MAX_ERROR))) else {
        panic!("an error");
    };
    assert_eq!(error.msg.len(), limits::MAX_ERROR - 1);
}

/// Encodes a message like a peer without our checks.
fn unchecked(kind: &Kind) -> Vec<u8> {
    Message {
        kind: Some(kind.clone()),
    }
    .encode_to_vec()
}
