//! Properties that hold for any message to the responder. `fuzz/` feeds this function with generated
//! input, the tests with kept messages.

use dns::{QueryResult, Transport, Zone, Zones};

/// A message: the response has its id and its question, is little larger over UDP, and has no
/// records of names in other zones.
pub(crate) fn query(data: &[u8]) {
    let zones = zones();
    let over_udp = zones.respond(data, Transport::Udp);
    let over_tcp = zones.respond(data, Transport::Tcp);
    let (Some(over_udp), Some(over_tcp)) = (&over_udp, &over_tcp) else {
        assert!(over_udp.is_none() && over_tcp.is_none());
        assert!(data.len() < 12 || data[2] & 0x80 != 0);
        return;
    };
    assert!(over_udp.bytes.len() <= (4 * data.len()).min(1232));
    for response in [over_udp, over_tcp] {
        let bytes = &response.bytes;
        assert_eq!(bytes[..2], data[..2], "the id");
        assert_eq!(bytes[2] & 0x80, 0x80, "a response");
        assert_eq!(bytes[3] & 0x80, 0, "no recursion");
        let has_question = match response.result {
            QueryResult::Malformed | QueryResult::NotImplemented => false,
            QueryResult::Truncated => bytes[5] == 1,
            _ => true,
        };
        assert_eq!(bytes[4..6], [0, u8::from(has_question)]);
        let has_records = bytes[6..10] != [0; 4];
        let is_answer = matches!(
            response.result,
            QueryResult::Answer | QueryResult::NoData | QueryResult::NoName
        );
        assert_eq!(has_records, is_answer);
    }
}

fn zones() -> Zones {
    let zones = vec![
        Zone::of_challenges("_acme-challenge.h.example").unwrap(),
        Zone::of_challenges("acme.example.net").unwrap(),
        Zone::of_hosts("t.h.example", vec!["192.0.2.1".parse().unwrap()]).unwrap(),
    ];
    let zones = Zones::new("ns.h.example", zones).unwrap();
    for text in ["x", "y"] {
        let text = text.repeat(43);
        zones
            .records()
            .add("_acme-challenge.h.example", &text)
            .unwrap();
    }
    zones
}
