//! Every position of a boundary and of `params` with every wrong kind of value. A boundary with any
//! wrong value allows nothing, and `params` with one are refused by name.

use serde_json::{Value, json};
use types::boundary::{Boundary, ListScope};
use types::filter::{ListClientsParams, ListTunnelsParams, WatchParams};
use types::id::{ClientId, TunnelId};
use types::path::NormalPath;
use types::tunnel::{Tunnel, TunnelProperties};

/// The values for each position.
fn values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(65_536),
        json!(""),
        json!("x"),
        json!("\u{0}"),
        json!([]),
        json!(["x"]),
        json!([1]),
        json!([null]),
        json!([[]]),
        json!([{}]),
        json!({}),
        json!({"x": 1}),
        json!({"x": "y"}),
        json!({"exact": null}),
        json!({"oneof": []}),
        json!({"regex": "("}),
        json!({"AND": []}),
        json!({"OR": {}}),
    ]
}

/// EN-7, ED-7. A boundary with every member, and the kinds of values that each position allows.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn en_7_each_position_of_a_boundary_has_its_kind() {
    let boundary = json!({"tunnels": {
        "projects": ["p1"],
        "scopes": {"tunnels": {
            "create": {"filters": {"name": "a", "port": 80, "svc_auth": true}},
            "connect": {
                "filters": {
                    "publish": {"exact": true},
                    "labels": {"k": {"oneof": ["v"]}},
                    "protocol": {"exact": "http"},
                    "geo_ip": ["DE"],
                    "trusted_ips": ["10.0.0.0/8"],
                },
                "params": {"path": {"regex": "/api/.*"}},
            },
            "list": {
                "filters": {"OR": [{"name": {"exact": "a"}}, {"port": {"oneof": [80]}}]},
                "select": {"name": true},
            },
        }},
    }});
    let flag = || vec![json!(true), json!(false)];
    let text = || vec![json!(""), json!("x"), json!("\u{0}")];
    let port = || vec![json!(0), json!(1)];
    // Empty conditions match every tunnel.
    let object = || vec![json!({})];
    let rows: &[(&str, Vec<Value>)] = &[
        ("", vec![]),
        ("/tunnels", vec![]),
        ("/tunnels/projects", vec![json!(["x"])]),
        ("/tunnels/projects/0", vec![json!("x"), json!("\u{0}")]),
        ("/tunnels/scopes", vec![]),
        ("/tunnels/scopes/tunnels", vec![]),
        (
            "/tunnels/scopes/tunnels/create",
            [flag(), vec![json!({})]].concat(),
        ),
        ("/tunnels/scopes/tunnels/create/filters", object()),
        ("/tunnels/scopes/tunnels/create/filters/name", text()),
        ("/tunnels/scopes/tunnels/create/filters/port", port()),
        ("/tunnels/scopes/tunnels/create/filters/svc_auth", flag()),
        (
            "/tunnels/scopes/tunnels/connect",
            [flag(), vec![json!({})]].concat(),
        ),
        ("/tunnels/scopes/tunnels/connect/filters", object()),
        ("/tunnels/scopes/tunnels/connect/filters/publish", flag()),
        (
            "/tunnels/scopes/tunnels/connect/filters/publish/exact",
            flag(),
        ),
        (
            "/tunnels/scopes/tunnels/connect/filters/labels",
            [object(), vec![json!({"x": "y"}), json!({"regex": "("})]].concat(),
        ),
        ("/tunnels/scopes/tunnels/connect/filters/labels/k", text()),
        (
            "/tunnels/scopes/tunnels/connect/filters/labels/k/oneof",
            vec![json!(["x"])],
        ),
        (
            "/tunnels/scopes/tunnels/connect/filters/labels/k/oneof/0",
            text(),
        ),
        ("/tunnels/scopes/tunnels/connect/filters/protocol", vec![]),
        (
            "/tunnels/scopes/tunnels/connect/filters/protocol/exact",
            vec![],
        ),
        ("/tunnels/scopes/tunnels/connect/filters/geo_ip", vec![]),
        ("/tunnels/scopes/tunnels/connect/filters/geo_ip/0", vec![]),
        (
            "/tunnels/scopes/tunnels/connect/filters/trusted_ips",
            vec![],
        ),
        (
            "/tunnels/scopes/tunnels/connect/filters/trusted_ips/0",
            vec![],
        ),
        ("/tunnels/scopes/tunnels/connect/params", vec![]),
        ("/tunnels/scopes/tunnels/connect/params/path", text()),
        (
            "/tunnels/scopes/tunnels/connect/params/path/regex",
            vec![json!("x"), json!("\u{0}")],
        ),
        (
            "/tunnels/scopes/tunnels/list",
            [flag(), vec![json!({})]].concat(),
        ),
        ("/tunnels/scopes/tunnels/list/filters", object()),
        ("/tunnels/scopes/tunnels/list/filters/OR", vec![json!([{}])]),
        ("/tunnels/scopes/tunnels/list/filters/OR/0", object()),
        ("/tunnels/scopes/tunnels/list/filters/OR/0/name", text()),
        (
            "/tunnels/scopes/tunnels/list/filters/OR/0/name/exact",
            text(),
        ),
        (
            "/tunnels/scopes/tunnels/list/filters/OR/1/port/oneof",
            vec![json!([1])],
        ),
        (
            "/tunnels/scopes/tunnels/list/filters/OR/1/port/oneof/0",
            port(),
        ),
        ("/tunnels/scopes/tunnels/list/select", vec![]),
        (
            "/tunnels/scopes/tunnels/list/select/name",
            vec![json!(true)],
        ),
    ];
    assert!(Boundary::check(&boundary, false).is_ok());
    let mut wrong = Vec::new();
    for (place, good) in rows {
        for value in values() {
            let mut bent = boundary.clone();
            *bent.pointer_mut(place).unwrap() = value.clone();
            let is_good = Boundary::check(&bent, false).is_ok();
            if is_good != good.contains(&value) {
                wrong.push(format!("{place} = {value}: {is_good}"));
            }
            if !is_good {
                allows_nothing(&bent);
            }
        }
        // An unknown member next to the known ones.
        let mut bent = boundary.clone();
        if let Some(members) = bent.pointer_mut(place).unwrap().as_object_mut() {
            members.insert("unknown".to_owned(), json!(true));
            let is_label = place.ends_with("/labels");
            if Boundary::check(&bent, false).is_ok() != is_label && !is_label {
                wrong.push(format!("{place} with an unknown member"));
            }
            if !is_label {
                allows_nothing(&bent);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn allows_nothing(resources: &Value) {
    let boundary = Boundary::parse(Some(resources), false);
    let tunnel = Tunnel::online(
        TunnelId::new(1, [1; 10]),
        ClientId::new(1, [1; 10]),
        TunnelProperties::default(),
    );
    let path = NormalPath::parse("/api/x").unwrap();
    for project in ["p1", "x", "", "\0"] {
        let connects = boundary
            .connect(project, Some("x"), &tunnel, Some(&path))
            .is_ok();
        let creates = boundary
            .create(project, Some("x"), &mut TunnelProperties::default())
            .is_ok();
        let shows = boundary.list(project, Some("x"), &tunnel) != ListScope::Hidden;
        assert!(
            !connects && !creates && !shows,
            "{resources} allows something"
        );
    }
    assert!(
        boundary.has_tunnel_resource(),
        "it is a boundary that allows nothing"
    );
}

/// EN-2, EN-3. The same of `params`.
#[test]
fn en_2_each_position_of_params_has_its_kind() {
    type Read = fn(&str) -> Result<(), String>;
    let of_list: Read = |text| {
        let read = ListTunnelsParams::parse(text, false);
        read.map(drop).map_err(|error| error.field)
    };
    let of_clients: Read = |text| {
        let read = ListClientsParams::parse(text, false);
        read.map(drop).map_err(|error| error.field)
    };
    let of_watch: Read = |text| {
        let read = WatchParams::parse(text, false);
        read.map(drop).map_err(|error| error.field)
    };
    let text = || vec![json!(""), json!("x"), json!("\u{0}")];
    let flag = || vec![json!(true), json!(false)];
    let tunnels = json!({"limit": 5, "filters": {"name": "a", "publish": true, "protocol": "http", "labels": {"k": "v"}}});
    let clients = json!({"limit": 5, "filters": {"user_id": "u", "labels": {"k": null}}});
    let watch = json!({"webtty": true, "clients": {"user_id": "u"}, "tunnels": {"name": "a"}});
    let object = || vec![json!({})];
    let rows: Vec<(Read, &Value, &str, Vec<Value>)> = vec![
        (of_list, &tunnels, "", object()),
        (of_list, &tunnels, "/limit", vec![json!(1)]),
        (of_list, &tunnels, "/filters", object()),
        (of_list, &tunnels, "/filters/name", text()),
        (of_list, &tunnels, "/filters/publish", flag()),
        (of_list, &tunnels, "/filters/protocol", vec![]),
        (
            of_list,
            &tunnels,
            "/filters/labels",
            vec![
                json!({}),
                json!({"x": "y"}),
                json!({"exact": null}),
                json!({"regex": "("}),
            ],
        ),
        (
            of_list,
            &tunnels,
            "/filters/labels/k",
            [text(), vec![json!(null)]].concat(),
        ),
        (of_clients, &clients, "", object()),
        (of_clients, &clients, "/limit", vec![json!(1)]),
        (of_clients, &clients, "/filters", object()),
        (of_clients, &clients, "/filters/user_id", text()),
        (of_watch, &watch, "", object()),
        (of_watch, &watch, "/webtty", [flag(), object()].concat()),
        (of_watch, &watch, "/clients", object()),
        (of_watch, &watch, "/tunnels", object()),
        (of_watch, &watch, "/tunnels/name", text()),
    ];
    let mut wrong = Vec::new();
    for (read, whole, place, good) in rows {
        if let Err(field) = read(&whole.to_string()) {
            wrong.push(format!("{whole}: {field}"));
        }
        for value in values() {
            let mut bent = whole.clone();
            *bent.pointer_mut(place).unwrap() = value.clone();
            match (read(&bent.to_string()), good.contains(&value)) {
                (Ok(()), true) => {}
                (Ok(()), false) => wrong.push(format!("{place} = {value} is read")),
                (Err(field), true) => {
                    wrong.push(format!("{place} = {value} is refused at {field}"));
                }
                // The message names the position, or one below it.
                (Err(field), false) => {
                    let dotted = place.trim_start_matches('/').replace('/', ".");
                    if !(dotted.is_empty() || field.starts_with(&dotted)) {
                        wrong.push(format!("{place} = {value} is refused at {field}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
