//! Properties that apply to any bytes of a visitor or a service. `fuzz/` calls these functions with
//! generated input, the tests with the files in `tests/corpus`.

use http1::{
    BodyError, BodyReader, BodyState, ChunkScanner, Limits, MAX_FIELDS, Progress, ResponseBody,
    Slots, may_complete, parse_request, parse_response,
};

/// The head of a request: it is only accepted if `httparse` reads it in the same way and it is
/// complete at its end.
pub(crate) fn http1_request(bytes: &[u8]) {
    let limits = Limits {
        head_bytes: 1024,
        target_bytes: 128,
        headers: 16,
    };
    let mut slots = Slots::new();
    let Ok(Progress::Complete { head, head_len }) = parse_request(bytes, &limits, &mut slots)
    else {
        return;
    };
    assert!(head_len <= limits.head_bytes && head.target.path().len() <= limits.target_bytes);
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut room);
    assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    assert_eq!(other.method, Some(head.method.as_str()));
    assert!(
        other
            .headers
            .iter()
            .map(|header| (header.name.as_bytes(), header.value))
            .eq(head
                .fields
                .iter()
                .map(|field| (field.name.as_bytes(), field.value.as_bytes())))
    );
    let shorter = &bytes[..head_len - 1];
    assert!(matches!(
        parse_request(shorter, &limits, &mut Slots::new()),
        Ok(Progress::Partial)
    ));
    assert!(may_complete(&bytes[..head_len], head_len - 1, &limits));
}

/// The head of a response: like [`http1_request`]. The first byte chooses the request.
pub(crate) fn http1_response(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    let to_head = choice % 2 == 1;
    let limits = Limits {
        head_bytes: 1024,
        headers: 16,
        ..Limits::default()
    };
    let mut slots = Slots::new();
    let parsed = parse_response(bytes, &limits, to_head, &mut slots);
    let Ok(Progress::Complete { head, head_len }) = parsed else {
        return;
    };
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut room);
    assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    assert_eq!(other.code, Some(head.status));
    assert!(
        other
            .headers
            .iter()
            .map(|header| (header.name.as_bytes(), header.value))
            .eq(head
                .fields
                .iter()
                .map(|field| (field.name.as_bytes(), field.value.as_bytes())))
    );
    assert!(!to_head || head.body == ResponseBody::Empty);
    assert!(!(head.body == ResponseBody::UntilClose && head.keep_alive));
    let shorter = &bytes[..head_len - 1];
    let mut slots = Slots::new();
    let early = parse_response(shorter, &limits, to_head, &mut slots);
    assert!(matches!(early, Ok(Progress::Partial)));
}

/// A chunked body: the payload does not depend on how the bytes are split. The first byte is the
/// size of the pieces.
pub(crate) fn http1_body(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = read(bytes, bytes.len().max(1));
    let split = read(bytes, usize::from(*size).max(1));
    assert_eq!(whole, split);
}

/// Payload, and the bytes after the body.
fn read(bytes: &[u8], piece_size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut reader = BodyReader::Chunked(ChunkScanner::new());
    let mut payload = Vec::new();
    let mut held = Vec::new();
    for piece in bytes.chunks(piece_size) {
        held.extend_from_slice(piece);
        while !reader.is_done() {
            let advance = reader.advance(&held).ok()?;
            payload.extend_from_slice(&held[advance.data.clone()]);
            assert!(advance.data.end <= advance.consumed);
            assert_eq!(reader.is_done(), advance.state != BodyState::More);
            held.drain(..advance.consumed);
            if advance.consumed == 0 || held.is_empty() {
                break;
            }
        }
    }
    match reader.finish() {
        Ok(()) => Some((payload, held)),
        Err(BodyError::BrokeOff | BodyError::Malformed(_)) => None,
    }
}
