//! Any bytes as the head of a response: no panic, and nothing is accepted that `httparse` reads
//! differently or that is complete before its end. The first byte chooses the request.
#![no_main]

use http1::{Limits, MAX_FIELDS, Progress, ResponseBody, Slots, parse_response};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let to_head = choice % 2 == 1;
    let limits = Limits { head_bytes: 1024, headers: 16, ..Limits::default() };
    let mut slots = Slots::new();
    let parsed = parse_response(bytes, &limits, to_head, &mut slots);
    let Ok(Progress::Complete { head, head_len }) = parsed else { return };
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Response::new(&mut room);
    assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    assert_eq!(other.code, Some(head.status));
    assert!(
        other
            .headers
            .iter()
            .map(|header| (header.name.as_bytes(), header.value))
            .eq(head.fields.iter().map(|field| (field.name, field.value)))
    );
    assert!(!to_head || head.body == ResponseBody::Empty);
    assert!(!(head.body == ResponseBody::UntilClose && head.keep_alive));
    let shorter = &bytes[..head_len - 1];
    let mut slots = Slots::new();
    let early = parse_response(shorter, &limits, to_head, &mut slots);
    assert!(matches!(early, Ok(Progress::Partial)));
});
