mod ends;
mod moves;
mod slow_peers;

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{
    AsyncRead as _, AsyncReadExt, AsyncWrite as _, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::sync::mpsc;
use wire::lane::{
    DOWN_LIMIT, FrameType, HEAD_LEN, Head, MAX_DATA, UP_LIMIT, encode_data, encode_empty,
    encode_open, unit, window,
};

use super::*;
use crate::standing::{AcceptedStream, StandingConnection};

/// The destination of a stream that leaves the lane: a pipe whose other end the test gets.
struct PipeTarget(mpsc::UnboundedSender<DuplexStream>);

impl MigrationTarget for PipeTarget {
    type Connection = DuplexStream;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<DuplexStream> {
        let (near, far) = duplex(64 * 1024);
        self.0.send(far).unwrap();
        Box::pin(async { Ok(near) })
    }
}

type MovableStream = MigratingStream<PipeTarget>;

/// Both ends of a lane over a pipe, each with its driver running.
struct Pair {
    lane: Lane,
    /// Accepted streams at the agent's end.
    agent: mpsc::UnboundedReceiver<LaneStream>,
    drivers: [tokio::task::JoinHandle<io::Result<()>>; 2],
}

fn opening(id: &str) -> StreamOpen {
    StreamOpen {
        tunnel_id: "tun_1".to_owned(),
        stream_id: id.to_owned(),
        ..StreamOpen::default()
    }
}

async fn serve(
    mut driver: Driver<DuplexStream>,
    streams: mpsc::UnboundedSender<LaneStream>,
) -> io::Result<()> {
    while let Some((_, stream)) = poll_fn(|cx| driver.poll_accept(cx)).await? {
        streams.send(stream).ok();
    }
    Ok(())
}

async fn pair(capacity: usize) -> Pair {
    let (near, far) = duplex(capacity);
    let (lane, driver) = StandingConnection::new(near, Side::Engine)
        .into_lane()
        .unwrap();
    let (none, _) = mpsc::unbounded_channel();
    let engine = tokio::spawn(serve(driver, none));
    let accepted = StandingConnection::new(far, Side::Agent)
        .accept()
        .await
        .unwrap();
    let Some(AcceptedStream::Lane(far)) = accepted else {
        panic!("no lane");
    };
    let (_, driver) = Lane::agent(far);
    let (streams, agent) = mpsc::unbounded_channel();
    let drivers = [engine, tokio::spawn(serve(driver, streams))];
    Pair {
        lane,
        agent,
        drivers,
    }
}

impl Pair {
    /// One stream, from both ends, and the connections that each of them has moved to.
    async fn stream(&mut self) -> [(MovableStream, mpsc::UnboundedReceiver<DuplexStream>); 2] {
        let near = self.lane.open(&opening("s")).unwrap();
        let mut near = carrying(near, UP_LIMIT);
        near.0.write_all(b"!").await.unwrap();
        let mut far = carrying(self.agent.recv().await.unwrap(), DOWN_LIMIT);
        assert_eq!(far.0.read_u8().await.unwrap(), b'!');
        [near, far]
    }
}

/// An end that may send `most` bytes in a turn.
fn carrying(
    stream: LaneStream,
    most: usize,
) -> (MovableStream, mpsc::UnboundedReceiver<DuplexStream>) {
    let (to, moved) = mpsc::unbounded_channel();
    let budget = Budget::exchanges(most);
    (MigratingStream::new(stream, PipeTarget(to), budget), moved)
}

/// An end with a limit that does not matter.
fn carried(stream: LaneStream) -> (MovableStream, mpsc::UnboundedReceiver<DuplexStream>) {
    carrying(stream, UP_LIMIT)
}

fn body(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 31) ^ (seed * 7) ^ (i >> 8)).to_le_bytes()[0])
        .collect()
}

#[tokio::test]
async fn many_streams_keep_their_bytes_separate() {
    let mut pair = pair(1000).await;
    let mut visitors = Vec::new();
    for seed in 0..200_usize {
        let stream = pair.lane.open(&opening("s")).unwrap();
        visitors.push(tokio::spawn(async move {
            let mut near = carried(stream).0;
            let sent = body(seed * 97 + 1, seed);
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
            let mut back = Vec::new();
            near.read_to_end(&mut back).await.unwrap();
            assert!(back == sent, "stream {seed} of {} bytes", sent.len());
        }));
    }
    for _ in 0..visitors.len() {
        let stream = pair.agent.recv().await.unwrap();
        tokio::spawn(async move {
            let mut far = carried(stream).0;
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).await.unwrap();
            far.write_all(&bytes).await.unwrap();
            far.shutdown().await.unwrap();
        });
    }
    for visitor in visitors {
        visitor.await.unwrap();
    }
    pair.lane.retire();
    for driver in pair.drivers {
        driver.await.unwrap().unwrap();
    }
    assert_eq!(pair.lane.streams(), 0);
}

#[tokio::test]
async fn a_direction_leaves_the_lane_only_above_its_limit() {
    for (limit, down) in [(DOWN_LIMIT, true), (UP_LIMIT - 1, false)] {
        for (len, moves) in [(limit - 1, false), (limit, false), (limit + 1, true)] {
            let mut pair = pair(64 * 1024).await;
            let [near, far] = pair.stream().await;
            let ((mut from, mut from_moved), (mut to, mut to_moved)) =
                if down { (far, near) } else { (near, far) };
            let sent = body(len, 1);
            let expected = sent.clone();
            let writer = tokio::spawn(async move {
                from.write_all(&sent).await.unwrap();
                from.flush().await.unwrap();
                from
            });
            // If both ends have moved, the test joins their pipes.
            let joining = tokio::spawn(async move {
                let (Some(mut a), Some(mut b)) = (from_moved.recv().await, to_moved.recv().await)
                else {
                    return;
                };
                tokio::io::copy_bidirectional(&mut a, &mut b).await.ok();
            });
            let mut got = vec![0; len];
            to.read_exact(&mut got).await.unwrap();
            let from = writer.await.unwrap();
            assert!(got == expected, "{len}");
            assert_eq!((from.is_moved(), to.is_moved()), (moves, moves), "{len}");
            joining.abort();
        }
    }
}

#[tokio::test]
async fn the_next_exchange_has_the_whole_limit_again() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.write_all(b"!").await.unwrap();
    near.read_u8().await.unwrap();
    for _ in 0..4 {
        near.write_all(&body(UP_LIMIT, 1)).await.unwrap();
        far.read_exact(&mut vec![0; UP_LIMIT]).await.unwrap();
        far.write_all(&body(DOWN_LIMIT, 2)).await.unwrap();
        near.read_exact(&mut vec![0; DOWN_LIMIT]).await.unwrap();
    }
    assert!(!near.is_moved() && !far.is_moved());
}

#[tokio::test]
async fn bytes_of_the_connection_are_not_read_before_those_of_the_lane() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, mut near_moved), (mut far, mut far_moved)] = pair.stream().await;
    // No more bytes than the limit are on the lane; they are unread when the rest has arrived.
    let sent = body(DOWN_LIMIT + 1000, 3);
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        far.write_all(&sent).await.unwrap();
        far.shutdown().await.unwrap();
        far
    });
    let mut agents_end = far_moved.recv().await.unwrap();
    let mut rest = Vec::new();
    agents_end.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 1000);
    let engine_side = tokio::spawn(async move {
        let mut engines_end = near_moved.recv().await.unwrap();
        engines_end.write_all(&rest).await.unwrap();
        engines_end.shutdown().await.unwrap();
        engines_end
    });
    let mut got = Vec::new();
    near.read_to_end(&mut got).await.unwrap();
    assert!(got == expected);
    drop((writing.await.unwrap(), engine_side.await.unwrap()));
}

/// The same for an end whose own direction has moved long before.
#[tokio::test]
async fn an_end_that_has_moved_reads_the_lane_first() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, mut near_moved), (mut far, _far_moved)] = pair.stream().await;
    far.write_all(b"lane ").await.unwrap();
    near.write_all(&body(UP_LIMIT + 10, 5)).await.unwrap();
    assert!(near.is_moved());
    let mut engines_end = near_moved.recv().await.unwrap();
    engines_end.write_all(b"behind").await.unwrap();
    // It reads the bytes on the lane, up to the mark, and responds with a mark.
    far.read_exact(&mut vec![0; UP_LIMIT - 1]).await.unwrap();
    poll_fn(|cx| {
        let mut byte = [0; 1];
        let reading = Pin::new(&mut far).poll_read(cx, &mut ReadBuf::new(&mut byte));
        if far.is_moved() {
            return Poll::Ready(());
        }
        assert!(reading.is_pending());
        Poll::Pending
    })
    .await;
    let mut got = [0; 11];
    near.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"lane behind");
}

#[tokio::test]
async fn a_dropped_stream_does_not_affect_other_streams() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    let [(gone, _), (mut left, _)] = pair.stream().await;
    drop(gone);
    let error = left.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(left.write_all(b"x").await.is_err());
    drop(left);
    near.write_all(b"on").await.unwrap();
    let mut two = [0; 2];
    far.read_exact(&mut two).await.unwrap();
    assert_eq!(&two, b"on");
    assert_eq!(pair.lane.streams(), 1);
}

/// A service responds, closes, and reads no more of the request: its response is complete.
#[tokio::test]
async fn a_response_is_complete_if_its_stream_is_aborted_after_it() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.write_all(b"answer").await.unwrap();
    far.shutdown().await.unwrap();
    drop(far);
    // All of it has arrived before it is read.
    let mut other = carried(pair.lane.open(&opening("s")).unwrap()).0;
    let mut echo = carried(pair.agent.recv().await.unwrap()).0;
    echo.write_all(b"!").await.unwrap();
    assert_eq!(other.read_u8().await.unwrap(), b'!');
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"answer");
    assert!(near.write_all(b"x").await.is_err());
}

#[tokio::test]
async fn a_refusal_is_received() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    let why = wire::Error::service_unavailable("nobody is there");
    far.lane().reset(Some(&why));
    let error = near.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(near.lane_refusal(), Some(why));
}

/// A stream that is not read keeps its bytes in memory, and the lane continues for the others.
#[tokio::test]
async fn an_unread_stream_does_not_delay_others() {
    let mut pair = pair(16 * 1024).await;
    let [(slow, _), (mut from, _)] = pair.stream().await;
    from.write_all(&body(DOWN_LIMIT, 4)).await.unwrap();
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.write_all(b"quick").await.unwrap();
    let mut five = [0; 5];
    near.read_exact(&mut five).await.unwrap();
    assert_eq!(&five, b"quick");
    drop(slow);
}

#[tokio::test]
async fn a_broken_lane_breaks_every_stream() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, _), (mut far, _)] = pair.stream().await;
    far.write_all(b"before").await.unwrap();
    let mut before = [0; 5];
    near.read_exact(&mut before).await.unwrap();
    pair.drivers[1].abort();
    // Bytes that had arrived are still available.
    assert_eq!(near.read_u8().await.unwrap(), b'e');
    assert!(near.read_u8().await.is_err());
    assert!(near.write_all(b"x").await.is_err());
    assert!(far.write_all(b"x").await.is_err());
    assert!(pair.lane.open(&opening("s")).is_none());
    assert!(pair.lane.is_over());
}

/// Input that violates the rules ends the lane, and with it the connection.
#[tokio::test]
async fn protocol_errors_end_the_lane() {
    use FrameType::{Data, End, Move, Open, Reset, Taken};
    let open = |bytes: &mut Vec<u8>, number| encode_open(number, &opening("s"), bytes).unwrap();
    let too_long = [&[2_u8, 0, 0x40, 0, 0, 0, 0, 1][..], &[0; 100]].concat();
    let mut streams = Vec::new();
    for number in 1..=u32::try_from(MAX_STREAMS).unwrap() + 1 {
        open(&mut streams, number);
    }
    let mut flood = Vec::new();
    open(&mut flood, 1);
    while flood.len() < 3 * UP_LIMIT {
        encode_data(1, &[0; MAX_DATA], &mut flood);
    }
    let script = |steps: &[(FrameType, u32)]| {
        let mut bytes = Vec::new();
        for &(kind, number) in steps {
            match kind {
                FrameType::Open => open(&mut bytes, number),
                FrameType::Data => {
                    encode_data(number, b"x", &mut bytes);
                }
                kind => encode_empty(kind, number, &mut bytes),
            }
        }
        bytes
    };
    for (what, bytes) in [
        ("an unknown type", vec![9, 0, 0, 0, 0, 0, 0, 1]),
        ("stream 0", vec![3, 0, 0, 0, 0, 0, 0, 0]),
        ("a frame too long", too_long),
        ("too many streams", streams),
        ("more of one stream than there may be", flood),
        ("a stream that is not there", script(&[(Data, 1)])),
        ("the same number again", script(&[(Open, 1), (Open, 1)])),
        ("a lower number", script(&[(Open, 2), (Open, 1)])),
        (
            "bytes after the end",
            script(&[(Open, 1), (End, 1), (Data, 1)]),
        ),
        (
            "bytes after the move",
            script(&[(Open, 1), (Move, 1), (Data, 1)]),
        ),
        ("more taken than was sent", script(&[(Open, 1), (Taken, 1)])),
        ("a stream to come taken", script(&[(Open, 1), (Taken, 2)])),
        ("two ends", script(&[(Open, 1), (End, 1), (End, 1)])),
        ("a reset of a stream to come", script(&[(Reset, 1)])),
    ] {
        let (mut engine, agent) = duplex(1024 * 1024);
        let (lane, driver) = Lane::agent(agent);
        engine.write_all(&bytes).await.unwrap();
        let (streams, mut taken) = mpsc::unbounded_channel();
        let ended = tokio::spawn(serve(driver, streams));
        let error = ended.await.unwrap().expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}");
        assert!(lane.is_over(), "{what}");
        while let Some(stream) = taken.recv().await {
            assert!(carried(stream).0.write_all(b"x").await.is_err(), "{what}");
        }
        let mut rest = Vec::new();
        engine.read_to_end(&mut rest).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_cannot_open_a_stream() {
    let (engine, mut agent) = duplex(1024);
    let (lane, driver) = StandingConnection::new(engine, Side::Engine)
        .into_lane()
        .unwrap();
    let _stream = lane.open(&opening("s")).unwrap();
    let mut bytes = Vec::new();
    encode_open(2, &opening("s"), &mut bytes).unwrap();
    agent.write_all(&bytes).await.unwrap();
    let (none, _) = mpsc::unbounded_channel();
    let error = serve(driver, none).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// A stream with small pieces in alternating directions stays for any time. A stream with many
/// bytes from one end does not, even if they are requested in pieces.
#[tokio::test]
async fn a_stream_of_an_unknown_protocol_stays_while_its_turns_are_small() {
    for (piece, turns, moves) in [(100, 10_000, false), (32 * 1024, 10, true)] {
        let mut pair = pair(64 * 1024).await;
        let [(mut near, mut near_moved), (mut far, mut far_moved)] = pair.stream().await;
        near.lane().set_budget(Budget::bytes());
        far.lane().set_budget(Budget::bytes());
        let joining = tokio::spawn(async move {
            let (mut a, mut b) = (near_moved.recv().await?, far_moved.recv().await?);
            tokio::io::copy_bidirectional(&mut a, &mut b).await.ok()
        });
        let service = tokio::spawn(async move {
            let answer = body(piece, 6);
            for _ in 0..turns {
                far.read_u8().await.unwrap();
                far.write_all(&answer).await.unwrap();
                far.flush().await.unwrap();
            }
            far
        });
        let (mut got, expected) = (vec![0; piece], body(piece, 6));
        for _ in 0..turns {
            near.write_all(b"?").await.unwrap();
            near.flush().await.unwrap();
            near.read_exact(&mut got).await.unwrap();
            assert!(got == expected);
        }
        let far = service.await.unwrap();
        assert_eq!((near.is_moved(), far.is_moved()), (moves, moves), "{piece}");
        joining.abort();
    }
}

/// A stream whose reader reads nothing leaves at the window, regardless of its budget; read bytes
/// free the window again.
#[tokio::test]
async fn a_stream_with_too_many_unread_bytes_leaves() {
    let mut pair = pair(64 * 1024).await;
    let [(mut near, mut near_moved), (mut far, _)] = pair.stream().await;
    near.lane().set_budget(Budget::exchanges(usize::MAX));
    let window = window(Side::Engine);
    let round = vec![0; unit(Side::Engine)];
    for _ in 0..100 {
        near.write_all(&round).await.unwrap();
        far.read_exact(&mut vec![0; round.len()]).await.unwrap();
    }
    assert!(!near.is_moved());
    // The last `TAKEN` arrives before this.
    far.write_all(b"!").await.unwrap();
    assert_eq!(near.read_u8().await.unwrap(), b'!');
    let all = vec![0; window];
    let (written, _) = tokio::join!(near.write_all(&all), near_moved.recv());
    written.unwrap();
    assert!(near.is_moved());
}

/// The engine counts streams that are not over; streams that this end still reads are not among
/// them.
#[tokio::test]
async fn finished_streams_do_not_count_against_the_limit() {
    let (mut engine, agent) = duplex(1024 * 1024);
    let (lane, driver) = Lane::agent(agent);
    let (streams, mut taken) = mpsc::unbounded_channel();
    let served = tokio::spawn(serve(driver, streams));
    let mut held = Vec::new();
    let most = u32::try_from(MAX_STREAMS).unwrap();
    for round in 0..2 {
        let mut bytes = Vec::new();
        for number in 1..=most {
            let number = round * most + number;
            encode_open(number, &opening("s"), &mut bytes).unwrap();
            encode_empty(FrameType::End, number, &mut bytes);
        }
        engine.write_all(&bytes).await.unwrap();
        for _ in 0..most {
            let mut stream = taken.recv().await.unwrap();
            stream.send_end().unwrap();
            held.push(stream);
        }
    }
    assert_eq!(lane.streams(), 2 * MAX_STREAMS);
    // No more can be open than that: only the next one is refused.
    let mut bytes = Vec::new();
    encode_open(2 * most + 1, &opening("s"), &mut bytes).unwrap();
    encode_empty(FrameType::End, 2 * most + 1, &mut bytes);
    engine.write_all(&bytes).await.unwrap();
    let mut ends = vec![0; 2 * MAX_STREAMS * HEAD_LEN];
    engine.read_exact(&mut ends).await.unwrap();
    let mut head = [0; HEAD_LEN];
    engine.read_exact(&mut head).await.unwrap();
    assert_eq!(Head::decode(head).unwrap().kind(), FrameType::Reset);
    drop(held);
    assert!(!lane.is_over());
    assert_eq!(lane.streams(), 0);
    served.abort();
}

/// A peer that reads nothing: its streams wait, and the queue for it does not grow.
#[tokio::test]
async fn the_queue_for_a_peer_that_never_reads_is_bounded() {
    let (engine, _agent) = duplex(1024);
    let (lane, mut driver) = StandingConnection::new(engine, Side::Engine)
        .into_lane()
        .unwrap();
    // The maximum number of streams, before anything is written.
    let opened = std::iter::from_fn(|| lane.open(&opening("s")));
    let mut streams: Vec<_> = opened.map(carried).collect();
    assert_eq!(streams.len(), MAX_STREAMS);
    // As much as is possible without the peer.
    poll_fn(|cx| {
        assert!(driver.poll_accept(cx).is_pending());
        for (stream, _moved) in &mut streams {
            while Pin::new(&mut *stream).poll_write(cx, &[0; 1000]).is_ready() {}
        }
        Poll::Ready(())
    })
    .await;
    // The bytes in `writing` have the same limit.
    assert!(lane.0.lock().out.len() < WRITE_BUFFER_LIMIT + HEAD_LEN + MAX_DATA);
    // A lane without capacity is not over: further streams use other connections.
    assert!(!lane.is_over());
}

/// A service that sends first is notified of its visitor, who sends nothing.
#[tokio::test]
async fn an_opening_is_sent_without_data() {
    let mut pair = pair(64 * 1024).await;
    let mut near = carried(pair.lane.open(&opening("s")).unwrap()).0;
    let mut far = carried(pair.agent.recv().await.unwrap()).0;
    far.write_all(b"220 ready").await.unwrap();
    far.shutdown().await.unwrap();
    let mut said = Vec::new();
    near.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"220 ready");
}

/// Bytes that many streams write in one turn of the runtime are sent in one write.
#[tokio::test]
async fn one_write_contains_frames_of_many_streams() {
    let (engine, mut agent) = duplex(1024 * 1024);
    let (lane, driver) = StandingConnection::new(engine, Side::Engine)
        .into_lane()
        .unwrap();
    let mut ends = Vec::new();
    for _ in 0..50 {
        let mut stream = carried(lane.open(&opening("s")).unwrap()).0;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        ends.push(stream);
    }
    let (none, _) = mpsc::unbounded_channel();
    let driver = tokio::spawn(serve(driver, none));
    let mut bytes = vec![0; 64 * 1024];
    let read = agent.read(&mut bytes).await.unwrap();
    let frames = 50 * (2 * HEAD_LEN + 10 + 18);
    assert_eq!(read, 4 + frames, "LANE and the frames of all streams");
    driver.abort();
    let head: [u8; HEAD_LEN] = bytes[4..4 + HEAD_LEN].try_into().unwrap();
    assert_eq!(Head::decode(head).unwrap().kind(), FrameType::Open);
}
