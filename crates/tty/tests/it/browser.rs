//! The web pages of the platform have their own encoder (`control`'s `webtty.mjs`, tested by
//! `tests/node/webtty_codec.mjs`). These tests compare its bytes with this crate.

use bytes::Bytes;
use serde_json::Value;
use tty::message::{
    Ack, AckSession, Attach, Close, Config, Data, Decision, Environment, Heartbeat, Kind, Notice,
    NoticeKind, OpenCommand, OpenSession, Options, Resume, Signal, Stream, TerminalSize,
    Termination, TerminationReason, decode, encode,
};

/// Messages of the pages are messages of this protocol, byte for byte.
#[test]
fn the_pages_and_this_crate_have_the_same_bytes() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("../browser.json")).unwrap();
    let mut ours = kinds();
    for vector in vectors {
        let name = vector["name"].as_str().unwrap();
        let at = ours.iter().position(|(known, _)| *known == name);
        let (_, kind) = ours.remove(at.unwrap_or_else(|| panic!("{name} is not known here")));
        let bytes = hex(vector["hex"].as_str().unwrap());
        assert_eq!(encode(&kind).unwrap(), bytes, "{name}");
        assert_eq!(decode(bytes).unwrap(), kind, "{name}");
    }
    assert!(ours.is_empty(), "the pages do not know {ours:?}");
}

fn kinds() -> Vec<(&'static str, Kind)> {
    let size = |row, col| TerminalSize {
        row,
        col,
        ..TerminalSize::default()
    };
    vec![
        ("a terminal is opened", open(size(24, 80))),
        ("a terminal is come back to", back(size(24, 80))),
        ("something is typed", Kind::data(Stream::Stdin, "ls\r")),
        ("something is shown", Kind::data(Stream::Stdout, "\x1b[m")),
        ("nothing is shown", Kind::data(Stream::Stdout, "")),
        ("a stream ends", Kind::Data(Data::end(Stream::Stderr))),
        ("another size", Kind::Parameter(size(40, 300).into())),
        ("a heartbeat", Kind::Heartbeat(Heartbeat::default())),
        ("an interrupt", signal()),
        ("a grant", decision(true)),
        ("a refusal", decision(false)),
        ("somebody attaches", attach()),
        ("it runs", ack()),
        ("it can be come back to", ack_again()),
        ("so much arrived", received(70_000)),
        ("an error", Kind::error("no such account")),
        ("the end", close(7, None)),
        ("the end by a signal", close(143, Some(termination()))),
        ("a negative end", close(-1, None)),
        ("somebody asks", notice(asked())),
        ("a snapshot", notice(snapshot(size(24, 80)))),
        ("hidden input", secret(true)),
        ("input is shown again", secret(false)),
    ]
}

fn open(size: TerminalSize) -> Kind {
    Kind::Open(Box::new(OpenCommand {
        config: Some(Config {
            options: Some(Options {
                interactive: true,
                allocate_tty: true,
                send_heartbeat: true,
            }),
            env_vars: vec![Environment {
                key: "TERM".to_owned(),
                value: "xterm-256color".to_owned(),
            }],
            ..Config::default()
        }),
        session: Some(OpenSession {
            features: vec![1, 2, 3],
            resume: None,
            size: Some(size),
        }),
        ..OpenCommand::default()
    }))
}

fn back(size: TerminalSize) -> Kind {
    Kind::Open(Box::new(OpenCommand {
        session: Some(OpenSession {
            features: vec![1, 2, 3],
            resume: Some(Resume {
                token: vec![7, 0, 0xff],
                received: 0,
            }),
            size: Some(size),
        }),
        ..OpenCommand::default()
    }))
}

fn attach() -> Kind {
    Kind::Attach(Box::new(Attach {
        session_id: "wts_1".to_owned(),
        participant_id: "wtp_1".to_owned(),
        attach_grant: vec![0, 0xff, 0x10],
        requested_role: 1,
        transport: 2,
        capabilities: vec![1, 2, 3],
        ..Attach::default()
    }))
}

fn ack() -> Kind {
    Kind::Ack(Ack {
        session: Some(AckSession {
            features: vec![1, 3],
            session_id: "wts_1".to_owned(),
            grace_seconds: 300,
            ..AckSession::default()
        }),
    })
}

fn ack_again() -> Kind {
    Kind::Ack(Ack {
        session: Some(AckSession {
            features: vec![1, 2],
            session_id: "tty_1".to_owned(),
            resume_token: vec![7, 0, 0xff],
            grace_seconds: 30,
            output_from: Some(0),
            input_received: 300,
        }),
    })
}

fn received(bytes: u64) -> Kind {
    Kind::Heartbeat(Heartbeat {
        received: Some(bytes),
        ..Heartbeat::default()
    })
}

fn close(return_code: i32, termination: Option<Termination>) -> Kind {
    Kind::Close(Close {
        return_code,
        termination,
    })
}

fn termination() -> Termination {
    Termination {
        reason: TerminationReason::Signalled.into(),
        signal: "TERM".to_owned(),
        detail: "x".to_owned(),
    }
}

fn signal() -> Kind {
    Kind::Heartbeat(Heartbeat {
        signal: Some(Signal::Interrupt.into()),
        ..Heartbeat::default()
    })
}

fn decision(grant: bool) -> Kind {
    Kind::Heartbeat(Heartbeat {
        decision: Some(Decision {
            request_id: "wtc_1".to_owned(),
            grant,
        }),
        ..Heartbeat::default()
    })
}

fn secret(hidden: bool) -> Kind {
    Kind::Heartbeat(Heartbeat {
        secret_input: Some(hidden),
        ..Heartbeat::default()
    })
}

fn notice(notice: Notice) -> Kind {
    Kind::Heartbeat(Heartbeat {
        notice: Some(Box::new(notice)),
        ..Heartbeat::default()
    })
}

fn asked() -> Notice {
    Notice {
        kind: NoticeKind::Requested.into(),
        participant_id: "wtp_2".to_owned(),
        request_id: "wtc_1".to_owned(),
        user: "Grace".to_owned(),
        reason: "to look".to_owned(),
        expires_at: 1_893_456_000,
        size: None,
    }
}

fn snapshot(size: TerminalSize) -> Notice {
    Notice {
        kind: NoticeKind::Snapshot.into(),
        size: Some(size),
        ..Notice::default()
    }
}

fn hex(text: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}
