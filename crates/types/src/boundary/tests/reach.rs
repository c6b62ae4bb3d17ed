//! Coverage of a boundary: projects, actions, filters, paths, lists.

use super::*;

/// EN-7.
#[test]
fn en_7_absent_resources_do_not_restrict() {
    let none = Boundary::parse(None, false);
    assert!(!none.has_tunnel_resource() && none.may_list_all("p", None) && !none.needs_path());
    assert_eq!(connects(&none, "/"), Ok(()));
    let mut properties = TunnelProperties::default();
    none.create("p", None, &mut properties).unwrap();
    assert_eq!(properties, TunnelProperties::default());
}

/// ED-1c.
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

/// EN-7: closing a tunnel needs the action `create` with the filters that the tunnel matches.
#[test]
fn en_7_a_tunnel_is_closed_with_the_action_that_opens_it() {
    let closes = |boundary: &Boundary, name: &str| {
        let closed = boundary.close("p1", Some("w1"), &tunnel(name));
        closed.map_err(|refusal| refusal.outside)
    };
    let only =
        |actions: Value| boundary(json!({"projects": ["p1"], "scopes": {"tunnels": actions}}));
    assert_eq!(closes(&Boundary::none(), "web"), Ok(()));
    assert_eq!(
        closes(&boundary(json!({"projects": ["p1"]})), "web"),
        Ok(())
    );
    assert_eq!(closes(&only(json!({"create": true})), "web"), Ok(()));
    let named = only(json!({"create": {"filters": {"name": "web"}}}));
    assert_eq!(closes(&named, "web"), Ok(()));
    assert_eq!(closes(&named, "db"), Err(BoundaryRefusal::FilterMismatch));
    let others = only(json!({"list": true, "connect": true}));
    assert_eq!(closes(&others, "web"), Err(BoundaryRefusal::Action));
    let elsewhere = boundary(json!({"projects": ["p2"]}));
    assert_eq!(
        closes(&elsewhere, "web"),
        Err(BoundaryRefusal::ProjectOrWorkspace)
    );
    let nothing = Boundary::refuse_everything();
    assert_eq!(closes(&nothing, "web"), Err(BoundaryRefusal::Malformed));
}

/// EN-7.
#[test]
fn en_7_scopes_allow_the_named_actions() {
    let everything = boundary(json!({"projects": ["p1"]}));
    for action in [Action::Create, Action::Connect, Action::List] {
        assert!(everything.allows_somewhere(action));
    }
    let listing = boundary(
        json!({"projects": ["p1"], "scopes": {"tunnels": {"list": true, "create": false}}}),
    );
    assert!(listing.may_list("p1", None) && !listing.may_list("p2", None));
    assert_eq!(connects(&listing, "/"), Err(BoundaryRefusal::Action));
    let refused = listing
        .create("p1", None, &mut TunnelProperties::default())
        .unwrap_err();
    assert_eq!(
        refused,
        Refusal {
            outside: BoundaryRefusal::Action,
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

/// ED-1c.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_1c_filters_apply_to_every_kind_of_field() {
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
        assert_eq!(
            connects(&failing),
            Err(BoundaryRefusal::FilterMismatch),
            "{failing}"
        );
    }
}

/// ED-7.
#[test]
fn ed_7_conditions_on_the_path_are_checked() {
    let api = boundary(
        json!({"projects": ["p1"], "scopes": {"tunnels": {"connect": {"params": {"path": {"regex": "^/api"}}}}}}),
    );
    assert!(api.needs_path());
    assert_eq!(connects(&api, "/api/x"), Ok(()));
    assert_eq!(connects(&api, "/api/../admin"), Err(BoundaryRefusal::Path));
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

/// EN-7.
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

/// EN-5c.
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

#[test]
fn both_boundaries_of_an_intersection_apply() {
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
fn a_project_is_covered_whatever_is_allowed_there() {
    let everywhere = Boundary::none();
    assert!(everywhere.reaches("p1", None) && everywhere.reaches_workspace("w1"));
    let nowhere = Boundary::refuse_everything();
    assert!(!nowhere.reaches("p1", Some("w1")) && !nowhere.reaches_workspace("w1"));
    let projects = boundary(json!({"projects": ["p1"], "scopes": {"tunnels": {"list": true}}}));
    assert!(projects.reaches("p1", None) && !projects.reaches("p2", Some("w1")));
    assert!(!projects.reaches_workspace("w1"));
    let workspaces = boundary(json!({"workspaces": ["w1"]}));
    assert!(workspaces.reaches("p2", Some("w1")) && !workspaces.reaches("p2", Some("w2")));
    assert!(workspaces.reaches_workspace("w1") && !workspaces.reaches_workspace("w2"));
    let scopes = boundary(json!({"scopes": {"tunnels": {"list": true}}}));
    assert!(scopes.reaches("p2", None) && scopes.reaches_workspace("w2"));
    let either = boundary(json!({"OR": [{"projects": ["p1"]}, {"workspaces": ["w1"]}]}));
    assert!(either.reaches_workspace("w1") && !either.reaches_workspace("w2"));
}

/// A boundary for some tunnels or paths of a project does not permit other changes to it.
#[test]
fn a_boundary_is_of_projects_if_it_allows_a_whole_action() {
    let name = json!({"filters": {"name": "web"}});
    let scoped = |actions: Value| json!({"projects": ["p1"], "scopes": {"tunnels": actions}});
    let path = json!({"params": {"path": "/shell"}});
    for (tunnels, whole) in [
        (json!({"projects": ["p1"]}), true),
        (scoped(json!({"list": true})), true),
        (scoped(json!({"create": true, "connect": name})), true),
        (scoped(json!({"connect": name})), false),
        (scoped(json!({"connect": path})), false),
        (
            scoped(json!({"list": name, "create": name, "connect": name})),
            false,
        ),
        (
            json!({"AND": [{"projects": ["p1"]}, scoped(json!({"connect": name}))]}),
            false,
        ),
        (
            json!({"OR": [{"projects": ["p1"]}, scoped(json!({"connect": name}))]}),
            true,
        ),
    ] {
        assert_eq!(
            boundary(tunnels.clone()).is_of_projects(),
            whole,
            "{tunnels}"
        );
    }
    assert!(Boundary::none().is_of_projects());
    assert!(!Boundary::refuse_everything().is_of_projects());
}
