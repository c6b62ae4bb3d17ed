use std::time::Duration;

use bytes::Bytes;
use client::Trust;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tty::message::{
    self, Close, Heartbeat, Kind, Notice, NoticeKind, Parameter, Stream, TerminalSize,
};
use tty::size::Size;

use super::super::{Attachment, Endpoint, Participant, ParticipantEvent};

fn notice(kind: NoticeKind, size: Option<Size>) -> Kind {
    Kind::Heartbeat(Heartbeat {
        notice: Some(Box::new(Notice {
            kind: kind.into(),
            size: size.map(TerminalSize::from),
            user: "ada".to_owned(),
            request_id: "req_1".to_owned(),
            ..Notice::default()
        })),
        ..Heartbeat::default()
    })
}

/// WT-2: the first message is the attach with the grant. Received output becomes events, and input
/// is sent as messages.
#[tokio::test]
async fn a_participant_attaches_first_and_receives_the_screen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/stream", listener.local_addr().unwrap());
    let engine = tokio::spawn(async move {
        let (stream, _peer) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        let mut received = Vec::new();
        let size = Size { rows: 24, cols: 80 };
        for kind in [
            notice(NoticeKind::Snapshot, Some(size)),
            Kind::data(Stream::Stdout, "drawn"),
            notice(NoticeKind::Requested, None),
        ] {
            let bytes = message::encode(&kind).unwrap();
            socket.send(Message::Binary(bytes)).await.unwrap();
        }
        while received.len() < 4 {
            if let Message::Binary(bytes) = socket.next().await.unwrap().unwrap() {
                received.push(message::decode(bytes).unwrap());
            }
        }
        let close = Kind::Close(Close::default());
        let bytes = message::encode(&close).unwrap();
        socket.send(Message::Binary(bytes)).await.unwrap();
        received
    });
    let endpoint = Endpoint::url(&url, None, Trust::Platform).unwrap();
    let attachment = Attachment {
        session_id: "ses_1".to_owned(),
        participant_id: "par_1".to_owned(),
        grant: vec![7; 32],
        may_type: true,
    };
    let (mut participant, input) = Participant::start(endpoint, attachment);
    let mut next = async || {
        let event = timeout(Duration::from_mins(1), participant.event()).await;
        event.unwrap().unwrap()
    };
    assert!(matches!(
        next().await,
        ParticipantEvent::Snapshot(Some(Size { rows: 24, cols: 80 }))
    ));
    assert!(matches!(next().await, ParticipantEvent::Output(_, bytes) if bytes == "drawn"));
    let ParticipantEvent::Notice(notice) = next().await else {
        panic!("no notice");
    };
    assert_eq!(
        (notice.kind(), notice.user.as_str()),
        (NoticeKind::Requested, "ada")
    );
    input.decide(&notice.request_id, true).await;
    input.resize(Size { rows: 1, cols: 2 }).await;
    input.typed(Bytes::from_static(b"ls")).await;
    assert!(matches!(next().await, ParticipantEvent::Ended(Ok(_))));
    let received = engine.await.unwrap();
    let Some(Kind::Attach(attach)) = received.first() else {
        panic!("{received:?}");
    };
    assert_eq!(attach.attach_grant, vec![7; 32]);
    assert_eq!(
        (attach.session_id.as_str(), attach.capabilities.len()),
        ("ses_1", 3)
    );
    let has = |wanted: &dyn Fn(&Kind) -> bool| received.iter().any(wanted);
    assert!(has(&|kind| matches!(kind, Kind::Heartbeat(beat)
        if beat.decision.as_ref().is_some_and(|d| d.grant && d.request_id == "req_1"))));
    assert!(has(&|kind| *kind
        == Kind::Parameter(Parameter::from(TerminalSize::from(Size {
            rows: 1,
            cols: 2
        })))));
    assert!(has(&|kind| *kind == Kind::data(Stream::Stdin, "ls")));
}
