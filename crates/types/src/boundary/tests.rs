#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` at the call reads better without `&`"
)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::id::{ClientId, TunnelId};
use crate::tunnel::{PropertyError, Protocol};

fn boundary(tunnels: Value) -> Boundary {
    let resources = json!({ "tunnels": tunnels });
    Boundary::check(&resources, false).unwrap();
    Boundary::parse(Some(&resources), false)
}

fn fault(resources: &Value) -> ParamError {
    let error = Boundary::check(resources, false).unwrap_err();
    let refusing = Boundary::parse(Some(resources), false);
    assert!(
        matches!(refusing.0, Reach::Nowhere),
        "{resources} fails closed"
    );
    error
}

fn tunnel(name: &str) -> Tunnel {
    let mut tunnel = Tunnel::online(
        TunnelId::new(1, [1; 10]),
        ClientId::new(1, [1; 10]),
        published(name),
    );
    tunnel.project_id = Some("p1".to_owned());
    tunnel.user_id = Some("u1".to_owned());
    tunnel
}

fn published(name: &str) -> TunnelProperties {
    TunnelProperties {
        name: Some(name.parse().unwrap()),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        ..TunnelProperties::default()
    }
    .resolve()
    .unwrap()
}

fn connects(boundary: &Boundary, path: &str) -> Result<(), Outside> {
    let path = NormalPath::parse(path).unwrap();
    boundary
        .connect("p1", Some("w1"), &tunnel("web"), Some(&path))
        .map_err(|refusal| refusal.outside)
}

fn connects_at(boundary: &Boundary, project: &str, workspace: Option<&str>) -> bool {
    boundary
        .connect(project, workspace, &tunnel("web"), None)
        .is_ok()
}

#[test]
fn en_7_absent_resources_are_no_boundary() {
    let none = Boundary::parse(None, false);
    assert!(!none.has_tunnel_resource() && none.may_list_all("p", None) && !none.needs_path());
    assert_eq!(connects(&none, "/"), Ok(()));
    let mut properties = TunnelProperties::default();
    none.create("p", None, &mut properties).unwrap();
    assert_eq!(properties, TunnelProperties::default());
}

#[test]
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
fn ed_1c_places_are_projects_or_workspaces() {
    let projects = boundary(json!({"projects": ["p0", "p1"]}));
    assert!(connects_at(&projects, "p1", None) && !connects_at(&projects, "p2", None));
    let workspaces = boundary(json!({"workspaces": ["w1"]}));
    assert!(
        connects_at(&workspaces, "p1", Some("w1")) && !connects_at(&workspaces, "p1", Some("w2"))
    );
    assert!(
        !connects_at(&workspaces, "p1", None),
        "an engine without a workspace is in none"
    );
    let both = boundary(json!({"AND": [{"projects": ["p1"]}, {"projects": ["p2"]}]}));
    assert!(!connects_at(&both, "p1", None) && !connects_at(&both, "p2", None));
    let either = boundary(json!({"OR": [{"projects": ["p1"]}, {"projects": ["p2"]}]}));
    assert!(
        connects_at(&either, "p1", None)
            && connects_at(&either, "p2", None)
            && !connects_at(&either, "p3", None)
    );
}

#[test]
fn en_7_scopes_allow_what_they_name() {
    let everything = boundary(json!({"projects": ["p1"]}));
    for action in [Action::Create, Action::Connect, Action::List] {
        assert!(everything.allows_somewhere(action));
    }
    let listing = boundary(
        json!({"projects": ["p1"], "scopes": {"tunnels": {"list": true, "create": false}}}),
    );
    assert!(listing.may_list("p1", None) && !listing.may_list("p2", None));
    assert_eq!(connects(&listing, "/"), Err(Outside::Action));
    let refused = listing
        .create("p1", None, &mut TunnelProperties::default())
        .unwrap_err();
    assert_eq!(
        refused,
        Refusal {
            outside: Outside::Action,
            field: None
        }
    );
    let restricted = boundary(json!({"AND": [
        {"projects": ["p1"]},
        {"scopes": {"tunnels": {"connect": {"filters": {"name": {"exact": "web"}, "status": "online"}}}}},
    ]}));
    assert_eq!(connects(&restricted, "/"), Ok(()));
    assert!(!restricted.may_list("p1", None));
}

#[test]
fn ed_1c_filters_judge_every_kind_of_field() {
    let mut tunnel = tunnel("web");
    tunnel.host = Some("web.t.example.com".to_owned());
    tunnel.creation_date = Some("2026-01-02T03:04:05Z".parse().unwrap());
    tunnel.properties.hostname = Some("web.t.example.com".parse().unwrap());
    tunnel.properties.trusted_ips = vec![
        "192.0.2.0/24".parse().unwrap(),
        "2001:db8::1".parse().unwrap(),
    ];
    tunnel.properties.port = Some(4000);
    let id = tunnel.id.as_str();
    for (holding, failing) in [
        (json!({"name": "web"}), json!({"name": "we"})),
        (
            json!({"name": {"oneof": ["a", "web"]}}),
            json!({"name": {"oneof": ["a", "b"]}}),
        ),
        (
            json!({"name": {"regex": "w.*"}}),
            json!({"name": {"regex": "e"}}),
        ),
        (
            json!({"name": {"regex": "^w"}}),
            json!({"name": {"regex": "^e"}}),
        ),
        (json!({"id": id}), json!({"id": "tun_x"})),
        (json!({"user_id": "u1"}), json!({"user_id": "u2"})),
        (json!({"project_id": "p1"}), json!({"workspace_id": "w1"})),
        (
            json!({"status": "online"}),
            json!({"status": {"exact": "offline"}}),
        ),
        (
            json!({"protocol": {"oneof": ["http", "tls"]}}),
            json!({"protocol": "tls"}),
        ),
        (json!({"type": "bytestream"}), json!({"type": "datagram"})),
        (
            json!({"publish": true}),
            json!({"publish": {"oneof": [false]}}),
        ),
        (json!({"token_auth": false}), json!({"token_auth": true})),
        (
            json!({"svc_auth": {"exact": false}}),
            json!({"svc_auth": {"exact": true}}),
        ),
        (
            json!({"hostname": "WEB.t.example.com"}),
            json!({"hostname": "t.example.com"}),
        ),
        (json!({"host": "web.t.example.com"}), json!({"host": "web"})),
        (
            json!({"creation_date": "2026-01-02T03:04:05.000Z"}),
            json!({"creation_date": "2026"}),
        ),
        (
            json!({"port": {"oneof": [4000, 4001]}}),
            json!({"port": 4001}),
        ),
        (
            json!({"trusted_ips": ["2001:DB8::1", "192.0.2.7/24"]}),
            json!({"trusted_ips": ["192.0.2.0/24"]}),
        ),
        (
            json!({"labels": {"team": {"regex": "[ab]"}}}),
            json!({"labels": {"team": "b"}}),
        ),
        (
            json!({"labels": {}}),
            json!({"labels": {"other": {"regex": ".*"}}}),
        ),
        (json!({}), json!({"name": "web", "publish": false})),
        (
            json!({"OR": [{"name": "x"}, {"publish": true}]}),
            json!({"AND": [{"name": "web"}, {"name": "x"}]}),
        ),
        (
            json!({"http_version": "http/1.1"}),
            json!({"http_version": "h2c"}),
        ),
    ] {
        let connects = |filters: &Value| {
            boundary(json!({"scopes": {"tunnels": {"connect": {"filters": filters}}}}))
                .connect("p1", None, &tunnel, None)
                .map_err(|refusal| refusal.outside)
        };
        assert_eq!(connects(&holding), Ok(()), "{holding}");
        assert_eq!(connects(&failing), Err(Outside::Filters), "{failing}");
    }
}

#[test]
fn ed_7_the_path_is_judged() {
    let api = boundary(
        json!({"projects": ["p1"], "scopes": {"tunnels": {"connect": {"params": {"path": {"regex": "^/api"}}}}}}),
    );
    assert!(api.needs_path());
    assert_eq!(connects(&api, "/api/x"), Ok(()));
    assert_eq!(connects(&api, "/api/../admin"), Err(Outside::Path));
    assert_eq!(connects(&api, "/%61pi"), Ok(()));
    assert!(!connects_at(&api, "p1", None), "no path meets no condition");
    let tree = boundary(json!({"scopes": {"tunnels": {"connect": {"params": {"OR": [
        {"path": "/health"},
        {"AND": [{"path": {"regex": "/files/.*"}}, {"path": {"oneof": ["/files/a", "/files/b", "/c"]}}]},
    ]}}}}}));
    for (path, expected) in [
        ("/health", true),
        ("/files/a", true),
        ("/files/c", false),
        ("/c", false),
        ("/health/x", false),
    ] {
        assert_eq!(connects(&tree, path).is_ok(), expected, "{path}");
    }
    assert!(!boundary(json!({"projects": ["p1"]})).needs_path());
}

#[test]
fn en_7_list_shows_and_selects() {
    let list = |tree: Value, name: &str| boundary(tree).list("p1", None, &tunnel(name));
    let rule = |name: &str, fields: &[&str]| {
        let select: serde_json::Map<String, Value> = fields
            .iter()
            .map(|field| ((*field).to_owned(), json!(true)))
            .collect();
        json!({"scopes": {"tunnels": {"list": {"filters": {"name": {"regex": name}}, "select": select}}}})
    };
    let shown = |fields: &[&str]| ListScope::Visible {
        select: Some(fields.iter().map(|f| (*f).to_owned()).collect()),
    };
    assert_eq!(
        list(rule("w.*", &["id", "name"]), "web"),
        shown(&["id", "name"])
    );
    assert_eq!(list(rule("w.*", &["id"]), "db"), ListScope::Hidden);
    assert_eq!(list(json!({"projects": ["p2"]}), "web"), ListScope::Hidden);
    let and = json!({"AND": [rule("w.*", &["id", "name"]), rule(".*b", &["name", "status"]), {"projects": ["p1"]}]});
    assert_eq!(list(and, "web"), shown(&["name"]));
    let or = json!({"OR": [rule("w.*", &["id"]), rule(".*b", &["name"])]});
    assert_eq!(list(or.clone(), "web"), shown(&["id", "name"]));
    assert_eq!(list(or, "db"), shown(&["name"]));
    let all = json!({"OR": [rule("w.*", &["id"]), {"scopes": {"tunnels": {"list": true}}}]});
    assert_eq!(
        list(all.clone(), "web"),
        ListScope::Visible { select: None }
    );
    assert!(boundary(all).may_list_all("p1", None));
    let narrow = boundary(rule("w.*", &["id"]));
    assert!(narrow.may_list("p1", None) && !narrow.may_list_all("p1", None));
    assert_eq!(
        shown(&["id"]).apply(json!({"id": "tun_1", "name": "web"})),
        Some(json!({"id": "tun_1"})),
        "what is not selected is not shown"
    );
    assert_eq!(ListScope::Hidden.apply(json!({})), None);
}

#[test]
fn en_5c_watch_only_shape() {
    let scopes = |tunnels: Value| json!({"scopes": {"tunnels": tunnels}});
    for (tree, expected) in [
        (scopes(json!({"list": true})), true),
        (
            scopes(json!({"list": {"filters": {"name": "web"}, "select": {"id": true}}})),
            true,
        ),
        (
            scopes(json!({"list": true, "create": false, "connect": false})),
            true,
        ),
        (scopes(json!({"list": true, "connect": true})), false),
        (
            scopes(json!({"list": true, "create": {"filters": {"name": "web"}}})),
            false,
        ),
        (scopes(json!({"list": false})), false),
        (scopes(json!({"connect": true})), false),
        (json!({"projects": ["p1"]}), false),
        (
            json!({"AND": [{"projects": ["p1"]}, scopes(json!({"list": true}))]}),
            true,
        ),
        (
            json!({"AND": [scopes(json!({"list": true, "connect": true})), scopes(json!({"list": true}))]}),
            true,
        ),
        (
            json!({"OR": [scopes(json!({"list": true})), scopes(json!({"connect": true}))]}),
            false,
        ),
        (
            json!({"OR": [{"projects": ["p1"]}, scopes(json!({"list": true}))]}),
            false,
        ),
    ] {
        assert_eq!(
            boundary(tree.clone()).watch_only_shape(),
            expected,
            "{tree}"
        );
    }
    assert!(!Boundary::none().watch_only_shape());
    assert!(!Boundary::refuse_everything().watch_only_shape());
}

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
        outside: Outside::Filters,
        field: Some(field.to_owned()),
    }
}

#[test]
fn en_7_create_filters_fill_in_what_is_left_open() {
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

#[test]
fn en_7_create_refuses_what_contradicts() {
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
    // What the client set in agreement stays, and defaults count where nothing is fixed.
    let agreed = with(|p| p.name = Some("web-1".parse().unwrap()));
    assert_eq!(
        create(
            json!({"name": {"regex": "web-.*"}, "protocol": {"oneof": ["http", "tls"]}}),
            agreed.clone()
        ),
        Ok(agreed)
    );
}

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
            outside: Outside::Filters,
            field: None
        }
    );
    assert_eq!(create(or.clone(), named("c")), Err(contradicts("name")));
    // A branch that needs nothing set decides alone.
    let tls_b = TunnelProperties {
        protocol: Some(Protocol::Tls),
        ..named("b")
    };
    let wide = json!({"OR": [{"name": "b", "token_auth": true}, {"name": "b", "protocol": "tls"}]});
    assert_eq!(create(wide, tls_b.clone()), Ok(tls_b));
    // What AND fixes chooses the branch of OR, wherever it stands.
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

#[test]
fn both_boundaries_hold() {
    let parent = boundary(json!({"projects": ["p1"]}));
    let child = boundary(json!({"OR": [{"projects": ["p1"]}, {"projects": ["p2"]}]}));
    let both = child.and(&parent);
    assert!(connects_at(&both, "p1", None) && !connects_at(&both, "p2", None));
    assert!(connects_at(&Boundary::none().and(&parent), "p1", None));
    assert!(!connects_at(&Boundary::none().and(&parent), "p2", None));
    assert!(!connects_at(
        &parent.and(&Boundary::refuse_everything()),
        "p1",
        None
    ));
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
        Reach::Nowhere
    ));
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
    /// What a boundary lets be created, the same filters let be connected to: nothing that was
    /// filled in, and no default, escapes them.
    #[test]
    fn en_7_what_create_allows_satisfies_its_filters(filters in any_filters(), name in prop::option::of("web|db|x")) {
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

    #[test]
    fn en_7_what_cannot_be_checked_allows_nothing(resources in any_json()) {
        let boundary = Boundary::parse(Some(&resources), false);
        if Boundary::check(&resources, false).is_err() {
            prop_assert!(!boundary.may_list("p1", None));
            prop_assert!(!connects_at(&boundary, "p1", None));
            prop_assert!(boundary.create("p1", None, &mut TunnelProperties::default()).is_err());
        }
    }
}
