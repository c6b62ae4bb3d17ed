//! Valid boundaries, and shapes that refuse everything.

use proptest::prelude::*;

use super::*;

/// EN-7.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn en_7_a_wrong_shape_anywhere_refuses_everything() {
    let scopes =
        |tunnels: Value| json!({"tunnels": {"projects": ["p1"], "scopes": {"tunnels": tunnels}}});
    for (resources, field) in [
        (json!(null), "resources"),
        (json!([]), "resources"),
        (json!({}), "resources.tunnels"),
        (json!({"tunnels": null}), "resources.tunnels"),
        (json!({"tunnels": []}), "resources.tunnels"),
        (
            json!({"tunnels": [{"projects": ["p1"]}]}),
            "resources.tunnels",
        ),
        (json!({"tunnels": {}}), "resources.tunnels"),
        (
            json!({"tunnels": {"projects": ["p1"]}, "other": 1}),
            "resources.other",
        ),
        (
            json!({"tunnels": {"projects": []}}),
            "resources.tunnels.projects",
        ),
        (
            json!({"tunnels": {"projects": "p1"}}),
            "resources.tunnels.projects",
        ),
        (
            json!({"tunnels": {"projects": [1]}}),
            "resources.tunnels.projects.0",
        ),
        (
            json!({"tunnels": {"projects": [""]}}),
            "resources.tunnels.projects.0",
        ),
        (
            json!({"tunnels": {"projects": ["p1"], "workspaces": ["w1"]}}),
            "resources.tunnels",
        ),
        (
            json!({"tunnels": {"project": ["p1"]}}),
            "resources.tunnels.project",
        ),
        (json!({"tunnels": {"AND": []}}), "resources.tunnels.AND"),
        (json!({"tunnels": {"OR": {}}}), "resources.tunnels.OR"),
        (
            json!({"tunnels": {"and": [{"projects": ["p1"]}]}}),
            "resources.tunnels.and",
        ),
        (
            json!({"tunnels": {"AND": [{"projects": ["p1"]}], "projects": ["p1"]}}),
            "resources.tunnels.projects",
        ),
        (
            json!({"tunnels": {"AND": [{"projects": ["p1"]}], "OR": [{"projects": ["p1"]}]}}),
            "resources.tunnels.OR",
        ),
        (
            json!({"tunnels": {"OR": [{"projects": ["p1"]}, {"x": 1}]}}),
            "resources.tunnels.OR.1.x",
        ),
        (
            json!({"tunnels": {"scopes": {}}}),
            "resources.tunnels.scopes.tunnels",
        ),
        (
            json!({"tunnels": {"scopes": {"tunnels": {}}}}),
            "resources.tunnels.scopes.tunnels",
        ),
        (
            json!({"tunnels": {"scopes": {"webtty": {}}}}),
            "resources.tunnels.scopes.webtty",
        ),
        (
            scopes(json!({"delete": true})),
            "resources.tunnels.scopes.tunnels.delete",
        ),
        (
            scopes(json!({"list": null})),
            "resources.tunnels.scopes.tunnels.list",
        ),
        (
            scopes(json!({"list": "true"})),
            "resources.tunnels.scopes.tunnels.list",
        ),
        (
            scopes(json!({"list": {"params": {}}})),
            "resources.tunnels.scopes.tunnels.list.params",
        ),
        (
            scopes(json!({"list": {"select": {}}})),
            "resources.tunnels.scopes.tunnels.list.select",
        ),
        (
            scopes(json!({"list": {"select": {"name": false}}})),
            "resources.tunnels.scopes.tunnels.list.select.name",
        ),
        (
            scopes(json!({"list": {"select": {"nmae": true}}})),
            "resources.tunnels.scopes.tunnels.list.select.nmae",
        ),
        (
            scopes(json!({"list": {"select": ["name"]}})),
            "resources.tunnels.scopes.tunnels.list.select",
        ),
        (
            scopes(json!({"list": {"filters": []}})),
            "resources.tunnels.scopes.tunnels.list.filters",
        ),
        (
            scopes(json!({"list": {"filters": {"AND": []}}})),
            "resources.tunnels.scopes.tunnels.list.filters.AND",
        ),
    ] {
        assert_eq!(fault(&resources).field, field, "{resources}");
    }
}

/// EN-7.
#[test]
fn en_7_a_wrong_condition_refuses_everything() {
    for (filters, field) in [
        (json!({"nmae": "a"}), "nmae"),
        (json!({"name": 1}), "name"),
        (json!({"name": null}), "name"),
        (json!({"name": ["a"]}), "name"),
        (json!({"name": {}}), "name"),
        (json!({"name": {"exact": "a", "oneof": ["a"]}}), "name"),
        (json!({"name": {"prefix": "a"}}), "name"),
        (json!({"name": {"exact": 1}}), "name.exact"),
        (json!({"name": {"oneof": []}}), "name.oneof"),
        (json!({"name": {"oneof": [1]}}), "name.oneof.0"),
        (json!({"name": {"regex": ""}}), "name.regex"),
        (json!({"name": {"regex": "("}}), "name.regex"),
        (json!({"name": {"regex": 1}}), "name.regex"),
        (json!({"protocol": "smtp"}), "protocol"),
        (json!({"protocol": {"regex": ".*"}}), "protocol"),
        (json!({"publish": "true"}), "publish"),
        (json!({"publish": {"regex": "true"}}), "publish"),
        (json!({"publish": {"oneof": []}}), "publish.oneof"),
        (json!({"port": "80"}), "port"),
        (json!({"port": 80.0}), "port"),
        (json!({"port": 65_536}), "port"),
        (json!({"geo_ip": "DE"}), "geo_ip"),
        (json!({"geo_ip": ["DEU"]}), "geo_ip"),
        (json!({"trusted_ips": ["x"]}), "trusted_ips"),
        (json!({"labels": ["a"]}), "labels"),
        (json!({"labels": {"a": null}}), "labels.a"),
        (json!({"rstream_auth": true}), "rstream_auth"),
        (json!({"OR": [{"name": "a"}, {"nmae": "a"}]}), "OR.1.nmae"),
    ] {
        let resources =
            json!({"tunnels": {"scopes": {"tunnels": {"connect": {"filters": filters}}}}});
        let expected = format!("resources.tunnels.scopes.tunnels.connect.filters.{field}");
        assert_eq!(fault(&resources).field, expected, "{resources}");
    }
    for field in [
        "id",
        "client_id",
        "user_id",
        "project_id",
        "status",
        "creation_date",
        "host",
        "region",
    ] {
        let resources =
            json!({"tunnels": {"scopes": {"tunnels": {"create": {"filters": {field: "online"}}}}}});
        assert_eq!(
            fault(&resources).message,
            "unknown field",
            "{field} is not the client's to set"
        );
    }
}

/// ED-7.
#[test]
fn ed_7_an_unusable_path_pattern_refuses_everything() {
    for path in [
        json!({"regex": ""}),
        json!({"regex": "(?=a)"}),
        json!({"regex": "a".repeat(1025)}),
        json!(null),
    ] {
        let resources =
            json!({"tunnels": {"scopes": {"tunnels": {"connect": {"params": {"path": path}}}}}});
        assert!(
            fault(&resources)
                .field
                .starts_with("resources.tunnels.scopes.tunnels.connect.params.path")
        );
    }
    for params in [
        json!({}),
        json!({"path": "/", "query": "x"}),
        json!({"OR": []}),
    ] {
        fault(&json!({"tunnels": {"scopes": {"tunnels": {"connect": {"params": params}}}}}));
    }
    let many: Vec<Value> = (0..=MAX_PATTERNS)
        .map(|n| json!({"path": {"regex": format!("/{n}")}}))
        .collect();
    let resources = |patterns: &[Value]| json!({"tunnels": {"scopes": {"tunnels": {"connect": {"params": {"OR": patterns}}}}}});
    assert!(fault(&resources(&many)).message.contains("16 patterns"));
    assert!(Boundary::check(&resources(&many[1..]), false).is_ok());
}

/// EN-7.
#[test]
fn en_7_depth_is_bounded() {
    let nested = |levels: usize| {
        let mut tree = json!({"projects": ["p1"]});
        for _ in 0..levels {
            tree = json!({"AND": [tree]});
        }
        json!({ "tunnels": tree })
    };
    assert!(Boundary::check(&nested(31), false).is_ok());
    assert_eq!(fault(&nested(32)).message, "nested too deeply");
}

#[test]
fn the_other_spelling_needs_compat() {
    let resources = json!({"tunnels": {"scopes": {"tunnels": {
        "create": {"filters": {"rstream_auth": true}}, "list": {"select": {"rstream_auth": true}},
    }}}});
    let boundary = Boundary::parse(Some(&resources), true);
    let mut properties = TunnelProperties::default();
    boundary.create("p1", None, &mut properties).unwrap();
    assert_eq!(properties.svc_auth, Some(true));
    assert!(matches!(
        Boundary::parse(Some(&resources), false).0,
        BoundaryExpression::Nowhere
    ));
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("tunnels"),
        Just("scopes"),
        Just("projects"),
        Just("list"),
        Just("connect"),
        Just("create"),
        Just("filters"),
        Just("params"),
        Just("path"),
        Just("regex"),
        Just("AND"),
        Just("OR"),
        Just("name"),
    ];
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!(null)),
        Just(json!(1)),
        word.clone().prop_map(Value::from)
    ];
    leaf.prop_recursive(6, 32, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..3).prop_map(|members| members
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    /// EN-7.
    #[test]
    fn en_7_unusable_boundaries_allow_nothing(resources in any_json()) {
        let boundary = Boundary::parse(Some(&resources), false);
        if Boundary::check(&resources, false).is_err() {
            prop_assert!(!boundary.may_list("p1", None));
            prop_assert!(!connects_at(&boundary, "p1", None));
            prop_assert!(boundary.create("p1", None, &mut TunnelProperties::default()).is_err());
        }
    }
}
