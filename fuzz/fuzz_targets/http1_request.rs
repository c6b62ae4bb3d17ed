//! Any bytes as the head of a request: no panic, and nothing is accepted that `httparse` reads
//! differently or that is complete before its end.
#![no_main]

use http1::{Limits, MAX_FIELDS, Progress, Slots, may_complete, parse_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { head_bytes: 1024, target_bytes: 128, headers: 16 };
    let mut slots = Slots::new();
    let Ok(Progress::Complete { head, head_len }) = parse_request(bytes, &limits, &mut slots) else {
        return;
    };
    assert!(head_len <= limits.head_bytes && head.target.path.len() <= limits.target_bytes);
    let mut room = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut other = httparse::Request::new(&mut room);
    assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(head_len)));
    assert_eq!(other.method, Some(head.method.as_str()));
    assert!(
        other
            .headers
            .iter()
            .map(|header| (header.name.as_bytes(), header.value))
            .eq(head.fields.iter().map(|field| (field.name, field.value)))
    );
    let shorter = &bytes[..head_len - 1];
    assert!(matches!(parse_request(shorter, &limits, &mut Slots::new()), Ok(Progress::Partial)));
    assert!(may_complete(&bytes[..head_len], head_len - 1, &limits));
});
