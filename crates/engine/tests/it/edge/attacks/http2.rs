//! Attacks by HTTP/2 visitors.

use testing::{H2Visitor, TestEngine};

use super::{Site, Table};
use crate::edge::attacks::frames::{
    ACK, CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, Frame, HEADERS, Outcome, PING, PRIORITY, PROTOCOL_ERROR,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, get,
};

/// Malformed: either the stream is reset or its connection ends. The choice is the library's.
const MALFORMED: Outcome = Outcome::Reset(PROTOCOL_ERROR);
const INVALID: Outcome = Outcome::Answer(400);

/// The fields of a valid request with the changes of the row: a field is replaced if it exists,
/// removed if the value is `-`, and added otherwise.
fn fields<'a>(host: &'a str, row: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = get(host, "/");
    for &(name, value) in row {
        match fields.iter().position(|(known, _)| *known == name) {
            Some(at) if value == "-" => drop(fields.remove(at)),
            Some(at) if name.starts_with(':') => fields[at].1 = value,
            _ => fields.push((name, value)),
        }
    }
    fields
}

/// HTTP/2 uses lengths where HTTP/1.1 uses delimiters, so a harmless HTTP/2 field can become a
/// separate HTTP/1.1 request (RFC 9113, 8.2.1 and 10.3).
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn fields_that_would_change_meaning_in_http1_are_refused() {
    let site = Site::start().await;
    let host = site.host();
    let long = format!("/{}", "a".repeat(9_000));
    let large = "a".repeat(40_000);
    let method = "M".repeat(40);
    let other = site.bystander.hostname();
    let user = format!("user@{host}");
    let spliced = format!("{host}\r\nX: y");
    let with_path = format!("{host}/a");
    let rows: Vec<(Vec<(&str, &str)>, Outcome)> = vec![
        // Delimiters of HTTP/1.1 in every position.
        (vec![("x", "a\r\nSvc: b")], MALFORMED),
        (vec![("x", "a\nb")], MALFORMED),
        (vec![("x", "a\rb")], MALFORMED),
        (vec![("x", "a\0b")], MALFORMED),
        (vec![("x\r\ny", "a")], MALFORMED),
        (vec![("x: y", "a")], MALFORMED),
        (vec![("x y", "a")], MALFORMED),
        (vec![("", "a")], MALFORMED),
        (vec![("Upper", "a")], MALFORMED),
        (
            vec![(":path", "/ HTTP/1.1\r\nHost: x\r\n\r\nGET /x")],
            MALFORMED,
        ),
        (vec![(":path", "/a b")], MALFORMED),
        (vec![(":path", "/a\tb")], MALFORMED),
        (vec![(":path", "")], MALFORMED),
        (vec![(":path", "a")], MALFORMED),
        (vec![(":path", "*")], INVALID),
        (vec![(":path", "https://other.example/")], MALFORMED),
        (vec![(":path", &long)], Outcome::Answer(414)),
        (vec![(":method", "GET / HTTP/1.1\r\n")], MALFORMED),
        (vec![(":method", "GET /x")], MALFORMED),
        (vec![(":method", "")], MALFORMED),
        (vec![(":method", &method)], Outcome::Answer(501)),
        (vec![(":method", "CONNECT")], MALFORMED),
        (vec![(":authority", &spliced)], MALFORMED),
        (vec![(":authority", &user)], INVALID),
        (vec![(":authority", &with_path)], MALFORMED),
        (vec![(":authority", "")], MALFORMED),
        (vec![(":authority", other)], Outcome::Answer(421)),
        (vec![(":scheme", "https://other.example/x?")], MALFORMED),
        // Pseudo fields that are missing, late, unknown or of a response.
        (vec![(":method", "-")], MALFORMED),
        (vec![(":scheme", "-")], MALFORMED),
        (vec![(":path", "-")], MALFORMED),
        (vec![(":authority", "-")], INVALID),
        (vec![(":status", "200")], MALFORMED),
        (vec![(":unknown", "a")], MALFORMED),
        (vec![(":protocol", "websocket")], MALFORMED),
        (vec![("x", "a"), (":late", "b")], MALFORMED),
        // Two hosts.
        (vec![("host", other)], INVALID),
        (vec![("host", host), ("host", host)], INVALID),
        (
            vec![(":authority", "-"), ("host", other)],
            Outcome::Answer(421),
        ),
        (vec![(":authority", "-"), ("host", &user)], INVALID),
        // Fields of a connection (8.2.2).
        (vec![("connection", "close")], MALFORMED),
        (vec![("connection", "x-forwarded-for")], MALFORMED),
        (vec![("keep-alive", "timeout=5")], MALFORMED),
        (vec![("proxy-connection", "close")], MALFORMED),
        (vec![("transfer-encoding", "chunked")], MALFORMED),
        (vec![("upgrade", "websocket")], MALFORMED),
        (vec![("te", "gzip")], MALFORMED),
        (vec![("te", "trailers, chunked")], MALFORMED),
        // Lengths.
        (vec![("content-length", "5")], MALFORMED),
        (vec![("content-length", "-1")], MALFORMED),
        (vec![("content-length", "+0")], MALFORMED),
        (vec![("content-length", "")], INVALID),
        (vec![("content-length", "0, 0")], MALFORMED),
        (
            vec![("content-length", "0"), ("content-length", "1")],
            MALFORMED,
        ),
        (
            vec![("content-length", "0"), ("content-length", "0")],
            INVALID,
        ),
        // Fields and values that are too large or too many.
        (vec![("x", &large)], Outcome::Answer(431)),
    ];
    let mut table = Table::default();
    for (row, expected) in rows {
        let mut connection = Connection::open(&site.engine, host).await;
        let head = block(&fields(host, &row));
        let mut frames = Vec::new();
        let mut pieces = head.chunks(16_384).peekable();
        let mut kind = HEADERS;
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            let flags = end | if kind == HEADERS { END_STREAM } else { 0 };
            frames.push(frame(kind, flags, 1, piece));
            kind = CONTINUATION;
        }
        let fate = malformed(connection.outcome(&frames).await);
        table.row(
            row.iter().map(|(name, value)| format!("{name}: {value}")),
            &fate,
            &expected,
        );
    }
    // Each pseudo field twice.
    for (name, value) in get(host, "/") {
        let mut twice = get(host, "/");
        twice.push((name, value));
        let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, block(&twice));
        let fate = Connection::open(&site.engine, host)
            .await
            .outcome(&[head])
            .await;
        let fate = malformed(fate);
        table.row([format!("{name} twice")], &fate, &MALFORMED);
    }
    // A pseudo field after the other fields.
    let mut late = get(host, "/");
    late.insert(1, ("x", "a"));
    let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, block(&late));
    let fate = Connection::open(&site.engine, host)
        .await
        .outcome(&[head])
        .await;
    let fate = malformed(fate);
    table.row(["a pseudo field behind another"], &fate, &MALFORMED);
    table.assert_no_failures();
    site.check_untouched().await;
}

/// A head as `HEADERS` and `CONTINUATION` frames of a stream.
fn head_frames(stream: u32, head: &[u8]) -> Vec<Frame> {
    let count = head.chunks(16_384).count();
    let frames = head.chunks(16_384).enumerate().map(|(index, piece)| {
        let (kind, first) = match index {
            0 => (HEADERS, END_STREAM),
            _ => (CONTINUATION, 0),
        };
        let last = if index + 1 == count { END_HEADERS } else { 0 };
        frame(kind, first | last, stream, piece)
    });
    frames.collect()
}

/// A head that is too large is refused on its stream, and the connection remains open. The
/// connection ends only far above the limit, where reading on would be the attack (`CONTINUATION`
/// flood).
#[tokio::test]
async fn a_head_that_is_too_large_affects_only_its_stream() {
    let site = Site::start().await;
    let host = site.host();
    let mut table = Table::default();
    for size in [33_000, 40_000, 64_000, 90_000, 120_000] {
        let value = "a".repeat(size);
        let many = vec!["a".repeat(900); size / 900];
        let one = vec![("x", value.as_str())];
        let many: Vec<_> = many.iter().map(|value| ("x", value.as_str())).collect();
        for (name, row) in [("one field", one), ("many fields", many)] {
            let mut connection = Connection::open(&site.engine, host).await;
            let head = block(&fields(host, &row));
            let fate = connection.outcome(&head_frames(1, &head)).await;
            table.row(
                [format!("{size} bytes in {name}")],
                &fate,
                &Outcome::Answer(431),
            );
            connection
                .writer
                .send(&request(host, 3, END_STREAM).to_bytes())
                .await;
            let next = connection.reader.outcome(3).await;
            table.row(
                [format!("the next after {size} bytes in {name}")],
                &next,
                &Outcome::Answer(200),
            );
        }
    }
    table.assert_no_failures();
    // The refusal is a problem document, on tunnels and at the Engine API.
    let large = "a".repeat(40_000);
    for (host, path) in [(host, "/"), (site.engine.host(), "/api/clients")] {
        let mut visitor = site.engine.visitor().h2(host).await;
        let request = hyper::Request::get(format!("https://{host}{path}")).header("x", &large);
        let response = visitor
            .send(request.body(H2Visitor::empty()).unwrap())
            .await;
        let answer = H2Visitor::collect(response.unwrap()).await;
        assert_eq!(answer.status, 431, "{host}");
        assert_eq!(
            answer.json()["code"],
            "request_header_fields_too_large",
            "{host}"
        );
    }
}

fn malformed(fate: Outcome) -> Outcome {
    match fate {
        Outcome::Ended(Some(PROTOCOL_ERROR)) => MALFORMED,
        fate => fate,
    }
}

/// The library reads a target up to its fragment. The service receives the target that was checked.
#[tokio::test]
async fn a_fragment_is_not_forwarded() {
    let site = Site::start().await;
    let host = site.host();
    let mut visitor = site.engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/a", host).await.json()["target"], "/a");
    let mut connection = Connection::open(&site.engine, host).await;
    let head = block(&get(host, "/status/204#/status/500"));
    let fate = connection
        .outcome(&[frame(HEADERS, END_STREAM | END_HEADERS, 1, head)])
        .await;
    assert_eq!(fate, Outcome::Answer(204));
}

/// A valid request as frames.
pub(super) fn request(host: &str, stream: u32, flags: u8) -> Frame {
    frame(HEADERS, END_HEADERS | flags, stream, block(&get(host, "/")))
}

/// Frames in forbidden positions or of forbidden lengths.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn frames_in_forbidden_positions_end_the_connection() {
    let site = Site::start().await;
    let host = site.host();
    let good = |flags| request(host, 1, flags);
    let ended = |code| Outcome::Ended(Some(code));
    let mut table = Table::default();
    for (case, frames, expected) in [
        (
            "a frame longer than agreed",
            vec![frame(DATA, 0, 1, vec![0; 16_385])],
            ended(FRAME_SIZE_ERROR),
        ),
        (
            "data on no stream",
            vec![frame(DATA, 0, 0, [0])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "data on an idle stream",
            vec![frame(DATA, 0, 1, [0])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a stream that is the server's to open",
            vec![request(host, 2, END_STREAM)],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a head on no stream",
            vec![request(host, 0, END_STREAM)],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a promise of a client",
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, [0, 0, 0, 2])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a continuation of nothing",
            vec![frame(CONTINUATION, END_HEADERS, 1, [])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "something within a head",
            vec![
                frame(HEADERS, END_STREAM, 1, block(&get(host, "/"))),
                frame(PING, 0, 0, [0; 8]),
            ],
            ended(PROTOCOL_ERROR),
        ),
        (
            "another stream within a head",
            vec![
                frame(HEADERS, END_STREAM, 1, block(&get(host, "/"))),
                frame(CONTINUATION, END_HEADERS, 3, []),
            ],
            ended(PROTOCOL_ERROR),
        ),
        (
            "settings of odd length",
            vec![frame(SETTINGS, 0, 0, [0; 5])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "settings of a stream",
            vec![frame(SETTINGS, 0, 1, [0; 6])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "settings acknowledged with settings",
            vec![frame(SETTINGS, ACK, 0, [0; 6])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a window larger than there are",
            vec![frame(SETTINGS, 0, 0, [0, 4, 255, 255, 255, 255])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a window that overflows",
            vec![frame(WINDOW_UPDATE, 0, 0, [127, 255, 255, 255])],
            ended(FLOW_CONTROL_ERROR),
        ),
        (
            "a window that does not grow",
            vec![frame(WINDOW_UPDATE, 0, 0, [0; 4])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a short ping",
            vec![frame(PING, 0, 0, [0; 7])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a reset of an idle stream",
            vec![frame(RST_STREAM, 0, 1, [0; 4])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "padding longer than its frame",
            vec![frame(HEADERS, END_STREAM | END_HEADERS | 8, 1, [255, 0])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "an index of no table",
            vec![frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                1,
                [0xff, 0xff, 0x7f],
            )],
            ended(PROTOCOL_ERROR),
        ),
        (
            "half a field",
            vec![frame(HEADERS, END_STREAM | END_HEADERS, 1, [0, 5, b'a'])],
            ended(PROTOCOL_ERROR),
        ),
        (
            "a Huffman code that never ends",
            vec![frame(
                HEADERS,
                END_STREAM | END_HEADERS,
                1,
                [0, 0x84, 255, 255, 255, 255],
            )],
            ended(PROTOCOL_ERROR),
        ),
    ] {
        let mut connection = Connection::open(&site.engine, host).await;
        let fate = connection.outcome(&frames).await;
        table.row([case], &fate, &expected);
    }
    table.assert_no_failures();
    site.check_untouched().await;
    // Frames that no rule forbids end nothing.
    for (case, frames) in [
        (
            "an unknown kind",
            vec![frame(0xee, 0xff, 0, [0; 100]), good(END_STREAM)],
        ),
        (
            "unknown settings",
            vec![
                frame(SETTINGS, 0, 0, [0xff, 0xff, 1, 2, 3, 4]),
                good(END_STREAM),
            ],
        ),
        (
            "a priority",
            vec![frame(PRIORITY, 0, 1, [0; 5]), good(END_STREAM)],
        ),
    ] {
        let mut connection = Connection::open(&site.engine, host).await;
        assert_eq!(
            connection.outcome(&frames).await,
            Outcome::Answer(200),
            "{case}"
        );
    }
}

/// An endless flood. `round` makes the frames of one round.
async fn flood(
    engine: &TestEngine,
    host: &str,
    mut round: impl FnMut(u32) -> Vec<Frame>,
) -> Outcome {
    let Connection {
        mut reader,
        mut writer,
    } = Connection::open(engine, host).await;
    let flooding = async {
        for number in 0.. {
            let bytes: Vec<u8> = round(number).iter().flat_map(Frame::to_bytes).collect();
            if !writer.try_send(&bytes).await {
                break;
            }
        }
    };
    // The flood does not wait for answers. It stops when the connection ends.
    let (fate, ()) = tokio::join!(reader.outcome(0), flooding);
    fate
}

#[tokio::test]
async fn floods_end_their_connection_and_nothing_else() {
    let site = Site::start().await;
    let host = site.host();
    let calm = Outcome::Ended(Some(ENHANCE_YOUR_CALM));

    // Rapid reset (CVE-2023-44487).
    let fate = flood(&site.engine, host, |number| {
        let stream = number * 2 + 1;
        vec![
            request(host, stream, END_STREAM),
            frame(RST_STREAM, 0, stream, [0, 0, 0, 8]),
        ]
    });
    assert_eq!(fate.await, calm, "rapid reset");
    site.check_both_tunnels().await;

    // Frames that make the server reset streams (CVE-2025-8671).
    let fate = flood(&site.engine, host, |number| {
        let stream = number * 2 + 1;
        let mut fields = get(host, "/");
        fields.push(("te", "gzip"));
        let head = block(&fields);
        vec![frame(HEADERS, END_STREAM | END_HEADERS, stream, head)]
    });
    assert_eq!(fate.await, calm, "made to reset");
    site.check_both_tunnels().await;

    // Continuations without end (CVE-2024-27316).
    let fate = flood(&site.engine, host, |number| match number {
        0 => vec![frame(HEADERS, END_STREAM, 1, block(&get(host, "/")))],
        _ => vec![frame(
            CONTINUATION,
            0,
            1,
            block(&[("x", "a".repeat(16_000))]),
        )],
    });
    assert!(matches!(fate.await, Outcome::Ended(_)), "continuations");
    // The same, empty.
    let fate = flood(&site.engine, host, |number| match number {
        0 => vec![frame(HEADERS, END_STREAM, 1, block(&get(host, "/")))],
        _ => vec![frame(CONTINUATION, 0, 1, []); 100],
    });
    assert!(
        matches!(fate.await, Outcome::Ended(_)),
        "empty continuations"
    );
    site.check_both_tunnels().await;

    // Fields that take one byte and expand to thousands: references to the same table entry.
    let mut entry = block(&get(host, "/"));
    entry.extend([0x40, 1, b'x', 127, 0xa1, 0x1e]);
    entry.extend([b'a'; 4000]);
    entry.extend([0xbe; 10_000]);
    let mut connection = Connection::open(&site.engine, host).await;
    let fate = connection
        .outcome(&[frame(HEADERS, END_STREAM | END_HEADERS, 1, entry)])
        .await;
    assert_eq!(fate, calm, "header bomb");
    site.check_both_tunnels().await;
}

/// More streams than the edge offered, before the settings are acknowledged.
#[tokio::test]
async fn more_streams_than_offered_are_refused() {
    let site = Site::start().await;
    let host = site.host();
    let Connection {
        mut reader,
        mut writer,
    } = Connection::open(&site.engine, host).await;
    // Requests whose bodies never arrive.
    let opened: Vec<u8> = (0..300)
        .flat_map(|number| request(host, number * 2 + 1, 0).to_bytes())
        .collect();
    writer.send(&opened).await;
    assert_eq!(
        reader.outcome(2 * 256 + 1).await,
        Outcome::Reset(7),
        "REFUSED_STREAM"
    );
    site.check_both_tunnels().await;
}

/// Control frames that request nothing cost no memory and delay no visitor.
#[tokio::test]
async fn endless_control_frames_do_not_pile_up() {
    let site = Site::start().await;
    let host = site.host();
    for (case, noise) in [
        ("pings", frame(PING, 0, 0, [7; 8])),
        ("settings", frame(SETTINGS, 0, 0, [0, 3, 0, 0, 0, 100])),
        ("priorities", frame(PRIORITY, 0, 3, [0; 5])),
        ("answers to no ping", frame(PING, ACK, 0, [7; 8])),
        ("windows", frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])),
    ] {
        let mut connection = Connection::open(&site.engine, host).await;
        let mut frames = vec![noise; 20_000];
        frames.push(request(host, 1, END_STREAM));
        let fate = connection.outcome(&frames).await;
        let survived = fate == Outcome::Answer(200);
        assert!(
            survived || fate == Outcome::Ended(Some(ENHANCE_YOUR_CALM)),
            "{case}: {fate:?}"
        );
    }
    // Empty data frames, on a stream that the service answers in the end.
    let mut connection = Connection::open(&site.engine, host).await;
    let mut frames = vec![frame(
        HEADERS,
        END_HEADERS,
        1,
        block(&fields(host, &[(":method", "POST")])),
    )];
    frames.extend(vec![frame(DATA, 0, 1, []); 20_000]);
    frames.push(frame(DATA, END_STREAM, 1, []));
    let fate = connection.outcome(&frames).await;
    assert!(
        matches!(
            fate,
            Outcome::Answer(200) | Outcome::Ended(Some(ENHANCE_YOUR_CALM))
        ),
        "empty data: {fate:?}"
    );
    site.check_both_tunnels().await;
}
