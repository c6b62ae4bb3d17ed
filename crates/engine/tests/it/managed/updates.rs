//! Updates from the platform, and an engine without its platform.

use std::sync::Arc;

use client::{Agent, ConnectError, Properties};
use engine::clock::SystemClock;
use testing::{FakePlatform, TestEngine, Upstream, within};

use super::{A, B, TwoProjects, get, host, publish, visit};

#[tokio::test]
async fn updates_of_the_platform_are_applied() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::http1().await;
    let tunnel = publish(engine.agent_at(A, &ann).await, Properties::http(), &service).await;
    let hostname = tunnel.hostname();
    assert!(
        hostname.ends_with("-aaaaaaaa.t.engine.localhost"),
        "{hostname}"
    );
    assert_eq!(visit(&engine, &tunnel, "/").await.status, 200);

    // A project that is added later.
    assert_eq!(
        get(&engine, "cccccccc", "/api/auth", &ann).await.status,
        421
    );
    platform.add_project("cccccccc");
    platform.add_member("usr_ann", &[A, "cccccccc"]);
    engine.wait_for_changes().await;
    let list = get(&engine, "cccccccc", "/api/tunnels", &ann).await;
    assert_eq!((list.status, list.text()), (200, "[]"));
}

#[tokio::test]
async fn a_lost_link_stops_nothing_and_is_reported() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let metrics = "metrics: {prometheus: {enabled: true, listen_addr: '127.0.0.1:0'}}";
    let engine = TestEngine::managed_with(&platform, metrics).await;
    let service = Upstream::http1().await;
    let tunnel = publish(engine.agent_at(A, &ann).await, Properties::http(), &service).await;
    platform.set_unavailable(true);
    let link = engine.running().link().unwrap();
    within("the loss", link.wait_until_connected(false)).await;

    assert_eq!(visit(&engine, &tunnel, "/").await.status, 200);
    let other = publish(engine.agent_at(B, &ben).await, Properties::http(), &service).await;
    assert_eq!(visit(&engine, &other, "/").await.status, 200);
    let scrape = engine.running().metrics_addr().unwrap();
    let address = format!("http://{scrape}");
    let ready = reqwest::get(format!("{address}/readyz")).await.unwrap();
    assert_eq!(ready.status(), 200);
    within("the metric", async {
        loop {
            let scraped = reqwest::get(format!("{address}/metrics")).await.unwrap();
            if scraped
                .text()
                .await
                .unwrap()
                .contains("svc_control_plane_connected 0")
            {
                return;
            }
        }
    })
    .await;

    // Changes made in the meantime take effect once the link is restored.
    platform.add_person("usr_ann", &[]);
    platform.set_unavailable(false);
    engine.wait_for_changes().await;
    assert_eq!(get(&engine, A, "/api/tunnels", &ann).await.status, 403);
    assert_eq!(get(&engine, B, "/api/tunnels", &ben).await.status, 200);
}

#[tokio::test]
async fn a_restart_without_the_platform_serves_immediately() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let data = tempfile::tempdir().unwrap();
    let start = || TestEngine::managed_at(&platform, Some(data.path()), "", Arc::new(SystemClock));
    let engine = start().await;
    engine.wait_for_changes().await;
    engine.stop().await;

    platform.set_unavailable(true);
    let engine = start().await;
    let service = Upstream::http1().await;
    let tunnel = publish(engine.agent_at(A, &ann).await, Properties::http(), &service).await;
    assert_eq!(visit(&engine, &tunnel, "/").await.status, 200);
    assert!(!engine.running().link().unwrap().is_connected());
}

/// A takedown is a part of the saved state.
#[tokio::test]
async fn a_takedown_holds_after_a_restart_without_the_platform() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    let data = tempfile::tempdir().unwrap();
    let start = || TestEngine::managed_at(&platform, Some(data.path()), "", Arc::new(SystemClock));
    let engine = start().await;
    let name = format!("shop-{A}.t.{}", engine.host());
    platform.add_project_with(A, |project| project.taken_down = vec![name.clone()]);
    engine.wait_for_changes().await;
    engine.stop().await;

    platform.set_unavailable(true);
    let engine = start().await;
    let refused = engine.visitor().http1(&name).await.get("/", &name).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["code"], "hostname_taken_down");
}

#[tokio::test]
async fn the_saved_state_contains_no_credential() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let data = tempfile::tempdir().unwrap();
    let engine =
        TestEngine::managed_at(&platform, Some(data.path()), "", Arc::new(SystemClock)).await;
    engine.wait_for_changes().await;
    engine.stop().await;
    let state = std::fs::read_to_string(data.path().join("link/state")).unwrap();
    assert!(state.contains("usr_ann"));
    for secret in [ann.as_str(), platform.secret()] {
        assert!(!state.contains(secret));
    }
}

#[tokio::test]
async fn an_engine_without_any_platform_state_refuses_and_waits() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    platform.set_unavailable(true);
    let metrics = "metrics: {prometheus: {enabled: true, listen_addr: '127.0.0.1:0'}}";
    let engine = TestEngine::managed_at(&platform, None, metrics, Arc::new(SystemClock)).await;
    let scrape = engine.running().metrics_addr().unwrap();
    let ready = async || {
        let answer = reqwest::get(format!("http://{scrape}/readyz")).await;
        answer.unwrap().status().as_u16()
    };
    assert_eq!(ready().await, 503);
    let config = engine.agent_config_at(A, &ann);
    let refused = within("refusal", client::dial(&config, "db")).await;
    let error = refused.err();
    assert!(
        matches!(&error, Some(ConnectError::Unavailable(_))),
        "{error:?}"
    );
    // An agent retries until it is accepted.
    let agent = tokio::spawn(Agent::connect(config));
    assert_eq!(get(&engine, A, "/api/tunnels", &ann).await.status, 503);
    let published = "web-aaaaaaaa.t.engine.localhost";
    let mut visitor = engine.visitor().http1(published).await;
    let answer = visitor.get("/", published).await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());

    platform.set_unavailable(false);
    engine.wait_for_changes().await;
    within("the agent", agent).await.unwrap().unwrap();
    within("readiness", async {
        while ready().await != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_community_engine_has_no_link() {
    let engine = TestEngine::start().await;
    assert!(engine.running().link().is_none());
    assert_eq!(engine.host(), host("x").trim_start_matches("x."));
}

#[tokio::test]
async fn two_engines_do_not_share_a_directory() {
    let platform = FakePlatform::start().await;
    let data = tempfile::tempdir().unwrap();
    let clock = || Arc::new(SystemClock);
    let first = TestEngine::managed_at(&platform, Some(data.path()), "", clock()).await;
    let directory = data.path().to_owned();
    let other = platform.clone();
    let second = tokio::spawn(async move {
        TestEngine::managed_at(&other, Some(&directory), "", Arc::new(SystemClock)).await
    });
    let refused = second.await.err().unwrap().into_panic();
    let message = refused.downcast::<String>().unwrap();
    assert!(message.contains("control_plane.data_dir"), "{message}");
    first.stop().await;
}
