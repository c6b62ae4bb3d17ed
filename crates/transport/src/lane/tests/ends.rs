//! Streams that end in order, and resets after their end.

use super::*;

#[tokio::test]
async fn a_reset_after_the_end_is_received() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.shutdown().await.unwrap();
    let mut rest = Vec::new();
    near.read_to_end(&mut rest).await.unwrap();
    let why = wire::Error::stream_broke("closed").with_delivered(Some(1));
    far.lane().reset(Some(&why));
    poll_fn(|cx| near.lane().poll_reset(cx)).await;
    assert_eq!(near.lane_refusal(), Some(why));
}

#[tokio::test]
async fn a_finished_stream_is_not_aborted_when_it_is_dropped() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    near.lane().finish();
    drop(near);
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).await.unwrap();
    assert!(!far.lane().is_aborted_by_peer());
    far.lane().finish();
    drop(far);
    // Both sides remove it.
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.write_all(b"?").await.unwrap();
    assert_eq!(near.read_u8().await.unwrap(), b'?');
    assert_eq!(pair.lane.streams(), 1);
}

#[tokio::test]
async fn bytes_for_a_finished_stream_are_refused() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    near.lane().finish();
    drop(near);
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).await.unwrap();
    far.write_all(b"late").await.unwrap();
    poll_fn(|cx| far.lane().poll_reset(cx)).await;
    assert!(far.lane().is_aborted_by_peer());
}

/// After its reset, a side receives whether the other one completed its direction or also aborted
/// it, if that one decides it.
#[tokio::test]
async fn a_side_that_resets_receives_the_end_of_the_other_side() {
    let mut pair = pair(4096).await;
    for (judges, completes, expected) in [
        (true, true, true),
        (true, false, false),
        (false, false, true),
    ] {
        let [(mut near, _), (mut far, _)] = pair.stream().await;
        if judges {
            near.lane().judge_exchanges();
        }
        far.lane().reset(None);
        let error = near.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        if completes {
            near.lane().finish();
        }
        drop(near);
        let ended = poll_fn(|cx| far.lane().poll_peer_end(cx)).await;
        assert_eq!(ended, expected, "{judges} {completes}");
    }
}
