//! No input causes a panic, or exceeds a limit.

use proptest::prelude::*;

use super::*;

/// An event at a relay.
#[derive(Clone, Debug)]
enum Event {
    /// A packet of a client, unchanged.
    Packet(u8, Vec<u8>),
    /// A signed request with these attributes, some of which are malformed.
    Request(u8, u8, Vec<(u16, Vec<u8>)>),
    /// A valid request.
    Allocate(u8),
    Refresh(u8, u32),
    Permit(u8, u8),
    Bind(u8, u16, u8),
    Peer(u8, usize),
    Pass(u16),
    Gone(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let value = prop::collection::vec(any::<u8>(), 0..24);
    // Existing attributes, and some that do not exist.
    let attributes = prop::collection::vec((0_u16..0x40, value), 0..6);
    let client = 0_u8..6;
    prop_oneof![
        (client.clone(), bytes).prop_map(|(client, bytes)| Event::Packet(client, bytes)),
        (client.clone(), 0_u8..16, attributes)
            .prop_map(|(client, method, with)| Event::Request(client, method, with)),
        client.clone().prop_map(Event::Allocate),
        (client.clone(), 0_u32..5000).prop_map(|(client, time)| Event::Refresh(client, time)),
        (client.clone(), 1_u8..12).prop_map(|(client, peer)| Event::Permit(client, peer)),
        (client.clone(), 0x3ffe_u16..0x4008, 1_u8..12)
            .prop_map(|(client, number, peer)| Event::Bind(client, number, peer)),
        (1_u8..12, 0_usize..70_000).prop_map(|(peer, length)| Event::Peer(peer, length)),
        (0_u16..400).prop_map(Event::Pass),
        client.prop_map(Event::Gone),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn limits_apply_to_any_input(events in prop::collection::vec(event(), 1..120)) {
        let quota = Quota { whole: 4, per_project: 4, per_user: 2, per_source: 4 };
        let mut relay = Relay::with(quota);
        let client = |index: u8| at(&format!("192.0.2.{}:5000", index % 6));
        let peer = |index: u8| format!("1.1.1.{index}:9");
        let mut callers: Vec<Caller> = (0..6_u8).map(|index| {
            let user = USER.replace("usr_1", &format!("usr_{}", index % 3));
            Caller::new(&mut relay, client(index), &user)
        }).collect();
        for event in events {
            match event {
                Event::Packet(index, bytes) => { relay.give(client(index), &bytes); }
                Event::Request(index, method, with) => {
                    let raw: Vec<_> = with.iter()
                        // Attributes of the signature are not added twice.
                        .filter(|(kind, _)| ![8, 0x1c].contains(kind))
                        .map(|(kind, value)| RawAttribute::new(AttributeType::new(*kind), value))
                        .collect();
                    let with: Vec<&dyn AttributeWrite> = raw.iter().map(|raw| raw as _).collect();
                    let caller = &callers[usize::from(index)];
                    let bytes = caller.signed(Method::new(method.into()), 5.into(), &with);
                    relay.give(client(index), &bytes);
                }
                Event::Allocate(index) => { callers[usize::from(index)].allocate(&mut relay); }
                Event::Refresh(index, time) => {
                    let caller = &mut callers[usize::from(index)];
                    caller.ask(&mut relay, REFRESH, &[&Lifetime::new(time)]);
                }
                Event::Permit(index, to) => {
                    callers[usize::from(index)].permit(&mut relay, &[&peer(to)]);
                }
                Event::Bind(index, number, to) => {
                    callers[usize::from(index)].bind(&mut relay, number, &peer(to));
                }
                Event::Peer(from, length) => {
                    if let Some(open) = &relay.last_open {
                        let (id, from) = (open.id, peer(from).parse().unwrap());
                        let mut buffer = vec![0; 72_000];
                        if let Some((to, wrap)) = relay.core.on_peer_datagram(relay.now, id, from, length) {
                            let whole = wrap.apply(&mut buffer, length, to.is_stream());
                            prop_assert_eq!(whole.is_some(), length <= 65_535);
                        }
                    }
                }
                Event::Pass(seconds) => {
                    relay.advance(seconds.into());
                }
                Event::Gone(index) => relay.core.client_gone(client(index)),
            }
            let core = &relay.core;
            prop_assert!(core.len() <= quota.whole);
            let kept = usize::from(relay.kept.is_some());
            prop_assert_eq!(core.shared.quotas.taken(), core.len() + kept);
            prop_assert_eq!(core.by_client.len(), core.len());
            prop_assert_eq!(core.ends.len(), core.len());
            for (_, allocation) in &core.allocations {
                let (permissions, channels) = allocation.kept();
                prop_assert!(permissions <= 4 && channels <= 3);
                prop_assert!(allocation.expires > relay.now.monotonic);
            }
        }
    }
}
