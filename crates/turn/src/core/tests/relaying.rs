//! Relaying of data, and the end of allocations.

use super::*;

#[test]
fn a_binding_response_contains_the_source_address() {
    let mut relay = Relay::new();
    for client in [udp_client(), at("[2001:db8::9]:5000")] {
        let bytes = message(BINDING, 5.into(), &[]);
        let PacketResult::Answer(answer) = relay.give(client, &bytes) else {
            panic!("an answer");
        };
        let answer = Message::from_bytes(&answer).unwrap();
        let mapped: XorMappedAddress = answer.attribute().unwrap();
        assert_eq!(mapped.addr(5.into()), client.address);
        assert!(!answer.has_attribute(Fingerprint::TYPE));
    }
    let kind = MessageType::from_class_method(MessageClass::Request, BINDING);
    let mut out = Message::builder(kind, 5.into(), MessageWriteVec::new());
    out.add_fingerprint().unwrap();
    let PacketResult::Answer(answer) = relay.give(udp_client(), &out.finish()) else {
        panic!("an answer");
    };
    assert!(
        Message::from_bytes(&answer)
            .unwrap()
            .has_attribute(Fingerprint::TYPE)
    );
}

#[test]
fn an_allocation_relays_both_ways() {
    let mut relay = Relay::new();
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    let (code, answer) = caller.ask(&mut relay, ALLOCATE, &[&RequestedTransport::new(17)]);
    assert_eq!(code, 0);
    let relay_address = relayed(&answer)[0];
    let message = Message::from_bytes(&answer).unwrap();
    let mapped: XorMappedAddress = message.attribute().unwrap();
    assert_eq!(mapped.addr(message.transaction_id()), udp_client().address);
    assert_eq!(message.attribute::<Lifetime>().unwrap().seconds(), 600);
    let id = relay.last_open.as_ref().unwrap().id;

    let peer: SocketAddr = "1.1.1.1:9".parse().unwrap();
    assert_eq!(
        caller.send(&mut relay, "1.1.1.1:9", b"x"),
        PacketResult::Nothing,
        "no permission"
    );
    assert_eq!(
        relay.core.on_peer_datagram(relay.now, id, peer, 1),
        None,
        "no permission"
    );
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let sent = caller.send(&mut relay, "1.1.1.1:9", b"hello");
    assert_eq!(
        sent,
        PacketResult::Peer(relay_address, peer, b"hello".to_vec())
    );
    // A permission is valid for every port of the address, and for no other address.
    assert!(matches!(
        caller.send(&mut relay, "1.1.1.1:10", b"x"),
        PacketResult::Peer(..)
    ));
    assert_eq!(
        caller.send(&mut relay, "1.1.1.2:9", b"x"),
        PacketResult::Nothing
    );
    let (client, wrap) = relay.core.on_peer_datagram(relay.now, id, peer, 5).unwrap();
    assert_eq!(client, udp_client());
    assert!(matches!(wrap, DataHeader::Indication { peer: from, .. } if from == peer));

    assert_eq!(caller.bind(&mut relay, 0x4001, "1.1.1.1:9"), 0);
    let data = [&[0x40, 1, 0, 5][..], b"hello"].concat();
    let sent = PacketResult::Peer(relay_address, peer, b"hello".to_vec());
    assert_eq!(relay.give(udp_client(), &data), sent);
    assert_eq!(
        relay.give(udp_client(), &[0x40, 2, 0, 0]),
        PacketResult::Nothing,
        "unbound"
    );
    assert_eq!(
        relay.give(at("192.0.2.9:5001"), &data),
        PacketResult::Nothing,
        "another client"
    );
    let wrap = relay
        .core
        .on_peer_datagram(relay.now, id, peer, 5)
        .unwrap()
        .1;
    assert_eq!(wrap, DataHeader::Channel(0x4001));
    // 1 for the unpermitted is not counted: 5, 1, 5 out by Send and channel, 5 + 5 in.
    assert_eq!(relay.authority.meter.take(), (1, 5 + 1 + 5 + 5 + 5));
}

#[test]
fn deadlines_are_exact() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    let id = relay.last_open.as_ref().unwrap().id;
    let peer: SocketAddr = "1.1.1.1:9".parse().unwrap();
    assert_eq!(caller.bind(&mut relay, 0x4000, "1.1.1.1:9"), 0);
    relay.advance(299);
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 1)
            .is_some()
    );
    relay.advance(1);
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 1)
            .is_none(),
        "permission: 300 s"
    );
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    relay.advance(299);
    assert_eq!(caller.refresh(&mut relay, 600), (0, 600));
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let wrap = |relay: &mut Relay| {
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 1)
            .unwrap()
            .1
    };
    assert_eq!(wrap(&mut relay), DataHeader::Channel(0x4000));
    relay.advance(1);
    assert!(
        matches!(wrap(&mut relay), DataHeader::Indication { .. }),
        "channel: 600 s"
    );
    relay.advance(597);
    assert_eq!(relay.core.len(), 1);
    relay.advance(1);
    assert_eq!(relay.core.len(), 1);
    relay.advance(1);
    assert!(relay.core.is_empty(), "allocation: 600 s after its refresh");
    caller.greet(&mut relay);
    assert_eq!(caller.refresh(&mut relay, 600).0, 437);
}

#[test]
fn requested_lifetimes_are_granted_within_bounds() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    for (requested, granted) in [(0x7fff_ffff, 3600), (1800, 1800), (601, 601), (1, 600)] {
        assert_eq!(
            caller.refresh(&mut relay, requested),
            (0, granted),
            "{requested}"
        );
    }
    assert_eq!(caller.refresh(&mut relay, 0), (0, 0));
    assert!(relay.core.is_empty());
    assert_eq!(relay.core.shared.quotas.taken(), 0);
    assert_eq!(
        caller.refresh(&mut relay, 0).0,
        437,
        "as RFC 8656 section 8.2 says"
    );
}

#[test]
fn without_a_port_there_is_no_allocation() {
    let mut relay = Relay::new();
    relay.ports = vec![Err(RelayError::Capacity)];
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    assert_eq!(caller.allocate(&mut relay), 508);
    assert_eq!(
        relay.core.shared.quotas.taken(),
        0,
        "the place is given back"
    );
    assert_eq!(caller.allocate(&mut relay), 0);
}

#[test]
fn a_repeated_request_gets_the_same_response_and_another_one_a_mismatch() {
    let mut relay = Relay::new();
    let mut caller = Caller::new(&mut relay, udp_client(), USER);
    let udp = RequestedTransport::new(17);
    let bytes = caller.signed(ALLOCATE, 99.into(), &[&udp]);
    let first = relay.give(udp_client(), &bytes);
    relay.advance(3);
    assert_eq!(
        relay.give(udp_client(), &bytes),
        first,
        "as if the answer was lost"
    );
    assert_eq!(relay.core.len(), 1);
    assert_eq!(caller.allocate(&mut relay), 437);
    let mut other = Caller::new(&mut relay, udp_client(), &USER.replace("usr_1", "usr_2"));
    assert_eq!(other.allocate(&mut relay), 437);
    assert_eq!(other.refresh(&mut relay, 600).0, 441);
    assert_eq!(other.permit(&mut relay, &["1.1.1.1:0"]), 441);
    assert_eq!(other.bind(&mut relay, 0x4000, "1.1.1.1:9"), 441);
    let mut nobody = Caller::new(&mut relay, at("192.0.2.9:7"), USER);
    assert_eq!(nobody.permit(&mut relay, &["1.1.1.1:0"]), 437);
    assert_eq!(nobody.bind(&mut relay, 0x4000, "1.1.1.1:9"), 437);
}

#[test]
fn special_peers_are_refused() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    for special in [
        "127.0.0.1:9",
        "10.0.0.1:9",
        "169.254.169.254:80",
        "224.0.0.1:9",
    ] {
        assert_eq!(caller.permit(&mut relay, &[special]), 403, "{special}");
        assert_eq!(
            caller.permit(&mut relay, &["1.1.1.1:0", special]),
            403,
            "{special}"
        );
        assert_eq!(caller.bind(&mut relay, 0x4000, special), 403, "{special}");
    }
    assert_eq!(
        caller.send(&mut relay, "1.1.1.1:9", b"x"),
        PacketResult::Nothing,
        "none of them was made"
    );
    // On the relay itself, other allocations are permitted, and nothing else.
    assert_eq!(caller.permit(&mut relay, &["198.41.0.4:0"]), 0);
    assert!(matches!(
        caller.send(&mut relay, "198.41.0.4:40000", b"x"),
        PacketResult::Peer(..)
    ));
    for own in ["198.41.0.4:22", "198.41.0.4:3478", "198.41.0.4:0"] {
        assert_eq!(
            caller.send(&mut relay, own, b"x"),
            PacketResult::Nothing,
            "{own}"
        );
        assert_eq!(caller.bind(&mut relay, 0x4000, own), 403, "{own}");
    }
}

#[test]
fn channels_and_permissions_have_rules_and_limits() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    for number in [0, 0x3fff, 0x7fff, 0x8000, 0xffff] {
        assert_eq!(
            caller.bind(&mut relay, number, "1.1.1.1:9"),
            400,
            "{number:#x}"
        );
    }
    assert_eq!(caller.bind(&mut relay, 0x4000, "[2606:4700::1]:9"), 443);
    assert_eq!(caller.permit(&mut relay, &["[2606:4700::1]:9"]), 443);
    assert_eq!(caller.permit(&mut relay, &[]), 400);
    assert_eq!(caller.ask(&mut relay, CHANNEL_BIND, &[]).0, 400);
    assert_eq!(caller.bind(&mut relay, 0x4000, "1.1.1.1:9"), 0);
    assert_eq!(caller.bind(&mut relay, 0x4000, "1.1.1.1:9"), 0, "again");
    assert_eq!(
        caller.bind(&mut relay, 0x4000, "1.1.1.1:10"),
        400,
        "number taken"
    );
    assert_eq!(
        caller.bind(&mut relay, 0x4001, "1.1.1.1:9"),
        400,
        "peer taken"
    );
    assert_eq!(caller.bind(&mut relay, 0x4001, "1.1.1.1:10"), 0);
    assert_eq!(caller.bind(&mut relay, 0x7ffe, "1.1.1.2:9"), 0);
    assert_eq!(
        caller.bind(&mut relay, 0x4003, "1.1.1.3:9"),
        508,
        "three channels"
    );
    assert_eq!(caller.permit(&mut relay, &["1.1.1.3:0", "1.1.1.4:0"]), 0);
    assert_eq!(
        caller.permit(&mut relay, &["1.1.1.4:0", "1.1.1.4:0"]),
        0,
        "again"
    );
    assert_eq!(
        caller.permit(&mut relay, &["1.1.1.5:0"]),
        508,
        "four permissions"
    );
    relay.advance(300);
    assert_eq!(
        caller.permit(&mut relay, &["1.1.1.5:0", "1.1.1.6:0"]),
        0,
        "the others ended"
    );
    assert_eq!(relay.core.allocations[0].kept(), (2, 3));
}

#[test]
fn quotas_apply() {
    let mut relay = Relay::with(Quota {
        whole: 3,
        per_project: 3,
        per_user: 2,
        per_source: 3,
    });
    let mut callers: Vec<_> = (0..5)
        .map(|index| {
            let user = if index < 3 { "usr_1" } else { "usr_2" };
            let client = at(&format!("192.0.2.{index}:5000"));
            Caller::new(&mut relay, client, &USER.replace("usr_1", user))
        })
        .collect();
    let codes: Vec<_> = callers
        .iter_mut()
        .map(|caller| caller.allocate(&mut relay))
        .collect();
    assert_eq!(codes, [0, 0, 486, 0, 486]);
    assert_eq!(callers[0].refresh(&mut relay, 0).0, 0);
    assert_eq!(callers[4].allocate(&mut relay), 0);
}

#[test]
fn a_request_has_a_limited_number_of_peers() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"; 64]), 0);
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"; 65]), 508);
}

/// A reserved port counts for the user that reserved it. The allocation that claims it takes over
/// its permit.
#[test]
fn a_reserved_port_counts_as_an_allocation_of_its_user() {
    for limited in 0..4 {
        let limit = |index| if index == limited { 2 } else { 9 };
        let mut relay = Relay::with(Quota {
            whole: limit(0),
            per_project: limit(1),
            per_user: limit(2),
            per_source: limit(3),
        });
        let udp = RequestedTransport::new(17);
        let (pair, token) = (EvenPort::new(true), ReservationToken::new(77));
        let mut callers: Vec<_> = (5000..5003)
            .map(|port| Caller::new(&mut relay, at(&format!("192.0.2.9:{port}")), USER))
            .collect();
        let [first, second, third] = callers.as_mut_slice() else {
            panic!("three");
        };
        assert_eq!(third.allocate(&mut relay), 0);
        let refused = first.ask(&mut relay, ALLOCATE, &[&udp, &pair]).0;
        assert_eq!(refused, 486, "one permit is left, and two are needed");
        assert_eq!(relay.core.shared.quotas.taken(), 1);
        assert_eq!(third.refresh(&mut relay, 0).0, 0);

        assert_eq!(first.ask(&mut relay, ALLOCATE, &[&udp, &pair]).0, 0);
        assert_eq!(third.allocate(&mut relay), 486);
        assert_eq!(second.ask(&mut relay, ALLOCATE, &[&udp, &token]).0, 0);
        assert_eq!(relay.core.shared.quotas.taken(), 2);
        let again = third.ask(&mut relay, ALLOCATE, &[&udp, &token]).0;
        assert_eq!(again, 508, "it is claimed");
        assert_eq!(second.refresh(&mut relay, 0).0, 0);
        assert_eq!(third.allocate(&mut relay), 0);
    }
}

/// An allocation ends when it would no longer be permitted (TU-3, TU-5).
#[test]
fn tu_5_allocations_that_are_no_longer_permitted_end() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    let mut other = Caller::new(
        &mut relay,
        at("192.0.2.9:7"),
        &USER.replace("usr_1", "usr_2"),
    );
    assert_eq!(other.allocate(&mut relay), 0);
    relay.core.review(relay.now);
    assert_eq!(relay.core.len(), 2);
    relay.authority.barred.lock().insert("usr_1".to_owned());
    assert_eq!(caller.refresh(&mut relay, 600).0, 403);
    relay.core.review(relay.now);
    assert_eq!(relay.core.len(), 1);
    assert_eq!(relay.core.take_counts().revoked, 1);
    assert_eq!(caller.allocate(&mut relay), 403);
    assert_eq!(other.refresh(&mut relay, 600).0, 0);
}

#[test]
fn a_drain_refuses_new_allocations_and_keeps_existing_ones() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    relay.core.drain();
    assert_eq!(caller.refresh(&mut relay, 600).0, 0);
    let mut late = Caller::new(&mut relay, at("192.0.2.9:7"), USER);
    assert_eq!(late.allocate(&mut relay), 508);
}

/// A drain does not keep allocations that are no longer permitted (TU-3, TU-5).
#[test]
fn tu_5_revoked_allocations_end_during_a_drain() {
    let mut relay = Relay::new();
    let mut caller = allocate_udp(&mut relay);
    relay.core.drain();
    relay.authority.barred.lock().insert("usr_1".to_owned());
    assert_eq!(caller.refresh(&mut relay, 600).0, 403);
    relay.core.review(relay.now);
    assert!(relay.core.is_empty());
}

#[test]
fn closing_a_connection_ends_its_allocation() {
    let mut relay = Relay::new();
    let client = Client {
        connection: 7,
        ..udp_client()
    };
    let mut caller = Caller::new(&mut relay, client, USER);
    assert_eq!(caller.allocate(&mut relay), 0);
    let id = relay.last_open.as_ref().unwrap().id;
    relay.core.client_gone(udp_client());
    assert_eq!(relay.core.len(), 1, "another client");
    relay.core.client_gone(client);
    assert!(relay.core.is_empty());
    // A later allocation in the same slot is not confused with the earlier one.
    assert_eq!(caller.allocate(&mut relay), 0);
    assert_eq!(caller.permit(&mut relay, &["1.1.1.1:0"]), 0);
    let peer = "1.1.1.1:9".parse().unwrap();
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 1)
            .is_none()
    );
    let id = relay.last_open.as_ref().unwrap().id;
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 1)
            .is_some()
    );
}

#[test]
fn datagrams_beyond_the_rate_are_dropped_and_not_counted_as_relayed() {
    let quota = Quota {
        whole: 9,
        per_project: 9,
        per_user: 9,
        per_source: 9,
    };
    let bandwidth = Bandwidth {
        per_allocation: Some(1000),
        ..Bandwidth::default()
    };
    let mut relay = Relay::limited(quota, bandwidth);
    let mut caller = allocate_udp(&mut relay);
    let (id, peer) = (
        relay.last_open.as_ref().unwrap().id,
        "1.1.1.1:9".parse().unwrap(),
    );
    assert_eq!(caller.bind(&mut relay, 0x4000, "1.1.1.1:9"), 0);
    relay.advance(10);
    relay.authority.meter.take();
    // The last admitted datagram may exceed the rate: 500 + 501 bytes. 500 + 1 + 9 are refused.
    let data = [&[0x40, 0, 1, 244][..], &[7; 500]].concat();
    assert!(matches!(
        relay.give(udp_client(), &data),
        PacketResult::Peer(..)
    ));
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 501)
            .is_some()
    );
    assert_eq!(relay.give(udp_client(), &data), PacketResult::Nothing);
    assert_eq!(
        caller.send(&mut relay, "1.1.1.1:9", b"x"),
        PacketResult::Nothing
    );
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 9)
            .is_none()
    );
    assert_eq!(relay.authority.meter.take(), (0, 1001));
    let counts = relay.core.take_counts();
    assert_eq!((counts.throttled, counts.dropped), (510, 0));
    relay.advance(1);
    assert!(
        relay
            .core
            .on_peer_datagram(relay.now, id, peer, 900)
            .is_some()
    );
}
