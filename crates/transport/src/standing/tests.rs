use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::{memory::Source, pump};

fn opening(tunnel: &str) -> StreamOpen {
    StreamOpen {
        tunnel_id: tunnel.to_owned(),
        ..StreamOpen::default()
    }
}

/// Both ends of a standing connection over a pipe of `capacity` bytes.
fn ends(
    capacity: usize,
) -> (
    StandingConnection<DuplexStream>,
    StandingConnection<DuplexStream>,
) {
    let (engine, agent) = duplex(capacity);
    (
        StandingConnection::new(engine, Side::Engine),
        StandingConnection::new(agent, Side::Agent),
    )
}

/// The next stream, at the agent's end.
async fn accept(
    agent: StandingConnection<DuplexStream>,
) -> (StreamOpen, FramedStream<DuplexStream>) {
    match agent.accept().await.unwrap() {
        Some(AcceptedStream::Stream(open, framed)) => (*open, framed),
        other => panic!("no stream: {other:?}"),
    }
}

#[tokio::test]
async fn one_connection_carries_one_stream_after_another() {
    let (mut engine, mut agent) = ends(64);
    for round in 0..3_u8 {
        let mut near = engine.open(&opening("tun_1")).unwrap();
        let agent_side = tokio::spawn(async move {
            let (open, mut far) = accept(agent).await;
            assert_eq!(open.tunnel_id, "tun_1");
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            far.write_all(&got).await.unwrap();
            far.shutdown().await.unwrap();
            far.recycle().await.unwrap()
        });
        near.write_all(&[round; 300]).await.unwrap();
        near.shutdown().await.unwrap();
        let mut back = Vec::new();
        near.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, [round; 300]);
        engine = near.recycle().await.unwrap();
        assert!(engine.is_alive());
        agent = agent_side.await.unwrap();
    }
}

#[tokio::test]
async fn the_opening_is_sent_with_the_first_bytes() {
    let (engine, mut agent) = duplex(1024);
    let mut near = StandingConnection::new(engine, Side::Engine)
        .open(&opening("tun_1"))
        .unwrap();
    near.write_all(b"GET").await.unwrap();
    let mut seen = [0; 128];
    let read = agent.read(&mut seen).await.unwrap();
    assert_eq!(
        seen.get(read - 3..read).unwrap(),
        b"GET",
        "opening, head and bytes in one piece"
    );
}

#[tokio::test]
async fn a_reset_has_a_reason_and_keeps_the_connection() {
    let (engine, agent) = ends(4096);
    let mut near = engine.open(&opening("tun_1")).unwrap();
    near.write_all(b"hello").await.unwrap();
    let agent_side = tokio::spawn(async move {
        let (_, mut far) = accept(agent).await;
        far.reset(Some(wire::Error::service_unavailable(
            "nothing listens there",
        )));
        far.recycle().await.unwrap()
    });
    let mut byte = [0; 1];
    let error = near.read(&mut byte).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(near.refusal().unwrap().text(), "nothing listens there");
    let engine = near.recycle().await.unwrap();
    let agent = agent_side.await.unwrap();
    let mut near = engine.open(&opening("tun_2")).unwrap();
    near.flush().await.unwrap();
    assert_eq!(accept(agent).await.0.tunnel_id, "tun_2");
}

#[tokio::test]
async fn a_reset_after_the_end_is_received_and_keeps_the_connection() {
    let (engine, agent) = ends(4096);
    let mut near = engine.open(&opening("tun_1")).unwrap();
    near.write_all(b"hello").await.unwrap();
    let agent_side = tokio::spawn(async move {
        let (_, mut far) = accept(agent).await;
        far.shutdown().await.unwrap();
        let reason = wire::Error::stream_broke("closed").with_delivered(Some(3));
        far.reset(Some(reason));
        far.recycle().await.unwrap()
    });
    let mut rest = Vec::new();
    near.read_to_end(&mut rest).await.unwrap();
    poll_fn(|cx| near.poll_reset(cx)).await;
    assert_eq!(near.refusal().unwrap().delivered, Some(3));
    let mut engine = near.recycle().await.unwrap();
    assert!(engine.is_alive());
    agent_side.await.unwrap();
}

#[tokio::test]
async fn a_connection_with_half_a_frame_is_not_used_again() {
    let (engine, mut agent) = duplex(4096);
    let standing = StandingConnection::new(engine, Side::Engine);
    let mut near = standing.open(&opening("tun_1")).unwrap();
    near.flush().await.unwrap();
    let mut frames = Head::new(FrameType::End, 0).unwrap().encode().to_vec();
    let reset = StreamReset {
        stream: 1,
        error: None,
    };
    reset.encode_frame(&mut frames).unwrap();
    // The end, and a part of the next frame.
    agent.write_all(&frames[..HEAD_LEN + 2]).await.unwrap();
    near.read_to_end(&mut Vec::new()).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(near.poll_reset(&mut cx).is_pending());
    near.finish();
    assert!(near.recycle().await.is_none());
}

/// After its reset, a side receives whether the other one completed its direction or also aborted
/// it.
#[tokio::test]
async fn a_side_that_resets_receives_the_end_of_the_other_side() {
    for completes in [true, false] {
        let (engine, agent) = ends(4096);
        let mut near = engine.open(&opening("tun_1")).unwrap();
        near.write_all(b"hello").await.unwrap();
        let agent_side = tokio::spawn(async move {
            let (_, mut far) = accept(agent).await;
            far.reset(None);
            poll_fn(|cx| far.poll_peer_end(cx)).await
        });
        let error = near.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        if completes {
            near.finish();
        }
        near.recycle().await.unwrap();
        assert_eq!(agent_side.await.unwrap(), completes);
    }
}

#[tokio::test]
async fn a_finished_stream_is_not_aborted() {
    let (engine, agent) = ends(4096);
    let mut near = engine.open(&opening("tun_1")).unwrap();
    near.write_all(b"hello").await.unwrap();
    near.finish();
    let agent_side = tokio::spawn(async move {
        let (_, mut far) = accept(agent).await;
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"hello");
        far.write_all(b"unread").await.unwrap();
        far.finish();
        far.recycle().await.unwrap()
    });
    assert!(near.recycle().await.unwrap().is_alive());
    agent_side.await.unwrap();
}

#[tokio::test]
async fn bytes_after_a_reset_are_discarded_up_to_a_limit() {
    let (engine, agent) = ends(4096);
    let mut near = engine.open(&opening("tun_1")).unwrap();
    near.flush().await.unwrap();
    let agent_side = tokio::spawn(async move {
        let (_, mut far) = accept(agent).await;
        let body = vec![7; DISCARD_LIMIT + MAX_CHUNK];
        // The engine closes in the middle of this.
        drop(far.write_all(&body).await);
    });
    assert!(near.recycle().await.is_none());
    agent_side.await.unwrap();
}

#[tokio::test]
async fn a_half_written_chunk_ends_the_connection_with_the_stream() {
    let (engine, agent) = ends(32);
    let mut near = engine.open(&opening("t")).unwrap();
    let writing = tokio::time::timeout(std::time::Duration::ZERO, near.write_all(&[1; 1000])).await;
    assert!(writing.is_err(), "the pipe is too small for the chunk");
    assert!(near.recycle().await.is_none());
    drop(agent);
}

#[tokio::test]
async fn a_closed_connection_is_no_longer_alive() {
    let (mut engine, agent) = ends(64);
    assert!(engine.is_alive());
    drop(agent);
    assert!(!engine.is_alive());
}

#[tokio::test]
async fn unexpected_frames_end_the_connection() {
    for (kind, len) in [(FrameType::Data, 1), (FrameType::End, 0)] {
        let (mut engine, agent) = duplex(64);
        engine
            .write_all(&Head::new(kind, len).unwrap().encode())
            .await
            .unwrap();
        let error = StandingConnection::new(agent, Side::Agent)
            .accept()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_body_arrives_complete_through_any_pipe(
        body in proptest::collection::vec(any::<u8>(), 0..20_000),
        capacity in 1_usize..5_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (engine, agent) = ends(capacity);
            let mut near = engine.open(&opening("tun_1")).unwrap();
            let echo = tokio::spawn(async move {
                let (_, mut far) = accept(agent).await;
                let (mut inner, mut service) = duplex(100);
                let echo = tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(&mut service);
                    tokio::io::copy(&mut read, &mut write).await.unwrap();
                    write.shutdown().await.unwrap();
                });
                pump(Source::default(), &mut far, &mut inner).await.result.unwrap();
                echo.await.unwrap();
                far.recycle().await.is_some()
            });
            let (mut pipe, mut visitor) = duplex(capacity);
            let sent = body.clone();
            let pumping = tokio::spawn(async move {
                pump(Source::default(), &mut pipe, &mut near).await.result.unwrap();
                near.recycle().await.is_some()
            });
            let (mut read, mut write) = tokio::io::split(&mut visitor);
            let (got, ()) = tokio::join!(
                async { let mut got = Vec::new(); read.read_to_end(&mut got).await.unwrap(); got },
                async { write.write_all(&sent).await.unwrap(); write.shutdown().await.unwrap(); },
            );
            assert!(got == body);
            assert!(echo.await.unwrap() && pumping.await.unwrap());
        });
    }
}

#[tokio::test]
async fn a_closed_connection_is_detected_without_coop_budget() {
    let (mut engine, agent) = ends(64);
    assert!(engine.is_alive());
    drop(agent);
    poll_fn(|cx| {
        while tokio::task::coop::has_budget_remaining() {
            if let Poll::Ready(turn) = tokio::task::coop::poll_proceed(cx) {
                turn.made_progress();
            }
        }
        assert!(!engine.is_alive());
        Poll::Ready(())
    })
    .await;
}

/// A connection that was closed while it waited is noticed by the worker that it was handed to, at
/// the first check, although the runtime there has no event of it yet.
#[tokio::test]
async fn a_connection_closed_while_it_changes_runtimes_is_not_alive() {
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpStream};

    use crate::Socket;

    enum Close {
        Not,
        Fin,
        Rst,
        /// The alert that a TLS session sends before it closes, or any other byte.
        Alert,
    }
    for (close, alive) in [
        (Close::Not, true),
        (Close::Fin, false),
        (Close::Rst, false),
        (Close::Alert, false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut far = TcpStream::connect(address).await.unwrap();
        let (near, peer) = listener.accept().await.unwrap();
        let watch = near.as_fd().try_clone_to_owned().unwrap();
        let mut near = Socket::new(near, peer);
        near.detach().unwrap();
        let mut far = match close {
            Close::Not => Some(far),
            Close::Fin => {
                drop(far);
                None
            }
            Close::Rst => {
                socket2::SockRef::from(&far)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
                drop(far);
                None
            }
            Close::Alert => {
                far.write_all(&[21]).await.unwrap();
                Some(far)
            }
        };
        // Waits until the operating system has it, without using a runtime.
        loop {
            let mut byte = [std::mem::MaybeUninit::uninit()];
            match socket2::SockRef::from(&watch).peek(&mut byte) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !alive => {
                    tokio::task::yield_now().await;
                }
                _ => break,
            }
        }
        let mut standing = StandingConnection::new(near, Side::Engine);
        assert_eq!(standing.is_alive(), alive);
        drop(far.take());
    }
}
