use std::future::poll_fn;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;

/// Copies `sent`, the bytes after the head on the source's connection, through pipes of `capacity`
/// bytes. Returns the received bytes, the result, and the bytes that stayed in the source.
fn copy(
    sent: &[u8],
    closes: bool,
    reader: BodyReader,
    framing: Framing,
    capacity: usize,
) -> (Vec<u8>, Result<(), CopyError>, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (near, mut far) = duplex(capacity);
        let (mut sink, mut receiver) = duplex(capacity);
        let sent = sent.to_vec();
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await.ok();
            if closes { None } else { Some(far) }
        });
        let taking = tokio::spawn(async move {
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).await.unwrap();
            all
        });
        let mut source = BufferedStream::new(near);
        let mut copy = BodyCopy::new(
            Source::default(),
            b"head ".to_vec(),
            reader,
            framing,
            &mut source,
        );
        let result = poll_fn(|cx| copy.poll(cx, &mut source, &mut sink)).await;
        drop(sink);
        let arrived = taking.await.unwrap();
        let mut rest = source.unread().to_vec();
        if result.is_ok() {
            source.io.read_to_end(&mut rest).await.ok();
        }
        drop(source);
        sending.await.unwrap();
        assert_eq!(copy.written(), arrived.len() as u64);
        (arrived, result, rest)
    })
}

fn chunked(pieces: &[Vec<u8>], trailers: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        http1::write_chunk_head(&mut out, piece.len().try_into().unwrap());
        out.extend_from_slice(piece);
        out.extend_from_slice(http1::CHUNK_END);
    }
    out.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    out
}

/// Decodes the chunks of `body`.
fn payload(mut body: &[u8]) -> Vec<u8> {
    let mut reader = BodyReader::Chunked(http1::ChunkScanner::new());
    let mut payload = Vec::new();
    while !reader.is_done() {
        let step = reader.advance(body).unwrap();
        assert!(step.consumed > 0, "the body is truncated");
        payload.extend_from_slice(&body[step.data]);
        body = &body[step.consumed..];
    }
    assert!(body.is_empty(), "bytes after the last chunk");
    payload
}

fn after_head(arrived: &[u8]) -> &[u8] {
    arrived.strip_prefix(b"head ").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sized_bodies_are_copied_and_later_bytes_stay_unread(
        body in proptest::collection::vec(any::<u8>(), 1..60_000),
        next in proptest::collection::vec(any::<u8>(), 0..50),
        capacity in 1_usize..40_000,
    ) {
        let sent = [&body[..], &next[..]].concat();
        let reader = BodyReader::Length { left: body.len() as u64 };
        let (arrived, result, rest) = copy(&sent, true, reader, Framing::Same, capacity);
        prop_assert!(result.is_ok());
        prop_assert!(after_head(&arrived) == body);
        prop_assert!(rest == next);
    }

    #[test]
    fn chunks_arrive_as_chunks_or_bare(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9_000), 0..6),
        next in proptest::collection::vec(any::<u8>(), 0..50),
        capacity in 1_usize..20_000,
    ) {
        let body = pieces.concat();
        let sent = [&chunked(&pieces, "")[..], &next[..]].concat();
        let reader = || BodyReader::Chunked(http1::ChunkScanner::new());
        let (arrived, result, rest) = copy(&sent, true, reader(), Framing::Same, capacity);
        prop_assert!(result.is_ok());
        prop_assert!(payload(after_head(&arrived)) == body);
        prop_assert!(rest == next);
        let (arrived, result, rest) = copy(&sent, true, reader(), Framing::Bare, capacity);
        prop_assert!(result.is_ok());
        prop_assert!(after_head(&arrived) == body);
        prop_assert!(rest == next);
    }

    #[test]
    fn bodies_without_a_length_can_be_sent_as_chunks(
        body in proptest::collection::vec(any::<u8>(), 0..60_000),
        capacity in 1_usize..40_000,
    ) {
        let (arrived, result, _) = copy(&body, true, BodyReader::UntilClose, Framing::Chunks, capacity);
        prop_assert!(result.is_ok());
        prop_assert!(payload(after_head(&arrived)) == body);
    }
}

#[test]
fn truncated_bodies_are_errors_after_their_last_byte() {
    let readers = [
        (BodyReader::Length { left: 100 }, b"half of it".to_vec()),
        (
            BodyReader::Chunked(http1::ChunkScanner::new()),
            b"20\r\nhalf of it".to_vec(),
        ),
        (
            BodyReader::Chunked(http1::ChunkScanner::new()),
            b"a\r\nhalf of it\r\n".to_vec(),
        ),
    ];
    for (reader, sent) in readers {
        let (arrived, result, _) = copy(&sent, true, reader, Framing::Same, 1000);
        assert!(matches!(result, Err(CopyError::Source(_))));
        assert!(arrived.windows(10).any(|window| window == b"half of it"));
    }
}

#[test]
fn forbidden_trailers_are_dropped() {
    let sent = chunked(&[b"x".to_vec()], "grpc-status: 0\r\ncontent-length: 5\r\n");
    let reader = BodyReader::Chunked(http1::ChunkScanner::new());
    let (arrived, result, _) = copy(&sent, true, reader, Framing::Same, 1000);
    assert!(result.is_ok());
    assert_eq!(
        after_head(&arrived),
        b"1\r\nx\r\n0\r\ngrpc-status: 0\r\n\r\n"
    );
}

#[tokio::test]
async fn pieces_are_forwarded_immediately() {
    let (near, mut far) = duplex(1000);
    let (mut sink, mut receiver) = duplex(1000);
    let mut source = BufferedStream::new(near);
    let reader = BodyReader::Chunked(http1::ChunkScanner::new());
    let mut copy = BodyCopy::new(
        Source::default(),
        Vec::new(),
        reader,
        Framing::Same,
        &mut source,
    );
    let copying =
        tokio::spawn(async move { poll_fn(|cx| copy.poll(cx, &mut source, &mut sink)).await });
    for _ in 0..3 {
        far.write_all(b"5\r\nevent\r\n").await.unwrap();
        let mut event = [0; 10];
        receiver.read_exact(&mut event).await.unwrap();
        assert_eq!(&event, b"5\r\nevent\r\n");
    }
    far.write_all(http1::LAST_CHUNK).await.unwrap();
    copying.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_small_message_is_one_write_and_can_be_sent_again() {
    let (near, mut far) = duplex(1000);
    far.write_all(b"body").await.unwrap();
    let mut source = BufferedStream::new(near);
    assert!(poll_fn(|cx| source.poll_more(cx)).await.unwrap());
    let reader = BodyReader::Length { left: 4 };
    let mut copy = BodyCopy::new(
        Source::default(),
        b"head ".to_vec(),
        reader,
        Framing::Same,
        &mut source,
    );
    let (mut sink, mut receiver) = duplex(1000);
    poll_fn(|cx| copy.poll(cx, &mut source, &mut sink))
        .await
        .unwrap();
    let mut one = [0; 100];
    let read = receiver.read(&mut one).await.unwrap();
    assert_eq!(&one[..read], b"head body");
    let mut again = copy.rewind().unwrap();
    let (mut sink, mut receiver) = duplex(1000);
    poll_fn(|cx| again.poll(cx, &mut source, &mut sink))
        .await
        .unwrap();
    let read = receiver.read(&mut one).await.unwrap();
    assert_eq!(&one[..read], b"head body");
}

/// The first sink fails at any point of a chunked message, and the second one gets all of it.
#[tokio::test]
async fn a_kept_message_is_sent_again_from_its_start() {
    let body = chunked(&[vec![b'a'; 50_000], vec![b'b'; 50_000]], "x: y\r\n");
    for taken in [0, 3, 4_000, 60_000, 90_000] {
        let (near, mut far) = duplex(5_000);
        let sent = body.clone();
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            far
        });
        let mut source = BufferedStream::new(near);
        let reader = BodyReader::Chunked(http1::ChunkScanner::new());
        let head = b"head ".to_vec();
        let mut copy = BodyCopy::new(Source::default(), head, reader, Framing::Same, &mut source)
            .with_replay();
        let (mut sink, mut receiver) = duplex(1_000);
        let taking = tokio::spawn(async move {
            let mut part = vec![0; taken];
            receiver.read_exact(&mut part).await.unwrap();
        });
        let failed = poll_fn(|cx| copy.poll(cx, &mut source, &mut sink)).await;
        assert!(matches!(failed, Err(CopyError::Sink)), "{taken}");
        taking.await.unwrap();
        let mut copy = copy.rewind().unwrap();
        let (mut sink, mut receiver) = duplex(1_000);
        let taking = tokio::spawn(async move {
            let mut all = Vec::new();
            receiver.read_to_end(&mut all).await.unwrap();
            all
        });
        poll_fn(|cx| copy.poll(cx, &mut source, &mut sink))
            .await
            .unwrap();
        drop(sink);
        let arrived = taking.await.unwrap();
        assert!(after_head(&arrived) == body, "{taken}");
        drop(sending.await.unwrap());
    }
}

/// The service has responded, while the rest of the message is still being sent.
#[tokio::test]
async fn a_message_is_not_kept_after_the_end_of_its_replay() {
    let (near, mut far) = duplex(1_000);
    let mut source = BufferedStream::new(near);
    let reader = BodyReader::Length { left: 8 };
    let head = b"head ".to_vec();
    let mut copy =
        BodyCopy::new(Source::default(), head, reader, Framing::Same, &mut source).with_replay();
    let (mut sink, _receiver) = duplex(1_000);
    far.write_all(b"body").await.unwrap();
    let polled = poll_fn(|cx| Poll::Ready(copy.poll(cx, &mut source, &mut sink))).await;
    assert!(polled.is_pending() && copy.is_replayable());
    copy.end_replay();
    far.write_all(b"rest").await.unwrap();
    poll_fn(|cx| copy.poll(cx, &mut source, &mut sink))
        .await
        .unwrap();
    assert_eq!(copy.written(), 13);
    assert!(copy.rewind().is_none());
}

#[tokio::test]
async fn a_reset_after_the_body_is_ignored() {
    let ends = ResetReader(Some(b"4\r\ngood\r\n0\r\n\r\n"));
    let mut source = BufferedStream::new(ends);
    let reader = BodyReader::Chunked(http1::ChunkScanner::new());
    let mut copy = BodyCopy::new(
        Source::default(),
        Vec::new(),
        reader,
        Framing::Same,
        &mut source,
    );
    let (mut sink, mut receiver) = duplex(1000);
    poll_fn(|cx| copy.poll(cx, &mut source, &mut sink))
        .await
        .unwrap();
    drop(sink);
    let mut all = Vec::new();
    receiver.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"4\r\ngood\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_reset_within_the_body_is_an_error_after_its_bytes() {
    let mut source = BufferedStream::new(ResetReader(Some(b"4\r\ngood\r\n")));
    let reader = BodyReader::Chunked(http1::ChunkScanner::new());
    let mut copy = BodyCopy::new(
        Source::default(),
        Vec::new(),
        reader,
        Framing::Same,
        &mut source,
    );
    let (mut sink, mut receiver) = duplex(1000);
    let broken = poll_fn(|cx| copy.poll(cx, &mut source, &mut sink)).await;
    assert!(matches!(broken, Err(CopyError::Source(_))), "{broken:?}");
    drop(sink);
    let mut all = Vec::new();
    receiver.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"4\r\ngood\r\n");
}

/// A source that is reset immediately after its bytes.
struct ResetReader(Option<&'static [u8]>);

impl tokio::io::AsyncRead for ResetReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.0.take() {
            Some(bytes) => buf.put_slice(bytes),
            None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ResetReader {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
