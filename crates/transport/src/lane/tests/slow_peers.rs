//! Peers and readers that read nothing.

use super::*;

/// However often a stream is polled while its peer reads nothing, only one waker of it is stored.
#[tokio::test]
async fn a_stream_that_waits_for_its_peer_stores_one_waker() {
    struct Count;
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {}
    }
    let (engine, _agent) = duplex(1024);
    let (lane, _driver) = StandingConnection::new(engine, Side::Engine)
        .into_lane()
        .unwrap();
    let opened = std::iter::from_fn(|| lane.open(&opening("s")));
    let mut streams: Vec<_> = opened.map(carried).collect();
    let count = Arc::new(Count);
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = std::task::Context::from_waker(&waker);
    for (stream, _moved) in &mut streams {
        while Pin::new(&mut *stream)
            .poll_write(&mut cx, &[0; 1000])
            .is_ready()
        {}
    }
    let (last, _moved) = streams.last_mut().unwrap();
    let kept = Arc::strong_count(&count);
    for _ in 0..1000 {
        assert!(
            Pin::new(&mut *last)
                .poll_write(&mut cx, &[0; 1000])
                .is_pending()
        );
    }
    assert_eq!(Arc::strong_count(&count), kept);
    // This one, the one in `cx`, and at most one of each stream.
    assert!(kept <= 2 + streams.len());
}

/// The opening of a stream whose visitor has this address.
fn opening_from(source: std::net::Ipv4Addr) -> StreamOpen {
    StreamOpen {
        source_ip: Some(std::net::IpAddr::from(source).into()),
        ..opening("s")
    }
}

/// A full lane aborts streams of the source with the most unread bytes. A reader that pauses keeps
/// its stream, however many bytes wait for it and however many streams another source opens.
#[tokio::test]
async fn a_source_with_many_slow_readers_costs_no_other_source_a_stream() {
    let mut pair = pair(1024 * 1024).await;
    let each = DOWN_LIMIT;
    let answer = body(each, 3);
    let mut open = async |source, len| {
        let opened = pair.lane.open_beyond_half(&opening_from(source));
        let mut near = carried(opened.expect("the lane is not over"));
        near.0.write_all(b"?").await.unwrap();
        let mut far = carrying(pair.agent.recv().await.unwrap(), each);
        far.0.write_all(&answer[..len]).await.unwrap();
        far.0.shutdown().await.unwrap();
        (near, far)
    };
    let ((mut paused, _moved), _far) = open([192, 0, 2, 1].into(), each).await;
    let mut slow = Vec::new();
    // Each has fewer unread bytes, and all together twice as many as a lane allows.
    for _ in 0..4 * MAX_UNREAD / each {
        slow.push(open([192, 0, 2, 2].into(), each / 2).await);
    }
    let mut read = Vec::new();
    paused.read_to_end(&mut read).await.unwrap();
    assert!(read == answer);
}

/// If slow readers fill a lane with unread bytes, those with the most are aborted. Streams that are
/// read lose nothing, however much arrives for them together.
#[tokio::test]
async fn only_slow_readers_are_aborted_before_a_lane_is_full() {
    let mut pair = pair(1024 * 1024).await;
    let [(mut bystander, _moved), (mut service, _)] = pair.stream().await;
    let each = DOWN_LIMIT;
    let mut slow = Vec::new();
    // Twice as many as a lane allows.
    for _ in 0..2 * MAX_UNREAD / each {
        // No further stream may start on a lane that is half full; streams of another worker's lane
        // may.
        let Some(near) = pair.lane.open_beyond_half(&opening("slow")) else {
            panic!("the lane is over");
        };
        let mut near = carried(near);
        near.0.write_all(b"?").await.unwrap();
        let far = pair.agent.recv().await.unwrap();
        let mut far = carrying(far, each);
        far.0.write_all(&vec![0; each]).await.unwrap();
        slow.push((near, far));
        // One stream is read in every state of the lane.
        let answer = body(100_000, 3);
        let said = async {
            service.write_all(&answer).await.unwrap();
            service.flush().await.unwrap();
        };
        let mut heard = vec![0; answer.len()];
        let ((), read) = tokio::join!(said, bystander.read_exact(&mut heard));
        read.expect("the bystander's stream continues");
        assert!(heard == answer);
        bystander.write_all(b"!").await.unwrap();
        assert_eq!(service.read_u8().await.unwrap(), b'!');
        assert!(pair.lane.0.lock().unread <= MAX_UNREAD);
    }
    assert!(!pair.lane.is_over());
    let mut given_up = 0;
    for ((near, _), _) in &mut slow {
        let mut byte = [0; 1];
        match near.read(&mut byte).await {
            Ok(read) => assert_eq!(read, 1),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                given_up += 1;
            }
        }
    }
    let full = MAX_UNREAD / each;
    assert!((full - 2..=full + 2).contains(&given_up), "{given_up}");
}
