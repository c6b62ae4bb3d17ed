//! Responses to good and bad messages.

use std::net::IpAddr;

use hickory_proto::rr::{Name, RData};
use proptest::prelude::*;

use super::*;
use crate::name::parse_name;
use crate::zone::Zone;

const CHALLENGE: &str = "_acme-challenge.h.example";

fn zones() -> Zones {
    let addresses: Vec<IpAddr> = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    let zones = vec![
        Zone::of_challenges(CHALLENGE).unwrap(),
        Zone::of_challenges("acme.example.net").unwrap(),
        Zone::of_hosts("t.h.example", addresses).unwrap(),
    ];
    Zones::new("ns.h.example", zones).unwrap()
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.metadata.id = 7;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(parse_name(name).unwrap(), kind));
    message
}

fn ask(zones: &Zones, message: &Message) -> (Message, QueryResult) {
    let response = zones
        .respond(&message.to_vec().unwrap(), Transport::Udp)
        .unwrap();
    let parsed = Message::from_vec(&response.bytes).unwrap();
    assert_eq!(parsed.metadata.id, 7);
    assert_eq!(parsed.metadata.message_type, MessageType::Response);
    assert!(!parsed.metadata.recursion_available);
    (parsed, response.result)
}

fn texts(message: &Message) -> Vec<String> {
    let texts = message.answers.iter().map(|record| match &record.data {
        RData::TXT(text) => text.to_string(),
        other => panic!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn a_challenge_is_answered_while_it_is_pending() {
    let zones = zones();
    let ask_text = || ask(&zones, &query(CHALLENGE, RecordType::TXT));
    assert_eq!(ask_text().1, QueryResult::NoData);
    for text in ["one", "two"] {
        zones.records().add(CHALLENGE, text).unwrap();
    }
    let (message, result) = ask_text();
    assert_eq!(result, QueryResult::Answer);
    assert!(message.metadata.authoritative);
    assert_eq!(texts(&message), ["one", "two"]);
    zones.records().remove(CHALLENGE, "one");
    assert_eq!(texts(&ask_text().0), ["two"]);
    zones.records().remove(CHALLENGE, "two");
    assert_eq!(ask_text().1, QueryResult::NoData);
}

#[test]
fn each_query_has_its_response() {
    let zones = zones();
    let below = "h.example.acme.example.net";
    zones.records().add(below, "text").unwrap();
    for (name, kind, result) in [
        (CHALLENGE, RecordType::SOA, QueryResult::Answer),
        (CHALLENGE, RecordType::NS, QueryResult::Answer),
        (CHALLENGE, RecordType::A, QueryResult::NoData),
        (CHALLENGE, RecordType::ANY, QueryResult::Answer),
        (CHALLENGE, RecordType::AXFR, QueryResult::Refused),
        (CHALLENGE, RecordType::IXFR, QueryResult::Refused),
        (below, RecordType::TXT, QueryResult::Answer),
        (below, RecordType::SOA, QueryResult::NoData),
        // Between the zone and a name with records.
        (
            "example.acme.example.net",
            RecordType::TXT,
            QueryResult::NoData,
        ),
        (
            "other.acme.example.net",
            RecordType::TXT,
            QueryResult::NoName,
        ),
        ("a.t.h.example", RecordType::A, QueryResult::Answer),
        ("b.a.t.h.example", RecordType::AAAA, QueryResult::Answer),
        ("t.h.example", RecordType::NS, QueryResult::Answer),
        ("a.t.h.example", RecordType::NS, QueryResult::NoData),
        ("h.example", RecordType::A, QueryResult::Refused),
        ("example.org", RecordType::TXT, QueryResult::Refused),
    ] {
        let (message, found) = ask(&zones, &query(name, kind));
        assert_eq!(found, result, "{name} {kind}");
        let code = match result {
            QueryResult::NoName => ResponseCode::NXDomain,
            QueryResult::Refused => ResponseCode::Refused,
            _ => ResponseCode::NoError,
        };
        assert_eq!(message.metadata.response_code, code, "{name} {kind}");
        let is_negative = matches!(result, QueryResult::NoData | QueryResult::NoName);
        assert_eq!(message.authorities.len(), usize::from(is_negative));
        assert_eq!(message.answers.is_empty(), result != QueryResult::Answer);
        assert_eq!(
            message.metadata.authoritative,
            result != QueryResult::Refused
        );
    }
}

#[test]
fn all_records_of_a_name_are_one_small_record() {
    let zones = zones();
    let (message, _) = ask(&zones, &query("a.t.h.example", RecordType::ANY));
    let [record] = &message.answers[..] else {
        panic!("{message}");
    };
    assert!(matches!(record.data, RData::HINFO(_)), "{record}");
}

/// Resolvers compare the letters with those that they sent.
#[test]
fn the_letters_of_the_query_are_kept() {
    let zones = zones();
    for name in ["_aCME-chalLENGE.H.eXample", "A.acme.EXAMPLE.net"] {
        let (message, _) = ask(&zones, &query(name, RecordType::TXT));
        let name = parse_name(name).unwrap();
        let [requested] = &message.queries[..] else {
            panic!("{message}");
        };
        assert!(requested.name.eq_case(&name), "{message}");
        let [authority] = &message.authorities[..] else {
            panic!("{message}");
        };
        assert!(authority.name.zone_of_case(&name), "{message}");
    }
}

#[test]
fn other_messages_are_refused() {
    let zones = zones();
    let changed = |change: fn(&mut Message)| {
        let mut message = query(CHALLENGE, RecordType::TXT);
        change(&mut message);
        ask(&zones, &message)
    };
    for op_code in [
        OpCode::Status,
        OpCode::Notify,
        OpCode::Update,
        OpCode::Unknown(1),
    ] {
        let mut message = query(CHALLENGE, RecordType::TXT);
        message.metadata.op_code = op_code;
        let (message, result) = ask(&zones, &message);
        assert_eq!(result, QueryResult::NotImplemented);
        assert_eq!(message.metadata.response_code, ResponseCode::NotImp);
    }
    let (message, result) = changed(|message| message.queries[0].query_class = DNSClass::CH);
    assert_eq!(result, QueryResult::Refused);
    assert_eq!(message.metadata.response_code, ResponseCode::Refused);
    let malformed: [fn(&mut Message); 3] = [
        |message| message.queries.clear(),
        |message| {
            let second = message.queries[0].clone();
            message.add_query(second);
        },
        |message| {
            let name = message.queries[0].name.clone();
            message.add_additional(Record::update0(name, 0, RecordType::A));
        },
    ];
    for change in malformed {
        let (message, result) = changed(change);
        assert_eq!(result, QueryResult::Malformed);
        assert_eq!(message.metadata.response_code, ResponseCode::FormErr);
    }
    // Two servers must not respond to each other.
    let mut response = query(CHALLENGE, RecordType::TXT);
    response.metadata.message_type = MessageType::Response;
    let bytes = response.to_vec().unwrap();
    assert!(zones.respond(&bytes, Transport::Udp).is_none());
    assert!(zones.respond(&bytes[..11], Transport::Udp).is_none());
}

#[test]
fn an_extension_is_answered_with_one() {
    let zones = zones();
    let mut message = query(CHALLENGE, RecordType::TXT);
    message.set_edns(Edns::new());
    let (response, result) = ask(&zones, &message);
    assert_eq!(result, QueryResult::NoData);
    assert_eq!(response.edns.unwrap().max_payload(), MAX_UDP_BYTES);
    message.edns.as_mut().unwrap().set_version(1);
    let (response, _) = ask(&zones, &message);
    assert_eq!(u16::from(response.metadata.response_code), 16);
    assert_eq!(response.edns.unwrap().version(), 0);
}

#[test]
fn a_response_that_is_too_large_is_truncated_over_udp_only() {
    let zones = zones();
    for index in 0..10 {
        let text = format!("{index:043}");
        zones.records().add(CHALLENGE, &text).unwrap();
    }
    let request = query(CHALLENGE, RecordType::TXT).to_vec().unwrap();
    let over_udp = zones.respond(&request, Transport::Udp).unwrap();
    assert_eq!(over_udp.result, QueryResult::Truncated);
    assert_eq!(over_udp.bytes.len(), request.len());
    let parsed = Message::from_vec(&over_udp.bytes).unwrap();
    assert!(parsed.metadata.truncation && parsed.answers.is_empty());
    let over_tcp = zones.respond(&request, Transport::Tcp).unwrap();
    assert_eq!(
        texts(&Message::from_vec(&over_tcp.bytes).unwrap()).len(),
        10
    );
}

/// A name and its wildcard are validated with two records of one name.
#[test]
fn two_challenges_fit_into_a_datagram() {
    let zones = zones();
    for text in ["x", "y"] {
        zones.records().add(CHALLENGE, &text.repeat(43)).unwrap();
    }
    let (message, _) = ask(&zones, &query(CHALLENGE, RecordType::TXT));
    assert_eq!(texts(&message).len(), 2);
}

proptest! {
    #[test]
    fn any_bytes_have_a_bounded_response(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        check_response(&bytes);
    }

    /// Mostly valid queries, with changes.
    #[test]
    fn changed_queries_have_a_bounded_response(
        label in "[a-zA-Z0-9_]{1,20}",
        suffix in 0_usize..4,
        kind in any::<u16>(),
        change in proptest::option::of((0_usize..80, any::<u8>())),
        has_extension in any::<bool>(),
    ) {
        let suffix = [CHALLENGE, "acme.example.net", "t.h.example", "example.org"][suffix];
        let mut message = query(&format!("{label}.{suffix}"), RecordType::from(kind));
        if has_extension {
            message.set_edns(Edns::new());
        }
        let mut bytes = message.to_vec().unwrap();
        if let Some((at, value)) = change
            && let Some(byte) = bytes.get_mut(at)
        {
            *byte = value;
        }
        check_response(&bytes);
    }
}

fn check_response(request: &[u8]) {
    let zones = zones();
    zones.records().add(CHALLENGE, &"x".repeat(43)).unwrap();
    for transport in [Transport::Udp, Transport::Tcp] {
        let Some(response) = zones.respond(request, transport) else {
            assert!(request.len() < 12 || request[2] & 0x80 != 0);
            continue;
        };
        assert!(response.bytes.len() <= request.len() * MAX_FACTOR);
        assert_eq!(response.bytes[..2], request[..2], "the id");
        assert_eq!(response.bytes[2] & 0x80, 0x80, "a response");
        let parsed = Message::from_vec(&response.bytes).unwrap();
        let has_question = !matches!(
            response.result,
            QueryResult::Malformed | QueryResult::NotImplemented
        );
        let requested = parsed.queries.first().map(|query| &query.name);
        assert_eq!(requested.is_some(), has_question);
        let is_named = |name: &Name| zones.find(name).is_some();
        let is_known = matches!(
            response.result,
            QueryResult::Answer | QueryResult::NoData | QueryResult::NoName
        );
        assert!(!is_known || requested.is_some_and(is_named));
    }
}
