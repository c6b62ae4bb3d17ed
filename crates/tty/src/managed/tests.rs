mod attach;
mod control;
mod ending;
mod random_operations;
mod withdrawal;

use bytes::Bytes;
use jiff::SignedDuration;
use types::id::WebttySessionId;
use types::root::Root;
use types::webtty::{ControlAction, ControlStatus, RecordType, SessionStatus};

use super::*;
use crate::message::{
    Ack, Attach, AttachRole, Close, Config, Data, Decision, EncryptedPayload, Heartbeat,
    NoticeKind, OpenCommand, OpenSession, Options, Payload, Resume, Signal, Stream, TerminalSize,
};
use crate::size::Size;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn person(n: u8) -> ParticipantId {
    ParticipantId::new(1000 + u64::from(n), [n; 10])
}

fn request(n: u8) -> ControlRequestId {
    ControlRequestId::new(1000 + u64::from(n), [n; 10])
}

fn session_id() -> WebttySessionId {
    WebttySessionId::new(1000, [0; 10])
}

fn who(n: u8) -> Person {
    Person {
        user_id: Some(format!("user-{n}")),
        name: format!("Person {n}"),
        root: Some(Root::Session(format!("ses_{n}").into())),
        ..Person::default()
    }
}

/// A program with a token of this person.
fn program(n: u8, credential: &str) -> Person {
    Person {
        root: Some(Root::Credential(credential.into())),
        ..who(n)
    }
}

fn opening() -> Session {
    started(who(0))
}

fn started(by: Person) -> Session {
    let new = NewSession {
        id: session_id(),
        initiator: person(0),
        person: by,
        sealed: false,
    };
    Session::new(new, at(0))
}

fn open(tty: bool) -> Kind {
    Kind::Open(Box::new(OpenCommand {
        config: Some(Config {
            options: Some(Options {
                allocate_tty: tty,
                ..Options::default()
            }),
            cmd_args: vec!["sh".to_owned()],
            ..Config::default()
        }),
        session: Some(OpenSession {
            features: vec![1, 2, 3],
            resume: Some(Resume::default()),
            size: Some(Size { rows: 5, cols: 20 }.into()),
        }),
        ..OpenCommand::default()
    }))
}

fn active() -> Session {
    active_of(who(0))
}

/// A running session that `by` opened.
fn active_of(by: Person) -> Session {
    let mut session = started(by);
    session.on_message(person(0), open(true), at(0));
    session.on_server(Kind::Ack(Ack::default()), at(0));
    drain(&mut session);
    session
}

/// Attaches and connects a person with the grant `[n; 32]`.
fn join(session: &mut Session, n: u8, now: Timestamp) {
    join_as(session, n, who(n), now);
}

fn join_as(session: &mut Session, n: u8, as_: Person, now: Timestamp) {
    let new = NewParticipant {
        id: person(n),
        person: as_,
        grant: [n; GRANT_LEN],
        may_control: true,
    };
    session.attach(new, now).unwrap();
    session.connect(&attach(n), now).unwrap();
    while session.next_message(person(n)).is_some() {}
    while session.next_message(person(0)).is_some() {}
    drain(session);
}

fn attach(n: u8) -> Attach {
    Attach {
        session_id: session_id().to_string(),
        participant_id: person(n).to_string(),
        attach_grant: vec![n; GRANT_LEN],
        requested_role: AttachRole::Spectator.into(),
        ..Attach::default()
    }
}

fn drain(session: &mut Session) -> Vec<Command> {
    std::iter::from_fn(|| session.command()).collect()
}

/// Input that the server received, and the participants that are recorded as its authors.
fn typed(session: &mut Session) -> Vec<(String, String)> {
    let commands = drain(session);
    let sent: Vec<String> = commands
        .iter()
        .filter_map(|command| match command {
            Command::ToServer(Kind::Data(Data {
                payload: Some(Payload::Data(bytes)),
                ..
            })) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
            _ => None,
        })
        .collect();
    let by: Vec<String> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Record(entry) if entry.stream.is_some() => entry.participant_id.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(sent.len(), by.len(), "each input is recorded once");
    sent.into_iter().zip(by).collect()
}

fn type_(session: &mut Session, n: u8, text: &'static str, now: Timestamp) {
    session.on_message(person(n), Kind::data(Stream::Stdin, text), now);
}

fn notices(session: &mut Session, n: u8) -> Vec<NoticeKind> {
    std::iter::from_fn(|| session.next_message(person(n)))
        .filter_map(|kind| match kind {
            Kind::Heartbeat(Heartbeat {
                notice: Some(notice),
                ..
            }) => Some(notice.kind()),
            _ => None,
        })
        .collect()
}

fn ask(
    session: &mut Session,
    r: u8,
    n: u8,
    now: Timestamp,
) -> Result<ControlStatus, SessionRefusalError> {
    session
        .request_control(request(r), person(n), NewControlRequest::default(), now)
        .map(|request| request.status)
}

fn resolve(
    session: &mut Session,
    r: u8,
    by: &Approver,
    action: ControlAction,
    now: Timestamp,
) -> Result<ControlStatus, SessionRefusalError> {
    session
        .resolve(request(r), by, action, now)
        .map(|request| request.status)
}

const OWNER: Approver = Approver::Owner(Person {
    user_id: None,
    root: None,
    name: String::new(),
    device_id: None,
    browser_id: None,
});

#[test]
fn the_server_receives_the_open_without_features_of_direct_connections() {
    let mut session = opening();
    assert_eq!(drain(&mut session), [Command::Event(Event::SessionCreated)]);
    session.on_message(person(0), open(true), at(0));
    let commands = drain(&mut session);
    let Some(Command::ToServer(Kind::Open(open))) = commands.last() else {
        panic!("an open: {commands:?}");
    };
    let ours = open.session.as_ref().unwrap();
    assert_eq!((ours.features.as_slice(), &ours.resume), (&[1][..], &None));
    assert_eq!(session.size(), Size { rows: 5, cols: 20 });
    // A second `Open` is ignored.
    session.on_message(person(0), Kind::Open(Box::default()), at(0));
    let commands = drain(&mut session);
    assert!(
        !commands.iter().any(|c| matches!(c, Command::ToServer(_))),
        "{commands:?}"
    );
}

#[test]
fn a_command_is_recorded_up_to_1024_bytes() {
    for (len, recorded) in [(1024, 1024), (1025, 1023)] {
        let mut session = opening();
        // The text is truncated at a character boundary: its last character has two bytes.
        let command = "x".repeat(len - 2) + "\u{e9}";
        let opening = Kind::Open(Box::new(OpenCommand {
            config: Some(Config {
                cmd_args: vec![command],
                ..Config::default()
            }),
            ..OpenCommand::default()
        }));
        session.on_message(person(0), opening, at(0));
        let details: Vec<_> = drain(&mut session)
            .into_iter()
            .filter_map(|command| match command {
                Command::Record(entry) if entry.record_type == RecordType::Open => entry.detail,
                _ => None,
            })
            .map(|detail| detail.len())
            .collect();
        assert_eq!(details, [recorded]);
    }
}

#[test]
fn input_of_spectators_is_dropped() {
    let mut session = active();
    join(&mut session, 1, at(0));
    type_(&mut session, 0, "ls\r", at(1));
    type_(&mut session, 1, "rm -rf /\r", at(1));
    assert_eq!(
        typed(&mut session),
        [("ls\r".to_owned(), person(0).to_string())]
    );
    // Signals, sizes and the end of input are ignored as well.
    for kind in [
        Kind::Heartbeat(Heartbeat {
            signal: Some(Signal::Kill.into()),
            ..Heartbeat::default()
        }),
        Kind::Parameter(
            TerminalSize {
                row: 1,
                col: 1,
                xpixel: 0,
                ypixel: 0,
            }
            .into(),
        ),
        Kind::end(Stream::Stdin),
    ] {
        session.on_message(person(1), kind, at(1));
    }
    assert_eq!(drain(&mut session), []);
    // A message that no participant may send ends the stream.
    session.on_message(person(1), open(true), at(1));
    assert!(drain(&mut session).contains(&Command::HangUp(person(1))));
}

#[test]
fn all_participants_receive_the_output_before_the_close() {
    let mut session = active();
    join(&mut session, 1, at(0));
    ask(&mut session, 1, 1, at(0)).unwrap();
    session.on_server(Kind::data(Stream::Stdout, "bye"), at(1));
    session.on_server(Kind::end(Stream::Stdout), at(1));
    session.on_server(
        Kind::Close(Close {
            return_code: 3,
            termination: None,
        }),
        at(1),
    );
    assert_eq!(
        (session.status(), session.exit_code()),
        (SessionStatus::Closed, Some(3))
    );
    for n in [0, 1] {
        let got: Vec<Kind> = std::iter::from_fn(|| session.next_message(person(n)))
            .filter(|kind| !matches!(kind, Kind::Heartbeat(_)))
            .collect();
        let names: Vec<_> = got.iter().map(Kind::name).collect();
        assert_eq!(names, ["data", "data", "close"], "{n}");
    }
    let commands = drain(&mut session);
    assert!(commands.contains(&Command::HangUp(person(0))));
    assert!(commands.contains(&Command::HangUp(person(1))));
    assert_eq!(commands.last(), Some(&Command::Event(Event::SessionClosed)));
    // Calls after the end of the session have no effect.
    assert_eq!(
        session.terminate(None, at(2)),
        Err(SessionRefusalError::NotActive)
    );
    assert_eq!(
        ask(&mut session, 2, 1, at(2)),
        Err(SessionRefusalError::NotActive)
    );
    session.on_server_lost(at(2));
    session.on_server(Kind::data(Stream::Stdout, "x"), at(2));
    type_(&mut session, 0, "x", at(2));
    session.on_time(at(1000));
    assert_eq!(drain(&mut session), []);
    let new = NewParticipant {
        id: person(5),
        person: who(5),
        grant: [5; 32],
        may_control: true,
    };
    assert_eq!(
        session.attach(new, at(2)),
        Err(SessionRefusalError::NotActive)
    );
}

#[test]
fn hidden_input_is_recorded_without_its_bytes() {
    let mut session = active();
    let secret = |secret| {
        Kind::Heartbeat(Heartbeat {
            secret_input: Some(secret),
            ..Heartbeat::default()
        })
    };
    session.on_server(secret(true), at(1));
    session.on_server(Kind::Heartbeat(Heartbeat::default()), at(1));
    type_(&mut session, 0, "hunter2\r", at(1));
    session.on_server(secret(false), at(1));
    type_(&mut session, 0, "ls\r", at(1));
    let entries: Vec<Entry> = drain(&mut session)
        .into_iter()
        .filter_map(|command| match command {
            Command::Record(entry) if entry.record_type == RecordType::Data => Some(entry),
            _ => None,
        })
        .collect();
    assert_eq!((entries[0].masked, entries[0].payload_length), (true, 8));
    assert!(entries[0].payload.is_empty());
    assert_eq!(
        (entries[1].masked, &entries[1].payload[..]),
        (false, &b"ls\r"[..])
    );
}

fn sealed() -> Session {
    let new = NewSession {
        id: session_id(),
        initiator: person(0),
        person: who(0),
        sealed: true,
    };
    let mut session = Session::new(new, at(0));
    session.on_message(person(0), open(true), at(0));
    session.on_server(Kind::Ack(Ack::default()), at(0));
    drain(&mut session);
    session
}

fn sealed_output(sequence: u64, len: usize) -> Kind {
    Kind::Data(Data {
        r#type: Stream::Stdout.into(),
        payload: Some(Payload::EncryptedData(Box::new(EncryptedPayload {
            ciphertext: vec![b'x'; len].into(),
            sequence: Some(sequence),
            ..EncryptedPayload::default()
        }))),
    })
}

#[test]
fn the_queue_of_the_pace_setter_is_bounded_and_loses_nothing() {
    let mut session = sealed();
    session.on_server(sealed_output(0, VIEWER_QUEUE), at(0));
    assert!(session.pauses_server());
    while session.next_message(person(0)).is_some() {}
    assert!(!session.pauses_server());

    let last = u64::try_from(VIEWER_MESSAGES).unwrap();
    for sequence in 1..=last {
        session.on_server(sealed_output(sequence, 1), at(0));
    }
    assert!(session.pauses_server());
    for n in 1..9 {
        session.on_time(at(n * 5));
        session.send_to(
            person(0),
            participant::notice(participant::notice_of_kind(NoticeKind::Joined)),
        );
    }
    let waits = std::iter::from_fn(|| session.next_message(person(0)));
    let (output, others): (Vec<_>, Vec<_>) = waits.partition(|kind| matches!(kind, Kind::Data(_)));
    let all: Vec<_> = (1..=last)
        .map(|sequence| sealed_output(sequence, 1))
        .collect();
    assert_eq!(output, all);
    assert_eq!(others.len(), 1);

    // The server cannot add other messages, because these bypass back-pressure.
    let hello = Kind::ServerHello(Box::default());
    session.on_server(hello, at(50));
    assert_eq!(session.status(), SessionStatus::Errored);
}

#[test]
fn a_sealed_session_has_no_spectators_and_no_clear_bytes() {
    let mut session = sealed();
    let new = NewParticipant {
        id: person(1),
        person: who(1),
        grant: [1; 32],
        may_control: true,
    };
    assert_eq!(session.attach(new, at(0)), Err(SessionRefusalError::Sealed));
    type_(&mut session, 0, "in clear", at(0));
    assert_eq!(drain(&mut session), []);
    session.on_server(Kind::data(Stream::Stdout, "in clear"), at(0));
    assert_eq!(session.status(), SessionStatus::Errored);
}

#[test]
fn pipes_have_no_control_and_slow_viewers_are_dismissed() {
    let mut session = opening();
    session.on_message(person(0), open(false), at(0));
    session.on_server(Kind::Ack(Ack::default()), at(0));
    join(&mut session, 1, at(0));
    assert_eq!(
        ask(&mut session, 1, 1, at(0)),
        Err(SessionRefusalError::NoTerminal)
    );
    let chunk = Bytes::from(vec![b'x'; 4096]);
    for _ in 0..=VIEWER_QUEUE / 4096 {
        session.on_server(Kind::data(Stream::Stdout, chunk.clone()), at(0));
        session.next_message(person(0));
    }
    assert!(drain(&mut session).contains(&Command::HangUp(person(1))));
    session.on_lost(person(0), at(1));
    assert_eq!(session.status(), SessionStatus::Closing);
}
