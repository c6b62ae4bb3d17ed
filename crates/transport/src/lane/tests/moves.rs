//! Streams that are to leave their lane, and what becomes of those that cannot.

use super::*;

/// The end that chooses the connection, and finds none.
struct ToNothing;

impl Mover for ToNothing {
    type Connection = DuplexStream;

    const CHOOSES: bool = true;

    fn connect(&self) -> Connecting<DuplexStream> {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

/// The end that waits for it, in vain.
struct ToNowhere;

impl Mover for ToNowhere {
    type Connection = DuplexStream;

    const CHOOSES: bool = false;

    fn connect(&self) -> Connecting<DuplexStream> {
        Box::pin(std::future::pending())
    }
}

/// The end that has no connection to offer goes on where it is, however much there is to say; and
/// so does either, when the channel ends that connections come by.
#[tokio::test]
async fn a_stream_stays_where_there_is_nowhere_to_go() {
    for (down, ends) in [(false, false), (false, true), (true, true)] {
        let mut pair = pair(64 * 1024).await;
        let near = pair.lane.open(&opening("s")).unwrap();
        let mut near = Carried::new(near, ToNothing, Budget::exchanges(UP_LIMIT));
        let far = pair.agent.recv().await.unwrap();
        let mut far = Carried::new(far, ToNowhere, Budget::exchanges(DOWN_LIMIT));
        if ends {
            near.lane().lane().stay();
            far.lane().lane().stay();
        }
        let sent = body(10 * DOWN_LIMIT, 8);
        let mut got = Vec::new();
        let sending = async |from: &mut (dyn tokio::io::AsyncWrite + Unpin + Send)| {
            from.write_all(&sent).await.unwrap();
            from.shutdown().await.unwrap();
        };
        if down {
            tokio::join!(sending(&mut far), near.read_to_end(&mut got))
                .1
                .unwrap();
        } else {
            tokio::join!(sending(&mut near), far.read_to_end(&mut got))
                .1
                .unwrap();
        }
        assert!(got == sent);
        assert!(!near.is_moved() && !far.is_moved());
    }
}

/// A move that failed has failed for both halves, whenever they ask.
#[tokio::test]
async fn a_move_that_fails_is_told_again_and_again() {
    let mut pair = pair(64 * 1024).await;
    let near = pair.lane.open(&opening("s")).unwrap();
    let mut near = Carried::new(near, ToNothing, Budget::exchanges(UP_LIMIT));
    near.write_all(b"!").await.unwrap();
    let far = pair.agent.recv().await.unwrap();
    let mut far = Carried::new(far, ToNowhere, Budget::exchanges(1));
    let leaving = tokio::spawn(async move { far.write_all(b"too much").await });
    assert_eq!(near.read_u8().await.unwrap(), b't');
    for _ in 0..3 {
        assert_eq!(
            near.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        let writing = near.write_all(b"x").await;
        assert_eq!(writing.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(near.shutdown().await.is_err());
    }
    drop(near);
    // The other end does not wait for what will not come.
    let gave_up = leaving.await.unwrap().unwrap_err();
    assert_eq!(gave_up.kind(), io::ErrorKind::ConnectionReset);
}

/// The same where the visitor had nothing more to say: on the lane both ends were through.
#[tokio::test]
async fn an_end_that_waits_to_move_hears_that_its_peer_has_gone() {
    let mut pair = pair(64 * 1024).await;
    let mut near = carried(pair.lane.open(&opening("s")).unwrap()).0;
    near.shutdown().await.unwrap();
    let far = pair.agent.recv().await.unwrap();
    let mut far = Carried::new(far, ToNowhere, Budget::exchanges(1));
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    let leaving = tokio::spawn(async move { far.write_all(b"too much").await });
    assert_eq!(near.read_u8().await.unwrap(), b't');
    drop(near);
    let gave_up = leaving.await.unwrap().unwrap_err();
    assert_eq!(gave_up.kind(), io::ErrorKind::ConnectionReset);
}

/// Two tasks may have a stream's halves; both go on when it has arrived.
#[tokio::test]
async fn a_move_wakes_both_halves() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, mut near_moved), (far, mut far_moved)] = pair.stream().await;
    let (mut reading, mut writing) = tokio::io::split(far);
    let reader = tokio::spawn(async move { reading.read_u8().await });
    let all = body(DOWN_LIMIT + 1, 9);
    let expected = all.clone();
    let writer = tokio::spawn(async move {
        writing.write_all(&all).await.unwrap();
        writing
    });
    let joining = tokio::spawn(async move {
        let (mut a, mut b) = (
            near_moved.recv().await.unwrap(),
            far_moved.recv().await.unwrap(),
        );
        tokio::io::copy_bidirectional(&mut a, &mut b).await.ok();
    });
    let mut got = vec![0; expected.len()];
    near.read_exact(&mut got).await.unwrap();
    assert!(got == expected);
    near.write_all(b"?").await.unwrap();
    near.flush().await.unwrap();
    assert_eq!(reader.await.unwrap().unwrap(), b'?');
    drop(writer.await.unwrap());
    joining.abort();
}
