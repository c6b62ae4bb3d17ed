//! Permissions of tokens (WT-4, WT-6).

use serde_json::{Value, json};

use super::events::{until, watch};
use super::world::{A, MEMBER, World};

/// WT-4 for the whole table: every terminal operation with every single permission.
#[tokio::test]
async fn wt_4_each_operation_requires_its_permission() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let (_bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    let request = request["id"].as_str().unwrap();
    let base = format!("/api/webtty/sessions/{id}");
    let none = Value::Null;
    let ask = json!({"participant_id": participant});
    let refuse = json!({"action": "refuse"});
    let read = ["webtty.sessions.read-only", "webtty.sessions.read-write"];
    let write = ["webtty.sessions.read-write"];
    // The order matters, because the last operations change the state.
    let table: [(&str, String, &Value, &[&str]); 10] = [
        ("GET", "/api/webtty/sessions".to_owned(), &none, &read),
        ("GET", "/api/webtty/groups".to_owned(), &none, &read),
        ("GET", base.clone(), &none, &read),
        ("GET", format!("{base}/participants"), &none, &read),
        ("GET", format!("{base}/control-requests"), &none, &read),
        ("GET", format!("{base}/key-grants"), &none, &read),
        ("POST", format!("{base}/participants"), &none, &read),
        ("POST", format!("{base}/control-requests"), &ask, &write),
        (
            "POST",
            format!("{base}/control-requests/{request}"),
            &refuse,
            &write,
        ),
        ("DELETE", base.clone(), &none, &write),
    ];
    let all = [
        "tunnels.resources.read-only",
        "tunnels.streams.create-delete",
        "tunnels.tunnels.create-delete",
        "webtty.logs.read-only",
        "webtty.sessions.read-only",
        "webtty.sessions.read-write",
    ];
    for permission in all {
        let claims = json!({"userId": "usr_ann", "permissions": [permission]});
        let token = world.platform.mint(claims);
        for (method, path, body, permitted) in &table {
            let body = Some(*body).filter(|body| !body.is_null());
            let (status, problem) = world.call(method, path, &token, body).await;
            let is_refused = status == 403 && problem["code"] == "insufficient_scope";
            let case = format!("{method} {path} with {permission}: {status} {problem}");
            assert_eq!(!is_refused, permitted.contains(&permission), "{case}");
        }
        let (status, capabilities) = world.get("/api/webtty/capabilities", &token).await;
        assert_eq!(status, 200);
        assert_eq!(capabilities["managed_protocol"], true);
    }
}

/// WT-6: opening a terminal needs the tunnel permission. The session permissions do not open one.
#[tokio::test]
async fn wt_6_a_terminal_is_opened_with_the_permission_of_tunnels() {
    let world = World::start().await;
    for (permission, status) in [
        ("webtty.sessions.read-write", Some(403)),
        ("tunnels.resources.read-only", Some(403)),
        ("tunnels.streams.create-delete", None),
    ] {
        let claims = json!({"userId": "usr_ann", "permissions": [permission]});
        let token = world.platform.mint(claims);
        assert_eq!(
            world.connect_client("", &token).await.err(),
            status,
            "{permission}"
        );
    }
}

/// A token that cannot see the tunnel cannot see its sessions.
#[tokio::test]
async fn a_boundary_hides_sessions_with_their_tunnel() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let path = format!("/api/webtty/sessions/{id}");
    for (name, seen) in [("wsv_build", true), ("another", false)] {
        let list = json!({"filters": {"name": name}});
        let resources = json!({"tunnels": {"projects": [format!("prj_{A}")],
            "scopes": {"tunnels": {"list": list, "connect": true}}}});
        let claims = json!({"userId": "usr_ann", "resources": resources});
        let token = world.platform.mint(claims);
        let (status, sessions) = world.get("/api/webtty/sessions", &token).await;
        assert_eq!(status, 200, "{sessions}");
        assert_eq!(
            sessions.as_array().unwrap().len(),
            usize::from(seen),
            "{name}"
        );
        let (status, _) = world.get(&path, &token).await;
        assert_eq!(status, if seen { 200 } else { 404 }, "{name}");
    }
    let resources = json!({"tunnels": {"projects": ["prj_elsewhere"]}});
    let claims = json!({"userId": "usr_ann", "resources": resources});
    let token = world.platform.mint(claims);
    assert_eq!(world.get("/api/webtty/sessions", &token).await.0, 403);
}

/// Only users who manage servers may open or join sessions of a restricted server.
#[tokio::test]
async fn a_restricted_server_needs_the_permission_to_manage_servers() {
    let restricted = |server: &mut api::link::WebttyServer| {
        server.access_policy = "restricted".to_owned();
    };
    let mut world = World::with(restricted, true, "plain").await;
    assert_eq!(world.connect_client("", &world.ann).await.err(), Some(403));
    let mut manages = super::world::MEMBER.to_vec();
    manages.push("network.webtty-servers.read-write");
    world.platform.add_person("usr_ann", &[(A, &manages)]);
    world.engine.wait_for_changes().await;
    let (_ann, _shell, id) = world.session().await;
    let path = format!("/api/webtty/sessions/{id}/participants");
    let (status, _) = world.post(&path, &world.bob, &json!({})).await;
    assert_eq!(status, 403);
    let (status, _) = world.post(&path, &world.ann, &json!({})).await;
    assert_eq!(status, 200);
}

/// ED-1e: a page opens and joins sessions of a restricted server with tokens for this one tunnel.
/// Both the tokens and the user need the permission.
#[tokio::test]
async fn ed_1e_a_restricted_server_is_opened_with_a_token_for_it_only() {
    let restricted = |server: &mut api::link::WebttyServer| {
        server.access_policy = "restricted".to_owned();
    };
    let world = World::with(restricted, true, "plain").await;
    let manages = "network.webtty-servers.read-write";
    let mut admin = super::world::MEMBER.to_vec();
    admin.push(manages);
    world.platform.add_person("usr_ann", &[(A, &admin)]);
    world.engine.wait_for_changes().await;
    let filters = json!({"name": super::world::SERVER});
    let (_, tunnels) = world.get("/api/tunnels", &world.ann).await;
    let id = tunnels[0]["id"].as_str().unwrap();
    let opens = |user: &str, permissions: &[&str], id: &str, path: &str| {
        let connect = json!({"filters": {"id": id}, "params": {"path": path}});
        let scopes = json!({"tunnels": {"connect": connect}});
        let resources = json!({"tunnels": {"projects": [format!("prj_{A}")], "scopes": scopes}});
        let claims = json!({"userId": user, "permissions": permissions, "resources": resources});
        world.platform.mint(claims)
    };
    let both = ["tunnels.streams.create-delete", manages];
    for (name, token, status) in [
        (
            "no permission",
            opens("usr_ann", &both[..1], id, "/"),
            Some(403),
        ),
        (
            "another tunnel",
            opens("usr_ann", &both, "tun_1", "/"),
            Some(403),
        ),
        (
            "another path",
            opens("usr_ann", &both, id, "/other"),
            Some(403),
        ),
        ("no role", opens("usr_bob", &both, id, "/"), Some(403)),
        ("theirs", opens("usr_ann", &both, id, "/"), None),
    ] {
        assert_eq!(
            world.connect_client("", &token).await.err(),
            status,
            "{name}"
        );
    }

    let mut ann = world.connect_client("", &world.ann).await.unwrap();
    ann.open(true).await;
    let (_, sessions) = world.get("/api/webtty/sessions", &world.ann).await;
    let path = format!(
        "/api/webtty/sessions/{}/participants",
        sessions[0]["id"].as_str().unwrap()
    );
    for (permissions, filters, status) in [
        (vec!["webtty.sessions.read-write"], &filters, 403),
        (
            vec!["webtty.sessions.read-write", manages],
            &json!({"name": "another"}),
            404,
        ),
        (vec!["webtty.sessions.read-write", manages], &filters, 200),
    ] {
        let of = json!({"filters": filters});
        let scopes = json!({"tunnels": {"list": of, "connect": of}});
        let resources = json!({"tunnels": {"projects": [format!("prj_{A}")], "scopes": scopes}});
        let claims =
            json!({"userId": "usr_ann", "permissions": permissions, "resources": resources});
        let token = world.platform.mint(claims.clone());
        let (found, _) = world.post(&path, &token, &json!({})).await;
        assert_eq!(found, status, "{claims}");
    }
}

/// Pages of the platform may call the API, and pages of other origins may not.
#[tokio::test]
async fn only_pages_of_the_platform_may_call_the_api() {
    let world = World::start().await;
    let platform = world.platform.base_url();
    let allowed = "access-control-allow-origin";
    for (origin, may) in [
        (platform.as_str(), true),
        ("https://evil.example", false),
        ("null", false),
    ] {
        for (method, more) in [
            (
                "OPTIONS",
                "access-control-request-method: POST\r\n".to_owned(),
            ),
            ("GET", format!("authorization: Bearer {}\r\n", world.ann)),
        ] {
            let host = super::world::host();
            let mut caller = world.engine.visitor().http1(&host).await;
            let fields = format!("origin: {origin}\r\n{more}");
            caller
                .request(method, "/api/webtty/sessions", &host, &fields)
                .await;
            let answer = caller.answer().await;
            let expected = may.then_some(origin);
            assert_eq!(answer.header(allowed), expected, "{method} {origin}");
            assert_eq!(answer.header("access-control-allow-credentials"), None);
            let status = match (method, may) {
                ("GET", _) => 200,
                (_, true) => 204,
                (_, false) => 405,
            };
            assert_eq!(answer.status, status, "{method} {origin}");
            if method == "OPTIONS" && may {
                assert_eq!(
                    answer.header("access-control-allow-methods"),
                    Some("GET, POST, DELETE")
                );
                assert_eq!(answer.header("vary"), Some("origin"));
            }
        }
    }
}

/// WT-4: arguments of a command may be secrets. The opener of the session and users who may read
/// recordings see them. Every other answer and every event contains the program name only.
#[tokio::test]
async fn wt_4_arguments_are_shown_to_readers_of_recordings() {
    let recorded = |server: &mut api::link::WebttyServer| {
        server.recording_policy = "recorded".to_owned();
    };
    let mut world = World::with(recorded, true, "plain").await;
    let mut admin = MEMBER.to_vec();
    admin.push("webtty.logs.read-only");
    world.platform.add_person("usr_ada", &[(A, &admin)]);
    let (_, ada) = world.platform.add_pat("usr_ada");
    world.engine.wait_for_changes().await;
    let watcher = watch(&world, &ada, true).await;
    let mut ann = world.connect_client("", &world.ann).await.unwrap();
    ann.open_with(true, &["work", "--token=hunter2", "now"])
        .await;
    let shell = world.server.shell().await;
    let sessions = world.get("/api/webtty/sessions", &world.bob).await.1;
    let id = sessions[0]["id"].as_str().unwrap().to_owned();
    let base = format!("/api/webtty/sessions/{id}");
    let events = format!("{base}/events");
    testing::within("the record of the open", async {
        while world.get(&events, &world.bob).await.1[0]["type"] != "open" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let paths = [
        "/api/webtty/sessions".to_owned(),
        "/api/webtty/groups".to_owned(),
        base.clone(),
        format!("{base}/participants"),
        format!("{base}/control-requests"),
        events.clone(),
    ];
    let whole = "work --token=hunter2 now";
    for over in [false, true] {
        if over {
            shell.exits(0);
            ann.wait_for_close().await;
            world
                .wait_for_session(&id, |shown| shown["status"] == "closed")
                .await;
        }
        for path in &paths {
            let (status, answer) = world.get(path, &world.bob).await;
            assert_eq!(status, 200, "{path}");
            assert!(!answer.to_string().contains("hunter2"), "{path}: {answer}");
        }
        let (_, shown) = world.get(&base, &world.bob).await;
        assert_eq!(shown["command_meta"]["command"], "work");
        for token in [&world.ann, &ada] {
            let (_, shown) = world.get(&base, token).await;
            assert_eq!(shown["command_meta"]["command"], whole);
            let (_, listed) = world.get("/api/webtty/sessions", token).await;
            assert_eq!(listed[0]["command_meta"]["command"], whole);
            let (_, recorded) = world.get(&events, token).await;
            assert_eq!(recorded[0]["metadata"]["detail"], whole);
        }
    }
    let event_texts = until(watcher, "webtty.session.closed").await.concat();
    assert!(!event_texts.contains("hunter2"), "{event_texts}");
}
