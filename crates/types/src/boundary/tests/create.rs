//! Properties that a boundary sets or refuses in a new tunnel.

use proptest::prelude::*;

use super::*;
use crate::tunnel::{PropertyError, Protocol};

fn create(filters: Value, mut properties: TunnelProperties) -> Result<TunnelProperties, Refusal> {
    let boundary = boundary(
        json!({"projects": ["p1"], "scopes": {"tunnels": {"create": {"filters": filters}}}}),
    );
    let before = properties.clone();
    let outcome = boundary.create("p1", None, &mut properties);
    assert!(
        outcome.is_ok() || properties == before,
        "a refusal changes nothing"
    );
    outcome.map(|()| properties)
}

fn contradicts(field: &str) -> Refusal {
    Refusal {
        outside: BoundaryRefusal::FilterMismatch,
        field: Some(field.to_owned()),
    }
}

/// EN-7.
#[test]
fn en_7_create_filters_fill_in_open_properties() {
    let filters = json!({
        "name": "web", "protocol": {"exact": "http"}, "publish": {"oneof": [true]}, "token_auth": true,
        "labels": {"team": "a"}, "trusted_ips": ["192.0.2.0/24"], "geo_ip": ["de"], "hostname": "Web",
        "tls_min_version": "tls1.3", "http_use_tls": true,
    });
    let forced = create(filters, TunnelProperties::default()).unwrap();
    assert_eq!(
        serde_json::to_value(&forced).unwrap(),
        json!({
            "name": "web", "protocol": "http", "publish": true, "token_auth": true, "labels": {"team": "a"},
            "trusted_ips": ["192.0.2.0/24"], "geo_ip": ["DE"], "hostname": "web", "tls_min_version": "tls1.3",
            "upstream_tls": true,
        })
    );
    let tcp = create(
        json!({"port": 4000, "protocol": "tcp"}),
        TunnelProperties::default(),
    )
    .unwrap();
    assert_eq!((tcp.port, tcp.protocol), (Some(4000), Some(Protocol::Tcp)));
}

/// EN-7.
#[test]
fn en_7_create_refuses_contradicting_properties() {
    let with = |set: fn(&mut TunnelProperties)| {
        let mut properties = TunnelProperties::default();
        set(&mut properties);
        properties
    };
    for (filters, properties, field) in [
        (
            json!({"name": "web"}),
            with(|p| p.name = Some("db".parse().unwrap())),
            "name",
        ),
        (
            json!({"publish": false}),
            with(|p| p.publish = Some(true)),
            "publish",
        ),
        (
            json!({"token_auth": true}),
            with(|p| p.token_auth = Some(false)),
            "token_auth",
        ),
        (
            json!({"protocol": {"oneof": ["tls", "tcp"]}}),
            TunnelProperties::default(),
            "protocol",
        ),
        (
            json!({"name": {"regex": ".*"}}),
            TunnelProperties::default(),
            "name",
        ),
        (
            json!({"labels": {"team": "a"}}),
            with(|p| drop(p.labels.insert("team".into(), "b".into()))),
            "labels",
        ),
        (
            json!({"labels": {"team": {"regex": "a"}}}),
            TunnelProperties::default(),
            "labels",
        ),
        (
            json!({"trusted_ips": ["192.0.2.0/24"]}),
            with(|p| p.trusted_ips = vec!["::/0".parse().unwrap()]),
            "trusted_ips",
        ),
        (
            json!({"upstream_tls": false}),
            with(|p| p.http_use_tls = Some(true)),
            "upstream_tls",
        ),
        (
            json!({"name": "not a name"}),
            TunnelProperties::default(),
            "name",
        ),
        (
            json!({"AND": [{"name": "a"}, {"name": "b"}]}),
            TunnelProperties::default(),
            "name",
        ),
    ] {
        assert_eq!(
            create(filters.clone(), properties),
            Err(contradicts(field)),
            "{filters}"
        );
    }
    // Matching values of the client stay, and defaults count for fields that are not fixed.
    let agreed = with(|p| p.name = Some("web-1".parse().unwrap()));
    assert_eq!(
        create(
            json!({"name": {"regex": "web-.*"}, "protocol": {"oneof": ["http", "tls"]}}),
            agreed.clone()
        ),
        Ok(agreed)
    );
}

/// EN-7.
#[test]
fn en_7_forced_values_under_or_need_one_branch() {
    let or = json!({"OR": [{"name": "a", "protocol": "http"}, {"name": "b", "protocol": "tls"}]});
    let named = |name: &str| TunnelProperties {
        name: Some(name.parse().unwrap()),
        ..TunnelProperties::default()
    };
    assert_eq!(
        create(or.clone(), named("b")).unwrap().protocol,
        Some(Protocol::Tls)
    );
    let ambiguous = create(or.clone(), TunnelProperties::default()).unwrap_err();
    assert_eq!(
        ambiguous,
        Refusal {
            outside: BoundaryRefusal::FilterMismatch,
            field: None
        }
    );
    assert_eq!(create(or.clone(), named("c")), Err(contradicts("name")));
    // A branch that needs no value set is chosen.
    let tls_b = TunnelProperties {
        protocol: Some(Protocol::Tls),
        ..named("b")
    };
    let wide = json!({"OR": [{"name": "b", "token_auth": true}, {"name": "b", "protocol": "tls"}]});
    assert_eq!(create(wide, tls_b.clone()), Ok(tls_b));
    // Values that AND fixes choose the branch of OR, wherever it is.
    let chosen = create(
        json!({"AND": [or, {"name": "a"}]}),
        TunnelProperties::default(),
    )
    .unwrap();
    assert_eq!(chosen.protocol, Some(Protocol::Http));
    // The same over leaves of the boundary.
    let leaf = |project: &str, name: &str| json!({"projects": [project], "scopes": {"tunnels": {"create": {"filters": {"name": name}}}}});
    let leaves = boundary(json!({"OR": [leaf("p1", "a"), leaf("p2", "b")]}));
    let mut properties = TunnelProperties::default();
    leaves.create("p2", None, &mut properties).unwrap();
    assert_eq!(properties.name.unwrap().as_str(), "b");
}

fn any_filters() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop_oneof![Just("web"), Just("db")].prop_map(|name| json!({"name": name})),
        any::<bool>().prop_map(|flag| json!({"publish": flag})),
        any::<bool>().prop_map(|flag| json!({"token_auth": {"exact": flag}})),
        Just(json!({"protocol": {"oneof": ["http", "tls"]}})),
        Just(json!({"labels": {"team": "a"}})),
        Just(json!({"name": {"regex": "w.*"}})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        (any::<bool>(), prop::collection::vec(inner, 1..4)).prop_map(|(all, branches)| {
            if all {
                json!({"AND": branches})
            } else {
                json!({"OR": branches})
            }
        })
    })
}

proptest! {
    /// EN-7. The filters of a boundary also allow connections to every tunnel that the boundary
    /// lets a client create: no filled-in value and no default escapes them.
    #[test]
    fn en_7_created_tunnels_satisfy_the_create_filters(filters in any_filters(), name in prop::option::of("web|db|x")) {
        let properties = TunnelProperties {
            name: name.map(|name| name.parse().unwrap()),
            ..TunnelProperties::default()
        };
        if let Ok(created) = create(filters.clone(), properties) {
            let resolved: Result<TunnelProperties, PropertyError> = created.resolve();
            if let Ok(resolved) = resolved {
                let tunnel = Tunnel::online(TunnelId::new(1, [1; 10]), ClientId::new(1, [1; 10]), resolved);
                let same = boundary(json!({"scopes": {"tunnels": {"connect": {"filters": filters}}}}));
                prop_assert_eq!(same.connect("p1", None, &tunnel, None), Ok(()));
            }
        }
    }
}
