//! Live streams that the platform forwards: they end with the access of their reader.

use std::time::Duration;

use store::members::Role;
use tokio::time::timeout;

use super::engine::{Engine, open, read_rest, read_until};

/// Time in which a lost access ends a stream.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn events_arrive_as_the_engine_sends_them() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let cookie = control.session(&ada).await;
    let path = format!("/engine/{}/api/sse", project.id);
    let response = open(&control, &path, &cookie).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    // Proxies before the platform must not collect events.
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    let mut body = response.into_body();
    let first = read_until(&mut body, "\n\n").await;
    assert_eq!(first, "data: state.initial\n\n");
    engine.send("tunnel.created");
    let second = read_until(&mut body, "\n\n").await;
    assert_eq!(second, "data: tunnel.created\n\n");
}

#[tokio::test]
async fn a_stream_ends_with_the_session() {
    let (_engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    let cookie = browser.cookie.clone().unwrap();
    let path = format!("/engine/{}/api/sse", project.id);
    let mut body = open(&control, &path, &cookie).await.into_body();
    read_until(&mut body, "state.initial\n\n").await;
    browser.submit("/logout", &[]).await;
    let rest = timeout(SOON, read_rest(body)).await.unwrap();
    assert_eq!(rest, ": closed: unauthenticated\n\n");
    assert_eq!(open(&control, &path, &cookie).await.status(), 401);
}

#[tokio::test]
async fn a_stream_ends_with_the_membership() {
    let (engine, control) = Engine::start().await;
    let (ada, grace) = (control.person("Ada").await, control.person("Grace").await);
    control.join(&grace, ada.workspace, Role::Viewer).await;
    let project = control.project(&ada).await;
    let path = format!("/engine/{}/api/sse", project.id);
    let mut bodies = Vec::new();
    for person in [&ada, &grace] {
        let cookie = control.session(person).await;
        let mut body = open(&control, &path, &cookie).await.into_body();
        read_until(&mut body, "state.initial\n\n").await;
        bodies.push(body);
    }
    let member = format!("/api/workspaces/{}/members/{}", ada.workspace, grace.user);
    let removed = control.delete(&member, &ada.token).await;
    assert!(removed.status < 300, "{}", removed.text);
    let rest = timeout(SOON, read_rest(bodies.pop().unwrap()));
    assert_eq!(rest.await.unwrap(), ": closed: not_found\n\n");
    // The other stream continues.
    engine.send("tunnel.created");
    let more = read_until(&mut bodies[0], "\n\n").await;
    assert_eq!(more, "data: tunnel.created\n\n");
}

#[tokio::test]
async fn a_session_has_a_limited_number_of_streams() {
    let (_engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let cookie = control.session(&ada).await;
    let path = format!("/engine/{}/api/sse", project.id);
    let mut held = Vec::new();
    for _ in 0..16 {
        let response = open(&control, &path, &cookie).await;
        assert_eq!(response.status(), 200);
        held.push(response);
    }
    let refused = open(&control, &path, &cookie).await;
    assert_eq!(refused.status(), 429);
    assert!(
        read_rest(refused.into_body())
            .await
            .contains("too_many_streams")
    );
    // Another session of the same user.
    let other = control.session(&ada).await;
    assert_eq!(open(&control, &path, &other).await.status(), 200);
}
