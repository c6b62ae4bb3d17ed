use tokio::io::AsyncReadExt as _;
use tty::frame;
use tty::message::Heartbeat;

use super::*;
use crate::server::{Execution, Limits, Policy, Server, Settings, Web};

fn server() -> Server {
    let settings = Settings {
        policy: Policy {
            execution: Execution::Spawn,
            shell: None,
            environment: Vec::new(),
        },
        limits: Limits {
            sessions: 1,
            grace: Duration::from_secs(30),
            idle: None,
            duration: None,
        },
        seal: None,
        web: Web::default(),
    };
    Server::new(settings, Arc::new(|_| {}), &[])
}

/// A client without acknowledgements stops sending, and one that does not read gets no other
/// heartbeats.
#[tokio::test]
async fn a_busy_connection_only_gets_heartbeats_with_changes() {
    let shared = server().shared;
    let permit = Arc::clone(&shared.connections).try_acquire_owned().unwrap();
    let (near, mut far) = tokio::io::duplex(4096);
    let mut session = Session::new(shared, Carrier::plain(Box::new(near), permit), None);
    let now = Instant::now();
    let beat = |received, secret_input| Heartbeat {
        received,
        secret_input,
        ..Heartbeat::default()
    };
    for heartbeat in [
        beat(Some(1), None),
        beat(Some(1), None),
        beat(None, None),
        beat(Some(2), None),
        beat(Some(2), None),
        beat(None, Some(true)),
    ] {
        session.send(&Kind::Heartbeat(heartbeat), now);
    }
    let mut carrier = session.carrier.take().unwrap();
    poll_fn(|cx| carrier.poll_flush(cx)).await.unwrap();
    session.carrier = Some(carrier);
    // The connection is idle again.
    session.send(&Kind::Heartbeat(beat(Some(2), None)), now);
    let mut carrier = session.carrier.take().unwrap();
    poll_fn(|cx| carrier.poll_flush(cx)).await.unwrap();
    drop(carrier);
    let (mut bytes, mut decoder) = (Vec::new(), frame::Decoder::new());
    far.read_to_end(&mut bytes).await.unwrap();
    decoder.push(&bytes);
    let sent = std::iter::from_fn(|| decoder.next().unwrap());
    let wanted = [
        beat(Some(1), None),
        beat(Some(2), None),
        beat(None, Some(true)),
        beat(Some(2), None),
    ];
    assert_eq!(sent.collect::<Vec<_>>(), wanted.map(Kind::Heartbeat));
}

/// A client that resumes sends its size in the open, and again after the ack.
#[test]
fn a_forced_redraw_outlives_the_repeated_size_of_a_client() {
    let now = Instant::now();
    let (own, other) = (Size::new(30, 100).unwrap(), Size::new(40, 120).unwrap());
    let mut size = TerminalSize::new(own);
    assert_ne!(size.redraw(now), own);
    assert_eq!((size.request(own), size.request(own)), (None, None));
    assert_eq!(size.restore(now), None);
    let until = size.deadline().unwrap();
    assert!(until > now);
    assert_eq!(size.restore(until), Some(own));
    assert_eq!((size.restore(until), size.deadline()), (None, None));
    // A new size is set immediately, and ends the redraw.
    size.redraw(now);
    assert_eq!(size.request(other), Some(other));
    assert_eq!((size.restore(until), size.deadline()), (None, None));
    // Without a redraw each requested size is set.
    assert_eq!(size.request(other), Some(other));
}
