//! Two projects on one engine never see each other.

use client::{Agent, ConnectError, Properties, RefusalKind, Target};
use serde_json::Value;
use testing::{ScriptedUpstream, TestEngine, TestTunnel, Upstream, within};

use super::{A, B, TwoProjects, get, publish, visit, watch};

/// Names of the tunnels that a list shows.
async fn listed(engine: &TestEngine, endpoint: &str, token: &str) -> Vec<String> {
    let list = get(engine, endpoint, "/api/tunnels", token).await;
    assert_eq!(list.status, 200, "{}", list.text());
    let Value::Array(tunnels) = list.json() else {
        panic!("a list")
    };
    let name = |tunnel: &Value| tunnel["name"].as_str().unwrap().to_owned();
    tunnels.iter().map(name).collect()
}

/// EN-1a: a connection serves only the host that its handshake named.
#[tokio::test]
async fn en_1a_a_connection_for_one_project_serves_no_other() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let bearer = format!("Authorization: Bearer {ann}\r\n");
    for (named, status) in [(A, 200), (B, 421)] {
        for path in ["/api/tunnels", "/api/sse"] {
            let mut caller = engine.visitor().http1(&super::host(named)).await;
            caller.request("GET", path, &super::host(A), &bearer).await;
            assert_eq!(caller.head().await.status, status, "{named} {path}");
        }
        let mut caller = engine.visitor().h2(&super::host(named)).await;
        let request = http::Request::get(format!("https://{}/api/tunnels", super::host(A)))
            .header("authorization", format!("Bearer {ann}"))
            .body(testing::H2Visitor::empty())
            .unwrap();
        assert_eq!(
            caller.send(request).await.unwrap().status(),
            status,
            "{named}"
        );
    }
}

/// EN-1, EN-7.
#[tokio::test]
async fn en_7_lists_names_and_dials_are_limited_to_one_project() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::tcp().await;
    let of_ann = engine.agent_at(A, &ann).await;
    let of_ben = engine.agent_at(B, &ben).await;
    // Both projects use the same name. Neither takes it from the other.
    let _a = publish(of_ann.clone(), Properties::private("db"), &service).await;
    let only = publish(of_ann.clone(), Properties::private("only"), &service).await;
    let _b = publish(of_ben.clone(), Properties::private("db"), &service).await;
    assert_eq!(listed(&engine, A, &ann).await, ["db", "only"]);
    assert_eq!(listed(&engine, B, &ben).await, ["db"]);
    let clients = get(&engine, B, "/api/clients", &ben).await.json();
    assert_eq!(clients.as_array().unwrap().len(), 1);
    assert_eq!(clients[0]["project_id"], "prj_bbbbbbbb");
    assert_eq!(clients[0]["workspace_id"], "wks_bbbbbbbb");

    within("stream", of_ben.dial("db")).await.unwrap();
    let missing = within("refusal", of_ben.dial("only")).await.unwrap_err();
    assert!(
        matches!(&missing, ConnectError::Refused(refusal) if refusal.kind == RefusalKind::NotFound),
        "{missing:?}"
    );
    let id = &only.online().tunnel_id;
    assert!(within("refusal", of_ben.dial(id)).await.is_err(), "by id");

    // The other project's address, with a token that is valid elsewhere.
    for path in ["/api/tunnels", "/api/clients", "/api/sse"] {
        let refused = get(&engine, A, path, &ben).await;
        assert_eq!(refused.status, 403, "{path}");
    }
    let path = format!("/api/tunnels/{id}");
    assert_eq!(get(&engine, B, &path, &ben).await.status, 404);
    let stranger = Agent::connect(engine.agent_config_at(A, &ben)).await;
    if let Ok(stranger) = stranger {
        let dialled = within("refusal", stranger.dial("only")).await;
        assert!(dialled.is_err(), "the user is not a member of the project");
    }
}

/// EN-3, EN-7.
#[tokio::test]
async fn en_7_events_are_limited_to_one_project() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let mut watcher = watch(&engine, B, &ben).await;
    let service = Upstream::tcp().await;
    let agent = engine.agent_at(A, &ann).await;
    let _a = publish(agent, Properties::private("db"), &service).await;
    let _agent = engine.agent_at(B, &ben).await;
    let event = watcher.chunk().await.unwrap();
    let text = String::from_utf8(event).unwrap();
    assert!(text.contains("client.created"), "{text}");
    assert!(text.contains("prj_bbbbbbbb") && !text.contains("prj_aaaaaaaa"));
}

/// EN-11.
#[tokio::test]
async fn en_11_a_hostname_of_another_project_or_an_unknown_one_is_refused() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::http1().await;
    let named = |hostname: &str| Properties::http().hostname(hostname.to_owned());
    let of_ann = engine.agent_at(A, &ann).await;
    let web = publish(of_ann, named("web"), &service).await;
    assert_eq!(web.hostname(), "web-aaaaaaaa.t.engine.localhost");
    let of_ben = engine.agent_at(B, &ben).await;
    let refusal = async |hostname: &str| {
        let mut tunnel = of_ben.open(named(hostname));
        let refused = within("refusal", tunnel.online()).await.unwrap_err();
        refused.to_string()
    };
    let other = refusal("web-aaaaaaaa.t.engine.localhost").await;
    assert!(other.contains("another project"), "{other}");
    let custom = refusal("www.example.com").await;
    assert!(custom.contains("not available"), "{custom}");
    // The same label results in another name for the second project.
    let own = publish(of_ben.clone(), named("web"), &service).await;
    assert_eq!(own.hostname(), "web-bbbbbbbb.t.engine.localhost");
    assert_eq!(visit(&engine, &web, "/").await.status, 200);
}

/// Whatever its plan allows, the visits of one project leave capacity for other projects.
#[tokio::test]
async fn one_project_leaves_capacity_for_others() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let limits = "limits: {max_streams: 8, project_share_percent: 50}";
    let engine = TestEngine::managed_with(&platform, limits).await;
    let hanging = ScriptedUpstream::never_answers().await;
    let service = Upstream::http1().await;
    let target: Target = hanging.addr().to_string().parse().unwrap();
    let agent = engine.agent_at(A, &ann).await;
    let anns = TestTunnel::open(agent, Properties::http(), target).await;
    let agent = engine.agent_at(B, &ben).await;
    let bens = publish(agent, Properties::http(), &service).await;

    let mut held = Vec::new();
    for _ in 0..4 {
        let mut visitor = engine.visitor().http1(anns.hostname()).await;
        visitor.request("GET", "/", anns.hostname(), "").await;
        hanging.next_head().await;
        held.push(visitor);
    }
    let answer = visit(&engine, &anns, "/").await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("1"));
    let error = answer.text();
    assert!(
        error.contains("the project has reached its limit of visits in progress: 4"),
        "{error}"
    );
    assert_eq!(visit(&engine, &bens, "/").await.status, 200);
    // The slot of a finished visit is free once the edge has noticed its end.
    drop(held.pop());
    let mut visitor = engine.visitor().http1(anns.hostname()).await;
    let again = async {
        loop {
            visitor.request("GET", "/", anns.hostname(), "").await;
            tokio::select! {
                _ = hanging.next_head() => return,
                answer = visitor.answer() => assert_eq!(answer.status, 503),
            }
        }
    };
    within("room", again).await;
}
