//! Links: authentication, resumption, latency and end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use api::link::{CHANGES, Cursor, LinkMessage};
use axum::extract::ConnectInfo;
use daemon::clock::Clock as _;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use serde_json::{Value, json};
use store::{addresses, engines, users};
use tokio::time::timeout;
use tower::ServiceExt as _;
use types::id::AddressId;

use super::{
    PlatformServer, SECRET, WAIT_LIMIT, asks, kinds_and_ids, linkable, linked, names, to_json,
};
use crate::support::{Project, TestControl, both};

both! {
    a_link_resumes_at_its_position,
    after_a_long_time_or_with_another_history_a_full_snapshot_is_sent,
    a_change_is_sent_immediately,
    only_the_secret_of_a_cluster_opens_a_link,
    links_end_with_the_platform,
    operators_see_linked_engines,
    a_process_has_a_limit_of_links,
    two_links_get_full_snapshots_at_a_time,
    many_changes_cause_a_full_snapshot,
}

async fn settle(control: &TestControl, project: &Project, port: i64) {
    let mut tx = control.app.store.begin().await.unwrap();
    let address = addresses::Address {
        id: AddressId::new(crate::support::next(), [1; 10]),
        project_id: project.id,
        cluster_domain: "engine.example".to_owned(),
        port,
        created_at: control.now(),
    };
    addresses::insert(&mut tx, &address).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_link_resumes_at_its_position(control: TestControl) {
    let (control, served, mut link, _, project) = linked(control).await;
    settle(&control, &project, 4001).await;
    let (cursor, _) = link.change().await;
    drop(link);
    // Nothing listens there.
    for port in [4002, 4003] {
        settle(&control, &project, port).await;
    }
    let mut link = served.link(Some(&cursor)).await;
    // Keys of the configuration are not logged. They are sent with each link.
    let (same, items) = link.change().await;
    assert_eq!((&same, to_json(&items).len(), items.len()), (&cursor, 0, 1));
    let (last, items) = link.change().await;
    let item_values = to_json(&items);
    assert_eq!(
        (
            item_values.len(),
            item_values[0]["addresses"].as_array().unwrap().len()
        ),
        (1, 3)
    );
    drop(link);
    let mut link = served.link(Some(&last)).await;
    let (same, _) = link.change().await;
    assert_eq!(same, last);
    settle(&control, &project, 4004).await;
    let (_, items) = link.change().await;
    assert_eq!(to_json(&items)[0]["addresses"].as_array().unwrap().len(), 4);
    served.stop().await;
}

async fn after_a_long_time_or_with_another_history_a_full_snapshot_is_sent(control: TestControl) {
    let (control, served, mut link, _, project) = linked(control).await;
    settle(&control, &project, 4001).await;
    let (cursor, _) = link.change().await;
    let (version, mark) = cursor.0.split_once('.').unwrap();
    for bad in [
        format!("{version}.{}", mark.replace(|c: char| c != 'x', "0")),
        format!("99{version}.{mark}"),
        format!("{version}.{mark}0"),
        format!("-{version}.{mark}"),
        version.to_owned(),
        "x".repeat(1000),
        String::new(),
    ] {
        let everything = served.link(Some(&Cursor(bad))).await.everything().await;
        assert_eq!(everything.cursor, cursor);
    }
    settle(&control, &project, 4002).await;
    link.change().await;
    // Log entries older than a week are deleted.
    control.clock.advance(8 * 24 * 3600);
    let stop = tokio_util::sync::CancellationToken::new();
    control::runtime::jobs::pass(&control.app, &stop).await;
    let everything = served.link(Some(&cursor)).await.everything().await;
    assert_ne!(everything.cursor, cursor);
    // After a database is restored to an earlier state, open links are notified.
    drop(link);
    let mut link = served.link(Some(&everything.cursor)).await;
    link.change().await;
    another_history(&control).await;
    let again = link.everything().await;
    assert!(again.cursor.0.contains("another"));
    served.stop().await;
    // Under another configuration the same cursor has another meaning.
    let mut config = control.app.config.clone();
    "https://moved.example".clone_into(&mut config.base_url);
    let control = control.restarted_with(config).await;
    let served = PlatformServer::start(&control).await;
    let moved = served.link(Some(&again.cursor)).await.everything().await;
    assert_eq!(moved.platform.base_url, "https://moved.example");
    served.stop().await;
}

/// Simulates a restored backup with the same number of changes as before.
async fn another_history(control: &TestControl) {
    control.raw("UPDATE link_head SET mark = 'another'").await;
}

async fn a_change_is_sent_immediately(control: TestControl) {
    let (control, served, mut link, _, project) = linked(control).await;
    let mut took = Vec::new();
    for port in 4000..4020 {
        let mut tx = control.app.store.begin().await.unwrap();
        let address = addresses::Address {
            id: AddressId::new(crate::support::next(), [1; 10]),
            project_id: project.id,
            cluster_domain: "engine.example".to_owned(),
            port,
            created_at: control.now(),
        };
        addresses::insert(&mut tx, &address).await.unwrap();
        tx.commit().await.unwrap();
        let committed = Instant::now();
        link.change().await;
        took.push(committed.elapsed());
    }
    took.sort();
    // Far below the polling interval of a second, so the link was woken. A busy machine is slow
    // occasionally, but not each time.
    assert!(took[5] < Duration::from_millis(500), "{took:?}");
    served.stop().await;
}

/// A change of one process reaches the link of the other by a notification and not by polling,
/// since many of them take less than the polling interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_another_process_is_sent() {
    let first = linkable(TestControl::postgres().await).await;
    let ada = first.person("ada").await;
    let project = first.project(&ada).await;
    let second = first.second_process().await.unwrap();
    let served = PlatformServer::start(&first).await;
    let mut link = served.link(None).await;
    link.everything().await;
    let mut took = Vec::new();
    for port in 4000..4010 {
        settle(&second, &project, port).await;
        let committed = Instant::now();
        link.change().await;
        took.push(committed.elapsed());
    }
    took.sort();
    assert!(took[3] < Duration::from_millis(500), "{took:?}");
    served.stop().await;
}

/// Links poll the database on SQLite, and if notifications fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_notification_is_found() {
    let first = linkable(TestControl::start("").await).await;
    let ada = first.person("ada").await;
    let project = first.project(&ada).await;
    let second = first.second_process().await.unwrap();
    let served = PlatformServer::start(&first).await;
    let mut link = served.link(None).await;
    link.everything().await;
    settle(&second, &project, 4000).await;
    let (_, items) = link.change().await;
    assert_eq!(
        kinds_and_ids(&items),
        names([("project", project.id.as_str())])
    );
    served.stop().await;
}

async fn only_the_secret_of_a_cluster_opens_a_link(control: TestControl) {
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let served = PlatformServer::start(&control).await;
    let status = async |request: Request<Empty<_>>| {
        let response = served.send(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        (status, problem)
    };
    let (refused, problem) = status(asks("wrong", None)).await;
    assert_eq!(
        (refused, &problem["code"]),
        (401, &json!("unauthenticated"))
    );
    let text = problem.to_string();
    assert!(
        !text.contains("engine.example") && !text.contains("wrong"),
        "{text}"
    );
    // Neither a user's token, nor an empty one, nor a nearly correct secret.
    let almost = format!("{}0", &SECRET[..SECRET.len() - 1]);
    for secret in [ada.token.as_str(), "", &almost, &SECRET.to_uppercase()] {
        assert_eq!(status(asks(secret, None)).await.0, 401);
    }
    let mut request = asks(SECRET, None);
    request
        .headers_mut()
        .insert("svc-link-version", "2".parse().unwrap());
    let (refused, problem) = status(request).await;
    assert_eq!(
        (refused, &problem["field"]),
        (400, &json!("svc-link-version"))
    );
    let mut request = asks(SECRET, None);
    request.headers_mut().remove("svc-link-version");
    assert_eq!(status(request).await.0, 400);
    let mut request = asks(SECRET, None);
    *request.uri_mut() = format!("{CHANGES}?sinse=1").parse().unwrap();
    assert_eq!(status(request).await.1["field"], "sinse");
    // Guesses are slowed down, and the correct secret is not.
    for _ in 0..40 {
        status(asks("wrong", None)).await;
    }
    assert_eq!(status(asks("wrong", None)).await.0, 429);
    let mut link = served.link(None).await;
    assert!(matches!(
        link.line().await,
        Some(LinkMessage::SnapshotBegin { .. })
    ));
    served.stop().await;
}

async fn links_end_with_the_platform(control: TestControl) {
    let (control, served, mut link, ..) = linked(control).await;
    let started_at = Instant::now();
    served.stop().await;
    assert_eq!(link.next_update().await, None);
    // The drain did not wait for the end of the link.
    assert!(started_at.elapsed() < WAIT_LIMIT);
    drop(control);
}

async fn operators_see_linked_engines(control: TestControl) {
    let (control, served, link, ..) = linked(control).await;
    let shown = async || {
        let since = jiff::Timestamp::MIN;
        let mut read = control.app.store.read().await.unwrap();
        engines::linked(&mut read, "engine.example", since, 10)
            .await
            .unwrap()
    };
    let mut seen = shown().await;
    while seen.is_empty() {
        tokio::task::yield_now().await;
        seen = shown().await;
    }
    let person = control.person("Ops").await;
    let mut tx = control.app.store.begin().await.unwrap();
    let admin = users::Role::Admin;
    users::set_role(&mut tx, person.user, admin, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let list = control
        .get("/api/operator/engines", &person.token)
        .await
        .expect(200);
    let [here, there] = &list["clusters"].as_array().unwrap()[..] else {
        panic!("{list}");
    };
    assert_eq!(
        (&here["clusterDomain"], &here["enrolled"]),
        (&json!("engine.example"), &json!(true))
    );
    assert_eq!(
        (&here["links"][0]["address"], here.get("reportedAt")),
        (&json!("127.0.0.1"), None)
    );
    assert_eq!(here["links"][0]["programVersion"], "9.8.7");
    assert!(list["version"].as_u64().unwrap() >= here["links"][0]["version"].as_u64().unwrap());
    assert_eq!(there["links"], json!([]));
    let mut browser = control.signed_in("Ops").await;
    let page = browser.open("/operator/engines").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("127.0.0.1") && page.text.contains("not linked"));
    let mut nobody = control.signed_in("ada").await;
    assert_eq!(nobody.open("/operator/engines").await.status, 404);
    assert_eq!(
        (seen[0].address.as_str(), seen[0].linked_at),
        ("127.0.0.1", control.clock.now())
    );
    drop(link);
    while !shown().await.is_empty() {
        tokio::task::yield_now().await;
    }
    served.stop().await;
}

/// A PostgreSQL dump is restored as documented. Engines with a newer state get a full snapshot,
/// even if the number of changes is the same by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_dump_is_restored_engines_get_a_full_snapshot() {
    let control = TestControl::postgres().await;
    let (control, served, mut link, _, project) = linked(control).await;
    settle(&control, &project, 4001).await;
    link.change().await;
    let url = control.app.config.database_url.as_ref().unwrap().expose();
    let dump = control.directory().join("platform.dump");
    let programs = std::path::PathBuf::from(std::env::var_os("SVC_TEST_PG_BIN").unwrap());
    let run = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(programs.join(program))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let file = dump.to_str().unwrap();
    run("pg_dump", &["--format=custom", "--file", file, url]);
    let mut cursors = Vec::new();
    for port in [4002, 4003] {
        settle(&control, &project, port).await;
        cursors.push(link.change().await.0);
    }
    drop(link);
    served.stop().await;
    control.app.store.close().await;
    let restore = [
        "--clean",
        "--if-exists",
        "--no-owner",
        "--single-transaction",
        "--dbname",
    ];
    run("pg_restore", &[&restore[..], &[url, file]].concat());
    let control = control.restarted().await;
    settle(&control, &project, 4005).await;
    let served = PlatformServer::start(&control).await;
    for cursor in cursors {
        let everything = served.link(Some(&cursor)).await.everything().await;
        let item_values = to_json(&everything.items);
        let ports = item_values[0]["addresses"].to_string();
        assert!(ports.contains("4001") && ports.contains("4005"), "{ports}");
        assert!(
            !ports.contains("4002") && !ports.contains("4003"),
            "{ports}"
        );
    }
    served.stop().await;
}

/// The answer to an engine that opens a link and reads nothing.
async fn opened(control: &TestControl) -> axum::response::Response {
    let mut request = asks(SECRET, None).map(|_| axum::body::Body::empty());
    let peer = SocketAddr::from((crate::support::PEER, 40_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    control.router.clone().oneshot(request).await.unwrap()
}

async fn a_process_has_a_limit_of_links(control: TestControl) {
    let control = linkable(control).await;
    let mut links = Vec::new();
    for number in 0..256 {
        let link = opened(&control).await;
        assert_eq!(link.status(), 200, "{number}");
        links.push(link);
    }
    let refused = opened(&control).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );
    links.pop();
    let again = async {
        while opened(&control).await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(WAIT_LIMIT, again).await.unwrap();
}

/// Two engines read their snapshots slowly, and a third one waits until one of them has finished.
async fn two_links_get_full_snapshots_at_a_time(control: TestControl) {
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    control.copy_project(&project, 1, 10_000).await;
    let piece = async |body: &mut axum::body::Body| {
        let frame = timeout(WAIT_LIMIT, body.frame()).await.unwrap();
        let data = frame.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    };
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut body = opened(&control).await.into_body();
        assert!(piece(&mut body).await.contains("snapshot_begin"));
        slow.push(body);
    }
    let mut third = opened(&control).await.into_body();
    let first = {
        let mut first = std::pin::pin!(piece(&mut third));
        loop {
            tokio::select! {
                first = &mut first => break first,
                () = tokio::time::sleep(Duration::from_millis(500)) => {}
            }
            for body in &mut slow {
                assert!(!piece(body).await.contains("snapshot_end"));
            }
        }
    };
    assert_eq!(first, "{\"type\":\"alive\"}\n");
    slow.pop();
    while !piece(&mut third).await.contains("snapshot_begin") {}
}

async fn many_changes_cause_a_full_snapshot(control: TestControl) {
    let (control, served, mut link, ..) = linked(control).await;
    // One change for each of many unassigned projects, and one of the keys, which sends them.
    let change = async |count: u32| {
        let text = format!(
            "INSERT INTO link_changes (version, mark, kind, key, at) \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
             SELECT version + 1, mark, 'ended', 'x' || i, {} FROM n CROSS JOIN link_head; \
             UPDATE link_head SET version = version + 1",
            control.now().as_microsecond()
        );
        control.raw(&text).await;
    };
    change(1_999).await;
    link.change().await;
    change(2_000).await;
    link.everything().await;
    served.stop().await;
}
