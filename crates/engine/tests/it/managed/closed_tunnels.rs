//! Tunnels that a member of the project closes: their visits end, and the platform is notified.

use api::link::{Record, TunnelClosedRecord};
use client::Properties;
use testing::{RawVisitor, TestEngine, TestTunnel, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::revoked::{
    Duplex, assert_open, endless, ends, open, start_request, tcp_ports, tcp_visitor,
};
use super::{A, B, TwoProjects, host};

/// The status of a request to close a tunnel at the address of a project.
async fn close(engine: &TestEngine, endpoint: &str, tunnel: &TestTunnel, token: &str) -> u16 {
    let host = host(endpoint);
    let mut caller = engine.visitor().http1(&host).await;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let path = format!("/api/tunnels/{}", tunnel.online().tunnel_id);
    caller.request("DELETE", &path, &host, &bearer).await;
    caller.answer().await.status
}

/// EN-7: the visits of a closed tunnel end over any protocol, and those of another tunnel of the
/// same agent stay.
#[tokio::test]
async fn en_7_everything_of_a_closed_tunnel_ends() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed_with(&platform, &tcp_ports()).await;
    let agent = engine.agent_at(A, &ann).await;
    let service = endless().await;
    let web = open(agent.clone(), Properties::http(), &service).await;
    let tls = open(agent.clone(), Properties::tls(), &service).await;
    let tcp = open(agent.clone(), Properties::tcp(), &service).await;
    let private = open(agent.clone(), Properties::private("db"), &service).await;
    let other = open(agent, Properties::http(), &service).await;
    let dialler = engine.agent_at(A, &ann).await;
    let config = engine.ca().client(&[]);
    let raw = engine.visitor().connect(tls.hostname(), &config).await;
    let mut raw = RawVisitor::new(raw);
    raw.send("x").await;
    assert_eq!(raw.read_exact(5).await.unwrap(), b"ready");
    let mut socket = tcp_visitor(&engine, &tcp).await;
    let mut dialled = within("a dial", dialler.dial("db")).await.unwrap();
    for stream in [&mut socket as &mut dyn Duplex, &mut dialled] {
        stream.write_all(b"x").await.unwrap();
        let mut ready = [0; 5];
        within("the service", stream.read_exact(&mut ready))
            .await
            .unwrap();
    }
    let download = start_request(&engine, web.hostname(), "/", None).await;
    let upgrade = start_request(&engine, web.hostname(), "/upgrade", None).await;
    let mut stays = start_request(&engine, other.hostname(), "/upgrade", None).await;
    for tunnel in [&web, &tls, &tcp, &private] {
        assert_eq!(close(&engine, A, tunnel, &ann).await, 204);
    }
    ends(download).await;
    ends(upgrade).await;
    ends(raw).await;
    for stream in [&mut socket as &mut dyn Duplex, &mut dialled] {
        let mut rest = Vec::new();
        // Either a reset or a close is an end.
        within("the end", stream.read_to_end(&mut rest)).await.ok();
    }
    assert_open(&mut stays).await;
    let gone = engine.visitor().http1(web.hostname()).await;
    let gone = get(gone, web.hostname()).await;
    assert_eq!(gone, (503, "tunnel_offline".to_owned()));
    assert!(within("a refusal", dialler.dial("db")).await.is_err());
    let port = tcp.online().properties.port.unwrap();
    within("the closed port", async {
        while tokio::net::TcpStream::connect((engine.addr().ip(), port))
            .await
            .is_ok()
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn get(mut visitor: RawVisitor, host: &str) -> (u16, String) {
    let answer = visitor.get("/", host).await;
    let code = answer.json()["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, code)
}

/// The report names the user who closed the tunnel. A member of another project may not.
#[tokio::test]
async fn a_closed_tunnel_is_reported_with_its_caller() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    platform.add_member("usr_bob", &[A]);
    let (credential, bob) = platform.add_pat("usr_bob");
    let engine = TestEngine::managed(&platform).await;
    let service = endless().await;
    let named = Properties::http().named("web");
    let tunnel = open(engine.agent_at(A, &ann).await, named, &service).await;
    engine.wait_for_changes().await;
    assert_eq!(close(&engine, A, &tunnel, &ben).await, 403);
    assert_eq!(close(&engine, B, &tunnel, &ben).await, 404);
    assert_eq!(close(&engine, A, &tunnel, &bob).await, 204);
    let closed = |record: &Record| match record {
        Record::TunnelClosed(record) => Some(TunnelClosedRecord::clone(record)),
        _ => None,
    };
    let reported = platform.wait_for_record(closed).await;
    assert_eq!(reported.project_id, "prj_aaaaaaaa");
    assert_eq!(reported.tunnel_id, tunnel.online().tunnel_id);
    assert_eq!(reported.tunnel_name.as_deref(), Some("web"));
    assert_eq!(reported.user_id.as_deref(), Some("usr_bob"));
    assert_eq!(reported.credential_id, Some(credential));
}
