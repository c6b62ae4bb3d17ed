//! Valid and malformed requests.

use super::*;

#[test]
fn unknown_attributes_are_listed() {
    let mut relay = Relay::new();
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    let strange = RawAttribute::new(AttributeType::new(0x7001), &[1, 2, 3]);
    let optional = RawAttribute::new(AttributeType::new(0xf001), &[1, 2, 3]);
    let hash = Userhash::new([1; 32]);
    let transport = RequestedTransport::new(17);
    let with: [&dyn AttributeWrite; 4] = [&transport, &strange, &optional, &hash];
    let (code, answer) = caller.ask(&mut relay, ALLOCATE, &with);
    assert_eq!(code, 420);
    let answer = Message::from_bytes(&answer).unwrap();
    let unknown: UnknownAttributes = answer.attribute().unwrap();
    assert!(unknown.has_attribute(AttributeType::new(0x7001)));
    assert!(unknown.has_attribute(Userhash::TYPE));
    assert!(!unknown.has_attribute(AttributeType::new(0xf001)));
    let (code, answer) = caller.ask(&mut relay, ALLOCATE, &[&transport, &DontFragment::new()]);
    assert_eq!(code, 420, "sockets here send as the system does");
    let answer = Message::from_bytes(&answer).unwrap();
    let unknown: UnknownAttributes = answer.attribute().unwrap();
    assert!(unknown.has_attribute(DontFragment::TYPE));
    assert_eq!(
        caller.ask(&mut relay, ALLOCATE, &[&transport, &optional]).0,
        0
    );
}

#[test]
fn allocation_parameters_are_validated() {
    use stun_types::AddressFamily::{IPV4, IPV6};
    let mut relay = Relay::new();
    let udp = RequestedTransport::new(17);
    let (v4, v6) = (
        RequestedAddressFamily::new(IPV4),
        RequestedAddressFamily::new(IPV6),
    );
    let more = AdditionalAddressFamily::new(IPV6);
    let (even, pair) = (EvenPort::new(false), EvenPort::new(true));
    let token = ReservationToken::new(77);
    let odd = RawAttribute::new(RequestedAddressFamily::TYPE, &[3, 0, 0, 0]);
    let short = RawAttribute::new(RequestedAddressFamily::TYPE, &[1]);
    let four = RawAttribute::new(AdditionalAddressFamily::TYPE, &[1, 0, 0, 0]);
    let bad_lifetime = RawAttribute::new(Lifetime::TYPE, &[1]);
    let table: [(&[&dyn AttributeWrite], u16); 16] = [
        (&[], 400),
        (&[&RequestedTransport::new(6)], 400),
        (&[&RequestedTransport::new(1)], 442),
        (&[&udp, &v4, &more], 400),
        (&[&udp, &four], 400),
        (&[&udp, &odd], 440),
        (&[&udp, &short], 400),
        (&[&udp, &bad_lifetime], 400),
        (&[&udp, &token, &even], 400),
        (&[&udp, &token, &v4], 400),
        (&[&udp, &token, &more], 400),
        (&[&udp, &pair, &more], 400),
        (&[&udp, &v6], 0),
        (&[&udp, &more], 0),
        (&[&udp, &pair], 0),
        (&[&udp, &token], 0),
    ];
    for (index, (with, expected)) in table.into_iter().enumerate() {
        let client = at(&format!("192.0.2.9:{}", 6000 + index));
        let mut caller = Caller::new(&mut relay, client, USER);
        let (code, answer) = caller.ask(&mut relay, ALLOCATE, with);
        assert_eq!(code, expected, "row {index}");
        let requested = relay.last_open.take();
        assert_eq!(requested.is_some(), code == 0);
        let Some(requested) = requested else { continue };
        let read = Message::from_bytes(&answer).unwrap();
        match index {
            12 => assert!(relayed(&answer)[0].is_ipv6() && relayed(&answer).len() == 1),
            13 => assert!(relayed(&answer)[0].is_ipv4() && relayed(&answer)[1].is_ipv6()),
            14 => {
                assert!(requested.needs_even_port && relay.kept.is_some());
                assert_eq!(read.attribute::<ReservationToken>().unwrap().token(), 77);
            }
            _ => assert_eq!(requested.token, Some(77)),
        }
    }
    relay.has_v6 = false;
    let mut caller = Caller::new(
        &mut relay,
        udp_client(),
        USER.replace("usr_1", "usr_9").as_str(),
    );
    let (code, answer) = caller.ask(&mut relay, ALLOCATE, &[&udp, &more]);
    let read = Message::from_bytes(&answer).unwrap();
    let missing: AddressErrorCode = read.attribute().unwrap();
    assert_eq!((code, missing.error().code()), (0, 440));
    assert_eq!(caller.permit(&mut relay, &["[2606:4700::1]:0"]), 443);
}

/// Malformed, truncated and oversized packets get no response and leave no state.
#[test]
fn malformed_packets_are_dropped() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    let good = caller.signed(REFRESH, 9.into(), &[&Lifetime::new(600)]);
    for end in 0..good.len() {
        assert_eq!(
            relay.give(udp_client(), &good[..end]),
            PacketResult::Nothing,
            "cut at {end}"
        );
    }
    let longer = [&good[..], &[0; 4]].concat();
    assert_eq!(
        relay.give(udp_client(), &longer),
        PacketResult::Nothing,
        "something behind it"
    );
    let filler = RawAttribute::new_owned(AttributeType::new(0xf000), vec![0; 5000].into());
    let large = caller.signed(REFRESH, 9.into(), &[&filler]);
    assert_eq!(
        relay.give(udp_client(), &large),
        PacketResult::Nothing,
        "too large"
    );
    let mut response = good.clone();
    response[0] = 1;
    assert_eq!(
        relay.give(udp_client(), &response),
        PacketResult::Nothing,
        "a response"
    );
    let mut cookie = good.clone();
    cookie[4] = 0;
    assert_eq!(
        relay.give(udp_client(), &cookie),
        PacketResult::Nothing,
        "RFC 3489"
    );
    let unknown = caller.signed(Method::new(0x00f), 9.into(), &[]);
    assert_eq!(
        relay.give(udp_client(), &unknown),
        PacketResult::Nothing,
        "a method that there is not"
    );
    assert_eq!(relay.give(udp_client(), &[]), PacketResult::Nothing);
    assert_eq!(
        relay.give(udp_client(), &[0xff; 100]),
        PacketResult::Nothing
    );

    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let peer = XorPeerAddress::new("1.1.1.1:9".parse().unwrap(), 9.into());
    let strange = RawAttribute::new(AttributeType::new(0x7001), &[]);
    let cut = RawAttribute::new(XorPeerAddress::TYPE, &[0, 1, 0]);
    let data = Data::new(b"x");
    let bad: [&[&dyn AttributeWrite]; 5] = [
        &[&data],
        &[&peer],
        &[&peer, &data, &strange],
        &[&peer, &data, &DontFragment::new()],
        &[&cut, &data],
    ];
    for with in bad {
        assert_eq!(
            relay.give(udp_client(), &indication(9.into(), with)),
            PacketResult::Nothing
        );
    }
    let good = indication(9.into(), &[&peer, &data]);
    assert!(matches!(
        relay.give(udp_client(), &good),
        PacketResult::Peer(..)
    ));
    assert_eq!(
        relay.give(at("192.0.2.9:1"), &good),
        PacketResult::Nothing,
        "of no allocation"
    );
}
